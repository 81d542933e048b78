//! The limits of the log, and its sizes as sums over segments.
//!
//! ```text
//!        cut                                                 last
//!         │ segment │ segment │  ...  │ segment │ open segment │
//! ```
//!
//! A segment ends when about a 64th of the limit was logged in it, at the last assigned timestamp:
//! an entry belongs to the segment in which its timestamp was assigned, whenever its commit ends.
//! Entries are counted as readers see them, with the documents of their records, so that the window
//! does not become longer because the log stores only references. An ended segment below which no
//! commit is under way is written into the catalog, so that a start counts only the entries after
//! it.

use std::collections::VecDeque;

/// The number of segments of a log at its limit.
const SEGMENTS: u64 = 64;

/// The log may exceed its limit by this fraction of it before it is trimmed.
const OVERFULL: u64 = 8;

/// The segments that go into the catalog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SegmentsToStore {
    /// The segments that have ended.
    Ended,
    /// The open one, too, which ends.
    All,
}

/// A part of the log between two timestamps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    /// The last timestamp.
    pub(crate) end: u64,
    /// The size of the entries as readers see them.
    pub(crate) bytes: u64,
    /// The number of entries.
    pub(crate) entries: u64,
}

impl Segment {
    /// Encodes the segment for the catalog.
    pub(crate) fn encode(self) -> [u8; 16] {
        let mut value = [0; 16];
        value[..8].copy_from_slice(&self.bytes.to_le_bytes());
        value[8..].copy_from_slice(&self.entries.to_le_bytes());
        value
    }

    /// Decodes the segment that ends at this timestamp; `None` for an unreadable row.
    pub(super) fn decode(end: u64, value: &[u8]) -> Option<Segment> {
        let bytes = u64::from_le_bytes(value.get(..8)?.try_into().ok()?);
        let entries = u64::from_le_bytes(value.get(8..16)?.try_into().ok()?);
        Some(Segment { end, bytes, entries })
    }
}

/// The segments of the log that are kept.
#[derive(Default)]
pub(super) struct Window {
    /// The ended segments in order; the first `stored` ones are in the catalog.
    ended: VecDeque<Segment>,
    stored: usize,
    open: (u64, u64),
    limits: LogLimits,
}

/// The limits of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogLimits {
    /// Bytes of entries, as readers see them.
    pub bytes: u64,
    /// Younger entries are kept regardless of the size, in milliseconds.
    pub retention_ms: i64,
}

impl Window {
    /// A window with the segments of the catalog, and with the bytes and entries that were counted
    /// after them.
    pub(super) fn new(limits: LogLimits, stored: Vec<Segment>, open: (u64, u64)) -> Window {
        Window { stored: stored.len(), ended: stored.into(), open, limits }
    }

    pub(super) fn limits(&self) -> LogLimits {
        self.limits
    }

    /// Changes the limits. Returns whether the open segment is too long for them.
    pub(super) fn set_limits(&mut self, limits: LogLimits) -> bool {
        self.limits = limits;
        self.open.0 >= self.segment_bytes()
    }

    fn segment_bytes(&self) -> u64 {
        (self.limits.bytes / SEGMENTS).max(1)
    }

    /// The end of the last ended segment.
    pub(super) fn last_end(&self) -> Option<u64> {
        self.ended.back().map(|segment| segment.end)
    }

    /// Adds a commit that is over. Returns whether a segment ended, at `last`, the last assigned
    /// timestamp.
    pub(super) fn add(&mut self, timestamp: u64, bytes: u64, entries: u64, last: u64) -> bool {
        let mut own = None;
        for segment in self.ended.iter_mut().rev() {
            if segment.end < timestamp {
                break;
            }
            own = Some(segment);
        }
        match own {
            Some(segment) => {
                segment.bytes += bytes;
                segment.entries += entries;
                false
            }
            None => {
                self.open = (self.open.0 + bytes, self.open.1 + entries);
                self.open.0 >= self.segment_bytes() && self.end_segment(last)
            }
        }
    }

    /// Ends the open segment at the last assigned timestamp, unless it is empty.
    pub(super) fn end_segment(&mut self, last: u64) -> bool {
        let (bytes, entries) = self.open;
        if entries == 0 {
            return false;
        }
        self.open = (0, 0);
        self.ended.push_back(Segment { end: last, bytes, entries });
        true
    }

    /// The sums of bytes and entries.
    pub(super) fn sums(&self) -> (u64, u64) {
        let ended = self.ended.iter().map(|segment| (segment.bytes, segment.entries));
        ended.fold(self.open, |(bytes, entries), (more, others)| (bytes + more, entries + others))
    }

