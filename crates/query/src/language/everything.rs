//! The query for all documents.

use mayfly_storage::VisibleIndexes;
use std::sync::Arc;

use mayfly_base::Result;
use mayfly_mql::{Matcher, ParseContext};
use mayfly_value::RawDoc;

use super::{CanonicalQuery, Hint};

impl CanonicalQuery {
    /// The query for all documents, over the index of a hint.
    ///
    /// # Errors
    /// None in practice; the parser of the empty filter returns a `Result`.
    pub(crate) fn everything(hint: Option<Hint>) -> Result<CanonicalQuery> {
        Ok(CanonicalQuery {
            indexes: VisibleIndexes::PUBLISHED,
            matcher: Arc::new(Matcher::parse(RawDoc::EMPTY, &ParseContext::default())?),
            sort: None,
            natural_backward: None,
            projection: None,
            skip: 0,
            limit: None,
            hint,
            allowed: None,
            collation: None,
            needed_paths: None,
            first_of: None,
            uses_score: false,
        })
    }
}
