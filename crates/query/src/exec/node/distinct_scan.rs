//! `DISTINCT_SCAN`: one document for each value of an index field. Entries with a value that was
//! returned are skipped.

use std::ops::ControlFlow;
use std::sync::Arc;

use mayfly_base::Result;
use mayfly_storage::{Direction, Entry, KeyRange, ScanLimit, ScanResult};
use mayfly_value::{RawDoc, RawValue, SortOrder, keys};

use super::covered::document;
use super::{Batch, CHUNK_ENTRIES, Counters, Node, Progress, Row, Rows};
use crate::language::metadata::Metadata;
use crate::memory::SeenRecords;
use crate::plan::IndexScan;

pub(super) struct Scan {
    scan: Arc<IndexScan>,
    /// Keys suffice for the result.
    covered: bool,
    /// Number of leading index fields whose values together are returned once.
    fields: usize,
    /// A missing field and null are different values.
    missing_is_distinct: bool,
    /// The index of the current range, and what is left of it if it was entered.
    at: usize,
    rest: Option<KeyRange>,
    /// The value that was returned last; `None` once the index is multikey, when keys no longer
    /// determine the values of a document.
    last: Option<LastValue>,
    seen: Option<SeenRecords>,
    counters: Counters,
}

impl Scan {
    pub(super) fn new(scan: Arc<IndexScan>) -> Scan {
        let how = scan.one_per_value;
        let covered = how.is_some_and(|it| it.covered);
        let missing_is_distinct = how.is_some_and(|it| it.missing_is_distinct);
        let fields = how.map_or(1, |it| it.fields);
        let first = scan.index.spec.fields().iter().take(fields);
        let last = Some(LastValue::new(first.map(|field| field.order).collect()));
        let counters = Counters::default();
        Scan {
            scan,
            covered,
            fields,
            missing_is_distinct,
            at: 0,
            rest: None,
            last,
            seen: None,
            counters,
        }
    }

    fn present(&self) -> Option<KeyRange> {
        self.rest.as_ref().or_else(|| self.scan.ranges.get(self.at)).cloned()
    }
}

impl Node for Scan {
    fn run(&mut self, batch: &Batch<'_>, rows: &mut Rows<'_>) -> Result<Progress> {
        let (plan, snapshot) = (self.scan.clone(), batch.snapshot()?);
        // This must come after the snapshot: an index is marked multikey before its array keys are
        // visible.
        if plan.index.is_multikey() {
            self.seen.get_or_insert_with(|| SeenRecords::new(batch.budget));
            self.last = None;
        }
        while let Some(present) = self.present() {
            batch.session.op.check()?;
            let (mut stopped, mut examined) = (false, 0);
            let visit = &mut |entry: Entry<'_>| {
                examined += 1;
                if examined % CHUNK_ENTRIES as u64 == 0 {
                    batch.session.op.check()?;
                }
                let flow = self.entry(batch, &entry, rows, &mut stopped)?;
                Ok(flow)
            };
            let (index, direction) = (&plan.index, plan.direction);
            let scanned =
                snapshot.scan_index(index, &present, direction, ScanLimit::NONE, visit)?;
            batch.count(examined, 0);
            self.counters.keys += examined;
            self.counters.examined += examined;
            match (scanned, &mut self.last) {
                (ScanResult::Exhausted, _) => (self.at, self.rest) = (self.at + 1, None),
                (ScanResult::Paused(_), Some(last)) if last.should_seek() => {
                    self.rest = last.rest(&present, direction);
                    self.at += usize::from(self.rest.is_none());
                }
                (ScanResult::Paused(last), _) => self.rest = Some(present.after(&last, direction)),
            }
            if stopped {
                return Ok(Progress::Stopped);
            }
        }
        self.counters.over = true;
        Ok(Progress::Over)
    }

    fn counters(&self) -> Counters {
        self.counters.clone()
    }

    fn check_alive(&self) -> Result<()> {
        self.scan.index.check_alive()
    }
}

