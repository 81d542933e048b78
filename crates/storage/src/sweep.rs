//! The sweeper: clears the ranges of dropped objects and the records of ended sessions, and trims
//! the oplog.
//!
//! A dropped object has a row in the catalog until its range is empty, so that a restart continues
//! the sweep. Versions of a dropped collection that the log refers to are kept first.

mod kept;
mod statements;

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use mayfly_base::Result;
use mayfly_kv::{Guard, KeyRange, Keyspace, SweepEnd, TxnOptions};
use parking_lot::{Condvar, Mutex};

use crate::Store;
use crate::oplog::{SegmentsToStore, visit_all};
use crate::record::error::from_kv;
use crate::record::kept::{RetiredRow, RetiredTally};
use crate::record::layout::{OBJECT_KEYSPACES, catalog_key, object_range};

/// The number of keys that are cleared in one call of the engine.
const SWEEP_KEYS: usize = 10_000;
/// The size from which an object's space is reclaimed at once.
const MANY_BYTES: u64 = 16 << 20;
/// How often the oplog's size is checked while there are writes.
const OPLOG_LOOK: Duration = Duration::from_secs(60);
/// The same while the disk is nearly full.
const FULL_LOOK: Duration = Duration::from_secs(5);

#[derive(Default)]
struct Signal {
    /// An object was dropped.
    dropped: bool,
    /// The log is too long.
    trim: bool,
    closing: bool,
}

/// The sweeper's thread with its signal.
pub(crate) struct Sweeper {
    signal: Arc<(Mutex<Signal>, Condvar)>,
    thread: JoinHandle<()>,
}

impl Sweeper {
    pub(crate) fn start(store: &Arc<Store>) -> std::io::Result<Sweeper> {
        let first = Signal { dropped: true, ..Signal::default() };
        let signal = Arc::new((Mutex::new(first), Condvar::new()));
        let (weak, shared) = (Arc::downgrade(store), signal.clone());
        let thread = std::thread::Builder::new()
            .name("sweeper".into())
            .spawn(move || run(&weak, &shared))?;
        Ok(Sweeper { signal, thread })
    }

    #[cfg(test)]
    pub(crate) fn is_running(&self) -> bool {
        !self.thread.is_finished()
    }

    pub(crate) fn wake(&self) {
        self.signal.0.lock().dropped = true;
        self.signal.1.notify_all();
    }

    /// Makes the sweeper trim the log and nothing else.
    pub(crate) fn trim(&self) {
        self.signal.0.lock().trim = true;
        self.signal.1.notify_all();
    }

    pub(crate) fn stop(self) {
        self.signal.0.lock().closing = true;
        self.signal.1.notify_all();
        if self.thread.join().is_err() {
            tracing::error!("the sweeper ended with a panic");
        }
    }
}

fn run(store: &Weak<Store>, signal: &(Mutex<Signal>, Condvar)) {
    let mut swept_micros = None;
    // The state of the disk is not known yet.
    let mut look = FULL_LOOK;
    loop {
        let only_trim = {
            let mut state = signal.0.lock();
            if !state.dropped && !state.trim && !state.closing {
                signal.1.wait_for(&mut state, look);
            }
            if state.closing {
                return;
            }
            let only_trim = state.trim && !state.dropped;
            (state.dropped, state.trim) = (false, false);
            only_trim
        };
        let Some(store) = store.upgrade() else { return };
        // Space is reclaimed in large pieces, which must not happen during a mass deletion.
        let now = store.clock.monotonic_micros();
        look = store.look_at_room();
        store.expire_copy();
        let lately = swept_micros.is_some_and(|then| now - then < look.as_micros() as i64);
        let all = !(only_trim && lately);
        if all {
            swept_micros = Some(now);
        }
        let swept = catch_unwind(AssertUnwindSafe(|| {
            let Some(_writing) = store.fsync_lock.try_enter() else { return Ok(()) };
            match all {
                true => store.sweep_all(),
                false => store.trim_oplog(),
            }
        }));
        match swept {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "the sweeper failed and will retry"),
            // The panic hook of the process has logged it.
            Err(_) => tracing::error!("the sweeper panicked; it will run again"),
        }
    }
}

impl Store {
    /// Returns when the sweeper runs again. On a nearly full disk, it wakes the TTL monitor.
    fn look_at_room(&self) -> Duration {
        let full = self.engine().is_nearly_full();
        self.noticed_full.store(full, Ordering::Relaxed);
        if full {
            self.ttl_params.wake();
        }
        if full { FULL_LOOK } else { OPLOG_LOOK }
    }

    fn sweep_all(&self) -> Result<()> {
        self.sweep_once()?;
        self.trim_oplog()?;
        self.sweep_statements()?;
        match self.engine().is_nearly_full() {
            // Old snapshots keep deleted data on the disk.
            true => self.history.clear(),
            false => self.history.expire(self.clock.monotonic_micros()),
        }
        self.engine().reclaim_space().map_err(from_kv)
    }

