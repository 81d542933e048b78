//! The monitor's thread: waits for the next pass, runs it, and survives everything that goes wrong in it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use mayfly_base::ErrorCode;

use crate::Store;

/// A running monitor.
pub struct TtlMonitor {
    stopping: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl TtlMonitor {
    pub(crate) fn start(store: &Arc<Store>) -> std::io::Result<TtlMonitor> {
        let stopping = Arc::new(AtomicBool::new(false));
        let (weak, flag) = (Arc::downgrade(store), stopping.clone());
        let thread = std::thread::Builder::new()
            .name("TTLMonitor".into())
            .spawn(move || run(&weak, &flag))?;
        Ok(TtlMonitor { stopping, thread })
    }

    /// Ends the present visit and the thread. The store's parameters must be woken once more by the caller if the monitor
    /// sleeps.
    pub(crate) fn stop(self) {
        self.stopping.store(true, Ordering::Release);
        // The thread looks at the flag at least this often.
        if self.thread.join().is_err() {
            tracing::error!("the TTL monitor ended with a panic");
        }
    }
}

/// Longest single wait, so that a stop and a moved clock are noticed.
const LONGEST_WAIT: Duration = Duration::from_millis(250);

fn run(store: &Weak<Store>, stopping: &AtomicBool) {
    loop {
        if !sleep_until_due(store, stopping) {
            return;
        }
        let Some(store) = store.upgrade() else { return };
        if let Err(error) = store.run_ttl_pass(stopping) {
            if error.code() == ErrorCode::InterruptedAtShutdown {
                return;
            }
            tracing::warn!(id = 22537, %error, "TTLMonitor was interrupted, waiting before doing another pass");
        }
    }
}

/// Sleeps `ttlMonitorSleepSecs` from now on; a changed value takes effect at once. False when the monitor shall end.
fn sleep_until_due(store: &Weak<Store>, stopping: &AtomicBool) -> bool {
    let Some(started) = store.upgrade().map(|store| store.clock.monotonic_micros()) else {
        return false;
    };
    loop {
        if stopping.load(Ordering::Acquire) {
            return false;
        }
        // The store must not be kept alive while sleeping: the last owner's drop would wait for us.
        let Some(store) = store.upgrade() else { return false };
        let params = store.ttl_params();
        let due = started + params.sleep_secs().saturating_mul(1_000_000);
        let left = due - store.clock.monotonic_micros();
        if left <= 0 {
            return true;
        }
        let wait = Duration::from_micros(left as u64).min(LONGEST_WAIT);
        let mut generation = params.changed.0.lock();
        params.changed.1.wait_for(&mut generation, wait);
    }
}