impl Scan {
    fn entry(
        &mut self,
        batch: &Batch<'_>,
        entry: &Entry<'_>,
        rows: &mut Rows<'_>,
        stopped: &mut bool,
    ) -> Result<ControlFlow<()>> {
        if let Some(last) = &mut self.last
            && last.has(entry)
        {
            return Ok(match last.should_seek() {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            });
        }
        if let Some(seen) = &mut self.seen
            && !seen.insert(entry.record_key, batch.session.op)?
        {
            return Ok(ControlFlow::Continue(()));
        }
        let first = self.scan.index.spec.fields().get(..self.fields).unwrap_or_default();
        let known = match self.covered && self.last.is_some() {
            true => document(entry, first),
            false => None,
        };
        let (mut flow, mut given) = (ControlFlow::Continue(()), known.is_some());
        let mut stands = true;
        let record = entry.record_key;
        if let Some(known) = known {
            flow = rows(&Row::read(record, known.as_doc(), &Metadata::NONE))?;
        } else {
            self.counters.documents += 1;
            given = batch.read(record, &mut |document| {
                stands = !self.missing_is_distinct
                    || first.last().is_some_and(|it| has(document, &it.parts));
                flow = rows(&Row::read(record, document, &Metadata::NONE))?;
                Ok(())
            })?;
        }
        self.counters.returned += u64::from(given);
        if let (true, Some(last)) = (given && stands, &mut self.last) {
            last.note(entry.values);
        }
        *stopped = flow.is_break();
        Ok(flow)
    }
}

/// Number of entries with one value that are skipped singly; after them a seek is cheaper.
const FEW_ENTRIES: usize = 32;

/// Whether a document has a field outside of arrays.
fn has(document: RawDoc<'_>, parts: &[String]) -> bool {
    let [name, rest @ ..] = parts else { return false };
    match document.get(name) {
        Some(RawValue::Document(inner)) if !rest.is_empty() => has(inner, rest),
        found => found.is_some() && rest.is_empty(),
    }
}

/// The value that was returned last.
#[derive(Debug)]
pub(super) struct LastValue {
    /// The order of each field.
    orders: Vec<SortOrder>,
    /// The encoded value at the start of keys; empty before the first.
    present: Vec<u8>,
    passed: usize,
}

impl LastValue {
    pub(super) fn new(orders: Vec<SortOrder>) -> LastValue {
        LastValue { orders, present: Vec::new(), passed: 0 }
    }

    /// Whether the entry has the value that was returned last.
    pub(super) fn has(&mut self, entry: &Entry<'_>) -> bool {
        let same = !self.present.is_empty() && entry.values.starts_with(&self.present);
        self.passed = if same { self.passed + 1 } else { 0 };
        same
    }

    /// Whether enough entries were skipped for a seek.
    pub(super) fn should_seek(&self) -> bool {
        self.passed > FEW_ENTRIES
    }

    /// Records that the document of an entry was returned.
    pub(super) fn note(&mut self, values: &[u8]) {
        let next = |end: usize, order: &SortOrder| {
            Some(end + keys::skip_value(values.get(end..)?, *order)?)
        };
        let end = self.orders.iter().try_fold(0, next).unwrap_or(values.len());
        self.present.clear();
        self.present.extend_from_slice(&values[..end]);
        self.passed = 0;
    }

    /// The rest of a range after the value; `None` if nothing is left.
    pub(super) fn rest(&mut self, range: &KeyRange, direction: Direction) -> Option<KeyRange> {
        self.passed = 0;
        let mut rest = range.clone();
        match direction {
            Direction::Forward => {
                rest.start = KeyRange::prefix(&self.present).end;
                if rest.start.is_empty() {
                    return None;
                }
            }
            Direction::Backward => rest.end.clone_from(&self.present),
        }
        (rest.end.is_empty() || rest.start < rest.end).then_some(rest)
    }
}
