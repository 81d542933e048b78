//! The lock of `fsync`: while somebody holds it no writing command begins, and those that had begun are over.
//!
//! Whoever writes enters before and leaves after. Who has to wait is woken, and asks in between whether it may go on waiting: the
//! lock is held for backups, by people.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use mayfly_base::Result;
use mayfly_work::OpCtx;
use parking_lot::{Condvar, Mutex};

/// How often one who waits asks whether it may.
const LOOK: Duration = Duration::from_millis(100);

/// The lock.
#[derive(Default)]
pub struct FsyncLock {
    locks: AtomicI64,
    writers: AtomicI64,
    /// Held by who is about to wait, and by who wakes others.
    waiting: Mutex<()>,
    changed: Condvar,
}

/// Somebody writes as long as this lives.
pub struct Writing<'l>(&'l FsyncLock);

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        self.0.writers.fetch_sub(1, Ordering::SeqCst);
        if self.0.count() > 0 {
            self.0.wake();
        }
    }
}

impl FsyncLock {
    /// How often it is locked.
    pub fn count(&self) -> i64 {
        self.locks.load(Ordering::SeqCst)
    }

    /// Begins to write, unless it is locked.
    pub fn try_enter(&self) -> Option<Writing<'_>> {
        if self.count() > 0 {
            // Who holds it need not hear of those who come in vain.
            return None;
        }
        self.writers.fetch_add(1, Ordering::SeqCst);
        let writing = Writing(self);
        (self.count() == 0).then_some(writing)
    }

    /// Begins to write as soon as nobody holds it.
    ///
    /// # Errors
    /// Those of the operation's deadline, and its killer's.
    pub fn enter(&self, op: &OpCtx) -> Result<Writing<'_>> {
        loop {
            if let Some(writing) = self.try_enter() {
                return Ok(writing);
            }
            self.wait(op, || self.count() > 0)?;
        }
    }

    /// Waits for a change as long as this holds.
    fn wait(&self, op: &OpCtx, holds: impl Fn() -> bool) -> Result<()> {
        op.check()?;
        let mut waiting = self.waiting.lock();
        if holds() {
            self.changed.wait_for(&mut waiting, LOOK);
        }
        Ok(())
    }

    /// Wakes those who wait, behind a change.
    #[cold]
    fn wake(&self) {
        let _waiting = self.waiting.lock();
        self.changed.notify_all();
    }

    /// Locks it once more; gives how often it is locked then. Whoever writes has ended.
    ///
    /// # Errors
    /// Those of the operation's deadline, and its killer's; it is not locked then.
    pub fn lock(&self, op: &OpCtx) -> Result<i64> {
        let count = self.locks.fetch_add(1, Ordering::SeqCst) + 1;
        let writes = || self.writers.load(Ordering::SeqCst) > 0;
        while writes() {
            if let Err(error) = self.wait(op, writes) {
                self.locks.fetch_sub(1, Ordering::SeqCst);
                self.wake();
                return Err(error);
            }
        }
        Ok(count)
    }

    /// Unlocks it once; gives how often it is still locked, or nothing when it was not.
    pub fn unlock(&self) -> Option<i64> {
        let less = |count: i64| (count > 0).then_some(count - 1);
        let before = self.locks.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less);
        self.wake();
        before.ok().map(|before| before - 1)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use mayfly_base::{ErrorCode, ManualClock};
    use mayfly_work::OpCtx;

    use super::*;

    #[test]
    fn locked_out_writers_wait_and_can_be_killed() {
        let lock = FsyncLock::default();
        let op = OpCtx::detached(Arc::new(ManualClock::at_ms(0)));
        drop(lock.enter(&op).unwrap());
        assert_eq!((lock.lock(&op).unwrap(), lock.lock(&op).unwrap()), (1, 2));
        assert!(lock.try_enter().is_none());
        op.kill(ErrorCode::Interrupted);
        assert!(lock.enter(&op).is_err());
        assert_eq!((lock.unlock(), lock.unlock(), lock.unlock()), (Some(1), Some(0), None));
        let writing = lock.try_enter();
        assert!(writing.is_some());
        assert!(lock.lock(&op).is_err(), "a writer is there");
        assert_eq!(lock.count(), 0);
    }
}
