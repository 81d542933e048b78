//! `$and`, `$or`, `$nor`, `$not`, and the constant top-level operators.

use mayfly_base::{Error, Result};
use mayfly_value::{Number, RawElement, RawValue};

use super::Operand;
use crate::matcher::parse::{FilterContext, parse_filter, parse_operators};
use crate::matcher::{Expr, Predicate, Regex};

/// Parses a list of filters in this context.
fn filters(element: RawElement<'_>, context: FilterContext<'_>) -> Result<Vec<Expr>> {
    let RawValue::Array(items) = element.value() else {
        return Err(Error::bad_value(format!("{} must be an array", element.name())));
    };
    if items.is_empty() {
        return Err(Error::bad_value("$and/$or/$nor must be a nonempty array"));
    }
    let filter = |item: RawElement<'_>| match item.value() {
        RawValue::Document(filter) => parse_filter(filter, context),
        _ => Err(Error::bad_value("$or/$and/$nor entries need to be full objects")),
    };
    items.iter().map(filter).collect()
}

pub(super) fn and(element: RawElement<'_>, context: FilterContext<'_>) -> Result<Option<Expr>> {
    filters(element, context.conjunct()).map(|parts| Some(Expr::and(parts)))
}

pub(super) fn or(element: RawElement<'_>, context: FilterContext<'_>) -> Result<Option<Expr>> {
    // A single branch is the filter itself.
    let is_single = element.value().as_array().is_some_and(|items| items.iter().count() == 1);
    let context = if is_single { context.conjunct() } else { context.deeper() };
    filters(element, context).map(|mut parts| match parts.pop() {
        Some(only) if parts.is_empty() => Some(only),
        last => {
            parts.extend(last);
            Some(Expr::Or(parts))
        }
    })
}

pub(super) fn nor(element: RawElement<'_>, context: FilterContext<'_>) -> Result<Option<Expr>> {
    filters(element, context.deeper()).map(|parts| Some(Expr::Nor(parts)))
}

pub(super) fn not(operand: &Operand<'_>) -> Result<Option<Predicate>> {
    let inner = match operand.value {
        RawValue::Regex { pattern, options } => Predicate::Regex(Regex::new(pattern, options)?),
        RawValue::Document(inner) if inner.is_empty() => {
            return Err(Error::bad_value("$not cannot be empty"));
        }
        RawValue::Document(inner) => {
            Predicate::All(parse_operators(inner, operand.path, operand.context.deeper())?)
        }
        _ => return Err(Error::bad_value("$not needs a regex or a document")),
    };
    Ok(Some(inner.negated()))
}

pub(super) fn comment(
    _element: RawElement<'_>,
    _around: FilterContext<'_>,
) -> Result<Option<Expr>> {
    Ok(None)
}

fn constant(element: RawElement<'_>, holds: bool) -> Result<Option<Expr>> {
    match Number::from_value(element.value()).and_then(Number::to_i64_exact) {
        Some(1) => Ok(Some(Expr::Always(holds))),
        _ => {
            Err(Error::failed_to_parse(format!("{} must be an integer value of 1", element.name())))
        }
    }
}

pub(super) fn always_true(
    element: RawElement<'_>,
    _around: FilterContext<'_>,
) -> Result<Option<Expr>> {
    constant(element, true)
}

pub(super) fn always_false(
    element: RawElement<'_>,
    _around: FilterContext<'_>,
) -> Result<Option<Expr>> {
    constant(element, false)
}
