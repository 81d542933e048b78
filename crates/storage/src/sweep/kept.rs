//! Keeps the versions of a dropped collection that the log refers to, before its records are
//! cleared.
//!
//! A mark in the catalog says that this was done: after a sweep has begun to clear records, no row
//! may be written a second time, because it would replace one with more versions.
//!
//! A record's header has the timestamp of the entry that refers to it. A small collection is
//! scanned completely. Most records of a large one are older than the log's window, so the log is
//! scanned instead, and the records that its entries name.

use mayfly_base::Result;
use mayfly_kv::{Guard, KeyRange, Keyspace, TxnOptions};

use crate::Store;
use crate::oplog::{records_of, visit_all};
use crate::record::error::from_kv;
use crate::record::kept::{KeptRows, KeptVersion};
use crate::record::layout::{catalog_key, decode_retired, object_range};

/// A smaller collection is scanned completely, whatever the log's size is.
const SMALL_BYTES: u64 = 16 << 20;
/// The bytes of documents that are kept in one transaction.
const BATCH_BYTES: usize = 1 << 20;

/// The value of a dropped object's row after all its versions were kept.
const KEPT: [u8; 1] = [1];

/// Versions for the next transaction.
#[derive(Default)]
struct Batch {
    kept: KeptRows,
    rows: Vec<(Vec<u8>, Vec<u8>)>,
    bytes: usize,
}

impl Store {
    /// Keeps the versions in dropped collections that entries of the log refer to, once. There are
    /// no writers any more, and nothing may be swept before this has returned.
    ///
    /// # Errors
    /// Errors of the engine.
    pub(crate) fn keep_logged_versions(&self, dropped: &[u64]) -> Result<()> {
        let mut now = Vec::new();
        for id in dropped {
            let mut done = false;
            let see = &mut |value: &[u8]| done = value == KEPT;
            self.engine()
                .get_once(Keyspace::Catalog, &catalog_key::dropped(*id), see)
                .map_err(from_kv)?;
            if !done {
                self.keep_versions_in(*id)?;
                now.push(catalog_key::dropped(*id));
            }
        }
        self.put_marks(&now)
    }

    /// Marks dropped collections whose versions are kept, or need not be.
    ///
    /// # Errors
    /// Errors of the engine.
    pub(crate) fn mark_kept(&self, dropped: &[u64]) -> Result<()> {
        let keys: Vec<_> = dropped.iter().map(|id| catalog_key::dropped(*id)).collect();
        self.put_marks(&keys)
    }

    fn put_marks(&self, keys: &[Vec<u8>]) -> Result<()> {
        self.change(|txn, _| {
            keys.iter().try_for_each(|key| {
                txn.put(Keyspace::Catalog, key, &KEPT, Guard::Checked).map_err(from_kv)
            })
        })
    }

    fn keep_versions_in(&self, id: u64) -> Result<()> {
        let records = object_range(id);
        let log = KeyRange { start: vec![0], end: vec![0xFF; 9] };
        let bytes =
            |keyspace, range| self.engine().approximate_bytes(keyspace, range).map_err(from_kv);
        let stored = bytes(Keyspace::Record, &records)?;
        match stored <= SMALL_BYTES || stored <= bytes(Keyspace::Oplog, &log)? {
            true => self.keep_by_records(id),
            false => self.keep_by_log(id),
        }
    }

    /// Keeps versions by a scan of all records.
    pub(crate) fn keep_by_records(&self, id: u64) -> Result<()> {
        let txn = self.engine().begin(TxnOptions::READ_ONLY).map_err(from_kv)?;
        let mut batch = Batch::default();
        visit_all(&*txn, Keyspace::Record, object_range(id), &mut |key, value| {
            self.keep_version(&mut batch, id, key.get(8..).unwrap_or(&[]), value)
        })?;
        self.put_last(batch)
    }

    /// Keeps versions by a scan of the log and the records that it names.
    pub(crate) fn keep_by_log(&self, id: u64) -> Result<()> {
        let txn = self.engine().begin(TxnOptions::READ_ONLY).map_err(from_kv)?;
        let mut batch = Batch::default();
        let start = self.oplog.cut().saturating_add(1).to_be_bytes().to_vec();
        let window = KeyRange { start, end: vec![0xFF; 9] };
        visit_all(&*txn, Keyspace::Oplog, window, &mut |_, entry| {
            for records in records_of(entry, id) {
                visit_all(&*txn, Keyspace::Record, records?, &mut |key, value| {
                    self.keep_version(&mut batch, id, key.get(8..).unwrap_or(&[]), value)
                })?;
            }
            Ok(())
        })?;
        self.put_last(batch)
    }

    fn keep_version(
        &self,
        batch: &mut Batch,
        id: u64,
        record_key: &[u8],
        value: &[u8],
    ) -> Result<()> {
        // An unreadable record is reported when it is read.
        let Ok(record) = decode_retired(value) else { return Ok(()) };
        let Some(timestamp) = record.logged_at.filter(|timestamp| *timestamp > self.oplog.cut())
        else {
            return Ok(());
        };
        let (document, rows) = (record.document, &mut batch.rows);
        batch.kept.push(
            KeptVersion { timestamp, collection: id, record_key, document },
            &mut |key, value| {
                batch.bytes += value.len();
                rows.push((key.to_vec(), value.to_vec()));
                Ok(())
            },
        )?;
        if batch.bytes >= BATCH_BYTES { self.put_kept(batch) } else { Ok(()) }
    }

    fn put_last(&self, mut batch: Batch) -> Result<()> {
        let rows = &mut batch.rows;
        batch.kept.finish(&mut |key, value| {
            rows.push((key.to_vec(), value.to_vec()));
            Ok(())
        })?;
        self.put_kept(&mut batch)
    }

    fn put_kept(&self, batch: &mut Batch) -> Result<()> {
        let rows = std::mem::take(&mut batch.rows);
        batch.bytes = 0;
        if rows.is_empty() {
            return Ok(());
        }
        self.change(|txn, _| {
            rows.iter().try_for_each(|(key, value)| {
                txn.put(Keyspace::Versions, key, value, Guard::Derived).map_err(from_kv)
            })
        })
    }
}
