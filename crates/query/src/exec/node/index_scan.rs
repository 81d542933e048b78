//! `IXSCAN`: the entries in some ranges of an index, returned as record keys.

use std::ops::ControlFlow;
use std::sync::Arc;

use mayfly_base::Result;
use mayfly_storage::{Direction, Entry, IndexField, KeyRange, ScanLimit, ScanResult};
use mayfly_value::keys;

use super::covered::document;
use super::{Batch, CHUNK_ENTRIES, Counters, Node, Progress, ReadPurpose, Row, Rows, ScanPosition};
use crate::memory::SeenRecords;
use crate::plan::{EntryCheck, IndexScan};

/// Number of ranges that are passed to the store at once, at first and at most: if a consumer stops
/// soon, the rest was prepared in vain.
const FIRST_RANGES: usize = 64;
const MOST_RANGES: usize = 1024;
const RANGES_GROWTH: usize = 4;

pub(super) struct Scan {
    scan: Arc<IndexScan>,
    walk: Walk,
    /// Records that were returned, if the scan may find one twice.
    seen: Option<SeenRecords>,
    /// A write may move keys during the scan.
    purpose: ReadPurpose,
    /// Whether the consumer removes duplicates.
    duplicates_allowed: bool,
    counters: Counters,
}

impl Scan {
    pub(super) fn new(scan: Arc<IndexScan>, purpose: ReadPurpose) -> Scan {
        let (walk, counters) = (Walk::default(), Counters::default());
        Scan { scan, walk, seen: None, purpose, duplicates_allowed: false, counters }
    }

    /// A scan for a consumer that removes duplicates.
    pub(super) fn duplicates_allowed(scan: Arc<IndexScan>) -> Scan {
        Scan { duplicates_allowed: true, ..Scan::new(scan, ReadPurpose::Result) }
    }
}

impl Node for Scan {
    fn run(&mut self, batch: &Batch<'_>, rows: &mut Rows<'_>) -> Result<Progress> {
        let (plan, index) = (&*self.scan, &*self.scan.index);
        let snapshot = batch.snapshot()?;
        // This must come after the snapshot: an index is marked multikey before its array keys are
        // visible.
        let multikey = index.multikey_mask();
        let repeats = multikey != 0 || plan.repeats || self.purpose == ReadPurpose::Write;
        if repeats && !self.duplicates_allowed {
            self.seen.get_or_insert_with(|| SeenRecords::new(batch.budget));
        }
        // If a document has several entries, each has only some of its values.
        let as_planned = multikey == plan.multikey;
        let mut pass = Pass {
            batch,
            plan,
            as_planned,
            seen: self.seen.as_mut(),
            duplicates_allowed: self.duplicates_allowed,
            range: self.walk.at,
            examined: 0,
            charged: 0,
            counters: &mut self.counters,
            stopped: false,
        };
        let (walk, mut ranges_at_once) = (&mut self.walk, FIRST_RANGES);
        while let Some(present) = walk.present(&plan.ranges) {
            batch.session.op.check()?;
            let first = walk.at;
            let (ended, scanned) = if walk.is_last(&plan.ranges) {
                let visit = &mut |entry: Entry<'_>| pass.entry(first, &entry, rows);
                let limit = ScanLimit::page(batch.page());
                let scanned = snapshot.scan_index(index, present, plan.direction, limit, visit)?;
                (0, scanned)
            } else {
                let visit = &mut |at, entry: Entry<'_>| pass.entry(first + at, &entry, rows);
                let ranges = walk.next_ranges(&plan.ranges, ranges_at_once);
                ranges_at_once = (ranges_at_once * RANGES_GROWTH).min(MOST_RANGES);
                snapshot.scan_index_ranges(index, ranges, (plan.direction, batch.page()), visit)?
            };
            match scanned {
                ScanResult::Exhausted => walk.pass(first + ended + 1),
                // An engine may end a page early; the scan then continues after its last entry.
                ScanResult::Paused(last) => {
                    walk.continue_after(&plan.ranges, first + ended, &last, plan.direction);
                }
            }
            if pass.stopped {
                break;
            }
        }
        let (examined, stopped) = (pass.examined, pass.stopped);
        batch.count(examined, 0);
        self.counters.keys += examined;
        self.counters.examined += examined;
        self.counters.over = !stopped;
        Ok(if stopped { Progress::Stopped } else { Progress::Over })
    }

    fn counters(&self) -> Counters {
        self.counters.clone()
    }

    fn go_back(&mut self, place: ScanPosition<'_>, back: (u64, u64)) {
        let range = self.scan.ranges.get(place.range);
        self.walk.at = place.range;
        self.walk.rest = range.map(|range| range.after(place.position, self.scan.direction));
        self.counters.take_back(back);
    }

