//! Running a text search: the scores of all records under its terms are added up first, then the records are read one by
//! one, in the order of their keys.

use std::collections::{BTreeMap, VecDeque};
use std::ops::ControlFlow;

use mayfly_base::spill::Operator;
use mayfly_base::{Error, OpCtx, Result};
use mayfly_mql::Matcher;
use mayfly_mql::matcher::BoundSearch;
use mayfly_runs::{Merge, Run, Sorter};
use mayfly_storage::{Direction, Entry, RecordKey, ScanLimit, Scanned, Snapshot, Store};
use mayfly_value::keys::{self, TypeBitsReader};
use mayfly_value::{DocBuilder, Number, RawDoc};

use super::fetch::Page;
use super::{CHUNK_ENTRIES, Executor, Sink, count};
use crate::language::CanonicalQuery;
use crate::language::metadata::{Metadata, TEXT_SCORE};
use crate::memory::{Budget, Share, no_disk_use};
use crate::plan::{Access, TextAccess};

/// Memory of a record's score beside its key, roughly.
const SCORED_BYTES: usize = 64;

/// Where a search is.
#[derive(Default)]
pub(super) struct TextState {
    /// Records and scores that are left.
    left: Option<Scores>,
    /// The filter for what the snapshot of the index shows: its terms need not be looked for again.
    found: Option<Matcher>,
}

impl Executor {
    /// Shows the next records that a search found; true when nothing is left.
    pub(super) fn scan_text(
        &mut self,
        store: &Store,
        op: &OpCtx,
        sink: &mut Sink<'_>,
    ) -> Result<bool> {
        let Access::Text(access) = &self.plan.access else { return Ok(true) };
        access.index.check_alive()?;
        let snapshot = store.snapshot()?;
        if self.text.left.is_none() {
            self.text.left = Some(scores(&snapshot, op, access, &self.budget)?);
            self.text.found = self.query.matcher.for_found_text();
        } else {
            // Records may have changed since the index was read.
            self.text.found = None;
        }
        let failures = self.failures();
        let matcher = self.text.found.as_ref().unwrap_or(&self.query.matcher);
        let Some(left) = &mut self.text.left else { return Ok(true) };
        let mut page = Page::new(store, &snapshot, &self.collection, &mut self.page_size);
        let mut stopped = false;
        while !left.is_empty() && !stopped {
            op.check()?;
            let mut taken = Vec::new();
            while let Some(found) = left.pop()? {
                let full = page.push(&found.0);
                taken.push(found);
                if full {
                    break;
                }
            }
            let at = page.show(&mut |at, key, document| {
                let matches = matcher.matches(document);
                match matches.map_err(|error| failures.named(error))? {
                    true => sink(key, document, &noted(taken[at].1)).map(Some),
                    false => Ok(None),
                }
            })?;
            stopped = at.is_some();
            let shown = at.map_or(taken.len(), |at| at + 1);
            left.put_back(taken.split_off(shown));
        }
        count(op, 0, page.fetched);
        Ok(!stopped)
    }
}

/// Records with their scores, in the order of the records.
struct Scores {
    memory: VecDeque<(RecordKey, f64)>,
    /// What did not fit: a record's scores stand one after the other.
    files: Merge,
    /// The record of these whose scores are added up.
    open: Option<(RecordKey, f64)>,
    _share: Share,
}

impl Scores {
    fn is_empty(&self) -> bool {
        self.memory.is_empty() && self.open.is_none() && self.files.is_over()
    }

    /// These, which were taken out last, were not shown.
    fn put_back(&mut self, taken: Vec<(RecordKey, f64)>) {
        taken.into_iter().rev().for_each(|found| self.memory.push_front(found));
    }

    fn pop(&mut self) -> Result<Option<(RecordKey, f64)>> {
        if let Some(found) = self.memory.pop_front() {
            return Ok(Some(found));
        }
        while let Some((key, score)) = self.files.next()? {
            let score = <[u8; 8]>::try_from(score).map_or(0.0, f64::from_be_bytes);
            match &mut self.open {
                Some((open, sum)) if open.as_slice() == key => *sum += score,
                open => {
                    if let Some(found) = open.replace((key.to_vec(), score)) {
                        return Ok(Some(found));
                    }
                }
            }
        }
        Ok(self.open.take())
    }
}

