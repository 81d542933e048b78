//! Sustained inserts, so many that the server compacts its files meanwhile: measures the longest
//! latencies, and the slowest second.

use std::time::Duration;

use anyhow::Result;

use super::bulk::Inserter;
use super::{Plan, create_indexes, drop_collection, fresh_collection};
use crate::figures::Measured;
use crate::load::{self, Load};
use crate::server::Target;
use crate::timeline::Point;

const STALLED: &str = "stalled";
const CONNECTIONS: usize = 2;
/// Documents per request: enough for a high rate, and few enough for a short latency.
const BATCH: u32 = 100;

pub(super) fn stall(target: &Target, plan: &Plan) -> Result<Measured> {
    let mut client = target.client()?;
    fresh_collection(&mut client, STALLED)?;
    create_indexes(&mut client, STALLED, &["g", "y", "at"], None)?;
    let mut load =
        Load::new(plan, CONNECTIONS, |n| Inserter::new(STALLED, n as u16).batch(BATCH).caller());
    load.bucket = load.bucket.or(Some(Duration::from_millis(100)));
    let mut measured = load::run(target, plan, &load)?;
    if let Some(timeline) = &measured.timeline {
        let seconds = timeline.points(timeline.per_second());
        // The last second is incomplete.
        let whole = seconds.len().saturating_sub(1).max(1);
        for (name, value, unit) in worst(&seconds[..whole.min(seconds.len())]) {
            measured.set(name, value, unit);
        }
    }
    drop_collection(&mut client, STALLED)?;
    Ok(measured)
}

/// The slowest second, and the longest wait of the second whose 99th percentile is highest.
fn worst(seconds: &[Point]) -> Vec<(&'static str, f64, &'static str)> {
    let mut figures = Vec::new();
    let slowest = seconds.iter().map(|point| point.rate).min_by(f64::total_cmp);
    if let Some(rate) = slowest {
        figures.push(("worst second: rate", rate, "/s"));
    }
    let spreads = seconds.iter().filter_map(|point| point.latency);
    if let Some(spread) = spreads.max_by(|one, other| one.p99.total_cmp(&other.p99)) {
        figures.push(("worst second: p99", spread.p99, "ms"));
        figures.push(("worst second: max", spread.max, "ms"));
    }
    figures
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timeline::Spread;

    #[test]
    fn the_worst_second_is_found() {
        let point =
            |rate, p99| Point { rate, latency: Some(Spread { p50: 1.0, p99, max: p99 * 2.0 }) };
        let silent = Point { rate: 0.0, latency: None };
        let figures = worst(&[point(100.0, 5.0), point(50.0, 70.0), silent]);
        let values: Vec<f64> = figures.iter().map(|figure| figure.1).collect();
        assert_eq!(values, [0.0, 70.0, 140.0]);
        assert!(worst(&[]).is_empty());
    }
}
