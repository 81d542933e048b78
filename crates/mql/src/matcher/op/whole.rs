//! `$expr`, `$jsonSchema`, `$sampleRate`.

use mayfly_value::arguments::error::mistyped;
use std::sync::Arc;

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_expr::{Expression, Scope};
use mayfly_value::{Number, RawElement, RawValue, ValueBuf};

use crate::FieldPath;
use crate::matcher::parse::{FilterContext, Subject};
use crate::matcher::whole::Computed;
use crate::matcher::{CmpOp, DocumentTest, Expr, Predicate, Schema};

pub(super) fn expr(element: RawElement<'_>, context: FilterContext<'_>) -> Result<Option<Expr>> {
    if context.subject == Subject::ArrayItem {
        return Err(Error::bad_value("$expr can only be applied to the top-level document"));
    }
    check_allowed("$expr", context)?;
    let expression = Expression::parse_in(element.value(), context.scope)?;
    let implied = implied(&expression, context.scope);
    let computed = Computed { expression, implied, written: element.value().to_owned() };
    Ok(Some(Expr::Document(DocumentTest::Computed(Arc::new(computed)))))
}

fn check_allowed(operator: &str, context: FilterContext<'_>) -> Result<()> {
    if context.plain {
        let text = format!("{operator} is not allowed in this context");
        return Err(Error::new(ErrorCode::QueryFeatureNotAllowed, text));
    }
    Ok(())
}

/// Derives predicates from equality with constants. An expression compares the field itself; if the
/// constant is not an array, items of arrays do not match it, so the predicate of a filter is true
/// for at least those documents.
fn implied(expression: &Expression, scope: &Scope) -> Vec<(FieldPath, Predicate)> {
    let serves = |value: &ValueBuf| {
        let value = value.as_raw();
        !matches!(value, RawValue::Array(_) | RawValue::Undefined | RawValue::Regex { .. })
    };
    let mut implied = Vec::new();
    for (path, value) in expression.equalities() {
        if let (true, Ok(path)) = (serves(value), FieldPath::new(&path)) {
            let predicate = Predicate::cmp(CmpOp::Eq, value.as_raw(), scope.collation());
            implied.push((path, predicate));
        }
    }
    implied
}

pub(super) fn json_schema(
    element: RawElement<'_>,
    context: FilterContext<'_>,
) -> Result<Option<Expr>> {
    check_allowed("$jsonSchema", context)?;
    let RawValue::Document(schema) = element.value() else {
        return Err(mistyped("$jsonSchema must be an object"));
    };
    let parsed = Arc::new(Schema::parse(schema)?);
    Ok(Some(Expr::Document(DocumentTest::Schema(parsed, Arc::new(schema.to_owned())))))
}

pub(super) fn sample_rate(
    element: RawElement<'_>,
    _around: FilterContext<'_>,
) -> Result<Option<Expr>> {
    let Some(rate) = Number::from_value(element.value()) else {
        return Err(Error::bad_value("argument to $sampleRate must be a numeric type"));
    };
    let rate = rate.to_f64();
    if !(0.0..=1.0).contains(&rate) {
        return Err(Error::bad_value("numeric argument to $sampleRate must be in [0, 1]"));
    }
    Ok(Some(match rate {
        0.0 => Expr::Always(false),
        1.0 => Expr::Always(true),
        rate => Expr::Document(DocumentTest::Sample(rate)),
    }))
}
