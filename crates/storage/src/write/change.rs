//! Changes of definitions and other catalog rows: one engine transaction with its entry in the log.

use mayfly_base::{ErrorCode, Result};
use mayfly_kv::{Txn, TxnOptions};
use mayfly_value::RawDoc;

use super::Writer;
use super::commit::{CommitOwner, UserWriteBlocks};
use super::writer::pause_on_full_disk;
use crate::catalog::Collection;
use crate::isolation::{Pending, ReadView};
use crate::oplog::{LoggedObject, OplogBatch};
use crate::record::error::from_kv;

/// How often a change is retried on a full disk: for a few seconds only, because others may wait
/// for the catalog.
const MAX_TRIES_ON_FULL_DISK: u32 = 25;
/// How often a change is retried after a conflict.
const MAX_RETRIES: u32 = 1000;

impl Writer {
    /// Commits a catalog transaction with its oplog entry; runs it again after a conflict.
    pub(crate) fn change<T>(
        &self,
        mut body: impl FnMut(&mut dyn Txn, &mut OplogBatch) -> Result<T>,
    ) -> Result<T> {
        self.change_until_done(UserWriteBlocks::Hold, &mut body)
    }

    /// Makes the change in the view's open transaction, or commits it.
    pub(crate) fn change_in<T>(
        &self,
        view: &ReadView,
        mut body: impl FnMut(&mut dyn Txn, &mut OplogBatch) -> Result<T>,
    ) -> Result<T> {
        match view.open() {
            Some(open) => open.write(|txn, pending| body(txn, &mut pending.oplog)),
            None => self.change(body),
        }
    }

    /// Commits the end of something that began when clients were allowed to write.
    pub(crate) fn change_begun<T>(
        &self,
        mut body: impl FnMut(&mut dyn Txn, &mut OplogBatch) -> Result<T>,
    ) -> Result<T> {
        self.change_until_done(UserWriteBlocks::DoNotHold, &mut body)
    }

    /// Writes an entry without an operation, which change streams of the collection show as an
    /// event. The first field of `event` is its type.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn append_event(&self, collection: &Collection, event: RawDoc<'_>) -> Result<()> {
        let ns = collection.namespace();
        let object = LoggedObject { ns: ns.as_str(), uuid: collection.uuid() };
        self.change(|_, oplog| {
            oplog.note_event(object, event);
            Ok(())
        })
    }

    fn change_until_done<T>(
        &self,
        blocks: UserWriteBlocks,
        body: &mut impl FnMut(&mut dyn Txn, &mut OplogBatch) -> Result<T>,
    ) -> Result<T> {
        let (mut tries, mut tries_on_full_disk) = (0, 0);
        loop {
            match self.try_change(blocks, body) {
                // Definitions take little room, and a drop frees space, which the engine will
                // reclaim.
                Err(error)
                    if error.code() == ErrorCode::OutOfDiskSpace
                        && tries_on_full_disk < MAX_TRIES_ON_FULL_DISK =>
                {
                    tries_on_full_disk += 1;
                    pause_on_full_disk();
                }
                Err(error) if error.code() == ErrorCode::WriteConflict && tries < MAX_RETRIES => {
                    tries += 1;
                }
                other => return other,
            }
        }
    }

    fn try_change<T>(
        &self,
        blocks: UserWriteBlocks,
        body: &mut impl FnMut(&mut dyn Txn, &mut OplogBatch) -> Result<T>,
    ) -> Result<T> {
        self.sync.check()?;
        let mut txn = self.engine().begin(TxnOptions::default()).map_err(from_kv)?;
        let mut pending = Pending::new();
        let result = body(&mut *txn, &mut pending.oplog)?;
        let owner = CommitOwner::Definitions(blocks);
        self.commit(txn, &mut pending, owner, self.clock.now_ms())?;
        Ok(result)
    }
}
