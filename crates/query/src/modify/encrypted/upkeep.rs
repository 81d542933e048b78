//! Compaction and cleanup of the state of encrypted fields: batches of queue entries, each in one
//! write unit.
//!
//! 1. Read the next entries of the queue, and decrypt the tokens of the values.
//! 2. In one unit: read these entries again under their locks, plan the change of the counts, apply
//!    it, and delete the entries.
//!
//! A batch that was committed has no entries any more, so an interrupted run is continued by the
//! next one. Entries that are appended during a run have greater ids and belong to the next run,
//! because a run ends after as many entries as there were at its beginning.
//!
//! A value that was inserted very often has as many documents to delete. Those beyond
//! [`UNIT_DELETES`] are deleted in units of their own, after the anchor that replaces them is
//! committed. If the server is killed in between, they stay. No search reads them, because it
//! begins after the count in the anchor.

use std::ops::ControlFlow;

use mayfly_base::Result;
use mayfly_encryption::{
    EcocToken, EscContentionToken, EscId, QueueEntry, StateChange, plan_cleanup, plan_compaction,
    queued_tokens,
};
use mayfly_storage::{
    Direction, KeyRange, RecordKey, ScanLimit, StoreSession, UpdateStyle, WriteOptions, WriteUnit,
    whole_range,
};
use mayfly_value::{DocBuf, RawDoc, RawValue};

use super::StateCollections;
use super::reader::{UnitCounts, count_key};

/// The entries of the queue that one unit works through.
const UNIT_ENTRIES: usize = 64;
/// The documents of the counts that one unit deletes.
const UNIT_DELETES: usize = 4096;

/// What an upkeep does with the counts of values in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpkeepKind {
    /// An anchor replaces the counts.
    Compaction,
    /// A null anchor replaces the counts and the anchors.
    Cleanup,
}

/// The numbers of documents that an upkeep has read and changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names of the figures in the reply")]
pub struct UpkeepFigures {
    pub counts_read: u64,
    pub counts_inserted: u64,
    pub counts_updated: u64,
    pub counts_deleted: u64,
    pub queue_read: u64,
    pub queue_deleted: u64,
}

/// An upkeep of the state of one collection.
pub struct Upkeep<'u> {
    /// The operation that runs it.
    pub session: StoreSession<'u>,
    /// The collections with the state.
    pub state: &'u StateCollections,
    /// The token of each field.
    pub tokens: &'u [(String, EcocToken)],
    /// What it does.
    pub kind: UpkeepKind,
}

/// What one unit did.
#[derive(Default)]
pub(super) struct UnitResult {
    figures: UpkeepFigures,
    /// The documents of the counts that are still to be deleted.
    rest: Vec<EscId>,
}

