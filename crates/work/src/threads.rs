//! The watcher thread, which finds operations that occupy a thread with other tasks.
//!
//! A command that is expected to be short runs on the runtime thread that read its message, because
//! handing it over costs more than the command itself. If it takes long after all (a script in an
//! endless loop, a slow disk), the thread's other tasks wait, and no thread polls the sockets: the
//! runtime wakes no further thread. A watcher thread therefore inspects the running operations
//! every 4 ms. It asks an operation that has occupied its thread for longer to hand the thread
//! over, which the operation does at its next check, and wakes an idle thread of the runtime in any
//! case. The same thread periodically runs the checks for long operations.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicI64};
use std::sync::{OnceLock, Weak};
use std::thread::Thread;
use std::time::Duration;

use crate::turns::{self, FIRST_TURNS, FirstTurn, SlotCounts, TURNS, Turns};
use crate::{OpCtx, OpRegistry, current, memory};

/// How long an operation may occupy its thread.
const SHORT: Duration = Duration::from_millis(4);
/// The interval of the watcher while operations run.
const TICK: Duration = Duration::from_millis(4);
/// Intervals without an operation after which the watcher sleeps.
const IDLE_AFTER: u32 = 50;
/// The longest sleep; the watcher then checks whether the registry still exists.
const SLEEP: Duration = Duration::from_secs(10);
/// The age from which the periodic check for long operations applies to one.
pub const LONG: Duration = Duration::from_millis(500);
/// A copy of more bytes than this takes long: such work releases the runtime's thread to other
/// tasks.
pub const LONG_BYTES: usize = 1 << 20;
/// Watcher intervals between two checks for long operations.
const TICKS_PER_CHECK: u32 = 125;
/// Usually enough for another thread to take over this thread's tasks; if not, the operation is
/// asked again.
const TAKEN_OVER: Duration = Duration::from_millis(1);

/// How an operation uses its thread: whether the thread has other tasks, and whether the operation
/// has a turn.
#[derive(Debug, Default)]
pub struct ThreadOccupancy {
    occupied: AtomicBool,
    asked: AtomicBool,
    /// It is a client's operation, which takes turns when it takes long.
    queues: AtomicBool,
    has_turn: AtomicBool,
    has_first_turn: AtomicBool,
    /// Elapsed microseconds of the operation when it got its turn, or gave up waiting for one.
    turn_at: AtomicI64,
    /// Elapsed microseconds after which the operation is asked again; 0 before the first time.
    patience: AtomicI64,
}

impl ThreadOccupancy {
    /// Sets whether it occupies a thread with other tasks.
    pub fn set(&self, occupied: bool) {
        self.occupied.store(occupied, Relaxed);
    }

    /// Marks a client's operation, which takes turns when it takes long.
    pub(crate) fn set_queues(&self) {
        self.queues.store(true, Relaxed);
    }

    /// Takes over the turn that was acquired before the operation began.
    pub fn begin_with(&self, turn: &FirstTurn) {
        if turn.take_over() {
            self.has_first_turn.store(true, Relaxed);
        }
    }

    /// Waits while too many operations that are expected to take long have just started.
    pub fn begin_long(&self, op: &OpCtx) {
        self.begin_long_by(&FIRST_TURNS, op);
    }

    fn begin_long_by(&self, turns: &Turns, op: &OpCtx) {
        if self.queues.load(Relaxed) && !self.has_first_turn.load(Relaxed) {
            let has_turn = turns.try_take() || current::wait(|| turns.take(|| op.may_continue()));
            self.has_first_turn.store(has_turn, Relaxed);
        }
    }

    /// Releases its turn, because it waits for something or is finished.
    pub fn end_turn(&self) {
        for (has_turn, turns) in [(&self.has_turn, &TURNS), (&self.has_first_turn, &FIRST_TURNS)] {
            if has_turn.load(Relaxed) && has_turn.swap(false, Relaxed) {
                turns.give_back();
            }
        }
    }

