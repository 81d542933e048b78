//! Documents to trees: top-level operators, fields with operators, fields with plain values.

use mayfly_base::limits::MAX_FILTER_DEPTH;
use mayfly_base::{Error, ErrorCode, Result};
use mayfly_value::{RawDoc, RawElement, RawValue};

use super::op::{self, Operand, Parse};
use super::{CmpOp, Expr, Predicate, Regex, is_operator_document};
use crate::FieldPath;

/// Parses a whole filter; `depth` counts the logical operators around it.
pub(super) fn parse_filter(filter: RawDoc<'_>, depth: usize) -> Result<Expr> {
    if depth > MAX_FILTER_DEPTH {
        let text = format!("exceeded maximum query tree depth of {MAX_FILTER_DEPTH}");
        return Err(Error::bad_value(text));
    }
    let mut parts = Vec::new();
    for element in filter.iter() {
        if element.name_bytes().starts_with(b"$") {
            parts.extend(parse_top_level(element, depth)?);
        } else {
            parse_field(element, depth, &mut parts)?;
        }
    }
    Ok(Expr::and(parts))
}

fn parse_top_level(element: RawElement<'_>, depth: usize) -> Result<Option<Expr>> {
    let name = element.name();
    match op::find(name).map(|row| &row.parse) {
        Some(Parse::TopLevel(parse)) => parse(element, depth),
        Some(Parse::MissingTopLevel) => Err(Error::not_implemented(name)),
        _ => Err(Error::bad_value(format!(
            "unknown top level operator: {name}. If you have a field name that starts with a '$' symbol, \
             consider using $getField or $setField."
        ))),
    }
}

fn parse_field(element: RawElement<'_>, depth: usize, parts: &mut Vec<Expr>) -> Result<()> {
    let path = FieldPath::new(element.name())?;
    match element.value() {
        RawValue::Document(operators) if is_operator_document(operators) => {
            for predicate in parse_operators(operators, path.as_str(), depth)? {
                spread(&path, predicate, parts);
            }
        }
        value => parts.push(Expr::Path { path, predicate: parse_implicit(value)? }),
    }
    Ok(())
}

/// A conjunction on one path is as many conditions on that path, which the planner likes better.
fn spread(path: &FieldPath, predicate: Predicate, parts: &mut Vec<Expr>) {
    match predicate {
        Predicate::All(inner) => {
            inner.into_iter().for_each(|predicate| spread(path, predicate, parts));
        }
        predicate => parts.push(Expr::Path { path: path.clone(), predicate }),
    }
}

/// `{field: value}`: equality, or the pattern where the value is one.
pub(super) fn parse_implicit(value: RawValue<'_>) -> Result<Predicate> {
    match value {
        RawValue::Regex { pattern, options } => Ok(Predicate::Regex(Regex::new(pattern, options)?)),
        RawValue::Undefined => Err(Error::bad_value("cannot compare to undefined")),
        value => Ok(Predicate::Cmp { op: CmpOp::Eq, value: value.to_owned() }),
    }
}

/// `{field: {$op: operand, ...}}`.
pub(super) fn parse_operators(
    operators: RawDoc<'_>,
    path: &str,
    depth: usize,
) -> Result<Vec<Predicate>> {
    if depth > MAX_FILTER_DEPTH {
        let text = format!("exceeded maximum query tree depth of {MAX_FILTER_DEPTH}");
        return Err(Error::bad_value(text));
    }
    let mut predicates = Vec::new();
    for element in operators.iter() {
        let name = element.name();
        let operand = Operand { name, value: element.value(), siblings: operators, path, depth };
        match op::find(name).map(|row| &row.parse) {
            Some(Parse::Predicate(parse)) => predicates.extend(parse(&operand)?),
            Some(Parse::MissingPredicate) => return Err(Error::not_implemented(name)),
            _ => {
                return Err(Error::new(ErrorCode::BadValue, format!("unknown operator: {name}")));
            }
        }
    }
    Ok(predicates)
}
