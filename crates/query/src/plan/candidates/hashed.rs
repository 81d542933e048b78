//! Bounds on a hashed field: the hashes of the single values that the filter asks for.

use mayfly_storage::kinds::hashed::hash_in;
use mayfly_value::{Collation, RawValue};

use crate::plan::conditions::operators::required_values;
use crate::plan::types::bounds::{Bounds, FieldBounds};
use crate::plan::types::candidate::CollationMatch;
use crate::plan::types::interval::{Interval, union};

/// The hashes of the values that a condition asks for; `None` if no condition asks for single
/// values.
pub(crate) fn bounds(
    known: &FieldBounds<'_>,
    collation: Option<&Collation>,
    collations: CollationMatch,
) -> Option<Bounds> {
    let usable = |values: &Vec<RawValue<'_>>| {
        let strings = values.iter().any(|value| Collation::concerns(*value));
        values.iter().all(|value| indexable(*value)) && (collations.is_same() || !strings)
    };
    let values =
        known.predicates.iter().filter_map(|predicate| required_values(predicate)).find(usable)?;
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
