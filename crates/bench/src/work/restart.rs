//! The time from the start of a server until its first reply: with an empty folder, and with
//! millions of documents after SIGTERM and after SIGKILL.
//!
//! "First answer" is the reply to `isMaster`. "First document" is a document found by its `_id`,
//! for which the server must have opened its data.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use mayfly_value::RawValue;

use super::bulk::fill;
use super::{DATABASE, Plan, create_indexes};
use crate::documents::{ITEMS_PER_KEY, item_id};
use crate::figures::Measured;
use crate::launch::Ending;
use crate::server::Target;
use crate::statistics::Range;
use crate::wire::first_batch;

const EMPTY_STARTS: usize = 7;
const FILLED_STARTS: usize = 3;
const KEPT: &str = "kept";
/// Documents that are written before SIGKILL, so that there is a log to replay.
const UNFLUSHED: u32 = 20_000;

pub(super) fn empty(target: &Target, _: &Plan) -> Result<Measured> {
    let mut times = Vec::new();
    for _ in 0..EMPTY_STARTS {
        let began = Instant::now();
        let _started = target.another()?;
        times.push(began.elapsed());
    }
    let mut measured = Measured::default();
    set_times(&mut measured, ["first answer", "slowest answer"], &times);
    Ok(measured)
}

pub(super) fn filled(target: &Target, plan: &Plan) -> Result<Measured> {
    let mut server = target.another()?;
    create_indexes(&mut server.client()?, KEPT, &["k"], None)?;
    let documents = plan.start_documents;
    fill(&server, KEPT, documents)?;
    server.settle();
    let mut measured = Measured::default();
    measured.set("documents", f64::from(documents), "");
    measured.set_known("folder", server.disk_bytes().map(|bytes| bytes / 1e6), "MB");
    let (mut answers, mut founds, mut stops) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..FILLED_STARTS {
        stops.push(server.stop(Ending::Orderly)?);
        let (answer, found) = start_again(&mut server, documents)?;
        answers.push(answer);
        founds.push(found);
    }
    set_times(&mut measured, ["first document", "slowest document"], &founds);
    set_times(&mut measured, ["first answer", "slowest answer"], &answers);
    set_times(&mut measured, ["orderly end", "slowest end"], &stops);
    let resident = server.process.and_then(|process| process.resident_bytes());
    measured.set_known("resident after", resident.map(|bytes| bytes / 1e6), "MB");
    let (mut killed, mut more) = (Vec::new(), documents);
    for _ in 0..FILLED_STARTS {
        more += UNFLUSHED;
        fill(&server, KEPT, more)?;
        server.stop(Ending::Killed)?;
        killed.push(start_again(&mut server, more)?.1);
    }
    set_times(&mut measured, ["document after kill", "slowest after kill"], &killed);
    Ok(measured)
}

/// Starts a server and finds the last document; returns the times until the first reply and until
/// that document.
fn start_again(server: &mut Target, documents: u32) -> Result<(Duration, Duration)> {
    let began = Instant::now();
    let answer = server.restart()?;
    let last = documents - 1;
    let mut client = server.client()?;
    let reply = client.run(|doc| {
        doc.append("find", KEPT).start_document("filter");
        doc.append("_id", RawValue::ObjectId(item_id(last, 0))).end().append("$db", DATABASE);
    })?;
    let found = first_batch(reply);
    let took = began.elapsed();
    if found != 1 {
        bail!("the last document was lost");
    }
    // The index must have been recovered, too.
    let key = (last / ITEMS_PER_KEY) as i32;
    let reply = client.run(|doc| {
        doc.append("find", KEPT).start_document("filter").append("k", key).end();
        doc.append("$db", DATABASE);
    })?;
    match first_batch(reply) {
        0 => bail!("the last document has no index key"),
        _ => Ok((answer, took)),
    }
}

fn set_times(measured: &mut Measured, names: [&'static str; 2], times: &[Duration]) {
    let millis = times.iter().map(|time| time.as_secs_f64() * 1e3);
    if let Some(range) = Range::of(millis) {
        measured.set(names[0], range.median, "ms");
        measured.set(names[1], range.max, "ms");
    }
}
