//! Transactions of several statements: the cost of a write inside and outside of a transaction, a
//! counter that many clients increment, long transactions, and the memory of open ones.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use mayfly_value::{DocBuilder, RawValue};

use super::point::{RECORDS, load_records};
use super::{DATABASE, Plan, drop_collection, fresh_collection, logged, set_parameter};
use crate::caller::{Turn, caller};
use crate::client::Client;
use crate::documents::{Random, record_id};
use crate::figures::Measured;
use crate::load::{self, Load};
use crate::server::Target;
use crate::wire::{Request, first_batch, number_at};

const COUNTED: &str = "counted";
const LONG: &str = "long_transaction";
/// Bytes of the number that a write changes.
const NUMBER_BYTES: u64 = 4;
const MANY: usize = 16;
/// Documents that a long transaction writes, and reads.
const LONG_WRITES: u32 = 100_000;
const LONG_READS: u32 = 1_000_000;
const BATCH: u32 = 1000;
/// The time for which a long transaction stays open.
const LONG_TIME: Duration = Duration::from_secs(60);
const OPEN: usize = 1000;

/// The number of the next session. Sessions of different runs have different numbers.
static SESSIONS: AtomicU64 = AtomicU64::new(1);

/// A session, and its latest transaction.
struct Session {
    id: [u8; 16],
    number: i64,
}

impl Session {
    fn new() -> Session {
        let mut id = [0; 16];
        id[..8].copy_from_slice(&SESSIONS.fetch_add(1, Ordering::Relaxed).to_be_bytes());
        id[8..12].copy_from_slice(&std::process::id().to_be_bytes());
        Session { id, number: 0 }
    }

    /// Adds the fields that make a command a statement of the session's transaction.
    fn append(&mut self, doc: &mut DocBuilder, first: bool) {
        self.number += i64::from(first);
        let id = RawValue::uuid(&self.id);
        doc.start_document("lsid").append("id", id).end().append("txnNumber", self.number);
        doc.append("autocommit", false);
        if first {
            doc.append("startTransaction", true);
        }
    }

    fn append_commit(&mut self, doc: &mut DocBuilder) {
        doc.append("commitTransaction", 1);
        self.append(doc, false);
        doc.start_document("writeConcern").append("w", 1).end().append("$db", "admin");
    }
}

fn update(doc: &mut DocBuilder, id: &str) {
    doc.append("update", RECORDS).start_array("updates").push_document();
    doc.start_document("q").append("_id", id).end();
    doc.start_document("u").start_document("$inc").append("n", 1).end().end().end().end();
}

/// Writes to records that no other connection writes to: `each` writes in a transaction, or without
/// transactions if it is 0.
fn writes(target: &Target, plan: &Plan, connections: usize, each: u32) -> Result<Measured> {
    load_records(target, RECORDS, plan.records)?;
    let connections = plan.connections.unwrap_or(connections);
    let own = plan.records / connections as u32;
    let load = Load::new(plan, connections, |number| {
        let first = number as u32 * own;
        let state = (Session::new(), Random::new(1500 + number as u64), 0u32, 0u32);
        let ask = move |(session, random, done, at): &mut (Session, Random, u32, u32),
                        request: &mut Request| {
            request.command(|doc| match each {
                0 => {
                    update(doc, &record_id(first + random.below(own)));
                    logged(doc);
                }
                each if *done < each => {
                    // A transaction writes each record once.
                    *at = if *done == 0 { random.below(own) } else { (*at + 1) % own };
                    update(doc, &record_id(first + *at));
                    session.append(doc, *done == 0);
                    doc.append("$db", DATABASE);
                }
                _ => session.append_commit(doc),
            });
        };
        caller(state, ask, move |(_, _, done, _), reply| {
            if each > 0 && *done == each {
                *done = 0;
                return Ok(Turn::wrote(each.into(), u64::from(each) * NUMBER_BYTES));
            }
            if number_at(reply, &["n"]) != Some(1.0) {
                bail!("a record was not found");
            }
            *done += 1;
            Ok(if each == 0 { Turn::wrote(1, NUMBER_BYTES) } else { Turn::Again })
        })
    });
    load::run(target, plan, &load)
}

pub(super) fn outside_one(target: &Target, plan: &Plan) -> Result<Measured> {
    writes(target, plan, 1, 0)
}

pub(super) fn outside_many(target: &Target, plan: &Plan) -> Result<Measured> {
    writes(target, plan, MANY, 0)
}

