//! One fsync for many callers.
//!
//! Each sync has a number. A caller needs one that starts after its call, because the current one
//! may have begun before the caller's write. It therefore waits for number `started + 1`: it runs
//! that sync itself when none is running, otherwise it sleeps, and one of the sleepers runs the
//! next sync for all.
//!
//! When nothing was written since a successful sync, the call returns at once.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use mayfly_kv::{KvError, KvResult};
use parking_lot::{Condvar, Mutex};

#[derive(Default)]
pub(crate) struct GroupSync {
    state: Mutex<State>,
    ended: Condvar,
    /// Number of writes so far.
    written: AtomicU64,
}

#[derive(Default)]
struct State {
    started: u64,
    finished: u64,
    running: bool,
    /// Number of writes that are known to be durable.
    synced: u64,
    /// The failure after which the state of the log is unknown.
    failed: Option<KvError>,
}

impl GroupSync {
    /// Counts a write. Called after the write and before it is acknowledged.
    pub(crate) fn wrote(&self) {
        self.written.fetch_add(1, SeqCst);
    }

    /// Returns once everything written before the call is synced by `sync`, run here or by another
    /// caller.
    pub(crate) fn run(&self, sync: impl FnOnce() -> KvResult<()>) -> KvResult<()> {
        let mut state = self.state.lock();
        let needed = state.started + 1;
        let written = self.written.load(SeqCst);
        loop {
            if let Some(failure) = &state.failed {
                return Err(failure.clone());
            }
            if state.finished >= needed || state.synced >= written {
                return Ok(());
            }
            if !state.running {
                break;
            }
            self.ended.wait(&mut state);
        }
        state.running = true;
        state.started += 1;
        let number = state.started;
        let covered = self.written.load(SeqCst);
        drop(state);

        let result = sync();

        let mut state = self.state.lock();
        state.running = false;
        match &result {
            Ok(()) => {
                state.finished = number;
                state.synced = covered;
            }
            Err(failure @ KvError::Fenced(_)) => state.failed = Some(failure.clone()),
            // The sleepers try again themselves.
            Err(_) => {}
        }
        drop(state);
        self.ended.notify_all();
        result
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;
    use std::thread;

    use super::*;

    #[test]
    fn concurrent_callers_share_and_each_write_is_covered() {
        let group = GroupSync::default();
        let (written, synced, syncs) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..500 {
                        let mine = written.fetch_add(1, SeqCst) + 1;
                        group.wrote();
                        let sync = || {
                            let covers = written.load(SeqCst);
                            thread::yield_now();
                            synced.fetch_max(covers, SeqCst);
                            syncs.fetch_add(1, SeqCst);
                            Ok(())
                        };
                        group.run(sync).unwrap();
                        assert!(synced.load(SeqCst) >= mine, "the own write is covered");
                    }
                });
            }
        });
        let before = syncs.load(SeqCst);
        assert!(before <= 4_000);
        group.run(|| panic!("nothing was written since")).unwrap();
    }

    #[test]
    fn a_failure_reaches_all_waiting_writers_and_stays() {
        let group = GroupSync::default();
        group.wrote();
        let failure = KvError::Fenced("disk".into());
        assert_eq!(group.run(|| Err(failure.clone())), Err(failure.clone()));
        assert_eq!(group.run(|| Ok(())), Err(failure));
    }
}
