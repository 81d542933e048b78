//! One document for each value of a field, for a `$group` that looks at no other: an index that begins with the field shows the
//! documents of one value together, so that all but the first are passed over. Manual: "Aggregation Pipeline Optimization",
//! "$group Optimizations"; "$group", "Optimize to Return the First or Last Document of Each Group".

use std::sync::Arc;

use mayfly_storage::{Collection, Direction, Index, whole_range};
use mayfly_value::paths::array_index;
use mayfly_value::same_collation;

use super::allowed::allows;
use super::{IndexScan, Plan, Way};
use crate::language::{CanonicalQuery, FirstOf};

/// How entries are passed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OnePerValue {
    /// Keys say everything: documents are read only where a key may stand for a missing field.
    pub covered: bool,
}

/// The way, changed where it can do with one document for each value.
pub(super) fn with_first_of(collection: &Arc<Collection>, query: &CanonicalQuery, way: Way) -> Way {
    let Some(wanted) = &query.first_of else { return way };
    if query.hint.is_some() || wanted.path.split('.').any(|part| array_index(part).is_some()) {
        return way;
    }
    let everything = query.matcher.root().conjuncts().is_empty();
    let readable = |index: &Index| {
        !wanted.whole && index.spec.collation().is_none() && !collection.hides_expired()
    };
    if let Plan::Index(scan) = &way.plan {
        let (index, fields) = (&scan.index, scan.index.spec.fields());
        let in_order = match &query.sort {
            None => !wanted.whole,
            Some(sort) => sort
                .fields()
                .iter()
                .map(|field| field.path.as_str())
                .eq(fields.iter().map(|field| field.path.as_str())),
        };
        let alone = !way.unordered && !scan.repeats && scan.fields.is_none() && scan.multikey == 0;
        if !in_order || !alone || !serves(index, wanted, query) {
            return way;
        }
        let covered = readable(index) && (scan.exact || everything);
        let mut scan =
            IndexScan { one_per_value: Some(OnePerValue { covered }), ..(**scan).clone() };
        if wanted.last {
            scan.ranges.reverse();
            scan.direction = match scan.direction {
                Direction::Forward => Direction::Backward,
                Direction::Backward => Direction::Forward,
            };
        }
        return Way::over_index(scan, false);
    }
    if !everything || query.sort.is_some() || !matches!(way.plan, Plan::Records(_)) {
        return way;
    }
    let complete = |index: &Arc<Index>| {
        let all = !index.spec.sparse() && !index.is_partial();
        all && allows(query, index) && readable(index) && serves(index, wanted, query)
    };
    match collection.plannable_indexes().into_iter().find(complete) {
        None => way,
        Some(index) => {
            let one_per_value = Some(OnePerValue { covered: true });
            let scan = IndexScan::new(index, vec![whole_range()], Direction::Forward);
            Way::over_index(IndexScan { one_per_value, ..scan }, false)
        }
    }
}

/// Whether documents with the same value of the field stand together in it.
fn serves(index: &Index, wanted: &FirstOf, query: &CanonicalQuery) -> bool {
    let spec = &index.spec;
    spec.kind().is_ordered()
        && !spec.hidden()
        && !index.is_multikey()
        && same_collation(spec.collation(), query.collation.as_ref())
        && spec.fields().first().is_some_and(|field| field.path == wanted.path)
}