pub(super) fn of_one(target: &Target, plan: &Plan) -> Result<Measured> {
    writes(target, plan, 1, 1)
}

pub(super) fn of_one_many(target: &Target, plan: &Plan) -> Result<Measured> {
    writes(target, plan, MANY, 1)
}

pub(super) fn of_ten(target: &Target, plan: &Plan) -> Result<Measured> {
    writes(target, plan, 1, 10)
}

pub(super) fn of_ten_many(target: &Target, plan: &Plan) -> Result<Measured> {
    writes(target, plan, MANY, 10)
}

pub(super) fn of_hundred(target: &Target, plan: &Plan) -> Result<Measured> {
    writes(target, plan, 1, 100)
}

pub(super) fn of_hundred_many(target: &Target, plan: &Plan) -> Result<Measured> {
    writes(target, plan, MANY, 100)
}

/// Many clients increment one counter, each by a read and a write in a transaction, which is
/// repeated until it commits.
pub(super) fn counter(target: &Target, plan: &Plan) -> Result<Measured> {
    let mut client = target.client()?;
    fresh_collection(&mut client, COUNTED)?;
    client.run(|doc| {
        doc.append("insert", COUNTED).start_array("documents").push_document();
        doc.append("_id", 1).append("n", 0).end().end();
        logged(doc);
    })?;
    let end = Instant::now() + plan.time;
    let clients = plan.connections.unwrap_or(MANY);
    let counts: Vec<Result<(u64, u64)>> = std::thread::scope(|threads| {
        let running: Vec<_> = (0..clients)
            .map(|_| {
                threads.spawn(|| {
                    let mut client = target.client()?;
                    let mut session = Session::new();
                    let (mut committed, mut again) = (0, 0);
                    while Instant::now() < end {
                        match raise(&mut client, &mut session) {
                            Ok(()) => committed += 1,
                            Err(error) if is_conflict(&error) => again += 1,
                            Err(error) => return Err(error),
                        }
                    }
                    Ok((committed, again))
                })
            })
            .collect();
        let ended = running.into_iter().map(|client| client.join());
        ended.map(|result| result.unwrap_or_else(|_| bail!("a client panicked"))).collect()
    });
    let (mut committed, mut again) = (0, 0);
    for count in counts {
        let (more, further) = count?;
        (committed, again) = (committed + more, again + further);
    }
    let value = count_of(client.run(|doc| {
        doc.append("find", COUNTED).append("$db", DATABASE);
    })?)?;
    if value != committed as f64 {
        bail!("{committed} raises were committed, and the counter says {value}");
    }
    let mut measured = Measured::default();
    measured.set("committed per second", committed as f64 / plan.time.as_secs_f64(), "/s");
    measured.set("tries again for each", again as f64 / committed.max(1) as f64, "");
    Ok(measured)
}

fn count_of(reply: mayfly_value::RawDoc<'_>) -> Result<f64> {
    let batch = reply.get("cursor").and_then(RawValue::as_document);
    let batch = batch.and_then(|cursor| cursor.get("firstBatch")).and_then(RawValue::as_array);
    let first = batch.and_then(|batch| batch.iter().next()).and_then(|it| it.value().as_document());
    number_at(first.context("no counter")?, &["n"]).context("no number")
}

fn raise(client: &mut Client, session: &mut Session) -> Result<()> {
    let value = count_of(client.run(|doc| {
        doc.append("find", COUNTED);
        session.append(doc, true);
        doc.append("$db", DATABASE);
    })?)?;
    client.run(|doc| {
        doc.append("update", COUNTED).start_array("updates").push_document();
        doc.start_document("q").append("_id", 1).end().start_document("u");
        doc.start_document("$set").append("n", value as i32 + 1).end().end().end().end();
        session.append(doc, false);
        doc.append("$db", DATABASE);
    })?;
    client.run(|doc| session.append_commit(doc))?;
    Ok(())
}

fn is_conflict(error: &anyhow::Error) -> bool {
    error.to_string().contains("WriteConflict")
}

