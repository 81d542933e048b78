//! Visiting several ranges with one iterator.
//!
//! Creating an iterator costs as much as ten entries (it opens every file of the family), a seek of
//! an existing one a third of that. An `$in` of a thousand values would spend its time on creating
//! iterators. The bounds of the shared iterator are those of all ranges together, so it may run
//! into tombstones between two ranges; after [`MAX_DELETED`] of them it gives up, and the range is
//! visited with bounds of its own.

use mayfly_kv::{Direction, KeyRange, KvResult, RangesVisitor, ScanEnd, Visitor};
use rocksdb::{ColumnFamily, DB, DBRawIteratorWithThreadMode, ErrorKind};

use crate::health::read_failed;
use crate::store::StoreSnapshot;

/// Tombstones skipped before a range gets an iterator of its own.
const MAX_DELETED: u64 = 100;

/// The iterator shared by several ranges.
struct SharedIterator<'d> {
    iterator: DBRawIteratorWithThreadMode<'d, DB>,
    direction: Direction,
    begun: bool,
    /// The last key visited in the current range.
    last: Vec<u8>,
}

/// How the visit of a range ended.
enum RangeEnd {
    /// The range is exhausted.
    Exhausted,
    /// This range and all following ones are exhausted.
    AllExhausted,
    /// The visitor broke off.
    Broken,
    /// Too many tombstones between its entries.
    GivenUp,
}

/// Visits the stored entries of these ranges, which are disjoint and in the order of the scan.
pub(crate) fn visit_ranges(
    (db, family): (&DB, &ColumnFamily),
    snapshot: &StoreSnapshot,
    ranges: &[KeyRange],
    direction: Direction,
    visit: &mut RangesVisitor<'_>,
) -> KvResult<(usize, ScanEnd)> {
    let (Some(first), Some(last)) = (ranges.first(), ranges.last()) else {
        return Ok((0, ScanEnd::Exhausted));
    };
    let (lowest, highest) = match direction {
        Direction::Forward => (first, last),
        Direction::Backward => (last, first),
    };
    let mut options = snapshot.scan_options();
    options.set_iterate_lower_bound(lowest.start.as_slice());
    options.set_iterate_upper_bound(highest.end.as_slice());
    options.set_max_skippable_internal_keys(MAX_DELETED);
    let iterator = db.raw_iterator_cf_opt(family, options);
    let mut shared = SharedIterator { iterator, direction, begun: false, last: Vec::new() };
    for (at, range) in ranges.iter().enumerate().filter(|(_, range)| !range.is_empty()) {
        match shared.visit(range, &mut |key, value| visit(at, key, value))? {
            RangeEnd::Exhausted => {}
            RangeEnd::AllExhausted => break,
            RangeEnd::Broken => return Ok((at, ScanEnd::More { last_key: shared.last })),
            RangeEnd::GivenUp => {
                let rest = match shared.last.is_empty() {
                    true => range.clone(),
                    false => range.after(&shared.last, direction),
                };
                let mut options = snapshot.scan_options();
                options.set_iterate_lower_bound(rest.start.as_slice());
                options.set_iterate_upper_bound(rest.end.as_slice());
                let iterator = db.raw_iterator_cf_opt(family, options);
                let last = Vec::new();
                let mut alone = SharedIterator { iterator, direction, begun: false, last };
                let end = alone.visit(&rest, &mut |key, value| visit(at, key, value))?;
                if matches!(end, RangeEnd::Broken) {
                    return Ok((at, ScanEnd::More { last_key: alone.last }));
                }
            }
        }
    }
    Ok((ranges.len() - 1, ScanEnd::Exhausted))
}

impl SharedIterator<'_> {
    fn visit(&mut self, range: &KeyRange, visit: &mut Visitor<'_>) -> KvResult<RangeEnd> {
        self.last.clear();
        self.go_to(range);
        while let Some((key, value)) = self.iterator.item() {
            if key < &range.start[..] || key >= &range.end[..] {
                return Ok(RangeEnd::Exhausted);
            }
            let flow = visit(key, value);
            self.last.clear();
            self.last.extend_from_slice(key);
            if flow.is_break() {
                return Ok(RangeEnd::Broken);
            }
            match self.direction {
                Direction::Forward => self.iterator.next(),
                Direction::Backward => self.iterator.prev(),
            }
        }
        match self.iterator.status() {
            Ok(()) => Ok(RangeEnd::AllExhausted),
            Err(error) if error.kind() == ErrorKind::Incomplete => {
                self.begun = false;
                Ok(RangeEnd::GivenUp)
            }
            Err(error) => Err(read_failed(&error)),
        }
    }

    /// Moves to the first entry in or after a range.
    fn go_to(&mut self, range: &KeyRange) {
        let begun = std::mem::replace(&mut self.begun, true);
        let there = |key: &[u8]| match self.direction {
            Direction::Forward => key >= &range.start[..],
            Direction::Backward => key < &range.end[..],
        };
        // It is positioned after the previous range, often on the first entry of this one.
        if begun && self.iterator.key().is_none_or(there) {
            return;
        }
        match self.direction {
            Direction::Forward => self.iterator.seek(&range.start),
            Direction::Backward => {
                self.iterator.seek_for_prev(&range.end);
                if self.iterator.key() == Some(&range.end[..]) {
                    self.iterator.prev();
                }
            }
        }
    }
}
