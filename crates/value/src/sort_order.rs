//! Ascending or descending: the order of a sort, of an index field, and of its ordered keys.

use std::cmp::Ordering;

/// The order in which values are sorted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SortOrder {
    /// From the least value to the greatest.
    Ascending,
    /// From the greatest value to the least.
    Descending,
}

impl SortOrder {
    /// The order that patterns state as 1 or -1; `None` for any other number.
    pub fn from_sign(sign: i64) -> Option<SortOrder> {
        match sign {
            1 => Some(SortOrder::Ascending),
            -1 => Some(SortOrder::Descending),
            _ => None,
        }
    }

    /// 1 or -1, as patterns state it.
    pub fn sign(self) -> i32 {
        if self.is_descending() { -1 } else { 1 }
    }

    /// The opposite order.
    pub fn reversed(self) -> SortOrder {
        match self {
            SortOrder::Ascending => SortOrder::Descending,
            SortOrder::Descending => SortOrder::Ascending,
        }
    }

    /// Whether the greatest value comes first.
    pub fn is_descending(self) -> bool {
        self == SortOrder::Descending
    }

    /// The position of a value relative to another one, from their comparison.
    pub fn apply(self, comparison: Ordering) -> Ordering {
        if self.is_descending() { comparison.reverse() } else { comparison }
    }
}
