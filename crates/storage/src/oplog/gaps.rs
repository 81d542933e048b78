//! Gaps of an entry of the log, which its commit fills with timestamps.

use mayfly_kv::{GAP_BYTES, Gap, Which};
use mayfly_value::DocBuilder;

/// The gaps of an entry: its key, the version, and the timestamps `ts` and `prevOpTime.ts`.
const GAPS: usize = 4;

/// The version in the headers of the records that an entry refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    /// The entry's own timestamp.
    Own,
    /// The timestamp of the commit, because the entry is one of several.
    OfCommit,
}

/// The gaps of an entry.
#[derive(Clone, Copy)]
pub(super) struct Gaps {
    list: [Gap; GAPS],
    count: usize,
}

impl Gaps {
    /// The gap of the key of the entry with this index among those of its commit.
    pub(super) fn of_entry(index: u64) -> Gaps {
        Gaps { list: [Gap::Key(0, Which::Entry(index)); GAPS], count: 1 }
    }

    /// The gaps.
    pub(super) fn list(&self) -> &[Gap] {
        &self.list[..self.count]
    }

    /// Adds the gap of a timestamp that was just appended to the entry.
    pub(super) fn add_last(&mut self, entry: &DocBuilder, index: u64) {
        self.add(Gap::Value(entry.len() - GAP_BYTES, Which::Entry(index)));
    }

    /// Adds a gap.
    pub(super) fn add(&mut self, gap: Gap) {
        self.list[self.count] = gap;
        self.count += 1;
    }
}
