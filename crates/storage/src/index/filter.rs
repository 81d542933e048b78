//! Compiled filters and validators. The query language is implemented above `storage`, which only
//! evaluates them.

use std::any::Any;
use std::sync::Arc;

use mayfly_base::{Error, Result};
use mayfly_buckets::MeasurementFields;
use mayfly_value::{Collation, RawDoc};

use super::validation::DocumentCheck;

/// A compiled filter, evaluated without knowledge of the query language.
pub trait RecordFilter: Send + Sync {
    /// Whether the document matches.
    ///
    /// # Errors
    /// When that cannot be determined. The document then counts neither as matching nor as not
    /// matching; the caller fails.
    fn matches(&self, document: RawDoc<'_>) -> Result<bool>;

    /// The concrete type, for its compiler.
    fn as_any(&self) -> &dyn Any;
}

/// Compiles filters of partial indexes, and validators. Defined by `storage`, implemented above it.
pub trait FilterCompiler: Send + Sync {
    /// Compiles a `partialFilterExpression` under the collation of its index.
    ///
    /// # Errors
    /// 67 CannotCreateIndex for operators that a partial index does not allow; the parser's own
    /// errors.
    fn compile(
        &self,
        filter: RawDoc<'_>,
        collation: Option<&Arc<Collation>>,
    ) -> Result<Arc<dyn RecordFilter>>;

    /// Checks a `partialFilterExpression` over measurements of a time series, whose index is one
    /// over buckets: each of its conditions must follow from the meta field or from bounds.
    ///
    /// # Errors
    /// 5916301 for a condition that does not; the errors of [`compile`](FilterCompiler::compile).
    fn check_over_measurements(
        &self,
        filter: RawDoc<'_>,
        fields: &MeasurementFields,
    ) -> Result<()> {
        let _ = fields;
        self.compile(filter, None).map(|_| ())
    }

    /// Compiles a `validator`.
    ///
    /// # Errors
    /// 224 QueryFeatureNotAllowed for operators that a validator does not allow; the parser's own
    /// errors.
    fn compile_validator(
        &self,
        filter: RawDoc<'_>,
        collation: Option<&Arc<Collation>>,
    ) -> Result<Arc<dyn DocumentCheck>> {
        let _ = (filter, collation);
        Err(Error::not_implemented("the option 'validator'"))
    }
}
