//! Sets of values in comparison order, for repeated membership tests.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use crate::collation::Collation;
use crate::compare::compare_values_in;
use crate::raw::RawValue;

/// A value ordered by the comparison order.
struct Ordered<'v> {
    value: RawValue<'v>,
    collation: Option<&'v Collation>,
}

impl Ord for Ordered<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        compare_values_in(self.value, other.value, self.collation)
    }
}

impl PartialOrd for Ordered<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Ordered<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Ordered<'_> {}

/// A set in which no two values compare as equal.
pub struct ValueSet<'v> {
    values: BTreeSet<Ordered<'v>>,
    collation: Option<&'v Collation>,
}

impl<'v> ValueSet<'v> {
    /// An empty set of values whose strings compare by this collation.
    pub fn new(collation: Option<&'v Collation>) -> ValueSet<'v> {
        ValueSet { values: BTreeSet::new(), collation }
    }

    /// Adds a value; returns false when an equal one is present.
    pub fn insert(&mut self, value: RawValue<'v>) -> bool {
        self.values.insert(Ordered { value, collation: self.collation })
    }

    /// Whether an equal value is present.
    pub fn contains(&self, value: RawValue<'v>) -> bool {
        self.values.contains(&Ordered { value, collation: self.collation })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_values_are_one() {
        let mut set = ValueSet::new(None);
        assert!(set.insert(RawValue::Int32(1)));
        assert!(!set.insert(RawValue::Double(1.0)));
        assert!(set.insert(RawValue::String("1")));
        assert!(set.insert(RawValue::Double(f64::NAN)));
        assert!(!set.insert(RawValue::Double(-f64::NAN)));
        assert!(set.contains(RawValue::Int64(1)));
        assert!(!set.contains(RawValue::Null));
    }
}
