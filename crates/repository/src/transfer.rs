//! The control of a transfer of bytes: a rate limit, a report of progress, a check for an end.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use mayfly_base::Clock;
use parking_lot::Mutex;

use crate::error::{Error, Result};

/// Longest sleep between two checks for an end.
const MAX_SLEEP: Duration = Duration::from_millis(100);
/// The longest idle time that a transfer may make up for, in microseconds.
const MAX_CATCH_UP_MICROS: i64 = 500_000;

/// How much of an operation is done, in bytes of files. Bytes that a backup takes over from its
/// parent count, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Bytes that are done.
    pub done: u64,
    /// Bytes of the whole operation.
    pub total: u64,
}

/// Limits and observes one operation that reads or writes files of a repository; all calls of the
/// operation get the same value. By default there is no limit, no report, and no end.
pub struct Transfer {
    clock: Arc<dyn Clock>,
    bytes_per_second: Option<u64>,
    free_at: Mutex<FreeAt>,
    total: AtomicU64,
    done: AtomicU64,
    report: Box<dyn Fn(Progress) + Send + Sync>,
    is_cancelled: Box<dyn Fn() -> bool + Send + Sync>,
}

/// When the next bytes may be read and sent, in microseconds of the monotonic clock. Reading and
/// sending are limited separately.
#[derive(Default)]
struct FreeAt {
    reading: i64,
    sending: i64,
}

impl Transfer {
    /// A transfer without limits.
    pub fn new(clock: Arc<dyn Clock>) -> Transfer {
        Transfer {
            clock,
            bytes_per_second: None,
            free_at: Mutex::default(),
            total: AtomicU64::new(0),
            done: AtomicU64::new(0),
            report: Box::new(|_| ()),
            is_cancelled: Box::new(|| false),
        }
    }

    /// Limits the rate, in millions of bytes per second. 0 is no limit.
    #[must_use]
    pub fn with_max_mb_per_second(mut self, max: u32) -> Transfer {
        self.bytes_per_second = (max > 0).then(|| u64::from(max) * 1_000_000);
        let now = self.clock.monotonic_micros();
        self.free_at = Mutex::new(FreeAt { reading: now, sending: now });
        self
    }

    /// Calls this function after each piece of at most 32 MiB. Tasks may call it at the same time.
    #[must_use]
    pub fn with_report(mut self, report: impl Fn(Progress) + Send + Sync + 'static) -> Transfer {
        self.report = Box::new(report);
        self
    }

    /// Ends the operation with [`Error::Cancelled`] soon after this function returns true. It is
    /// called for each piece, and ten times a second while the rate limit holds up the transfer.
    #[must_use]
    pub fn with_cancel(
        mut self,
        is_cancelled: impl Fn() -> bool + Send + Sync + 'static,
    ) -> Transfer {
        self.is_cancelled = Box::new(is_cancelled);
        self
    }

    /// Sets the bytes of the whole operation. A verification sets it to those of the content.
    pub fn set_total(&self, bytes: u64) {
        self.total.store(bytes, Ordering::Relaxed);
    }

    /// # Errors
    /// [`Error::Cancelled`].
    pub(crate) fn check(&self) -> Result<()> {
        match (self.is_cancelled)() {
            true => Err(Error::Cancelled),
            false => Ok(()),
        }
    }

    /// Counts bytes as done, and reports them.
    pub(crate) fn advance(&self, bytes: u64) {
        let done = self.done.fetch_add(bytes, Ordering::Relaxed) + bytes;
        // A caller that did not know the total sees no more than a whole.
        (self.report)(Progress { done, total: self.total.load(Ordering::Relaxed).max(done) });
    }

    /// Waits until this many bytes may have been read from a local file.
    pub(crate) async fn pace_reading(&self, bytes: u64) -> Result<()> {
        self.pace(bytes, |free_at| &mut free_at.reading).await
    }

    /// Waits until this many bytes may have been sent to the repository, or received from it.
    pub(crate) async fn pace_sending(&self, bytes: u64) -> Result<()> {
        self.pace(bytes, |free_at| &mut free_at.sending).await
    }

    async fn pace(&self, bytes: u64, of: impl FnOnce(&mut FreeAt) -> &mut i64) -> Result<()> {
        self.check()?;
        let Some(rate) = self.bytes_per_second else { return Ok(()) };
        let until =
            reserve(of(&mut self.free_at.lock()), self.clock.monotonic_micros(), bytes, rate);
        loop {
            let left = until - self.clock.monotonic_micros();
            let Some(left) = u64::try_from(left).ok().filter(|left| *left > 0) else {
                return Ok(());
            };
            tokio::time::sleep(Duration::from_micros(left).min(MAX_SLEEP)).await;
            self.check()?;
        }
    }
}

/// Reserves the time that these bytes take at this rate, and returns its end. Of an idle time
/// before, for example between files, [`MAX_CATCH_UP_MICROS`] count.
/// No longer burst exceeds the rate.
fn reserve(free_at: &mut i64, now: i64, bytes: u64, bytes_per_second: u64) -> i64 {
    let micros = u128::from(bytes) * 1_000_000 / u128::from(bytes_per_second);
    let micros = i64::try_from(micros).unwrap_or(i64::MAX);
    *free_at = (now - MAX_CATCH_UP_MICROS).max(*free_at).saturating_add(micros);
    *free_at
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_holds_over_pieces_and_after_a_pause() {
        let mut free_at = 0;
        assert_eq!(reserve(&mut free_at, 0, 500_000, 1_000_000), 500_000);
        assert_eq!(reserve(&mut free_at, 100, 500_000, 1_000_000), 1_000_000);
        assert_eq!(reserve(&mut free_at, 1_300_000, 500_000, 1_000_000), 1_500_000);
        assert_eq!(reserve(&mut free_at, 9_000_000, 500_000, 1_000_000), 9_000_000);
        assert_eq!(reserve(&mut free_at, 9_000_000, 500_000, 1_000_000), 9_500_000);
        assert_eq!(reserve(&mut free_at, 0, u64::MAX, 1), i64::MAX);
    }
}
