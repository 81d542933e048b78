//! The identity of the store, and the list of its latest backups.
//!
//! A backup takes over tables from an earlier one by their numbers. That is safe only if the
//! earlier backup belongs to the history of this folder: a folder that was copied back from a
//! snapshot of the file system gives the numbers of later tables again, to other content. The list
//! is in the store itself, so that such a folder does not know the later backups.
//!
//! ```text
//! catalog  | 'b' |    {backups: [{id, to, time, finished, bytes, sentBytes}]}, the newest last
//! ```

use mayfly_base::Result;
use mayfly_kv::{Guard, Keyspace};
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue};

use crate::Store;
use crate::oplog::StoreIdentity;
use crate::record::error::from_kv;
use crate::record::layout::catalog_key;

/// The number of backups in the list.
const MOST_BACKUPS: usize = 64;

/// A complete backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedBackup {
    /// The name of the backup.
    pub id: String,
    /// The folder or URL of the repository.
    pub to: String,
    /// The time of the log that it contains.
    pub time: u64,
    /// When it was complete, in milliseconds since 1970.
    pub finished_ms: i64,
    /// The bytes of all of its files.
    pub bytes: i64,
    /// The bytes that were sent, without those of earlier backups.
    pub sent_bytes: i64,
}

impl RecordedBackup {
    fn append_to(&self, out: &mut DocBuilder) {
        out.append("id", self.id.as_str()).append("to", self.to.as_str());
        out.append("time", RawValue::Timestamp(self.time));
        out.append("finished", RawValue::Date(self.finished_ms));
        out.append("bytes", self.bytes).append("sentBytes", self.sent_bytes);
    }

    fn from_document(row: RawDoc<'_>) -> Option<RecordedBackup> {
        let text = |name: &str| row.get(name).and_then(RawValue::as_str).map(str::to_owned);
        let number = |name: &str| match row.get(name) {
            Some(RawValue::Int64(number) | RawValue::Date(number)) => Some(number),
            _ => None,
        };
        let Some(RawValue::Timestamp(time)) = row.get("time") else { return None };
        Some(RecordedBackup {
            id: text("id")?,
            to: text("to")?,
            time,
            finished_ms: number("finished")?,
            bytes: number("bytes")?,
            sent_bytes: number("sentBytes")?,
        })
    }
}

fn encode(backups: &[RecordedBackup]) -> DocBuf {
    let mut row = DocBuilder::new();
    row.start_array("backups");
    for backup in backups {
        row.push_document();
        backup.append_to(&mut row);
        row.end();
    }
    row.end();
    row.finish()
}

/// The backups of a row. What is unreadable is left out: the next backup then sends all files.
fn decode(row: RawDoc<'_>) -> Vec<RecordedBackup> {
    let backups = row.get("backups").and_then(RawValue::as_array).into_iter().flatten();
    let backup = |value: RawValue<'_>| RecordedBackup::from_document(value.as_document()?);
    backups.filter_map(|element| backup(element.value())).collect()
}

impl Store {
    /// The identity of the store, which the first call writes.
    ///
    /// # Errors
    /// 301 DataCorruptionDetected; errors of the engine.
    pub fn ensure_identity(&self) -> Result<StoreIdentity> {
        if let Some(identity) = StoreIdentity::load(&*self.engine)? {
            return Ok(identity);
        }
        let new = StoreIdentity::new();
        self.change(|txn, _| {
            let mut exists = false;
            txn.get(Keyspace::Catalog, catalog_key::IDENTITY, &mut |_| exists = true)
                .map_err(from_kv)?;
            if exists { Ok(()) } else { new.put(txn) }
        })?;
        // Another server of the same database may have been faster.
        Ok(StoreIdentity::load(&*self.engine)?.unwrap_or(new))
    }

    /// Makes all commits before this call durable.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn sync_all(&self) -> Result<()> {
        self.engine.sync().map_err(from_kv)
    }

    /// The latest backups of this store, the newest last.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn recorded_backups(&self) -> Result<Vec<RecordedBackup>> {
        let mut backups = Vec::new();
        self.engine
            .get_once(Keyspace::Catalog, catalog_key::BACKUPS, &mut |value| {
                backups = RawDoc::new(value).map(decode).unwrap_or_default();
            })
            .map_err(from_kv)?;
        Ok(backups)
    }

    /// Adds a complete backup to the list.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn record_backup(&self, backup: &RecordedBackup) -> Result<()> {
        let mut backups = self.recorded_backups()?;
        backups.push(backup.clone());
        let excess = backups.len().saturating_sub(MOST_BACKUPS);
        let row = encode(&backups[excess..]);
        self.change(|txn, _| {
            txn.put(Keyspace::Catalog, catalog_key::BACKUPS, row.as_bytes(), Guard::Checked)
                .map_err(from_kv)
        })
    }
}
