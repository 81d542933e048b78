//! What a thread works on: for code that may run long and is handed no [`OpCtx`], because it stands deep inside an expression.
//! Scripts are such code, and expressions that go over arrays ([`spend`]). Filters have expressions inside, and filters are asked by
//! index keys, validators and lifetimes, far below whoever knows the operation. What expressions need to know beside that is handed
//! in when they are parsed.
//!
//! The dispatcher enters an operation for as long as its handler runs; [`enter`] gives a guard that restores what was before.

use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use mayfly_base::Result;

use crate::OpCtx;

/// Runs a wait and tells whoever owns this thread that it is gone meanwhile.
pub type AnnounceWait = fn(&mut dyn FnMut());

/// Told of waits, when threads have other work that must not wait with them.
static ANNOUNCE_WAIT: OnceLock<AnnounceWait> = OnceLock::new();

/// From here on this is told of every wait; the first one stays.
pub fn announce_waits_by(announce: AnnounceWait) {
    let _ = ANNOUNCE_WAIT.set(announce);
}

/// What this thread works on.
#[derive(Clone, Default)]
pub struct Current {
    /// The operation; nothing outside of any.
    pub op: Option<Arc<OpCtx>>,
}

/// Work between two looks at the operation, in units of [`spend`].
const UNITS_PER_LOOK: usize = 128;

thread_local! {
    static CURRENT: RefCell<Current> = RefCell::new(Current::default());
    static SPENT: Cell<usize> = const { Cell::new(0) };
}

/// Restores what was before; bound to its thread.
pub struct Entered {
    before: Current,
    _thread: PhantomData<*const ()>,
}

/// From now until the guard goes this thread works on this.
#[must_use]
pub fn enter(current: Current) -> Entered {
    let before = CURRENT.with(|place| place.replace(current));
    Entered { before, _thread: PhantomData }
}

/// What this thread works on.
pub fn current() -> Current {
    CURRENT.with(|place| place.borrow().clone())
}

/// Waits for somebody else's work. Whatever else this thread is meant to do goes on elsewhere, so that the one who is waited for
/// is never behind the one who waits.
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

/// A lock that other operations may wait for, held by this thread.
pub struct HoldsLock(PhantomData<*const ()>);

impl HoldsLock {
    /// To be called after the lock was taken.
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

/// How long a wait for a lock goes on until the operation is asked whether it may.
const LOCK_LOOK: Duration = Duration::from_millis(100);

/// Takes a lock that somebody may hold for long, for as long as this thread's operation may wait. `try_for` waits that long for it.
///
/// # Errors
/// Those of [`OpCtx::check`].
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
            if let Some(lock) = try_for(LOCK_LOOK) {
                return Ok(lock);
            }
            spend(UNITS_PER_LOOK)?;
        }
    })
}

/// Counts work: one step over an item, or the making of a kilobyte. After some of it asks the thread's operation whether it may
/// go on.
///
/// # Errors
/// Those of [`OpCtx::check`].
pub fn spend(units: usize) -> Result<()> {
    let spent = SPENT.get().saturating_add(units);
    if spent < UNITS_PER_LOOK {
        SPENT.set(spent);
        return Ok(());
    }
    SPENT.set(0);
    CURRENT.with_borrow(|current| current.op.as_ref().map_or(Ok(()), |op| op.check()))
}

impl Drop for Entered {
    fn drop(&mut self) {
        let before = std::mem::take(&mut self.before);
        // A thread that ends has nothing to restore.
        let _ = CURRENT.try_with(|place| place.replace(before));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mayfly_base::{ErrorCode, ManualClock};

    #[test]
    fn a_guard_restores_what_was_before() {
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
        // What is free needs no wait.
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
        assert!(steps(10 * UNITS_PER_LOOK).is_ok());
        clock.advance_ms(10);
        assert_eq!(steps(UNITS_PER_LOOK).unwrap_err().code(), ErrorCode::MaxTimeMSExpired);
        assert!(spend(UNITS_PER_LOOK).is_err());
    }
}
