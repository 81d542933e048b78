//! Plans for `$near` and `$nearSphere`. They need a geo index, which gives the order by distance.

use std::sync::Arc;

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_mql::matcher::{DistanceUnit, GeoTest, NearSearch, Predicate};
use mayfly_storage::kinds::FieldKind;
use mayfly_storage::kinds::plane::PlaneIndex;
use mayfly_storage::{Collection, Index, KeyRange, whole_range};

use super::allowed::allows;
use super::bounds::{Condition, FieldBounds};
use super::candidate::{Candidate, Comparison, has_all_of};
use super::choose::extend;
use super::{Plan, Way};
use crate::language::{CanonicalQuery, Hint};

/// An access path that reaches documents in the order of their distance.
#[derive(Clone)]
pub struct NearAccess {
    /// The geo index.
    pub index: Arc<Index>,
    /// Key prefixes before the geo field; one whole range if it is the first field.
    pub prefixes: Vec<KeyRange>,
    /// Whether the prefixes are single values, so that cells bound the entries after them.
    pub by_place: bool,
    /// Path of the geo field.
    pub path: String,
    /// The point and the distances that the query asks for.
    pub near: NearSearch,
}

impl NearAccess {
    /// The name of the stage in explain output.
    pub fn stage(&self) -> &'static str {
        match self.index.spec.kind().is::<PlaneIndex>() {
            true => "GEO_NEAR_2D",
            false => "GEO_NEAR_2DSPHERE",
        }
    }
}

/// The search by distance among these conditions, if there is one.
pub(super) fn sought<'q>(conditions: &[Condition<'q>]) -> Option<(&'q str, NearSearch)> {
    conditions.iter().find_map(|(path, predicate)| match predicate {
        Predicate::Geo(test, _) => match &**test {
            GeoTest::Near(near) => Some((*path, *near)),
            GeoTest::Within(_) | GeoTest::Intersects(_) => None,
        },
        _ => None,
    })
}

/// Plans a search by distance.
///
/// # Errors
/// 291 NoQueryExecutionPlans if no geo index can serve the search.
pub(super) fn plan(
    collection: &Collection,
    query: &CanonicalQuery,
    path: &str,
    near: NearSearch,
    bounds: &[FieldBounds<'_>],
) -> Result<Way> {
    let hinted = |index: &Index| match &query.hint {
        None => true,
        Some(Hint::Name(name)) => index.spec.name() == name,
        Some(Hint::Key(key)) => mayfly_value::compare_docs(index.spec.key(), key.as_doc()).is_eq(),
        Some(Hint::Natural { .. } | Hint::Between { .. }) => false,
    };
    let usable = |index: Arc<Index>| {
        if index.spec.hidden()
            || !allows(query, &index)
            || !hinted(&index)
            || !has_all_of(&index, query)
        {
            return None;
        }
        access(&index, query, path, near, bounds)
    };
    match collection.plannable_indexes(query.indexes).into_iter().find_map(usable) {
        Some(access) => Ok(Way::new(Plan::Near(Arc::new(access)), query.sort.is_some())),
        None => Err(no_index(collection, path, near)),
    }
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
    query: &CanonicalQuery,
    path: &str,
    near: NearSearch,
    bounds: &[FieldBounds<'_>],
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
    let comparison = Comparison::of(index.spec.collation(), query);
    let (mut prefixes, mut by_place) = (vec![whole_range()], true);
    for (at, field) in fields.iter().enumerate().take(place) {
        let bounded = candidate.bounds_of(at, bounds, comparison);
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
