//! Compiles the filters of partial indexes and validators for storage, which does not depend on the
//! query language.

use std::any::Any;
use std::sync::Arc;

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_mql::matcher::{Expr, Predicate};
use mayfly_mql::{Matcher, ParseContext};
use mayfly_storage::{DocumentCheck, FilterCompiler, RecordFilter};
use mayfly_value::{Collation, RawDoc};

use super::validator::Validator;

/// Compiles filters to matchers of the query language.
pub struct PartialFilters;

struct Compiled(Matcher);

impl RecordFilter for Compiled {
    fn matches(&self, document: RawDoc<'_>) -> Result<bool> {
        self.0.matches(document)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl FilterCompiler for PartialFilters {
    fn compile_validator(
        &self,
        filter: RawDoc<'_>,
        collation: Option<&Arc<Collation>>,
    ) -> Result<Arc<dyn DocumentCheck>> {
        Ok(Arc::new(Validator::compile(filter, collation)?))
    }

    fn compile(
        &self,
        filter: RawDoc<'_>,
        collation: Option<&Arc<Collation>>,
    ) -> Result<Arc<dyn RecordFilter>> {
        let context = ParseContext { collation: collation.cloned(), ..ParseContext::default() };
        let matcher = Matcher::parse(filter, &context).map_err(|error| {
            // `$$NOW` and `$$CLUSTER_TIME`.
            if error.code() == ErrorCode(51144) {
                return Error::new(ErrorCode::QueryFeatureNotAllowed, error.message());
            }
            Error::new(
                ErrorCode::CannotCreateIndex,
                format!("unsupported expression in partial index: {}", error.message()),
            )
        })?;
        if let Some(what) = unsupported(matcher.root()) {
            return Err(Error::new(
                ErrorCode::CannotCreateIndex,
                format!("Expression not supported in partial index: {what}"),
            ));
        }
        Ok(Arc::new(Compiled(matcher)))
    }
}

/// The expression of a filter that [`PartialFilters`] compiled; `None` for others.
pub(crate) fn filter_of(filter: &dyn RecordFilter) -> Option<&Expr> {
    filter.as_any().downcast_ref::<Compiled>().map(|compiled| compiled.0.root())
}

/// The first operator in a filter that partial indexes do not support. Manual: "Partial Indexes",
/// "Create a Partial Index".
fn unsupported(expr: &Expr) -> Option<&'static str> {
    match expr {
        Expr::And(parts) | Expr::Or(parts) => parts.iter().find_map(unsupported),
        Expr::Nor(_) => Some("$nor"),
        Expr::Document(test) => Some(test.name()),
        Expr::Always(_) => Some("$alwaysTrue or $alwaysFalse"),
        Expr::Path { predicate, .. } => unsupported_predicate(predicate),
    }
}

fn unsupported_predicate(predicate: &Predicate) -> Option<&'static str> {
    match predicate {
        Predicate::Cmp { .. } | Predicate::Exists | Predicate::Type(..) | Predicate::Geo(..) => {
            None
        }
        Predicate::In(list) if list.regexes().is_empty() => None,
        Predicate::In(_) | Predicate::Regex(_) => Some("$regex"),
        Predicate::Mod { .. } => Some("$mod"),
        Predicate::Bits(..) => Some("$bitsAllSet and its kin"),
        Predicate::Size(_) => Some("$size"),
        Predicate::ElemMatchDocument(_) | Predicate::ElemMatchValue(_) => Some("$elemMatch"),
        Predicate::Not(_) => Some("$not"),
        Predicate::All(parts) => parts.iter().find_map(unsupported_predicate),
    }
}
