//! A mixed load for hours: reads, inserts, updates and expiry at a fixed rate. It measures the
//! growth of memory, threads, open files and the data folder.
//!
//! Documents live for half a minute, so that their number stays constant after that. Growth in the
//! second half of the time is a leak, or files that are not compacted yet.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::bulk::{Dates, Inserter};
use super::point::{RECORDS, ask_update, load_records, one_updated, reader, set_some_field};
use super::ttl::monitor;
use super::{Plan, create_indexes, drop_collection};
use crate::caller::{Caller, Turn, caller};
use crate::documents::{FIELD_BYTES, Random};
use crate::figures::Measured;
use crate::latency::Recorder;
use crate::load::{Load, run_during};
use crate::server::Target;
use crate::statistics::slope;
use crate::wire::Request;

const SOAKED: &str = "soaked";
/// Operations per second, unless the command line sets another rate: half of them reads, a quarter
/// each inserts and updates.
const RATE: f64 = 4000.0;
const LIFE_SECONDS: i32 = 30;
const SAMPLE: Duration = Duration::from_secs(1);
/// The number of samples between two printed lines.
const REPORT: usize = 60;
const CONNECTIONS: usize = 2;

/// The sampled values: name, name of the growth per hour, unit.
const SAMPLED: [(&str, &str, &str); 4] = [
    ("memory at the end", "memory growth per hour", "MB"),
    ("threads at the end", "threads growth per hour", ""),
    ("open files at the end", "open files growth per hour", ""),
    ("folder at the end", "folder growth per hour", "MB"),
];
/// The latencies of the three loads.
const LATENCIES: [[&str; 3]; 3] = [
    ["read p50", "read p99", "read p99.9"],
    ["insert p50", "insert p99", "insert p99.9"],
    ["update p50", "update p99", "update p99.9"],
];

pub(super) fn soak(target: &Target, plan: &Plan) -> Result<Measured> {
    target.process.context("the server runs elsewhere")?;
    let mut client = target.client()?;
    load_records(target, RECORDS, plan.records)?;
    drop_collection(&mut client, SOAKED)?;
    create_indexes(&mut client, SOAKED, &["at", "g", "y"], Some(("at", LIFE_SECONDS)))?;
    monitor(&mut client, true)?;
    let records = plan.records;
    let rate = plan.rate.unwrap_or(RATE);
    let load = |make: fn(usize, u32) -> Box<dyn Caller>, share: f64| {
        Load::new(plan, CONNECTIONS, move |n| make(n, records)).at_rate(rate * share)
    };
    let reads = load(|n, records| reader(1300 + n as u64, records), 0.5);
    let inserts = load(|n, _| inserter(n), 0.25);
    let updates = load(updater, 0.25);
    let loads = [&reads, &inserts, &updates];
    let ((samples, watch), ended) = run_during(target, &loads, |watch| {
        let samples = sample(target, plan, watch.began);
        Ok((samples, watch))
    })?;
    let count = ended.iter().map(|(recorder, _, _)| recorder.done.count).sum();
    let bytes = ended.iter().map(|(recorder, _, _)| recorder.done.bytes).sum();
    let (_, mut measured) = watch.stop(count);
    let mut all = Recorder::new(Instant::now(), None)?;
    let mut seconds = 0.0;
    for (names, (mut recorder, took, _)) in LATENCIES.iter().zip(ended) {
        for (name, quantile) in names.iter().zip([0.5, 0.99, 0.999]) {
            measured.set(name, recorder.latencies.millis_at(quantile), "ms");
        }
        measured.timeline = measured.timeline.or(recorder.timeline.take());
        all.add(recorder)?;
        seconds = took;
    }
    let timeline = measured.timeline.take();
    measured.set_load(seconds, all);
    measured.timeline = timeline;
    watch.settle(&mut measured, count, bytes);
    set_growth(&mut measured, &samples);
    monitor(&mut client, false)?;
    drop_collection(&mut client, SOAKED)?;
    Ok(measured)
}

/// Seconds since the beginning, and the value of each of [`SAMPLED`].
type Sample = (f64, [f64; 4]);

fn sample(target: &Target, plan: &Plan, began: Instant) -> Vec<Sample> {
    let mut samples = Vec::new();
    while began.elapsed() < plan.time {
        std::thread::sleep(SAMPLE.min(plan.time.saturating_sub(began.elapsed())));
        let Some(process) = target.process else { continue };
        let known = |value: Option<f64>, unit: f64| value.map_or(f64::NAN, |value| value / unit);
        let values = [
            known(process.resident_bytes(), 1e6),
            known(process.threads(), 1.0),
            known(process.open_files(), 1.0),
            known(target.disk_bytes(), 1e6),
        ];
        samples.push((began.elapsed().as_secs_f64(), values));
        if samples.len() % REPORT == 0 {
            let [memory, threads, files, folder] = values;
            eprintln!(
                "{:6.0} s: {memory:.0} MB, {threads} threads, {files} open files, folder {folder:.0} MB",
                began.elapsed().as_secs_f64()
            );
        }
    }
    samples
}

/// Sets the figures: values at the end, and their growth in the second half.
fn set_growth(measured: &mut Measured, samples: &[Sample]) {
    let half = &samples[samples.len() / 2..];
    for (at, (end, growth, unit)) in SAMPLED.into_iter().enumerate() {
        let known = |sample: &Sample| (!sample.1[at].is_nan()).then_some((sample.0, sample.1[at]));
        let points: Vec<(f64, f64)> = half.iter().filter_map(known).collect();
        measured.set_known(end, points.last().map(|point| point.1), unit);
        measured.set_known(growth, slope(&points).map(|slope| slope * 3600.0), unit);
    }
}

fn inserter(number: usize) -> Box<dyn Caller> {
    Inserter::new(SOAKED, 1 + number as u16).dated(Dates::Now).caller()
}

fn updater(number: usize, records: u32) -> Box<dyn Caller> {
    let ask = move |random: &mut Random, request: &mut Request| {
        let record = random.below(records);
        ask_update(request, RECORDS, record, |doc| set_some_field(doc, random));
    };
    caller(Random::new(1400 + number as u64), ask, |_, reply| {
        one_updated(reply)?;
        Ok(Turn::wrote(1, FIELD_BYTES as u64))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_is_that_of_the_second_half() {
        let sample = |second: u32| {
            // Memory grows only in the first half, the folder by a megabyte per second.
            let memory = if second < 50 { f64::from(second) } else { 50.0 };
            (f64::from(second), [memory, 7.0, f64::NAN, f64::from(second)])
        };
        let samples: Vec<Sample> = (0..100).map(sample).collect();
        let mut measured = Measured::default();
        set_growth(&mut measured, &samples);
        assert_eq!(measured.get("memory growth per hour"), Some(0.0));
        assert_eq!(measured.get("threads at the end"), Some(7.0));
        assert_eq!(measured.get("open files at the end"), None);
        assert!((measured.get("folder growth per hour").unwrap() - 3600.0).abs() < 1e-6);
        set_growth(&mut measured, &[]);
    }
}
