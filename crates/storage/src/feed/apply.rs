//! Brings the entries of documents up to date.
//!
//! The document is read in its present version, which may be newer than the entry of the log that
//! names it; the later entries then find nothing to do. So the order of the log's entries does not
//! matter here, and a step that is repeated after a crash has the same result.

use std::collections::HashSet;

use mayfly_base::{ClientData, Error, ErrorCode, Result};
use mayfly_kv::{Guard, Keyspace, Txn, TxnOptions};

use super::FeedJob;
use super::reverse::Entries;
use crate::catalog::{FeedRow, Index};
use crate::index::keygen::KeySet;
use crate::index::kinds::entry_keys;
use crate::record::error::from_kv;
use crate::record::layout::{catalog_key, decode_stored, decode_unique_value, prefixed};
use crate::record::{IdKey, Record, RecordKey};
use crate::shared::back_off;
use crate::write::most_tries;

/// The most documents in one transaction.
const UNIT_DOCUMENTS: usize = if cfg!(test) { 5 } else { 256 };

impl FeedJob<'_> {
    /// Brings the entries of these documents up to date. The last transaction also writes the row.
    pub(super) fn apply_entries(
        &self,
        index: &Index,
        ids: &[IdKey],
        row: Option<FeedRow>,
    ) -> Result<()> {
        EntriesJob { job: self, index }.apply(ids, row)
    }
}

/// A step of an index whose entries are in the byte store.
struct EntriesJob<'j> {
    job: &'j FeedJob<'j>,
    index: &'j Index,
}

impl EntriesJob<'_> {
    fn apply(&self, ids: &[IdKey], row: Option<FeedRow>) -> Result<()> {
        let mut units = ids.chunks(UNIT_DOCUMENTS).peekable();
        while let Some(unit) = units.next() {
            self.job.op.check()?;
            let last = units.peek().is_none();
            self.transact(|txn| {
                unit.iter().try_for_each(|id| self.apply_one(txn, id))?;
                self.put_row(txn, row.filter(|_| last))
            })?;
        }
        if let Some(row) = row {
            if ids.is_empty() {
                self.transact(|txn| self.put_row(txn, Some(row)))?;
            }
            self.job.feed.note_row(row);
        }
        Ok(())
    }

    fn put_row(&self, txn: &mut dyn Txn, row: Option<FeedRow>) -> Result<()> {
        let Some(row) = row else { return Ok(()) };
        let key = catalog_key::feed(self.index.id());
        txn.put(Keyspace::Catalog, &key, &row.encode(), Guard::Checked).map_err(from_kv)
    }

    /// Runs an engine transaction until it is committed. It holds the collection's state shared, so
    /// that nothing is written into the range of an index that is dropped.
    fn transact(&self, mut body: impl FnMut(&mut dyn Txn) -> Result<()>) -> Result<()> {
        let mut tries = 0;
        loop {
            let attempt = {
                let _state = self.job.collection.read_state()?;
                self.job.store.check_fed(self.job.collection, self.index)?;
                self.try_transact(&mut body)
            };
            match attempt {
                Err(error) if tries < most_tries(&error) => {
                    self.job.op.check()?;
                    tries += 1;
                    back_off(tries);
                }
                other => return other,
            }
        }
    }

    fn try_transact(&self, body: &mut impl FnMut(&mut dyn Txn) -> Result<()>) -> Result<()> {
        let mut txn = self.job.store.engine().begin(TxnOptions::default()).map_err(from_kv)?;
        body(&mut *txn)?;
        txn.commit().map_err(from_kv)?;
        self.job.store.note_commit();
        Ok(())
    }

    fn apply_one(&self, txn: &mut dyn Txn, id: &IdKey) -> Result<()> {
        let row = prefixed(self.index.id(), id);
        let before = read_row(txn, &row)?;
        let now = self.present(txn, id)?;
        if before == now {
            return Ok(());
        }
        let of = |entries: Option<Entries>| entries.unwrap_or_default();
        let (known, before, now) = (now.is_some(), of(before), of(now));
        let same = before.record_key == now.record_key;
        let kept: HashSet<&[u8]> = match same {
            true => now.list.iter().map(|(values, _)| values.as_slice()).collect(),
            false => HashSet::new(),
        };
        for (values, _) in before.list.iter().filter(|(values, _)| !kept.contains(&values[..])) {
            let key = self.entry(values, &before.record_key);
            txn.delete(Keyspace::Index, &key, Guard::Derived).map_err(from_kv)?;
        }
        let had: HashSet<&(Vec<u8>, Vec<u8>)> = match same {
            true => before.list.iter().collect(),
            false => HashSet::new(),
        };
        for added in now.list.iter().filter(|entry| !had.contains(entry)) {
            let key = self.entry(&added.0, &now.record_key);
            txn.put(Keyspace::Index, &key, &added.1, Guard::Derived).map_err(from_kv)?;
        }
        match known {
            true => txn.put(Keyspace::Record, &row, &now.encode(), Guard::Derived),
            false => txn.delete(Keyspace::Record, &row, Guard::Derived),
        }
        .map_err(from_kv)
    }

    fn entry(&self, values: &[u8], record_key: &[u8]) -> Vec<u8> {
        let mut key = prefixed(self.index.id(), values);
        key.extend_from_slice(record_key);
        key
    }

    /// The entries that a document should have; `None` if it has none.
    fn present(&self, txn: &dyn Txn, id: &IdKey) -> Result<Option<Entries>> {
        let Some(record_key) = self.locate(txn, id)? else { return Ok(None) };
        let mut keys = KeySet::default();
        let key = prefixed(self.job.collection.id(), &record_key);
        txn.get(Keyspace::Record, &key, &mut |value| {
            let made = decode_stored(value).and_then(|record| self.keys_of(record, &mut keys));
            if let Err(error) = made {
                keys.clear();
                let (index, why) = (self.index.spec.name(), ClientData(error));
                tracing::debug!(index, %why, "a document has no entries in a log-fed index");
            }
        })
        .map_err(from_kv)?;
        Ok((keys.len() > 0).then(|| Entries::new(record_key, &keys)))
    }

    fn keys_of(&self, record: Record<'_>, keys: &mut KeySet) -> Result<()> {
        match self.index.covers(record.document)? {
            true => entry_keys(&self.index.spec, record, keys),
            false => Ok(()),
        }
    }

    /// The key of the record with this `_id`.
    fn locate(&self, txn: &dyn Txn, id: &IdKey) -> Result<Option<RecordKey>> {
        let Some(id_index) = self.job.collection.id_index_id() else { return Ok(Some(id.clone())) };
        let mut found = None;
        let see = &mut |value: &[u8]| {
            found = decode_unique_value(value).map(|(record_key, _)| record_key.to_vec());
        };
        txn.get(Keyspace::Index, &prefixed(id_index, id), see).map_err(from_kv)?;
        Ok(found)
    }
}

/// The entries that a document has.
///
/// # Errors
/// 301 DataCorruptionDetected.
fn read_row(txn: &dyn Txn, row: &[u8]) -> Result<Option<Entries>> {
    let (mut found, mut damaged) = (None, false);
    txn.get(Keyspace::Record, row, &mut |value| {
        found = Entries::decode(value);
        damaged = found.is_none();
    })
    .map_err(from_kv)?;
    if damaged {
        let text = "a row of a log-fed index cannot be read";
        return Err(Error::new(ErrorCode::DataCorruptionDetected, text));
    }
    Ok(found)
}
