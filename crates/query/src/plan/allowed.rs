//! Restricts a query to some indexes, either by the index filters of its collection or by query
//! settings that the query carries. A restriction overrides the client's hint. Manual:
//! "planCacheSetFilter", "setQuerySettings".

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use mayfly_base::{Error, Namespace, Result};
use mayfly_mql::matcher::Expr;
use mayfly_storage::{Collection, Index};
use mayfly_value::{DocBuf, DocBuilder, RawValue};

use super::{Plan, Ways, choose};
use crate::language::shape::PlanShape;
use crate::language::{AllowedBy, AllowedIndexes, CanonicalQuery, Hint, IndexHints};

/// Limit on the index filters of one collection.
const MAX_INDEX_FILTERS: usize = 10_000;

/// An index filter: the query that it was set for, and the indexes that queries of its shape may
/// use.
#[derive(Clone, Debug)]
pub struct IndexFilter {
    /// The filter of the example query.
    pub query: DocBuf,
    /// The sort pattern of the example query.
    pub sort: DocBuf,
    /// The projection of the example query.
    pub projection: DocBuf,
    /// The collation of the example query; empty for binary comparison.
    pub collation: DocBuf,
    /// The indexes that queries of this shape may use.
    pub allowed: Arc<AllowedIndexes>,
}

impl IndexFilter {
    /// Appends the fields that `planCacheListFilters` returns.
    pub fn append_to(&self, out: &mut DocBuilder) {
        out.append("query", &self.query).append("sort", &self.sort);
        out.append("projection", &self.projection);
        if !self.collation.as_doc().is_empty() {
            out.append("collation", &self.collation);
        }
        out.start_array("indexes");
        for key in self.allowed.keys() {
            out.push(key);
        }
        for name in self.allowed.names() {
            out.push(name.as_str());
        }
        out.end();
    }
}

/// The index filters of a collection. They are kept in memory only.
#[derive(Clone, Debug, Default)]
pub struct IndexFilters(BTreeMap<PlanShape, IndexFilter>);

impl IndexFilters {
    /// Returns copies of all index filters of a collection.
    pub fn all(collection: &Collection) -> Vec<IndexFilter> {
        let filters = collection.index_filters.get::<IndexFilters>();
        filters.map_or_else(Vec::new, |filters| filters.0.values().cloned().collect())
    }

    /// Sets the index filter for queries of a shape, replacing an earlier one.
    ///
    /// # Errors
    /// 2 BadValue when the collection has the maximum number of filters.
    pub fn set(collection: &Collection, shape: PlanShape, filter: IndexFilter) -> Result<()> {
        let mut full = false;
        collection.index_filters.change::<IndexFilters>(|filters| {
            let mut filters = filters.cloned().unwrap_or_default();
            full = filters.0.len() >= MAX_INDEX_FILTERS && !filters.0.contains_key(&shape);
            if !full {
                filters.0.insert(shape, filter);
            }
            Some(filters)
        });
        match full {
            true => Err(Error::bad_value(format!(
                "a collection has at most {MAX_INDEX_FILTERS} index filters"
            ))),
            false => Ok(()),
        }
    }

    /// Removes the index filter for queries of a shape.
    pub fn remove(collection: &Collection, shape: PlanShape) {
        collection.index_filters.change::<IndexFilters>(|filters| {
            let mut filters = filters.cloned().unwrap_or_default();
            filters.0.remove(&shape);
            (!filters.0.is_empty()).then_some(filters)
        });
    }

    /// Removes all index filters of a collection.
    pub fn clear(collection: &Collection) {
        collection.index_filters.change::<IndexFilters>(|_| None);
    }
}

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
pub(super) fn allows(query: &CanonicalQuery, index: &Index) -> bool {
    match &query.allowed {
        None => true,
        Some(allowed) => allowed.has(index.spec.name(), index.spec.key()),
    }
}

/// Whether a query may use the index on `_id`, or the record order that replaces it.
pub(super) fn allows_id(collection: &Collection, query: &CanonicalQuery) -> bool {
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

/// Whether a query may use all indexes, which is the usual case.
#[inline]
pub(super) fn are_all(collection: &Collection, query: &CanonicalQuery) -> bool {
    query.allowed.is_none() && !collection.index_filters.is_there()
}

/// Plans a query and returns the query as it was planned: with its index restriction, and without a
/// hint that the restriction overrides. Query settings that no plan can satisfy are dropped; an
/// index filter is not.
///
/// # Errors
/// Errors of planning.
pub(super) fn planned<'q>(
    collection: &Arc<Collection>,
    query: &'q CanonicalQuery,
) -> Result<(Cow<'q, CanonicalQuery>, Ways)> {
    let restricted = restricted(collection, query);
    let ways = super::chosen(collection, &restricted);
    let Some(allowed) = &restricted.allowed else { return Ok((restricted, ways?)) };
    let served = match &ways {
        Ok(ways) => {
            allowed.scans() || !matches!(&ways.best.plan, Plan::Records(scan) if scan.is_whole())
        }
        Err(_) => false,
    };
    if served || allowed.by() == AllowedBy::IndexFilter {
        return Ok((restricted, ways?));
    }
    let query = CanonicalQuery { allowed: None, ..query.clone() };
    let ways = super::chosen(collection, &query)?;
    Ok((Cow::Owned(query), ways))
}

/// Returns the query with its index restriction applied.
pub(super) fn restricted<'q>(
    collection: &Collection,
    query: &'q CanonicalQuery,
) -> Cow<'q, CanonicalQuery> {
    if are_all(collection, query) {
        return Cow::Borrowed(query);
    }
    // The keys of `min` and `max` refer to the hinted index, so the hint must stay.
    if matches!(query.hint, Some(Hint::Between { .. })) || is_point_by_id(collection, query) {
        return without(query);
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

fn without(query: &CanonicalQuery) -> Cow<'_, CanonicalQuery> {
    match query.allowed {
        None => Cow::Borrowed(query),
        Some(_) => Cow::Owned(CanonicalQuery { allowed: None, ..query.clone() }),
    }
}

/// Whether the filter is a single equality on `_id` that the `_id` index can answer. Such queries
/// are not planned.
fn is_point_by_id(collection: &Collection, query: &CanonicalQuery) -> bool {
    let alone = matches!(query.matcher.root(), Expr::Path { .. });
    alone && query.hint.is_none() && choose::point_by_id(collection, query).is_some()
}
