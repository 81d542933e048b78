//! Compiles the filters of partial indexes and validators for storage, which does not depend on the
//! query language.

use std::any::Any;
use std::sync::Arc;

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_buckets::MeasurementFields;
use mayfly_mql::matcher::{DocumentTest, Expr, GeoTest, Predicate};
use mayfly_mql::{Matcher, ParseContext};
use mayfly_storage::{DocumentCheck, FilterCompiler, RecordFilter};
use mayfly_value::{Collation, RawDoc, ValueBuf, ty};

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
        let matcher = parsed(filter, collation)?;
        if let Some(test) = refused_condition(matcher.root()) {
            let text = format!("{} is not allowed in this context", test.name());
            return Err(Error::new(ErrorCode::QueryFeatureNotAllowed, text));
        }
        if let Some(what) = unsupported(matcher.root()) {
            return Err(Error::new(
                ErrorCode::CannotCreateIndex,
                format!("Expression not supported in partial index: {what}"),
            ));
        }
        Ok(Arc::new(Compiled(matcher)))
    }

    fn check_over_measurements(
        &self,
        filter: RawDoc<'_>,
        fields: &MeasurementFields,
    ) -> Result<()> {
        match unbounded(parsed(filter, None)?.root(), fields) {
            None => self.compile(filter, None).map(|_| ()),
            Some(why) => Err(Error::new(
                ErrorCode(5_916_301),
                format!(
                    "Error translating non-metadata time-series predicate to operate on buckets: {why}"
                ),
            )),
        }
    }
}

fn parsed(filter: RawDoc<'_>, collation: Option<&Arc<Collation>>) -> Result<Matcher> {
    let context = ParseContext { collation: collation.cloned(), ..ParseContext::default() };
    Matcher::parse(filter, &context).map_err(|error| match error.code() {
        // `$$NOW` and `$$CLUSTER_TIME`.
        ErrorCode(51144) => Error::new(ErrorCode::QueryFeatureNotAllowed, error.message()),
        _ => error,
    })
}

/// The expression of a filter that [`PartialFilters`] compiled; `None` for others.
pub(crate) fn filter_of(filter: &dyn RecordFilter) -> Option<&Expr> {
    filter.as_any().downcast_ref::<Compiled>().map(|compiled| compiled.0.root())
}

/// The first `$expr` or `$jsonSchema` in a filter, which the filter of an index cannot contain.
fn refused_condition(expr: &Expr) -> Option<&DocumentTest> {
    match expr {
        Expr::And(parts) | Expr::Or(parts) | Expr::Nor(parts) => {
            parts.iter().find_map(refused_condition)
        }
        Expr::Document(test @ (DocumentTest::Computed(_) | DocumentTest::Schema(..))) => Some(test),
        Expr::Document(_) | Expr::Path { .. } | Expr::Always(_) => None,
    }
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

/// Why a filter on measurements cannot be decided from the meta field and the bounds of a bucket;
/// `None` if it can.
fn unbounded(expr: &Expr, fields: &MeasurementFields) -> Option<&'static str> {
    match expr {
        Expr::And(parts) | Expr::Or(parts) => parts.iter().find_map(|part| unbounded(part, fields)),
        Expr::Path { path, predicate } => match fields.on_bucket_meta(path.as_str()) {
            Some(_) => None,
            None => unbounded_predicate(predicate, path.as_str() == fields.time),
        },
        Expr::Nor(_) if concerns_meta_only(expr, fields) => None,
        Expr::Nor(_) => Some("can't handle this predicate"),
        Expr::Document(_) | Expr::Always(_) => None,
    }
}

fn concerns_meta_only(expr: &Expr, fields: &MeasurementFields) -> bool {
    let reads = expr.reads();
    reads.is_some_and(|it| it.paths.iter().all(|path| fields.on_bucket_meta(path).is_some()))
}

fn unbounded_predicate(predicate: &Predicate, is_time: bool) -> Option<&'static str> {
    match predicate {
        Predicate::Cmp { value, .. } => unbounded_operand(value, is_time),
        Predicate::In(list) if !list.regexes().is_empty() => {
            Some("can't handle $regex predicate (inside $in predicate)")
        }
        Predicate::In(list) => {
            list.values().iter().find_map(|value| unbounded_operand(value, is_time))
        }
        Predicate::All(parts) => parts.iter().find_map(|part| unbounded_predicate(part, is_time)),
        Predicate::Geo(test, _) if !matches!(**test, GeoTest::Near(_)) => None,
        Predicate::Exists => None,
        _ => Some("can't handle this predicate"),
    }
}

fn unbounded_operand(value: &ValueBuf, is_time: bool) -> Option<&'static str> {
    match value.type_byte() {
        ty::DOCUMENT | ty::ARRAY => Some("operand can't be an object or array"),
        ty::NULL => Some("can't handle {$eq: null}"),
        ty::DATE => None,
        _ if is_time => {
            Some("This predicate will never be true, because the time field always contains a Date")
        }
        _ => None,
    }
}
