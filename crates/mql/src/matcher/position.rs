//! The array item that a filter matched in a document, for the positional `$`.
//!
//! The filter is evaluated again, by a slower algorithm. Each condition that is satisfied by an
//! array's item records the item's index; the last record counts. On a path through several arrays
//! it is the index in the outermost one. Negated conditions record nothing, nor do alternatives
//! over several fields.

use mayfly_base::Result;
use mayfly_value::paths::array_index;
use mayfly_value::{RawDoc, RawValue};

use super::evaluate::{
    all, any, asks_for_arrays, item_document_matches, item_value_matches, matches, missing_matches,
    path_matches, value_matches,
};
use super::{Expr, Predicate};
use crate::FieldPath;

/// The index recorded by the last condition through an array.
pub(super) fn array_position(expr: &Expr, doc: RawDoc<'_>) -> Result<Option<usize>> {
    let mut found = None;
    find(expr, doc, &mut found)?;
    Ok(found)
}

/// Whether the filter is true.
fn find(expr: &Expr, doc: RawDoc<'_>, found: &mut Option<usize>) -> Result<bool> {
    match expr {
        Expr::And(parts) => all(parts, |part| find(part, doc, found)),
        // As in the reference, alternatives record nothing, unless they are values of one field.
        Expr::Or(parts) if of_one_field(parts) => any(parts, |part| find(part, doc, found)),
        Expr::Or(_) => matches(expr, doc),
        Expr::Path { path, predicate } => find_path(path, predicate, doc, found),
        Expr::Nor(_) | Expr::Document(_) | Expr::Always(_) => matches(expr, doc),
    }
}

fn of_one_field(parts: &[Expr]) -> bool {
    let path_of = |part: &Expr| match part {
        Expr::Path { path, .. } => Some(path.as_str().to_owned()),
        _ => None,
    };
    let first = parts.first().and_then(path_of);
    first.is_some() && parts.iter().all(|part| path_of(part) == first)
}

fn find_path(
    path: &FieldPath,
    predicate: &Predicate,
    doc: RawDoc<'_>,
    found: &mut Option<usize>,
) -> Result<bool> {
    match predicate {
        Predicate::Not(_) => path_matches(path, predicate, doc),
        Predicate::All(parts) => all(parts, |part| find_path(path, part, doc, found)),
        _ => match first_hit(RawValue::Document(doc), path.parts(), None, predicate)? {
            Some(position) => {
                if position.is_some() {
                    *found = position;
                }
                Ok(true)
            }
            None => Ok(false),
        },
    }
}

/// Follows a path to the first value that satisfies the predicate. Returns the index of the item in
/// the outermost array on the path, if there was an array.
fn first_hit(
    value: RawValue<'_>,
    parts: &[Box<str>],
    outer: Option<usize>,
    predicate: &Predicate,
) -> Result<Option<Option<usize>>> {
    let Some((name, rest)) = parts.split_first() else {
        return at_end(value, outer, predicate);
    };
    match value {
        RawValue::Document(inner) => match inner.get(name) {
            Some(next) => first_hit(next, rest, outer, predicate),
            None => Ok(missing_matches(predicate).then_some(outer)),
        },
        RawValue::Array(items) => {
            let position = array_index(name);
            for (at, item) in items.iter().enumerate() {
                if let RawValue::Document(_) = item.value() {
                    let hit = first_hit(item.value(), parts, outer.or(Some(at)), predicate)?;
                    if hit.is_some() {
                        return Ok(hit);
                    }
                }
                if position == Some(at) {
                    let hit = at_position(item.value(), rest, outer, predicate)?;
                    if hit.is_some() {
                        return Ok(hit);
                    }
                }
            }
            Ok(None)
        }
        _ => Ok(missing_matches(predicate).then_some(outer)),
    }
}

/// Continues at an item that the path addresses by its index, which is not a matched item.
fn at_position(
    item: RawValue<'_>,
    rest: &[Box<str>],
    outer: Option<usize>,
    predicate: &Predicate,
) -> Result<Option<Option<usize>>> {
    match item {
        RawValue::Array(_) | RawValue::Document(_) if !rest.is_empty() => {
            first_hit(item, rest, outer, predicate)
        }
        _ if !rest.is_empty() => Ok(None),
        _ if asks_for_arrays(predicate) => at_end(item, outer, predicate),
        _ => Ok(value_matches(predicate, item)?.then_some(outer)),
    }
}

fn at_end(
    value: RawValue<'_>,
    outer: Option<usize>,
    predicate: &Predicate,
) -> Result<Option<Option<usize>>> {
    let RawValue::Array(items) = value else {
        return Ok(value_matches(predicate, value)?.then_some(outer));
    };
    let of_item = |holds: &dyn Fn(RawValue<'_>) -> Result<bool>| {
        for (at, item) in items.iter().enumerate() {
            if holds(item.value())? {
                return Ok(Some(outer.or(Some(at))));
            }
        }
        Ok(None)
    };
    match predicate {
        Predicate::ElemMatchDocument(filter) => {
            of_item(&|item| item_document_matches(filter, item))
        }
        Predicate::ElemMatchValue(parts) => of_item(&|item| item_value_matches(parts, item)),
        _ if asks_for_arrays(predicate) => Ok(value_matches(predicate, value)?.then_some(outer)),
        _ => match of_item(&|item| value_matches(predicate, item))? {
            Some(hit) => Ok(Some(hit)),
            None => Ok(value_matches(predicate, value)?.then_some(outer)),
        },
    }
}
