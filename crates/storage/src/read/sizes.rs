//! Sizes of collections: documents exactly, storage as the engine estimates it.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use mayfly_base::Result;
use mayfly_kv::{Direction, KeyRange, Keyspace, ScanEnd, ScanLimit};
use mayfly_value::keys::{self, TypeBits};
use mayfly_value::{RawDoc, SortOrder};
use mayfly_work::{OpCtx, current};

use crate::catalog::counts::ShownSize;
use crate::catalog::{Collection, Core, Index};
use crate::read::{Entry, ScanResult};
use crate::record::RetiredTally;
use crate::record::error::from_kv;
use crate::record::layout::{catalog_key, object_range};

/// The number of records between two checks of the deadline.
const CHECK_EVERY: i64 = 256;
/// The number of records that a secondary counts between two checks.
const COUNTED_AT_ONCE: usize = 100_000;
/// The number of entries in the sample for an estimate.
const SAMPLE_ENTRIES: usize = 100;

/// The sizes of one collection.
pub struct CollectionSizes {
    /// The number of documents.
    pub documents: i64,
    /// Bytes of BSON.
    pub data_bytes: i64,
    /// The estimated bytes of its records in the engine.
    pub storage_bytes: u64,
    /// The bytes of its index on `_id`; `None` if records are clustered by `_id`.
    pub id_index_bytes: Option<u64>,
    /// Its other indexes, with their bytes in the engine.
    pub indexes: Vec<(Arc<Index>, u64)>,
    /// Removed documents that stay until the oplog is cut; `None` if not known, since a crash.
    pub retired: Option<RetiredTally>,
}

/// The result of a count over a part of a collection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CountResult {
    /// The number of documents.
    pub documents: i64,
    /// Bytes of BSON.
    pub bytes: i64,
    /// Whether the count ended at a limit.
    pub cut_off: bool,
}

/// The limits at which a count ends.
#[derive(Clone, Copy, Debug, Default)]
pub struct CountLimit {
    /// The most bytes of BSON.
    pub bytes: Option<i64>,
    /// The most documents.
    pub documents: Option<i64>,
}

/// A running count.
struct Tally<'o> {
    op: &'o OpCtx,
    limit: CountLimit,
    counted: CountResult,
}

