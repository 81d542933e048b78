//! Turns: scheduler slots for long operations, so that short ones find a processor.
//!
//! An operation that has run for [`SHORT`] needs a turn. There are as many turns as the machine has
//! processors, and half as many while short operations occupy half a processor or more; in that
//! case each turn rests for [`PAUSE`] before it is passed on. An operation that has had its turn
//! for [`SHORT`] passes it to the one that has waited longest. An operation that blocks, or ends,
//! returns its turn.
//!
//! This is not `tokio::sync::Semaphore`: most waiters are threads in the middle of a command, which
//! check meanwhile whether they must end, and give up after a timeout that grows with the queue;
//! the number of turns can shrink below the number handed out; and turns rest before they are
//! passed on. A semaphore has none of these, and waiting for one needs an executor.
//!
//! An operation that holds a lock does not wait for a turn, so that waiters for the lock do not
//! wait for the whole queue. Documents that it has claimed without a lock (writes of an open
//! transaction) may block an operation that has a turn; therefore the wait for a turn is bounded.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::LazyLock;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

/// How long an operation runs without a turn, and with one while others wait.
pub(crate) const SHORT: Duration = Duration::from_millis(20);
/// The timeout of the only operation in the queue.
const PATIENCE: Duration = Duration::from_millis(500);
/// How long a turn rests between two operations while short ones are busy. Long operations thereby
/// leave them half of the processors even on a machine with few.
const PAUSE: Duration = Duration::from_millis(25);
/// The longest timeout of a wait for a turn.
const MAX_PATIENCE: Duration = Duration::from_secs(30);
/// The approximate number of samples in the running average of short operations.
const REMEMBERED: f64 = 32.0;
/// When more short operations than this run at once on average, they get half of the processors.
const BUSY: f64 = 0.5;
/// How often a waiting operation checks whether it has to end; each operation before it adds
/// [`POLL_PER_WAITER`], up to [`MAX_POLL`].
const POLL: Duration = Duration::from_millis(50);
const POLL_PER_WAITER: Duration = Duration::from_millis(1);
const MAX_POLL: Duration = Duration::from_millis(500);

/// How many long operations may be in their first [`SHORT`] at the same time, for each processor.
const FIRST_FOR_EACH_PROCESSOR: usize = 2;

/// The turns of this process.
pub(crate) static TURNS: LazyLock<Turns> =
    LazyLock::new(|| Turns::new(processors(), (processors() / 2).max(1)));

/// Turns for the start of long operations. Hundreds that start at once would occupy the processors
/// before the watcher could queue them.
pub(crate) static FIRST_TURNS: LazyLock<Turns> = LazyLock::new(|| {
    Turns::new(processors() * FIRST_FOR_EACH_PROCESSOR, (processors() / 2).max(1))
});

fn processors() -> usize {
    std::thread::available_parallelism().map_or(2, usize::from)
}

/// A set of turns, and the queue of operations that wait for one.
pub(crate) struct Turns {
    /// The number of turns.
    all: usize,
    /// The number of turns while short operations are busy.
    reduced: usize,
    state: Mutex<State>,
    waiting: AtomicUsize,
}

/// The scheduler slots of long operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotCounts {
    /// The number of slots; fewer while short operations are busy.
    pub all: usize,
    /// The number of slots that operations have.
    pub used: usize,
    /// The number of operations that wait for one.
    pub queued: usize,
}

struct State {
    most: usize,
    /// Unassigned turns; negative while more are assigned than there should be.
    free: isize,
    /// When each resting turn becomes available.
    resting: VecDeque<Instant>,
    queue: VecDeque<Arc<Waiter>>,
    /// The running average of concurrent short operations.
    short: f64,
}

#[derive(Default)]
struct Waiter {
    has_turn: AtomicBool,
    given: Condvar,
    /// Set when a task waits instead of a thread.
    waker: Mutex<Option<Waker>>,
}

/// A turn for the start of an operation. Dropping it returns the turn, unless an operation has
/// taken it over.
#[must_use]
pub struct FirstTurn {
    turns: &'static Turns,
    taken_over: AtomicBool,
}

impl FirstTurn {
    fn of(turns: &'static Turns) -> FirstTurn {
        FirstTurn { turns, taken_over: AtomicBool::new(false) }
    }

