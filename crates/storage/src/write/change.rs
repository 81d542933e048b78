//! Changes of what the store keeps about itself: one engine transaction with its entry in the log.

use mayfly_base::{ErrorCode, Result};
use mayfly_kv::{Guard, Keyspace, Txn, TxnOptions};
use mayfly_value::RawDoc;

use super::writer::pause_on_full_disk;
use super::{Writer, with_open};
use crate::oplog::OplogBatch;
use crate::read::open_view;
use crate::record::error::from_kv;

/// How often a change is tried again that had no room: a few seconds, because others may wait for the catalog.
const MAX_TRIES_ON_FULL_DISK: u32 = 25;

impl Writer {
    /// One catalog transaction with its oplog entry, run again on a conflict; or a part of the transaction that this thread has
    /// entered.
    pub(crate) fn change<T>(
        &self,
        mut body: impl FnMut(&mut dyn Txn, &mut OplogBatch) -> Result<T>,
    ) -> Result<T> {
        if let Some(view) = open_view() {
            return with_open(&view, |txn, pending| body(txn, &mut pending.oplog));
        }
        self.change_after(|entry| self.check_user_write(entry), &mut body)
    }

    /// The same for the end of something that began when clients were allowed to write.
    pub(crate) fn change_begun<T>(
        &self,
        mut body: impl FnMut(&mut dyn Txn, &mut OplogBatch) -> Result<T>,
    ) -> Result<T> {
        self.change_after(|_| Ok(()), &mut body)
    }

    fn change_after<T>(
        &self,
        check: impl Fn(RawDoc<'_>) -> Result<()>,
        body: &mut impl FnMut(&mut dyn Txn, &mut OplogBatch) -> Result<T>,
    ) -> Result<T> {
        let (mut tries, mut tries_on_full_disk) = (0, 0);
        loop {
            let attempt = self.try_change(&check, body);
            match attempt {
                // Definitions take little room, and a drop gives some: the engine makes it.
                Err(error)
                    if error.code() == ErrorCode::OutOfDiskSpace
                        && tries_on_full_disk < MAX_TRIES_ON_FULL_DISK =>
                {
                    tries_on_full_disk += 1;
                    pause_on_full_disk();
                }
                Err(error) if error.code() == ErrorCode::WriteConflict && tries < 1000 => {
                    tries += 1
                }
                other => return other,
            }
        }
    }

    fn try_change<T>(
        &self,
        check: &impl Fn(RawDoc<'_>) -> Result<()>,
        body: &mut impl FnMut(&mut dyn Txn, &mut OplogBatch) -> Result<T>,
    ) -> Result<T> {
        self.sync.check()?;
        let mut txn = self.engine().begin(TxnOptions::default()).map_err(from_kv)?;
        let mut oplog = OplogBatch::new();
        let result = body(&mut *txn, &mut oplog)?;
        let mut under_way = None;
        if !oplog.is_empty() {
            let now_ms = self.clock.now_ms();
            let mut stamp = self.oplog.clock.next(now_ms);
            let timestamp = stamp.timestamp();
            let entry = oplog.finish(timestamp, now_ms);
            check(entry.fields())?;
            stamp.concerns(entry.fields());
            txn.put(Keyspace::Oplog, &timestamp.to_be_bytes(), entry.value(), Guard::Derived)
                .map_err(from_kv)?;
            under_way = Some((stamp, entry));
        }
        if txn.size().1 > 0 {
            txn.commit().map_err(from_kv)?;
            self.note_commit();
        }
        if let Some((stamp, entry)) = under_way {
            stamp.committed(1, entry.logical_bytes());
            self.oplog.note_commit();
            if self.has_definition_hook() {
                self.tell_logged(entry.fields());
            }
        }
        Ok(result)
    }
}
