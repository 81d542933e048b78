//! Filters and validators, compiled by whoever knows the query language: storage asks them, and knows no more of them.

use std::any::Any;
use std::sync::Arc;

use mayfly_base::{Error, Result};
use mayfly_value::{Collation, RawDoc};

use super::validation::DocumentCheck;

/// A compiled filter that storage can ask without knowing the query language.
pub trait RecordFilter: Send + Sync {
    /// Whether the document passes.
    ///
    /// # Errors
    /// When that cannot be found out. Then the document is neither left out nor taken: what asked fails.
    fn matches(&self, document: RawDoc<'_>) -> Result<bool>;

    /// Itself, for the one who compiled it.
    fn as_any(&self) -> &dyn Any;
}

/// Compiles filters for partial indexes, and validators; owned by storage, implemented above it.
pub trait FilterCompiler: Send + Sync {
    /// Compiles a `partialFilterExpression` under the collation of its index.
    ///
    /// # Errors
    /// 67 CannotCreateIndex for operators that a partial index does not allow; the parser's own errors.
    fn compile(
        &self,
        filter: RawDoc<'_>,
        collation: Option<&Arc<Collation>>,
    ) -> Result<Arc<dyn RecordFilter>>;

    /// Compiles a `validator`.
    ///
    /// # Errors
    /// 224 QueryFeatureNotAllowed for operators that a validator does not allow; the parser's own errors.
    fn compile_validator(
        &self,
        filter: RawDoc<'_>,
        collation: Option<&Arc<Collation>>,
    ) -> Result<Arc<dyn DocumentCheck>> {
        let _ = (filter, collation);
        Err(Error::not_implemented("the option 'validator'"))
    }
}