    /// Whether the caller owns the turn from now on and must return it; true at most once.
    pub(crate) fn take_over(&self) -> bool {
        !self.taken_over.swap(true, Relaxed)
    }

    /// Returns the turn, unless it was taken over.
    pub fn give_back(&self) {
        if self.take_over() {
            self.turns.give_back();
        }
    }
}

impl Drop for FirstTurn {
    fn drop(&mut self) {
        self.give_back();
    }
}

/// Waits asynchronously until an operation that is expected to take long may start.
pub fn first_turn() -> impl Future<Output = FirstTurn> {
    WaitsForTurn { turns: &FIRST_TURNS, waiter: None }
}

struct WaitsForTurn {
    turns: &'static Turns,
    waiter: Option<Arc<Waiter>>,
}

impl Future for WaitsForTurn {
    type Output = FirstTurn;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<FirstTurn> {
        let turns = self.turns;
        let mut state = turns.state.lock();
        let waiter = match self.waiter.take() {
            None if state.take() => return Poll::Ready(FirstTurn::of(turns)),
            None => {
                let waiter = Arc::new(Waiter::default());
                state.queue.push_back(waiter.clone());
                turns.waiting.fetch_add(1, Relaxed);
                waiter
            }
            Some(waiter) if waiter.has_turn.load(Relaxed) => {
                turns.waiting.fetch_sub(1, Relaxed);
                return Poll::Ready(FirstTurn::of(turns));
            }
            Some(waiter) => waiter,
        };
        *waiter.waker.lock() = Some(context.waker().clone());
        drop(state);
        self.waiter = Some(waiter);
        Poll::Pending
    }
}

impl Drop for WaitsForTurn {
    fn drop(&mut self) {
        let Some(waiter) = self.waiter.take() else { return };
        let turns = self.turns;
        turns.waiting.fetch_sub(1, Relaxed);
        let mut state = turns.state.lock();
        match waiter.has_turn.load(Relaxed) {
            // The turn was assigned after the waiter had given up.
            true => {
                drop(state);
                turns.give_back();
            }
            false => state.queue.retain(|other| !Arc::ptr_eq(other, &waiter)),
        }
    }
}

impl Turns {
    pub(crate) fn new(all: usize, reduced: usize) -> Turns {
        let (free, resting, queue) = (all.cast_signed(), VecDeque::new(), VecDeque::new());
        let state = Mutex::new(State { most: all, free, resting, queue, short: 0.0 });
        Turns { all, reduced, state, waiting: AtomicUsize::new(0) }
    }

    /// Adds a sample of the number of concurrent short operations.
    pub(crate) fn note_short(&self, running: usize) {
        let mut state = self.state.lock();
        state.short += (running as f64 - state.short) / REMEMBERED;
        let most = if state.short > BUSY { self.reduced } else { self.all };
        state.free += most.cast_signed() - state.most.cast_signed();
        state.most = most;
        state.hand_out();
    }

    /// The length of the queue.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Relaxed)
    }

    /// The numbers of turns and of those that operations have, and the length of the queue.
    pub(crate) fn counts(&self) -> SlotCounts {
        let state = self.state.lock();
        let resting = state.resting.len().cast_signed();
        let used = state.most.cast_signed() - state.free - resting;
        SlotCounts { all: state.most, used: used.max(0).unsigned_abs(), queued: self.waiting() }
    }

    /// Takes a turn if one is free.
    pub(crate) fn try_take(&self) -> bool {
        self.state.lock().take()
    }

    /// Waits for a turn while `may_continue` returns true. Returns whether it got one.
    pub(crate) fn take(&self, may_continue: impl Fn() -> bool) -> bool {
        let mut state = self.state.lock();
        if state.take() {
            return true;
        }
        let waiter = Arc::new(Waiter::default());
        state.queue.push_back(waiter.clone());
        self.waiting.fetch_add(1, Relaxed);
        // Twice the time that the turns of the operations before it take.
        let before = u32::try_from(state.queue.len() / state.most).unwrap_or(u32::MAX);
        let patience =
            PATIENCE.saturating_add((SHORT + PAUSE).saturating_mul(2).saturating_mul(before));
        let poll_every = POLL.saturating_add(POLL_PER_WAITER.saturating_mul(before)).min(MAX_POLL);
        let mut polls = patience.min(MAX_PATIENCE).as_millis() / poll_every.as_millis();
        while !waiter.has_turn.load(Relaxed) && polls > 0 && may_continue() {
            polls -= 1;
            waiter.given.wait_for(&mut state, poll_every);
        }
        self.waiting.fetch_sub(1, Relaxed);
        if !waiter.has_turn.load(Relaxed) {
            state.queue.retain(|other| !Arc::ptr_eq(other, &waiter));
            return false;
        }
        true
    }

    /// Returns a turn.
    pub(crate) fn give_back(&self) {
        let mut state = self.state.lock();
        match state.short > BUSY {
            true => state.resting.push_back(Instant::now() + PAUSE),
            false => state.free += 1,
        }
        state.hand_out();
    }
}

