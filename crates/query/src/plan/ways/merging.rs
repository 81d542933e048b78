//! Merges scans of one index to get the requested order: an index on `{a: 1, b: 1}` gives the order
//! of `b` for `a: {$in: [1, 2]}` if the scans for 1 and 2 are merged. Manual: "Use Indexes to Sort
//! Query Results", "Explode for Sort".

use crate::plan::types::interval;
use crate::plan::types::scan::IndexScan;
use crate::plan::types::tree::Plan;
use mayfly_mql::SortPattern;
use mayfly_storage::{Direction, IndexField, KeyRange};
use mayfly_value::{SortOrder, keys};

/// A part of a scan: the encoded values of its leading fields, and the ranges that start with them.
pub(crate) type ScanPart = (Vec<u8>, Vec<KeyRange>);

/// Groups the ranges of a scan by the values of its leading fields; `None` if there are more than
/// `most` groups.
pub(crate) fn parts(ranges: &[KeyRange], first: &[IndexField], most: u64) -> Option<Vec<ScanPart>> {
    let mut parts: Vec<ScanPart> = Vec::new();
    for range in ranges {
        let front = front(&range.start, first)?;
        let count = parts.len();
        match parts.last_mut() {
            Some((last, of_it)) if last == front => of_it.push(range.clone()),
            _ if count as u64 == most => return None,
            _ => parts.push((front.to_vec(), vec![range.clone()])),
        }
    }
    (parts.len() > 1).then_some(parts)
}

/// The encoded values of the leading fields of a key.
fn front<'k>(key: &'k [u8], fields: &[IndexField]) -> Option<&'k [u8]> {
    let mut length = 0;
    for field in fields {
        length += keys::skip_value(key.get(length..)?, field.order)?;
    }
    key.get(..length)
}

/// A plan that merges one scan for each part.
pub(crate) fn over(
    scan: &IndexScan,
    parts: Vec<ScanPart>,
    direction: Direction,
    pattern: &SortPattern,
) -> Plan {
    let one = |(front, mut ranges): ScanPart| {
        if direction == Direction::Backward {
            ranges.reverse();
        }
        let mut part = IndexScan { ranges, direction, ..scan.clone() };
        narrow(&mut part, &front);
        Plan::Index(part.into())
    };
    let inputs = parts.into_iter().map(one).collect();
    let disjoint = scan.multikey == 0 && !scan.repeats;
    Plan::Merge { inputs, pattern: pattern.clone(), disjoint }
}

/// Restricts the intervals of the leading fields to the values in `front`.
fn narrow(scan: &mut IndexScan, front: &[u8]) {
    let collation = scan.index.spec.collation().cloned();
    let orders: Vec<SortOrder> = scan.fields().iter().map(|field| field.order).collect();
    let mut rest = front;
    for (intervals, order) in scan.filter_bounds.intervals.iter_mut().zip(orders) {
        let Some(length) = keys::skip_value(rest, order) else { return };
        let (value, after) = rest.split_at(length.min(rest.len()));
        if let Some(intervals) = intervals {
            intervals.retain(|one| {
                let only = std::slice::from_ref(one);
                let ranges = interval::ranges(only, order, collation.as_deref());
                ranges.first().is_some_and(|range| range.start == value)
            });
        }
        rest = after;
        if rest.is_empty() {
            return;
        }
    }
}
