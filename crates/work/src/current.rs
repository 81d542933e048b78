//! The operation of the current thread, for code that may run long and receives no [`OpCtx`]
//! because it is nested deep inside an expression: scripts, and expressions that iterate over
//! arrays ([`spend`]). Filters contain expressions, and filters are evaluated for index keys,
//! validators and expiry policies, far below the code that has the operation. All other context of
//! an expression is passed in when it is parsed.
//!
//! The dispatcher enters an operation while its handler runs; [`enter`] returns a guard that
//! restores the previous operation.

use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use mayfly_base::Result;

use crate::OpCtx;

/// Runs a wait, and informs the runtime that owns this thread that the thread is blocked meanwhile.
pub type AnnounceWait = fn(&mut dyn FnMut());

/// Set when threads have other tasks that must not be blocked by a wait.
static ANNOUNCE_WAIT: OnceLock<AnnounceWait> = OnceLock::new();

/// Installs the function that [`wait`] runs every wait with. Only the first call has an effect.
pub fn announce_waits_by(announce: AnnounceWait) {
    let _ = ANNOUNCE_WAIT.set(announce);
}

/// The work of a thread.
#[derive(Clone, Default)]
pub struct Current {
    /// The operation; `None` outside of any operation.
    pub op: Option<Arc<OpCtx>>,
}

/// Work between two checks of the operation, in units of [`spend`].
const UNITS_PER_CHECK: usize = 128;

thread_local! {
    static CURRENT: RefCell<Current> = RefCell::new(Current::default());
    static SPENT: Cell<usize> = const { Cell::new(0) };
}

/// Restores the previous operation when dropped; bound to its thread.
pub struct Entered {
    before: Current,
    _thread: PhantomData<*const ()>,
}

/// Makes this the work of the thread until the guard is dropped.
#[must_use]
pub fn enter(current: Current) -> Entered {
    let before = CURRENT.with(|place| place.replace(current));
    Entered { before, _thread: PhantomData }
}

/// The work of the calling thread.
pub fn current() -> Current {
    CURRENT.with(|place| place.borrow().clone())
}

/// Blocks until another thread has done its work. The runtime's other tasks on this thread move to
/// other threads, so that the task that is waited for is never queued after the waiting one.
pub fn wait<T>(waiting: impl FnOnce() -> T) -> T {
    let Some(announce) = ANNOUNCE_WAIT.get() else { return waiting() };
    let (mut waiting, mut result) = (Some(waiting), None);
    announce(&mut || {
        if let Some(waiting) = waiting.take() {
            result = Some(waiting());
        }
    });
    match (result, waiting) {
        (Some(result), _) => result,
        (None, Some(waiting)) => waiting(),
        (None, None) => unreachable!("a wait that was begun has a result"),
    }
}

thread_local! {
    static LOCKS: Cell<u32> = const { Cell::new(0) };
}

/// Records that this thread holds a lock that other operations may wait for.
pub struct HoldsLock(PhantomData<*const ()>);

impl HoldsLock {
    /// Call it after the lock was taken.
    #[inline]
    #[must_use]
    #[expect(clippy::new_without_default, reason = "a default that counts would surprise")]
    pub fn new() -> HoldsLock {
        LOCKS.set(LOCKS.get() + 1);
        HoldsLock(PhantomData)
    }
}

impl Drop for HoldsLock {
    fn drop(&mut self) {
        LOCKS.set(LOCKS.get() - 1);
    }
}

/// Whether this thread holds a lock that other operations may wait for.
pub(crate) fn holds_lock() -> bool {
    LOCKS.get() > 0
}

/// The interval between two checks of the operation while it waits for a lock.
const LOCK_POLL: Duration = Duration::from_millis(100);

/// Takes a lock that may be held for long. Gives up when this thread's operation is killed or out
/// of time. `try_for` waits for the lock for the given duration.
///
/// # Errors
/// Errors of [`OpCtx::check`].
#[inline]
pub fn acquire<L>(mut try_for: impl FnMut(Duration) -> Option<L>) -> Result<L> {
    match try_for(Duration::ZERO) {
        Some(lock) => Ok(lock),
        None => acquire_slowly(try_for),
    }
}

#[cold]
fn acquire_slowly<L>(mut try_for: impl FnMut(Duration) -> Option<L>) -> Result<L> {
    wait(|| {
        loop {
            if let Some(lock) = try_for(LOCK_POLL) {
                return Ok(lock);
            }
            spend(UNITS_PER_CHECK)?;
        }
    })
}

/// Counts work: one unit for one item of a loop, or for a kilobyte produced. Checks the thread's
/// operation after every 128 units.
///
/// # Errors
/// Errors of [`OpCtx::check`].
pub fn spend(units: usize) -> Result<()> {
    let spent = SPENT.get().saturating_add(units);
    if spent < UNITS_PER_CHECK {
        SPENT.set(spent);
        return Ok(());
    }
    SPENT.set(0);
    CURRENT.with_borrow(|current| current.op.as_ref().map_or(Ok(()), |op| op.check()))
}

impl Drop for Entered {
    fn drop(&mut self) {
        let before = std::mem::take(&mut self.before);
        // A thread that is terminating has nothing to restore.
        let _ = CURRENT.try_with(|place| place.replace(before));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mayfly_base::{ErrorCode, ManualClock};

    #[test]
    fn a_guard_restores_the_previous_operation() {
        let op = OpCtx::detached(Arc::new(ManualClock::at_ms(0)));
        let outer = enter(Current { op: Some(op) });
        drop(enter(Current::default()));
        assert!(current().op.is_some());
        drop(outer);
        assert!(current().op.is_none());
    }

    #[test]
    fn waits_are_announced() {
        thread_local! {
            static ANNOUNCED: Cell<u32> = const { Cell::new(0) };
        }
        assert_eq!(wait(|| 1), 1);
        announce_waits_by(|act| {
            ANNOUNCED.set(ANNOUNCED.get() + 1);
            act();
        });
        assert_eq!(wait(|| 2), 2);
        assert_eq!(ANNOUNCED.get(), 1);
    }

    #[test]
    fn a_wait_for_a_lock_ends_with_its_operation() {
        let lock = parking_lot::Mutex::new(());
        let take = || acquire(|longest| lock.try_lock_for(longest)).map(drop);
        assert!(take().is_ok());
        let op = OpCtx::detached(Arc::new(ManualClock::at_ms(0)));
        let _entered = enter(Current { op: Some(op.clone()) });
        op.kill(ErrorCode::ClientDisconnect);
        // A free lock is taken without a check.
        assert!(take().is_ok());
        let _held = lock.lock();
        assert_eq!(take().unwrap_err().code(), ErrorCode::ClientDisconnect);
    }

    #[test]
    fn work_ends_with_its_operation() {
        let clock = Arc::new(ManualClock::at_ms(0));
        let op = OpCtx::detached(clock.clone());
        op.set_max_time_ms(10);
        let _entered = enter(Current { op: Some(op) });
        let steps = |most: usize| (0..most).try_for_each(|_| spend(1));
        assert!(steps(10 * UNITS_PER_CHECK).is_ok());
        clock.advance_ms(10);
        assert_eq!(steps(UNITS_PER_CHECK).unwrap_err().code(), ErrorCode::MaxTimeMSExpired);
        assert!(spend(UNITS_PER_CHECK).is_err());
    }
}
