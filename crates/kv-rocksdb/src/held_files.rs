//! Keeping the files of the folder as they are while another program copies them.
//!
//! Without writes only compactions and the deletion of obsolete files change the folder. A running
//! compaction is waited for: ending it would leave files that are deleted later. An obsolete file
//! that a scan still reads stays until the files are released.

use mayfly_kv::{Keyspace, KvError, KvResult};
use parking_lot::Mutex;
use rocksdb::{FlushOptions, properties};

use crate::store::Store;

/// How far the files are held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum State {
    #[default]
    Released,
    /// No compaction begins, and what was buffered is written.
    Begun,
    /// All compactions have ended, and no file is deleted.
    Held,
}

/// Whether the files are held.
#[derive(Default)]
pub(crate) struct HeldFiles(Mutex<State>);

impl HeldFiles {
    /// Whether files are held, or will be.
    pub(crate) fn are_held(&self) -> bool {
        *self.0.lock() > State::Released
    }
}

fn failed(error: &rocksdb::Error) -> KvError {
    KvError::Unavailable(format!("the files cannot be held or released: {error}"))
}

impl Store {
    /// See [`Engine::hold_files`](mayfly_kv::Engine::hold_files).
    pub(crate) fn hold_files(&self) -> KvResult<bool> {
        self.health.check()?;
        let mut state = self.held.0.lock();
        if *state == State::Released {
            *state = State::Begun;
            self.compact_by_itself(false)?;
            let families: Vec<_> = Keyspace::ALL.map(|keyspace| self.family(keyspace)).to_vec();
            let families: Vec<_> = families.iter().collect();
            let flushed = self.db.flush_cfs_opt(&families, &FlushOptions::default());
            flushed.map_err(|error| failed(&error))?;
            self.sync()?;
        }
        if *state == State::Begun && !self.is_compacting() {
            self.db.disable_file_deletions().map_err(|error| failed(&error))?;
            *state = State::Held;
        }
        Ok(*state == State::Held)
    }

    /// See [`Engine::release_files`](mayfly_kv::Engine::release_files).
    pub(crate) fn release_files(&self) -> KvResult<()> {
        let mut state = self.held.0.lock();
        if *state == State::Held {
            self.db.enable_file_deletions().map_err(|error| failed(&error))?;
        }
        if *state > State::Released {
            self.compact_by_itself(true)?;
        }
        *state = State::Released;
        Ok(())
    }

    fn compact_by_itself(&self, compacts: bool) -> KvResult<()> {
        let value = if compacts { "false" } else { "true" };
        Keyspace::ALL.iter().try_for_each(|keyspace| {
            let options = [("disable_auto_compactions", value)];
            let set = self.db.set_options_cf(&self.family(*keyspace), &options);
            set.map_err(|error| failed(&error))
        })
    }

    /// Whether a compaction or a flush of any keyspace is running.
    fn is_compacting(&self) -> bool {
        [properties::NUM_RUNNING_COMPACTIONS, properties::NUM_RUNNING_FLUSHES]
            .into_iter()
            .any(|name| self.db.property_int_value(name).ok().flatten().unwrap_or(0) > 0)
    }
}
