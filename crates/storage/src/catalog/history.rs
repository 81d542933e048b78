//! Recent snapshots, kept for reads that ask for their time again.
//!
//! A read with read concern `snapshot` replies with the cluster time that it read as of, and a
//! client may ask for that time again within a window (`minSnapshotHistoryWindowInSeconds`). Only
//! such times are kept: the store has no older versions of records other than those that a snapshot
//! of the byte store preserves.
//!
//! The engine cannot reclaim what a held snapshot shows. Therefore no snapshot is older than the
//! window (each access, and the sweeper, drops older ones), and there are at most [`MOST`]. Beyond
//! that, the oldest one goes that has not been used again: single reads leave many snapshots, which
//! must not displace those of sessions.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use mayfly_kv::HeldSnapshot;
use parking_lot::Mutex;

/// The most snapshots.
const MOST: usize = 512;
/// The default window in seconds.
const WINDOW_SECS: i64 = 300;

/// A snapshot of the store.
pub(crate) struct PastSnapshot {
    pub(crate) snapshot: Arc<dyn HeldSnapshot>,
    /// Its cluster time: the snapshot has exactly the commits up to it.
    pub(crate) time: u64,
    /// The edition of the definitions at that time.
    pub(crate) edition: u64,
}

/// The kept snapshots.
pub struct History {
    window_secs: AtomicI64,
    /// The snapshots by cluster time.
    kept: Mutex<BTreeMap<u64, KeptSnapshot>>,
}

struct KeptSnapshot {
    held: Arc<PastSnapshot>,
    /// When it was last used, on the monotonic clock in microseconds.
    handed_out: i64,
    /// Whether a read has used its time again.
    is_used: bool,
}

impl Default for History {
    fn default() -> History {
        History { window_secs: AtomicI64::new(WINDOW_SECS), kept: Mutex::default() }
    }
}

impl History {
    /// The window in seconds, `minSnapshotHistoryWindowInSeconds`.
    pub fn window_secs(&self) -> i64 {
        self.window_secs.load(Ordering::Relaxed)
    }

    /// Sets the window; older snapshots go at the next access. With 0 none is kept.
    pub fn set_window_secs(&self, secs: i64) {
        self.window_secs.store(secs, Ordering::Relaxed);
        if secs <= 0 {
            self.clear();
        }
    }

    /// The number of snapshots.
    pub fn len(&self) -> usize {
        self.kept.lock().len()
    }

    /// Whether there are no snapshots.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Drops snapshots older than the window.
    pub(crate) fn expire(&self, now_micros: i64) {
        let oldest = now_micros.saturating_sub(self.window_secs().saturating_mul(1_000_000));
        let mut gone = Vec::new();
        self.kept.lock().retain(|_, kept| {
            let stays = kept.handed_out >= oldest;
            if !stays {
                gone.push(kept.held.clone());
            }
            stays
        });
        // Releasing a snapshot takes the engine's locks, so it is done after this lock is released.
        drop(gone);
    }

    /// Drops all snapshots.
    pub(crate) fn clear(&self) {
        let gone = std::mem::take(&mut *self.kept.lock());
        drop(gone);
    }

    /// Keeps a snapshot; it replaces another one of the same time.
    pub(crate) fn keep(&self, held: &Arc<PastSnapshot>, now_micros: i64) {
        if self.window_secs() <= 0 {
            return;
        }
        let mut kept = self.kept.lock();
        let is_used = kept.get(&held.time).is_some_and(|before| before.is_used);
        let entry = KeptSnapshot { held: held.clone(), handed_out: now_micros, is_used };
        let replaced = kept.insert(held.time, entry);
        let mut gone = None;
        if kept.len() > MOST {
            let unused = kept.iter().find(|(time, kept)| !kept.is_used && **time != held.time);
            let oldest = unused.or_else(|| kept.first_key_value()).map(|(time, _)| *time);
            gone = oldest.and_then(|time| kept.remove(&time));
        }
        drop(kept);
        drop((replaced, gone));
    }

    /// The snapshot of exactly this time.
    pub(crate) fn of(&self, time: u64) -> Option<Arc<PastSnapshot>> {
        self.kept.lock().get(&time).map(|kept| kept.held.clone())
    }

    /// The last snapshot before this time, and the first one at or after it. Marks a snapshot of
    /// exactly this time as used.
    pub(crate) fn neighbours(
        &self,
        time: u64,
    ) -> (Option<Arc<PastSnapshot>>, Option<Arc<PastSnapshot>>) {
        let mut kept = self.kept.lock();
        if let Some(exact) = kept.get_mut(&time) {
            exact.is_used = true;
        }
        let before = kept.range(..time).next_back().map(|(_, kept)| kept.held.clone());
        let later = kept.range(time..).next().map(|(_, kept)| kept.held.clone());
        (before, later)
    }
}

#[cfg(test)]
mod tests {
    use mayfly_kv::{Engine, MemoryEngine};

    use super::*;

    fn held(time: u64) -> Arc<PastSnapshot> {
        let snapshot = MemoryEngine::new().hold().unwrap();
        Arc::new(PastSnapshot { snapshot, time, edition: 0 })
    }

    fn times(history: &History) -> Vec<u64> {
        history.kept.lock().keys().copied().collect()
    }

    #[test]
    fn the_window_and_the_number_are_bounds() {
        let history = History::default();
        let all = MOST as u64 + 44;
        for time in 1..=all {
            history.keep(&held(time), 0);
            // The third one is used repeatedly.
            history.neighbours(3);
        }
        assert_eq!((history.len(), &times(&history)[..2]), (MOST, &[3, 46][..]));
        history.keep(&held(all + 1), 200_000_000);
        history.expire(300_000_000);
        assert_eq!(history.len(), MOST);
        history.expire(300_000_001);
        assert_eq!(times(&history), [all + 1]);
        history.set_window_secs(0);
        assert!(history.is_empty());
        history.keep(&held(all + 2), 200_000_000);
        assert!(history.is_empty());
    }

    #[test]
    fn handed_out_again_is_handed_out_later() {
        let history = History::default();
        history.keep(&held(5), 0);
        history.keep(&held(5), 100_000_000);
        history.expire(400_000_000);
        assert_eq!(times(&history), [5]);
        let around = |time| {
            let (before, later) = history.neighbours(time);
            (before.map(|held| held.time), later.map(|held| held.time))
        };
        assert_eq!(
            (around(4), around(5), around(6)),
            ((None, Some(5)), (None, Some(5)), (Some(5), None))
        );
    }
}
