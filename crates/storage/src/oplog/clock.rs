//! Timestamps of the operation log, and the point up to which the log has no holes.
//!
//! A timestamp is assigned shortly before its commit, and commits end in any order: an entry may
//! become visible before one with an earlier timestamp. Readers of the log therefore stop at
//! [`OplogClock::settled`]: every timestamp up to there was committed or never will be.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use mayfly_value::RawDoc;
use parking_lot::{Condvar, Mutex};

use super::watch::{CommitTimes, Watch, Watches};
use super::window::{LogLimits, Segment, SegmentsToStore, Window};
use crate::record::signal::Signal;

/// The source of timestamps: seconds in the upper 32 bits, an increment in the lower 32.
pub(crate) struct OplogClock {
    last: AtomicU64,
    /// The timestamp up to which the log is complete.
    settled: Arc<AtomicU64>,
    open: Mutex<ClockState>,
    /// Notified when no commit is under way, and when commits may begin again.
    at_rest: Condvar,
    committed: Signal,
    /// Watches of the readers that follow the log.
    watches: Arc<Watches>,
    /// Whether a segment has ended that is not in the catalog yet.
    segments_ended: AtomicBool,
}

#[derive(Default)]
struct ClockState {
    /// Timestamps whose commit is under way.
    timestamps: Vec<u64>,
    /// How many threads wait for the end of all commits; no timestamp is assigned meanwhile.
    waiting: usize,
    /// The size of the log.
    window: Window,
    /// Watches that commits above the settled timestamp concern.
    concerned: Vec<(CommitTimes, Arc<Watch>)>,
}

/// A timestamp whose commit is under way. It is dropped when the commit is over, however it ends.
pub(crate) struct Stamp<'c> {
    clock: &'c OplogClock,
    first: u64,
    timestamp: u64,
    /// Bytes and entries that were committed under this timestamp.
    logged: (u64, u64),
    /// The watches that the entry concerns.
    concerned: Vec<Arc<Watch>>,
}

impl OplogClock {
    /// A clock that continues after this timestamp, of a log with this window.
    pub(super) fn after(last: u64, window: Window) -> OplogClock {
        OplogClock {
            last: AtomicU64::new(last),
            settled: Arc::new(AtomicU64::new(last)),
            open: Mutex::new(ClockState { window, ..ClockState::default() }),
            at_rest: Condvar::new(),
            committed: Signal::default(),
            watches: Arc::default(),
            segments_ended: AtomicBool::new(false),
        }
    }

    /// The first timestamp of the second after this time.
    pub(crate) fn second_after(now_ms: i64) -> u64 {
        (u64::try_from(now_ms / 1000).unwrap_or(0) + 1) << 32
    }

    /// The last assigned timestamp.
    pub(crate) fn last(&self) -> u64 {
        self.last.load(Ordering::Acquire)
    }

    /// The time at this wall time: not before the last assigned timestamp, and before the next one.
    pub(crate) fn now(&self, now_ms: i64) -> u64 {
        self.last().max(u64::try_from(now_ms / 1000).unwrap_or(0) << 32)
    }