    /// Marks its thread as free of other tasks. Returns whether it had some.
    pub fn release(&self) -> bool {
        self.occupied.swap(false, Relaxed)
    }

    /// Whether it occupies a thread with other tasks.
    pub fn is_set(&self) -> bool {
        self.occupied.load(Relaxed)
    }

    #[inline]
    pub(crate) fn leave_when_asked(&self, op: &OpCtx) {
        if self.asked.load(Relaxed) {
            self.leave(op);
        }
    }

    #[cold]
    fn leave(&self, op: &OpCtx) {
        self.asked.store(false, Relaxed);
        if self.is_set() {
            current::wait(|| std::thread::sleep(TAKEN_OVER));
        }
        self.take_turn_by(&TURNS, op);
    }

    fn take_turn_by(&self, turns: &Turns, op: &OpCtx) {
        if self.needs_turn_by(turns, op.elapsed_micros()) && !current::holds_lock() {
            self.end_turn();
            let has_turn = turns.try_take() || current::wait(|| turns.take(|| op.may_continue()));
            self.has_turn.store(has_turn, Relaxed);
            self.turn_at.store(op.elapsed_micros(), Relaxed);
        }
    }

    /// Whether it needs a turn and has none, or should pass its turn on.
    fn needs_turn_by(&self, turns: &Turns, elapsed_micros: i64) -> bool {
        self.queues.load(Relaxed)
            && elapsed_micros - self.turn_at.load(Relaxed) > micros(turns::SHORT)
            && (!self.has_turn.load(Relaxed) || turns.waiting() > 0)
    }

