//! Queries, parsed against a definition.

mod search;
#[cfg(test)]
mod tests;
mod vector_search;

use mayfly_base::Result;
use mayfly_value::RawDoc;

pub(crate) use search::{
    Buckets, CasedPattern, Compound, CountKind, Criteria, Expression, Facet, Fuzzy, Gauss,
    HighlightOptions, Nearest, Node, NumberKind, Pagination, PathValue, Pattern, Place, Score,
    SearchQuery, SortField, SortKey, ValueChoice, WordPath, checksum, invert, token,
};
pub(crate) use vector_search::VectorQuery;

use crate::Definition;
use crate::definition::StoredSource;
use crate::fault::refused;
use crate::read::Fields;

/// A checked query.
#[derive(Clone, Debug)]
pub struct Query {
    pub(crate) kind: Kind,
    index: Option<String>,
    limit: Option<usize>,
    returns_stored_source: bool,
}

/// What a query searches for.
#[derive(Clone, Debug)]
pub(crate) enum Kind {
    Vector(VectorQuery),
    Search(Box<SearchQuery>),
}

impl Query {
    /// Parses the document of a `$vectorSearch` stage. Unknown fields are ignored, as by the
    /// reference.
    ///
    /// # Errors
    /// Code 8, with the path of the field in the text.
    pub fn parse_vector_search(stage: RawDoc<'_>, definition: &Definition) -> Result<Query> {
        vector_search::parse(stage, definition)
    }

    /// Parses the document of a `$search` or `$searchMeta` stage, which have the same fields.
    /// Unknown fields are refused, as by the reference.
    ///
    /// # Errors
    /// Code 8, with the path of the field in the text.
    pub fn parse_search(stage: RawDoc<'_>, definition: &Definition) -> Result<Query> {
        search::parse(stage, definition)
    }

    /// The name of the index, if the stage says it.
    pub fn index_name(&self) -> Option<&str> {
        self.index.as_deref()
    }

    /// The number of documents that the stage returns at most, if it says so.
    pub fn limit(&self) -> Option<usize> {
        self.limit
    }

    /// Whether the stage returns highlights, which [`crate::Index::highlights`] makes.
    pub fn returns_highlights(&self) -> bool {
        matches!(&self.kind, Kind::Search(search) if search.highlight.is_some())
    }

    /// Whether the stage returns the fields of `storedSource` instead of documents.
    pub fn returns_stored_source(&self) -> bool {
        self.returns_stored_source
    }
}

/// `returnStoredSource`, which needs an index with stored fields.
fn returns_stored_source(fields: &mut Fields<'_>, definition: &Definition) -> Result<bool> {
    let is_set = fields.boolean("returnStoredSource")?.unwrap_or(false);
    if is_set && definition.stored_source == StoredSource::None {
        return Err(refused("storedSource is not configured for this index"));
    }
    Ok(is_set)
}
