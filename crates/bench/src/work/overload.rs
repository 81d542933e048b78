//! The performance that overloading clients leave to others: finds by `_id` alone, and concurrently
//! to each attack.

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use mayfly_value::DocBuilder;

use super::point::{RECORDS, load_records, reader};
use super::{DATABASE, Plan};
use crate::figures::{Measured, P99, RATE};
use crate::load::{self, Load};
use crate::server::Target;

const CONNECTIONS: usize = 4;
/// Number of attacking clients.
const ATTACKERS: usize = 60;
/// The time of the finds alone.
const HEAD_START: Duration = Duration::from_secs(2);
/// The interval at which waiting attackers check whether the load is over.
const LOOK: Duration = Duration::from_millis(50);
/// Bytes of the part of a message that is sent.
const HALF: usize = 8 << 20;

/// Runs one attacker until the load is over.
type Attack = fn(&Target, &AtomicBool) -> Result<()>;

/// The names of the figures: the rate relative to that without attackers, and the 99th percentile.
const ATTACKS: [(&str, &str, Attack); 4] = [
    ("with aggregations", "p99 with aggregations", aggregate),
    ("with endless scripts", "p99 with endless scripts", scripts),
    ("with unread replies", "p99 with unread replies", unread),
    ("with half messages", "p99 with half messages", half),
];

pub(super) fn overload(target: &Target, plan: &Plan) -> Result<Measured> {
    load_records(target, RECORDS, plan.records)?;
    let finds = || {
        let load = Load::new(plan, CONNECTIONS, |n| reader(1700 + n as u64, plan.records));
        load::run(target, plan, &load)
    };
    let mut measured = finds()?;
    let alone = measured.get(RATE).context("no rate was measured")?;
    for (rate, slowest, attack) in ATTACKS {
        let over = AtomicBool::new(false);
        let loaded = std::thread::scope(|scope| {
            for _ in 0..ATTACKERS {
                scope.spawn(|| attack(target, &over));
            }
            std::thread::sleep(HEAD_START);
            let loaded = finds();
            over.store(true, Ordering::Relaxed);
            loaded
        })?;
        measured.set(rate, loaded.get(RATE).unwrap_or(0.0) / alone, "x");
        measured.set_known(slowest, loaded.get(P99), "ms");
    }
    let resident = target.process.as_ref().and_then(|process| process.resident_bytes());
    measured.set_known("resident after", resident.map(|bytes| bytes / 1e6), "MB");
    Ok(measured)
}

/// Groups a whole collection repeatedly.
fn aggregate(target: &Target, over: &AtomicBool) -> Result<()> {
    let mut client = target.client()?;
    while !over.load(Ordering::Relaxed) {
        // A command that fails loads the server as well.
        let _ = client.run(|doc| {
            doc.append("aggregate", RECORDS).start_array("pipeline");
            doc.push_document().start_document("$group").append("_id", "$field0");
            doc.start_document("n").append("$sum", 1).end().end().end();
            doc.push_document().start_document("$sort").append("_id", 1).end().end();
            doc.push_document().append("$limit", 1).end().end();
            doc.start_document("cursor").end().append("$db", DATABASE);
        });
    }
    Ok(())
}

/// Runs scripts that loop until their time limit.
fn scripts(target: &Target, over: &AtomicBool) -> Result<()> {
    let mut client = target.client()?;
    while !over.load(Ordering::Relaxed) {
        let _ = client.run(|doc| {
            doc.append("aggregate", RECORDS).start_array("pipeline");
            doc.push_document().append("$limit", 1).end();
            doc.push_document().start_document("$project").start_document("x");
            doc.start_document("$function").append("body", "function() { while (true) {} }");
            doc.start_array("args").end().append("lang", "js").end().end().end().end().end();
            doc.start_document("cursor").end().append("maxTimeMS", 1000).append("$db", DATABASE);
        });
    }
    Ok(())
}

/// Requests sixteen megabytes on several connections, and does not read the replies.
fn unread(target: &Target, over: &AtomicBool) -> Result<()> {
    let mut clients = Vec::new();
    for _ in 0..5 {
        let mut client = target.client()?;
        client.prepare(|request| {
            request.command(|doc: &mut DocBuilder| {
                doc.append("find", RECORDS).append("batchSize", 100_000).append("$db", DATABASE);
            });
        });
        client.send()?;
        clients.push(client);
    }
    wait(over);
    Ok(())
}

/// Sends a part of a large message.
fn half(target: &Target, over: &AtomicBool) -> Result<()> {
    let mut stream = target.client()?.into_stream();
    let mut message: Vec<u8> =
        [40_000_000_i32, 1, 0, 2013, 0].iter().flat_map(|word| word.to_le_bytes()).collect();
    message.resize(HALF, 0);
    stream.set_write_timeout(Some(LOOK))?;
    // The server does not read requests that wait for memory.
    let _ = stream.write_all(&message);
    wait(over);
    Ok(())
}

fn wait(over: &AtomicBool) {
    while !over.load(Ordering::Relaxed) {
        std::thread::sleep(LOOK);
    }
}