    /// The segments up to this timestamp that the catalog does not have yet.
    pub(super) fn to_store(&self, settled: u64) -> Vec<Segment> {
        let new = self.ended.iter().skip(self.stored).take_while(|segment| segment.end <= settled);
        new.copied().collect()
    }

    /// Notes that the catalog has the segments up to this timestamp.
    pub(super) fn note_stored(&mut self, end: u64) {
        let stored = self.ended.iter().take_while(|segment| segment.end <= end).count();
        self.stored = self.stored.max(stored);
    }

    /// The timestamp at which the log must be cut to be within its limits. At least one entry
    /// stays.
    pub(super) fn cut(&self, settled: u64, now_ms: i64) -> Option<u64> {
        let kept_from_ms = now_ms.saturating_sub(self.limits.retention_ms);
        let (mut bytes, _) = self.sums();
        let mut cut = None;
        for (at, segment) in self.ended.iter().enumerate() {
            let is_last = at + 1 == self.ended.len() && self.open.1 == 0;
            // The upper half of a timestamp is a second; the last entry may be of its end.
            let youngest_ms = ((segment.end >> 32) as i64).saturating_add(1).saturating_mul(1000);
            let is_young = self.limits.retention_ms > 0 && youngest_ms > kept_from_ms;
            if bytes <= self.limits.bytes || is_last || segment.end > settled || is_young {
                break;
            }
            bytes -= segment.bytes;
            cut = Some(segment.end);
        }
        cut
    }

    /// Whether the log exceeds its limit by more than a few segments.
    pub(super) fn is_overfull(&self) -> bool {
        let limit = self.limits.bytes;
        self.sums().0 > limit.saturating_add(limit / OVERFULL)
    }

    /// Forgets the segments up to a cut.
    pub(super) fn forget(&mut self, cut: u64) {
        while self.ended.front().is_some_and(|segment| segment.end <= cut) {
            self.ended.pop_front();
            self.stored = self.stored.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(bytes: u64) -> LogLimits {
        LogLimits { bytes, retention_ms: 0 }
    }

    #[test]
    fn young_entries_stay_whatever_their_bytes_are() {
        let at = |second: u64| second << 32;
        let mut window = Window::new(bytes(64), Vec::new(), (0, 0));
        for second in 1..=10 {
            assert!(window.add(at(second), 100, 1, at(second)));
        }
        assert_eq!(window.cut(at(10), 11_000), Some(at(9)));
        assert!(!window.set_limits(LogLimits { bytes: 64, retention_ms: 5000 }));
        assert_eq!(window.cut(at(10), 11_000), Some(at(5)));
        assert_eq!(window.cut(at(10), 6_000), None);
        assert_eq!(window.last_end(), Some(at(10)));
    }

    #[test]
    fn segments_end_where_enough_was_logged() {
        let mut window = Window::new(bytes(6400), Vec::new(), (0, 0));
        assert!(!window.add(1, 99, 1, 3));
        assert!(window.add(3, 1, 1, 4), "a hundred bytes are enough");
        // The timestamp was assigned before the end of the segment, and committed after it.
        assert!(!window.add(2, 50, 1, 5));
        assert!(!window.add(4, 50, 1, 5));
        assert!(!window.add(5, 7, 2, 6));
        assert_eq!(window.sums(), (207, 6));
        assert_eq!(window.to_store(3), []);
        let first = Segment { end: 4, bytes: 200, entries: 4 };
        assert_eq!(window.to_store(4), [first]);
        window.note_stored(4);
        assert_eq!(window.to_store(9), []);
        assert_eq!(Segment::decode(4, &first.encode()), Some(first));
        assert_eq!(Segment::decode(4, &first.encode()[..15]), None);
    }

    #[test]
    fn whole_segments_are_cut_and_some_entry_stays() {
        let mut window = Window::new(bytes(64), Vec::new(), (0, 0));
        for timestamp in 1..=10 {
            assert!(window.add(timestamp, 10, 1, timestamp));
        }
        assert_eq!(window.cut(10, 0), Some(4));
        assert_eq!(window.cut(2, 0), Some(2), "not beyond what is complete");
        window.forget(4);
        assert_eq!((window.sums(), window.cut(10, 0)), ((60, 6), None));
        window.add(11, 1_000, 1, 11);
        assert_eq!(window.cut(11, 0), Some(10), "the last one stays, however long it is");
        window.forget(10);
        assert_eq!(window.sums(), (1_000, 1));
        assert!(!window.end_segment(12));
        assert!(window.is_overfull());
        let window = |logged| Window::new(bytes(64), Vec::new(), (logged, 1));
        assert!(!window(72).is_overfull() && window(73).is_overfull());
    }
}
