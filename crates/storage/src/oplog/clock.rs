//! The clock of the operation log, as one store sees it: the engine orders the entries
//! ([`LogClock`]); the store notes the size of the log and wakes the readers that follow it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use mayfly_kv::{LogClock, LogEntries, LogPlace};
use mayfly_value::RawDoc;
use parking_lot::Mutex;

use super::watch::{CommitTimes, Concerned, Watch, Watches};
use super::window::{LogLimits, Segment, SegmentsToStore, Window};
use crate::record::signal::Signal;

/// The clock of a store's log.
pub(crate) struct OplogClock {
    /// The order of the entries, which is the engine's.
    order: Arc<LogClock>,
    noted: Mutex<Noted>,
    committed: Arc<Signal>,
    /// Watches of the readers that follow the log.
    watches: Arc<Watches>,
    /// Whether a segment has ended that is not in the catalog yet.
    segments_ended: AtomicBool,
    /// Held while the clock follows another process, so that watches note entries in order.
    following: Mutex<()>,
}

/// What a store notes of commits.
#[derive(Default)]
struct Noted {
    /// The size of the log.
    window: Window,
    /// Watches that commits above the settled timestamp concern.
    concerned: Vec<(CommitTimes, Arc<Watch>)>,
}

/// The place of a commit that readers of the log may not read past. It is dropped when the commit
/// is over, however it ended.
pub(crate) struct Stamp<'c> {
    clock: &'c OplogClock,
    /// `None` only while it is dropped.
    place: Option<LogPlace>,
    times: CommitTimes,
    /// Bytes and entries that were committed here.
    logged: (u64, u64),
    /// The watches that the entries concern.
    concerned: Vec<Arc<Watch>>,
}

impl OplogClock {
    /// A clock over that of an engine, of a log with this window. It continues after this
    /// timestamp.
    pub(super) fn over(order: Arc<LogClock>, last: u64, window: Window) -> OplogClock {
        order.advance_to(last);
        OplogClock {
            order,
            noted: Mutex::new(Noted { window, concerned: Vec::new() }),
            committed: Arc::default(),
            watches: Arc::default(),
            segments_ended: AtomicBool::new(false),
            following: Mutex::default(),
        }
    }

    /// The first timestamp of the second after this time.
    pub(crate) fn second_after(now_ms: i64) -> u64 {
        (u64::try_from(now_ms / 1000).unwrap_or(0) + 1) << 32
    }

    /// The last assigned timestamp.
    pub(crate) fn last(&self) -> u64 {
        self.order.last()
    }

    /// The time at this wall time: not before the last assigned timestamp, and before the next one.
    pub(crate) fn now(&self, now_ms: i64) -> u64 {
        self.order.now(now_ms)
    }

    /// Assigns a timestamp to no entry.
    pub(crate) fn take_unused(&self, now_ms: i64) -> u64 {
        let place = self.order.take(LogEntries { count: 1, now_ms });
        self.stamp(place, Concerned::default()).timestamp()
    }

    /// Adds the watches that an entry with these fields concerns. Must be called before the commit.
    #[inline]
    pub(crate) fn concerns(&self, entry: RawDoc<'_>, concerned: &mut Concerned) {
        self.watches.of_entry(entry, concerned);
    }

