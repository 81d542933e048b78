//! Entries that are applied in one write unit.
//!
//! A unit costs a commit, and each document that is looked up on its own costs a round trip to a
//! remote engine. Entries in a row that write different documents therefore share a unit, in which
//! the documents are looked up together. The position of the replay is that of the last entry, in
//! the same engine transaction: after a crash all entries of the unit were applied, or none.
//!
//! Each document gets the time of its own entry. An entry with a change of a definition, and one
//! that writes to a capped collection, has units of its own.

use std::collections::HashSet;
use std::sync::Arc;

use mayfly_base::Result;
use mayfly_value::RawDoc;

use super::operation::{Change, Operation};
use super::{Replay, missing_document};
use crate::WriteUnit;
use crate::catalog::Collection;
use crate::record::{IdKey, RecordKey};

/// The most writes of a batch before its last entry.
const MAX_WRITES: usize = 256;
/// The most bytes of entries of a batch before its last one.
const MAX_BYTES: usize = 2 << 20;

/// A document: the UUID of its collection, and its `_id`.
pub(super) type DocumentName = ([u8; 16], IdKey);

/// A change of a document in a batch.
pub(super) struct BatchWrite<'e> {
    pub(super) operation: Operation<'e>,
    /// The wall time of its entry, if the entry has one.
    pub(super) wall_ms: Option<i64>,
}

/// Entries in a row.
#[derive(Default)]
pub(super) struct Batch<'e> {
    pub(super) writes: Vec<BatchWrite<'e>>,
    documents: HashSet<DocumentName>,
    bytes: usize,
    /// The times of the first and of the last entry; 0 without entries.
    pub(super) times: (u64, u64),
}

impl<'e> Batch<'e> {
    pub(super) fn is_empty(&self) -> bool {
        self.times == (0, 0)
    }

    pub(super) fn is_full(&self) -> bool {
        self.writes.len() >= MAX_WRITES || self.bytes >= MAX_BYTES
    }

    /// Adds an entry with these operations and documents.
    pub(super) fn push(
        &mut self,
        (timestamp, wall_ms): (u64, Option<i64>),
        entry: RawDoc<'e>,
        operations: Vec<Operation<'e>>,
        documents: Vec<DocumentName>,
    ) {
        let first = if self.is_empty() { timestamp } else { self.times.0 };
        self.times = (first, timestamp);
        self.bytes += entry.as_bytes().len();
        self.documents.extend(documents);
        let write = |operation| BatchWrite { operation, wall_ms };
        self.writes.extend(operations.into_iter().map(write));
    }

    /// Whether the batch writes one of these documents.
    pub(super) fn writes_any(&self, documents: &[DocumentName]) -> bool {
        documents.iter().any(|document| self.documents.contains(document))
    }
}

