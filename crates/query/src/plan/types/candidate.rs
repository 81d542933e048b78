//! A candidate: an index as a plan may use it, and the bounds that the filter gives for one of its
//! fields.

use std::borrow::Cow;
use std::sync::Arc;

use mayfly_storage::{Index, IndexField, KeyRange};
use mayfly_value::{Collation, same_collation};

use super::bounds::Bounds;
use super::interval::ranges;
use crate::language::CanonicalQuery;

/// An index as a plan may use it. A wildcard index gives one candidate for each path of the filter.
pub(crate) struct Candidate<'a> {
    pub(crate) index: &'a Arc<Index>,
    /// The fields of its entries, with a path of the filter in place of a wildcard.
    pub(crate) fields: Cow<'a, [IndexField]>,
    /// Whether one document may have several entries in the scan even without arrays.
    pub(crate) repeats: bool,
    /// Bit set of the fields that contain arrays, read once: the index may become multikey while
    /// the query is planned.
    pub(crate) multikey: u32,
}

impl<'a> Candidate<'a> {
    /// An index with these fields.
    pub(crate) fn of(index: &'a Arc<Index>, fields: Cow<'a, [IndexField]>) -> Candidate<'a> {
        Candidate { index, fields, repeats: false, multikey: index.multikey_mask() }
    }
}

/// Whether an index compares strings as the query does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CollationMatch {
    /// Both have the same collation, or none.
    Same,
    /// The collations differ, so the index serves only conditions that no collation affects.
    Other,
}

impl CollationMatch {
    /// Compares the collation of an index, or of clustered records, with that of the query.
    pub(crate) fn of(own: Option<&Arc<Collation>>, query: &CanonicalQuery) -> CollationMatch {
        match same_collation(own, query.collation.as_ref()) {
            true => CollationMatch::Same,
            false => CollationMatch::Other,
        }
    }

    pub(crate) fn is_same(self) -> bool {
        self == CollationMatch::Same
    }
}

/// Bounds for a field of an index.
pub(crate) struct Bounded {
    pub(crate) bounds: Bounds,
    /// The top-level conjuncts that the bounds are equivalent to.
    pub(crate) covered: Vec<usize>,
}

impl Bounded {
    /// The bounds as key ranges of an index field.
    pub(crate) fn ranges(&self, field: &IndexField, index: &Index) -> Vec<KeyRange> {
        // Hashes, paths and cells are stored without the collation.
        let collation = index.spec.collation().filter(|_| field.kind.holds_values());
        ranges(&self.bounds.intervals, field.order, collation.map(|collation| &**collation))
    }
}
