//! The values of a filter field, as order-preserving keys ([`mayfly_value::keys`]).

use std::ops::{ControlFlow, Range};

use mayfly_value::keys::{TypeBits, append_value, bracket_end, bracket_start};
use mayfly_value::paths::{Hit, visit_path};
use mayfly_value::{RawDoc, RawValue, SortOrder, canonical_type};

use crate::limits::MAX_VALUE_BYTES;

/// The key that each document with the field has. No value's key begins with this byte.
pub(crate) const PRESENT: &[u8] = &[0xFE];

/// Whether filters can compare values of this type.
pub(crate) fn is_comparable(value: RawValue<'_>) -> bool {
    match value {
        RawValue::Bool(_)
        | RawValue::Date(_)
        | RawValue::Double(_)
        | RawValue::Int32(_)
        | RawValue::Int64(_)
        | RawValue::Null
        | RawValue::ObjectId(_)
        | RawValue::String(_) => true,
        RawValue::Binary { subtype, bytes } => subtype == 4 && bytes.len() == 16,
        _ => false,
    }
}

/// The key of a value.
pub(crate) fn key_of(value: RawValue<'_>) -> Vec<u8> {
    let mut key = Vec::new();
    append_value(&mut key, &mut TypeBits::new(), value, SortOrder::Ascending);
    key
}

/// The keys of the values of the same type on one side of a value: `gt`, `gte`, `lt`, `lte`.
pub(crate) fn range_of(name: &str, value: RawValue<'_>, bound: Vec<u8>) -> Range<Vec<u8>> {
    // No key is the beginning of another one, so a zero byte makes the next greater bound.
    let mut after = bound.clone();
    after.push(0);
    let canonical = canonical_type(value.type_byte());
    let (mut first, mut last) = (Vec::new(), Vec::new());
    if value.is_number() {
        // A number that is not one is on no side of any number.
        first = key_of(RawValue::Double(f64::NAN));
        first.push(0);
    } else {
        bracket_start(canonical, &mut first);
    }
    bracket_end(canonical, &mut last);
    let is_nan = matches!(value, RawValue::Double(number) if number.is_nan());
    match name {
        // Only NaN is equal to NaN, and nothing is on a side of it.
        "gt" | "lt" if is_nan => bound.clone()..bound,
        "gte" | "lte" if is_nan => bound..after,
        "gt" => after..last,
        "gte" => bound..last,
        "lt" => first..bound,
        _ => first..after,
    }
}

/// The keys of all values that a path reaches. `None`: it reaches none.
pub(crate) fn keys_at(document: RawDoc<'_>, parts: &[&str]) -> Option<Vec<Vec<u8>>> {
    let mut found = None;
    let _ = visit_path(document, parts, &mut |hit| {
        let Hit::Value(value, _) = hit else { return ControlFlow::Continue(()) };
        let keys = found.get_or_insert_with(Vec::new);
        if is_comparable(value) {
            keys.push(key_of(value));
        }
        ControlFlow::Continue(())
    });
    found.map(|mut keys| {
        order_keys(&mut keys);
        keys
    })
}

/// Sorts keys, and removes those that occur twice or are too long.
pub(crate) fn order_keys(keys: &mut Vec<Vec<u8>>) {
    keys.retain(|key| key.len() <= MAX_VALUE_BYTES);
    keys.sort_unstable();
    keys.dedup();
}