impl Upkeep<'_> {
    /// Works through the entries that are in the queue. Two runs on one collection must not
    /// overlap, because their figures would be those of both.
    ///
    /// # Errors
    /// 2 BadValue and 9 FailedToParse for entries that the tokens do not decrypt; errors of the
    /// store and of the operation's deadline. What was committed before stays.
    pub fn run(&self) -> Result<UpkeepFigures> {
        let Upkeep { session, state, .. } = *self;
        let all = session.store.count_documents(session.op, &state.queue.1)?;
        let mut left = u64::try_from(all).unwrap_or(0);
        let mut range = whole_range();
        let mut total = UpkeepFigures::default();
        while left > 0 {
            session.op.check()?;
            let most = usize::try_from(left).map_or(UNIT_ENTRIES, |left| left.min(UNIT_ENTRIES));
            let batch = self.next_batch(&range, most)?;
            let Some((last, _)) = batch.last() else { break };
            range = range.after(last, Direction::Forward);
            left -= batch.len() as u64;
            total.queue_read += batch.len() as u64;
            let UnitResult { figures, rest } = self.work_through(&batch)?;
            total.add(figures);
            for ids in rest.chunks(UNIT_DELETES) {
                session.op.check()?;
                total.counts_deleted += self.delete_counts(ids)?;
            }
        }
        Ok(total)
    }

    /// The next entries of the queue with the keys of their records.
    fn next_batch(&self, range: &KeyRange, most: usize) -> Result<Vec<(RecordKey, QueueEntry)>> {
        let mut batch = Vec::with_capacity(most);
        let snapshot = self.session.snapshot()?;
        let queue = &self.state.queue.1;
        let mut see = |key: &[u8], document: RawDoc<'_>| {
            batch.push((key.to_vec(), QueueEntry::parse(document)?));
            Ok(match batch.len() < most {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            })
        };
        snapshot.scan_records(queue, range, Direction::Forward, ScanLimit::NONE, &mut see)?;
        Ok(batch)
    }

    fn work_through(&self, batch: &[(RecordKey, QueueEntry)]) -> Result<UnitResult> {
        let entries: Vec<QueueEntry> = batch.iter().map(|(_, entry)| entry.clone()).collect();
        let queued = queued_tokens(&entries, self.tokens)?;
        let tokens: Vec<EscContentionToken> = queued.into_iter().map(|it| it.token).collect();
        let Upkeep { session, state, kind, .. } = *self;
        let (counts, collection) = &state.counts;
        let others = [(counts.clone(), Ok(collection.clone()))];
        let options = WriteOptions::new(session.op, session.view, &state.queue.1);
        session.store.write_with(options.with_others(&others), |unit| {
            session.op.check()?;
            let mut present = Vec::with_capacity(batch.len());
            for (key, _) in batch {
                present.extend(unit.read(key)?.map(|document| (key, document)));
            }
            if present.is_empty() {
                return Ok(UnitResult::default());
            }
            let mut result = unit.within(counts, |unit| {
                let (mut reader, iv) = (UnitCounts::of(unit), &mut || rand::random());
                let change = match kind {
                    UpkeepKind::Compaction => plan_compaction(&tokens, &mut reader, iv)?,
                    UpkeepKind::Cleanup => plan_cleanup(&tokens, &mut reader, iv)?,
                };
                let reads = reader.reads();
                apply(unit, &change, reads)
            })?;
            for (key, document) in &present {
                unit.delete(key, document)?;
            }
            result.figures.queue_deleted = present.len() as u64;
            Ok(result)
        })
    }

    /// Deletes documents of the counts that an anchor has replaced. Returns their number.
    fn delete_counts(&self, ids: &[EscId]) -> Result<u64> {
        self.session.write(&self.state.counts.1, |unit| delete_all(unit, ids.iter()))
    }
}

/// Applies a change in a unit over the counts, except for deletions beyond the limit.
pub(super) fn apply(
    unit: &mut WriteUnit<'_>,
    change: &StateChange,
    reads: u64,
) -> Result<UnitResult> {
    for document in &change.inserted {
        unit.insert(document.as_doc())?;
    }
    let mut updated = 0;
    for document in &change.replaced {
        updated += u64::from(replace(unit, document)?);
    }
    let mut deleted = change.deleted();
    let now: Vec<EscId> = deleted.by_ref().take(UNIT_DELETES).collect();
    let figures = UpkeepFigures {
        counts_read: reads,
        counts_inserted: change.inserted.len() as u64,
        counts_updated: updated,
        counts_deleted: delete_all(unit, now.iter())?,
        ..UpkeepFigures::default()
    };
    Ok(UnitResult { figures, rest: deleted.collect() })
}

/// Replaces the document with the same `_id`; returns whether there was one.
fn replace(unit: &mut WriteUnit<'_>, document: &DocBuf) -> Result<bool> {
    let Some(RawValue::Binary { bytes, .. }) = document.as_doc().get("_id") else {
        return Ok(false);
    };
    let Ok(id) = EscId::try_from(bytes) else { return Ok(false) };
    let Some(key) = unit.locate(count_key(&id))? else { return Ok(false) };
    let Some(before) = unit.read(&key)? else { return Ok(false) };
    unit.update(&key, &before, document.as_doc(), UpdateStyle::Replacement)?;
    Ok(true)
}

/// Deletes the documents with these ids, as far as they exist. Returns their number.
fn delete_all<'i>(unit: &mut WriteUnit<'_>, ids: impl Iterator<Item = &'i EscId>) -> Result<u64> {
    let mut deleted = 0;
    for id in ids {
        let Some(key) = unit.locate(count_key(id))? else { continue };
        let Some(document) = unit.read(&key)? else { continue };
        unit.delete(&key, &document)?;
        deleted += 1;
    }
    Ok(deleted)
}

impl UpkeepFigures {
    /// Adds the figures of a unit.
    fn add(&mut self, unit: UpkeepFigures) {
        self.counts_read += unit.counts_read;
        self.counts_inserted += unit.counts_inserted;
        self.counts_updated += unit.counts_updated;
        self.counts_deleted += unit.counts_deleted;
        self.queue_read += unit.queue_read;
        self.queue_deleted += unit.queue_deleted;
    }
}
