//! The monitor's thread: waits for the next pass, runs it, and survives its errors and panics.
//!
//! While it waits it has no strong reference to the store, so that it also ends when a store is
//! dropped without a close.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use mayfly_base::{ClientData, Clock, ErrorCode};

use crate::Store;
use crate::policy::TtlParameters;

/// How often policies with a pace are visited while they have more work.
const PACED_VISITS_EVERY: Duration = Duration::from_millis(100);

/// Seconds between two passes while the disk is nearly full.
const FULL_SLEEP_SECS: i64 = 1;

/// Lower than other threads and higher than compactions: deletions continue on a busy machine, with
/// a smaller share.
const NICENESS: i32 = 5;

/// A running monitor.
pub struct TtlMonitor {
    stopping: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

/// The state of the thread while it waits.
struct Waiting {
    store: Weak<Store>,
    params: Arc<TtlParameters>,
    clock: Arc<dyn Clock>,
    stopping: Arc<AtomicBool>,
}

impl TtlMonitor {
    pub(crate) fn start(store: &Arc<Store>) -> std::io::Result<TtlMonitor> {
        let stopping = Arc::new(AtomicBool::new(false));
        let waiting = Waiting {
            store: Arc::downgrade(store),
            params: store.shared_ttl_params(),
            clock: store.clock.clone(),
            stopping: stopping.clone(),
        };
        let thread =
            std::thread::Builder::new().name("TTLMonitor".into()).spawn(move || waiting.run())?;
        Ok(TtlMonitor { stopping, thread })
    }

    #[cfg(test)]
    pub(crate) fn is_running(&self) -> bool {
        !self.thread.is_finished()
    }

    /// Ends the present visit and the thread.
    pub(crate) fn stop(self, params: &TtlParameters) {
        self.stopping.store(true, Ordering::Release);
        params.wake();
        if self.thread.join().is_err() {
            tracing::error!("the TTL monitor ended with a panic");
        }
    }
}

impl Waiting {
    fn run(&self) {
        mayfly_work::give_way("the TTL monitor", NICENESS);
        while self.sleep_until_due() {
            let Some(store) = self.store.upgrade() else { return };
            let pass = catch_unwind(AssertUnwindSafe(|| store.run_ttl_pass(&self.stopping)));
            let Ok(result) = pass else {
                // The panic hook of the process has logged it.
                tracing::error!("a TTL pass panicked; the next one runs as usual");
                continue;
            };
            let Err(error) = result else { continue };
            if error.code() == ErrorCode::InterruptedAtShutdown {
                return;
            }
            tracing::warn!(
                id = 22537,
                error = %ClientData(error),
                "TTLMonitor was interrupted, waiting before doing another pass"
            );
        }
    }

    /// Continues with policies that have a pace. Returns whether they have more work.
    fn visit_paced(&self) -> bool {
        let Some(store) = self.store.upgrade().filter(|store| store.has_paced_work()) else {
            return false;
        };
        let visits = catch_unwind(AssertUnwindSafe(|| store.run_paced_visits(&self.stopping)));
        if visits.is_err() {
            tracing::error!("a paced TTL visit panicked; the next pass runs as usual");
        }
        store.has_paced_work()
    }

    fn is_nearly_full(&self) -> bool {
        self.store.upgrade().is_some_and(|store| store.engine().is_nearly_full())
    }

    /// Sleeps for `ttlMonitorSleepSecs`, or a second while the disk is nearly full; a changed value
    /// takes effect at once. Returns false when the monitor must end.
    fn sleep_until_due(&self) -> bool {
        let started = self.clock.monotonic_micros();
        loop {
            let seen = *self.params.changed.0.lock();
            if self.stopping.load(Ordering::Acquire) || self.store.strong_count() == 0 {
                return false;
            }
            let sleep = match self.is_nearly_full() {
                true => self.params.sleep_secs().min(FULL_SLEEP_SECS),
                false => self.params.sleep_secs(),
            };
            let due = started.saturating_add(sleep.saturating_mul(1_000_000));
            let longest = if self.visit_paced() { PACED_VISITS_EVERY } else { Duration::MAX };
            let left = due - self.clock.monotonic_micros();
            if left <= 0 {
                return true;
            }
            let mut generation = self.params.changed.0.lock();
            if *generation == seen {
                let wait = Duration::from_micros(left as u64).min(longest);
                self.params.slept_after.store(seen, Ordering::Release);
                self.params.changed.1.wait_for(&mut generation, wait);
            }
        }
    }
}