    /// Clears the ranges of all dropped objects.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn sweep_once(&self) -> Result<()> {
        for collection in self.collections(None) {
            self.forget_abandoned_builds(&collection)?;
        }
        // All versions of an object are kept before its range is cleared.
        let _sweeping = self.catalog.sweeping.lock();
        loop {
            let dropped = self.catalog.dropped.lock().clone();
            if dropped.is_empty() {
                return Ok(());
            }
            if self.engine().is_nearly_full() {
                // After the cut no entry refers to them, so nothing has to be kept.
                self.cut_log_whole()?;
                self.mark_kept(&dropped)?;
            } else {
                self.keep_logged_versions(&dropped)?;
            }
            // Whole files are removed at once, so kept versions and drops must be durable before.
            self.engine().sync().map_err(from_kv)?;
            dropped.iter().try_for_each(|id| self.sweep_object(*id))?;
        }
    }

    fn sweep_object(&self, id: u64) -> Result<()> {
        let range = object_range(id);
        for keyspace in OBJECT_KEYSPACES {
            let bytes = self.engine().approximate_bytes(keyspace, &range).map_err(from_kv)?;
            self.sweep_whole(keyspace, &range)?;
            // Files that also have other objects, or that were flushed lately, are rewritten
            // without the range.
            if bytes >= MANY_BYTES || self.engine().is_nearly_full() {
                self.engine().compact_range(keyspace, &range).map_err(from_kv)?;
            }
        }
        self.change(|txn, _| {
            txn.delete(Keyspace::Catalog, &catalog_key::dropped(id), Guard::Checked)
                .map_err(from_kv)?;
            for key in [
                catalog_key::numbers(id),
                catalog_key::counts(id),
                catalog_key::shown_counts(id),
                catalog_key::feed(id),
            ] {
                txn.delete(Keyspace::Catalog, &key, Guard::Checked).map_err(from_kv)?;
            }
            txn.delete(Keyspace::Catalog, &catalog_key::multikey(id), Guard::Checked)
                .map_err(from_kv)
        })?;
        self.catalog.dropped.lock().retain(|other| *other != id);
        Ok(())
    }

    /// Cuts the oldest segments of an oplog that exceeds its size, with the retired records and
    /// kept versions that they refer to; the whole log when the disk is nearly full.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn trim_oplog(&self) -> Result<()> {
        self.oplog.store_segments(SegmentsToStore::Ended)?;
        let nearly_full = self.engine().is_nearly_full();
        if nearly_full {
            self.cut_large_log()?;
        } else if let Some(cut) = self.due_cut() {
            self.note_cut(cut, None)?;
        }
        let cut = self.oplog.cut();
        if cut <= self.oplog.swept() {
            return Ok(());
        }
        let began = self.clock.monotonic_micros();
        // Whole files are removed at once, so the cut must be durable before.
        self.engine().sync().map_err(from_kv)?;
        let range = KeyRange { start: vec![0], end: cut.saturating_add(1).to_be_bytes().to_vec() };
        let gone = self.delete_retired(&range)?;
        let at_once = self.oplog.take_resized() || nearly_full;
        for keyspace in [Keyspace::Oplog, Keyspace::Versions] {
            self.sweep_whole(keyspace, &range)?;
            if at_once {
                self.engine().compact_range(keyspace, &range).map_err(from_kv)?;
            }
        }
        self.oplog.set_swept(cut);
        for collection in self.collections(None) {
            for (timestamp, tally) in gone.get(&collection.id()).into_iter().flatten() {
                collection.counts.subtract_retired(*timestamp, *tally);
            }
        }
        let took = (self.clock.monotonic_micros() - began).max(0).unsigned_abs();
        self.oplog.truncations.0.fetch_add(1, Ordering::Relaxed);
        self.oplog.truncations.1.fetch_add(took, Ordering::Relaxed);
        Ok(())
    }

    /// Deletes the retired records that rows of kept versions name. A crash leaves the rows, and
    /// the next call deletes the records again. Returns what was deleted of each collection, with
    /// the timestamps of the entries.
    fn delete_retired(&self, rows: &KeyRange) -> Result<HashMap<u64, Vec<(u64, RetiredTally)>>> {
        let mut gone: HashMap<u64, Vec<(u64, RetiredTally)>> = HashMap::new();
        let reader = self.engine().begin(TxnOptions::READ_ONLY).map_err(from_kv)?;
        let mut keys: Vec<Vec<u8>> = Vec::new();
        visit_all(&*reader, Keyspace::Versions, rows.clone(), &mut |row_key, value| {
            if let Some(row) = RetiredRow::decode(row_key, value) {
                row.visit(&mut |key| keys.push(key.to_vec()));
                gone.entry(row.collection()).or_default().push((row.timestamp(), row.tally()));
            }
            match keys.len() >= SWEEP_KEYS {
                true => self.delete_records(&mut keys),
                false => Ok(()),
            }
        })?;
        self.delete_records(&mut keys)?;
        Ok(gone)
    }

    fn delete_records(&self, keys: &mut Vec<Vec<u8>>) -> Result<()> {
        self.change_begun(|txn, _| {
            keys.iter().try_for_each(|key| {
                txn.delete(Keyspace::Record, key, Guard::Derived).map_err(from_kv)
            })
        })?;
        keys.clear();
        Ok(())
    }

    fn sweep_whole(&self, keyspace: Keyspace, range: &KeyRange) -> Result<()> {
        while self.engine().sweep_range(keyspace, range, SWEEP_KEYS).map_err(from_kv)?
            == SweepEnd::More
        {}
        Ok(())
    }
}