    fn check_alive(&self) -> Result<()> {
        self.scan.index.check_alive()
    }
}

/// The position of the scan in its ranges.
#[derive(Default)]
struct Walk {
    at: usize,
    /// What is left of the current range; `None` if it was not entered.
    rest: Option<KeyRange>,
}

impl Walk {
    fn present<'r>(&'r self, ranges: &'r [KeyRange]) -> Option<&'r KeyRange> {
        self.rest.as_ref().or_else(|| ranges.get(self.at))
    }

    fn is_last(&self, ranges: &[KeyRange]) -> bool {
        self.at + 1 >= ranges.len()
    }

    fn next_ranges<'r>(
        &'r self,
        ranges: &'r [KeyRange],
        most: usize,
    ) -> impl Iterator<Item = &'r KeyRange> {
        let later = ranges.iter().skip(self.at + 1);
        self.present(ranges).into_iter().chain(later).take(most)
    }

    /// Moves to the start of the range at `at`.
    fn pass(&mut self, at: usize) {
        (self.at, self.rest) = (at, None);
    }

    fn continue_after(
        &mut self,
        ranges: &[KeyRange],
        at: usize,
        last: &[u8],
        direction: Direction,
    ) {
        let range = if at == self.at { self.present(ranges) } else { ranges.get(at) };
        let rest = range.map(|range| range.after(last, direction));
        (self.at, self.rest) = (at, rest);
    }
}

/// Whether the values of an entry satisfy the checks.
fn passes(values: &[u8], checks: &[EntryCheck], fields: &[IndexField]) -> bool {
    let (mut rest, mut at) = (values, 0);
    checks.iter().all(|check| {
        while at < check.at {
            let skipped = fields.get(at).and_then(|it| keys::skip_value(rest, it.order));
            let Some(skipped) = skipped.filter(|skipped| *skipped <= rest.len()) else {
                return true;
            };
            rest = &rest[skipped..];
            at += 1;
        }
        check.ranges.iter().any(|range| {
            range.start.as_slice() <= rest && (range.end.is_empty() || rest < &range.end[..])
        })
    })
}

/// The pass of one batch over the entries.
struct Pass<'f> {
    batch: &'f Batch<'f>,
    plan: &'f IndexScan,
    /// Whether no more fields are multikey than when the query was planned.
    as_planned: bool,
    seen: Option<&'f mut SeenRecords>,
    duplicates_allowed: bool,
    /// The range of the last entry.
    range: usize,
    /// Number of examined entries, and how many of them are charged to rows.
    examined: u64,
    charged: u64,
    counters: &'f mut Counters,
    stopped: bool,
}

impl Pass<'_> {
    fn entry(
        &mut self,
        range: usize,
        entry: &Entry<'_>,
        rows: &mut Rows<'_>,
    ) -> Result<ControlFlow<()>> {
        self.examined += 1;
        if range != self.range || self.examined.is_multiple_of(CHUNK_ENTRIES as u64) {
            self.range = range;
            self.batch.session.op.check()?;
        }
        let enough = !self.batch.spend(1);
        let flow = self.give(range, entry, rows)?;
        self.stopped = enough || flow.is_break();
        Ok(if self.stopped { ControlFlow::Break(()) } else { flow })
    }

    fn give(
        &mut self,
        range: usize,
        entry: &Entry<'_>,
        rows: &mut Rows<'_>,
    ) -> Result<ControlFlow<()>> {
        if self.as_planned && !self.passes(entry)? {
            return Ok(ControlFlow::Continue(()));
        }
        // A record in `seen` would be skipped when the scan went back.
        let place = (!self.duplicates_allowed && self.seen.is_none())
            .then_some(ScanPosition { range, position: entry.position });
        if let Some(seen) = &mut self.seen {
            self.counters.tested += 1;
            if !seen.insert(entry.record_key, self.batch.session.op)? {
                self.counters.dropped += 1;
                return Ok(ControlFlow::Continue(()));
            }
        }
        self.counters.returned += 1;
        let keys = self.examined - self.charged;
        self.charged = self.examined;
        let known = self.as_planned.then_some(entry);
        rows(&Row { entry: known, place, ..Row::key(entry.record_key, keys) })
    }

    /// Whether the entry can be a result according to its checks and the key filter.
    fn passes(&self, entry: &Entry<'_>) -> Result<bool> {
        let (checks, fields) = (&self.plan.checks, self.plan.index.spec.fields());
        if !checks.is_empty() && !passes(entry.values, checks, fields) {
            return Ok(false);
        }
        if let Some(filter) = &self.plan.key_filter
            && let Some(known) = document(entry, fields)
        {
            let matches = filter.matches(known.as_doc());
            return matches.map_err(|error| self.batch.failures.named(error));
        }
        Ok(true)
    }
}
