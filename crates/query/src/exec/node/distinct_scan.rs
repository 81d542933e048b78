//! `DISTINCT_SCAN`: one document for each value of a field of an index: entries whose value was shown already are passed over.

use std::ops::ControlFlow;
use std::sync::Arc;

use mayfly_base::Result;
use mayfly_storage::{Direction, Entry, KeyRange, ScanLimit, Scanned};
use mayfly_value::{RawDoc, RawValue, keys};

use super::covered::document;
use super::{Batch, CHUNK_ENTRIES, Counters, Node, Progress, Row, Rows};
use crate::language::metadata::Metadata;
use crate::memory::SeenRecords;
use crate::plan::IndexScan;

pub(super) struct Scan {
    scan: Arc<IndexScan>,
    /// Keys say all that is asked.
    covered: bool,
    /// How many fields of the index are shown once for each of their values.
    fields: usize,
    /// A document without the field does not stand for one where it is null.
    apart: bool,
    /// The range that is scanned, and what is left of it, unless that is all.
    at: usize,
    rest: Option<KeyRange>,
    /// The value that was shown last; nothing when keys do not say any more which values a document has.
    shown: Option<Shown>,
    seen: Option<SeenRecords>,
    counters: Counters,
}

impl Scan {
    pub(super) fn new(scan: Arc<IndexScan>) -> Scan {
        let how = scan.one_per_value;
        let covered = how.is_some_and(|it| it.covered);
        let apart = how.is_some_and(|it| it.apart);
        let fields = how.map_or(1, |it| it.fields);
        let first = scan.index.spec.fields().iter().take(fields);
        let shown = Some(Shown::new(first.map(|field| field.descending).collect()));
        let counters = Counters::default();
        Scan { scan, covered, fields, apart, at: 0, rest: None, shown, seen: None, counters }
    }

    fn present(&self) -> Option<KeyRange> {
        self.rest.as_ref().or_else(|| self.scan.ranges.get(self.at)).cloned()
    }
}

impl Node for Scan {
    fn run(&mut self, batch: &Batch<'_>, rows: &mut Rows<'_>) -> Result<Progress> {
        let (plan, snapshot) = (self.scan.clone(), batch.snapshot()?);
        // Asked behind the snapshot: an index says that it has become multikey before anybody sees the keys.
        if plan.index.is_multikey() {
            self.seen.get_or_insert_with(|| SeenRecords::new(batch.budget));
            self.shown = None;
        }
        while let Some(present) = self.present() {
            batch.session.op.check()?;
            let (mut stopped, mut looked) = (false, 0);
            let visit = &mut |entry: Entry<'_>| {
                looked += 1;
                if looked % CHUNK_ENTRIES as u64 == 0 {
                    batch.session.op.check()?;
                }
                let flow = self.entry(batch, &entry, rows, &mut stopped)?;
                Ok(flow)
            };
            let (index, direction) = (&plan.index, plan.direction);
            let scanned =
                snapshot.scan_index(index, &present, direction, ScanLimit::NONE, visit)?;
            batch.count(looked, 0);
            self.counters.keys += looked;
            self.counters.looked += looked;
            match (scanned, &mut self.shown) {
                (Scanned::Exhausted, _) => (self.at, self.rest) = (self.at + 1, None),
                (Scanned::Paused(_), Some(shown)) if shown.should_seek() => {
                    self.rest = shown.rest(&present, direction);
                    self.at += usize::from(self.rest.is_none());
                }
                (Scanned::Paused(last), _) => self.rest = Some(present.after(&last, direction)),
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
        if let Some(shown) = &mut self.shown
            && shown.has(entry)
        {
            return Ok(match shown.should_seek() {
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
        let known = match self.covered && self.shown.is_some() {
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
                stands = !self.apart || first.last().is_some_and(|it| has(document, &it.parts));
                flow = rows(&Row::read(record, document, &Metadata::NONE))?;
                Ok(())
            })?;
        }
        self.counters.returned += u64::from(given);
        if let (true, Some(shown)) = (given && stands, &mut self.shown) {
            shown.note(entry.values);
        }
        *stopped = flow.is_break();
        Ok(flow)
    }
}

/// Entries of one value that are passed over one by one before a seek is cheaper.
const FEW_ENTRIES: usize = 32;

/// Whether a document has a field, which lies in no array.
fn has(document: RawDoc<'_>, parts: &[String]) -> bool {
    let [name, rest @ ..] = parts else { return false };
    match document.get(name) {
        Some(RawValue::Document(inner)) if !rest.is_empty() => has(inner, rest),
        found => found.is_some() && rest.is_empty(),
    }
}

/// The value that was shown last.
#[derive(Debug)]
pub(super) struct Shown {
    /// Of each field, whether it descends.
    descending: Vec<bool>,
    /// Its bytes at the beginning of keys; empty before the first.
    present: Vec<u8>,
    passed: usize,
}

impl Shown {
    pub(super) fn new(descending: Vec<bool>) -> Shown {
        Shown { descending, present: Vec::new(), passed: 0 }
    }

    /// Whether the entry has the value that was shown last.
    pub(super) fn has(&mut self, entry: &Entry<'_>) -> bool {
        let same = !self.present.is_empty() && entry.values.starts_with(&self.present);
        self.passed = if same { self.passed + 1 } else { 0 };
        same
    }

    /// Whether so many were passed over that a seek is due.
    pub(super) fn should_seek(&self) -> bool {
        self.passed > FEW_ENTRIES
    }

    /// The entry's document was shown.
    pub(super) fn note(&mut self, values: &[u8]) {
        let next = |end: usize, descending: &bool| {
            Some(end + keys::skip_value(values.get(end..)?, *descending)?)
        };
        let end = self.descending.iter().try_fold(0, next).unwrap_or(values.len());
        self.present.clear();
        self.present.extend_from_slice(&values[..end]);
        self.passed = 0;
    }

    /// What is left of a range behind the value; nothing when that is all.
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
