//! Making the files of a backup a store of its own.
//!
//! One transaction writes the new identity, the suspension of expiry, and the first entry of the
//! new timeline. It may be written again after an interruption: the store then has one more
//! timeline, which has no effect.

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_kv::{Guard, Keyspace};

use crate::Store;
use crate::oplog::{LostTimes, OplogClock, StoreIdentity};
use crate::policy::watch::Mark;
use crate::record::error::from_kv;
use crate::record::layout::catalog_key;

/// Whether expiry runs when the restored store is started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpiryAfterRestore {
    /// It is suspended until the command `ttlResume`.
    Suspended,
    /// It runs.
    Resumed,
}

/// The backup that a store was restored from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestoreSource {
    /// The name of the backup.
    pub backup: String,
    /// The last time of the log that the restored store contains.
    pub time: u64,
    /// The last time that the repository knows, of any backup or log.
    pub last_time: u64,
}

impl Store {
    /// Suspends expiry before entries of the log are replayed: each of them contains what expired.
    pub fn suspend_expiry_for_restore(&self) {
        self.watch.suspend_restored();
    }

    /// Gives a store that was restored a new identity and a new timeline, whose times are after all
    /// that the repository knows and after the present second.
    ///
    /// If entries of an archived log were replayed, the store's log lacks them. It is then cut, so
    /// that no change stream continues at a time before them, and indexes that follow the log are
    /// built again.
    ///
    /// # Errors
    /// 301 DataCorruptionDetected if the files are not those of the backup's store; errors of the
    /// engine.
    pub fn become_restored(
        &self,
        source: &RestoreSource,
        expiry: ExpiryAfterRestore,
    ) -> Result<StoreIdentity> {
        let Some(old) = StoreIdentity::load(&*self.engine)? else {
            let text = "the files of the backup contain no identity of a store";
            return Err(Error::new(ErrorCode::DataCorruptionDetected, text));
        };
        let now_ms = self.clock.now_ms();
        let known = self.oplog.clock.last().max(source.last_time);
        let before = OplogClock::second_after(now_ms).max(known.saturating_add(1));
        let after = match self.has_replayed()? {
            true => 0,
            false => source.time,
        };
        if after == 0
            && let Some(cut) = self.oplog.whole_cut()
        {
            self.note_cut(cut, None)?;
        }
        let new = old.restored(LostTimes { after, before });
        self.oplog.clock.advance_to(before);
        let mark = match expiry {
            ExpiryAfterRestore::Suspended => Some(self.watch.suspend_restored()),
            ExpiryAfterRestore::Resumed => None,
        };
        let note = format!("restored from the backup {}", source.backup);
        self.change(|txn, oplog| {
            oplog.note(&note);
            new.put(txn)?;
            // They are those of the other store.
            txn.delete(Keyspace::Catalog, catalog_key::BACKUPS, Guard::Checked).map_err(from_kv)?;
            txn.delete(Keyspace::Catalog, catalog_key::REPLAYED, Guard::Checked)
                .map_err(from_kv)?;
            match mark.map(Mark::to_document) {
                Some(mark) => {
                    let key = catalog_key::SUSPENDED;
                    txn.put(Keyspace::Catalog, key, mark.as_bytes(), Guard::Checked)
                }
                None => txn.delete(Keyspace::Catalog, catalog_key::SUSPENDED, Guard::Checked),
            }
            .map_err(from_kv)
        })?;
        *self.suspension_recorded.lock() = mark;
        self.engine.sync().map_err(from_kv)?;
        Ok(new)
    }

    /// Whether entries of an archived log were replayed into this store.
    fn has_replayed(&self) -> Result<bool> {
        let key = catalog_key::REPLAYED;
        self.engine.get_once(Keyspace::Catalog, key, &mut |_| {}).map_err(from_kv)
    }
}
