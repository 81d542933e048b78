//! How the log gets the documents of a unit, and keeping versions that log entries refer to.

use mayfly_base::Result;
use mayfly_kv::{Gap, Guard, Keyspace, Which};

use super::WriteUnit;
use crate::record::Record;
use crate::record::error::from_kv;
use crate::record::kept::{KeptVersion, RetiredRecord};
use crate::record::layout::{InLog, LOGGED_AT};

impl WriteUnit<'_> {
    /// Whether the log entry refers to a record that the unit is about to write. The log shows
    /// buckets in another form than they are stored in, so it contains them.
    pub(super) fn in_log(&self, record_key: &[u8]) -> InLog {
        let apart = self.unlogged
            || self.state.time_series.is_some()
            || self.pending.keeps(self.collection.id(), record_key);
        if apart { InLog::Apart } else { InLog::Refers }
    }

    /// Keeps a version that is about to be overwritten or removed, if an entry of the log refers to
    /// it. The unit holds the record's lock.
    pub(super) fn keep_version(&mut self, record_key: &[u8], old: Record<'_>) -> Result<()> {
        let Some(timestamp) = old.logged_at else { return Ok(()) };
        let collection = self.collection.id();
        if timestamp == 0 {
            self.pending.keep(collection, record_key, old.document);
            return Ok(());
        }
        if timestamp <= self.context.core.oplog.cut() {
            return Ok(());
        }
        let document = old.document;
        self.pending.kept.push(
            KeptVersion { timestamp, collection, record_key, document },
            &mut |key, value| {
                self.txn.put(Keyspace::Versions, key, value, Guard::Derived).map_err(from_kv)
            },
        )
    }

    /// Removes a record. If an entry of the log refers to it, the document stays until the log is
    /// cut: in its record, which is retired, if no later record can have the same key; otherwise in
    /// a copy. The unit holds the record's lock.
    pub(super) fn remove_record(
        &mut self,
        record_key: &[u8],
        key: &[u8],
        old: Record<'_>,
    ) -> Result<()> {
        self.ahead.take(record_key);
        let is_referred = |timestamp: &u64| *timestamp > self.context.core.oplog.cut();
        // A capped collection reads from its oldest record on with each insert.
        let may_stay = self.collection.is_numbered() && self.state.capped.is_none();
        if let Some(timestamp) = old.logged_at.filter(is_referred).filter(|_| may_stay) {
            let collection = self.collection.id();
            let bytes = old.document.as_bytes().len();
            self.effects.retired.documents += 1;
            self.effects.retired.bytes += bytes as i64;
            let record = RetiredRecord { timestamp, collection, record_key, bytes };
            self.pending.retired.push(record, &mut |key, value| {
                self.txn.put(Keyspace::Versions, key, value, Guard::Derived).map_err(from_kv)
            })?;
            return self.txn.retire(Keyspace::Record, key, Guard::Checked).map_err(from_kv);
        }
        self.keep_version(record_key, old)?;
        self.txn.delete(Keyspace::Record, key, Guard::Checked).map_err(from_kv)
    }

    /// Writes a record, with a gap for the timestamp if the log refers to it.
    pub(super) fn put_record(
        &mut self,
        key: &[u8],
        value: &[u8],
        in_log: InLog,
        guard: Guard,
    ) -> Result<()> {
        self.ahead.take(key.get(8..).unwrap_or_default());
        match in_log {
            InLog::Apart => self.txn.put(Keyspace::Record, key, value, guard),
            // The commit assigns the entry's timestamp.
            InLog::Refers => {
                let gap = Gap::Value(LOGGED_AT, Which::Last);
                self.txn.put_with_gaps(Keyspace::Record, key, value, guard, &[gap])
            }
        }
        .map_err(from_kv)
    }
}
