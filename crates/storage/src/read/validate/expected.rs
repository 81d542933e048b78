//! Entries of indexes that the checked documents must have. Many are looked up together.

use std::ops::ControlFlow;

use mayfly_base::Result;
use mayfly_kv::Keyspace;
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue};

use crate::catalog::Index;
use crate::read::Snapshot;
use crate::record::RecordKey;
use crate::record::error::from_kv;
use crate::record::layout::{decode_unique_value, prefixed};

/// How many entries, or records, are collected.
const LOOKED_UP_TOGETHER: usize = 1000;

/// The collected entries.
#[derive(Default)]
pub(super) struct Expected {
    entries: Vec<ExpectedEntry>,
    /// The keys of the records, and documents with their `_id`s.
    records: Vec<(RecordKey, DocBuf)>,
}

struct ExpectedEntry {
    /// The place of its index among those that are checked.
    index: usize,
    /// The place of its record.
    record: usize,
    /// The stored key, which begins with the id of the index and the values.
    key: Vec<u8>,
    values_end: usize,
    bits: Vec<u8>,
    unique: bool,
}

/// An entry that is missing.
pub(super) struct Missing<'e> {
    pub(super) index: usize,
    pub(super) record_key: &'e [u8],
    /// A document with only the `_id`.
    pub(super) id: &'e DocBuf,
    pub(super) values: &'e [u8],
    pub(super) bits: &'e [u8],
}

impl ExpectedEntry {
    /// Whether this is the value that the entry must have.
    fn has(&self, value: &[u8], record_key: &[u8]) -> bool {
        match self.unique {
            true => decode_unique_value(value) == Some((record_key, &self.bits)),
            false => value == self.bits,
        }
    }
}

impl Expected {
    /// Begins with the entries of another record.
    pub(super) fn begin_record(&mut self, record_key: &[u8], document: RawDoc<'_>) {
        let mut id = DocBuilder::new();
        id.append("_id", document.get("_id").unwrap_or(RawValue::Null));
        self.records.push((record_key.to_vec(), id.finish()));
    }

    /// Adds an entry of the last record, of the index at this place.
    pub(super) fn push(&mut self, (at, index): (usize, &Index), values: &[u8], bits: &[u8]) {
        let Some(record) = self.records.len().checked_sub(1) else { return };
        let mut key = prefixed(index.id(), values);
        let (values_end, unique) = (key.len(), index.spec.unique());
        if !unique {
            key.extend_from_slice(&self.records[record].0);
        }
        let bits = bits.to_vec();
        self.entries.push(ExpectedEntry { index: at, record, key, values_end, bits, unique });
    }

    /// Whether it is time to look them up.
    pub(super) fn is_full(&self) -> bool {
        self.entries.len().max(self.records.len()) >= LOOKED_UP_TOGETHER
    }

    /// Passes those that the snapshot lacks, in the order in which they were added.
    ///
    /// # Errors
    /// Errors of the engine.
    pub(super) fn each_missing(
        &self,
        snapshot: &Snapshot,
        mut see: impl FnMut(Missing<'_>),
    ) -> Result<()> {
        let keys: Vec<&[u8]> = self.entries.iter().map(|entry| entry.key.as_slice()).collect();
        let mut present = vec![false; keys.len()];
        let mut note = |at: usize, value: &[u8]| {
            let entry = &self.entries[at];
            present[at] = entry.has(value, &self.records[entry.record].0);
            ControlFlow::Continue(())
        };
        snapshot.txn.multi_get(Keyspace::Index, &keys, &mut note).map_err(from_kv)?;
        for (entry, _) in self.entries.iter().zip(present).filter(|(_, present)| !present) {
            let (record_key, id) = &self.records[entry.record];
            let (values, bits) = (&entry.key[8..entry.values_end], &entry.bits);
            see(Missing { index: entry.index, record_key, id, values, bits });
        }
        Ok(())
    }
}
