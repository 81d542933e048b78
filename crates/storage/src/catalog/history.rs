//! The recent past: snapshots that were handed out, kept for those who come back to their time.
//!
//! A read with read concern `snapshot` answers the cluster time that it read as of, and a client may ask for that time again
//! for as long as the window says (`minSnapshotHistoryWindowInSeconds`). Only times that were handed out are kept: this store has
//! no older versions of records beside those that a snapshot of the byte store keeps.
//!
//! What a held snapshot shows cannot be given back by the engine. Therefore none is older than the window (whoever looks drops
//! what is, and so does the sweeper), and there are at most [`MOST`] of them. Of too many the oldest goes to which nobody has come
//! back yet: single reads leave many, and must not push out those of sessions.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use mayfly_kv::HeldSnapshot;
use parking_lot::Mutex;

/// So many are kept at once.
const MOST: usize = 512;
/// How long, in seconds, unless somebody says something else.
const WINDOW_SECS: i64 = 300;

/// The store as of one time.
pub(crate) struct Held {
    pub(crate) snapshot: Arc<dyn HeldSnapshot>,
    /// Its cluster time: everything up to it is in the snapshot, and nothing behind it.
    pub(crate) time: u64,
    /// The edition of the definitions then.
    pub(crate) edition: u64,
}

/// All that are kept.
pub struct History {
    window_secs: AtomicI64,
    /// By cluster time.
    kept: Mutex<BTreeMap<u64, Kept>>,
}

struct Kept {
    held: Arc<Held>,
    /// The monotonic time at which it was handed out last, in microseconds.
    handed_out: i64,
    /// Whether somebody came back to it.
    is_used: bool,
}

impl Default for History {
    fn default() -> History {
        History { window_secs: AtomicI64::new(WINDOW_SECS), kept: Mutex::default() }
    }
}

impl History {
    /// `minSnapshotHistoryWindowInSeconds`.
    pub fn window_secs(&self) -> i64 {
        self.window_secs.load(Ordering::Relaxed)
    }

    /// Sets it; what is older goes when somebody looks the next time. With 0 nothing is kept.
    pub fn set_window_secs(&self, secs: i64) {
        self.window_secs.store(secs, Ordering::Relaxed);
        if secs <= 0 {
            self.clear();
        }
    }

    /// How many are kept.
    pub fn len(&self) -> usize {
        self.kept.lock().len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Drops what is older than the window.
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
        // Giving a snapshot back takes the engine's locks: not under this one.
        drop(gone);
    }

    /// Drops all.
    pub(crate) fn clear(&self) {
        let gone = std::mem::take(&mut *self.kept.lock());
        drop(gone);
    }

    /// Keeps one, in place of another one of its time.
    pub(crate) fn keep(&self, held: &Arc<Held>, now_micros: i64) {
        if self.window_secs() <= 0 {
            return;
        }
        let mut kept = self.kept.lock();
        let is_used = kept.get(&held.time).is_some_and(|before| before.is_used);
        let entry = Kept { held: held.clone(), handed_out: now_micros, is_used };
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

    /// The one of this very time.
    pub(crate) fn of(&self, time: u64) -> Option<Arc<Held>> {
        self.kept.lock().get(&time).map(|kept| kept.held.clone())
    }

    /// The last one before this time, and the first one of it or behind it: somebody comes back to it.
    pub(crate) fn around(&self, time: u64) -> (Option<Arc<Held>>, Option<Arc<Held>>) {
        let mut kept = self.kept.lock();
        if let Some(exact) = kept.get_mut(&time) {
            exact.is_used = true;
        }
        let before = kept.range(..time).next_back().map(|(_, kept)| kept.held.clone());
        let behind = kept.range(time..).next().map(|(_, kept)| kept.held.clone());
        (before, behind)
    }
}

#[cfg(test)]
mod tests {
    use mayfly_kv::{Engine, MemoryEngine};

    use super::*;

    fn held(time: u64) -> Arc<Held> {
        let snapshot = MemoryEngine::new().hold().unwrap();
        Arc::new(Held { snapshot, time, edition: 0 })
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
            // Somebody comes back to the third one again and again.
            history.around(3);
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
            let (before, behind) = history.around(time);
            (before.map(|held| held.time), behind.map(|held| held.time))
        };
        assert_eq!(
            (around(4), around(5), around(6)),
            ((None, Some(5)), (None, Some(5)), (Some(5), None))
        );
    }
}
