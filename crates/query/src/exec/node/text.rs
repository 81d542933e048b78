//! Runs a text search: first adds up the scores of all records under the search terms, then reads
//! the records in key order.

use std::collections::{BTreeMap, VecDeque};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use mayfly_base::{Error, Result};
use mayfly_mql::matcher::BoundSearch;
use mayfly_runs::{Merge, Run, Sorter};
use mayfly_storage::{Direction, Entry, RecordKey, ScanLimit, ScanResult};
use mayfly_value::keys::{self, TypeBitsReader};
use mayfly_value::{DocBuilder, Number, RawDoc, SortOrder};
use mayfly_work::OpCtx;
use mayfly_work::spill::Operator;

use super::page::{Page, Shown};
use super::{Batch, CHUNK_ENTRIES, Counters, Node, Progress, Row, Rows};
use crate::language::CanonicalQuery;
use crate::language::metadata::{Metadata, TEXT_SCORE};
use crate::memory::{Share, no_disk_use};
use crate::plan::TextAccess;

/// Approximate memory of a record's score beyond its key.
const SCORED_BYTES: usize = 64;

/// A running search.
pub(in crate::exec) struct Search {
    access: Arc<TextAccess>,
    /// The records that are left, with their scores.
    left: Option<Scores>,
    size: Option<Page>,
    counters: Counters,
}

impl Search {
    pub(super) fn new(access: Arc<TextAccess>) -> Search {
        Search { access, left: None, size: None, counters: Counters::default() }
    }
}

impl Node for Search {
    fn run(&mut self, batch: &Batch<'_>, rows: &mut Rows<'_>) -> Result<Progress> {
        // Under the snapshot in which the index was read, the terms of the search need not be
        // tested again. In later batches records may have changed.
        let mut found = None;
        let before = batch.session.op.keys_examined.load(Relaxed);
        let left = match &mut self.left {
            Some(left) => left,
            none => {
                found = batch.query.matcher.for_found_text();
                none.insert(scores(batch, &self.access)?)
            }
        };
        self.counters.keys += batch.session.op.keys_examined.load(Relaxed) - before;
        let matcher = found.as_ref().unwrap_or(&batch.query.matcher);
        let page = self.size.get_or_insert_with(|| Page::new(batch.collection));
        page.begin(batch);
        let (counters, mut stopped) = (&mut self.counters, false);
        while !left.is_empty() && !stopped {
            batch.session.op.check()?;
            let mut taken = Vec::new();
            while let Some(found) = left.pop()? {
                let full = page.push(&Row::key(&found.0, 0));
                taken.push(found);
                if full {
                    break;
                }
            }
            let last = page.show(batch, &mut |Shown { at, record: key, document, .. }| {
                counters.documents += 1;
                let matches = matcher.matches(document);
                if !matches.map_err(|error| batch.failures.named(error))? {
                    return Ok(None);
                }
                counters.returned += 1;
                rows(&Row::read(key, document, &noted(taken[at].1))).map(Some)
            })?;
            if let Some(last) = last {
                left.put_back(taken.split_off(last + 1));
                page.clear();
                stopped = true;
            }
        }
        counters.over = !stopped;
        Ok(if stopped { Progress::Stopped } else { Progress::Over })
    }

    fn counters(&self) -> Counters {
        self.counters.clone()
    }

    fn check_alive(&self) -> Result<()> {
        self.access.index.check_alive()
    }
}

/// Records with their scores, in key order.
struct Scores {
    memory: VecDeque<(RecordKey, f64)>,
    /// Spilled scores, with several entries for a record next to each other.
    files: Merge,
    /// The record whose spilled scores are being added up.
    open: Option<(RecordKey, f64)>,
    _share: Share,
}

impl Scores {
    fn is_empty(&self) -> bool {
        self.memory.is_empty() && self.open.is_none() && self.files.is_over()
    }

    /// Puts back records that were taken last and not returned.
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

/// Adds up scores by record.
struct ScoreSums {
    sums: BTreeMap<RecordKey, f64>,
    bytes: usize,
    share: Share,
    files: Option<Sorter>,
}

impl ScoreSums {
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

/// Reads the records under the search terms.
fn scores(batch: &Batch<'_>, access: &TextAccess) -> Result<Scores> {
    let (snapshot, op) = (batch.snapshot()?, batch.session.op);
    let share = batch.budget.share(Operator::TextOr);
    let mut scores = ScoreSums { sums: BTreeMap::new(), bytes: 0, share, files: None };
    for range in &access.terms {
        let (prefix_len, mut examined) = (range.start.len(), 0u64);
        let mut add = |entry: Entry<'_>| {
            examined += 1;
            if examined.is_multiple_of(CHUNK_ENTRIES as u64) {
                op.check()?;
            }
            let score = entry.values.get(prefix_len..).and_then(score_of);
            let score = score.ok_or_else(|| Error::internal("a text entry without a score"))?;
            scores.add(entry.record_key, score, op)?;
            Ok(ControlFlow::Continue(()))
        };
        let mut rest = range.clone();
        loop {
            op.check()?;
            let limit = ScanLimit::NONE;
            match snapshot.scan_index(&access.index, &rest, Direction::Forward, limit, &mut add)? {
                ScanResult::Exhausted => break,
                ScanResult::Paused(last) => rest = rest.after(&last, Direction::Forward),
            }
        }
        batch.count(examined, 0);
    }
    scores.finish(op)
}

/// The score at the start of these ordered keys.
fn score_of(values: &[u8]) -> Option<f64> {
    let (score, _) =
        keys::decode_value(values, SortOrder::Ascending, &mut TypeBitsReader::new(&[]))?;
    Number::from_value(score.as_raw()).map(Number::to_f64)
}

fn noted(score: f64) -> Metadata {
    let mut notes = DocBuilder::new();
    notes.append(TEXT_SCORE, score);
    Metadata::new(notes.finish())
}

/// The score of a document that was found without the text index; no metadata if it has none of the
/// terms.
pub(super) fn scored(search: &BoundSearch, document: RawDoc<'_>) -> Result<Metadata> {
    let scores = search.spec.score(document)?;
    let score: f64 = search.search.terms().iter().map(|term| scores.of(term)).sum();
    Ok(if score > 0.0 { noted(score) } else { Metadata::NONE })
}

/// Recomputes the metadata of a document that a query found before, as far as it depends on the
/// document.
///
/// # Errors
/// Errors of a document's languages.
pub fn metadata_of(query: &CanonicalQuery, document: RawDoc<'_>) -> Result<Metadata> {
    match query.matcher.text() {
        Some(text) => scored(&*text.bound()?, document),
        None => Ok(Metadata::NONE),
    }
}
