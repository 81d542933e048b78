//! Queries that may use some indexes only: by the index filters of their collection, or by query settings, which the query
//! brings along. A hint of the client does not count then. Manual: "planCacheSetFilter", "setQuerySettings".

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use mayfly_base::{Error, Result};
use mayfly_mql::matcher::{CmpOp, Expr, Predicate};
use mayfly_storage::{Collection, Index};
use mayfly_value::{DocBuf, DocBuilder, RawValue};

use super::{Plan, Ways};
use crate::language::shape::PlanShape;
use crate::language::{AllowedBy, AllowedIndexes, CanonicalQuery, Hint};

/// Most index filters of a collection.
const MAX_INDEX_FILTERS: usize = 10_000;

/// An index filter: the query that it was set for, and the indexes.
#[derive(Clone, Debug)]
pub struct IndexFilter {
    /// The filter of the query.
    pub query: DocBuf,
    /// Its order.
    pub sort: DocBuf,
    /// Its projection.
    pub projection: DocBuf,
    /// How it compares strings; empty where it does so by their bytes.
    pub collation: DocBuf,
    /// The indexes.
    pub allowed: Arc<AllowedIndexes>,
}

impl IndexFilter {
    /// As `planCacheListFilters` shows it.
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

/// The index filters of a collection, in memory only.
#[derive(Clone, Debug, Default)]
pub struct IndexFilters(BTreeMap<PlanShape, IndexFilter>);

impl IndexFilters {
    /// All of them.
    pub fn all(collection: &Collection) -> Vec<IndexFilter> {
        let filters = collection.attached.get::<IndexFilters>();
        filters.map_or_else(Vec::new, |filters| filters.0.values().cloned().collect())
    }

    /// Sets the filter for queries of a shape; one that was there goes.
    ///
    /// # Errors
    /// 2 BadValue when there are too many.
    pub fn set(collection: &Collection, shape: PlanShape, filter: IndexFilter) -> Result<()> {
        let mut full = false;
        collection.attached.change::<IndexFilters>(|filters| {
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

    /// Removes that for queries of a shape.
    pub fn remove(collection: &Collection, shape: PlanShape) {
        collection.attached.change::<IndexFilters>(|filters| {
            let mut filters = filters.cloned().unwrap_or_default();
            filters.0.remove(&shape);
            (!filters.0.is_empty()).then_some(filters)
        });
    }

    /// Removes all of them.
    pub fn clear(collection: &Collection) {
        collection.attached.change::<IndexFilters>(|_| None);
    }
}

/// Whether an index filter says which indexes a query uses.
pub(crate) fn index_filter_set(collection: &Collection, query: &CanonicalQuery) -> bool {
    let by = |allowed: &Arc<AllowedIndexes>| allowed.by() == AllowedBy::IndexFilter;
    restricted(collection, query).allowed.as_ref().is_some_and(by)
}

/// Whether somebody says which indexes a query uses.
pub fn is_restricted(collection: &Collection, query: &CanonicalQuery) -> bool {
    restricted(collection, query).allowed.is_some()
}

/// Whether a query may use an index.
pub(super) fn allows(query: &CanonicalQuery, index: &Index) -> bool {
    match &query.allowed {
        None => true,
        Some(allowed) => allowed.has(index.spec.name(), index.spec.key()),
    }
}

/// Whether a query may use the index on `_id`, or the order of the records in its place.
pub(super) fn allows_id(collection: &Collection, query: &CanonicalQuery) -> bool {
    let Some(allowed) = &query.allowed else { return true };
    let mut key = DocBuilder::new();
    key.append("_id", 1);
    let key = key.finish();
    let options = collection.options();
    let clustered = options.as_doc().get("clusteredIndex").and_then(RawValue::as_document);
    let name = clustered.and_then(|clustered| clustered.get("name")?.as_str());
    // The order of buckets is no index.
    collection.time_series().is_some() || allowed.has(name.unwrap_or("_id_"), key.as_doc())
}

/// The ways for a query, and the query as it was planned: with the indexes that it may use and without a hint that does not
/// count.
///
/// # Errors
/// Those of planning.
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

/// The query with the indexes that it may use.
pub(super) fn restricted<'q>(
    collection: &Collection,
    query: &'q CanonicalQuery,
) -> Cow<'q, CanonicalQuery> {
    if query.allowed.is_none() && !collection.attached.is_there() {
        return Cow::Borrowed(query);
    }
    // Where `min` and `max` lie only their index knows.
    if matches!(query.hint, Some(Hint::Between { .. })) || is_point_by_id(query) {
        return without(query);
    }
    let allowed = query.allowed.clone().or_else(|| {
        let filters = collection.attached.get::<IndexFilters>()?;
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

/// Whether a query asks for nothing but one `_id`: such queries are not planned.
fn is_point_by_id(query: &CanonicalQuery) -> bool {
    let point = match query.matcher.root() {
        Expr::And(parts) if parts.len() == 1 => &parts[0],
        other => other,
    };
    match point {
        Expr::Path { path, predicate: Predicate::Cmp { op: CmpOp::Eq, value, .. } } => {
            query.hint.is_none()
                && path.as_str() == "_id"
                && !matches!(value.as_raw(), RawValue::Array(_) | RawValue::Regex { .. })
        }
        _ => false,
    }
}
