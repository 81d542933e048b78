//! Index filters: the indexes that queries of a shape may use. Manual: "planCacheSetFilter".

use std::collections::BTreeMap;
use std::sync::Arc;

use mayfly_base::{Error, Result};
use mayfly_storage::Collection;
use mayfly_value::{DocBuf, DocBuilder};

use crate::language::AllowedIndexes;
use crate::language::shape::PlanShape;

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
pub struct IndexFilters(pub(crate) BTreeMap<PlanShape, IndexFilter>);

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