/// Adds scores up.
struct Adding {
    sums: BTreeMap<RecordKey, f64>,
    bytes: usize,
    share: Share,
    files: Option<Sorter>,
}

impl Adding {
    fn add(&mut self, record_key: &[u8], score: f64, op: &OpCtx) -> Result<()> {
        if let Some(sum) = self.sums.get_mut(record_key) {
            *sum += score;
            return Ok(());
        }
        self.bytes += record_key.len() + SCORED_BYTES;
        self.sums.insert(record_key.to_vec(), score);
        if self.share.is_over(self.bytes) { self.spill(op) } else { Ok(()) }
    }

    fn spill(&mut self, op: &OpCtx) -> Result<()> {
        let Some(folder) = self.share.folder()? else {
            return Err(self.share.failure(|_| no_disk_use("a text search")));
        };
        let (files, check) = (self.files.get_or_insert_default(), || op.check());
        let (before, mut run) = (files.spilled(), Run::new(folder)?);
        for (key, sum) in std::mem::take(&mut self.sums) {
            run.push(&key, &sum.to_be_bytes(), &check)?;
        }
        files.push_run(run, folder, &check)?;
        self.share.count(op, files.spilled().since(before));
        self.share.set(0);
        self.bytes = 0;
        Ok(())
    }

    fn finish(mut self, op: &OpCtx) -> Result<Scores> {
        if self.files.is_some() {
            self.spill(op)?;
        }
        let files = self.files.map(|files| files.merge(&|| op.check())).transpose()?;
        let (memory, files) = (self.sums.into_iter().collect(), files.unwrap_or_default());
        Ok(Scores { memory, files, open: None, _share: self.share })
    }
}

/// The records under the terms of a search.
fn scores(snapshot: &Snapshot, op: &OpCtx, access: &TextAccess, budget: &Budget) -> Result<Scores> {
    let share = budget.share(Operator::TextOr);
    let mut scores = Adding { sums: BTreeMap::new(), bytes: 0, share, files: None };
    for range in &access.terms {
        let (behind, mut looked) = (range.start.len(), 0u64);
        let mut add = |entry: Entry<'_>| {
            looked += 1;
            if looked.is_multiple_of(CHUNK_ENTRIES as u64) {
                op.check()?;
            }
            let score = entry.values.get(behind..).and_then(score_of);
            let score = score.ok_or_else(|| Error::internal("a text entry without a score"))?;
            scores.add(entry.record_key, score, op)?;
            Ok(ControlFlow::Continue(()))
        };
        let mut rest = range.clone();
        loop {
            op.check()?;
            let limit = ScanLimit::NONE;
            match snapshot.scan_index(&access.index, &rest, Direction::Forward, limit, &mut add)? {
                Scanned::Exhausted => break,
                Scanned::Paused(last) => rest = rest.after(&last, Direction::Forward),
            }
        }
        count(op, looked, 0);
    }
    scores.finish(op)
}

/// The score at the beginning of these ordered keys.
fn score_of(values: &[u8]) -> Option<f64> {
    let (score, _) = keys::decode_value(values, false, &mut TypeBitsReader::new(&[]))?;
    Number::from_value(score.as_raw()).map(Number::to_f64)
}

fn noted(score: f64) -> Metadata {
    let mut notes = DocBuilder::new();
    notes.append(TEXT_SCORE, score);
    Metadata::new(notes.finish())
}

/// What is known about a document that was found otherwise: its score, unless it has none of the terms.
pub(crate) fn scored(search: &BoundSearch, document: RawDoc<'_>) -> Result<Metadata> {
    let scores = search.spec.score(document)?;
    let score: f64 = search.search.terms().iter().map(|term| scores.of(term)).sum();
    Ok(if score > 0.0 { noted(score) } else { Metadata::NONE })
}

/// What is known about a document that a query found before, as far as it can be told from the document.
///
/// # Errors
/// Those of a document's languages.
pub fn metadata_of(query: &CanonicalQuery, document: RawDoc<'_>) -> Result<Metadata> {
    match query.matcher.text() {
        Some(text) => scored(&*text.bound()?, document),
        None => Ok(Metadata::NONE),
    }
}
