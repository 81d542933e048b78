//! Several scans, each in the wanted order, of which one in that order can be made. Manual: "Use Indexes to Sort Query Results",
//! "Explode for Sort".

use mayfly_mql::SortPattern;
use mayfly_storage::{Direction, IndexField, KeyRange};
use mayfly_value::keys;

use super::{IndexScan, Plan, interval};

/// A part of a scan: the bytes of its first fields' values, and the ranges that begin with them.
pub(super) type Part = (Vec<u8>, Vec<KeyRange>);

/// The ranges of a scan by the single values that its first fields have; nothing where those are more than so many.
pub(super) fn parts(ranges: &[KeyRange], first: &[IndexField], most: u64) -> Option<Vec<Part>> {
    let mut parts: Vec<Part> = Vec::new();
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

/// The bytes of the first fields' values.
fn front<'k>(key: &'k [u8], fields: &[IndexField]) -> Option<&'k [u8]> {
    let mut length = 0;
    for field in fields {
        length += keys::skip_value(key.get(length..)?, field.descending)?;
    }
    key.get(..length)
}

/// A scan of each part, in one order.
pub(super) fn over(
    scan: &IndexScan,
    parts: Vec<Part>,
    direction: Direction,
    pattern: &SortPattern,
) -> Plan {
    let one = |(front, mut ranges): Part| {
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

/// Leaves of the intervals of the first fields those that stand for these bytes.
fn narrow(scan: &mut IndexScan, front: &[u8]) {
    let collation = scan.index.spec.collation().cloned();
    let fields: Vec<bool> = scan.fields().iter().map(|field| field.descending).collect();
    let mut rest = front;
    for (intervals, descending) in scan.said.intervals.iter_mut().zip(fields) {
        let Some(length) = keys::skip_value(rest, descending) else { return };
        let (value, behind) = rest.split_at(length.min(rest.len()));
        if let Some(intervals) = intervals {
            intervals.retain(|one| {
                let only = std::slice::from_ref(one);
                let ranges = interval::ranges(only, descending, collation.as_deref());
                ranges.first().is_some_and(|range| range.start == value)
            });
        }
        rest = behind;
        if rest.is_empty() {
            return;
        }
    }
}

/// How the entries of an index are compared with those of others in the order of a sort.
pub(crate) struct SortKeys {
    /// Per field of the sort its place among the index's fields, and whether its bytes are turned over.
    places: Vec<(usize, bool)>,
    /// Per field of the index, whether it descends.
    descending: Vec<bool>,
}

impl SortKeys {
    /// Those of a scan; nothing when the index lacks a field of the sort.
    pub(crate) fn of(scan: &IndexScan, pattern: &SortPattern) -> Option<SortKeys> {
        let fields = scan.fields();
        let place = |wanted: &mayfly_mql::SortField| {
            let at = fields.iter().position(|field| field.path == wanted.path.as_str())?;
            Some((at, fields[at].descending != wanted.descending))
        };
        let places = pattern.fields().iter().map(place).collect::<Option<_>>()?;
        Some(SortKeys { places, descending: fields.iter().map(|it| it.descending).collect() })
    }

    /// Puts the bytes by which an entry with these values is compared behind others; nothing for malformed values.
    pub(crate) fn append(&self, values: &[u8], out: &mut Vec<u8>) -> Option<()> {
        let mut ends = Vec::with_capacity(self.descending.len());
        let mut end = 0;
        for descending in &self.descending {
            let length = keys::skip_value(values.get(end..)?, *descending)?;
            ends.push((end, end + length));
            end += length;
        }
        for (at, turned) in &self.places {
            let (start, end) = *ends.get(*at)?;
            let value = values.get(start..end)?;
            match turned {
                true => out.extend(value.iter().map(|byte| !byte)),
                false => out.extend_from_slice(value),
            }
        }
        Some(())
    }
}
