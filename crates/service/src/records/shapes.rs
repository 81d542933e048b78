//! Operations by query shape: how often each shape ran, how long, and what it read.
//!
//! Every operation that is slower than `slowms` is recorded, and one of [`SAMPLED_ONE_OF`] others,
//! which then counts for all of them. Numbers and sums are therefore estimates; the number of slow
//! operations is exact. Which operations are sampled depends on their ids, so that an operation
//! that is not recorded costs a multiplication.
//!
//! At most [`MAX_SHAPES`] shapes are kept. When there are more, the [`REMOVED_AT_ONCE`] that ran
//! least often are removed.

use std::collections::HashMap;

use mayfly_query::{QueryShape, QueryShapeHash};
use mayfly_value::DocBuf;
use parking_lot::Mutex;

use crate::counters::LatencyHistogram;

/// The most shapes.
const MAX_SHAPES: usize = 2_000;
/// How many are removed together.
const REMOVED_AT_ONCE: usize = 100;
/// One of so many operations that are not slow is recorded.
const SAMPLED_ONE_OF: u32 = 100;
/// The size of a shape's text and of its plan summary; larger ones are not recorded. With
/// [`MAX_SHAPES`] they take at most 10 MB.
const MAX_BYTES: usize = 5 << 10;

/// The shapes that have run.
#[derive(Default)]
pub struct Shapes(Mutex<HashMap<QueryShapeHash, Box<ShapeStats>>>);

/// A finished operation.
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs, reason = "the names are the fields of the profiler")]
pub struct ShapeRun<'r> {
    pub plan_summary: &'r str,
    pub micros: i64,
    pub keys_examined: u64,
    pub docs_examined: u64,
    pub docs_returned: u64,
    pub has_sort_stage: bool,
    pub used_disk: bool,
    pub from_multi_planner: bool,
    pub from_plan_cache: bool,
    /// Whether it is recorded because it was slow, and not as a sample.
    pub is_slow: bool,
    /// The wall time in milliseconds since 1970.
    pub now_ms: i64,
}

/// Sum, extremes and squares of a number over all runs of a shape.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spread {
    /// The sum of all runs.
    pub sum: u64,
    /// The largest number of a run.
    pub max: u64,
    /// The smallest number of a run.
    pub min: u64,
    /// The sum of squares.
    pub squares: u128,
}

/// What is known of a shape.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "the names are the fields of $queryStats")]
pub struct ShapeStats {
    /// The shape itself.
    pub shape: DocBuf,
    /// The estimated number of runs.
    pub runs: u64,
    /// The number of runs that were slow.
    pub slow_runs: u64,
    pub last_micros: i64,
    pub micros: Spread,
    pub keys_examined: Spread,
    pub docs_examined: Spread,
    pub docs_returned: Spread,
    pub has_sort_stage: bool,
    pub used_disk: bool,
    pub from_multi_planner: bool,
    pub from_plan_cache: bool,
    pub histogram: LatencyHistogram,
    /// The plan of the latest run.
    pub plan_summary: Box<str>,
    pub first_seen_ms: i64,
    pub last_seen_ms: i64,
}

impl Spread {
    fn add(&mut self, value: u64, times: u64) {
        let first = *self == Spread::default() && value > 0;
        self.min = if first { value } else { self.min.min(value) };
        self.max = self.max.max(value);
        self.sum = self.sum.saturating_add(value.saturating_mul(times));
        let squared = u128::from(value).saturating_mul(u128::from(value));
        self.squares = self.squares.saturating_add(squared.saturating_mul(u128::from(times)));
    }
}

impl Shapes {
    /// Whether an operation that is not slow is recorded. Multiplying spreads the ids evenly, so
    /// that clients that repeat the same few operations do not get always the same one sampled.
    #[inline]
    pub fn samples(operation_id: i32) -> bool {
        operation_id.cast_unsigned().wrapping_mul(0x9E37_79B1) < u32::MAX / SAMPLED_ONE_OF
    }

    /// Records an operation that is slow or sampled.
    pub fn record(&self, shape: &QueryShape, run: &ShapeRun<'_>) {
        if shape.as_doc().as_bytes().len() + run.plan_summary.len() > MAX_BYTES {
            return;
        }
        let hash = shape.hash();
        let mut shapes = self.0.lock();
        if shapes.len() >= MAX_SHAPES && !shapes.contains_key(&hash) {
            remove_least_used(&mut shapes);
        }
        let stats = shapes.entry(hash).or_insert_with(|| Box::new(ShapeStats::of(shape, run)));
        stats.add(run);
    }

    /// All shapes, those with most time first.
    pub fn list(&self) -> Vec<(QueryShapeHash, ShapeStats)> {
        let shapes = self.0.lock();
        let mut list: Vec<(QueryShapeHash, ShapeStats)> =
            shapes.iter().map(|(hash, stats)| (*hash, (**stats).clone())).collect();
        list.sort_by_key(|(hash, stats)| (std::cmp::Reverse(stats.micros.sum), *hash));
        list
    }
}

fn remove_least_used(shapes: &mut HashMap<QueryShapeHash, Box<ShapeStats>>) {
    let mut uses: Vec<(u64, i64, QueryShapeHash)> =
        shapes.iter().map(|(hash, stats)| (stats.runs, stats.last_seen_ms, *hash)).collect();
    uses.sort_unstable();
    for (_, _, hash) in uses.into_iter().take(REMOVED_AT_ONCE) {
        shapes.remove(&hash);
    }
}

