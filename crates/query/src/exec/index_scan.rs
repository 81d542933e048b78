//! From the entries of an index to documents.
//!
//! Entries that pass their checks are collected for a page, over as many ranges as it takes, and its documents are shown when it
//! is full ([`super::fetch`]). Whoever has seen enough stops at a document, and the next batch goes on behind that one's entry:
//! entries behind it are looked at again.
//!
//! Where nobody looks at the documents, and where one of each value is shown, entries are taken one by one.

use std::collections::VecDeque;
use std::ops::ControlFlow;

use mayfly_base::{OpCtx, Result};
use mayfly_mql::Matcher;
use mayfly_storage::{
    Collection, Direction, Entry, IndexField, KeyRange, ScanLimit, Scanned, Snapshot, Store,
};
use mayfly_value::{RawDoc, keys};

use super::fetch::Page;
use super::one_per_value::Shown;
use super::{CHUNK_ENTRIES, Executor, Failures, Flow, Sink, count, covered};
use crate::language::CanonicalQuery;
use crate::language::metadata::Metadata;
use crate::memory::SeenRecords;
use crate::plan::{Access, EntryCheck};

/// Ranges that are handed to the store at once.
const RANGES_AT_ONCE: usize = 64;
/// Bytes of positions in a page.
const POSITION_BYTES: usize = 1 << 20;

/// Where a scan goes on: behind this position in this one of its ranges.
struct Position {
    range: usize,
    key: Vec<u8>,
}

/// Where the entries of a page stood.
#[derive(Default)]
struct Places {
    /// Range, end of the position among `positions`, entries looked at so far.
    entries: Vec<(usize, usize, u64)>,
    positions: Vec<u8>,
}

impl Places {
    fn push(&mut self, range: usize, position: &[u8], looked: u64) {
        self.positions.extend_from_slice(position);
        self.entries.push((range, self.positions.len(), looked));
    }

    fn clear(&mut self) {
        self.entries.clear();
        self.positions.clear();
    }

    fn range(&self, at: usize) -> Option<usize> {
        self.entries.get(at).map(|(range, _, _)| *range)
    }

    /// The position of this entry, and how many entries had been looked at with it.
    fn position(&self, at: usize) -> Option<(Position, u64)> {
        let (range, end, looked) = *self.entries.get(at)?;
        let start = at.checked_sub(1).map_or(0, |before| self.entries[before].1);
        let key = self.positions.get(start..end)?.to_vec();
        Some((Position { range, key }, looked))
    }
}

