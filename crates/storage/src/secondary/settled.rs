//! The settled timestamp, which the owner writes for its secondaries.
//!
//! ```text
//! catalog  | 't' |   timestamp, 8 bytes big-endian
//! ```
//!
//! The owner reads its settled timestamp first and writes the row second, so a snapshot that has
//! the row has all entries of the log up to it. It writes the row after a commit, at most every 5
//! ms, and announces it to the secondaries ([`mayfly_kv::Sharing`]), which read it then. Once a
//! second it writes changed counts with the row ([`super::counts`]). An idle
//! owner writes nothing, but the engine announces once a second that it lives. A secondary that
//! hears no announcements reads the row every 20 ms.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use mayfly_base::Result;
use mayfly_kv::{Engine, Guard, Keyspace, TxnOptions};

use crate::Store;
use crate::record::error::from_kv;
use crate::record::layout::catalog_key;
use crate::record::signal::Signal;
use crate::secondary::counts::{ShownCounts, put_counts};

/// The pause of the owner after it has written the row.
const WRITTEN: Duration = Duration::from_millis(5);
/// The pause of the owner after it could not write the row.
const FAILED: Duration = Duration::from_millis(100);
/// The pause of a secondary that hears no announcements.
const UNHEARD: Duration = Duration::from_millis(20);
/// How often the row is looked at without an announcement. Longer than between two announcements of
/// an idle owner; one may get lost. In tests of this crate none does.
const LOOK_EVERY: Duration = Duration::from_millis(if cfg!(test) { 3_600_000 } else { 1_500 });

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

/// A thread that writes the row or reads it, until it is dropped.
pub(crate) struct SettledThread {
    turns: Arc<Turns>,
    thread: Option<JoinHandle<()>>,
}

/// When the thread has something to do.
struct Turns {
    store: Weak<Store>,
    /// Notified when it may have.
    signal: Arc<Signal>,
    is_stopped: AtomicBool,
}

impl Turns {
    /// Waits until `has` returns true, at most for this time; it may return earlier. `None` ends
    /// the thread.
    fn next(&self, has: impl Fn() -> bool, longest: Duration) -> Option<Arc<Store>> {
        let is_stopped = || self.is_stopped.load(Ordering::Acquire);
        self.signal.block_until(|| is_stopped() || has(), longest);
        if is_stopped() { None } else { self.store.upgrade() }
    }
}

impl Drop for SettledThread {
    fn drop(&mut self) {
        self.turns.is_stopped.store(true, Ordering::Release);
        self.turns.signal.notify();
        // The thread itself drops the last reference to a store that was not closed.
        if let Some(thread) =
            self.thread.take().filter(|it| it.thread().id() != thread::current().id())
        {
            let _ = thread.join();
        }
    }
}

impl SettledThread {
    fn start(
        (store, signal): (&Arc<Store>, Arc<Signal>),
        run: impl FnOnce(&Turns) + Send + 'static,
    ) -> std::io::Result<SettledThread> {
        let store = Arc::downgrade(store);
        let turns = Arc::new(Turns { store, signal, is_stopped: AtomicBool::new(false) });
        let own = turns.clone();
        let thread = thread::Builder::new().name("settled".into()).spawn(move || run(&own))?;
        Ok(SettledThread { turns, thread: Some(thread) })
    }

    /// Writes the settled timestamp of the owner.
    pub(crate) fn write(store: &Arc<Store>) -> std::io::Result<SettledThread> {
        let clock = &store.oplog().clock;
        let (signal, settled) = (clock.shared_signal(), clock.shared_settled());
        let run = move |turns: &Turns| {
            let (mut written, mut failed) = (0, false);
            let mut counts = ShownCounts::default();
            let settled = || settled.load(Ordering::Acquire);
            while let Some(store) =
                turns.next(|| settled() != written, counts.next_look().unwrap_or(LOOK_EVERY))
            {
                let now = settled();
                if now != written {
                    counts.note_commit();
                } else if counts.next_look() != Some(Duration::ZERO) {
                    continue;
                }
                match store.write_settled(now, &mut counts) {
                    Ok(()) => (written, failed) = (now, false),
                    Err(error) if !failed => {
                        failed = true;
                        tracing::warn!(%error, "secondaries cannot see how far the operation log is complete; this is tried again");
                    }
                    Err(_) => {}
                }
                drop(store);
                thread::sleep(if failed { FAILED } else { WRITTEN });
            }
        };
        SettledThread::start((store, signal), run)
    }

    /// Reads the settled timestamp into the clock of a secondary.
    pub(crate) fn read(store: &Arc<Store>) -> std::io::Result<SettledThread> {
        let (signal, is_called) = (Arc::<Signal>::default(), Arc::<AtomicBool>::default());
        let (call, called) = (signal.clone(), is_called.clone());
        let listens = store.engine().sharing().listen(Box::new(move || {
            called.store(true, Ordering::Release);
            call.notify();
        }));
        let run = move |turns: &Turns| {
            let mut failed = false;
            loop {
                let longest = if listens.load(Ordering::Acquire) { LOOK_EVERY } else { UNHEARD };
                let Some(store) = turns.next(|| is_called.load(Ordering::Acquire), longest) else {
                    return;
                };
                // Before the row is read: a later announcement leads to another look.
                is_called.store(false, Ordering::Release);
                match store.follow_settled() {
                    Ok(_) => failed = false,
                    Err(error) if !failed => {
                        failed = true;
                        tracing::warn!(%error, "the operation log could not be followed; this is tried again");
                    }
                    Err(_) => {}
                }
            }
        };
        SettledThread::start((store, signal), run)
    }
}

impl Store {
    /// Writes the settled timestamp for secondaries, with the counts that have changed if it is
    /// time for them, and announces it.
    ///
    /// # Errors
    /// Errors of the engine.
    pub(crate) fn write_settled(&self, settled: u64, counts: &mut ShownCounts) -> Result<()> {
        let mut txn = self.engine().begin(TxnOptions::default()).map_err(from_kv)?;
        let value = settled.to_be_bytes();
        txn.put(Keyspace::Catalog, catalog_key::SETTLED, &value, Guard::Derived)
            .map_err(from_kv)?;
        let changed = (counts.next_look() == Some(Duration::ZERO)).then(|| counts.changed(self));
        if let Some(changed) = &changed {
            put_counts(&mut *txn, changed, self.engine().sharing().members().term)?;
        }
        txn.commit().map_err(from_kv)?;
        if let Some(changed) = changed {
            counts.wrote(changed);
        }
        self.engine().sharing().announce();
        Ok(())
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
