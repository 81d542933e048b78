//! Operations that keep a thread which has other work.
//!
//! A command that is expected to be short runs on the thread that read its message, because handing it over costs more than it
//! does itself. When it takes long after all (a script that does not end, a slow disk), whatever else that thread should do waits,
//! and nobody looks for messages: the runtime wakes no further thread for them. So somebody watches: an operation that has kept
//! its thread for some milliseconds is asked to leave it, which it does when it next asks whether it may go on, and one of the
//! runtime's idle threads is woken in any case.

use std::sync::Weak;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicI64};
use std::time::Duration;

use crate::{OpRegistry, current};

/// So long an operation may keep its thread.
const SHORT: Duration = Duration::from_millis(4);
/// Between two looks while operations run.
const TICK: Duration = Duration::from_millis(4);
/// Between two looks while none does.
const IDLE_TICK: Duration = Duration::from_millis(40);
/// Looks without an operation until it is idle.
const IDLE_AFTER: u32 = 50;
/// What another thread needs to take over the work of this one, as a rule; else the next time it is asked.
const TAKEN_OVER: Duration = Duration::from_millis(1);

/// Whether an operation keeps a thread that has other work.
#[derive(Debug, Default)]
pub struct Keeps {
    kept: AtomicBool,
    asked: AtomicBool,
    /// Microseconds of the operation after which it is asked again; 0 before the first time.
    patience: AtomicI64,
}

impl Keeps {
    /// From now on it keeps its thread, or does no more.
    pub fn set(&self, kept: bool) {
        self.kept.store(kept, Relaxed);
    }

    /// From now on it does not keep its thread; whether it did.
    pub fn release(&self) -> bool {
        self.kept.swap(false, Relaxed)
    }

    /// Whether it keeps its thread.
    pub fn is_set(&self) -> bool {
        self.kept.load(Relaxed)
    }

    #[inline]
    pub(crate) fn leave_when_asked(&self) {
        if self.asked.load(Relaxed) {
            self.leave();
        }
    }

    #[cold]
    fn leave(&self) {
        self.asked.store(false, Relaxed);
        if self.is_set() {
            current::wait(|| std::thread::sleep(TAKEN_OVER));
        }
    }

    /// Asks it to leave its thread, once in a while; nobody can tell whether another thread took over in time.
    fn ask(&self, elapsed_micros: i64) {
        if elapsed_micros > self.patience.load(Relaxed) {
            self.patience.store(elapsed_micros.saturating_mul(2), Relaxed);
            self.asked.store(true, Relaxed);
        }
    }
}

/// Watches operations until the registry is gone. Whenever one keeps its thread for long, `wake` is called, which lets an idle
/// thread look for work.
pub fn watch(registry: &Weak<OpRegistry>, wake: &dyn Fn()) {
    let (short, mut idle) = (i64::try_from(SHORT.as_micros()).unwrap_or(i64::MAX), 0);
    loop {
        std::thread::sleep(if idle < IDLE_AFTER { TICK } else { IDLE_TICK });
        let Some(registry) = registry.upgrade() else { return };
        let (mut running, mut long) = (false, false);
        registry.each(&mut |op| {
            running = true;
            if op.thread.is_set() && op.elapsed_micros() > short {
                op.thread.ask(op.elapsed_micros());
                long = true;
            }
        });
        idle = if running { 0 } else { idle.saturating_add(1) };
        if long {
            wake();
        }
    }
}