impl Executor {
    /// Looks at the next entries; true when nothing is left.
    pub(super) fn scan_index(
        &mut self,
        store: &Store,
        snapshot: &Snapshot,
        op: &OpCtx,
        direction: Direction,
        sink: &mut Sink<'_>,
    ) -> Result<bool> {
        let Access::Index { index, .. } = &self.plan.access else { return Ok(true) };
        // Asked behind the snapshot: an index says that it has become multikey before anybody sees the keys.
        let multikey = index.is_multikey();
        let keys_only = self.keys_only && !multikey && !self.collection.hides_expired();
        let failures = self.failures();
        if multikey {
            // The plan may be older than the first array.
            self.seen.get_or_insert_with(|| SeenRecords::new(&self.budget));
            // Which values a document has its entries do not say any more.
            self.shown = None;
        }
        let covered = self.plan.one_per_value.is_some_and(|it| it.covered);
        let path: &[String] = index.spec.fields().first().map_or(&[], |field| &field.parts);
        let mut scan = IndexScan {
            op,
            snapshot,
            collection: &self.collection,
            query: &self.query,
            failures: &failures,
            keys_only,
            key_filter: self.plan.key_filter.as_deref().filter(|_| !multikey),
            covering: self.plan.covering && !multikey && !self.collection.hides_expired(),
            seen: self.seen.as_mut(),
            shown: self.shown.as_mut(),
            covered: covered.then_some(path),
            // With several entries of one document each has other values.
            checks: if multikey { &[] } else { &self.plan.checks },
            fields: index.spec.fields(),
            page: Page::new(store, snapshot, &self.collection, &mut self.page_size),
            places: Places::default(),
            range: 0,
            looked: 0,
            fetched: 0,
            stopped: None,
        };
        let mut walk = Walk { ranges: &self.ranges, at: 0, rest: None };
        while let Some(present) = walk.present() {
            op.check()?;
            let first = walk.at;
            // One of each value goes past the others within its range.
            let (ended, scanned) = if scan.shown.is_some() || walk.is_last() {
                let visit = &mut |entry: Entry<'_>| scan.entry(first, &entry, sink);
                (0, snapshot.scan_index(index, present, direction, ScanLimit::NONE, visit)?)
            } else {
                snapshot.scan_index_ranges(
                    index,
                    walk.next_ranges(),
                    direction,
                    &mut |at, entry| scan.entry(first + at, &entry, sink),
                )?
            };
            if scan.stopped.is_some() {
                break;
            }
            match (scanned, &mut scan.shown) {
                (Scanned::Exhausted, _) => walk.pass(first + ended + 1),
                // An engine may end a page early: then it goes on where that ended.
                (Scanned::Paused(_), Some(shown)) if shown.should_seek() => {
                    match shown.rest(present, direction) {
                        Some(rest) => walk.rest = Some(rest),
                        None => walk.pass(first + 1),
                    }
                }
                (Scanned::Paused(last), _) => walk.go_on(first + ended, &last, direction),
            }
        }
        if scan.stopped.is_none() {
            let _ = scan.show_page(sink)?;
        }
        count(op, scan.looked, scan.fetched + scan.page.fetched);
        let Some(Position { range, key }) = scan.stopped else {
            self.ranges.clear();
            return Ok(true);
        };
        self.ranges.drain(..range);
        if let Some(front) = self.ranges.front_mut() {
            *front = front.after(&key, direction);
        }
        Ok(false)
    }
}

/// How far the ranges have been scanned, whether their documents were shown or not.
struct Walk<'r> {
    ranges: &'r VecDeque<KeyRange>,
    at: usize,
    /// What is left of the present one, unless that is all.
    rest: Option<KeyRange>,
}

impl Walk<'_> {
    fn present(&self) -> Option<&KeyRange> {
        self.rest.as_ref().or_else(|| self.ranges.get(self.at))
    }

    fn is_last(&self) -> bool {
        self.at + 1 >= self.ranges.len()
    }

    fn next_ranges(&self) -> impl Iterator<Item = &KeyRange> {
        let behind = self.ranges.iter().skip(self.at + 1);
        self.present().into_iter().chain(behind).take(RANGES_AT_ONCE)
    }

    /// Nothing is left of the ranges before this one.
    fn pass(&mut self, at: usize) {
        (self.at, self.rest) = (at, None);
    }

    fn go_on(&mut self, at: usize, last: &[u8], direction: Direction) {
        let range = if at == self.at { self.present() } else { self.ranges.get(at) };
        let rest = range.map(|range| range.after(last, direction));
        (self.at, self.rest) = (at, rest);
    }
}

