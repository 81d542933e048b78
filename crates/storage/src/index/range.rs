//! Ranges of entries between two values of a field.

use mayfly_kv::{KeyRange, prefix_end};
use mayfly_value::keys::{self, TypeBits};
use mayfly_value::{RawValue, SortOrder};

use crate::index::IndexField;

/// The range of all dates up to this one, inclusive.
pub(crate) fn dates_up_to(field: &IndexField, last: i64) -> KeyRange {
    between(RawValue::Date(i64::MIN), RawValue::Date(last), field.order)
}

/// The range of all 64-bit integers up to this one, inclusive.
pub(crate) fn numbers_up_to(field: &IndexField, last: i64) -> KeyRange {
    between(RawValue::Int64(i64::MIN), RawValue::Int64(last), field.order)
}

/// The range of all values from the first to the last, both inclusive.
pub(crate) fn between(first: RawValue<'_>, last: RawValue<'_>, order: SortOrder) -> KeyRange {
    let key = |value| {
        let mut key = Vec::with_capacity(16);
        keys::append_value(&mut key, &mut TypeBits::default(), value, order);
        key
    };
    let (first, last) = (key(first), key(last));
    if order.is_descending() {
        KeyRange { start: last, end: prefix_end(&first) }
    } else {
        KeyRange { start: first, end: prefix_end(&last) }
    }
}
