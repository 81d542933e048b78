//! What bounds a hashed field: single values, by their hashes.

use mayfly_mql::matcher::{CmpOp, Predicate};
use mayfly_storage::IndexField;
use mayfly_storage::KeyRange;
use mayfly_storage::kinds::hashed::hash_in;
use mayfly_value::{Collation, RawValue};

use super::bounds::{FieldBounds, Intervals, encoded, indexable};

/// The hashes of the values that one condition asks for; nothing when none asks for single values.
pub(super) fn intervals(
    known: &FieldBounds<'_>,
    field: &IndexField,
    collation: Option<&Collation>,
    same_collation: bool,
) -> Option<Intervals> {
    let usable = |values: &Vec<RawValue<'_>>| {
        let strings = values.iter().any(|value| Collation::concerns(*value));
        values.iter().all(|value| indexable(*value)) && (same_collation || !strings)
    };
    let values =
        known.predicates.iter().filter_map(|predicate| values_of(predicate)).find(usable)?;
    let mut ranges: Vec<KeyRange> = values
        .iter()
        .map(|value| {
            let hash = RawValue::Int64(hash_in(*value, collation));
            KeyRange::prefix(&encoded(hash, field.descending, None))
        })
        .collect();
    ranges.sort_by(|a, b| a.start.cmp(&b.start));
    ranges.dedup();
    Some(Intervals {
        ascending: ranges.clone(),
        descending: ranges,
        points: true,
        includes_missing: values.iter().any(|value| matches!(value, RawValue::Null)),
        strings: false,
        documents: false,
    })
}

/// The values that a condition asks for, when it asks for equality.
pub(crate) fn values_of(predicate: &Predicate) -> Option<Vec<RawValue<'_>>> {
    match predicate {
        Predicate::Cmp { op: CmpOp::Eq, value, .. } => Some(vec![value.as_raw()]),
        Predicate::In(list) if list.regexes().is_empty() => {
            Some(list.values().iter().map(|value| value.as_raw()).collect())
        }
        Predicate::All(parts) => parts.iter().find_map(values_of),
        _ => None,
    }
}
