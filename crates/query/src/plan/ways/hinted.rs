//! Hints, and the arguments `min` and `max` of `find`: keys of the hinted index between which the
//! scan runs, `min` inclusive and `max` exclusive, in the order of the index. They replace the
//! bounds that come from the filter.

use std::sync::Arc;

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_mql::FieldPath;
use mayfly_mql::matcher::Expr;
use mayfly_storage::kinds::FieldKind;
use mayfly_storage::kinds::wildcard::Wildcard;
use mayfly_storage::{Collection, Direction, Index, KeyRange, whole_range};
use mayfly_value::keys::{self, TypeBits};
use mayfly_value::{Collation, DocBuf, RawDoc, SortOrder};

use super::index::ways_over;
use super::records::forced_by_id;
use crate::language::{CanonicalQuery, Hint};
use crate::plan::candidates::input::PlanInput;
use crate::plan::types::scan::{IndexScan, RecordScan};
use crate::plan::types::tree::Plan;
use crate::plan::types::way::Way;

/// The way that a hint names, within its `min` and `max`.
///
/// # Errors
/// 2 BadValue if no such index exists, 27 IndexNotFound if several have the hinted key, 291
/// NoQueryExecutionPlans if the index cannot serve the query, and the errors of `min` and `max`.
pub(crate) fn way_by_hint(input: &PlanInput<'_>, hint: &Hint) -> Result<Way> {
    let (collection, query) = (input.collection, input.query);
    if let Hint::Between { index, min, max } = hint {
        // The keys of a wildcard index have no fixed fields.
        let wildcard = |index: Arc<Index>| index.spec.kind().get::<Wildcard>().is_some();
        if hinted(input, index)?.is_some_and(wildcard) {
            return Err(incompatible());
        }
        let way = way_by_hint(input, index)?;
        return narrowed(collection, way, query, min.as_ref(), max.as_ref());
    }
    let wants_id = match hint {
        Hint::Name(name) => name == "_id_",
        Hint::Key(key) => {
            let mut fields = key.as_doc().iter();
            fields.next().is_some_and(|field| field.name() == "_id") && fields.next().is_none()
        }
        Hint::Natural { backward } => {
            let direction = if *backward { Direction::Backward } else { Direction::Forward };
            let plan = RecordScan::new(vec![whole_range()], direction).into();
            return Ok(Way { plan, unordered: query.sort.is_some() });
        }
        Hint::Between { .. } => false,
    };
    // A collection that is not clustered by `_id` has an ordinary index on it.
    if wants_id && collection.id_index().is_none() {
        return Ok(forced_by_id(input));
    }
    match hinted(input, hint)? {
        Some(index) => {
            let found = ways_over(input, &index, |_| true).next().map(|(_, way)| way);
            found.or_else(|| whole_scan(query, &index)).ok_or_else(|| {
                Error::new(
                    ErrorCode::NoQueryExecutionPlans,
                    "error processing query: No query solutions: the hinted index cannot serve this query",
                )
            })
        }
        None => Err(Error::bad_value(
            "error processing query: planner returned error :: caused by :: hint provided does not correspond to an \
             existing index",
        )),
    }
}

/// The index that a hint names. A hidden index serves no query, not even one with a hint for it.
///
/// # Errors
/// 27 IndexNotFound if several indexes have the hinted key.
fn hinted(input: &PlanInput<'_>, hint: &Hint) -> Result<Option<Arc<Index>>> {
    let indexes = input.collection.plannable_indexes(input.query.indexes);
    let usable = |index: &Arc<Index>| !index.spec.hidden() && names(hint, index);
    let mut named = indexes.into_iter().filter(usable);
    let (first, second) = (named.next(), named.next());
    if let (Some(first), Some(second)) = (&first, &second) {
        let text = format!(
            "error processing query: planner returned error :: caused by :: \
             Hint matched multiple indexes, must hint by index name. Matched: {} and {}",
            first.spec.name(),
            second.spec.name()
        );
        return Err(Error::new(ErrorCode::IndexNotFound, text));
    }
    Ok(first)
}