impl Replay {
    /// The documents that an entry writes, if it can share a unit with other entries.
    pub(super) fn documents_of(
        &mut self,
        operations: &[Operation<'_>],
    ) -> Result<Option<Vec<DocumentName>>> {
        let mut documents = Vec::with_capacity(operations.len());
        for operation in operations {
            let Change::Document { id, .. } = &operation.change else { return Ok(None) };
            let collection = self.collection(operation)?;
            if collection.capped().is_some() {
                return Ok(None);
            }
            documents.push((collection.uuid(), collection.id_key(*id)));
        }
        Ok(Some(documents))
    }
}

/// Makes the changes of one collection, in their order.
pub(super) fn apply_writes(
    unit: &mut WriteUnit<'_>,
    collection: &Arc<Collection>,
    writes: &[&BatchWrite<'_>],
) -> Result<()> {
    let changes = || {
        writes.iter().filter_map(|write| match &write.operation.change {
            Change::Document { id, change } => Some((*write, *id, change)),
            _ => None,
        })
    };
    let ids: Vec<IdKey> = changes().map(|(_, id, _)| collection.id_key(id)).collect();
    let are_known = unit.expect_ids(ids.iter())?;
    let located = |id: &IdKey| unit.located(id).cloned().unwrap_or_default();
    let keys: Vec<RecordKey> = ids.iter().map(located).collect();
    let mut written = HashSet::new();
    for (at, (write, id, change)) in changes().enumerate() {
        if let Some(wall_ms) = write.wall_ms {
            unit.set_wall_ms(wall_ms);
        }
        unit.expect_reads(&keys, at)?;
        // An earlier write of the unit may have inserted it.
        let is_missing = are_known && keys[at].is_empty() && written.insert(&ids[at]);
        let found = match is_missing {
            true => unit.replay_missing(id, change)?,
            false => unit.replay_own(id, change)?,
        };
        if !found {
            return Err(missing_document(&write.operation));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use mayfly_base::Clock;
    use mayfly_kv::{RoundTripCounter, RoundTrips};
    use mayfly_value::DocBuf;
    use mayfly_value::bson::{DateTime, Document, Timestamp, Uuid, doc};

    use super::*;
    use crate::isolation::ReadView;
    use crate::testing::{self, NOW, ns};
    use crate::{Direction, ScanLimit, StoreOptions, whole_range};

    const COUNT: u32 = 200;

    fn entry(time: u32, more: Document) -> DocBuf {
        let wall = DateTime::from_millis(NOW + i64::from(time) * 1000);
        let ts = Timestamp { time, increment: 1 };
        let mut entry = doc! { "ns": "d.c", "ui": Uuid::from_bytes([7; 16]), "ts": ts };
        entry.insert("wall", wall);
        entry.extend(more);
        DocBuf::from_bson(&entry)
    }

    fn insert(time: u32, id: u32) -> DocBuf {
        entry(time, doc! { "op": "i", "o": { "_id": id, "a": 0 } })
    }

    fn update(time: u32, id: u32) -> DocBuf {
        let delta = doc! { "$v": 2, "diff": { "u": { "a": time } } };
        entry(time, doc! { "op": "u", "o": delta, "o2": { "_id": id } })
    }

    fn open() -> (Replay, Arc<RoundTripCounter>) {
        let counter = Arc::<RoundTripCounter>::default();
        let engine = Arc::new(RoundTrips::new(testing::memory(), counter.clone()));
        let replay = Replay::open(engine, StoreOptions::default().filters).unwrap();
        replay.store.create_defined(&ns("d.c"), DocBuf::empty(), [7; 16], &[]).unwrap();
        counter.take();
        (replay, counter)
    }

    /// The documents with the times of their last changes, in seconds after `NOW`.
    fn documents(replay: &Replay) -> Vec<(i64, Document)> {
        let snapshot = replay.store.snapshot(&ReadView::now()).unwrap();
        let collection = replay.collection_with([7; 16]).unwrap();
        let (mut found, whole) = (Vec::new(), whole_range());
        snapshot
            .scan_stored(&collection, &whole, Direction::Forward, ScanLimit::NONE, &mut |_, it| {
                let document = Document::from_reader(it.document.as_bytes()).unwrap();
                found.push(((it.modified_ms - NOW) / 1000, document));
                Ok(std::ops::ControlFlow::Continue(()))
            })
            .unwrap();
        found
    }

    fn apply(replay: &mut Replay, entries: &[DocBuf]) -> Result<()> {
        replay.apply_all(&entries.iter().map(DocBuf::as_doc).collect::<Vec<_>>())
    }

    #[test]
    fn entries_of_different_documents_share_round_trips_and_keep_their_times() {
        let (mut replay, counter) = open();
        let inserts: Vec<DocBuf> = (1..=COUNT).map(|n| insert(n, n)).collect();
        apply(&mut replay, &inserts).unwrap();
        let trips = counter.take();
        assert!(trips < 10, "{trips} round trips for {COUNT} inserts");
        let updates: Vec<DocBuf> = (1..=COUNT).map(|n| update(1000 + n, n)).collect();
        apply(&mut replay, &updates).unwrap();
        let trips = counter.take();
        assert!(trips < 20, "{trips} round trips for {COUNT} updates");
        let (found, expected) =
            (documents(&replay), |n: u32| (i64::from(1000 + n), doc! { "_id": n, "a": 1000 + n }));
        assert_eq!(found, (1..=COUNT).map(expected).collect::<Vec<_>>());
        assert_eq!(replay.position(), u64::from(1000 + COUNT) << 32 | 1);
        assert_eq!(replay.clock.now_ms(), NOW + i64::from(1000 + COUNT) * 1000);
    }

    #[test]
    fn a_document_that_is_written_again_begins_another_unit() {
        let (mut replay, _) = open();
        let remove = entry(4, doc! { "op": "d", "o": { "_id": 1 } });
        let entries =
            [insert(1, 1), insert(2, 2), update(3, 1), remove, insert(5, 1), update(6, 2)];
        apply(&mut replay, &entries).unwrap();
        let mut found = documents(&replay);
        found.sort_by_key(|(time, _)| *time);
        let expected = [(5, doc! { "_id": 1_u32, "a": 0 }), (6, doc! { "_id": 2_u32, "a": 6_u32 })];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_batch_with_an_entry_that_fails_is_not_applied() {
        let (mut replay, _) = open();
        let entries = [insert(1, 1), insert(2, 2), insert(3, 2), insert(4, 4), update(5, 9)];
        let error = apply(&mut replay, &entries).unwrap_err();
        assert_eq!(error.code().0, 301);
        assert_eq!((documents(&replay).len(), replay.position()), (2, 2 << 32 | 1));
        // It goes on there.
        apply(&mut replay, &entries[..4]).unwrap();
        assert_eq!((documents(&replay).len(), replay.position()), (3, 4 << 32 | 1));
    }
}
