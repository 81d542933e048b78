//! The speed of deleting due documents, its cost, and its effect on a concurrent reader.
//!
//! The documents are inserted while the monitor is off and are all due when it is switched on. The
//! reader asks at a fixed rate, so that its own cost is known and can be taken away from the
//! server's.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use mayfly_value::RawValue;

use super::bulk::fill;
use super::point::{RECORDS, load_records, reader};
use super::{Plan, create_indexes, document_count, drop_collection, set_parameter};
use crate::client::Client;
use crate::figures::{MAX, Measured, P50, P95, P99, P999, PER_CORE, RATE, SERVER};
use crate::load::{Load, run_during};
use crate::server::Target;

const DUE: &str = "due";
/// Questions of the reader in a second.
const READS: f64 = 1000.0;
/// How often the documents are counted.
const LOOK: Duration = Duration::from_millis(20);
const PATIENCE: Duration = Duration::from_secs(180);

/// Switches the monitor on with a short sleep between its passes, or off.
pub(super) fn monitor(client: &mut Client, enabled: bool) -> Result<()> {
    set_parameter(client, "ttlMonitorSleepSecs", RawValue::Int32(1))?;
    set_parameter(client, "ttlMonitorEnabled", RawValue::Bool(enabled))
}

pub(super) fn expire(target: &Target, plan: &Plan) -> Result<Measured> {
    let mut client = target.client()?;
    monitor(&mut client, false)?;
    load_records(target, RECORDS, plan.records)?;
    drop_collection(&mut client, DUE)?;
    create_indexes(&mut client, DUE, &["at", "g", "y"], Some(("at", 0)))?;
    fill(target, DUE, plan.documents)?;
    target.settle();

    let read = Load::new(plan, 1, |n| reader(700 + n as u64, plan.records)).at_rate(READS);
    let ((), mut alone) = run_during(target, &[&read], |_| {
        std::thread::sleep(plan.time);
        Ok(())
    })?;
    let (alone, _, alone_costs) = alone.pop().context("no reader")?;
    monitor(&mut client, true)?;
    // The sleep before the pass does not count.
    await_fewer(&mut client, DUE, plan.documents - 1)?;
    let ((count, seconds, mut measured, watch), mut during) =
        run_during(target, &[&read], |watch| {
            let first = document_count(&mut client, DUE)?;
            let last = await_fewer(&mut client, DUE, 0)?;
            let count = u64::from(first - last);
            let (seconds, measured) = watch.stop(count);
            Ok((count, seconds, measured, watch))
        })?;
    monitor(&mut client, false)?;
    let (during, _, _) = during.pop().context("no reader")?;
    if count == 0 {
        bail!("all documents went at once: too few for a measurement");
    }
    measured.set(RATE, count as f64 / seconds, "/s");
    let before = alone.latencies.millis_at(0.99);
    let latencies = &during.latencies;
    for (name, quantile) in [(P50, 0.5), (P95, 0.95), (P99, 0.99), (P999, 0.999)] {
        measured.set(name, latencies.millis_at(quantile), "ms");
    }
    measured.set(MAX, latencies.max_millis(), "ms");
    watch.settle(&mut measured, count, 0);
    // What the reader would have cost in this time without the deletions.
    let reads = READS * seconds / count as f64;
    if let (Some(us), Some(reading)) = (measured.get(SERVER), alone_costs.get(SERVER)) {
        measured.set(SERVER, us - reading * reads, "us");
    }
    if let Some(us) = measured.get(SERVER).filter(|us| *us > 0.0) {
        measured.set(PER_CORE, 1e6 / us, "/s");
    }
    measured.set("reader's p99 before", before, "ms");
    measured.set("reader's p99 during", latencies.millis_at(0.99), "ms");
    measured.set("p99 ratio", latencies.millis_at(0.99) / before, "x");
    Ok(measured)
}

/// Waits until a collection has at most this many documents; gives how many it has.
pub(super) fn await_fewer(client: &mut Client, collection: &str, wanted: u32) -> Result<u32> {
    let began = Instant::now();
    loop {
        let now = document_count(client, collection)?;
        if now <= wanted {
            return Ok(now);
        }
        if began.elapsed() > PATIENCE {
            bail!("{now} documents are still there");
        }
        std::thread::sleep(LOOK);
    }
}