/// A scan of a whole index that has no condition of the query, for a hint. A sparse index or one of
/// places returns only the documents that it contains, as in the reference.
fn whole_scan(query: &CanonicalQuery, index: &Arc<Index>) -> Option<Way> {
    let spec = &index.spec;
    let is_of_places = |kind| matches!(kind, FieldKind::Sphere | FieldKind::Plane);
    let of_places = spec.fields().iter().any(|field| is_of_places(field.kind));
    let sparse = spec.sparse() && spec.kind().is_ordered();
    let wildcard = spec.kind().get::<Wildcard>();
    let has_all = wildcard.is_some_and(|wildcard| contains_matches(query, wildcard));
    if !(of_places || sparse || has_all) || index.is_partial() {
        return None;
    }
    let scan = IndexScan::new(index.clone(), vec![whole_range()], Direction::Forward);
    let plan = IndexScan { repeats: has_all, ..scan }.into();
    Some(Way { plan, unordered: query.sort.is_some() })
}

/// Whether a wildcard index has an entry of every document that matches: the conditions are on
/// paths that it covers, and do not match a document that lacks all of them.
fn contains_matches(query: &CanonicalQuery, wildcard: &Wildcard) -> bool {
    let covers = |path: &FieldPath| {
        let parts: Vec<String> = path.parts().iter().map(|part| part.to_string()).collect();
        wildcard.covers(&parts)
    };
    fn all(expr: &Expr, covers: &dyn Fn(&FieldPath) -> bool) -> bool {
        match expr {
            Expr::And(parts) | Expr::Or(parts) | Expr::Nor(parts) => {
                parts.iter().all(|part| all(part, covers))
            }
            Expr::Path { path, .. } => covers(path),
            Expr::Document(_) | Expr::Always(_) => false,
        }
    }
    !wildcard.is_compound()
        && all(query.matcher.root(), &covers)
        && query.matcher.matches(RawDoc::EMPTY).is_ok_and(|matches| !matches)
}

/// Whether a hint names this index.
pub(crate) fn names(hint: &Hint, index: &Index) -> bool {
    match hint {
        Hint::Name(name) => index.spec.name() == name,
        Hint::Key(key) => mayfly_value::compare_docs(index.spec.key(), key.as_doc()).is_eq(),
        Hint::Natural { .. } | Hint::Between { .. } => false,
    }
}

/// Returns the way over the same index, restricted to the keys between `min` and `max`.
///
/// # Errors
/// 51174 when they do not name the fields of the index, 51175 when `min` is not before `max`.
fn narrowed(
    collection: &Collection,
    way: Way,
    query: &CanonicalQuery,
    min: Option<&DocBuf>,
    max: Option<&DocBuf>,
) -> Result<Way> {
    let scan = way.plan.index_scan();
    let fields: Vec<(&str, SortOrder)> = match scan {
        Some(scan) => {
            let fields = scan.index.spec.fields().iter();
            fields.map(|field| (field.path.as_str(), field.order)).collect()
        }
        None => vec![("_id", SortOrder::Ascending)],
    };
    let collation = match scan {
        Some(scan) => scan.index.spec.collation(),
        None => collection.collation(),
    };
    let collation = collation.map(|collation| &**collation);
    let start = min.map(|min| key_of(min, &fields, collation)).transpose()?.unwrap_or_default();
    let end = max.map(|max| key_of(max, &fields, collation)).transpose()?.unwrap_or_default();
    if !end.is_empty() && start >= end {
        return Err(Error::new(
            ErrorCode(51175),
            "The value provided for min() does not come before the value provided for max() in the hinted index",
        ));
    }
    let ranges = vec![KeyRange { start, end }];
    // An order that depended on single-value bounds is lost with those bounds.
    let unordered = query.sort.is_some();
    let plan = match (scan, &way.plan) {
        (Some(scan), _) => IndexScan::new(scan.index.clone(), ranges, scan.direction).into(),
        (None, Plan::Records(scan)) => RecordScan::new(ranges, scan.direction).into(),
        // Text and geo searches take no hint.
        (None, _) => RecordScan::new(ranges, Direction::Forward).into(),
    };
    Ok(Way { plan, unordered })
}

fn incompatible() -> Error {
    Error::new(ErrorCode(51174), "The index chosen is not compatible with min/max")
}

/// The ordered key of `bound`, which must name the fields of the index in order.
fn key_of(
    bound: &DocBuf,
    fields: &[(&str, SortOrder)],
    collation: Option<&Collation>,
) -> Result<Vec<u8>> {
    let names = bound.as_doc().iter().map(|field| field.name());
    if !names.eq(fields.iter().map(|(name, _)| *name)) {
        return Err(incompatible());
    }
    let mut key = Vec::new();
    for (field, (_, order)) in bound.as_doc().iter().zip(fields) {
        let mut bits = TypeBits::default();
        keys::append_value_in(&mut key, &mut bits, field.value(), *order, collation);
    }
    Ok(key)
}
