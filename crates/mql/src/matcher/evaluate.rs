//! Filters over documents: no allocation, and no path machinery for plain fields.

use std::ops::ControlFlow;

use mayfly_value::paths::{Hit, LeafArrays, visit_path_with};
use mayfly_value::{Number, RawDoc, RawValue, canonical_type, compare_values, ty};

use super::{CmpOp, Expr, Predicate};
use crate::FieldPath;

/// Whether the document satisfies the filter. Depth is bounded when the filter is parsed.
pub(super) fn matches(expr: &Expr, doc: RawDoc<'_>) -> bool {
    match expr {
        Expr::And(parts) => parts.iter().all(|part| matches(part, doc)),
        Expr::Or(parts) => parts.iter().any(|part| matches(part, doc)),
        Expr::Nor(parts) => !parts.iter().any(|part| matches(part, doc)),
        Expr::Path { path, predicate } => path_matches(path, predicate, doc),
        Expr::Always(holds) => *holds,
    }
}

fn path_matches(path: &FieldPath, predicate: &Predicate, doc: RawDoc<'_>) -> bool {
    let leaf_arrays = match predicate {
        Predicate::Not(inner) => return !path_matches(path, inner, doc),
        Predicate::All(parts) => return parts.iter().all(|part| path_matches(path, part, doc)),
        Predicate::Exists
        | Predicate::Size(_)
        | Predicate::ElemMatchDocument(_)
        | Predicate::ElemMatchValue(_) => LeafArrays::Keep,
        Predicate::Cmp { .. }
        | Predicate::In(_)
        | Predicate::Type(_)
        | Predicate::Mod { .. }
        | Predicate::Regex(_) => LeafArrays::Expand,
    };
    if let Some(name) = path.as_single() {
        return match doc.get_element(name) {
            None => missing_matches(predicate),
            Some(element) if element.type_byte() != ty::ARRAY => {
                value_matches(predicate, element.value())
            }
            Some(element) => array_matches(predicate, element.value(), leaf_arrays),
        };
    }
    let found = visit_path_with(doc, path.parts(), leaf_arrays, &mut |hit| {
        let matched = match hit {
            Hit::Value(value, _) => value_matches(predicate, value),
            Hit::Missing => missing_matches(predicate),
        };
        if matched { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    found.is_break()
}

fn array_matches(predicate: &Predicate, array: RawValue<'_>, leaf_arrays: LeafArrays) -> bool {
    let items = array.as_array().filter(|_| leaf_arrays == LeafArrays::Expand);
    items.is_some_and(|items| items.iter().any(|item| value_matches(predicate, item.value())))
        || value_matches(predicate, array)
}

/// Whether the predicate holds where the path reaches nothing.
fn missing_matches(predicate: &Predicate) -> bool {
    match predicate {
        Predicate::Cmp { op, value } => match value.as_raw() {
            RawValue::Null => matches!(op, CmpOp::Eq | CmpOp::Lte | CmpOp::Gte),
            // Every document is above MinKey and below MaxKey.
            RawValue::MinKey => matches!(op, CmpOp::Gt | CmpOp::Gte),
            RawValue::MaxKey => matches!(op, CmpOp::Lt | CmpOp::Lte),
            _ => false,
        },
        Predicate::In(list) => list.has_null(),
        Predicate::Exists
        | Predicate::Type(_)
        | Predicate::Mod { .. }
        | Predicate::Regex(_)
        | Predicate::Size(_)
        | Predicate::ElemMatchDocument(_)
        | Predicate::ElemMatchValue(_) => false,
        Predicate::Not(inner) => !missing_matches(inner),
        Predicate::All(parts) => parts.iter().all(missing_matches),
    }
}

/// Whether the predicate holds for this very value; arrays are not entered, except by what asks for arrays.
pub(super) fn value_matches(predicate: &Predicate, value: RawValue<'_>) -> bool {
    match predicate {
        Predicate::Cmp { op, value: operand } => compares(*op, value, operand.as_raw()),
        Predicate::In(list) => list.contains(value),
        Predicate::Exists => true,
        Predicate::Type(types) => types.contains(value.type_byte()),
        Predicate::Mod { divisor, remainder } => Number::from_value(value)
            .and_then(Number::to_i64_truncated)
            .is_some_and(|number| number.wrapping_rem(*divisor) == *remainder),
        Predicate::Regex(regex) => regex.matches_value(value),
        Predicate::Size(size) => {
            value.as_array().is_some_and(|items| items.iter().count() as i64 == *size)
        }
        Predicate::ElemMatchDocument(filter) => value.as_array().is_some_and(|items| {
            items.iter().any(|item| match item.value() {
                RawValue::Document(inner) | RawValue::Array(inner) => matches(filter, inner),
                _ => false,
            })
        }),
        Predicate::ElemMatchValue(parts) => value.as_array().is_some_and(|items| {
            let all = |item| parts.iter().all(|part| value_matches(part, item));
            items.iter().any(|item| all(item.value()))
        }),
        Predicate::Not(inner) => !value_matches(inner, value),
        Predicate::All(parts) => parts.iter().all(|part| value_matches(part, value)),
    }
}

fn compares(op: CmpOp, value: RawValue<'_>, operand: RawValue<'_>) -> bool {
    let bracket = canonical_type(operand.type_byte());
    if canonical_type(value.type_byte()) != bracket && bracket != -1 && bracket != 127 {
        return false;
    }
    // NaN orders below all numbers but is not less than any of them in a query.
    if bracket == 10 && is_nan(value) != is_nan(operand) {
        return false;
    }
    let order = compare_values(value, operand);
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
