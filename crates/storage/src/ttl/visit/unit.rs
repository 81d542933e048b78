//! The write units of a visit: each deletes a number of due documents, or archives and deletes
//! them.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use mayfly_base::{ErrorCode, Result};
use mayfly_work::OpCtx;

use super::{Progress, SCAN_ENTRIES, Visit};
use crate::Store;
use crate::index::keygen::KeySet;
use crate::isolation::ReadView;
use crate::policy::{ArchiveTarget, BATCH_DOCS};
use crate::record::{Moment, RecordKey, StoredDocument};
use crate::write::{WriteOptions, WriteUnit};

/// The number of documents that are read in one call, if their average length does not exceed the
/// limit. The engine does not keep their blocks, so that each call reads the block in which the
/// last one ended again.
const READ_TOGETHER: usize = 128;
const READ_TOGETHER_BYTES: i64 = 16 << 10;
/// The number of documents, and their bytes, in one file of an archive.
const ARCHIVED_TOGETHER: usize = 1000;
const ARCHIVED_BYTES: i64 = 8 << 20;

/// The number of documents in the first unit of a visit, and in the next one after clients were
/// slowed down. Over a network a small unit takes as long as a large one.
pub(super) fn first_unit_docs(store: &Store) -> usize {
    if store.is_remote() { MOST_UNIT_DOCS } else { BATCH_DOCS as usize }
}

/// The most documents of a unit. Each unit may have twice as many as the one before. In units of
/// 512 a deletion took 14.2 us of CPU and half of the writes to the disk; in units of 10, 18.4 us.
const MOST_UNIT_DOCS: usize = 512;

/// The limits of a write unit.
struct UnitSize {
    docs: Option<usize>,
    micros: i64,
    bytes: i64,
}

/// The result of a unit.
#[derive(Clone, Copy)]
struct UnitResult {
    /// The number of entries that were processed.
    entries: usize,
    deleted: i64,
    examined: i64,
    held: i64,
    /// The number of held documents that were not read, because the cache has them.
    known: i64,
    /// The bytes of deleted documents.
    staged: i64,
    /// The number of deleted index keys.
    keys: i64,
}

