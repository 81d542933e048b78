//! What expiry costs where nothing is due, and what it costs to hide documents the moment they are
//! due.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use mayfly_value::RawValue;

use super::point::{RECORDS, load_records, reader};
use super::ttl::monitor;
use super::{DATABASE, Plan, create_indexes, drop_collection};
use crate::client::Client;
use crate::figures::{Measured, SERVER};
use crate::load::{self, Load};
use crate::server::Target;
use crate::wire::number_at;

const PATIENCE: Duration = Duration::from_secs(180);
const LOOK: Duration = Duration::from_millis(10);
/// Policies under which nothing is due.
const IDLE: u32 = 1000;

/// Counters of the monitor, all of one moment.
fn counters<const N: usize>(client: &mut Client, names: [&str; N]) -> Result<[f64; N]> {
    let status = client.ask(|doc| {
        doc.append("serverStatus", 1).append("$db", "admin");
    })?;
    let mut values = [0.0; N];
    for (value, name) in values.iter_mut().zip(names) {
        *value = number_at(status.as_doc(), &["metrics", "ttl", name]).context("no metrics.ttl")?;
    }
    Ok(values)
}

/// Waits for a full pass that begins after this call; gives how long one took, in milliseconds.
fn pass_millis(client: &mut Client) -> Result<f64> {
    let began = Instant::now();
    let names = ["passes", "durationMicros"];
    let [first, mut micros_before] = counters(client, names)?;
    let mut before = first;
    loop {
        let [passes, micros] = counters(client, names)?;
        // The first one that ends may have begun earlier. The time is added after the count.
        if passes >= first + 2.0 && micros > micros_before {
            return Ok((micros - micros_before) / (passes - before) / 1000.0);
        }
        if passes == first + 1.0 {
            (before, micros_before) = (passes, micros);
        }
        if began.elapsed() > PATIENCE {
            bail!("no pass ends");
        }
        std::thread::sleep(LOOK);
    }
}

/// A pass over a thousand policies with nothing due: milliseconds, and bytes written.
pub(super) fn idle_passes(target: &Target, _: &Plan) -> Result<Measured> {
    let mut client = target.client()?;
    monitor(&mut client, false)?;
    let name = |number: u32| format!("idle_{number}");
    let future = RawValue::Date(i64::MAX / 2);
    for number in 0..IDLE {
        drop_collection(&mut client, &name(number))?;
        create_indexes(&mut client, &name(number), &["at"], Some(("at", 0)))?;
        client.run(|doc| {
            doc.append("insert", name(number).as_str()).start_array("documents").push_document();
            doc.append("_id", 1).append("at", future).end().end().append("$db", DATABASE);
        })?;
    }
    target.settle();
    monitor(&mut client, true)?;
    // The first visits fill caches.
    pass_millis(&mut client)?;
    let written = |target: &Target| target.process.and_then(|process| process.written_bytes());
    let before = written(target);
    let millis = pass_millis(&mut client)?;
    let after = written(target);
    monitor(&mut client, false)?;
    let mut measured = Measured::default();
    measured.set("pass", millis, "ms");
    if let (Some(before), Some(after)) = (before, after) {
        measured.set("pass writes", after - before, "bytes");
    }
    for number in 0..IDLE {
        drop_collection(&mut client, &name(number))?;
    }
    Ok(measured)
}

/// Finds by `_id` where a policy hides what is due, against the same without it.
pub(super) fn hidden(target: &Target, plan: &Plan) -> Result<Measured> {
    let mut client = target.client()?;
    monitor(&mut client, false)?;
    load_records(target, RECORDS, plan.records)?;
    let read = |number: usize| reader(800 + number as u64, plan.records);
    let plain = load::run(target, plan, &Load::new(plan, 4, read))?;
    client.run(|doc| {
        doc.append("createIndexes", RECORDS).start_array("indexes").push_document();
        doc.start_document("key").append("_ts", 1).end().append("name", "hides");
        doc.append("expireAfterSeconds", i32::MAX).end().end().append("$db", DATABASE);
    })?;
    target.settle();
    let mut measured = load::run(target, plan, &Load::new(plan, 4, read))?;
    client.run(|doc| {
        doc.append("dropIndexes", RECORDS).append("index", "hides").append("$db", DATABASE);
    })?;
    if let (Some(with), Some(without)) = (measured.get(SERVER), plain.get(SERVER)) {
        measured.set("server us without", without, "us");
        measured.set("overhead", with - without, "us");
    }
    Ok(measured)
}
