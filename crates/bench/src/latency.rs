//! Latencies: a histogram of them all, and one for each stretch of time where a table shows their
//! course.

use std::time::{Duration, Instant};

use anyhow::Result;
use hdrhistogram::Histogram;

use crate::caller::Done;

/// The range of latencies that the histogram distinguishes, in nanoseconds.
const LOWEST: u64 = 1_000;
const HIGHEST: u64 = 600_000_000_000;

/// How long requests took.
pub(crate) struct Latencies(Histogram<u64>);

impl Latencies {
    /// None yet.
    pub(crate) fn new() -> Result<Latencies> {
        Ok(Latencies(Histogram::new_with_bounds(LOWEST, HIGHEST, 3)?))
    }

    /// One more.
    pub(crate) fn record(&mut self, latency: Duration) {
        self.0.saturating_record(latency.as_nanos() as u64);
    }

    /// Takes the other's, too.
    pub(crate) fn add(&mut self, other: &Latencies) -> Result<()> {
        Ok(self.0.add(&other.0)?)
    }

    /// How many.
    pub(crate) fn count(&self) -> u64 {
        self.0.len()
    }

    /// The latency that this share of the requests did not exceed, in milliseconds.
    pub(crate) fn millis_at(&self, quantile: f64) -> f64 {
        self.0.value_at_quantile(quantile) as f64 / 1e6
    }

    /// The longest, in milliseconds.
    pub(crate) fn max_millis(&self) -> f64 {
        if self.0.is_empty() { 0.0 } else { self.0.max() as f64 / 1e6 }
    }

    /// What clients would have seen that ask in the rhythm of the median, whatever happens: who
    /// waits for an answer before asking again asks the less the longer a stall lasts, and hides it
    /// (coordinated omission).
    pub(crate) fn corrected(&self) -> Latencies {
        let interval = self.0.value_at_quantile(0.5);
        Latencies(self.0.clone_correct(interval))
    }
}

/// What one thread saw.
pub(crate) struct Recorder {
    pub(crate) latencies: Latencies,
    pub(crate) done: Done,
    /// Operations whose time had come and which were never asked because all connections waited.
    pub(crate) unasked: u64,
}

impl Recorder {
    /// Nothing yet.
    pub(crate) fn new() -> Result<Recorder> {
        Ok(Recorder { latencies: Latencies::new()?, done: Done::default(), unasked: 0 })
    }

    /// An operation that began (or should have begun) then and is complete now.
    pub(crate) fn record(&mut self, began: Instant, now: Instant, done: Done) {
        self.latencies.record(now.saturating_duration_since(began));
        self.done.count += done.count;
        self.done.bytes += done.bytes;
    }

    /// Takes what another saw, too.
    pub(crate) fn add(&mut self, other: Recorder) -> Result<()> {
        self.latencies.add(&other.latencies)?;
        self.done.count += other.done.count;
        self.done.bytes += other.done.bytes;
        self.unasked += other.unasked;
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
        // Ten seconds without an answer in twenty: half of all questions meet them.
        let corrected = latencies.corrected();
        assert!(corrected.count() > 19_000);
        assert!(corrected.millis_at(0.75) > 4_000.0);
    }
}
