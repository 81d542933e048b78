//! How fast due documents go, what that costs, and what a reader beside it notices.
//!
//! The documents are inserted while the monitor is off and are all due when it is switched on. The reader asks at a
//! fixed pace, so that its own cost is known and can be taken away from the server's.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use mayfly_value::RawValue;

use super::bulk::fill;
use super::point::{find_one, load_records};
use super::{Plan, create_indexes, drop_collection};
use crate::client::{Client, number_at};
use crate::documents::{Random, record_id};
use crate::load::{Measured, Stopwatch, percentile};
use crate::server::Target;

const DUE: &str = "due";
/// The reader asks this often.
const PACE: Duration = Duration::from_millis(1);
/// How often the counters are read.
const LOOK: Duration = Duration::from_millis(20);
const PATIENCE: Duration = Duration::from_secs(120);

pub(super) fn expire(target: &Target, plan: &Plan) -> Result<Measured> {
    let mut client = target.client()?;
    set_parameter(&mut client, "ttlMonitorEnabled", RawValue::Bool(false))?;
    set_parameter(&mut client, "ttlMonitorSleepSecs", RawValue::Int32(1))?;
    load_records(target, plan.records)?;
    drop_collection(&mut client, DUE)?;
    create_indexes(&mut client, DUE, &["at", "g", "y"], Some("at"))?;
    fill(target, DUE, plan.documents)?;
    target.settle();

    let records = plan.records;
    let read = |stopping: &AtomicBool| reader(target, records, stopping);
    let watch = Stopwatch::start(target);
    let (alone, ()) = beside(read, || {
        std::thread::sleep(plan.time);
        Ok(())
    })?;
    let alone = watch.stop(alone.len() as u64, alone);

    let before = deleted(&mut client)?;
    set_parameter(&mut client, "ttlMonitorEnabled", RawValue::Bool(true))?;
    let (mut reads, mut expired) = beside(read, || {
        // The sleep before the pass does not count.
        await_deleted(&mut client, before, 1.0)?;
        let watch = Stopwatch::start(target);
        let first = deleted(&mut client)?;
        let last = await_deleted(&mut client, before, f64::from(plan.documents))?;
        Ok(watch.stop((last - first) as u64, Vec::new()))
    })?;
    let later = target.settle();
    reads.sort_unstable();
    (expired.p50_ms, expired.p99_ms) = (percentile(&reads, 50), percentile(&reads, 99));
    let per_document = |us: f64| us / expired.count.max(1) as f64;
    // What the reader would have cost in this time without the deletions.
    let reading = alone.server_us.unwrap_or(0.0) * expired.seconds / PACE.as_secs_f64();
    expired.server_us = expired.server_us.map(|us| us - per_document(reading));
    expired.later_us = expired.server_us.map(|_| per_document(later * 1e6));
    expired.extra = vec![("reader's p99 before", alone.p99_ms, "ms")];
    expired.extra.push(("reader's p99 during", expired.p99_ms, "ms"));
    let status = status(&mut client)?;
    for (name, field) in [("passes", "passes"), ("sub-passes", "subPasses")] {
        if let Some(value) = number_at(status.as_doc(), &["metrics", "ttl", field]) {
            expired.extra.push((name, value, ""));
        }
    }
    Ok(expired)
}

/// Runs the reader beside something else; gives the reader's latencies and the other's result.
fn beside<T>(
    read: impl Fn(&AtomicBool) -> Result<Vec<u64>> + Sync,
    other: impl FnOnce() -> Result<T>,
) -> Result<(Vec<u64>, T)> {
    let stopping = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| read(&stopping));
        let result = other();
        stopping.store(true, Ordering::Relaxed);
        match reader.join() {
            Ok(latencies) => Ok((latencies?, result?)),
            Err(_) => bail!("the reader panicked"),
        }
    })
}

fn reader(target: &Target, records: u32, stopping: &AtomicBool) -> Result<Vec<u64>> {
    let mut client = target.client()?;
    let mut random = Random::new(700);
    let mut latencies = Vec::new();
    while !stopping.load(Ordering::Relaxed) {
        let asked = Instant::now();
        find_one(&mut client, &record_id(random.below(records)))?;
        let took = asked.elapsed();
        latencies.push(took.as_nanos() as u64);
        std::thread::sleep(PACE.saturating_sub(took));
    }
    Ok(latencies)
}

fn await_deleted(client: &mut Client, before: f64, wanted: f64) -> Result<f64> {
    let began = Instant::now();
    loop {
        let now = deleted(client)?;
        if now - before >= wanted {
            return Ok(now);
        }
        if began.elapsed() > PATIENCE {
            bail!("only {} documents were deleted", now - before);
        }
        std::thread::sleep(LOOK);
    }
}

fn status(client: &mut Client) -> Result<mayfly_value::DocBuf> {
    client.ask(|doc| {
        doc.append("serverStatus", 1).append("$db", "admin");
    })
}

fn deleted(client: &mut Client) -> Result<f64> {
    let status = status(client)?;
    number_at(status.as_doc(), &["metrics", "ttl", "deletedDocuments"]).context("no metrics.ttl")
}

fn set_parameter(client: &mut Client, name: &str, value: RawValue<'_>) -> Result<()> {
    client.run(|doc| {
        doc.append("setParameter", 1).append(name, value).append("$db", "admin");
    })?;
    Ok(())
}
