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

use mayfly_base::Result;
use mayfly_mql::SortPattern;
use mayfly_storage::{BucketView, Collection};
use mayfly_value::{DocBuilder, RawDoc, RawValue};
use parking_lot::Mutex;

use crate::plan::plan;
use crate::stage::unpack::Unpack;
use crate::stage::{Next, Running, Stage, StageContext};
use crate::{CanonicalQuery, Flow};

/// Sorts that keep more look at everything.
const MAX_KEPT: u64 = 10_000;

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
    fn note(&mut self, time: i64) -> bool {
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

/// The times of a search, which two of its stages share.
pub(crate) type SharedForemost = Arc<Mutex<Foremost>>;

/// Notes the times of what passed the filters.
pub(crate) struct RunningTimes {
    field: String,
    foremost: SharedForemost,
}

impl Running for RunningTimes {
    fn push(
        &mut self,
        _: &StageContext<'_>,
        document: RawDoc<'_>,
        next: &mut Next<'_>,
    ) -> Result<Flow> {
        match document.get(&self.field) {
            Some(RawValue::Date(time)) if !self.foremost.lock().note(time) => Ok(Flow::More),
            _ => next(document),
        }
    }
}

/// The stage that notes times, and where it belongs.
pub(crate) type NotesTimes = (usize, Box<dyn Running>);

/// Prepares a search for the foremost measurements, when these stages are one: the query finds buckets in the order of their
/// starts where it can do that without sorting them.
///
/// # Errors
/// Those of planning.
pub(crate) fn prepared(
    collection: &Arc<Collection>,
    query: &mut CanonicalQuery,
    stages: &mut [Stage],
) -> Result<Option<NotesTimes>> {
    let Some((Stage::Unpack(unpack), behind)) = stages.split_first_mut() else { return Ok(None) };
    let filters = behind.iter().take_while(|stage| matches!(stage, Stage::Match(_))).count();
    let mut rest = behind[filters..].iter().skip_while(|stage| matches!(stage, Stage::Keep(_)));
    let Some(Stage::Sort(pattern, Some(kept))) = rest.next() else { return Ok(None) };
    let Some(descending) = by_time(pattern, unpack) else { return Ok(None) };
    if !(1..=MAX_KEPT).contains(kept) || query.sort.is_some() {
        return Ok(None);
    }
    let mut order = DocBuilder::new();
    let direction = if descending { -1 } else { 1 };
    order.append(&format!("control.min.{}", unpack.fields.time), direction);
    let sort = Some(SortPattern::parse(order.finish().as_doc())?);
    let ordered = CanonicalQuery { sort, ..query.clone() };
    let in_order = !plan(collection, &ordered)?.blocking_sort;
    if in_order {
        *query = ordered;
    }
    let foremost = Arc::new(Mutex::new(Foremost {
        descending,
        kept: *kept as usize,
        span_ms: unpack.span_ms,
        in_order,
        ranks: BinaryHeap::new(),
    }));
    let field = unpack.fields.time.clone();
    unpack.foremost = Some(foremost.clone());
    Ok(Some((1 + filters, Box::new(RunningTimes { field, foremost }))))
}

/// Whether a sort goes by time first of all, and then whether it does so in descending order.
fn by_time(pattern: &SortPattern, unpack: &Unpack) -> Option<bool> {
    if pattern.has_metadata() {
        return None;
    }
    let first = pattern.fields().first()?;
    (first.path.as_str() == unpack.fields.time).then_some(first.descending)
}
