//! Queries, parsed against a definition.

#[cfg(test)]
mod tests;
mod vector_search;

use mayfly_base::Result;
use mayfly_value::RawDoc;

pub(crate) use vector_search::VectorQuery;

use crate::Definition;

/// A checked query.
#[derive(Clone, Debug)]
pub struct Query {
    pub(crate) vector: VectorQuery,
    limit: usize,
    returns_stored_source: bool,
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

    /// The number of documents that the stage returns at most.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Whether the stage returns the fields of `storedSource` instead of documents.
    pub fn returns_stored_source(&self) -> bool {
        self.returns_stored_source
    }
}
