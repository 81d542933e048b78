//! The lock of `fsync`: while it is held, no writing command begins, and those that had begun have
//! ended.
//!
//! A writing command enters before it starts and leaves when it ends. A waiting command is woken,
//! and checks in between whether it must end: the lock may be held for long, for a backup. Under
//! the lock no file of the data folder changes, so that another program can copy it.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_work::{OpCtx, current};
use parking_lot::{Condvar, Mutex};

use super::writer::Writer;
use crate::record::error::from_kv;

/// How often a waiting command checks whether it must end.
const LOOK: Duration = Duration::from_millis(100);
/// How often the holder of the lock checks whether compactions have ended.
const COMPACTIONS_LOOK: Duration = Duration::from_millis(5);

/// The lock of `fsync`, which counts how often it is locked.
#[derive(Default)]
pub struct FsyncLock {
    locks: AtomicI64,
    writers: AtomicI64,
    /// No command writes any more.
    refuses: AtomicBool,
    /// Held by threads that are about to wait, and by threads that wake others.
    waiting: Mutex<()>,
    changed: Condvar,
    /// Held while the engine's files are being held or released.
    files: Mutex<()>,
}

/// A running writing command; dropping it ends the command.
pub struct WritingCommand<'l>(&'l FsyncLock);

impl Drop for WritingCommand<'_> {
    fn drop(&mut self) {
        self.0.writers.fetch_sub(1, Ordering::SeqCst);
        if self.0.count() > 0 {
            self.0.wake();
        }
    }
}

impl FsyncLock {
    /// How often the lock is held.
    pub fn count(&self) -> i64 {
        self.locks.load(Ordering::SeqCst)
    }

    /// Starts to write, unless the lock is held.
    pub fn try_enter(&self) -> Option<WritingCommand<'_>> {
        if self.count() > 0 {
            // The holder of the lock need not be woken for a refused writer.
            return None;
        }
        self.writers.fetch_add(1, Ordering::SeqCst);
        let writing = WritingCommand(self);
        (self.count() == 0).then_some(writing)
    }

    /// Starts to write as soon as the lock is free.
    ///
    /// # Errors
    /// Errors of the operation's deadline, and of its being killed.
    pub fn enter(&self, op: &OpCtx) -> Result<WritingCommand<'_>> {
        loop {
            if let Some(writing) = self.try_enter() {
                return Ok(writing);
            }
            self.wait(op, || self.count() > 0)?;
        }
    }

    /// Waits for a change while the condition holds.
    fn wait(&self, op: &OpCtx, holds: impl Fn() -> bool) -> Result<()> {
        op.check()?;
        if self.refuses.load(Ordering::SeqCst) {
            let text = "the store was moved to another place; the server is stopping";
            return Err(Error::new(ErrorCode::InterruptedAtShutdown, text));
        }
        let mut waiting = self.waiting.lock();
        if holds() {
            self.changed.wait_for(&mut waiting, LOOK);
        }
        Ok(())
    }

    /// Wakes waiting threads after a change.
    #[cold]
    fn wake(&self) {
        let _waiting = self.waiting.lock();
        self.changed.notify_all();
    }

    /// Makes all commands fail that wait for the lock, and all that are going to. The lock is
    /// held.
    pub(crate) fn refuse(&self) {
        self.refuses.store(true, Ordering::SeqCst);
        self.wake();
    }

    /// Locks once more, and waits for running writers; returns how often the lock is held then.
    ///
    /// # Errors
    /// Errors of the operation's deadline, and of its being killed; the lock is not taken then.
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

    /// Unlocks once; returns how often the lock is still held, or `None` when it was not.
    pub fn unlock(&self) -> Option<i64> {
        // A store that was moved stays locked.
        let fewest = if self.refuses.load(Ordering::SeqCst) { 1 } else { 0 };
        let less = |count: i64| (count > fewest).then_some(count - 1);
        let before = self.locks.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less);
        self.wake();
        before.ok().map(|before| before - 1)
    }
}

impl Writer {
    /// Locks out all writes, and keeps the files of the data folder as they are; returns how often
    /// the lock is held then.
    ///
    /// # Errors
    /// Errors of the operation's deadline, and of its being killed; errors of the engine. The lock
    /// is not taken then.
    pub fn lock_for_copy(&self, op: &OpCtx) -> Result<i64> {
        let count = self.fsync_lock.lock(op)?;
        let held = self.hold_files(op);
        if held.is_err() {
            self.unlock_after_copy()?;
        }
        held.map(|()| count)
    }

    fn hold_files(&self, op: &OpCtx) -> Result<()> {
        let _one = current::acquire(|time| self.fsync_lock.files.try_lock_for(time))?;
        while !self.engine().hold_files().map_err(from_kv)? {
            op.check()?;
            current::wait(|| std::thread::sleep(COMPACTIONS_LOOK));
        }
        Ok(())
    }

    /// Unlocks once; returns how often the lock is still held, or `None` when it was not.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn unlock_after_copy(&self) -> Result<Option<i64>> {
        let _one = current::acquire(|time| self.fsync_lock.files.try_lock_for(time))?;
        if self.fsync_lock.count() <= 1 {
            // Before writers may begin.
            self.engine().release_files().map_err(from_kv)?;
        }
        Ok(self.fsync_lock.unlock())
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
