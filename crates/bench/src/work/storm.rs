//! A TTL storm: nine tenths of a collection become due at once while clients read and insert.
//! Compares the latencies of the clients before, during and after the deletion.
//!
//! Readers and inserters run at a fixed rate, and latencies count from the time when an operation
//! is due, so that a stall is fully measured.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::Result;
use mayfly_value::RawValue;

use super::bulk::{Dates, Inserter, fill, fill_from};
use super::point::{RECORDS, load_records, reader};
use super::ttl::{await_deleted, await_fewer, deleted, monitor};
use super::{DATABASE, Plan, create_indexes, document_count, drop_collection};
use crate::client::Client;
use crate::figures::Measured;
use crate::load::{Ended, Load, run_during};
use crate::server::Target;
use crate::wire::number_at;

const STORM: &str = "storm";
/// Loads of at least this time also measure the disk usage a minute later.
const AT_LENGTH: Duration = Duration::from_secs(10);
const MINUTE: Duration = Duration::from_secs(60);
/// Operations per second, of the readers and of the inserters each.
const PACE: f64 = 1000.0;
const CONNECTIONS: usize = 2;
/// A date that is not due in this century.
const FAR_MS: i64 = 5_000_000_000_000;
/// The first number of inserted items.
const INSERTED: u32 = 1 << 28;

/// Figures of the cost for clients: the ratio of two other figures.
const RATIOS: [(&str, [&str; 2]); 2] = [
    ("read p99 ratio", ["read p99 before", "read p99 during"]),
    ("insert p99 ratio", ["insert p99 before", "insert p99 during"]),
];

/// The figures of one phase: of the readers and of the inserters.
type Names = [&'static str; 4];
const BEFORE: Names =
    ["read p50 before", "read p99 before", "insert p50 before", "insert p99 before"];
const DURING: Names =
    ["read p50 during", "read p99 during", "insert p50 during", "insert p99 during"];
const AFTER: Names = ["read p50 after", "read p99 after", "insert p50 after", "insert p99 after"];

pub(super) fn storm(target: &Target, plan: &Plan) -> Result<Measured> {
    let mut client = target.client()?;
    monitor(&mut client, false)?;
    load_records(target, RECORDS, plan.records)?;
    drop_collection(&mut client, STORM)?;
    create_indexes(&mut client, STORM, &["at", "g", "y"], Some(("at", 0)))?;
    let due = plan.documents / 10 * 9;
    fill(target, STORM, due)?;
    fill_from(target, STORM, plan.documents, FAR_MS)?;
    target.settle();
    let deleted_before = deleted(&mut client)?;
    let pace = plan.rate.unwrap_or(PACE);
    let phase = |number: u8| {
        let first = INSERTED + (u32::from(number) << 24);
        let read = Load::new(plan, CONNECTIONS, |n| reader(1200 + n as u64, plan.records));
        let insert = Load::new(plan, CONNECTIONS, move |writer| {
            Inserter::new(STORM, 1 + writer as u16).from(first).dated(Dates::From(FAR_MS)).caller()
        });
        (read.at_rate(pace), insert.at_rate(pace))
    };
    let rest = |number: u8| {
        let (read, insert) = phase(number);
        run_during(target, &[&read, &insert], |_| {
            std::thread::sleep(plan.time / 2);
            Ok(())
        })
    };
    let mut measured = Measured::default();
    let ((), before) = rest(0)?;
    let disk = || target.disk_bytes().map(|bytes| bytes / 1e6);
    measured.set_known("disk before", disk(), "MB");
    set_phase(&mut measured, BEFORE, &before);
    let total = document_count(&mut client, STORM)?;
    monitor(&mut client, true)?;
    // The time until the pass begins is not measured.
    let gone = total - await_fewer(&mut client, STORM, total - 1)?;
    let (read, insert) = phase(1);
    let ((rate, lag_error), during) = run_during(target, &[&read, &insert], |watch| {
        let lag_error = lag_error(&mut client)?;
        let expected = deleted_before + f64::from(due);
        await_deleted(&mut client, expected)?;
        Ok((f64::from(due - gone.min(due)) / watch.began.elapsed().as_secs_f64(), lag_error))
    })?;
    measured.set_known("disk right after", disk(), "MB");
    let ended = Instant::now();
    measured.set("lag gauge against truth", lag_error, "s");
    set_phase(&mut measured, DURING, &during);
    let ((), after) = rest(2)?;
    set_phase(&mut measured, AFTER, &after);
    measured.set("expired per second", rate, "/s");
    for (name, [before, during]) in RATIOS {
        if let (Some(before), Some(during)) = (measured.get(before), measured.get(during)) {
            measured.set(name, during / before, "x");
        }
    }
    if plan.time >= AT_LENGTH {
        std::thread::sleep(MINUTE.saturating_sub(ended.elapsed()));
        measured.set_known("disk a minute later", disk(), "MB");
    }
    measured.timeline = during.into_iter().next().and_then(|(recorder, _, _)| recorder.timeline);
    target.settle();
    drop_collection(&mut client, STORM)?;
    Ok(measured)
}

/// The error in seconds of the lag that the server reports. The oldest due document is read before
/// and after the report, because it may be deleted meanwhile.
fn lag_error(client: &mut Client) -> Result<f64> {
    let before = oldest_overdue_secs(client)?;
    let status = client.ask(|doc| {
        doc.append("ttlStatus", 1).append("$db", "admin");
    })?;
    let policies = status.as_doc().get("policies").and_then(RawValue::as_array);
    let said = policies.into_iter().flatten().find_map(|policy| {
        let policy = policy.value().as_document()?;
        let ns = policy.get("ns").and_then(RawValue::as_str)?;
        ns.ends_with(STORM).then(|| number_at(policy, &["oldestOverdueSecs"])).flatten()
    });
    let after = oldest_overdue_secs(client)?;
    Ok(said.map_or(f64::NAN, |said| (said - before).max(after - said).max(0.0)))
}

fn oldest_overdue_secs(client: &mut Client) -> Result<f64> {
    let oldest = client.ask(|doc| {
        doc.append("find", STORM).start_document("sort").append("at", 1).end();
        doc.append("limit", 1).append("singleBatch", true).append("$db", DATABASE);
    })?;
    let batch = oldest.as_doc().get("cursor").and_then(RawValue::as_document);
    let batch = batch.and_then(|cursor| cursor.get("firstBatch")).and_then(RawValue::as_array);
    let first = batch.and_then(|batch| batch.iter().next()).and_then(|it| it.value().as_document());
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs_f64();
    Ok(match first.and_then(|document| document.get("at")) {
        Some(RawValue::Date(date)) => now - date as f64 / 1000.0,
        _ => f64::NAN,
    })
}

fn set_phase(measured: &mut Measured, names: Names, ended: &[Ended]) {
    for (names, (recorder, _, _)) in names.chunks(2).zip(ended) {
        measured.set(names[0], recorder.latencies.millis_at(0.5), "ms");
        measured.set(names[1], recorder.latencies.millis_at(0.99), "ms");
    }
}
