//! Bounds on a hashed field: the hashes of the single values that the filter asks for.

use super::candidate::Comparison;
use mayfly_mql::matcher::{CmpOp, Predicate};
use mayfly_storage::kinds::hashed::hash_in;
use mayfly_value::{Collation, RawValue};

use super::bounds::{Bounds, FieldBounds};
use super::interval::{Interval, union};

/// The hashes of the values that a condition asks for; `None` if no condition asks for single
/// values.
pub(super) fn bounds(
    known: &FieldBounds<'_>,
    collation: Option<&Collation>,
    comparison: Comparison,
) -> Option<Bounds> {
    let usable = |values: &Vec<RawValue<'_>>| {
        let strings = values.iter().any(|value| Collation::concerns(*value));
        values.iter().all(|value| indexable(*value)) && (comparison.is_same() || !strings)
    };
    let values =
        known.predicates.iter().filter_map(|predicate| values_of(predicate)).find(usable)?;
    let hashes = values.iter().map(|value| RawValue::Int64(hash_in(*value, collation)));
    let hashes = union(hashes.map(Interval::point).collect(), None);
    let includes_missing = values.iter().any(|value| matches!(value, RawValue::Null));
    Some(Bounds { includes_missing, ..Bounds::new(hashes) })
}

/// Whether the value is found only under its own key. An array is also found under the keys of its
/// items.
fn indexable(value: RawValue<'_>) -> bool {
    !matches!(value, RawValue::Array(_) | RawValue::Undefined | RawValue::Regex { .. })
}

/// The values that a condition requires equality with, if it is an equality.
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
