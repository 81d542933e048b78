//! Which array item a filter matched: what `$` in an update's path stands for.
//!
//! Of a condition it is the position in the first array on its path; of a conjunction the last
//! condition that met an array counts; negations match no item.

use mayfly_value::paths::array_index;
use mayfly_value::{RawDoc, RawValue};

use crate::matcher::{self, Expr, Matcher, Predicate};

/// The position in a document that the filter matches; nothing when no array had a part in it.
pub(super) fn matched(filter: &Matcher, doc: RawDoc<'_>) -> Option<usize> {
    of_filter(filter.root(), doc)
}

fn of_filter(expr: &Expr, doc: RawDoc<'_>) -> Option<usize> {
    match expr {
        Expr::And(parts) => parts.iter().filter_map(|part| of_filter(part, doc)).next_back(),
        Expr::Or(parts) => {
            let holds = parts.iter().find(|part| matcher::filter_holds(part, doc))?;
            of_filter(holds, doc)
        }
        Expr::Path { path, predicate } => of_predicate(predicate, path.parts(), doc),
        _ => None,
    }
}

fn of_predicate(predicate: &Predicate, parts: &[Box<str>], doc: RawDoc<'_>) -> Option<usize> {
    match predicate {
        Predicate::Not(_) => None,
        Predicate::All(all) => {
            all.iter().filter_map(|one| of_predicate(one, parts, doc)).next_back()
        }
        _ => search(predicate, Some(RawValue::Document(doc)), parts, None)?,
    }
}

/// The first value on the path that the predicate holds for: inside, the position in the first array
/// on the way there.
fn search(
    predicate: &Predicate,
    value: Option<RawValue<'_>>,
    parts: &[Box<str>],
    first: Option<usize>,
) -> Option<Option<usize>> {
    let Some(value) = value else {
        return matcher::holds_for_missing(predicate).then_some(first);
    };
    match (value, parts.split_first()) {
        (RawValue::Array(items), None) => leaf_array(predicate, items, first),
        (value, None) => matcher::holds_for_value(predicate, value).then_some(first),
        (RawValue::Document(doc), Some((name, rest))) => {
            search(predicate, doc.get(name), rest, first)
        }
        (RawValue::Array(items), Some((name, rest))) => {
            if let Some(at) = array_index(name)
                && let Some(item) = items.iter().nth(at)
                && let Some(found) = search(predicate, Some(item.value()), rest, first.or(Some(at)))
            {
                return Some(found);
            }
            items.iter().enumerate().find_map(|(at, item)| match item.value() {
                inner @ RawValue::Document(_) => {
                    search(predicate, Some(inner), parts, first.or(Some(at)))
                }
                _ => None,
            })
        }
        (_, Some(_)) => matcher::holds_for_missing(predicate).then_some(first),
    }
}

fn leaf_array(
    predicate: &Predicate,
    items: RawDoc<'_>,
    first: Option<usize>,
) -> Option<Option<usize>> {
    let mut values = items.iter().map(|item| item.value());
    let at = match predicate {
        Predicate::ElemMatchDocument(filter) => values.position(|item| match item {
            RawValue::Document(inner) | RawValue::Array(inner) => {
                matcher::filter_holds(filter, inner)
            }
            _ => false,
        }),
        Predicate::ElemMatchValue(parts) => {
            values.position(|item| parts.iter().all(|part| matcher::holds_for_value(part, item)))
        }
        Predicate::Exists | Predicate::Size(_) => None,
        _ => values.position(|item| matcher::holds_for_value(predicate, item)),
    };
    match at {
        Some(at) => Some(first.or(Some(at))),
        None => matcher::holds_for_value(predicate, RawValue::Array(items)).then_some(first),
    }
}
