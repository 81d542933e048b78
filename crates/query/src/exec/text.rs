//! Running a text search: the scores of all records under its terms are added up first, then the records are read one by
//! one, in the order of their keys.

use std::collections::{BTreeMap, VecDeque};
use std::ops::ControlFlow;

use mayfly_base::{Error, ErrorCode, OpCtx, Result};
use mayfly_mql::Matcher;
use mayfly_mql::matcher::BoundSearch;
use mayfly_storage::{Direction, Entry, RecordKey, ScanLimit, Scanned, Snapshot, Store};
use mayfly_value::keys::{self, TypeBitsReader};
use mayfly_value::{DocBuilder, Number, RawDoc};

use super::fetch::Page;
use super::{CHUNK_ENTRIES, Executor, Sink, count};
use crate::metadata::{Metadata, TEXT_SCORE};
use crate::plan::{Access, TextAccess};

/// Memory of a record's score beside its key, roughly.
const SCORED_BYTES: usize = 64;

/// Where a search is.
#[derive(Default)]
pub(super) struct TextState {
    /// Records and scores that are left.
    left: Option<VecDeque<(RecordKey, f64)>>,
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
            self.text.left = Some(scores(&snapshot, op, access, self.memory.bytes)?);
            self.text.found = self.query.matcher.for_found_text();
        } else {
            // Records may have changed since the index was read.
            self.text.found = None;
        }
        let failures = self.failures();
        let matcher = self.text.found.as_ref().unwrap_or(&self.query.matcher);
        let left = self.text.left.get_or_insert_default();
        let mut page = Page::new(store, &snapshot, &self.collection, &mut self.page_size);
        let mut stopped = false;
        while !left.is_empty() && !stopped {
            op.check()?;
            let taken = left.iter().position(|(key, _)| page.push(key));
            let taken = taken.map_or(left.len(), |last| last + 1);
            let at = page.show(&mut |at, key, document| {
                let matches = matcher.matches(document);
                match matches.map_err(|error| failures.named(error))? {
                    true => sink(key, document, &noted(left[at].1)).map(Some),
                    false => Ok(None),
                }
            })?;
            stopped = at.is_some();
            left.drain(..at.map_or(taken, |at| at + 1));
        }
        count(op, 0, page.fetched);
        Ok(!stopped)
    }
}

/// The records under the terms of a search.
fn scores(
    snapshot: &Snapshot,
    op: &OpCtx,
    access: &TextAccess,
    most_bytes: usize,
) -> Result<VecDeque<(RecordKey, f64)>> {
    let mut scores: BTreeMap<RecordKey, f64> = BTreeMap::new();
    let mut bytes = 0;
    for range in &access.terms {
        let (behind, mut looked) = (range.start.len(), 0u64);
        let mut add = |entry: Entry<'_>| {
            looked += 1;
            if looked.is_multiple_of(CHUNK_ENTRIES as u64) {
                op.check()?;
            }
            let score = entry.values.get(behind..).and_then(score_of);
            let score = score.ok_or_else(|| Error::internal("a text entry without a score"))?;
            if let Some(sum) = scores.get_mut(entry.record_key) {
                *sum += score;
                return Ok(ControlFlow::Continue(()));
            }
            bytes += entry.record_key.len() + SCORED_BYTES;
            if bytes > most_bytes {
                return Err(Error::new(
                    ErrorCode::QueryExceededMemoryLimitNoDiskUseAllowed,
                    format!("a text search exceeded the memory limit of {most_bytes} bytes"),
                ));
            }
            scores.insert(entry.record_key.to_vec(), score);
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
    Ok(scores.into_iter().collect())
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
