//! Latencies: a histogram of all, and one for each time bucket if their course in time is printed.

use std::time::{Duration, Instant};

use anyhow::Result;
use hdrhistogram::Histogram;

use crate::caller::Done;
use crate::timeline::Timeline;

/// The range of latencies that the histogram distinguishes, in nanoseconds.
const LOWEST: u64 = 1_000;
const HIGHEST: u64 = 600_000_000_000;

/// The latencies of requests.
pub(crate) struct Latencies(Histogram<u64>);

impl Latencies {
    /// An empty histogram.
    pub(crate) fn new() -> Result<Latencies> {
        Ok(Latencies(Histogram::new_with_bounds(LOWEST, HIGHEST, 3)?))
    }

    /// Adds a latency.
    pub(crate) fn record(&mut self, latency: Duration) {
        self.0.saturating_record(latency.as_nanos() as u64);
    }

    /// Adds the latencies of another histogram.
    pub(crate) fn add(&mut self, other: &Latencies) -> Result<()> {
        Ok(self.0.add(&other.0)?)
    }

    /// The number of latencies.
    #[cfg(test)]
    pub(crate) fn len(&self) -> u64 {
        self.0.len()
    }

    /// The latency at this quantile, in milliseconds.
    pub(crate) fn millis_at(&self, quantile: f64) -> f64 {
        self.0.value_at_quantile(quantile) as f64 / 1e6
    }

    /// The longest latency, in milliseconds.
    pub(crate) fn max_millis(&self) -> f64 {
        if self.0.is_empty() { 0.0 } else { self.0.max() as f64 / 1e6 }
    }

    /// Corrects for coordinated omission: a client that waits for a reply before it sends the next
    /// request sends fewer requests during a stall, and so hides the stall. Adds the latencies of
    /// the requests that it would have sent at the interval of the median.
    pub(crate) fn corrected(&self) -> Latencies {
        let interval = self.0.value_at_quantile(0.5);
        Latencies(self.0.clone_correct(interval))
    }
}

/// The measurements of one thread.
pub(crate) struct Recorder {
    pub(crate) latencies: Latencies,
    pub(crate) timeline: Option<Timeline>,
    pub(crate) done: Done,
    /// Due operations that were never started, because all connections waited.
    pub(crate) unasked: u64,
}

impl Recorder {
    /// An empty recorder; with a course in time if `bucket` gives a width.
    pub(crate) fn new(began: Instant, bucket: Option<Duration>) -> Result<Recorder> {
        Ok(Recorder {
            latencies: Latencies::new()?,
            timeline: bucket.map(|width| Timeline::new(began, width)),
            done: Done::default(),
            unasked: 0,
        })
    }

    /// Records an operation that began (or was due) at `began` and is complete now.
    pub(crate) fn record(&mut self, began: Instant, now: Instant, done: Done) {
        let latency = now.saturating_duration_since(began);
        self.latencies.record(latency);
        self.done.count += done.count;
        self.done.bytes += done.bytes;
        if let Some(timeline) = &mut self.timeline {
            timeline.record(now, latency, done.count);
        }
    }

    /// Adds the measurements of another recorder.
    pub(crate) fn add(&mut self, other: Recorder) -> Result<()> {
        self.latencies.add(&other.latencies)?;
        self.done.count += other.done.count;
        self.done.bytes += other.done.bytes;
        self.unasked += other.unasked;
        if let (Some(timeline), Some(other)) = (&mut self.timeline, &other.timeline) {
            timeline.add(other)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_the_values() {
        let mut latencies = Latencies::new().unwrap();
        for micros in 1..=1000 {
            latencies.record(Duration::from_micros(micros));
        }
        for (quantile, millis) in [(0.5, 0.5), (0.95, 0.95), (0.99, 0.99), (0.999, 0.999)] {
            let found = latencies.millis_at(quantile);
            assert!((found - millis).abs() < 0.003, "{found} instead of {millis}");
        }
        assert!((latencies.max_millis() - 1.0).abs() < 0.002);
    }

    #[test]
    fn a_stall_counts_for_all_who_would_have_asked_meanwhile() {
        let mut latencies = Latencies::new().unwrap();
        for _ in 0..9_999 {
            latencies.record(Duration::from_millis(1));
        }
        latencies.record(Duration::from_secs(10));
        assert!(latencies.millis_at(0.99) < 1.1);
        // No reply during ten of twenty seconds: half of the requests would have been affected.
        let corrected = latencies.corrected();
        assert!(corrected.len() > 19_000);
        assert!(corrected.millis_at(0.75) > 4_000.0);
    }
}