impl Visit<'_> {
    /// Runs one write unit over the first entries of the list. Returns how many entries it
    /// processed, or `None` when the policy has changed.
    pub(super) fn delete_batch(
        &self,
        op: &Arc<OpCtx>,
        entries: &[(RecordKey, RecordKey)],
        allowed: Option<usize>,
        moment: Moment,
        progress: &mut Progress,
    ) -> Result<Option<usize>> {
        let UnitSize { docs, micros, bytes } = self.unit_size(progress);
        let most = docs.unwrap_or(usize::MAX).min(allowed.unwrap_or(usize::MAX));
        let clock = &self.store.clock;
        let started = clock.monotonic_micros();
        let options = &self.rule.policy().options;
        let mut keys = KeySet::default();
        let read_together = self.read_together();
        let (mut looked, mut found_held) = (0, Vec::new());
        let now = ReadView::now();
        let unit = WriteOptions::new(op, &now, self.collection).in_background();
        let done = self.store.write_with(unit, |unit| {
            // The unit holds the collection's state, so the policy cannot change while it runs.
            if !self.rule.holds_in(unit) {
                return Ok(None);
            }
            let (mut handled, mut deleted, mut examined, mut staged) = (0usize, 0i64, 0i64, 0i64);
            let (mut held, mut to_archive) = (0i64, Vec::new());
            let chosen = &entries[..most.min(entries.len())];
            let (ended, known) =
                self.collection.held.which_are_held(chosen.iter().map(|(_, key)| key));
            (looked, found_held) = (ended, Vec::new());
            let mut held_unread = 0;
            let mut documents = Vec::new().into_iter();
            for (at, (_, record_key)) in chosen.iter().enumerate() {
                if at.is_multiple_of(read_together) {
                    let together = at..chosen.len().min(at + read_together);
                    let unknown = together.filter(|at| !known[*at]);
                    let keys: Vec<_> = unknown.map(|at| chosen[at].1.as_slice()).collect();
                    documents = unit.read_many(&keys)?.into_iter();
                }
                handled += 1;
                let document = if known[at] { None } else { documents.next().flatten() };
                // An array of dates has several entries; a document that was read for them is
                // processed once.
                let begin = at - at % read_together;
                if chosen[begin..at].iter().any(|(_, earlier)| earlier == record_key) {
                    continue;
                }
                if known[at] {
                    held_unread += 1;
                    continue;
                }
                let Some(document) = document else { continue };
                examined += 1;
                let record = document.record();
                if unit.holds(document.as_doc()) {
                    held += 1;
                    found_held.push(record_key.clone());
                    continue;
                }
                if !self.rule.is_due(record, moment, &mut keys)? {
                    continue;
                }
                deleted += 1;
                staged += document.as_doc().as_bytes().len() as i64;
                if options.archive.is_some() {
                    to_archive.push((record_key, document));
                } else {
                    unit.expire(record_key, &document, self.rule.policy())?;
                }
                let over_time = micros > 0 && clock.monotonic_micros() - started >= micros;
                if over_time || (bytes > 0 && staged >= bytes) {
                    break;
                }
            }
            self.archive(unit, &to_archive)?;
            Ok(Some(UnitResult {
                entries: handled,
                deleted,
                examined,
                held,
                known: held_unread,
                staged,
                keys: unit.effects.keys_deleted,
            }))
        })?;
        let Some(done) = done else { return Ok(None) };
        if !found_held.is_empty() {
            self.collection.held.add(looked, found_held);
        }
        self.count_result(op, &done, moment, progress, started);
        #[cfg(test)]
        if let Some(act) = &*self.store.between_units.lock() {
            act();
        }
        let pauses = self.make_room(started);
        progress.unit_docs = match pauses {
            true => first_unit_docs(self.store),
            false => (2 * progress.unit_docs).min(MOST_UNIT_DOCS),
        };
        Ok(Some(done.entries))
    }

    /// Runs units of one entry each, after a unit over several conflicted with a transaction that
    /// holds one of the records: that record is left to the next pass, and the others are deleted
    /// now.
    #[cold]
    pub(super) fn delete_singly(
        &self,
        op: &Arc<OpCtx>,
        entries: &[(RecordKey, RecordKey)],
        allowed: Option<usize>,
        moment: Moment,
        progress: &mut Progress,
    ) -> Result<Option<usize>> {
        let most = allowed.unwrap_or(usize::MAX).min(SCAN_ENTRIES).min(entries.len());
        for (at, entry) in entries[..most].iter().enumerate() {
            self.check(op)?;
            match self.delete_batch(op, std::slice::from_ref(entry), None, moment, progress) {
                Ok(Some(_)) => {}
                Ok(None) => return Ok(None),
                Err(error) if error.code() == ErrorCode::WriteConflict => {}
                Err(error) => return Err(error),
            }
            if self.target_met(progress) {
                return Ok(Some(at + 1));
            }
        }
        Ok(Some(most))
    }

    /// Archives documents and then deletes them, in one unit.
    fn archive(
        &self,
        unit: &mut WriteUnit<'_>,
        due: &[(&RecordKey, StoredDocument)],
    ) -> Result<()> {
        let policy = self.rule.policy();
        if due.is_empty() {
            return Ok(());
        }
        let documents: Vec<_> = due.iter().map(|(_, document)| document.as_doc()).collect();
        unit.archive(policy, &documents)?;
        for (record_key, document) in due {
            unit.expire(record_key, document, self.rule.policy())?;
        }
        Ok(())
    }

    /// Adds the result of a unit to the counters.
    fn count_result(
        &self,
        op: &OpCtx,
        done: &UnitResult,
        moment: Moment,
        progress: &mut Progress,
        started: i64,
    ) {
        let UnitResult { deleted, examined, held, known, staged, .. } = *done;
        let now = self.store.clock.monotonic_micros();
        let runtime = &self.rule.policy().runtime;
        runtime.spend(deleted, staged, now);
        runtime.held.fetch_add(held + known, Ordering::Relaxed);
        runtime.refreshed.fetch_add(examined - deleted - held, Ordering::Relaxed);
        let keys_deleted = done.keys;
        let cutoff = self.rule.policy().cutoff(moment);
        progress.deleted += deleted;
        progress.docs_examined += examined;
        op.yields.fetch_add(1, Ordering::Relaxed);
        op.update_info(|info| info.extra = self.extra(cutoff, progress.deleted).into_bytes());
        let stats = self.store.ttl_stats();
        stats.deleted_keys.fetch_add(keys_deleted, Ordering::Relaxed);
        if self.batched {
            stats.batches.fetch_add(1, Ordering::Relaxed);
            stats.batch_docs.fetch_add(deleted, Ordering::Relaxed);
            stats.staged_size_bytes.fetch_add(staged, Ordering::Relaxed);
            stats.time_in_batch_micros.fetch_add(now - started, Ordering::Relaxed);
        }
    }

    /// Pauses if clients' commits are slowed down by this visit; returns whether it did.
    fn make_room(&self, started: i64) -> bool {
        let now = self.store.clock.monotonic_micros();
        let pause = self.store.load.pause_micros(now - started, now);
        if pause > 0 {
            std::thread::sleep(std::time::Duration::from_micros(pause.unsigned_abs()));
        }
        pause > 0
    }

    /// The limits of one unit. If the archive is in files, units are few and large.
    fn unit_size(&self, progress: &Progress) -> UnitSize {
        let params = self.store.ttl_params();
        let into_files =
            matches!(self.rule.policy().options.archive, Some(ArchiveTarget::Files { .. }));
        if into_files {
            return UnitSize { docs: Some(ARCHIVED_TOGETHER), micros: 0, bytes: ARCHIVED_BYTES };
        }
        let docs = match params.batch_docs.load(Ordering::Relaxed) {
            _ if !self.batched => Some(1),
            BATCH_DOCS => Some(progress.unit_docs),
            docs => usize::try_from(docs).ok().filter(|docs| *docs > 0),
        };
        UnitSize {
            docs,
            micros: params.batch_ms.load(Ordering::Relaxed).saturating_mul(1000),
            bytes: params.batch_bytes.load(Ordering::Relaxed),
        }
    }

    /// How many documents the unit reads in one call of the engine.
    fn read_together(&self) -> usize {
        // The size is unknown after a crash until documents are counted.
        let documents = self.collection.known_documents();
        let bytes = self.store.data_bytes(self.collection);
        let are_short = documents < i64::MAX && bytes / documents.max(1) <= READ_TOGETHER_BYTES;
        match are_short {
            true if self.store.is_remote() => MOST_UNIT_DOCS,
            true => READ_TOGETHER,
            false => 1,
        }
    }
}