/// Inserts documents, in a transaction if there is a session.
fn insert_long(client: &mut Client, from: u32, mut session: Option<&mut Session>) -> Result<()> {
    for first in (0..LONG_WRITES).step_by(BATCH as usize) {
        client.run(|doc| {
            doc.append("insert", LONG).start_array("documents");
            for number in first..first + BATCH {
                doc.push_document().append("_id", (from + number) as i32);
                doc.append("n", number as i32)
                    .append("text", "0123456789".repeat(10).as_str())
                    .end();
            }
            doc.end();
            match &mut session {
                Some(session) => {
                    session.append(doc, first == 0);
                    doc.append("$db", DATABASE);
                }
                None => logged(doc),
            }
        })?;
    }
    Ok(())
}

/// A transaction that writes 100,000 documents and stays open for a minute, and one that reads
/// 1,000,000.
pub(super) fn long(target: &Target, plan: &Plan) -> Result<Measured> {
    let mut client = target.client()?;
    drop_collection(&mut client, LONG)?;
    set_parameter(&mut client, "transactionLifetimeLimitSeconds", RawValue::Int32(300))?;
    let mut measured = Measured::default();
    let resident = || target.process.and_then(|process| process.resident_bytes());
    let began = Instant::now();
    insert_long(&mut client, 0, None)?;
    measured.set("100,000 inserts outside", began.elapsed().as_secs_f64(), "s");
    let (before, began) = (resident(), Instant::now());
    let mut session = Session::new();
    insert_long(&mut client, LONG_WRITES, Some(&mut session))?;
    measured.set("100,000 inserts inside", began.elapsed().as_secs_f64(), "s");
    let grown = resident().zip(before).map(|(now, before)| (now - before) / 1e6);
    measured.set_known("memory while open", grown, "MB");
    // Short runs omit the wait.
    if plan.time >= Duration::from_secs(10) {
        std::thread::sleep(LONG_TIME.saturating_sub(began.elapsed()));
    }
    let began = Instant::now();
    client.run(|doc| session.append_commit(doc))?;
    measured.set("commit", began.elapsed().as_secs_f64(), "s");
    for round in 2..LONG_READS / LONG_WRITES {
        insert_long(&mut client, round * LONG_WRITES, None)?;
    }
    let began = Instant::now();
    let mut read = 0;
    let reply = client.ask(|doc| {
        doc.append("find", LONG).append("batchSize", 10_000);
        session.append(doc, true);
        doc.append("$db", DATABASE);
    })?;
    read += first_batch(reply.as_doc()) as u32;
    let cursor = reply.as_doc().get("cursor").and_then(RawValue::as_document);
    let mut id = cursor.and_then(|cursor| cursor.get("id"));
    let mut next;
    while let Some(RawValue::Int64(cursor @ 1..)) = id {
        next = client.ask(|doc| {
            doc.append("getMore", cursor).append("collection", LONG).append("batchSize", 10_000);
            session.append(doc, false);
            doc.append("$db", DATABASE);
        })?;
        let cursor = next.as_doc().get("cursor").and_then(RawValue::as_document);
        let batch = cursor.and_then(|cursor| cursor.get("nextBatch"));
        read += batch.and_then(RawValue::as_array).map_or(0, |batch| batch.iter().count() as u32);
        id = cursor.and_then(|cursor| cursor.get("id"));
    }
    measured.set("1,000,000 reads inside", began.elapsed().as_secs_f64(), "s");
    if read != LONG_READS {
        bail!("{read} documents were read instead of {LONG_READS}");
    }
    client.run(|doc| session.append_commit(doc))?;
    drop_collection(&mut client, LONG)?;
    Ok(measured)
}

/// Open transactions that have written one document each.
pub(super) fn open(target: &Target, _: &Plan) -> Result<Measured> {
    let mut client = target.client()?;
    fresh_collection(&mut client, LONG)?;
    let process = target.process.context("the server runs elsewhere")?;
    let before = process.resident_bytes();
    let mut sessions: Vec<Session> = (0..OPEN).map(|_| Session::new()).collect();
    for (number, session) in sessions.iter_mut().enumerate() {
        client.run(|doc| {
            doc.append("insert", LONG).start_array("documents").push_document();
            doc.append("_id", number as i32).end().end();
            session.append(doc, true);
            doc.append("$db", DATABASE);
        })?;
    }
    let grown = process.resident_bytes().zip(before).map(|(now, before)| (now - before) / 1e3);
    let mut measured = Measured::default();
    measured.set_known("memory of each", grown.map(|kb| kb / OPEN as f64), "KB");
    for session in &mut sessions {
        client.run(|doc| session.append_commit(doc))?;
    }
    drop_collection(&mut client, LONG)?;
    Ok(measured)
}
