//! `$all`, `$elemMatch`, `$size`.

use mayfly_base::{Error, Result};
use mayfly_value::shell::ShellValue;
use mayfly_value::{Number, RawDoc, RawValue};

use super::{Operand, is_top_level};
use crate::matcher::link::{LinkParts, link_parts};
use crate::matcher::parse::{parse_filter, parse_implicit, parse_operators};
use crate::matcher::{InList, ItemMatcher, Predicate};

pub(super) fn all(operand: &Operand<'_>) -> Result<Option<Predicate>> {
    let RawValue::Array(items) = operand.value else {
        return Err(Error::bad_value("$all needs an array"));
    };
    // An empty `$all` matches nothing, like an empty `$in`.
    if items.is_empty() {
        return Ok(Some(Predicate::In(InList::default())));
    }
    let first = items.iter().next().and_then(|item| item.value().as_document());
    let of_elem_match =
        |doc: RawDoc<'_>| doc.iter().next().is_some_and(|e| e.name() == "$elemMatch");
    let elem_matches = first.is_some_and(of_elem_match);
    let mut parts = Vec::new();
    for item in items.iter() {
        parts.push(match item.value() {
            RawValue::Document(inner) if elem_matches && of_elem_match(inner) => Predicate::All(
                parse_operators(inner, operand.path, operand.context.inside_array())?,
            ),
            _ if elem_matches => {
                return Err(Error::bad_value("$all/$elemMatch has to be consistent"));
            }
            RawValue::Document(inner) if ItemMatcher::is_operators(inner) => {
                return Err(Error::bad_value("no $ expressions in $all"));
            }
            value => parse_implicit(value, operand.context.scope.collation())?,
        });
    }
    Ok(Some(Predicate::All(parts)))
}

pub(super) fn elem_match(operand: &Operand<'_>) -> Result<Option<Predicate>> {
    let RawValue::Document(inner) = operand.value else {
        return Err(Error::bad_value("$elemMatch needs an Object"));
    };
    // Any field of a DBRef suffices here. Top-level operators make it a condition on documents.
    let on_values = link_parts(inner) == LinkParts::None
        && inner.iter().next().is_some_and(|first| {
            first.name_bytes().starts_with(b"$") && !is_top_level(first.name())
        });
    let context = operand.context.inside_array();
    Ok(Some(if on_values {
        Predicate::ElemMatchValue(parse_operators(inner, operand.path, context)?)
    } else {
        Predicate::ElemMatchDocument(Box::new(parse_filter(inner, context)?))
    }))
}

pub(super) fn size(operand: &Operand<'_>) -> Result<Option<Predicate>> {
    let shown = ShellValue(operand.value);
    let fault = |expected: &str| {
        Error::failed_to_parse(format!("Failed to parse $size. Expected {expected} $size: {shown}"))
    };
    let number = Number::from_value(operand.value).ok_or_else(|| fault("a number in:"))?;
    match number.to_i64_exact() {
        None => Err(fault("an integer:")),
        Some(..0) => Err(fault("a non-negative number in:")),
        Some(size) => Ok(Some(Predicate::Size(size))),
    }
}
