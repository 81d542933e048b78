//! Access paths that are neither scans of an index nor scans of records: text searches and searches
//! by distance.

use std::sync::Arc;

use mayfly_mql::matcher::{BoundSearch, NearSearch};
use mayfly_storage::kinds::plane::PlaneIndex;
use mayfly_storage::{Index, KeyRange};
use mayfly_value::ValueBuf;

/// An access path of a text search.
#[derive(Clone)]
pub struct TextAccess {
    /// The text index.
    pub index: Arc<Index>,
    /// The parsed search, bound to the text index.
    pub search: Arc<BoundSearch>,
    /// The values of the index fields before the terms.
    pub prefix: Vec<ValueBuf>,
    /// The key range of each term.
    pub terms: Vec<KeyRange>,
}

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
