//! What follows from a transaction's writes when it commits, and must not before.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use mayfly_base::Result;
use mayfly_kv::{Guard, Keyspace, Txn};
use mayfly_value::{DocBuf, RawDoc};

use crate::catalog::{Collection, Index, Policy};
use crate::index::building::Note;
use crate::oplog::OplogBatch;
use crate::record::RecordKey;
use crate::record::error::from_kv;
use crate::record::kept::{KeptRows, KeptVersion};

/// How long a writer waits at most for the build of an index that it is ahead of.
const LONGEST_DELAY: Duration = Duration::from_millis(if cfg!(test) { 1 } else { 100 });

/// What a transaction leaves to its commit.
pub(crate) struct Pending {
    /// What the log will say.
    pub oplog: OplogBatch,
    /// What it changed in collections, beside that of the unit at hand.
    pub collections: Vec<(Arc<Collection>, Effects)>,
    /// Indexes that met arrays, and on which paths.
    pub multikey: Vec<(Arc<Index>, u32)>,
    /// Documents that the log will refer to, and that the transaction itself has written over or removed: by collection and record.
    overwritten: HashMap<(u64, RecordKey), DocBuf>,
    /// Versions that go from their place, as far as they are not written yet.
    pub kept: KeptRows,
    /// What builds of indexes have to catch up with.
    pub notes: Vec<Note>,
    /// A unit failed after it may have written something: nothing of it may be committed.
    pub failed: bool,
}

/// What units changed in one collection.
#[derive(Default)]
pub(crate) struct Effects {
    /// Documents more.
    pub documents: i64,
    /// Bytes of BSON more.
    pub bytes: i64,
    /// Index keys that went with deleted documents.
    pub keys_deleted: i64,
    /// The policies by which documents went, and how many by each.
    pub expired: Vec<(Arc<Policy>, i64)>,
    /// Records that policies held and hold no more.
    pub released: Vec<RecordKey>,
}

impl Pending {
    pub(crate) fn new() -> Pending {
        Pending {
            oplog: OplogBatch::new(),
            collections: Vec::new(),
            multikey: Vec::new(),
            overwritten: HashMap::new(),
            kept: KeptRows::default(),
            notes: Vec::new(),
            failed: false,
        }
    }

    /// That of a transaction of several statements.
    pub(crate) fn of_transaction(lsid: RawDoc<'_>, txn_number: i64) -> Pending {
        Pending { oplog: OplogBatch::of_transaction(lsid, txn_number), ..Pending::new() }
    }

    /// The transaction writes over a record of its own that the log will refer to. From here on the log must not refer to what
    /// it writes there: two versions would have one timestamp.
    pub(crate) fn keep(&mut self, collection: u64, record_key: &[u8], document: RawDoc<'_>) {
        let key = (collection, record_key.to_vec());
        self.overwritten.entry(key).or_insert_with(|| document.to_owned());
    }

    /// Whether the log will refer to an earlier version of this record.
    pub(crate) fn keeps(&self, collection: u64, record_key: &[u8]) -> bool {
        !self.overwritten.is_empty()
            && self.overwritten.contains_key(&(collection, record_key.to_vec()))
    }

    /// Tells the records of the transaction, and what it keeps of them, at which timestamp they are logged.
    ///
    /// # Errors
    /// Those of the engine.
    pub(crate) fn fill_in(&mut self, txn: &mut dyn Txn, timestamp: u64) -> Result<()> {
        txn.fill_gaps(timestamp.to_le_bytes());
        if self.overwritten.is_empty() {
            return Ok(());
        }
        let mut overwritten: Vec<_> = self.overwritten.drain().collect();
        overwritten.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        for ((collection, record_key), document) in &overwritten {
            let (collection, document) = (*collection, document.as_doc());
            self.kept
                .push(KeptVersion { timestamp, collection, record_key, document }, &mut put(txn))?;
        }
        Ok(())
    }

    /// Writes what is kept and not written yet; to be called before the commit.
    ///
    /// # Errors
    /// Those of the engine.
    pub(crate) fn write_kept(&mut self, txn: &mut dyn Txn) -> Result<()> {
        self.kept.finish(&mut put(txn))
    }

    /// Adds what a unit over this collection did.
    pub(crate) fn add(&mut self, collection: &Arc<Collection>, effects: Effects) {
        match self.collections.iter_mut().find(|(other, _)| other.id() == collection.id()) {
            Some((_, known)) => known.add(effects),
            None => self.collections.push((collection.clone(), effects)),
        }
    }

    /// To be called before the commit, with the states of the collections held; gives the time that the writer should wait
    /// afterwards.
    pub(crate) fn leave_notes(&mut self) -> Duration {
        let nanos = self.notes.drain(..).map(|note| note.make()).sum();
        Duration::from_nanos(nanos).min(LONGEST_DELAY)
    }

    /// To be called after the commit: arrays are known to be on these paths.
    pub(crate) fn note_multikey(&mut self) {
        for (index, mask) in self.multikey.drain(..) {
            index.runtime.multikey_stored.fetch_or(mask, Ordering::AcqRel);
        }
    }
}

/// Writes rows of versions. Only the transaction that has the lock of a record writes the row that is called after it.
fn put(txn: &mut dyn Txn) -> impl FnMut(&[u8], &[u8]) -> Result<()> {
    |key, value| txn.put(Keyspace::Kept, key, value, Guard::Derived).map_err(from_kv)
}

impl Effects {
    fn add(&mut self, other: Effects) {
        self.documents += other.documents;
        self.bytes += other.bytes;
        self.keys_deleted += other.keys_deleted;
        self.expired.extend(other.expired);
        self.released.extend(other.released);
    }

    /// To be called after the commit; gives the number of documents that expired.
    pub(crate) fn apply(self, collection: &Collection) -> i64 {
        collection.commits.fetch_add(1, Ordering::AcqRel);
        collection.counts.documents.fetch_add(self.documents, Ordering::AcqRel);
        collection.counts.bytes.fetch_add(self.bytes, Ordering::AcqRel);
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
