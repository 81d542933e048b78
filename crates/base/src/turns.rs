//! Operations that take long run by turns, so that short ones find a processor.
//!
//! An operation that has run for [`SHORT`] needs a turn. There are as many as the machine has processors; who has had one for a while gives
//! it to whoever has waited longest. Nobody waits much longer at a time than all those before it take, because an operation may hold what
//! another one with a turn waits for. Waits for something else, and the end of the operation, give the turn back.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::LazyLock;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// So long an operation runs without a turn, and with one while others wait.
pub(crate) const SHORT: Duration = Duration::from_millis(20);
/// The longest wait for a turn of who is alone in the queue.
const PATIENCE: Duration = Duration::from_millis(500);
/// The longest wait however many there are.
const MOST_PATIENCE: Duration = Duration::from_secs(10);
/// How often one who waits looks whether it may go on waiting.
const LOOK: Duration = Duration::from_millis(50);

/// Those of this process.
pub(crate) static TURNS: LazyLock<Turns> = LazyLock::new(|| {
    let processors = std::thread::available_parallelism().map_or(2, usize::from);
    Turns::new(processors)
});

/// Turns, and who waits for one.
pub(crate) struct Turns {
    most: usize,
    state: Mutex<State>,
    waiting: AtomicUsize,
}

struct State {
    free: usize,
    queue: VecDeque<Arc<Waiter>>,
}

#[derive(Default)]
struct Waiter {
    has_turn: AtomicBool,
    given: Condvar,
}

impl Turns {
    pub(crate) fn new(most: usize) -> Turns {
        let state = State { free: most, queue: VecDeque::new() };
        Turns { most, state: Mutex::new(state), waiting: AtomicUsize::new(0) }
    }

    /// How many wait.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Relaxed)
    }

    /// Takes a turn if there is one.
    pub(crate) fn try_take(&self) -> bool {
        self.state.lock().take()
    }

    /// Waits for a turn as long as `goes_on` says so; whether there is one now.
    pub(crate) fn take(&self, goes_on: impl Fn() -> bool) -> bool {
        let mut state = self.state.lock();
        if state.take() {
            return true;
        }
        let waiter = Arc::new(Waiter::default());
        state.queue.push_back(waiter.clone());
        self.waiting.fetch_add(1, Relaxed);
        // Twice what those before it take with their turns.
        let before = u32::try_from(state.queue.len() / self.most).unwrap_or(u32::MAX);
        let patience = PATIENCE.saturating_add(SHORT.saturating_mul(2).saturating_mul(before));
        let mut looks = patience.min(MOST_PATIENCE).as_millis() / LOOK.as_millis();
        while !waiter.has_turn.load(Relaxed) && looks > 0 && goes_on() {
            looks -= 1;
            waiter.given.wait_for(&mut state, LOOK);
        }
        self.waiting.fetch_sub(1, Relaxed);
        if !waiter.has_turn.load(Relaxed) {
            state.queue.retain(|other| !Arc::ptr_eq(other, &waiter));
            return false;
        }
        true
    }

    /// Gives a turn back.
    pub(crate) fn give_back(&self) {
        let mut state = self.state.lock();
        match state.queue.pop_front() {
            Some(next) => {
                next.has_turn.store(true, Relaxed);
                next.given.notify_one();
            }
            None => state.free += 1,
        }
    }
}

impl State {
    fn take(&mut self) -> bool {
        let there = self.free > 0;
        self.free -= usize::from(there);
        there
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_waits_longest_is_next_and_nobody_waits_for_ever() {
        let turns = Turns::new(1);
        assert!(turns.take(|| true));
        // Nobody gives it back.
        assert!(!turns.take(|| true));
        assert!(!turns.take(|| false) && turns.waiting() == 0);
        let order = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for place in 0..3 {
                let (turns, order) = (&turns, &order);
                scope.spawn(move || {
                    while !turns.take(|| true) {}
                    order.lock().push(place);
                    turns.give_back();
                });
                while turns.waiting() <= place {
                    std::thread::yield_now();
                }
            }
            turns.give_back();
        });
        assert_eq!(order.into_inner(), [0, 1, 2]);
        assert!(turns.take(|| true));
    }
}
