//! Evaluation of filters: without allocation, and without path traversal for plain fields. An error
//! ends the evaluation: the result of a failed predicate is unknown, and so is that of its
//! negation.

use std::ops::ControlFlow;

use mayfly_base::Result;
use mayfly_value::paths::{Hit, LeafArrays, visit_path_by, visit_path_with};
use mayfly_value::{
    Collation, Finder, Number, RawDoc, RawElement, RawValue, ValueSet, canonical_type,
    compare_values_in, same_collation, ty,
};
use mayfly_work::current::spend;

use super::{CmpOp, Expr, Predicate};
use crate::FieldPath;

/// Whether the test is true for some item; the first error ends it.
#[inline]
pub(super) fn any<T>(
    items: impl IntoIterator<Item = T>,
    mut holds: impl FnMut(T) -> Result<bool>,
) -> Result<bool> {
    for item in items {
        if holds(item)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether the test is true for every item; the first error ends it.
#[inline]
pub(super) fn all<T>(
    items: impl IntoIterator<Item = T>,
    mut holds: impl FnMut(T) -> Result<bool>,
) -> Result<bool> {
    for item in items {
        if !holds(item)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Up to this many conditions on plain fields are evaluated in one pass over the document; more
/// conditions share a [`Finder`].
const FEW: usize = 64;

/// Conditions on a small document that count as one unit of work.
const CONDITIONS_PER_UNIT: usize = 16;

/// Size in bytes from which on reading a document counts as work.
const LARGE_BYTES: usize = 4 << 10;

/// Counts reading a large document as work of the operation, because each condition may read all of
/// it.
#[inline]
fn spend_on(doc: RawDoc<'_>) -> Result<()> {
    let bytes = doc.as_bytes().len();
    if bytes < LARGE_BYTES { Ok(()) } else { spend(bytes >> 10) }
}

/// Whether the document satisfies the filter. The parser limits the depth.
pub(super) fn matches(expr: &Expr, doc: RawDoc<'_>) -> Result<bool> {
    matches_in(expr, doc, None)
}

/// The same with a finder, for many conditions.
fn matches_in(expr: &Expr, doc: RawDoc<'_>, finder: Option<&Finder<'_>>) -> Result<bool> {
    match expr {
        Expr::And(parts) if parts.len() <= FEW => all_match(parts, doc, finder),
        Expr::Or(parts) if parts.len() <= FEW => any(parts, |part| matches_in(part, doc, finder)),
        Expr::Nor(parts) if parts.len() <= FEW => {
            Ok(!any(parts, |part| matches_in(part, doc, finder))?)
        }
        Expr::And(_) | Expr::Or(_) | Expr::Nor(_) => {
            let own = finder.is_none().then(|| Finder::new(doc));
            many_match(expr, doc, finder.or(own.as_ref()))
        }
        Expr::Path { path, predicate } => path_matches_in(path, predicate, doc, finder),
        Expr::Document(test) => test.holds(doc),
        Expr::Always(holds) => Ok(*holds),
    }
}

/// Evaluates more conditions than most documents have fields.
fn many_match(expr: &Expr, doc: RawDoc<'_>, finder: Option<&Finder<'_>>) -> Result<bool> {
    if let Expr::And(parts) | Expr::Or(parts) | Expr::Nor(parts) = expr {
        spend(parts.len() / CONDITIONS_PER_UNIT)?;
    }
    match expr {
        Expr::Or(parts) => any(parts, |part| matches_in(part, doc, finder)),
        Expr::Nor(parts) => Ok(!any(parts, |part| matches_in(part, doc, finder))?),
        Expr::And(parts) => all(parts.chunk_by(same_path), |parts| match parts {
            [Expr::Path { path, .. }, _, ..] if parts.len() > MANY_EQUALITIES => {
                same_path_matches(path, parts, doc, finder)
            }
            parts => all(parts, |part| matches_in(part, doc, finder)),
        }),
        other => matches_in(other, doc, finder),
    }
}

/// Whether all parts are true. Conditions on plain fields are evaluated together in one pass over
/// the document.
fn all_match(parts: &[Expr], doc: RawDoc<'_>, finder: Option<&Finder<'_>>) -> Result<bool> {
    let plain = |part: &Expr| match part {
        Expr::Path { path, .. } => path.as_single().is_some(),
        Expr::And(_) | Expr::Or(_) | Expr::Nor(_) | Expr::Document(_) | Expr::Always(_) => false,
    };
    let plain_parts = parts.iter().take_while(|part| plain(part)).count().min(FEW);
    if plain_parts < 2 || finder.is_some() {
        return all(parts, |part| matches_in(part, doc, finder));
    }
    spend_on(doc)?;
    let (together, others) = parts.split_at(plain_parts);
    Ok(plain_fields_match(together, doc)? && all(others, |part| matches_in(part, doc, None))?)
}

/// From this many equality predicates on one path on, an array's items are put into a set.
const MANY_EQUALITIES: usize = 16;

fn same_path(left: &Expr, right: &Expr) -> bool {
    matches!((left, right), (Expr::Path { path: a, .. }, Expr::Path { path: b, .. }) if a == b)
}

/// Evaluates predicates on one path, as `$all` produces them. Equalities with plain values look up
/// a set of the array's items.
fn same_path_matches(
    path: &FieldPath,
    parts: &[Expr],
    doc: RawDoc<'_>,
    finder: Option<&Finder<'_>>,
) -> Result<bool> {
    let place = finder.and_then(|finder| last_document(path, doc, finder));
    let field = place.and_then(|(doc, name)| get_element(doc, name, finder));
    let items = field.and_then(|field| field.value().as_array());
    // All predicates of a filter with a collation have the same one.
    let strings = parts.iter().find_map(|part| match part {
        Expr::Path { predicate: Predicate::Cmp { collation, .. }, .. } => collation.as_ref(),
        _ => None,
    });
    let mut set = ValueSet::new(strings.map(|strings| &**strings));
    let Some(items) = items else {
        return all(parts, |part| matches_in(part, doc, finder));
    };
    spend_on(items)?;
    items.iter().for_each(|item| {
        set.insert(item.value());
    });
    all(parts, |part| match part {
        Expr::Path { predicate: Predicate::Cmp { op: CmpOp::Eq, value, collation }, .. }
            if value.type_byte() != ty::ARRAY
                && (same_collation(collation.as_ref(), strings)
                    || !Collation::concerns(value.as_raw())) =>
        {
            Ok(set.contains(value.as_raw()))
        }
        part => matches_in(part, doc, finder),
    })
}

/// Evaluates at most 64 conditions on plain fields; `open` has a bit for each condition whose field
/// was not found yet.
fn plain_fields_match(parts: &[Expr], doc: RawDoc<'_>) -> Result<bool> {
    let mut open = u64::MAX >> (64 - parts.len());
    for element in doc.iter() {
        for (at, part) in parts.iter().enumerate() {
            let Expr::Path { path, predicate } = part else {
                continue;
            };
            let answers = open & 1 << at != 0 && path.as_str().as_bytes() == element.name_bytes();
            if answers {
                if !element_matches(predicate, element)? {
                    return Ok(false);
                }
                open &= !(1 << at);
            }
        }
        if open == 0 {
            return Ok(true);
        }
    }
    Ok(parts.iter().enumerate().all(|(at, part)| match part {
        Expr::Path { predicate, .. } if open & 1 << at != 0 => missing_matches(predicate),
        _ => true,
    }))
}

pub(super) fn path_matches(
    path: &FieldPath,
    predicate: &Predicate,
    doc: RawDoc<'_>,
) -> Result<bool> {
    path_matches_in(path, predicate, doc, None)
}

fn path_matches_in(
    path: &FieldPath,
    predicate: &Predicate,
    doc: RawDoc<'_>,
    finder: Option<&Finder<'_>>,
) -> Result<bool> {
    spend_on(doc)?;
    if let Some(name) = path.as_single() {
        return field_matches(predicate, get_element(doc, name, finder));
    }
    if let Some((doc, name)) = finder.and_then(|finder| last_document(path, doc, finder)) {
        return field_matches(predicate, get_element(doc, name, finder));
    }
    let leaf_arrays = match predicate {
        Predicate::Not(inner) => return Ok(!path_matches_in(path, inner, doc, finder)?),
        Predicate::All(parts) => {
            return all(parts, |part| path_matches_in(path, part, doc, finder));
        }
        _ if asks_for_arrays(predicate) => LeafArrays::Keep,
        _ => LeafArrays::Expand,
    };
    let mut found = Ok(false);
    let mut visit = |hit: Hit<'_>| {
        found = match hit {
            Hit::Value(value, _) => value_matches(predicate, value),
            Hit::Missing => Ok(missing_matches(predicate)),
        };
        match found {
            Ok(false) => ControlFlow::Continue(()),
            Ok(true) | Err(_) => ControlFlow::Break(()),
        }
    };
    let _ = match finder {
        None => visit_path_with(doc, path.parts(), leaf_arrays, &mut visit),
        Some(finder) => visit_path_by(doc, path.parts(), leaf_arrays, finder, &mut visit),
    };
    found
}

fn get_element<'a>(
    doc: RawDoc<'a>,
    name: &str,
    finder: Option<&Finder<'_>>,
) -> Option<RawElement<'a>> {
    match finder {
        None => doc.get_element(name),
        Some(finder) => finder.get_element(doc, name),
    }
}

/// The last document on a path and the name of the field in it, if the path goes through documents
/// only.
fn last_document<'a, 'p>(
    path: &'p FieldPath,
    doc: RawDoc<'a>,
    finder: &Finder<'_>,
) -> Option<(RawDoc<'a>, &'p str)> {
    let (name, way) = path.parts().split_last()?;
    let mut doc = doc;
    for part in way {
        doc = finder.get(doc, part)?.as_document()?;
    }
    Some((doc, name))
}

/// Whether the predicate tests an array as a whole and never its items individually.
pub(super) fn asks_for_arrays(predicate: &Predicate) -> bool {
    match predicate {
        Predicate::Exists
        | Predicate::Size(_)
        | Predicate::ElemMatchDocument(_)
        | Predicate::ElemMatchValue(_) => true,
        Predicate::Cmp { .. }
        | Predicate::In(_)
        | Predicate::Type(..)
        | Predicate::Mod { .. }
        | Predicate::Bits(..)
        | Predicate::Geo(..)
        | Predicate::Regex(_)
        | Predicate::Not(_)
        | Predicate::All(_) => false,
    }
}

/// Whether the predicate is true for a value, or for an item of it if it is an array.
pub(super) fn matches_item(predicate: &Predicate, value: RawValue<'_>) -> Result<bool> {
    spend(1)?;
    match value {
        RawValue::Array(_) => array_matches(predicate, value),
        value => value_matches(predicate, value),
    }
}

#[inline]
fn field_matches(predicate: &Predicate, field: Option<RawElement<'_>>) -> Result<bool> {
    match field {
        None => Ok(missing_matches(predicate)),
        Some(element) => element_matches(predicate, element),
    }
}

/// Whether the predicate is true for a field at the end of the path, or for an item of its array.
#[inline]
fn element_matches(predicate: &Predicate, element: RawElement<'_>) -> Result<bool> {
    if element.type_byte() == ty::ARRAY {
        array_matches(predicate, element.value())
    } else {
        value_matches(predicate, element.value())
    }
}

fn array_matches(predicate: &Predicate, array: RawValue<'_>) -> Result<bool> {
    let items = array.as_array().unwrap_or(RawDoc::EMPTY);
    let bytes = items.as_bytes().len();
    // A filter may have thousands of predicates on one large array.
    if bytes >= 1 << 10 {
        spend(bytes >> 10)?;
    }
    match predicate {
        Predicate::Not(inner) => return Ok(!array_matches(inner, array)?),
        Predicate::All(parts) => return all(parts, |part| array_matches(part, array)),
        _ if asks_for_arrays(predicate) => return value_matches(predicate, array),
        _ => {}
    }
    Ok(any(items, |item| value_matches(predicate, item.value()))?
        || value_matches(predicate, array)?)
}

/// Whether the predicate is true for a missing field.
pub fn missing_matches(predicate: &Predicate) -> bool {
    match predicate {
        Predicate::Cmp { op, value, .. } => match value.as_raw() {
            RawValue::Null => matches!(op, CmpOp::Eq | CmpOp::Lte | CmpOp::Gte),
            // Every document is above MinKey and below MaxKey.
            RawValue::MinKey => matches!(op, CmpOp::Gt | CmpOp::Gte),
            RawValue::MaxKey => matches!(op, CmpOp::Lt | CmpOp::Lte),
            _ => false,
        },
        Predicate::In(list) => list.has_null(),
        Predicate::Exists
        | Predicate::Type(..)
        | Predicate::Mod { .. }
        | Predicate::Bits(..)
        | Predicate::Geo(..)
        | Predicate::Regex(_)
        | Predicate::Size(_)
        | Predicate::ElemMatchDocument(_)
        | Predicate::ElemMatchValue(_) => false,
        Predicate::Not(inner) => !missing_matches(inner),
        Predicate::All(parts) => parts.iter().all(missing_matches),
    }
}

/// Whether the predicate is true for this value. Items of an array are not tested, except by
/// predicates on arrays.
pub(super) fn value_matches(predicate: &Predicate, value: RawValue<'_>) -> Result<bool> {
    Ok(match predicate {
        Predicate::Cmp { op, value: operand, collation } => {
            compares(*op, value, operand.as_raw(), collation.as_deref())
        }
        Predicate::In(list) => list.contains(value)?,
        Predicate::Exists => true,
        Predicate::Type(types, _) => types.contains(value.type_byte()),
        Predicate::Mod { divisor, remainder } => Number::from_value(value)
            .and_then(Number::to_i64_truncated)
            .is_some_and(|number| number.wrapping_rem(*divisor) == *remainder),
        Predicate::Bits(test, _) => test.holds(value),
        Predicate::Geo(test, _) => {
            let holds = test.holds(value)?;
            // The result of an interrupted test is meaningless.
            spend(usize::MAX)?;
            holds
        }
        Predicate::Regex(regex) => regex.matches_value(value)?,
        Predicate::Size(size) => {
            value.as_array().is_some_and(|items| items.iter().count() as i64 == *size)
        }
        Predicate::ElemMatchDocument(filter) => match value.as_array() {
            Some(items) => any(items, |item| item_document_matches(filter, item.value()))?,
            None => false,
        },
        Predicate::ElemMatchValue(parts) => match value.as_array() {
            Some(items) => any(items, |item| item_value_matches(parts, item.value()))?,
            None => false,
        },
        Predicate::Not(inner) => !value_matches(inner, value)?,
        Predicate::All(parts) => all(parts, |part| value_matches(part, value))?,
    })
}

/// Whether an array's item is a document, or an array, that satisfies the filter.
pub(super) fn item_document_matches(filter: &Expr, item: RawValue<'_>) -> Result<bool> {
    spend(1)?;
    match item {
        RawValue::Document(inner) | RawValue::Array(inner) => matches(filter, inner),
        _ => Ok(false),
    }
}

/// Whether an array's item satisfies all predicates.
pub(super) fn item_value_matches(parts: &[Predicate], item: RawValue<'_>) -> Result<bool> {
    spend(1)?;
    all(parts, |part| value_matches(part, item))
}

fn compares(
    op: CmpOp,
    value: RawValue<'_>,
    operand: RawValue<'_>,
    collation: Option<&Collation>,
) -> bool {
    let bracket = canonical_type(operand.type_byte());
    if canonical_type(value.type_byte()) != bracket && bracket != -1 && bracket != 127 {
        return false;
    }
    // NaN is ordered before all numbers, but in a query it is not less than any.
    if bracket == 10 && is_nan(value) != is_nan(operand) {
        return false;
    }
    let order = compare_values_in(value, operand, collation);
    match op {
        CmpOp::Eq => order.is_eq(),
        CmpOp::Lt => order.is_lt(),
        CmpOp::Lte => order.is_le(),
        CmpOp::Gt => order.is_gt(),
        CmpOp::Gte => order.is_ge(),
    }
}

fn is_nan(value: RawValue<'_>) -> bool {
    match value {
        RawValue::Double(double) => double.is_nan(),
        RawValue::Decimal128(_) => Number::from_value(value).is_some_and(Number::is_nan),
        _ => false,
    }
}