    /// Asks it to hand over its thread, at intervals that double, because the watcher cannot see
    /// whether another thread took over in time.
    fn ask(&self, elapsed_micros: i64) {
        if elapsed_micros > self.patience.load(Relaxed) {
            self.patience.store(elapsed_micros.saturating_mul(2), Relaxed);
            self.asked.store(true, Relaxed);
        }
    }
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

/// The scheduler slots that long operations have and wait for.
pub fn slots() -> SlotCounts {
    TURNS.counts()
}

/// How many operations wait for a turn.
pub fn queued_operations() -> usize {
    TURNS.waiting() + FIRST_TURNS.waiting()
}

/// The watcher thread while it sleeps.
#[derive(Debug, Default)]
pub(crate) struct Sleeper {
    asleep: AtomicBool,
    thread: OnceLock<Thread>,
}

impl Sleeper {
    /// Wakes the watcher. Call it after an operation is registered.
    #[inline]
    pub(crate) fn wake(&self) {
        if self.asleep.load(Relaxed) && self.asleep.swap(false, Relaxed) {
            self.thread.get().into_iter().for_each(Thread::unpark);
        }
    }
}

/// Runs the watcher until the registry is dropped. Calls `wake`, which lets an idle thread poll for
/// work, whenever an operation occupies its thread for long. While an operation older than [`LONG`]
/// runs, calls `check_long` twice a second.
pub fn watch(registry: &Weak<OpRegistry>, wake: &dyn Fn(), check_long: &dyn Fn()) {
    let (short, old) = (micros(SHORT), micros(LONG));
    let (mut idle, mut sleeps, mut ticks) = (0, false, 0);
    loop {
        match sleeps {
            true => std::thread::park_timeout(SLEEP),
            false => std::thread::sleep(TICK),
        }
        let Some(registry) = registry.upgrade() else { return };
        registry.watched.store(true, Relaxed);
        let sleeper = &registry.sleeper;
        if !sleeper.asleep.load(Relaxed) && sleeps {
            // The operation that woke the watcher ends soon, and others will follow.
            idle = 0;
        }
        let (mut running, mut long, mut oldest, mut busy) = (false, false, 0, 0);
        registry.each(&mut |op| {
            running = true;
            let elapsed = op.elapsed_micros();
            oldest = oldest.max(elapsed);
            match op.thread.is_set() {
                true if elapsed > short => {
                    op.thread.ask(elapsed);
                    long = true;
                }
                occupied => busy += usize::from(occupied),
            }
            if op.thread.needs_turn_by(&TURNS, elapsed) {
                op.thread.asked.store(true, Relaxed);
            }
        });
        for turns in [&TURNS, &FIRST_TURNS] {
            turns.note_short(busy);
        }
        idle = if running { 0 } else { (idle + 1).min(IDLE_AFTER) };
        // An operation that registers from now on sees `asleep`; one that registered before is
        // found by the scan below. Both happen under the registry's lock.
        sleeps = idle >= IDLE_AFTER && {
            sleeper.thread.get_or_init(std::thread::current);
            sleeper.asleep.store(true, Relaxed);
            let mut nothing = true;
            registry.each(&mut |_| nothing = false);
            nothing
        };
        if !sleeps {
            sleeper.asleep.store(false, Relaxed);
        }
        if long {
            wake();
        }
        ticks += 1;
        if running && memory::is_measured() {
            memory::measure();
        }
        if oldest > old && ticks >= TICKS_PER_CHECK {
            check_long();
            ticks = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;

    use super::*;
    use crate::OpInfo;
    use mayfly_base::SystemClock;
    use mayfly_base::testing::wait_until;

    #[test]
    fn a_lock_holder_does_not_wait_for_a_turn() {
        let clock = Arc::new(mayfly_base::ManualClock::at_ms(0));
        let registry = OpRegistry::new(clock.clone());
        let long = registry.begin(OpInfo::default());
        let op = long.op();
        op.thread.set_queues();
        clock.advance_ms(1000);
        let turns = Turns::new(1, 1);
        assert!(turns.try_take());
        let held = current::HoldsLock::new();
        op.thread.take_turn_by(&turns, op);
        assert_eq!(op.thread.turn_at.load(Relaxed), 0, "it was not asked to wait");
        drop(held);
        op.thread.take_turn_by(&turns, op);
        assert!(op.thread.turn_at.load(Relaxed) > 0, "it has waited, in vain");
    }

    #[test]
    fn of_many_long_operations_few_begin_at_once() {
        let registry = OpRegistry::new(Arc::new(SystemClock::new()));
        let turns = Turns::new(2, 1);
        let begins = |registry: &Arc<OpRegistry>| {
            let next = registry.begin(OpInfo::default());
            next.op().thread.set_queues();
            next.op().thread.begin_long_by(&turns, next.op());
            // The turn is not one of the process, to which the operation would return it.
            next.op().thread.has_first_turn.swap(false, Relaxed)
        };
        assert!(begins(&registry) && begins(&registry));
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| begins(&registry));
            wait_until("the third waits", || turns.waiting() > 0);
            turns.give_back();
            assert!(waiting.join().unwrap());
        });
    }

    #[test]
    fn only_an_operation_that_occupies_its_thread_is_asked_to_leave_and_a_sleeping_watcher_wakes() {
        let registry = OpRegistry::new(Arc::new(SystemClock::new()));
        let woken = Arc::new(AtomicUsize::new(0));
        let (weak, count) = (Arc::downgrade(&registry), woken.clone());
        let watching = std::thread::spawn(move || {
            let woken = || {
                count.fetch_add(1, Relaxed);
            };
            watch(&weak, &woken, &|| {});
        });
        wait_until("the watch sleeps", || registry.sleeper.asleep.load(Relaxed));
        let (quiet, keeps) = (registry.begin(OpInfo::default()), registry.begin(OpInfo::default()));
        keeps.op().thread.set(true);
        wait_until("a thread is woken", || woken.load(Relaxed) > 0);
        assert!(keeps.op().thread.asked.load(Relaxed) && !quiet.op().thread.asked.load(Relaxed));
        keeps.op().check().unwrap();
        assert!(!keeps.op().thread.asked.load(Relaxed));
        drop((quiet, keeps, registry));
        watching.join().unwrap();
    }
}
