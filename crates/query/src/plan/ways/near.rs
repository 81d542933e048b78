//! Plans for `$near` and `$nearSphere`. They need a geo index, which gives the order by distance.

use std::sync::Arc;

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_mql::matcher::{DistanceUnit, NearSearch};
use mayfly_storage::kinds::FieldKind;
use mayfly_storage::kinds::plane::PlaneIndex;
use mayfly_storage::{Collection, Index, whole_range};

use super::hinted::names;
use super::index::extend;
use crate::language::Hint;
use crate::plan::candidates::input::PlanInput;
use crate::plan::types::access::NearAccess;
use crate::plan::types::candidate::{Candidate, CollationMatch};
use crate::plan::types::tree::Plan;
use crate::plan::types::way::Way;

/// Plans a search by distance.
///
/// # Errors
/// 291 NoQueryExecutionPlans if no geo index can serve the search.
pub(crate) fn way_by_distance(
    input: &PlanInput<'_>,
    (path, near): (&str, NearSearch),
) -> Result<Way> {
    let hint = input.query.hint.as_ref();
    if matches!(hint, Some(Hint::Natural { .. })) {
        let text = "error processing query: planner returned error :: caused by :: a search by distance cannot have the \
                    hint {$natural: 1}";
        return Err(Error::bad_value(text));
    }
    let hinted = |index: &&Arc<Index>| hint.is_none_or(|hint| names(hint, index));
    match input.indexes.iter().filter(hinted).find_map(|index| access(index, input, path, near)) {
        Some(access) => {
            check_in_grid(&access)?;
            let unordered = input.query.sort.is_some();
            Ok(Way { plan: Plan::Near(Arc::new(access)), unordered })
        }
        None => Err(no_index(input.collection, path, near)),
    }
}

/// Checks that the point of a search over a `2d` index is in the grid of the index.
fn check_in_grid(access: &NearAccess) -> Result<()> {
    let Some(plane) = access.index.spec.kind().get::<PlaneIndex>() else { return Ok(()) };
    plane.grid.number(access.near.from).map(|_| ()).map_err(|_| {
        let (min, max) = (plane.grid.min, plane.grid.max);
        Error::new(ErrorCode(16433), format!("point not in interval of [ {min}, {max} ]"))
    })
}

fn no_index(collection: &Collection, path: &str, near: NearSearch) -> Error {
    let farthest = match near.max.is_finite() {
        true => near.max.to_string(),
        false => "1.79769e+308".to_owned(),
    };
    let text = format!(
        "error processing query: ns={}: GEONEAR  field={path} maxdist={farthest} isNearSphere={}\nSort: {{}}\nProj: \
         {{}}\n planner returned error :: caused by :: unable to find index for $geoNear query",
        collection.namespace().as_str(),
        u8::from(near.unit == DistanceUnit::Radians)
    );
    Error::new(ErrorCode::NoQueryExecutionPlans, text)
}

/// The access path over this index, if it can serve the search.
fn access(
    index: &Arc<Index>,
    input: &PlanInput<'_>,
    path: &str,
    near: NearSearch,
) -> Option<NearAccess> {
    let fields = index.spec.fields();
    let place = fields.iter().position(|field| {
        let fits = match field.kind {
            FieldKind::Sphere => near.is_spherical(),
            FieldKind::Plane => near.unit != DistanceUnit::Metres,
            _ => false,
        };
        fits && field.path == path
    })?;
    let candidate = Candidate::of(index, fields.into());
    let collations = CollationMatch::of(index.spec.collation(), input.query);
    let (mut prefixes, mut by_place) = (vec![whole_range()], true);
    for (at, field) in fields.iter().enumerate().take(place) {
        let bounded = candidate.bounds_of(at, &input.bounds, collations);
        let Some(found) = bounded.filter(|found| by_place && !found.bounds.is_everything()) else {
            // An index whose first field has no bounds cannot serve the search.
            if at == 0 {
                return None;
            }
            by_place = false;
            break;
        };
        prefixes = extend(&prefixes, &found.ranges(field, index));
        by_place = found.bounds.points() && prefixes.len() <= MAX_PREFIXES;
        if !by_place {
            break;
        }
    }
    Some(NearAccess { index: index.clone(), prefixes, by_place, path: path.to_owned(), near })
}

/// Limit on the prefixes whose entries are searched by cell.
const MAX_PREFIXES: usize = 64;
