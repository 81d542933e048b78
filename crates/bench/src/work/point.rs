//! Operations on one document by its `_id`: single finds, inserts and updates.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Result, bail};
use mayfly_value::{DocBuilder, RawDoc};

use super::{DATABASE, Plan, document_count, drop_collection, fresh_collection, logged};
use crate::caller::{Caller, Turn, caller};
use crate::documents::{FIELD_BYTES, FIELDS, Random, Record, pooled, record_id};
use crate::figures::Measured;
use crate::load::{self, Load};
use crate::server::Target;
use crate::wire::{Request, first_batch, number_at};

/// The collection of records.
pub(super) const RECORDS: &str = "records";
const CONNECTIONS: usize = 4;
const BATCH: u32 = 1000;

/// Fills a collection up to this many records.
pub(super) fn load_records(target: &Target, collection: &str, records: u32) -> Result<()> {
    let mut client = target.client()?;
    if document_count(&mut client, collection)? == records {
        return Ok(());
    }
    drop_collection(&mut client, collection)?;
    let (mut random, mut record, mut batch) = (Random::new(1), Record::new(), Vec::new());
    for number in 0..records {
        batch.extend_from_slice(record.renew(number, &mut random));
        if number % BATCH == BATCH - 1 || number + 1 == records {
            client.prepare(|request| {
                request.command(|doc| {
                    doc.append("insert", collection);
                    logged(doc);
                });
                request.sequence("documents", &batch);
            });
            client.send()?;
            client.receive()?;
            batch.clear();
        }
    }
    target.settle();
    Ok(())
}

/// Requests one record.
pub(super) fn ask_record(request: &mut Request, collection: &str, number: u32) {
    request.command(|doc| {
        doc.append("find", collection).start_document("filter");
        doc.append("_id", record_id(number).as_str()).end();
        doc.append("limit", 1).append("singleBatch", true).append("$db", DATABASE);
    });
}

/// A reader of random records.
pub(super) fn reader(seed: u64, records: u32) -> Box<dyn Caller> {
    let ask = move |random: &mut Random, request: &mut Request| {
        ask_record(request, RECORDS, random.below(records));
    };
    caller(Random::new(seed), ask, |_, reply| match first_batch(reply) {
        1 => Ok(Turn::done(1)),
        _ => bail!("a record was not found"),
    })
}

pub(super) fn find(target: &Target, plan: &Plan) -> Result<Measured> {
    load_records(target, RECORDS, plan.records)?;
    let load = Load::new(plan, CONNECTIONS, |n| reader(100 + n as u64, plan.records));
    load::run(target, plan, &load)
}

pub(super) fn insert_logged(target: &Target, plan: &Plan) -> Result<Measured> {
    insert(target, plan, "inserted_logged", logged)
}

fn insert(
    target: &Target,
    plan: &Plan,
    collection: &'static str,
    concern: fn(&mut DocBuilder),
) -> Result<Measured> {
    fresh_collection(&mut target.client()?, collection)?;
    let next = Arc::new(AtomicU32::new(0));
    let load = Load::new(plan, CONNECTIONS, |number| {
        let (state, next) =
            ((Record::new(), Random::new(200 + number as u64), 0), Arc::clone(&next));
        let ask = move |(record, random, size): &mut (Record, Random, usize),
                        request: &mut Request| {
            let document = record.renew(next.fetch_add(1, Ordering::Relaxed), random);
            *size = document.len();
            request.command(|doc| {
                doc.append("insert", collection);
                concern(doc);
            });
            request.sequence("documents", document);
        };
        caller(state, ask, |(_, _, size), _| Ok(Turn::wrote(1, *size as u64)))
    });
    let measured = load::run(target, plan, &load)?;
    drop_collection(&mut target.client()?, collection)?;
    Ok(measured)
}

pub(super) fn increment(target: &Target, plan: &Plan) -> Result<Measured> {
    update(target, plan, |doc, _| {
        doc.start_document("$inc").append("n", 1).end();
        4
    })
}

pub(super) fn set_field(target: &Target, plan: &Plan) -> Result<Measured> {
    update(target, plan, set_some_field)
}

/// The update of YCSB: sets one field to another text; returns its bytes.
pub(super) fn set_some_field(doc: &mut DocBuilder, random: &mut Random) -> usize {
    let field = FIELDS[random.below(10) as usize];
    doc.start_document("$set").append(field, pooled(FIELD_BYTES, random)).end();
    FIELD_BYTES
}

/// Requests the update of one record.
pub(super) fn ask_update(
    request: &mut Request,
    collection: &str,
    number: u32,
    change: impl FnOnce(&mut DocBuilder) -> usize,
) -> usize {
    let mut bytes = 0;
    request.command(|doc| {
        doc.append("update", collection).start_array("updates").push_document();
        doc.start_document("q").append("_id", record_id(number).as_str()).end();
        doc.start_document("u");
        bytes = change(doc);
        doc.end().end().end();
        logged(doc);
    });
    bytes
}

/// Checks that one record was found and changed.
pub(super) fn one_updated(reply: RawDoc<'_>) -> Result<()> {
    // The new value may be the old one, so that nothing is modified.
    match number_at(reply, &["n"]) {
        Some(1.0) => Ok(()),
        _ => bail!("a record was not changed"),
    }
}

fn update(
    target: &Target,
    plan: &Plan,
    change: fn(&mut DocBuilder, &mut Random) -> usize,
) -> Result<Measured> {
    load_records(target, RECORDS, plan.records)?;
    let records = plan.records;
    let load = Load::new(plan, CONNECTIONS, |number| {
        let state = (Random::new(300 + number as u64), 0);
        let ask = move |(random, bytes): &mut (Random, usize), request: &mut Request| {
            let number = random.below(records);
            *bytes = ask_update(request, RECORDS, number, |doc| change(doc, random));
        };
        caller(state, ask, |(_, bytes), reply| {
            one_updated(reply)?;
            Ok(Turn::wrote(1, *bytes as u64))
        })
    });
    load::run(target, plan, &load)
}
