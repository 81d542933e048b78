//! Work that a transaction's writes leave to its commit.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use mayfly_base::Result;
use mayfly_kv::{Gap, Guard, Keyspace, Txn, Which};
use mayfly_value::{DocBuf, RawDoc};

use crate::catalog::{Collection, Index, Policy};
use crate::index::building::Note;
use crate::oplog::OplogBatch;
use crate::record::RecordKey;
use crate::record::error::from_kv;
use crate::record::kept::{KeptRows, KeptVersion, RetiredRows, RetiredTally};

/// The longest wait of a writer for an index build that is slower than the writers.
const LONGEST_DELAY: Duration = Duration::from_millis(if cfg!(test) { 1 } else { 100 });

/// The work that a transaction leaves to its commit.
pub(crate) struct Pending {
    /// The entry of the log.
    pub oplog: OplogBatch,
    /// The effects on collections, without those of the current unit.
    pub collections: Vec<(Arc<Collection>, Effects)>,
    /// Indexes whose keys met arrays, with the mask of the paths.
    pub multikey: Vec<(Arc<Index>, u32)>,
    /// Documents that the log will refer to, and that the transaction itself has overwritten or
    /// removed, by collection and record.
    overwritten: HashMap<(u64, RecordKey), DocBuf>,
    /// Kept versions that are not written yet.
    pub kept: KeptRows,
    /// Rows of retired records that are not written yet.
    pub retired: RetiredRows,
    /// Notes for builds of indexes.
    pub notes: Vec<Note>,
    /// A unit failed after it may have written, so the transaction cannot be committed.
    pub failed: bool,
}

/// The effects of units on one collection.
#[derive(Default)]
pub(crate) struct Effects {
    /// The change of the number of documents.
    pub documents: i64,
    /// The change of the bytes of BSON.
    pub bytes: i64,
    /// The number of index keys of deleted documents.
    pub keys_deleted: i64,
    /// The policies that expired documents, with their numbers.
    pub expired: Vec<(Arc<Policy>, i64)>,
    /// Records that policies no longer hold.
    pub released: Vec<RecordKey>,
    /// Removed records that stay until the log is cut.
    pub retired: RetiredTally,
}

impl Pending {
    pub(crate) fn new() -> Pending {
        Pending {
            oplog: OplogBatch::new(),
            collections: Vec::new(),
            multikey: Vec::new(),
            overwritten: HashMap::new(),
            kept: KeptRows::default(),
            retired: RetiredRows::default(),
            notes: Vec::new(),
            failed: false,
        }
    }

    /// For a transaction of several statements.
    pub(crate) fn of_transaction(lsid: RawDoc<'_>, txn_number: i64) -> Pending {
        Pending { oplog: OplogBatch::of_transaction(lsid, txn_number), ..Pending::new() }
    }

    /// Keeps a document of the transaction that the log will refer to, because the transaction
    /// overwrites its record. From here on the log must not refer to later versions of this record:
    /// two versions would have the same timestamp.
    pub(crate) fn keep(&mut self, collection: u64, record_key: &[u8], document: RawDoc<'_>) {
        let key = (collection, record_key.to_vec());
        self.overwritten.entry(key).or_insert_with(|| document.to_owned());
    }

    /// Whether the log will refer to an earlier version of this record.
    pub(crate) fn keeps(&self, collection: u64, record_key: &[u8]) -> bool {
        !self.overwritten.is_empty()
            && self.overwritten.contains_key(&(collection, record_key.to_vec()))
    }

    /// Writes the remaining kept versions and rows of retired records. Must be called before the
    /// commit.
    ///
    /// # Errors
    /// Errors of the engine.
    pub(crate) fn write_kept(&mut self, txn: &mut dyn Txn) -> Result<()> {
        self.kept.finish(&mut put(txn))?;
        self.write_overwritten(txn)?;
        self.retired.finish(&mut put(txn))
    }

    /// Writes the kept versions of this commit's own entry. Its timestamp, with which their keys
    /// begin, is filled in by the commit.
    fn write_overwritten(&mut self, txn: &mut dyn Txn) -> Result<()> {
        if self.overwritten.is_empty() {
            return Ok(());
        }
        let mut overwritten: Vec<_> = self.overwritten.drain().collect();
        overwritten.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        let gaps = [Gap::Key(0, Which::Last)];
        let put = &mut |key: &[u8], value: &[u8]| {
            txn.put_with_gaps(Keyspace::Versions, key, value, Guard::Derived, &gaps)
                .map_err(from_kv)
        };
        for ((collection, record_key), document) in &overwritten {
            let (timestamp, collection, document) = (0, *collection, document.as_doc());
            self.kept.push(KeptVersion { timestamp, collection, record_key, document }, put)?;
        }
        self.kept.finish(put)
    }

    /// Adds the effects of a unit on this collection.
    pub(crate) fn add(&mut self, collection: &Arc<Collection>, effects: Effects) {
        match self.collections.iter_mut().find(|(other, _)| other.id() == collection.id()) {
            Some((_, known)) => known.add(effects),
            None => self.collections.push((collection.clone(), effects)),
        }
    }

    /// Makes the notes for index builds. Must be called before the commit, with the states of the
    /// collections held. Returns how long the writer should wait afterwards.
    pub(crate) fn leave_notes(&mut self) -> Duration {
        let nanos = self.notes.drain(..).map(|note| note.make()).sum();
        Duration::from_nanos(nanos).min(LONGEST_DELAY)
    }

    /// Notes which paths are known to have arrays. Must be called after the commit.
    pub(crate) fn note_multikey(&mut self) {
        for (index, mask) in self.multikey.drain(..) {
            index.runtime.multikey_stored.fetch_or(mask, Ordering::AcqRel);
        }
    }
}

/// Writes rows of kept versions. A row is named after a record whose lock the transaction has, so
/// no other transaction writes it.
fn put(txn: &mut dyn Txn) -> impl FnMut(&[u8], &[u8]) -> Result<()> {
    |key, value| txn.put(Keyspace::Versions, key, value, Guard::Derived).map_err(from_kv)
}

impl Effects {
    fn add(&mut self, other: Effects) {
        self.documents += other.documents;
        self.bytes += other.bytes;
        self.keys_deleted += other.keys_deleted;
        self.expired.extend(other.expired);
        self.released.extend(other.released);
        self.retired.documents += other.retired.documents;
        self.retired.bytes += other.retired.bytes;
    }

    /// Applies the effects after the commit; returns the number of expired documents.
    pub(crate) fn apply(self, collection: &Collection) -> i64 {
        collection.commits.fetch_add(1, Ordering::AcqRel);
        collection.counts.documents.fetch_add(self.documents, Ordering::AcqRel);
        collection.counts.bytes.fetch_add(self.bytes, Ordering::AcqRel);
        if self.retired.documents > 0 {
            collection.counts.add_retired(self.retired);
        }
        if !self.released.is_empty() {
            collection.held.end(&self.released);
        }
        let mut expired = 0;
        for (policy, count) in self.expired {
            policy.runtime.deleted.fetch_add(count, Ordering::Relaxed);
            expired += count;
        }
        expired
    }
}
