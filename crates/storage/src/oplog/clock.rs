//! Timestamps of the operation log, and up to where the log has no holes.
//!
//! A timestamp is handed out shortly before its commit, and commits end in any order: an entry may become visible before one
//! with an earlier timestamp does. Whoever follows the log reads only up to [`OplogClock::settled`], below which every
//! timestamp was committed or never will be.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::signal::Signal;

/// Source of timestamps: seconds in the high half, increment in the low half.
pub(crate) struct OplogClock {
    last: AtomicU64,
    /// The last one below which the log is complete.
    settled: AtomicU64,
    /// Handed out, and not committed yet.
    open: Mutex<Vec<u64>>,
    committed: Signal,
}

/// A timestamp whose commit is under way: to be kept until it is over, however it ends.
pub(crate) struct Stamp<'c> {
    clock: &'c OplogClock,
    timestamp: u64,
}

impl OplogClock {
    /// Goes on after this timestamp.
    pub(crate) fn after(last: u64) -> OplogClock {
        OplogClock {
            last: AtomicU64::new(last),
            settled: AtomicU64::new(last),
            open: Mutex::default(),
            committed: Signal::default(),
        }
    }

    /// The first timestamp of the second that follows this time.
    pub(crate) fn second_behind(now_ms: i64) -> u64 {
        (u64::try_from(now_ms / 1000).unwrap_or(0) + 1) << 32
    }

    /// The last one that was handed out.
    pub(crate) fn last(&self) -> u64 {
        self.last.load(Ordering::Acquire)
    }

    /// A timestamp greater than all before it, at or after this wall time.
    pub(crate) fn next(&self, now_ms: i64) -> Stamp<'_> {
        let floor = u64::try_from(now_ms / 1000).unwrap_or(0) << 32;
        let mut open = self.open.lock();
        let timestamp = self.last.load(Ordering::Acquire).max(floor) + 1;
        self.last.store(timestamp, Ordering::Release);
        open.push(timestamp);
        Stamp { clock: self, timestamp }
    }

    /// The last timestamp below which the log is complete.
    pub(crate) fn settled(&self) -> u64 {
        self.settled.load(Ordering::Acquire)
    }

    /// Waits until the log is complete beyond this timestamp.
    pub(crate) async fn beyond(&self, seen: u64) {
        self.committed.until(|| self.settled() > seen).await;
    }
}

impl Stamp<'_> {
    /// The timestamp.
    pub(crate) fn timestamp(&self) -> u64 {
        self.timestamp
    }
}

impl Drop for Stamp<'_> {
    fn drop(&mut self) {
        let mut open = self.clock.open.lock();
        open.retain(|timestamp| *timestamp != self.timestamp);
        let settled = open.iter().min().map_or_else(|| self.clock.last(), |first| first - 1);
        self.clock.settled.store(settled, Ordering::Release);
        drop(open);
        self.clock.committed.tell();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_is_complete_below_the_first_open_timestamp() {
        let clock = OplogClock::after(5);
        assert_eq!(clock.settled(), 5);
        let (first, second) = (clock.next(0), clock.next(0));
        assert_eq!((first.timestamp(), second.timestamp()), (6, 7));
        drop(second);
        assert_eq!((clock.settled(), clock.last()), (5, 7));
        drop(first);
        assert_eq!(clock.settled(), 7);
    }
}