    /// The place of a commit that the engine has executed; its entries concern these watches.
    pub(crate) fn stamp(&self, place: LogPlace, concerned: Concerned) -> Stamp<'_> {
        let concerned = self.watches.complete(concerned);
        let times = CommitTimes { first: place.first(), last: place.last() };
        Stamp { clock: self, place: Some(place), times, logged: (0, 0), concerned }
    }

    /// Calls a short function while no commit is under way, with the last timestamp. No committed
    /// entry has a later one.
    pub(crate) fn at_rest<T>(&self, act: impl FnOnce(u64) -> T) -> T {
        self.order.at_rest(act)
    }

    /// Continues after this time, which came from elsewhere. Returns false when the clock was there
    /// already. Later commits get later timestamps; only those under way may have earlier ones.
    pub(crate) fn advance_to(&self, time: u64) -> bool {
        let goes = self.order.advance_to(time);
        self.committed.notify();
        goes
    }

    /// Continues after this timestamp, up to which another process has completed the log. Returns
    /// false when the clock was there already. Which scopes the entries concern is not known, so
    /// all watches note them.
    pub(crate) fn follow_to(&self, settled: u64) -> bool {
        let _following = self.following.lock();
        let before = self.settled();
        if settled <= before {
            return false;
        }
        let times = CommitTimes { first: before + 1, last: settled };
        let watches = self.watches.all();
        watches.iter().for_each(|watch| watch.note(times));
        self.order.advance_to(settled);
        watches.iter().for_each(|watch| watch.wake());
        self.committed.notify();
        true
    }

    /// The last assigned timestamp, ordered after all earlier assignments.
    pub(super) fn last_ordered(&self) -> u64 {
        self.order.last_ordered()
    }

    pub(super) fn watches(&self) -> &Arc<Watches> {
        &self.watches
    }

    /// The size of the log in bytes and entries.
    pub(super) fn logged(&self) -> (u64, u64) {
        self.noted.lock().window.sums()
    }

    /// Whether there may be segments that are not in the catalog yet.
    #[inline]
    pub(super) fn has_segments(&self) -> bool {
        self.segments_ended.load(Ordering::Relaxed)
    }

    /// These segments, if they are not in the catalog yet.
    pub(super) fn segments(&self, which: SegmentsToStore) -> Vec<Segment> {
        if which == SegmentsToStore::All {
            self.order.if_at_rest(|last| self.noted.lock().window.end_segment(last));
        }
        self.noted.lock().window.to_store(self.settled())
    }

    /// Notes that the catalog has the segments up to this timestamp.
    pub(super) fn note_stored(&self, end: u64) {
        let mut noted = self.noted.lock();
        noted.window.note_stored(end);
        let more = !noted.window.to_store(u64::MAX).is_empty();
        self.segments_ended.store(more, Ordering::Relaxed);
    }

    /// The timestamp up to which the log is to be cut, at most `up_to`.
    pub(super) fn cut(&self, now_ms: i64, up_to: u64) -> Option<u64> {
        self.noted.lock().window.cut(self.settled().min(up_to), now_ms)
    }

    /// Ends the open segment while no commit is under way; returns the end of the last segment, if
    /// there is one.
    pub(super) fn whole_cut(&self) -> Option<u64> {
        self.order.at_rest(|last| {
            let mut noted = self.noted.lock();
            noted.window.end_segment(last);
            noted.window.last_end()
        })
    }

    pub(super) fn limits(&self) -> LogLimits {
        self.noted.lock().window.limits()
    }

    pub(super) fn set_limits(&self, limits: LogLimits) {
        let mut noted = self.noted.lock();
        if noted.window.set_limits(limits) && noted.window.end_segment(self.last()) {
            self.segments_ended.store(true, Ordering::Relaxed);
        }
    }

    /// Whether the log exceeds its limit clearly.
    pub(super) fn is_overfull(&self) -> bool {
        self.noted.lock().window.is_overfull()
    }

    /// Notes that the log was cut up to this timestamp.
    pub(super) fn forget(&self, cut: u64) {
        self.noted.lock().window.forget(cut);
    }

    /// The settled timestamp, shared with code that has no clock.
    pub(crate) fn shared_settled(&self) -> Arc<AtomicU64> {
        self.order.shared_settled()
    }

    /// Notifies after the settled timestamp may have changed.
    pub(crate) fn shared_signal(&self) -> Arc<Signal> {
        self.committed.clone()
    }

    /// The timestamp up to which the log is complete.
    pub(crate) fn settled(&self) -> u64 {
        self.order.settled()
    }

    /// Waits until the log is complete past this timestamp.
    pub(crate) async fn wait_past(&self, seen: u64) {
        self.committed.until(|| self.settled() > seen).await;
    }
}

impl Noted {
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
    /// Notes that the commit was applied, with this many entries and bytes.
    pub(crate) fn committed(mut self, entries: u64, bytes: u64) {
        self.logged = (bytes, entries);
    }

    /// The timestamp; the last one of several.
    pub(crate) fn timestamp(&self) -> u64 {
        self.times.last
    }
}

impl Drop for Stamp<'_> {
    fn drop(&mut self) {
        let Some(place) = self.place.take() else { return };
        let (clock, times) = (self.clock, self.times);
        let mut woken = Vec::new();
        place.release(|settled| {
            let mut noted = clock.noted.lock();
            let (bytes, entries) = self.logged;
            if entries > 0 && noted.window.add(times.first, bytes, entries, clock.last()) {
                clock.segments_ended.store(true, Ordering::Relaxed);
            }
            // Also after a failed commit: whether it was applied may be unknown.
            noted.concerned.extend(self.concerned.drain(..).map(|watch| (times, watch)));
            woken = noted.note_concerned(settled);
        });
        woken.iter().for_each(|(_, watch)| watch.wake());
        clock.committed.notify();
    }
}
