//! Queries, parsed against a definition.

mod search;
#[cfg(test)]
mod tests;
mod vector_search;

use mayfly_base::Result;
use mayfly_value::RawDoc;

pub(crate) use search::{Compound, Criteria, Node, Score, WordPath};
pub(crate) use vector_search::VectorQuery;

use crate::Definition;

/// A checked query.
#[derive(Clone, Debug)]
pub struct Query {
    pub(crate) kind: Kind,
    limit: Option<usize>,
    returns_stored_source: bool,
}

/// What a query searches for.
#[derive(Clone, Debug)]
pub(crate) enum Kind {
    Vector(VectorQuery),
    Search(Node),
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

    /// Parses the document of a `$search` stage. Unknown fields are refused, as by the reference.
    ///
    /// # Errors
    /// Code 8, with the path of the field in the text.
    pub fn parse_search(stage: RawDoc<'_>, definition: &Definition) -> Result<Query> {
        search::parse(stage, definition)
    }

    /// The number of documents that the stage returns at most, if it says so.
    pub fn limit(&self) -> Option<usize> {
        self.limit
    }

    /// Whether the stage returns the fields of `storedSource` instead of documents.
    pub fn returns_stored_source(&self) -> bool {
        self.returns_stored_source
    }
}
