//! The settled timestamp, which the owner writes for its secondaries.
//!
//! ```text
//! catalog  | 't' |   timestamp, 8 bytes big-endian
//! ```
//!
//! The owner reads its settled timestamp first and writes the row second, so a snapshot that has
//! the row has all entries of the log up to it. The row is written only when it changes: an idle
//! owner writes nothing. A change reaches a secondary after about half of both pauses and the two
//! statements.

use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use mayfly_base::Result;
use mayfly_kv::{Engine, Guard, Keyspace, TxnOptions};

use crate::Store;
use crate::record::error::from_kv;
use crate::record::layout::catalog_key;

/// The pause of the owner before it writes the row again, and of a secondary before it reads it.
const BUSY: Duration = Duration::from_millis(5);
/// The pause of the owner after the row has not changed for a while.
const IDLE_OWNER: Duration = Duration::from_millis(20);
/// The pause of a secondary after the row has not changed for a while.
const IDLE_SECONDARY: Duration = Duration::from_millis(50);
/// After how many looks without a change the pauses become longer.
const BUSY_LOOKS: u32 = 400;

/// The pause after this number of looks without a change.
fn pause(unchanged: u32, idle: Duration) -> Duration {
    if unchanged < BUSY_LOOKS { BUSY } else { idle }
}

/// The row's timestamp; 0 without the row.
///
/// # Errors
/// Errors of the engine.
pub(crate) fn read_settled(engine: &dyn Engine) -> Result<u64> {
    let mut settled = 0;
    engine
        .get_once(Keyspace::Catalog, catalog_key::SETTLED, &mut |value| {
            settled = value.try_into().map_or(0, u64::from_be_bytes);
        })
        .map_err(from_kv)?;
    Ok(settled)
}

/// A thread that repeats a step until it is dropped.
pub(crate) struct SettledThread {
    stop: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl SettledThread {
    /// Starts the thread. The step gets the store and returns the pause until the next one.
    fn start(
        store: Weak<Store>,
        mut step: impl FnMut(&Store) -> Duration + Send + 'static,
    ) -> std::io::Result<SettledThread> {
        let (stop, stopped): (SyncSender<()>, Receiver<()>) = sync_channel(0);
        let run = move || {
            let mut pause = BUSY;
            while stopped.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
                let Some(store) = store.upgrade() else { return };
                pause = step(&store);
            }
        };
        let thread = thread::Builder::new().name("settled".into()).spawn(run)?;
        Ok(SettledThread { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for SettledThread {
    fn drop(&mut self) {
        self.stop = None;
        // The thread itself drops the last reference to a store that was not closed.
        if let Some(thread) =
            self.thread.take().filter(|it| it.thread().id() != thread::current().id())
        {
            let _ = thread.join();
        }
    }
}

impl SettledThread {
    /// Writes the settled timestamp of the owner.
    pub(crate) fn write(store: &Arc<Store>) -> std::io::Result<SettledThread> {
        let (mut written, mut unchanged, mut failed) = (0, 0_u32, false);
        let step = move |store: &Store| {
            let settled = store.oplog().settled();
            unchanged = unchanged.saturating_add(1);
            if settled != written {
                unchanged = 0;
                match store.write_settled(settled) {
                    Ok(()) => (written, failed) = (settled, false),
                    Err(error) if !failed => {
                        failed = true;
                        tracing::warn!(%error, "secondaries cannot see how far the operation log is complete; this is tried again");
                    }
                    Err(_) => {}
                }
            }
            pause(unchanged, IDLE_OWNER)
        };
        SettledThread::start(Arc::downgrade(store), step)
    }

    /// Reads the settled timestamp into the clock of a secondary.
    pub(crate) fn read(store: &Arc<Store>) -> std::io::Result<SettledThread> {
        let (mut unchanged, mut failed) = (0_u32, false);
        let step = move |store: &Store| {
            match store.follow_settled() {
                Ok(true) => (unchanged, failed) = (0, false),
                Ok(false) => (unchanged, failed) = (unchanged.saturating_add(1), false),
                Err(error) if !failed => {
                    failed = true;
                    tracing::warn!(%error, "the operation log could not be followed; this is tried again");
                }
                Err(_) => {}
            }
            pause(unchanged, IDLE_SECONDARY)
        };
        SettledThread::start(Arc::downgrade(store), step)
    }
}

impl Store {
    /// Writes the settled timestamp for secondaries.
    ///
    /// # Errors
    /// Errors of the engine.
    pub(crate) fn write_settled(&self, settled: u64) -> Result<()> {
        let mut txn = self.engine().begin(TxnOptions::default()).map_err(from_kv)?;
        let value = settled.to_be_bytes();
        txn.put(Keyspace::Catalog, catalog_key::SETTLED, &value, Guard::Derived)
            .map_err(from_kv)?;
        txn.commit().map_err(from_kv)
    }

    /// Reads the settled timestamp, and the definitions if they have changed. Returns whether the
    /// log has advanced.
    ///
    /// # Errors
    /// Errors of the engine.
    pub(crate) fn follow_settled(&self) -> Result<bool> {
        let settled = read_settled(self.engine())?;
        let advanced = self.oplog().clock.follow_to(settled);
        if advanced {
            // Caches of users and settings look at the number of commits.
            for db in ["admin", "config"] {
                for collection in self.collections(Some(db)) {
                    collection.commits.fetch_add(1, Ordering::AcqRel);
                }
            }
        }
        Ok(advanced)
    }
}
