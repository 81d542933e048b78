//! A top-k sort by time over a time series: buckets that cannot contain one of the first k
//! measurements are not unpacked.
//!
//! ```text
//! buckets, by their start -> unpack -> filters -> record times -> top-k sort
//!                              ^                       |
//!                              +---- the k-th time so far
//! ```
//!
//! Once k measurements have passed the filters, a bucket whose times are all after theirs is
//! skipped. If buckets arrive in the order of their starts, the search ends at a bucket that starts
//! too late: the span of a bucket bounds how far a measurement is from the start, so overlapping
//! buckets are all examined. Measurements with the same time as the k-th are kept, and the sort
//! decides between them. Manual: "Time Series Collections", "Sort Operations"; "bounded sort".

use std::collections::BinaryHeap;
use std::sync::Arc;

use mayfly_buckets::BucketView;
use mayfly_value::{RawValue, SortOrder};
use parking_lot::Mutex;

/// The times of a search, shared by two of its stages.
pub(crate) type SharedTopKTimes = Arc<Mutex<TopKTimes>>;

/// The times of the first k measurements so far.
#[derive(Debug)]
pub(crate) struct TopKTimes {
    order: SortOrder,
    kept: usize,
    span_ms: i64,
    /// Whether buckets arrive in the order of their starts.
    in_order: bool,
    /// The ranks of these times, the last one on top.
    ranks: BinaryHeap<i64>,
}

impl TopKTimes {
    /// State for the first `kept` measurements, from buckets with this span.
    pub(super) fn new(order: SortOrder, kept: usize, span_ms: i64) -> TopKTimes {
        TopKTimes { order, kept, span_ms, in_order: false, ranks: BinaryHeap::new() }
    }

    /// The same for buckets that arrive in the order of their starts.
    pub(super) fn in_order(self) -> TopKTimes {
        TopKTimes { in_order: true, ..self }
    }

    /// The rank of a time; smaller ranks come first.
    fn rank(&self, time: i64) -> i64 {
        if self.order.is_descending() { !time } else { time }
    }

    /// Whether a measurement of this time comes after k others.
    fn is_too_late(&self, time: i64) -> bool {
        self.ranks.len() >= self.kept
            && self.ranks.peek().is_some_and(|last| self.rank(time) > *last)
    }

    /// Records a measurement that passed all filters. Returns whether it may be among the first k.
    pub(super) fn note(&mut self, time: i64) -> bool {
        if self.is_too_late(time) {
            return false;
        }
        self.ranks.push(self.rank(time));
        if self.ranks.len() > self.kept {
            self.ranks.pop();
        }
        true
    }

    /// Decides what to do with a bucket.
    pub(crate) fn decide(&self, bucket: BucketView<'_>, time: &str) -> BucketDecision {
        let Some((RawValue::Date(start), RawValue::Date(latest))) = bucket.bounds(time) else {
            return BucketDecision::Unpack;
        };
        // No later bucket contains an earlier time than this.
        let front =
            if self.order.is_descending() { start.saturating_add(self.span_ms) } else { start };
        if self.in_order && self.is_too_late(front) {
            return BucketDecision::Over;
        }
        match self.is_too_late(if self.order.is_descending() { latest } else { start }) {
            true => BucketDecision::PassOver,
            false => BucketDecision::Unpack,
        }
    }
}

/// The decision about a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BucketDecision {
    Unpack,
    /// The bucket contains no relevant measurement.
    PassOver,
    /// Neither this bucket nor any later one contains a relevant measurement.
    Over,
}
