//! Waiting on a thread for a future: the contract is synchronous, the connections are not.
//!
//! A statement needs no runtime on the thread that sends it. Its first poll puts the message into
//! the connection's queue, and the task of the connection wakes the thread when the reply is there.

use std::pin::pin;
use std::task::{Context, Poll};
use std::thread;
use std::time::{Duration, Instant};

use mayfly_kv::{KvError, KvResult};
use mayfly_work::{current, thread_waker};
use parking_lot::{Mutex, MutexGuard};

/// How often a waiting thread checks whether its operation has ended.
pub(crate) const CHECK_EVERY: Duration = Duration::from_millis(100);

/// Why a future was abandoned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Abandoned {
    /// The deadline of the engine passed.
    Deadline,
    /// The operation of the thread was killed, or its own deadline passed.
    OperationEnded,
}

/// Whether the end of the operation also ends the wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    /// It does: reads.
    WhileWanted,
    /// Only the deadline does: commits, whose outcome must become known.
    UntilDeadline,
}

/// Blocks the thread until the future is ready, or until it is no longer worth waiting for.
pub(crate) fn block_on<F: Future>(
    future: F,
    deadline: Instant,
    patience: Patience,
) -> Result<F::Output, Abandoned> {
    let mut future = pin!(future);
    let waker = thread_waker();
    let mut context = Context::from_waker(&waker);
    if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
        return Ok(output);
    }
    current::wait(|| {
        let mut check_at = Instant::now() + CHECK_EVERY;
        loop {
            let now = Instant::now();
            if now >= deadline {
                return Err(Abandoned::Deadline);
            }
            if now >= check_at {
                check_at = now + CHECK_EVERY;
                if patience == Patience::WhileWanted && has_ended() {
                    return Err(Abandoned::OperationEnded);
                }
            }
            thread::park_timeout(check_at.min(deadline).saturating_duration_since(now));
            if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
                return Ok(output);
            }
        }
    })
}

/// Takes a lock whose holder may be waiting for the database. A thread of the runtime gives its
/// other tasks away while it waits: they answer clients that ask whether the server lives.
///
/// # Errors
/// [`KvError::Unavailable`] at the deadline, [`KvError::Timeout`] at the end of the operation.
pub(crate) fn lock_until<T>(mutex: &Mutex<T>, deadline: Instant) -> KvResult<MutexGuard<'_, T>> {
    if let Some(guard) = mutex.try_lock() {
        return Ok(guard);
    }
    current::wait(|| {
        loop {
            let now = Instant::now();
            if now >= deadline {
                return Err(KvError::Unavailable("PostgreSQL has not answered in time".into()));
            }
            if has_ended() {
                return Err(KvError::Timeout);
            }
            if let Some(guard) = mutex.try_lock_until(deadline.min(now + CHECK_EVERY)) {
                return Ok(guard);
            }
        }
    })
}

/// Whether the operation of this thread was killed or is past its deadline.
pub(crate) fn has_ended() -> bool {
    current::current()
        .op
        .is_some_and(|op| op.is_killed() || op.time_left_micros().is_some_and(|micros| micros <= 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn soon(millis: u64) -> Instant {
        Instant::now() + Duration::from_millis(millis)
    }

    #[test]
    fn a_ready_future_and_one_that_another_thread_completes() {
        assert_eq!(block_on(async { 7 }, soon(0), Patience::WhileWanted), Ok(7));
        let (sender, receiver) = tokio::sync::oneshot::channel();
        thread::spawn(move || {
            thread::sleep(Duration::from_millis(5));
            sender.send(8).unwrap();
        });
        assert_eq!(block_on(receiver, soon(10_000), Patience::UntilDeadline), Ok(Ok(8)));
    }

    #[test]
    fn a_lock_is_awaited_until_the_deadline() {
        let mutex = Mutex::new(1);
        let held = lock_until(&mutex, soon(0)).unwrap();
        let late = lock_until(&mutex, soon(5)).map(drop).unwrap_err();
        assert!(matches!(late, KvError::Unavailable(_)));
        thread::scope(|threads| {
            let waits = threads.spawn(|| lock_until(&mutex, soon(10_000)).map(|found| *found));
            drop(held);
            assert_eq!(waits.join().unwrap(), Ok(1));
        });
    }

    #[test]
    fn the_deadline_ends_the_wait() {
        let never = std::future::pending::<()>();
        assert_eq!(block_on(never, soon(5), Patience::UntilDeadline), Err(Abandoned::Deadline));
    }
}
