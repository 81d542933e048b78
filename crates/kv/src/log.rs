//! The order of the operation log.
//!
//! The commit of a transaction takes the next timestamps of the log, as many as it has entries, and
//! they are filled into gaps of its keys and values. So an entry and all that names it are in one
//! commit, without a read before it.
//!
//! Commits end in any order: an entry may be visible before one with an earlier timestamp. Readers
//! of the log therefore stop at [`LogClock::settled`]: every timestamp up to there was committed or
//! never will be.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Condvar, Mutex};

use crate::{KvError, KvResult};

/// Length in bytes of a gap.
pub const GAP_BYTES: usize = 8;

/// Eight bytes of a key or a value that get a timestamp of the commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gap {
    /// At this offset of the key, big-endian. No other transaction writes such a key, and this one
    /// does not read it.
    Key(usize, Which),
    /// At this offset of the value, little-endian.
    Value(usize, Which),
}

/// One of the timestamps of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// That of its entry with this index.
    Entry(u64),
    /// That of its last entry.
    Last,
}

/// The entries that a transaction has written into the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogEntries {
    /// The number of entries.
    pub count: u64,
    /// The wall time, in milliseconds since 1970. The timestamps are not before it.
    pub now_ms: i64,
}

impl LogEntries {
    /// The transaction has written no entry, and left no gap.
    pub const NONE: LogEntries = LogEntries { count: 0, now_ms: 0 };
}

/// The result of a commit.
pub struct LoggedCommit {
    /// Whether it was applied.
    pub result: KvResult<()>,
    /// Its place in the log; `None` if it has no entries, or failed without one.
    pub place: Option<LogPlace>,
}

impl LoggedCommit {
    /// A commit that was not applied.
    pub fn failed(error: KvError) -> LoggedCommit {
        LoggedCommit { result: Err(error), place: None }
    }
}

/// The source of timestamps: seconds in the upper 32 bits, an increment in the lower 32.
#[derive(Default)]
pub struct LogClock {
    last: AtomicU64,
    settled: Arc<AtomicU64>,
    open: Mutex<Open>,
    /// Notified when no commit is under way, and when commits may begin again.
    at_rest: Condvar,
}

#[derive(Default)]
struct Open {
    /// The first timestamps of commits that are under way.
    places: Vec<u64>,
    /// How many threads wait for the end of all commits; no timestamp is assigned meanwhile.
    waiting: usize,
}

/// The timestamps of a commit. The log is not complete past them until it is dropped.
pub struct LogPlace {
    clock: Arc<LogClock>,
    first: u64,
    last: u64,
}

impl LogClock {
    /// A clock without timestamps.
    pub fn new() -> Arc<LogClock> {
        Arc::default()
    }

    /// The last assigned timestamp.
    #[inline]
    pub fn last(&self) -> u64 {
        self.last.load(Ordering::Acquire)
    }

    /// The last assigned timestamp, ordered after all earlier assignments.
    pub fn last_ordered(&self) -> u64 {
        let _open = self.open.lock();
        self.last()
    }

    /// The time at this wall time: not before the last assigned timestamp, and before the next one.
    #[inline]
    pub fn now(&self, now_ms: i64) -> u64 {
        self.last().max(u64::try_from(now_ms / 1000).unwrap_or(0) << 32)
    }

    /// Assigns timestamps greater than all before them, one for each entry.
    pub fn take(self: &Arc<LogClock>, entries: LogEntries) -> LogPlace {
        let mut open = self.open.lock();
        while open.waiting > 0 {
            self.at_rest.wait(&mut open);
        }
        let first = self.now(entries.now_ms) + 1;
        let last = first + entries.count.saturating_sub(1);
        self.last.store(last, Ordering::Release);
        open.places.push(first);
        LogPlace { clock: self.clone(), first, last }
    }

    /// Calls a short function while no commit is under way, with the last timestamp. No committed
    /// entry has a later one.
    pub fn at_rest<T>(&self, act: impl FnOnce(u64) -> T) -> T {
        let mut open = self.open.lock();
        open.waiting += 1;
        while !open.places.is_empty() {
            self.at_rest.wait(&mut open);
        }
        let result = act(self.last());
        open.waiting -= 1;
        drop(open);
        self.at_rest.notify_all();
        result
    }

    /// As [`LogClock::at_rest`], but `None` without a call while a commit is under way.
    pub fn if_at_rest<T>(&self, act: impl FnOnce(u64) -> T) -> Option<T> {
        let open = self.open.lock();
        open.places.is_empty().then(|| act(self.last()))
    }

