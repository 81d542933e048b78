//! A sort by time with a limit over a time series: buckets that cannot hold one of the foremost measurements stay packed.
//!
//! ```text
//! buckets, by their start -> unpack -> filters -> note times -> sort with a limit
//!                              ^                      |
//!                              +---- the last time that counts
//! ```
//!
//! Once as many measurements have passed the filters as are wanted, a bucket whose times all lie behind theirs is passed over
//! unread. Where buckets come in the order of their starts the search ends: a bucket's span bounds how far behind its start a
//! measurement lies, so that buckets which overlap are all looked at. Measurements of the same time as the last one are kept;
//! the sort decides between them. Manual: "Time Series Collections", "Sort Operations"; "bounded sort".

use std::collections::BinaryHeap;
use std::sync::Arc;

use mayfly_buckets::BucketView;
use mayfly_value::RawValue;
use parking_lot::Mutex;

/// The times of a search, which two of its stages share.
pub(crate) type SharedForemost = Arc<Mutex<Foremost>>;

/// The times of the foremost measurements so far.
#[derive(Debug)]
pub(crate) struct Foremost {
    descending: bool,
    kept: usize,
    span_ms: i64,
    /// Whether buckets come in the order of their starts.
    in_order: bool,
    /// Their ranks, the last one on top.
    ranks: BinaryHeap<i64>,
}

impl Foremost {
    /// Of so many measurements, of buckets with this span.
    pub(super) fn new(descending: bool, kept: usize, span_ms: i64, in_order: bool) -> Foremost {
        Foremost { descending, kept, span_ms, in_order, ranks: BinaryHeap::new() }
    }

    /// Smaller is further in front.
    fn rank(&self, time: i64) -> i64 {
        if self.descending { !time } else { time }
    }

    /// Whether a measurement of this time comes behind as many others as are wanted.
    fn is_behind(&self, time: i64) -> bool {
        self.ranks.len() >= self.kept
            && self.ranks.peek().is_some_and(|last| self.rank(time) > *last)
    }

    /// A measurement that passed all filters; whether it counts.
    pub(super) fn note(&mut self, time: i64) -> bool {
        if self.is_behind(time) {
            return false;
        }
        self.ranks.push(self.rank(time));
        if self.ranks.len() > self.kept {
            self.ranks.pop();
        }
        true
    }

    /// What to do with a bucket.
    pub(crate) fn look(&self, bucket: BucketView<'_>, time: &str) -> Look {
        let Some((RawValue::Date(start), RawValue::Date(latest))) = bucket.bounds(time) else {
            return Look::Unpack;
        };
        // All that comes from here on begins there, or further behind.
        let front = if self.descending { start.saturating_add(self.span_ms) } else { start };
        if self.in_order && self.is_behind(front) {
            return Look::Over;
        }
        match self.is_behind(if self.descending { latest } else { start }) {
            true => Look::PassOver,
            false => Look::Unpack,
        }
    }
}

/// What is to be done with a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    Unpack,
    /// Nothing in it counts.
    PassOver,
    /// Nothing counts in it and in what comes.
    Over,
}