    /// Assigns a timestamp greater than all before it, at or after this wall time.
    pub(crate) fn next(&self, now_ms: i64) -> Stamp<'_> {
        self.next_of(now_ms, 1)
    }

    /// Assigns `count` consecutive timestamps to one commit; at least one.
    pub(crate) fn next_of(&self, now_ms: i64, count: u64) -> Stamp<'_> {
        let mut open = self.open.lock();
        while open.waiting > 0 {
            self.at_rest.wait(&mut open);
        }
        let first = self.now(now_ms) + 1;
        let timestamp = first + (count - 1);
        self.last.store(timestamp, Ordering::Release);
        open.timestamps.push(first);
        Stamp { clock: self, first, timestamp, logged: (0, 0), concerned: Vec::new() }
    }

    /// Calls a short function while no commit is under way, with the last timestamp. No committed
    /// entry has a later one.
    pub(crate) fn at_rest<T>(&self, act: impl FnOnce(u64) -> T) -> T {
        let mut open = self.open.lock();
        open.waiting += 1;
        while !open.timestamps.is_empty() {
            self.at_rest.wait(&mut open);
        }
        let result = act(self.last());
        open.waiting -= 1;
        drop(open);
        self.at_rest.notify_all();
        result
    }

    /// Continues after this time, which came from elsewhere. Returns false when the clock was there
    /// already. Later commits get later timestamps; only those under way may have earlier ones.
    pub(crate) fn advance_to(&self, time: u64) -> bool {
        let open = self.open.lock();
        let goes = self.last() < time;
        if goes {
            self.last.store(time, Ordering::Release);
            if open.timestamps.is_empty() {
                self.settled.store(time, Ordering::Release);
            }
        }
        drop(open);
        self.committed.notify();
        goes
    }

    /// The last assigned timestamp, ordered after all earlier assignments.
    pub(super) fn last_handed_out(&self) -> u64 {
        let _open = self.open.lock();
        self.last()
    }

    pub(super) fn watches(&self) -> &Arc<Watches> {
        &self.watches
    }

    /// The size of the log in bytes and entries.
    pub(super) fn logged(&self) -> (u64, u64) {
        self.open.lock().window.sums()
    }

    /// Whether there may be segments that are not in the catalog yet.
    #[inline]
    pub(super) fn has_segments(&self) -> bool {
        self.segments_ended.load(Ordering::Relaxed)
    }

    /// These segments, if they are not in the catalog yet.
    pub(super) fn segments(&self, which: SegmentsToStore) -> Vec<Segment> {
        let mut open = self.open.lock();
        if which == SegmentsToStore::All && open.timestamps.is_empty() {
            open.window.end_segment(self.last());
        }
        open.window.to_store(self.settled())
    }

    /// Notes that the catalog has the segments up to this timestamp.
    pub(super) fn note_stored(&self, end: u64) {
        let mut open = self.open.lock();
        open.window.note_stored(end);
        let more = !open.window.to_store(u64::MAX).is_empty();
        self.segments_ended.store(more, Ordering::Relaxed);
    }

    /// The timestamp up to which the log is to be cut, at most `up_to`.
    pub(super) fn cut(&self, now_ms: i64, up_to: u64) -> Option<u64> {
        self.open.lock().window.cut(self.settled().min(up_to), now_ms)
    }

    /// Ends the open segment while no commit is under way; returns the end of the last segment, if
    /// there is one.
    pub(super) fn whole_cut(&self) -> Option<u64> {
        let mut open = self.open.lock();
        open.waiting += 1;
        while !open.timestamps.is_empty() {
            self.at_rest.wait(&mut open);
        }
        open.window.end_segment(self.last());
        let cut = open.window.last_end();
        open.waiting -= 1;
        drop(open);
        self.at_rest.notify_all();
        cut
    }

    pub(super) fn limits(&self) -> LogLimits {
        self.open.lock().window.limits()
    }

    pub(super) fn set_limits(&self, limits: LogLimits) {
        let mut open = self.open.lock();
        if open.window.set_limits(limits) && open.window.end_segment(self.last()) {
            self.segments_ended.store(true, Ordering::Relaxed);
        }
    }

    /// Whether the log exceeds its limit clearly.
    pub(super) fn is_overfull(&self) -> bool {
        self.open.lock().window.is_overfull()
    }

    /// Notes that the log was cut up to this timestamp.
    pub(super) fn forget(&self, cut: u64) {
        self.open.lock().window.forget(cut);
    }

    /// The settled timestamp, shared with code that has no clock.
    pub(crate) fn shared_settled(&self) -> Arc<AtomicU64> {
        self.settled.clone()
    }

    /// The timestamp up to which the log is complete.
    pub(crate) fn settled(&self) -> u64 {
        self.settled.load(Ordering::Acquire)
    }

    /// Waits until the log is complete past this timestamp.
    pub(crate) async fn wait_past(&self, seen: u64) {
        self.committed.until(|| self.settled() > seen).await;
    }
}