impl ShapeStats {
    fn of(shape: &QueryShape, run: &ShapeRun<'_>) -> ShapeStats {
        let spread = |value: u64| Spread { min: value, ..Spread::default() };
        ShapeStats {
            shape: shape.as_doc().to_owned(),
            runs: 0,
            slow_runs: 0,
            last_micros: 0,
            micros: spread(run.micros.max(0).unsigned_abs()),
            keys_examined: spread(run.keys_examined),
            docs_examined: spread(run.docs_examined),
            docs_returned: spread(run.docs_returned),
            has_sort_stage: false,
            used_disk: false,
            from_multi_planner: false,
            from_plan_cache: false,
            histogram: LatencyHistogram::default(),
            plan_summary: "".into(),
            first_seen_ms: run.now_ms,
            last_seen_ms: run.now_ms,
        }
    }

    fn add(&mut self, run: &ShapeRun<'_>) {
        let times = if run.is_slow { 1 } else { u64::from(SAMPLED_ONE_OF) };
        self.runs += times;
        self.slow_runs += u64::from(run.is_slow);
        self.last_micros = run.micros;
        self.micros.add(run.micros.max(0).unsigned_abs(), times);
        self.keys_examined.add(run.keys_examined, times);
        self.docs_examined.add(run.docs_examined, times);
        self.docs_returned.add(run.docs_returned, times);
        self.has_sort_stage |= run.has_sort_stage;
        self.used_disk |= run.used_disk;
        self.from_multi_planner |= run.from_multi_planner;
        self.from_plan_cache |= run.from_plan_cache;
        self.histogram.add(run.micros, times);
        if *self.plan_summary != *run.plan_summary {
            self.plan_summary = run.plan_summary.into();
        }
        self.last_seen_ms = run.now_ms;
    }

    /// Whether an index could save much: the operations read ten times as many documents as they
    /// returned or changed, or sorted them, and at least a hundred each.
    pub fn is_wasteful(&self) -> bool {
        let examined = self.docs_examined.sum;
        let reads_much = examined >= self.runs.saturating_mul(100);
        let wanted = self.docs_returned.sum.max(self.runs);
        reads_much && (self.has_sort_stage || examined >= wanted.saturating_mul(10))
    }
}

#[cfg(test)]
mod tests {
    use mayfly_base::Namespace;
    use mayfly_value::bson::doc;

    use super::*;

    fn shape(field: &str) -> QueryShape {
        let filter = DocBuf::from_bson(&doc! { field: 1 });
        let ns = Namespace::new("db", "c").unwrap();
        QueryShape::of_statement("delete", &ns, filter.as_doc(), None)
    }

    #[test]
    fn one_of_a_hundred_is_sampled_whatever_repeats() {
        for every in 1..=10 {
            let ids = (0..1_000_000).step_by(every);
            let sampled = ids.clone().filter(|id| Shapes::samples(*id)).count() as f64;
            let part = sampled / ids.count() as f64;
            assert!((0.009..0.011).contains(&part), "{part} of every {every}th");
        }
    }

    #[test]
    fn samples_count_for_the_others() {
        let shapes = Shapes::default();
        let slow =
            ShapeRun { micros: 200_000, docs_examined: 5000, is_slow: true, ..ShapeRun::default() };
        let quick =
            ShapeRun { micros: 50, docs_examined: 2, docs_returned: 1, ..ShapeRun::default() };
        shapes.record(&shape("a"), &quick);
        shapes.record(&shape("a"), &ShapeRun { plan_summary: "COLLSCAN", now_ms: 7, ..slow });
        let [(_, stats)] = &shapes.list()[..] else { panic!("one shape") };
        assert_eq!((stats.runs, stats.slow_runs, stats.last_micros), (101, 1, 200_000));
        let micros = Spread { sum: 205_000, max: 200_000, min: 50, squares: 40_000_250_000 };
        assert_eq!(stats.micros, micros);
        assert_eq!((stats.docs_returned.sum, stats.docs_returned.min), (100, 0));
        assert_eq!(stats.histogram.ranges().collect::<Vec<_>>(), [(32, 100), (196_608, 1)]);
        assert_eq!(
            (&*stats.plan_summary, stats.first_seen_ms, stats.last_seen_ms),
            ("COLLSCAN", 0, 7)
        );
        assert!(!stats.is_wasteful(), "most runs read two documents");
        shapes.record(&shape("b"), &ShapeRun { plan_summary: "COLLSCAN", ..slow });
        assert!(shapes.list()[1].1.is_wasteful());
    }

    #[test]
    fn the_least_used_shapes_are_removed() {
        let shapes = Shapes::default();
        let slow = ShapeRun { is_slow: true, ..ShapeRun::default() };
        shapes.record(&shape("often"), &slow);
        shapes.record(&shape("often"), &slow);
        let huge = "x".repeat(MAX_BYTES);
        shapes.record(&shape(&huge), &slow);
        (0..MAX_SHAPES + 10).for_each(|n| shapes.record(&shape(&format!("f{n}")), &slow));
        let list = shapes.list();
        assert!((MAX_SHAPES - REMOVED_AT_ONCE..=MAX_SHAPES).contains(&list.len()));
        assert!(list.iter().any(|(hash, _)| *hash == shape("often").hash()));
    }
}