/// Whether the values of an entry lie where they must.
fn passes(values: &[u8], checks: &[EntryCheck], fields: &[IndexField]) -> bool {
    let (mut rest, mut at) = (values, 0);
    checks.iter().all(|check| {
        while at < check.at {
            let skipped = fields.get(at).and_then(|it| keys::skip_value(rest, it.descending));
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

/// One batch's scan of an index.
struct IndexScan<'f> {
    op: &'f OpCtx,
    snapshot: &'f Snapshot,
    collection: &'f Collection,
    query: &'f CanonicalQuery,
    failures: &'f Failures,
    keys_only: bool,
    /// Tested on keys, where they say what the document has.
    key_filter: Option<&'f Matcher>,
    /// Entries have all that is shown.
    covering: bool,
    seen: Option<&'f mut SeenRecords>,
    shown: Option<&'f mut Shown>,
    /// The path of the index's first field, when its keys say all that is asked.
    covered: Option<&'f [String]>,
    /// Where further values of an entry must lie.
    checks: &'f [EntryCheck],
    fields: &'f [IndexField],
    page: Page<'f>,
    places: Places,
    /// The range of the last entry.
    range: usize,
    /// Entries looked at, and documents fetched one by one.
    looked: u64,
    fetched: u64,
    /// The last document was enough for now.
    stopped: Option<Position>,
}

impl IndexScan<'_> {
    fn entry(
        &mut self,
        range: usize,
        entry: &Entry<'_>,
        sink: &mut Sink<'_>,
    ) -> Result<ControlFlow<()>> {
        let record_key = entry.record_key;
        self.looked += 1;
        if range != self.range || self.looked.is_multiple_of(CHUNK_ENTRIES as u64) {
            self.range = range;
            self.op.check()?;
        }
        if !self.checks.is_empty() && !passes(entry.values, self.checks, self.fields) {
            return Ok(ControlFlow::Continue(()));
        }
        if let Some(filter) = self.key_filter
            && let Some(document) = covered::document(entry, self.fields)
        {
            let matches = filter.matches(document.as_doc());
            if !matches.map_err(|error| self.failures.named(error))? {
                return Ok(ControlFlow::Continue(()));
            }
        }
        if let Some(shown) = &mut self.shown
            && shown.has(entry)
        {
            return Ok(match shown.should_seek() {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            });
        }
        if let Some(seen) = &mut self.seen
            && !seen.insert(record_key, self.op)?
        {
            return Ok(ControlFlow::Continue(()));
        }
        if !self.keys_only && !self.covering && self.shown.is_none() {
            self.places.push(range, entry.position, self.looked);
            let full = self.page.push(record_key) || self.places.positions.len() >= POSITION_BYTES;
            return match full {
                true => self.show_page(sink),
                false => Ok(ControlFlow::Continue(())),
            };
        }
        if self.show_entry(entry, sink)? == Flow::More {
            return Ok(ControlFlow::Continue(()));
        }
        self.stopped = Some(Position { range, key: entry.position.to_vec() });
        Ok(ControlFlow::Break(()))
    }

    /// Shows the entry's document, or what stands for it.
    fn show_entry(&mut self, entry: &Entry<'_>, sink: &mut Sink<'_>) -> Result<Flow> {
        let record_key = entry.record_key;
        if self.keys_only {
            return sink(record_key, RawDoc::EMPTY, &Metadata::NONE);
        }
        let known = match (&self.shown, self.covered) {
            (Some(shown), Some(path)) => shown.document(entry, path),
            _ if self.covering => covered::document(entry, self.fields),
            _ => None,
        };
        let (mut flow, mut given) = (Flow::More, known.is_some());
        if let Some(known) = known {
            flow = sink(record_key, known.as_doc(), &Metadata::NONE)?;
        } else {
            let (matcher, failures) = (&self.query.matcher, self.failures);
            self.snapshot.record(self.collection, record_key, &mut |document| {
                self.fetched += 1;
                let matches = matcher.matches(document);
                if matches.map_err(|error| failures.named(error))? {
                    given = true;
                    flow = sink(record_key, document, &Metadata::NONE)?;
                }
                Ok(())
            })?;
        }
        if let (true, Some(shown)) = (given, &mut self.shown) {
            shown.note(entry.values);
        }
        Ok(flow)
    }

    /// Shows the documents of the page.
    fn show_page(&mut self, sink: &mut Sink<'_>) -> Result<ControlFlow<()>> {
        let (matcher, failures) = (&self.query.matcher, self.failures);
        let (op, places) = (self.op, &self.places);
        let mut last = None;
        let seen_by = &mut |at: usize, key: &[u8], document: RawDoc<'_>| {
            let range = places.range(at);
            if last.replace(range).is_some_and(|last| last != range) {
                op.check()?;
            }
            let matches = matcher.matches(document);
            match matches.map_err(|error| failures.named(error))? {
                true => sink(key, document, &Metadata::NONE).map(Some),
                false => Ok(None),
            }
        };
        let Some(at) = self.page.show(seen_by)? else {
            self.places.clear();
            return Ok(ControlFlow::Continue(()));
        };
        // Those behind it were not shown.
        if let Some(seen) = &mut self.seen {
            (at + 1..).map_while(|at| self.page.keys().get(at)).for_each(|key| seen.forget(key));
        }
        if let Some((position, looked)) = self.places.position(at) {
            (self.stopped, self.looked) = (Some(position), looked);
        }
        Ok(ControlFlow::Break(()))
    }
}
