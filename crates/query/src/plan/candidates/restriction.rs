//! Which indexes can serve a query: those that it may use and that contain all documents that it
//! can match.
//!
//! A query is restricted to some indexes by the index filters of its collection, or by query
//! settings that it carries. A restriction overrides the client's hint. Manual:
//! "planCacheSetFilter", "setQuerySettings".

use std::borrow::Cow;
use std::sync::Arc;

use mayfly_base::Namespace;
use mayfly_mql::matcher::{CmpOp, Expr, Predicate};
use mayfly_storage::{Collection, Index};
use mayfly_value::{Collation, DocBuilder, RawValue, same_collation};

use crate::language::partial::filter_of;
use crate::language::shape::PlanShape;
use crate::language::{AllowedBy, AllowedIndexes, CanonicalQuery, Hint, IndexHints};
use crate::plan::conditions::implication::implies;
use crate::plan::types::index_filters::IndexFilters;

/// The indexes of a collection that the hints allow. For the buckets of a time series, keys are
/// translated to keys on buckets.
pub fn allowed_on(hints: &IndexHints, collection: &Collection) -> Option<Arc<AllowedIndexes>> {
    let ns = collection.namespace();
    let Some(series) = collection.time_series() else { return hints.of(&ns).cloned() };
    let shown = ns.collection().strip_prefix("system.buckets.").unwrap_or(ns.collection());
    let allowed = hints.of(&Namespace::new(ns.db(), shown).ok()?)?;
    let mut on_buckets = AllowedIndexes::clone(allowed);
    for key in allowed.keys() {
        on_buckets.allow(Hint::Key(series.fields.key_on_buckets(key.as_doc())));
    }
    Some(Arc::new(on_buckets))
}

/// Whether an index filter restricts the indexes of a query.
pub(crate) fn index_filter_set(collection: &Collection, query: &CanonicalQuery) -> bool {
    let by = |allowed: &Arc<AllowedIndexes>| allowed.by() == AllowedBy::IndexFilter;
    restricted(collection, query).allowed.as_ref().is_some_and(by)
}

/// Whether a query may use an index.
pub(crate) fn allows(query: &CanonicalQuery, index: &Index) -> bool {
    match &query.allowed {
        None => true,
        Some(allowed) => allowed.has(index.spec.name(), index.spec.key()),
    }
}

/// Whether a query may use the index on `_id`, or the record order that replaces it.
pub(crate) fn allows_id(collection: &Collection, query: &CanonicalQuery) -> bool {
    let Some(allowed) = &query.allowed else { return true };
    let mut key = DocBuilder::new();
    key.append("_id", 1);
    let key = key.finish();
    let options = collection.options();
    let clustered = options.as_doc().get("clusteredIndex").and_then(RawValue::as_document);
    let name = clustered.and_then(|clustered| clustered.get("name")?.as_str());
    // The order of buckets is not an index.
    collection.time_series().is_some() || allowed.has(name.unwrap_or("_id_"), key.as_doc())
}

/// The indexes that a plan for this query may use: those that are not hidden, that the query is not
/// kept from, and that contain all documents that it can match.
pub(crate) fn usable_indexes(collection: &Collection, query: &CanonicalQuery) -> Vec<Arc<Index>> {
    let mut indexes = collection.plannable_indexes(query.indexes);
    indexes
        .retain(|index| !index.spec.hidden() && allows(query, index) && has_all_of(index, query));
    indexes
}

/// Whether the index contains all documents that the query can match. A partial index lacks those
/// outside its filter.
pub(crate) fn has_all_of(index: &Index, query: &CanonicalQuery) -> bool {
    match index.filter() {
        None => true,
        Some(filter) => {
            filter_of(filter).is_some_and(|filter| implies(query.matcher.root(), filter))
        }
    }
}

/// Whether a query may use all indexes, which is the usual case.
#[inline]
pub(crate) fn are_all(collection: &Collection, query: &CanonicalQuery) -> bool {
    query.allowed.is_none() && !collection.index_filters.is_there()
}

/// Returns the query with its index restriction applied.
pub(crate) fn restricted<'q>(
    collection: &Collection,
    query: &'q CanonicalQuery,
) -> Cow<'q, CanonicalQuery> {
    if are_all(collection, query) {
        return Cow::Borrowed(query);
    }
    // The keys of `min` and `max` refer to the hinted index, so the hint must stay.
    if matches!(query.hint, Some(Hint::Between { .. })) || is_point_by_id(collection, query) {
        return match query.allowed {
            None => Cow::Borrowed(query),
            Some(_) => Cow::Owned(CanonicalQuery { allowed: None, ..query.clone() }),
        };
    }
    let allowed = query.allowed.clone().or_else(|| {
        let filters = collection.index_filters.get::<IndexFilters>()?;
        filters.0.get(&PlanShape::of(query)).map(|filter| filter.allowed.clone())
    });
    let Some(allowed) = allowed else { return Cow::Borrowed(query) };
    let natural_backward = allowed.only_scan().or(query.natural_backward);
    let allowed = Some(allowed);
    Cow::Owned(CanonicalQuery { allowed, natural_backward, hint: None, ..query.clone() })
}

/// Whether the filter is a single equality on `_id` that the `_id` index can answer. Such queries
/// are not planned.
fn is_point_by_id(collection: &Collection, query: &CanonicalQuery) -> bool {
    let alone = matches!(query.matcher.root(), Expr::Path { .. });
    alone && query.hint.is_none() && required_id(collection, query).is_some()
}

/// The `_id` that the top-level conjunction requires, if the record can be looked up by it.
pub(crate) fn required_id<'q>(
    collection: &Collection,
    query: &'q CanonicalQuery,
) -> Option<RawValue<'q>> {
    fn find(expr: &Expr) -> Option<RawValue<'_>> {
        match expr {
            Expr::And(parts) => parts.iter().find_map(find),
            Expr::Path { path, predicate: Predicate::Cmp { op: CmpOp::Eq, value, .. } }
                if path.as_str() == "_id" =>
            {
                Some(value.as_raw())
            }
            _ => None,
        }
    }
    match find(query.matcher.root())? {
        // An `_id` is never an array, a regex or undefined. Null is an ordinary value of it.
        RawValue::Array(_) | RawValue::Regex { .. } | RawValue::Undefined => None,
        value => {
            let readable = !Collation::concerns(value)
                || same_collation(collection.collation(), query.collation.as_ref());
            readable.then_some(value)
        }
    }
}
