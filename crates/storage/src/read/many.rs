//! Batched reads: the records of many keys, the index entries of many ranges.

use std::ops::ControlFlow;

use mayfly_base::Result;
use mayfly_kv::{Direction, KeyRange, Keyspace};
use mayfly_value::RawDoc;

use super::{Entry, Hidden, ScanResult, Snapshot, entry, relative};
use crate::catalog::{Collection, Index};
use crate::record::error::from_kv;
use crate::record::layout::{ObjectKey, decode_unique_value, object_subrange};

/// The length of the collection's id before a record key in the byte store.
const PREFIX: usize = 8;

/// The length of a record number.
const NUMBER_BYTES: usize = 8;

/// Record keys of one collection, to be read together.
#[derive(Debug)]
pub struct RecordKeys {
    prefix: [u8; PREFIX],
    /// The keys as in the byte store, concatenated.
    bytes: Vec<u8>,
    /// The end of each key in `bytes`.
    ends: Vec<usize>,
}

/// Visits documents of a batched read: the index of the key, and the document, valid during the
/// call.
pub type RecordsVisitor<'v> = dyn FnMut(usize, RawDoc<'_>) -> Result<ControlFlow<()>> + 'v;

/// Visits entries of several ranges: the index of the range, and the entry, valid during the call.
pub type RangesVisitor<'v> = dyn FnMut(usize, Entry<'_>) -> Result<ControlFlow<()>> + 'v;

impl RecordKeys {
    /// An empty list for this collection.
    pub fn of(collection: &Collection) -> RecordKeys {
        let prefix = collection.id().to_be_bytes();
        RecordKeys { prefix, bytes: Vec::new(), ends: Vec::new() }
    }

    /// Reserves memory for this many further keys of the usual length.
    pub fn reserve(&mut self, keys: usize) {
        self.ends.reserve(keys);
        self.bytes.reserve(keys * (PREFIX + NUMBER_BYTES));
    }

    /// Appends a key.
    pub fn push(&mut self, record_key: &[u8]) {
        self.bytes.extend_from_slice(&self.prefix);
        self.bytes.extend_from_slice(record_key);
        self.ends.push(self.bytes.len());
    }

    /// The number of keys.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are no keys.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Removes all keys.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    /// The key at this index.
    pub fn get(&self, at: usize) -> Option<&[u8]> {
        self.stored(at)?.get(PREFIX..)
    }

    fn stored(&self, at: usize) -> Option<&[u8]> {
        let start = at.checked_sub(1).map_or(0, |before| self.ends[before]);
        self.bytes.get(start..*self.ends.get(at)?)
    }
}

impl Snapshot {
    /// Visits the documents of these records in the order of the keys, until the visitor breaks.
    /// Keys without a record, and hidden records, are skipped.
    ///
    /// # Errors
    /// Errors of the visitor, 301 DataCorruptionDetected, errors of the engine.
    pub fn records(
        &self,
        collection: &Collection,
        keys: &RecordKeys,
        see: &mut RecordsVisitor<'_>,
    ) -> Result<()> {
        let hidden = Hidden::of(collection, &self.watch, || self.moment);
        let mut failed = Ok(());
        let mut show = |at: usize, value: &[u8]| {
            let shown = hidden.visible(value).and_then(|document| match document {
                Some(document) => see(at, document),
                None => Ok(ControlFlow::Continue(())),
            });
            shown.unwrap_or_else(|error| {
                failed = Err(error);
                ControlFlow::Break(())
            })
        };
        if let (1, Some(key)) = (keys.len(), keys.stored(0)) {
            let show = &mut |value: &[u8]| {
                let _ = show(0, value);
            };
            self.txn.get(Keyspace::Record, key, show).map_err(from_kv)?;
        } else {
            let stored: Vec<&[u8]> = (0..keys.len()).filter_map(|at| keys.stored(at)).collect();
            self.txn.multi_get(Keyspace::Record, &stored, &mut show).map_err(from_kv)?;
        }
        failed
    }

    /// Visits the documents whose `_id`s have these ordered keys, in their order, until the visitor
    /// breaks. Absent and hidden ones are skipped.
    ///
    /// # Errors
    /// Errors of the visitor, 301 DataCorruptionDetected, errors of the engine.
    pub fn documents_by_id(
        &self,
        collection: &Collection,
        ids: &[&[u8]],
        see: &mut RecordsVisitor<'_>,
    ) -> Result<ControlFlow<()>> {
        let (mut keys, mut places) = (RecordKeys::of(collection), Vec::new());
        match collection.id_index_id() {
            None => {
                ids.iter().for_each(|id| keys.push(id));
                places.extend(0..ids.len());
            }
            Some(index) => {
                let entries: Vec<_> = ids.iter().map(|id| ObjectKey::new(index, id)).collect();
                let entries: Vec<&[u8]> = entries.iter().map(|entry| &**entry).collect();
                let mut note = |at: usize, value: &[u8]| {
                    if let Some((record_key, _)) = decode_unique_value(value) {
                        keys.push(record_key);
                        places.push(at);
                    }
                    ControlFlow::Continue(())
                };
                self.txn.multi_get(Keyspace::Index, &entries, &mut note).map_err(from_kv)?;
            }
        }
        let mut flow = ControlFlow::Continue(());
        self.records(collection, &keys, &mut |at, document| {
            flow = see(places[at], document)?;
            Ok(flow)
        })?;
        Ok(flow)
    }

    /// Visits the index entries of several ranges of positions as [`Snapshot::scan_index`] does.
    /// The ranges are disjoint and in the order of the scan. The visitor probably wants `page`
    /// entries. Returns the index of the range at which it ended, and the end of the scan in it.
    ///
    /// # Errors
    /// Errors of the visitor, errors of the engine.
    pub fn scan_index_ranges<'r>(
        &self,
        index: &Index,
        ranges: impl Iterator<Item = &'r KeyRange>,
        (direction, page): (Direction, usize),
        visit: &mut RangesVisitor<'_>,
    ) -> Result<(usize, ScanResult)> {
        let ranges: Vec<_> = ranges.map(|range| object_subrange(index.id(), range)).collect();
        let mut failed = None;
        let pages = (direction, page);
        let ended = self.txn.scan_ranges(Keyspace::Index, &ranges, pages, &mut |at, key, value| {
            let Some(entry) = entry(index, &key[PREFIX..], value) else {
                return ControlFlow::Continue(());
            };
            visit(at, entry).unwrap_or_else(|error| {
                failed = Some(error);
                ControlFlow::Break(())
            })
        });
        let (at, end) = ended.map_err(from_kv)?;
        match failed {
            Some(error) => Err(error),
            None => Ok((at, relative(end))),
        }
    }
}
