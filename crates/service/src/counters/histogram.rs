//! A histogram of latencies. Manual: "db.collection.latencyStats()", "histogram": each range is
//! twice as wide as the previous one, with half-steps between two milliseconds and a second.

use std::sync::atomic::{AtomicU64, Ordering};

/// The lower bounds of the ranges, in microseconds.
const LOWER_BOUNDS: [i64; RANGES] = lower_bounds();

const RANGES: usize = 51;
/// The bounds that a half-step follows.
const HALF_STEPS: std::ops::RangeInclusive<i64> = 2048..=1 << 20;

const fn lower_bounds() -> [i64; RANGES] {
    let mut bounds = [0; RANGES];
    let (mut at, mut bound) = (1, 2);
    while at < RANGES {
        bounds[at] = bound;
        at += 1;
        if bound >= *HALF_STEPS.start() && bound <= *HALF_STEPS.end() && at < RANGES {
            bounds[at] = bound + bound / 2;
            at += 1;
        }
        bound *= 2;
    }
    bounds
}

/// The number of operations in each range.
#[derive(Clone, Debug)]
pub struct Histogram([u32; RANGES]);

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram([0; RANGES])
    }
}

/// The index of a range of latencies.
#[derive(Clone, Copy, Debug)]
pub(super) struct Range(usize);

impl Range {
    /// The range of a latency.
    pub(super) fn of(micros: i64) -> Range {
        Range(LOWER_BOUNDS.partition_point(|bound| *bound <= micros).saturating_sub(1))
    }
}

impl Histogram {
    pub(super) fn add(&mut self, Range(at): Range) {
        self.0[at] = self.0[at].saturating_add(1);
    }

    /// The lower bounds (inclusive) and counts of all ranges that have operations.
    pub fn ranges(&self) -> impl Iterator<Item = (i64, i64)> {
        let counted = LOWER_BOUNDS.into_iter().zip(self.0.iter().map(|count| i64::from(*count)));
        counted.filter(|(_, count)| *count > 0)
    }
}

/// A histogram that all threads count into.
pub(super) struct SharedHistogram([AtomicU64; RANGES]);

impl Default for SharedHistogram {
    fn default() -> SharedHistogram {
        SharedHistogram([const { AtomicU64::new(0) }; RANGES])
    }
}

impl SharedHistogram {
    pub(super) fn add(&self, Range(at): Range) {
        self.0[at].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn get(&self, micros: i64) -> LatencyHistogram {
        let counts = std::array::from_fn(|at| self.0[at].load(Ordering::Relaxed));
        LatencyHistogram { counts, micros }
    }
}

/// The latencies of all operations of a kind, since the start or between two moments.
#[derive(Clone, Debug)]
pub struct LatencyHistogram {
    counts: [u64; RANGES],
    micros: i64,
}

impl Default for LatencyHistogram {
    fn default() -> LatencyHistogram {
        LatencyHistogram { counts: [0; RANGES], micros: 0 }
    }
}

impl LatencyHistogram {
    /// Adds an operation, which counts as several.
    pub(crate) fn add(&mut self, micros: i64, times: u64) {
        self.counts[Range::of(micros).0] += times;
        let times = i64::try_from(times).unwrap_or(i64::MAX);
        self.micros = self.micros.saturating_add(micros.saturating_mul(times));
    }

    /// For each range that has operations, its lower bound in microseconds (inclusive) and their
    /// number.
    pub fn ranges(&self) -> impl Iterator<Item = (i64, u64)> {
        LOWER_BOUNDS.into_iter().zip(self.counts).filter(|(_, count)| *count > 0)
    }

    /// The number of operations.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Their total time in microseconds.
    pub fn micros(&self) -> i64 {
        self.micros
    }

    /// For each range its upper bound in microseconds (exclusive) and the number of operations
    /// below it. The last range has no bound.
    pub fn cumulative(&self) -> impl Iterator<Item = (Option<i64>, u64)> {
        let bounds = LOWER_BOUNDS.into_iter().skip(1).map(Some).chain([None]);
        bounds.zip(self.counts).scan(0, |sum, (bound, count)| {
            *sum += count;
            Some((bound, *sum))
        })
    }

    /// The latency in microseconds that this part of the operations did not exceed, as in
    /// `quantile(0.99)`. Within a range, latencies are taken as evenly distributed. `None` without
    /// operations.
    pub fn quantile(&self, part: f64) -> Option<f64> {
        let total = self.count();
        let wanted = part * total as f64;
        let mut below = 0;
        for (at, count) in self.counts.into_iter().enumerate().filter(|(_, count)| *count > 0) {
            if (below + count) as f64 >= wanted {
                let low = LOWER_BOUNDS[at] as f64;
                let high = LOWER_BOUNDS.get(at + 1).map_or(low, |bound| *bound as f64);
                return Some(low + (high - low) * (wanted - below as f64) / count as f64);
            }
            below += count;
        }
        None
    }

    /// The operations that this histogram has in addition to an earlier one.
    pub fn since(&self, earlier: &LatencyHistogram) -> LatencyHistogram {
        let counts = std::array::from_fn(|at| self.counts[at].saturating_sub(earlier.counts[at]));
        LatencyHistogram { counts, micros: self.micros.saturating_sub(earlier.micros) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_double_with_half_steps_in_the_middle() {
        let expected = [0, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 3072, 4096, 6144, 8192];
        assert_eq!(LOWER_BOUNDS[..16], expected);
        assert_eq!(LOWER_BOUNDS[28..33], [786_432, 1_048_576, 1_572_864, 2_097_152, 4_194_304]);
        let mut histogram = Histogram::default();
        for micros in [0, 1, 2, 3, 3071, 3072, i64::MAX, -1] {
            histogram.add(Range::of(micros));
        }
        let ranges: Vec<(i64, i64)> = histogram.ranges().collect();
        assert_eq!(ranges[..4], [(0, 3), (2, 2), (2048, 1), (3072, 1)]);
        assert_eq!(ranges.len(), 5);
    }

    #[test]
    fn a_quantile_is_interpolated_in_its_range() {
        let shared = SharedHistogram::default();
        assert_eq!(shared.get(0).quantile(0.5), None);
        (0..90).for_each(|_| shared.add(Range::of(70)));
        let before = shared.get(90 * 70);
        (0..10).for_each(|_| shared.add(Range::of(2100)));
        let all = shared.get(90 * 70 + 10 * 2100);
        assert_eq!((all.count(), all.micros()), (100, 27_300));
        assert_eq!(all.quantile(0.45), Some(96.0));
        assert_eq!(all.quantile(0.95), Some(2560.0));
        assert_eq!(all.quantile(1.0), Some(3072.0));
        let later = all.since(&before);
        assert_eq!((later.count(), later.micros()), (10, 21_000));
        assert_eq!(later.quantile(0.5), Some(2560.0));
        let cumulative: Vec<_> = all.cumulative().collect();
        assert_eq!(cumulative[6], (Some(128), 90));
        assert_eq!(cumulative.last(), Some(&(None, 100)));
    }
}