    /// Continues after this time, which came from elsewhere. Returns false when the clock was there
    /// already. Later commits get later timestamps; only those under way may have earlier ones.
    pub fn advance_to(&self, time: u64) -> bool {
        let open = self.open.lock();
        let goes = self.last() < time;
        if goes {
            self.last.store(time, Ordering::Release);
            if open.places.is_empty() {
                self.settled.store(time, Ordering::Release);
            }
        }
        goes
    }

    /// The timestamp up to which the log is complete.
    #[inline]
    pub fn settled(&self) -> u64 {
        self.settled.load(Ordering::Acquire)
    }

    /// The settled timestamp, shared with code that has no clock.
    pub fn shared_settled(&self) -> Arc<AtomicU64> {
        self.settled.clone()
    }

    /// Ends a commit. `before` is called with the timestamp up to which the log will be complete,
    /// before it is.
    fn release(&self, first: u64, before: impl FnOnce(u64)) {
        let mut open = self.open.lock();
        open.places.retain(|place| *place != first);
        let settled = open.places.iter().min().map_or_else(|| self.last(), |first| first - 1);
        before(settled);
        self.settled.store(settled, Ordering::Release);
        let rests = open.waiting > 0 && open.places.is_empty();
        drop(open);
        if rests {
            self.at_rest.notify_all();
        }
    }
}

impl LogPlace {
    /// The first timestamp.
    pub fn first(&self) -> u64 {
        self.first
    }

    /// The last timestamp.
    pub fn last(&self) -> u64 {
        self.last
    }

    /// The timestamp that a gap gets.
    pub fn timestamp(&self, which: Which) -> u64 {
        match which {
            Which::Entry(index) => self.first + index,
            Which::Last => self.last,
        }
    }

    /// Lets readers of the log read up to this place, and up to all that waited for it only.
    /// `before` is called first, with the timestamp up to which the log will be complete; no other
    /// commit begins or ends meanwhile.
    pub fn release(mut self, before: impl FnOnce(u64)) {
        let first = std::mem::take(&mut self.first);
        self.clock.release(first, before);
    }
}

impl Drop for LogPlace {
    fn drop(&mut self) {
        // No timestamp is 0.
        if self.first != 0 {
            self.clock.release(self.first, |_| {});
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(clock: &Arc<LogClock>) -> LogPlace {
        clock.take(LogEntries { count: 1, now_ms: 0 })
    }

    fn after(last: u64) -> Arc<LogClock> {
        let clock = LogClock::new();
        clock.advance_to(last);
        clock
    }

    #[test]
    fn the_log_is_complete_below_the_first_open_timestamp() {
        let clock = after(5);
        assert_eq!(clock.settled(), 5);
        let (first, second) = (one(&clock), clock.take(LogEntries { count: 3, now_ms: 0 }));
        assert_eq!((first.last(), second.first(), second.last()), (6, 7, 9));
        assert_eq!(second.timestamp(Which::Entry(1)), 8);
        assert_eq!(second.timestamp(Which::Last), 9);
        second.release(|settled| assert_eq!((settled, clock.settled()), (5, 5)));
        assert_eq!((clock.settled(), clock.last()), (5, 9));
        first.release(|settled| assert_eq!((settled, clock.settled()), (9, 5)));
        assert_eq!(clock.settled(), 9);
        let later = clock.take(LogEntries { count: 1, now_ms: 2_999 });
        assert_eq!(later.first(), (2 << 32) + 1);
    }

    #[test]
    fn the_settled_time_stays_before_writes_in_progress() {
        let clock = after(5);
        let under_way = one(&clock);
        assert!(clock.advance_to(100));
        assert_eq!((clock.last(), clock.settled()), (100, 5));
        drop(under_way);
        assert_eq!(clock.settled(), 100);
        assert!(!clock.advance_to(100));
        assert!(clock.advance_to(101));
        assert_eq!((clock.settled(), one(&clock).first()), (101, 102));
    }

    #[test]
    fn nothing_is_under_way_at_rest() {
        let clock = LogClock::new();
        let under_way = AtomicU64::new(0);
        std::thread::scope(|threads| {
            for _ in 0..3 {
                threads.spawn(|| {
                    for _ in 0..2000 {
                        let place = one(&clock);
                        under_way.fetch_add(1, Ordering::SeqCst);
                        under_way.fetch_sub(1, Ordering::SeqCst);
                        drop(place);
                    }
                });
            }
            threads.spawn(|| {
                for _ in 0..500 {
                    let last = clock.at_rest(|last| {
                        assert_eq!(under_way.load(Ordering::SeqCst), 0);
                        assert_eq!(clock.settled(), last);
                        last
                    });
                    assert!(last <= clock.last());
                }
            });
        });
        assert_eq!((clock.settled(), clock.last()), (6000, 6000));
    }
}