impl State {
    fn take(&mut self) -> bool {
        self.end_rests();
        let there = self.free > 0;
        self.free -= isize::from(there);
        there
    }

    fn end_rests(&mut self) {
        while self.resting.front().is_some_and(|until| *until <= Instant::now()) {
            self.resting.pop_front();
            self.free += 1;
        }
    }

    fn hand_out(&mut self) {
        self.end_rests();
        while self.free > 0
            && let Some(next) = self.queue.pop_front()
        {
            self.free -= 1;
            next.has_turn.store(true, Relaxed);
            next.given.notify_one();
            if let Some(waker) = next.waker.lock().take() {
                waker.wake();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mayfly_base::testing::wait_until;

    #[test]
    fn the_longest_waiter_is_next_and_every_wait_ends() {
        let turns = Turns::new(1, 1);
        assert!(turns.take(|| true));
        // The turn is not returned.
        assert!(!turns.take(|| true));
        assert!(!turns.take(|| false) && turns.waiting() == 0);
        assert_eq!(turns.counts(), SlotCounts { all: 1, used: 1, queued: 0 });
        let order = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for place in 0..3 {
                let (turns, order) = (&turns, &order);
                scope.spawn(move || {
                    wait_until("a turn", || turns.take(|| true));
                    order.lock().push(place);
                    turns.give_back();
                });
                wait_until("it waits", || turns.waiting() > place);
            }
            turns.give_back();
        });
        assert_eq!(order.into_inner(), [0, 1, 2]);
        assert!(turns.take(|| true));
    }

    #[test]
    fn tasks_wait_for_a_turn_in_order_and_may_stop_waiting() {
        let turns: &'static Turns = Box::leak(Box::new(Turns::new(1, 1)));
        let context = &mut Context::from_waker(Waker::noop());
        let waits = || Box::pin(WaitsForTurn { turns, waiter: None });
        let Poll::Ready(turn) = waits().as_mut().poll(context) else { panic!("there is one") };
        let (mut first, mut second, mut third) = (waits(), waits(), waits());
        assert!(first.as_mut().poll(context).is_pending());
        assert!(second.as_mut().poll(context).is_pending());
        assert!(third.as_mut().poll(context).is_pending());
        drop(second);
        assert_eq!(turns.waiting(), 2);
        drop(turn);
        assert!(third.as_mut().poll(context).is_pending());
        // It was assigned the turn and does not wait any more.
        drop(first);
        let Poll::Ready(turn) = third.as_mut().poll(context) else { panic!("it is next") };
        assert!(!turns.try_take() && turns.waiting() == 0);
        drop(turn);
        let Poll::Ready(turn) = waits().as_mut().poll(context) else { panic!("it is back") };
        assert!(turn.take_over() && !turn.take_over());
        drop(turn);
        assert!(!turns.try_take());
    }

    #[test]
    fn short_operations_that_are_busy_have_half_of_the_processors() {
        let turns = Turns::new(4, 2);
        assert!((0..4).all(|_| turns.try_take()) && !turns.try_take());
        let note = |running: usize| (0..200).for_each(|_| turns.note_short(running));
        note(1);
        // Four turns are assigned, two too many.
        let begin = Instant::now();
        (0..3).for_each(|_| turns.give_back());
        wait_until("the pause is over", || turns.try_take());
        assert!(begin.elapsed() >= PAUSE && !turns.try_take());
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| turns.take(|| true));
            wait_until("it waits", || turns.waiting() > 0);
            note(0);
            assert!(waiting.join().unwrap());
        });
        assert!(turns.try_take() && !turns.try_take());
    }
}
