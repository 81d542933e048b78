//! Measurements of a hundred sensors: the rates of inserts, and of the expiry of whole buckets.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use mayfly_value::{DocBuilder, RawValue};

use super::bulk::{BATCH, LONG_AGO_MS};
use super::ttl::monitor;
use super::{DATABASE, Plan, document_count, drop_collection};
use crate::caller::{Caller, Turn, caller};
use crate::client::Client;
use crate::documents::{Random, item_id};
use crate::figures::{Measured, RATE};
use crate::load::{self, Load, converse};
use crate::server::Target;
use crate::wire::{Request, number_at};

/// Number of sensors; each has a measurement per second.
const SENSORS: u32 = 100;
const SERIES: &str = "measurements";
/// Bytes of a measurement in its bucket, before the store compresses it.
const BYTES_EACH: &str = "bytes each";
/// The interval between two counts of the buckets.
const LOOK: Duration = Duration::from_millis(5);
const PATIENCE: Duration = Duration::from_secs(180);

fn create(client: &mut Client, expire_after_secs: Option<i64>) -> Result<()> {
    drop_collection(client, SERIES)?;
    client.run(|doc| {
        doc.append("create", SERIES).start_document("timeseries");
        doc.append("timeField", "t").append("metaField", "sensor").end();
        if let Some(seconds) = expire_after_secs {
            doc.append("expireAfterSeconds", seconds);
        }
        doc.append("$db", DATABASE);
    })?;
    Ok(())
}

/// Appends a measurement; the sensors take turns.
fn append(out: &mut Vec<u8>, number: u32, writer: u16, random: &mut Random) {
    let mut doc = DocBuilder::new();
    let time = LONG_AGO_MS + i64::from(number / SENSORS) * 1000;
    doc.append("t", RawValue::Date(time))
        .append("_id", RawValue::ObjectId(item_id(number, writer)));
    doc.start_document("sensor").append("number", (number % SENSORS) as i32);
    doc.append("writer", i32::from(writer)).end();
    doc.append("temperature", f64::from(1800 + random.below(500)) / 100.0);
    doc.append("humidity", f64::from(400 + random.below(200)) / 10.0);
    doc.append("battery", 100 - (number / 100_000) as i32);
    out.extend_from_slice(doc.finish().as_bytes());
}

fn inserter(writer: u16) -> Box<dyn Caller> {
    let ask = move |(next, random, bytes): &mut (u32, Random, Vec<u8>), request: &mut Request| {
        bytes.clear();
        for number in *next..*next + BATCH {
            append(bytes, number, writer, random);
        }
        *next += BATCH;
        request.command(|doc| {
            doc.append("insert", SERIES).append("ordered", true);
            super::logged(doc);
        });
        request.sequence("documents", bytes);
    };
    let state = (0, Random::new(900 + u64::from(writer)), Vec::new());
    caller(state, ask, move |_, _| Ok(Turn::wrote(u64::from(BATCH), 0)))
}

/// `insertMany` of a thousand measurements, ten of each sensor.
pub(super) fn ingest(target: &Target, plan: &Plan) -> Result<Measured> {
    let mut client = target.client()?;
    create(&mut client, None)?;
    let mut measured = load::run(target, plan, &Load::new(plan, 1, |n| inserter(n as u16)))?;
    let sizes = client.ask(|doc| {
        doc.append("collStats", format!("system.buckets.{SERIES}").as_str());
        doc.append("$db", DATABASE);
    })?;
    if let (Some(bytes), Some(count)) =
        (number_at(sizes.as_doc(), &["size"]), measured.get("operations"))
    {
        measured.set(BYTES_EACH, bytes / count, "bytes");
        let mut plain = Vec::new();
        append(&mut plain, 0, 0, &mut Random::new(1));
        measured.set("as plain BSON", plain.len() as f64, "bytes");
    }
    drop_collection(&mut client, SERIES)?;
    Ok(measured)
}

/// All measurements are due when the monitor is switched on.
pub(super) fn expire(target: &Target, plan: &Plan) -> Result<Measured> {
    let mut client = target.client()?;
    monitor(&mut client, false)?;
    create(&mut client, Some(1))?;
    let mut inserter = inserter(0);
    let mut filled = 0;
    while filled < plan.documents.max(BATCH) {
        filled += converse(&mut client, &mut *inserter)?.1.count as u32;
    }
    let buckets = || format!("system.buckets.{SERIES}");
    let all = document_count(&mut client, &buckets())?;
    monitor(&mut client, true)?;
    let mut began = Instant::now();
    let waiting = Instant::now();
    loop {
        let left = document_count(&mut client, &buckets())?;
        if left == all {
            // The sleep before the pass does not count.
            began = Instant::now();
        } else if left == 0 {
            break;
        }
        if waiting.elapsed() > PATIENCE {
            bail!("{left} buckets are still there");
        }
        std::thread::sleep(LOOK);
    }
    let seconds = began.elapsed().as_secs_f64().max(1e-6);
    monitor(&mut client, false)?;
    drop_collection(&mut client, SERIES)?;
    let mut measured = Measured::default();
    measured.set(RATE, f64::from(filled) / seconds, "/s");
    Ok(measured)
}
