//! Reading together what single reads would look up one by one: records of many keys, entries of many ranges.

use std::ops::ControlFlow;

use mayfly_base::Result;
use mayfly_kv::{Direction, KeyRange, Keyspace};
use mayfly_value::RawDoc;

use super::{Entry, Hidden, Scanned, Snapshot, entry, relative};
use crate::catalog::{Collection, Index};
use crate::record::error::from_kv;
use crate::record::layout::object_subrange;

/// Length of what stands before a record's key in the byte store.
const PREFIX: usize = 8;

/// Bytes of a record's number.
const NUMBER_BYTES: usize = 8;

/// Keys of records of one collection, to be read together.
#[derive(Debug)]
pub struct RecordKeys {
    prefix: [u8; PREFIX],
    /// The keys one after the other, as they are in the byte store.
    bytes: Vec<u8>,
    /// Where each ends.
    ends: Vec<usize>,
}

/// Sees documents of records that are read together: the place of the key, the document, which lives only for the call.
pub type RecordsVisitor<'v> = dyn FnMut(usize, RawDoc<'_>) -> Result<ControlFlow<()>> + 'v;

/// Sees entries of several ranges: the place of the range, the entry, which lives only for the call.
pub type RangesVisitor<'v> = dyn FnMut(usize, Entry<'_>) -> Result<ControlFlow<()>> + 'v;

impl RecordKeys {
    /// None yet.
    pub fn of(collection: &Collection) -> RecordKeys {
        let prefix = collection.id().to_be_bytes();
        RecordKeys { prefix, bytes: Vec::new(), ends: Vec::new() }
    }

    /// Makes room for so many more of the usual length.
    pub fn reserve(&mut self, keys: usize) {
        self.ends.reserve(keys);
        self.bytes.reserve(keys * (PREFIX + NUMBER_BYTES));
    }

    /// Adds a key.
    pub fn push(&mut self, record_key: &[u8]) {
        self.bytes.extend_from_slice(&self.prefix);
        self.bytes.extend_from_slice(record_key);
        self.ends.push(self.bytes.len());
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Takes all of them out.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    /// One of them.
    pub fn get(&self, at: usize) -> Option<&[u8]> {
        self.stored(at)?.get(PREFIX..)
    }

    fn stored(&self, at: usize) -> Option<&[u8]> {
        let start = at.checked_sub(1).map_or(0, |before| self.ends[before]);
        self.bytes.get(start..*self.ends.get(at)?)
    }
}

impl Snapshot {
    /// Shows the documents of these records in the order of the keys, until the visitor breaks off. Left out are keys without a
    /// record, and records that must not be seen.
    ///
    /// # Errors
    /// Those of the visitor, 301 DataCorruptionDetected, those of the engine.
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

    /// Visits the index entries of several ranges of positions, as [`Snapshot::scan_index`] does of each: they are disjoint and in
    /// the order of the scan. Gives the place of the range at which it ended, and how that one did.
    ///
    /// # Errors
    /// Those of the visitor, those of the engine.
    pub fn scan_index_ranges<'r>(
        &self,
        index: &Index,
        ranges: impl Iterator<Item = &'r KeyRange>,
        direction: Direction,
        visit: &mut RangesVisitor<'_>,
    ) -> Result<(usize, Scanned)> {
        let ranges: Vec<_> = ranges.map(|range| object_subrange(index.id(), range)).collect();
        let mut failed = None;
        let ended =
            self.txn.scan_ranges(Keyspace::Index, &ranges, direction, &mut |at, key, value| {
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
