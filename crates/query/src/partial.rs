//! Filters of partial indexes for storage, which does not know the language.

use std::sync::Arc;

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_mql::{Matcher, ParseContext};
use mayfly_storage::{FilterCompiler, RecordFilter};
use mayfly_value::RawDoc;

/// Compiles with the query language's matcher.
pub struct PartialFilters;

struct Compiled(Matcher);

impl RecordFilter for Compiled {
    fn matches(&self, document: RawDoc<'_>) -> bool {
        self.0.matches(document)
    }
}

impl FilterCompiler for PartialFilters {
    fn compile(&self, filter: RawDoc<'_>) -> Result<Arc<dyn RecordFilter>> {
        let matcher = Matcher::parse(filter, &ParseContext::default()).map_err(|error| {
            Error::new(
                ErrorCode::CannotCreateIndex,
                format!("unsupported expression in partial index: {}", error.message()),
            )
        })?;
        Ok(Arc::new(Compiled(matcher)))
    }
}
