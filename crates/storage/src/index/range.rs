//! Ranges of entries: from one value of a field to another.

use mayfly_kv::{KeyRange, prefix_end};
use mayfly_value::RawValue;
use mayfly_value::keys::{self, TypeBits};

use crate::index::IndexField;

/// The positions of all dates from the first one up to this one, both included.
pub(crate) fn dates_up_to(field: &IndexField, last: i64) -> KeyRange {
    between(RawValue::Date(i64::MIN), RawValue::Date(last), field.descending)
}

/// The same for 64-bit integers.
pub(crate) fn numbers_up_to(field: &IndexField, last: i64) -> KeyRange {
    between(RawValue::Int64(i64::MIN), RawValue::Int64(last), field.descending)
}

/// The positions of all values from the first to the last, both included.
pub(crate) fn between(first: RawValue<'_>, last: RawValue<'_>, descending: bool) -> KeyRange {
    let key = |value| {
        let mut key = Vec::with_capacity(16);
        keys::append_value(&mut key, &mut TypeBits::default(), value, descending);
        key
    };
    let (first, last) = (key(first), key(last));
    if descending {
        KeyRange { start: last, end: prefix_end(&first) }
    } else {
        KeyRange { start: first, end: prefix_end(&last) }
    }
}
