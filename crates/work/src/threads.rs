//! Operations that keep a thread which has other work.
//!
//! A command that is expected to be short runs on the thread that read its message, because handing it over costs more than it
//! does itself. When it takes long after all (a script that does not end, a slow disk), whatever else that thread should do waits,
//! and nobody looks for messages: the runtime wakes no further thread for them. So somebody watches: an operation that has kept
//! its thread for some milliseconds is asked to leave it, which it does when it next asks whether it may go on, and one of the
//! runtime's idle threads is woken in any case. Whoever else has to look at operations that take long is called by the same watch.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicI64};
use std::sync::{OnceLock, Weak};
use std::thread::Thread;
use std::time::Duration;

use crate::turns::{self, FIRST_TURNS, FirstTurn, TURNS, Turns};
use crate::{OpCtx, OpRegistry, current};

/// So long an operation may keep its thread.
const SHORT: Duration = Duration::from_millis(4);
/// Between two looks while operations run.
const TICK: Duration = Duration::from_millis(4);
/// Looks without an operation until the watch sleeps.
const IDLE_AFTER: u32 = 50;
/// So long it sleeps at most; then it looks whether there still is something to be watched.
const SLEEP: Duration = Duration::from_secs(10);
/// An operation that has run for so long is one that others look at.
pub const LONG: Duration = Duration::from_millis(500);
/// Bytes that take long to copy: work on more leaves the runtime's thread to other tasks.
pub const LONG_BYTES: usize = 1 << 20;
/// Ticks between two such looks.
const TICKS_PER_LOOK: u32 = 125;
/// What another thread needs to take over the work of this one, as a rule; else the next time it is asked.
const TAKEN_OVER: Duration = Duration::from_millis(1);

/// Whether an operation keeps a thread that has other work, and whether it has a turn.
#[derive(Debug, Default)]
pub struct Keeps {
    kept: AtomicBool,
    asked: AtomicBool,
    /// It is a client's, which takes turns with others when it takes long.
    queues: AtomicBool,
    has_turn: AtomicBool,
    has_first_turn: AtomicBool,
    /// Microseconds of the operation when it got its turn, or waited in vain.
    turn_at: AtomicI64,
    /// Microseconds of the operation after which it is asked again; 0 before the first time.
    patience: AtomicI64,
}

impl Keeps {
    /// From now on it keeps its thread, or does no more.
    pub fn set(&self, kept: bool) {
        self.kept.store(kept, Relaxed);
    }

    /// It is a client's: when it takes long it takes turns with others.
    pub(crate) fn set_queues(&self) {
        self.queues.store(true, Relaxed);
    }

    /// Takes over the turn that was waited for before the operation began.
    pub fn begin_with(&self, turn: &FirstTurn) {
        if turn.take_over() {
            self.has_first_turn.store(true, Relaxed);
        }
    }

    /// Waits while many other operations that are expected to take long have started and not run for long yet.
    pub fn begin_long(&self, op: &OpCtx) {
        self.begin_long_by(&FIRST_TURNS, op);
    }

    fn begin_long_by(&self, turns: &Turns, op: &OpCtx) {
        if self.queues.load(Relaxed) && !self.has_first_turn.load(Relaxed) {
            let has_turn = turns.try_take() || current::wait(|| turns.take(|| op.goes_on()));
            self.has_first_turn.store(has_turn, Relaxed);
        }
    }

    /// Gives its turn back: it waits for something, or is over.
    pub fn end_turn(&self) {
        for (has_turn, turns) in [(&self.has_turn, &TURNS), (&self.has_first_turn, &FIRST_TURNS)] {
            if has_turn.load(Relaxed) && has_turn.swap(false, Relaxed) {
                turns.give_back();
            }
        }
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
        if self.wants_turn_by(turns, op.elapsed_micros()) && !current::holds_lock() {
            self.end_turn();
            let has_turn = turns.try_take() || current::wait(|| turns.take(|| op.goes_on()));
            self.has_turn.store(has_turn, Relaxed);
            self.turn_at.store(op.elapsed_micros(), Relaxed);
        }
    }

    /// Whether it should have a turn and has none, or should give another one its own.
    fn wants_turn_by(&self, turns: &Turns, elapsed_micros: i64) -> bool {
        self.queues.load(Relaxed)
            && elapsed_micros - self.turn_at.load(Relaxed) > micros(turns::SHORT)
            && (!self.has_turn.load(Relaxed) || turns.waiting() > 0)
    }

    /// Asks it to leave its thread, once in a while; nobody can tell whether another thread took over in time.
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

/// How many operations wait for their turn.
pub fn queued_operations() -> usize {
    TURNS.waiting() + FIRST_TURNS.waiting()
}

/// The thread of the watch while it sleeps.
#[derive(Debug, Default)]
pub(crate) struct Sleeper {
    asleep: AtomicBool,
    thread: OnceLock<Thread>,
}

impl Sleeper {
    /// To be called behind the registration of an operation.
    #[inline]
    pub(crate) fn wake(&self) {
        if self.asleep.load(Relaxed) && self.asleep.swap(false, Relaxed) {
            self.thread.get().into_iter().for_each(Thread::unpark);
        }
    }
}

/// Watches operations until the registry is gone. Whenever one keeps its thread for long, `wake` is called, which lets an idle
/// thread look for work. As long as one runs that is older than [`LONG`], `look` is called twice a second.
pub fn watch(registry: &Weak<OpRegistry>, wake: &dyn Fn(), look: &dyn Fn()) {
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
            // Who woke it is over in a moment, and others will follow.
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
                kept => busy += usize::from(kept),
            }
            if op.thread.wants_turn_by(&TURNS, elapsed) {
                op.thread.asked.store(true, Relaxed);
            }
        });
        for turns in [&TURNS, &FIRST_TURNS] {
            turns.note_short(busy);
        }
        idle = if running { 0 } else { (idle + 1).min(IDLE_AFTER) };
        // An operation that registers from now on sees it asleep, and one that has registered meanwhile is seen here: both look
        // under the registry's lock.
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
        if oldest > old && ticks >= TICKS_PER_LOOK {
            look();
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
    fn who_holds_a_lock_does_not_wait_for_a_turn() {
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
            // The turn is not one of the process, to which the operation would give it back.
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
    fn only_what_keeps_its_thread_is_asked_to_leave_it_and_a_sleeping_watch_wakes() {
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