impl Tally<'_> {
    fn add(&mut self, document: RawDoc<'_>) -> Result<ControlFlow<()>> {
        let counted = &mut self.counted;
        counted.documents += 1;
        counted.bytes += document.as_bytes().len() as i64;
        counted.cut_off = self.limit.bytes.is_some_and(|most| counted.bytes > most)
            || self.limit.documents.is_some_and(|most| counted.documents > most);
        if counted.documents % CHECK_EVERY == 0 {
            self.op.check()?;
        }
        Ok(if counted.cut_off { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    }
}

impl Core {
    /// The number of documents. It is known except after a crash, when this counts them, and in a
    /// store that another process writes.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn count_documents(&self, op: &OpCtx, collection: &Collection) -> Result<i64> {
        if self.follows_owner {
            return self.count_stored(op, collection);
        }
        if !collection.counts.exact.load(Ordering::Acquire) {
            self.recount(op, collection)?;
        }
        Ok(collection.counts.documents.load(Ordering::Acquire).max(0))
    }

    /// The number of documents and their bytes of BSON. On a secondary, those of a large collection
    /// may be a second old, and the bytes of a small one are those of its records in the engine.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn recent_size(&self, op: &OpCtx, collection: &Collection) -> Result<(i64, i64)> {
        if !self.follows_owner {
            return Ok((self.count_documents(op, collection)?, self.data_bytes(collection)));
        }
        if let Some((documents, bytes)) = self.shown_counts(collection)? {
            return Ok((documents.max(0), bytes.max(0)));
        }
        let documents = self.count_stored(op, collection)?;
        let bytes = self.bytes_of(Keyspace::Record, collection.id(), documents)?;
        Ok((documents, i64::try_from(bytes).unwrap_or(i64::MAX)))
    }

    /// The documents and bytes that the owner of the store has written for secondaries.
    fn shown_counts(&self, collection: &Collection) -> Result<Option<(i64, i64)>> {
        let mut row = None;
        let key = catalog_key::shown_counts(collection.id());
        self.engine()
            .get_once(Keyspace::Catalog, &key, &mut |value| row = ShownSize::decode(value))
            .map_err(from_kv)?;
        let term = self.engine().sharing().members().term;
        Ok(row.filter(|row| row.term == term).map(|row| (row.documents, row.bytes)))
    }

    /// The bytes of BSON; exact when the count is.
    pub fn data_bytes(&self, collection: &Collection) -> i64 {
        collection.counts.bytes.load(Ordering::Acquire).max(0)
    }

    /// Counts the records of a snapshot.
    fn count_stored(&self, op: &OpCtx, collection: &Collection) -> Result<i64> {
        let (snapshot, mut range) = (self.latest()?, object_range(collection.id()));
        let mut documents = 0;
        loop {
            op.check()?;
            let (found, end) =
                snapshot.txn.count(Keyspace::Record, &range, COUNTED_AT_ONCE).map_err(from_kv)?;
            documents += found as i64;
            match end {
                ScanEnd::Exhausted => return Ok(documents),
                ScanEnd::More { last_key } => range = range.after(&last_key, Direction::Forward),
            }
        }
    }

    /// Counts the records of the present state, also hidden ones; `None` if there are more than
    /// `most`.
    ///
    /// # Errors
    /// Errors of the engine and of the operation's deadline.
    pub fn count_up_to(
        &self,
        op: &OpCtx,
        collection: &Collection,
        most: u64,
    ) -> Result<Option<u64>> {
        op.check()?;
        let (snapshot, range) = (self.latest()?, object_range(collection.id()));
        let most = usize::try_from(most.saturating_add(1)).unwrap_or(usize::MAX);
        let (found, end) = snapshot.txn.count(Keyspace::Record, &range, most).map_err(from_kv)?;
        Ok((end == ScanEnd::Exhausted && found < most).then_some(found as u64))
    }

    /// The approximate bytes that this many records of a collection take in the engine.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn record_bytes(&self, collection: &Collection, documents: u64) -> Result<u64> {
        let documents = i64::try_from(documents).unwrap_or(i64::MAX);
        self.bytes_of(Keyspace::Record, collection.id(), documents)
    }

    /// Counts the documents of a snapshot while writers continue. Their changes are added to a
    /// counter that starts at the snapshot.
    fn recount(&self, op: &OpCtx, collection: &Collection) -> Result<()> {
        let counting = &collection.counts.counting;
        let _one_counts = current::acquire(|longest| counting.try_lock_for(longest))?;
        let snapshot = {
            let _no_writers = collection.change_state()?;
            if collection.counts.exact.load(Ordering::Acquire) {
                return Ok(());
            }
            collection.counts.documents.store(0, Ordering::Release);
            collection.counts.bytes.store(0, Ordering::Release);
            self.latest()?
        };
        let (mut documents, mut bytes) = (0i64, 0i64);
        let mut range = super::whole_range();
        // An engine may end a page early.
        loop {
            let scanned = snapshot.scan_stored(
                collection,
                &range,
                Direction::Forward,
                ScanLimit::ALL,
                &mut |_, record| {
                    documents += 1;
                    bytes += record.document.as_bytes().len() as i64;
                    if documents % 1024 == 0 {
                        op.check()?;
                    }
                    Ok(ControlFlow::Continue(()))
                },
            )?;
            match scanned {
                ScanResult::Exhausted => break,
                ScanResult::Paused(last) => range = range.after(&last, Direction::Forward),
            }
        }
        collection.counts.documents.fetch_add(documents, Ordering::AcqRel);
        collection.counts.bytes.fetch_add(bytes, Ordering::AcqRel);
        collection.counts.exact.store(true, Ordering::Release);
        Ok(())
    }

    /// All sizes of a collection.
    ///
    /// # Errors
    /// Errors of the engine and of the operation's deadline.
    pub fn sizes(&self, op: &OpCtx, collection: &Collection) -> Result<CollectionSizes> {
        let (documents, data_bytes) = self.recent_size(op, collection)?;
        let bytes_of = |keyspace, id| self.bytes_of(keyspace, id, documents);
        let mut indexes = Vec::new();
        for index in collection.indexes() {
            let bytes = bytes_of(Keyspace::Index, index.id())?;
            indexes.push((index, bytes));
        }
        let storage_bytes = bytes_of(Keyspace::Record, collection.id())?;
        Ok(CollectionSizes {
            documents,
            data_bytes,
            id_index_bytes: collection
                .id_index_id()
                .map(|id| bytes_of(Keyspace::Index, id))
                .transpose()?,
            storage_bytes,
            indexes,
            retired: self.retired(collection),
        })
    }

    /// The removed documents of a collection that stay until the oplog is cut; `None` if the server
    /// ended without a clean close and the log still has entries from before.
    pub fn retired(&self, collection: &Collection) -> Option<RetiredTally> {
        collection.counts.retired(self.oplog.cut())
    }

    /// The approximate bytes that a collection and its indexes take in the engine. Documents are
    /// not counted for it, so that it is fast even after a crash.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn engine_bytes(&self, collection: &Collection) -> Result<u64> {
        let documents = collection.counts.documents.load(Ordering::Acquire);
        let mut bytes = self.bytes_of(Keyspace::Record, collection.id(), documents)?;
        for id in collection.index_ids() {
            bytes += self.bytes_of(Keyspace::Index, id, documents)?;
        }
        Ok(bytes)
    }

    /// Makes the engine reclaim unused space of a collection and its indexes; returns the
    /// approximate number of bytes.
    ///
    /// # Errors
    /// Errors of the engine and of the operation's deadline, which is checked between the parts.
    pub fn compact(&self, op: &OpCtx, collection: &Collection) -> Result<u64> {
        let mut parts = vec![(Keyspace::Record, collection.id())];
        parts.extend(collection.index_ids().into_iter().map(|id| (Keyspace::Index, id)));
        let mut freed = 0;
        for (keyspace, id) in parts {
            op.check()?;
            let range = object_range(id);
            let bytes = || self.engine().approximate_bytes(keyspace, &range).map_err(from_kv);
            let before = bytes()?;
            self.engine().compact_range(keyspace, &range).map_err(from_kv)?;
            freed += before.saturating_sub(bytes()?);
        }
        self.engine().vacuum(&[Keyspace::Record, Keyspace::Index]).map_err(from_kv)?;
        Ok(freed)
    }

    /// The approximate bytes that the log takes in the engine, including kept versions.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn oplog_bytes(&self) -> Result<u64> {
        let sizes = self.oplog.sizes()?;
        match sizes.stored_bytes {
            0 => self.bytes_in(Keyspace::Oplog, &whole_log(), sizes.entries),
            stored => Ok(stored),
        }
    }

    /// The approximate bytes of kept versions.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn kept_bytes(&self) -> Result<u64> {
        self.engine().approximate_bytes(Keyspace::Versions, &whole_log()).map_err(from_kv)
    }

    /// The bytes of an object in the engine.
    fn bytes_of(&self, keyspace: Keyspace, id: u64, documents: i64) -> Result<u64> {
        self.bytes_in(keyspace, &object_range(id), documents)
    }

    /// The bytes in the engine of a range with this many rows. An engine may not count rows that
    /// are only in its write-ahead log and in memory; these are estimated from a sample.
    fn bytes_in(&self, keyspace: Keyspace, range: &KeyRange, documents: i64) -> Result<u64> {
        let counted = self.engine().approximate_bytes(keyspace, range).map_err(from_kv)?;
        if counted > 0 {
            return Ok(counted);
        }
        let (mut rows, mut bytes) = (0u64, 0u64);
        let (forward, limit) = (Direction::Forward, ScanLimit::rows(SAMPLE_ENTRIES));
        let snapshot = self.latest()?;
        let end = snapshot.txn.scan(keyspace, range, forward, limit, &mut |key, value| {
            rows += 1;
            bytes += (key.len() + value.len()) as u64;
            ControlFlow::Continue(())
        });
        let all = u64::try_from(documents).unwrap_or(0);
        Ok(match end.map_err(from_kv)? {
            ScanEnd::More { .. } if rows > 0 => (bytes / rows).saturating_mul(all.max(rows)),
            ScanEnd::More { .. } | ScanEnd::Exhausted => bytes,
        })
    }

    /// Counts the documents of one snapshot in a range of record keys, or of the keys of an index.
    ///
    /// # Errors
    /// Errors of the engine and of the operation's deadline.
    pub fn count_range(
        &self,
        op: &OpCtx,
        collection: &Collection,
        index: Option<&Index>,
        range: &KeyRange,
        limit: CountLimit,
    ) -> Result<CountResult> {
        let snapshot = self.latest()?;
        let mut tally = Tally { op, limit, counted: CountResult::default() };
        let mut rest = range.clone();
        let (forward, all) = (Direction::Forward, ScanLimit::ALL);
        loop {
            let scanned = match index {
                None => {
                    let visit = &mut |_: &[u8], document: RawDoc<'_>| tally.add(document);
                    snapshot.scan_records(collection, &rest, forward, all, visit)?
                }
                Some(index) => {
                    let visit = &mut |entry: Entry<'_>| {
                        let mut flow = ControlFlow::Continue(());
                        snapshot.record(collection, entry.record_key, &mut |document| {
                            flow = tally.add(document)?;
                            Ok(())
                        })?;
                        Ok(flow)
                    };
                    snapshot.scan_index(index, &rest, forward, all, visit)?
                }
            };
            match scanned {
                // An engine may end a page early.
                ScanResult::Paused(last) if !tally.counted.cut_off => {
                    rest = rest.after(&last, forward);
                }
                ScanResult::Paused(_) | ScanResult::Exhausted => return Ok(tally.counted),
            }
        }
    }
}

/// The range of all entries of the log, or of all kept versions.
fn whole_log() -> KeyRange {
    KeyRange { start: vec![0], end: vec![0xFF; 9] }
}

/// The position of these values in the order of an index, or of `_id` without one, as bounds of a
/// range.
pub fn position_of(index: Option<&Index>, values: RawDoc<'_>) -> Vec<u8> {
    let mut position = Vec::new();
    let mut bits = TypeBits::default();
    let values = values.iter().map(|element| element.value());
    match index {
        None => values.take(1).for_each(|value| {
            keys::append_value(&mut position, &mut bits, value, SortOrder::Ascending);
        }),
        Some(index) => {
            for (value, field) in values.zip(index.spec.fields()) {
                keys::append_value(&mut position, &mut bits, value, field.order);
            }
        }
    }
    position
}
