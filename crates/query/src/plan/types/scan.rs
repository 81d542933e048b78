//! Scans: the leaves of a plan that read key ranges of records or of an index.

use std::sync::Arc;

use mayfly_mql::Matcher;
use mayfly_storage::{Direction, Index, IndexField, KeyRange, whole_range};

use super::interval::Interval;

/// A scan of records in key order: the order of insertion, of `_id` in a clustered collection, or
/// of bucket starts.
#[derive(Clone)]
pub struct RecordScan {
    /// Key ranges in the order of the scan.
    pub ranges: Vec<KeyRange>,
    /// Direction of the scan.
    pub direction: Direction,
    /// The bounds of the filter in the ranges.
    pub(crate) filter_bounds: FilterBounds,
    /// Whether explain reports the scan as one of the `_id` index, because the query requested its
    /// order.
    pub(crate) by_id: bool,
    /// Whether the collection was created clustered, so that explain reports a clustered scan.
    pub(crate) clustered: bool,
}

/// A scan of an index.
#[derive(Clone)]
pub struct IndexScan {
    /// The index whose keys are read.
    pub index: Arc<Index>,
    /// Key ranges in the order of the scan.
    pub ranges: Vec<KeyRange>,
    /// Direction of the scan.
    pub direction: Direction,
    /// Whether every entry in the ranges is a result, as long as no more fields of the index become
    /// multikey.
    pub exact: bool,
    /// Whether the scan is bounded by single values only, and so usually finds few documents.
    pub narrow: bool,
    /// Bit set of the index fields that contained arrays when the query was planned.
    pub multikey: u32,
    /// Whether the scan may find one document several times even without arrays.
    pub repeats: bool,
    /// Set if the scan skips entries with values that it has returned.
    pub one_per_value: Option<OnePerValue>,
    /// The fields of the entries where they differ from the definition: a path in place of a
    /// wildcard.
    pub fields: Option<Vec<IndexField>>,
    /// Bounds on later fields. Entries outside of them are skipped.
    pub checks: Vec<EntryCheck>,
    /// The bounds of the filter in the ranges.
    pub(crate) filter_bounds: FilterBounds,
    /// The part of the filter that is evaluated on keys.
    pub(crate) key_filter: Option<Arc<Matcher>>,
}

/// How a scan skips entries with a value that it has returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OnePerValue {
    /// Keys suffice: documents are read only if a key may stand for a missing field.
    pub covered: bool,
    /// Number of leading index fields whose values together are returned once.
    pub fields: usize,
    /// A missing field and null are different values.
    pub missing_is_distinct: bool,
}

/// How the bounds of a scan relate to the filter.
#[derive(Clone, Debug, Default)]
pub(crate) struct FilterBounds {
    /// The intervals for each field of the index; `None` for all values.
    pub(crate) intervals: Vec<Option<Vec<Interval>>>,
    /// The top-level conjuncts that the bounds are equivalent to.
    pub(crate) covered: Vec<usize>,
}

/// Bounds on a field of an index entry that is not part of the key ranges.
#[derive(Clone)]
pub struct EntryCheck {
    /// The index of the field.
    pub at: usize,
    /// Allowed ordered keys in the direction of the field, ascending and disjoint.
    pub ranges: Vec<KeyRange>,
}

impl RecordScan {
    /// A scan of these ranges without further properties.
    pub(crate) fn new(ranges: Vec<KeyRange>, direction: Direction) -> RecordScan {
        let filter_bounds = FilterBounds::default();
        RecordScan { ranges, direction, filter_bounds, by_id: false, clustered: false }
    }

    /// Whether the scan reads every record.
    pub fn is_whole(&self) -> bool {
        is_whole(&self.ranges)
    }

    /// Whether explain reports a collection scan rather than a scan of the `_id` index.
    pub(crate) fn is_of_collection(&self) -> bool {
        self.is_whole() && !self.by_id
    }
}

impl IndexScan {
    /// Whether the scan reads all entries of one range.
    pub(crate) fn has_one_range(&self) -> bool {
        let mut intervals = self.filter_bounds.intervals.iter().flatten();
        self.checks.is_empty() && intervals.all(|intervals| intervals.len() == 1)
    }

    /// A scan of these ranges without further properties.
    pub(crate) fn new(index: Arc<Index>, ranges: Vec<KeyRange>, direction: Direction) -> IndexScan {
        IndexScan {
            multikey: index.multikey_mask(),
            index,
            ranges,
            direction,
            exact: false,
            narrow: false,
            repeats: false,
            one_per_value: None,
            fields: None,
            checks: Vec::new(),
            filter_bounds: FilterBounds::default(),
            key_filter: None,
        }
    }

    /// The fields of the entries.
    pub fn fields(&self) -> &[IndexField] {
        self.fields.as_deref().unwrap_or(self.index.spec.fields())
    }

    /// Whether the scan reads only a part of its index, or an index with a part of the documents.
    pub(crate) fn is_bounded(&self) -> bool {
        !is_whole(&self.ranges) || self.index.spec.sparse() || self.index.is_partial()
    }
}

pub(crate) fn is_whole(ranges: &[KeyRange]) -> bool {
    matches!(ranges, [only] if *only == whole_range())
}