impl ClockState {
    /// Updates the watches before the log counts as complete up to this timestamp. Returns the
    /// watches to wake after that.
    fn note_concerned(&mut self, settled: u64) -> Vec<(CommitTimes, Arc<Watch>)> {
        if self.concerned.is_empty() {
            return Vec::new();
        }
        let mut noted: Vec<_> =
            self.concerned.extract_if(.., |(commit, _)| commit.last <= settled).collect();
        noted.sort_unstable_by_key(|(commit, _)| commit.last);
        noted.iter().for_each(|(commit, watch)| watch.note(*commit));
        noted
    }
}

impl Stamp<'_> {
    /// The first of several timestamps.
    pub(crate) fn first(&self) -> u64 {
        self.first
    }

    /// Registers the watches that an entry concerns. They are woken when the log is complete up to
    /// the timestamp; with several entries, the last one's. Must be called before the commit.
    #[inline]
    pub(crate) fn concerns(&mut self, entry: RawDoc<'_>) {
        self.clock.watches.of_entry(entry, &mut self.concerned);
    }

    /// Notes that the commit was applied, with this many entries and bytes.
    pub(crate) fn committed(mut self, entries: u64, bytes: u64) {
        self.logged = (bytes, entries);
    }

    /// The timestamp; the last one of several.
    pub(crate) fn timestamp(&self) -> u64 {
        self.timestamp
    }
}

impl Drop for Stamp<'_> {
    fn drop(&mut self) {
        let mut open = self.clock.open.lock();
        open.timestamps.retain(|timestamp| *timestamp != self.first);
        let (bytes, entries) = self.logged;
        if entries > 0 && open.window.add(self.first, bytes, entries, self.clock.last()) {
            self.clock.segments_ended.store(true, Ordering::Relaxed);
        }
        let settled =
            open.timestamps.iter().min().map_or_else(|| self.clock.last(), |first| first - 1);
        // Also after a failed commit: whether it was applied may be unknown.
        let times = CommitTimes { first: self.first, last: self.timestamp };
        let concerned = self.concerned.drain(..).map(|watch| (times, watch));
        open.concerned.extend(concerned);
        let noted = open.note_concerned(settled);
        self.clock.settled.store(settled, Ordering::Release);
        let rests = open.waiting > 0 && open.timestamps.is_empty();
        drop(open);
        noted.iter().for_each(|(_, watch)| watch.wake());
        if rests {
            self.clock.at_rest.notify_all();
        }
        self.clock.committed.notify();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_is_complete_below_the_first_open_timestamp() {
        let clock = OplogClock::after(5, Window::default());
        assert_eq!(clock.settled(), 5);
        let (first, second) = (clock.next(0), clock.next(0));
        assert_eq!((first.timestamp(), second.timestamp()), (6, 7));
        drop(second);
        assert_eq!((clock.settled(), clock.last()), (5, 7));
        drop(first);
        assert_eq!(clock.settled(), 7);
    }

    #[test]
    fn the_settled_time_stays_before_writes_in_progress() {
        let clock = OplogClock::after(5, Window::default());
        let under_way = clock.next(0);
        assert!(clock.advance_to(100));
        assert_eq!((clock.last(), clock.settled()), (100, 5));
        drop(under_way);
        assert_eq!(clock.settled(), 100);
        assert!(!clock.advance_to(100));
        assert!(clock.advance_to(101));
        assert_eq!((clock.settled(), clock.next(0).timestamp()), (101, 102));
    }

    #[test]
    fn nothing_is_under_way_at_rest() {
        let clock = OplogClock::after(0, Window::default());
        let under_way = AtomicU64::new(0);
        std::thread::scope(|threads| {
            for _ in 0..3 {
                threads.spawn(|| {
                    for _ in 0..2000 {
                        let stamp = clock.next(0);
                        under_way.fetch_add(1, Ordering::SeqCst);
                        under_way.fetch_sub(1, Ordering::SeqCst);
                        drop(stamp);
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
