//! The course of a load in time: for each time bucket the operations that were answered, and their
//! latencies.

use std::time::{Duration, Instant};

use anyhow::Result;
use hdrhistogram::Histogram;

/// The largest number of buckets; later operations are counted in the last one.
const MAX_BUCKETS: usize = 12_000;
/// The range of latencies that a bucket distinguishes, in microseconds.
const LOWEST: u64 = 1;
const HIGHEST: u64 = 600_000_000;

/// The buckets of a load.
pub(crate) struct Timeline {
    began: Instant,
    /// The width of each bucket.
    pub(crate) width: Duration,
    buckets: Vec<Bucket>,
}

struct Bucket {
    latencies: Histogram<u32>,
    max: Duration,
    operations: u64,
}

/// The figures of a bucket.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Point {
    /// Operations per second.
    pub(crate) rate: f64,
    /// In milliseconds; `None` if no operation was answered.
    pub(crate) latency: Option<Spread>,
}

/// Median, 99th percentile and maximum.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spread {
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    pub(crate) max: f64,
}

impl Timeline {
    /// A timeline without operations.
    pub(crate) fn new(began: Instant, width: Duration) -> Timeline {
        Timeline { began, width, buckets: Vec::new() }
    }

    /// The width of the buckets for a load of this duration: a tenth of a second, more for hours.
    pub(crate) fn width_for(time: Duration) -> Duration {
        Duration::from_millis(100).max(time / (MAX_BUCKETS as u32 / 2))
    }

    /// Records operations that were answered together.
    pub(crate) fn record(&mut self, now: Instant, latency: Duration, operations: u64) {
        let at = now.saturating_duration_since(self.began).as_nanos() / self.width.as_nanos();
        let at = (at as usize).min(MAX_BUCKETS - 1);
        self.grow(at + 1);
        let bucket = &mut self.buckets[at];
        bucket.latencies.saturating_record(latency.as_micros() as u64);
        bucket.max = bucket.max.max(latency);
        bucket.operations += operations;
    }

    /// Adds another timeline that began at the same time.
    pub(crate) fn add(&mut self, other: &Timeline) -> Result<()> {
        self.grow(other.buckets.len());
        for (bucket, other) in self.buckets.iter_mut().zip(&other.buckets) {
            bucket.latencies.add(&other.latencies)?;
            bucket.max = bucket.max.max(other.max);
            bucket.operations += other.operations;
        }
        Ok(())
    }

    /// One point for each `together` buckets.
    pub(crate) fn points(&self, together: usize) -> Vec<Point> {
        let width = self.width.as_secs_f64() * together as f64;
        self.buckets.chunks(together.max(1)).filter_map(|chunk| point(chunk, width)).collect()
    }

    /// The number of buckets per second.
    pub(crate) fn per_second(&self) -> usize {
        (1.0 / self.width.as_secs_f64()).round().max(1.0) as usize
    }

    fn grow(&mut self, count: usize) {
        while self.buckets.len() < count {
            let Ok(latencies) = Histogram::new_with_bounds(LOWEST, HIGHEST, 1) else { return };
            self.buckets.push(Bucket { latencies, max: Duration::ZERO, operations: 0 });
        }
    }
}

fn point(chunk: &[Bucket], seconds: f64) -> Option<Point> {
    let mut all = chunk.first()?.latencies.clone();
    for bucket in &chunk[1..] {
        all.add(&bucket.latencies).ok()?;
    }
    let operations: u64 = chunk.iter().map(|bucket| bucket.operations).sum();
    let max = chunk.iter().map(|bucket| bucket.max).max()?.as_secs_f64() * 1e3;
    let millis = |quantile| (all.value_at_quantile(quantile) as f64 / 1e3).min(max);
    let latency = (!all.is_empty()).then(|| Spread { p50: millis(0.5), p99: millis(0.99), max });
    Some(Point { rate: operations as f64 / seconds, latency })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_fall_into_their_buckets() {
        let began = Instant::now();
        let mut timeline = Timeline::new(began, Duration::from_millis(100));
        let mut other = Timeline::new(began, Duration::from_millis(100));
        timeline.record(began + Duration::from_millis(50), Duration::from_millis(2), 10);
        other.record(began + Duration::from_millis(250), Duration::from_millis(40), 5);
        timeline.add(&other).unwrap();
        let points = timeline.points(1);
        let rates: Vec<f64> = points.iter().map(|point| point.rate).collect();
        assert_eq!(rates, [100.0, 0.0, 50.0]);
        assert!(points[1].latency.is_none());
        let third = points[2].latency.unwrap();
        assert!(third.max == 40.0 && third.p50 <= third.p99 && third.p50 > 35.0);
        let second = timeline.points(timeline.per_second());
        assert_eq!(second.len(), 1);
        assert_eq!(second[0].rate, 15.0);
    }
}
