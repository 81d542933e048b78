//! How much room a collection takes: the documents exactly, what lies on disk as the engine estimates it.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use mayfly_base::Result;
use mayfly_kv::{Direction, KeyRange, Keyspace, ScanEnd, ScanLimit};
use mayfly_value::RawDoc;
use mayfly_value::keys::{self, TypeBits};
use mayfly_work::{OpCtx, current};

use crate::catalog::{Collection, Core, Index};
use crate::read::{Entry, Scanned};
use crate::record::error::from_kv;
use crate::record::layout::object_range;

/// Records looked at between two looks at the deadline.
const CHECK_EVERY: i64 = 256;
/// Entries from which the size of others is guessed.
const SAMPLE_ENTRIES: usize = 100;

/// The sizes of one collection.
pub struct CollectionSizes {
    /// Documents.
    pub documents: i64,
    /// Bytes of BSON.
    pub data_bytes: i64,
    /// Bytes of its records in the engine, roughly.
    pub storage_bytes: u64,
    /// Bytes of its index on `_id`; nothing where records are clustered by that.
    pub id_index_bytes: Option<u64>,
    /// Its other indexes, each with its bytes in the engine.
    pub indexes: Vec<(Arc<Index>, u64)>,
}

/// What was counted in a part of a collection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Documents.
    pub documents: i64,
    /// Bytes of BSON.
    pub bytes: i64,
    /// It ended at a limit.
    pub cut_off: bool,
}

/// Where counting ends.
#[derive(Clone, Copy, Debug, Default)]
pub struct CountLimit {
    /// Most bytes.
    pub bytes: Option<i64>,
    /// Most documents.
    pub documents: Option<i64>,
}

/// A count in the making.
struct Tally<'o> {
    op: &'o OpCtx,
    limit: CountLimit,
    counted: Counted,
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
    /// Number of documents: at once when it is known, else by counting (after a crash).
    ///
    /// # Errors
    /// Those of the engine.
    pub fn count_documents(&self, op: &OpCtx, collection: &Collection) -> Result<i64> {
        if !collection.counts.exact.load(Ordering::Acquire) {
            self.recount(op, collection)?;
        }
        Ok(collection.counts.documents.load(Ordering::Acquire).max(0))
    }

    /// Bytes of BSON, as exact as the count.
    pub fn data_bytes(&self, collection: &Collection) -> i64 {
        collection.counts.bytes.load(Ordering::Acquire).max(0)
    }

    /// Counts a snapshot while writers go on: their changes add to a counter that begins at the snapshot.
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
                ScanLimit::NONE,
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
                Scanned::Exhausted => break,
                Scanned::Paused(last) => range = range.after(&last, Direction::Forward),
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
    /// Those of the engine and of the operation's deadline.
    pub fn sizes(&self, op: &OpCtx, collection: &Collection) -> Result<CollectionSizes> {
        let documents = self.count_documents(op, collection)?;
        let bytes_of = |keyspace, id| self.bytes_of(keyspace, id, documents);
        let mut indexes = Vec::new();
        for index in collection.indexes() {
            let bytes = bytes_of(Keyspace::Index, index.id())?;
            indexes.push((index, bytes));
        }
        Ok(CollectionSizes {
            documents,
            data_bytes: self.data_bytes(collection),
            id_index_bytes: collection
                .id_index_id()
                .map(|id| bytes_of(Keyspace::Index, id))
                .transpose()?,
            storage_bytes: bytes_of(Keyspace::Record, collection.id())?,
            indexes,
        })
    }

    /// About how many bytes a collection and its indexes take in the engine. Nothing is counted for it, so that it is quick
    /// after a crash, too.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn engine_bytes(&self, collection: &Collection) -> Result<u64> {
        let documents = collection.counts.documents.load(Ordering::Acquire);
        let mut bytes = self.bytes_of(Keyspace::Record, collection.id(), documents)?;
        for id in collection.index_ids() {
            bytes += self.bytes_of(Keyspace::Index, id, documents)?;
        }
        Ok(bytes)
    }

    /// Asks the engine to give back the space that a collection and its indexes need no more; gives about how many bytes came
    /// back.
    ///
    /// # Errors
    /// Those of the engine and of the operation's deadline, which is looked at between the parts.
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
        Ok(freed)
    }

    /// About how many bytes the log takes in the engine, with what is kept for it.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn oplog_bytes(&self) -> Result<u64> {
        let sizes = self.oplog.sizes()?;
        match sizes.stored_bytes {
            0 => self.bytes_in(Keyspace::Oplog, &whole_log(), sizes.entries),
            stored => Ok(stored),
        }
    }

    /// About how many bytes versions of records take that are kept for the log only.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn kept_bytes(&self) -> Result<u64> {
        self.engine().approximate_bytes(Keyspace::Kept, &whole_log()).map_err(from_kv)
    }

    /// Bytes of an object in the engine.
    fn bytes_of(&self, keyspace: Keyspace, id: u64, documents: i64) -> Result<u64> {
        self.bytes_in(keyspace, &object_range(id), documents)
    }

    /// Bytes of a range in the engine, which has this many rows. What only lies in the write-ahead log and in memory an engine may not count:
    /// that is estimated from a sample.
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

    /// Counts documents over one snapshot: those in a range of record keys, or of the keys of an index.
    ///
    /// # Errors
    /// Those of the engine and of the operation's deadline.
    pub fn count_range(
        &self,
        op: &OpCtx,
        collection: &Collection,
        index: Option<&Index>,
        range: &KeyRange,
        limit: CountLimit,
    ) -> Result<Counted> {
        let snapshot = self.latest()?;
        let mut tally = Tally { op, limit, counted: Counted::default() };
        let mut rest = range.clone();
        let (forward, all) = (Direction::Forward, ScanLimit::NONE);
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
                Scanned::Paused(last) if !tally.counted.cut_off => {
                    rest = rest.after(&last, forward);
                }
                Scanned::Paused(_) | Scanned::Exhausted => return Ok(tally.counted),
            }
        }
    }
}

/// All entries of the operation log, or all versions that are kept for it.
fn whole_log() -> KeyRange {
    KeyRange { start: vec![0], end: vec![0xFF; 9] }
}

/// The position of these values in the order of an index, or of `_id` without one: bounds begin and end there.
pub fn position_of(index: Option<&Index>, values: RawDoc<'_>) -> Vec<u8> {
    let mut position = Vec::new();
    let mut bits = TypeBits::default();
    let values = values.iter().map(|element| element.value());
    match index {
        None => values.take(1).for_each(|value| {
            keys::append_value(&mut position, &mut bits, value, false);
        }),
        Some(index) => {
            for (value, field) in values.zip(index.spec.fields()) {
                keys::append_value(&mut position, &mut bits, value, field.descending);
            }
        }
    }
    position
}
