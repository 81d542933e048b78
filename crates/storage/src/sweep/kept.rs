//! Keeping what the log refers to before a dropped collection's records are cleared.
//!
//! Records say themselves which entry refers to them. A small collection is read through; of a large one, whose records are mostly
//! older than the log's window, the log is read instead, and the records that it names.

use mayfly_base::Result;
use mayfly_kv::{Guard, KeyRange, Keyspace, TxnOptions};

use crate::Store;
use crate::oplog::{records_of, visit_all};
use crate::record::error::from_kv;
use crate::record::layout::{decode_stored, kept_key, object_range};

/// A collection of fewer bytes than this is read through whatever the log's size is.
const SMALL_BYTES: u64 = 16 << 20;
/// Bytes of documents kept in one transaction.
const BATCH_BYTES: usize = 1 << 20;

/// Documents on their way.
#[derive(Default)]
struct Batch {
    rows: Vec<(Vec<u8>, Vec<u8>)>,
    bytes: usize,
}

impl Store {
    /// Keeps the versions in a dropped collection that entries of the log refer to that are still kept. Nobody writes there any
    /// more. Doing it again does no harm.
    ///
    /// # Errors
    /// Those of the engine.
    pub(super) fn keep_logged_versions(&self, id: u64) -> Result<()> {
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

    /// Looks at every record.
    pub(crate) fn keep_by_records(&self, id: u64) -> Result<()> {
        let txn = self.engine().begin(TxnOptions { read_only: true }).map_err(from_kv)?;
        let mut batch = Batch::default();
        visit_all(&*txn, Keyspace::Record, object_range(id), &mut |key, value| {
            self.keep_version(&mut batch, id, key.get(8..).unwrap_or(&[]), value)
        })?;
        self.put_kept(&mut batch)
    }

    /// Looks at the records that the log names.
    pub(crate) fn keep_by_log(&self, id: u64) -> Result<()> {
        let txn = self.engine().begin(TxnOptions { read_only: true }).map_err(from_kv)?;
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
        self.put_kept(&mut batch)
    }

    fn keep_version(
        &self,
        batch: &mut Batch,
        id: u64,
        record_key: &[u8],
        value: &[u8],
    ) -> Result<()> {
        // What cannot be read is reported where somebody asks for it.
        let Ok(record) = decode_stored(value) else { return Ok(()) };
        let Some(timestamp) = record.logged_at.filter(|timestamp| *timestamp > self.oplog.cut())
        else {
            return Ok(());
        };
        let document = record.document.as_bytes();
        batch.bytes += document.len();
        batch.rows.push((kept_key(timestamp, id, record_key), document.to_vec()));
        if batch.bytes >= BATCH_BYTES { self.put_kept(batch) } else { Ok(()) }
    }

    fn put_kept(&self, batch: &mut Batch) -> Result<()> {
        let Batch { rows, .. } = std::mem::take(batch);
        if rows.is_empty() {
            return Ok(());
        }
        self.change(|txn, _| {
            rows.iter().try_for_each(|(key, document)| {
                txn.put(Keyspace::Kept, key, document, Guard::Derived).map_err(from_kv)
            })
        })
    }
}
