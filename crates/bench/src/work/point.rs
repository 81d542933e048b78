//! Operations on one document by its `_id`: the read and update halves of YCSB, and single inserts.

use anyhow::{Result, bail};
use mayfly_value::{DocBuilder, RawValue};

use super::{DATABASE, Plan, create_indexes, drop_collection, logged};
use crate::client::{Client, number_at};
use crate::documents::{Random, record, record_id};
use crate::load::{self, Measured, Step};
use crate::server::Target;

/// The collection of records.
pub(super) const RECORDS: &str = "records";
const CONNECTIONS: usize = 4;

/// Fills the collection of records unless it is there.
pub(super) fn load_records(target: &Target, records: u32) -> Result<()> {
    let mut client = target.client()?;
    let counted = client.ask(|doc| {
        doc.append("count", RECORDS).append("$db", DATABASE);
    })?;
    if number_at(counted.as_doc(), &["n"]) == Some(f64::from(records)) {
        return Ok(());
    }
    drop_collection(&mut client, RECORDS)?;
    let mut random = Random::new(1);
    let mut batch = Vec::new();
    for number in 0..records {
        batch.extend_from_slice(record(number, &mut random).as_bytes());
        if number % 1000 == 999 || number + 1 == records {
            let command = |doc: &mut DocBuilder| {
                doc.append("insert", RECORDS);
                logged(doc);
            };
            client.run_with(command, Some(("documents", &batch)))?;
            batch.clear();
        }
    }
    target.settle();
    Ok(())
}

/// Asks for one record.
pub(super) fn find_one(client: &mut Client, id: &str) -> Result<()> {
    let reply = client.run(|doc| {
        doc.append("find", RECORDS).start_document("filter").append("_id", id).end();
        doc.append("limit", 1).append("singleBatch", true).append("$db", DATABASE);
    })?;
    let batch = reply.get("cursor").and_then(RawValue::as_document);
    let batch = batch.and_then(|cursor| cursor.get("firstBatch")?.as_array());
    match batch {
        Some(batch) if !batch.is_empty() => Ok(()),
        _ => bail!("record {id} was not found"),
    }
}

pub(super) fn find(target: &Target, plan: &Plan) -> Result<Measured> {
    load_records(target, plan.records)?;
    let records = plan.records;
    load::run(target, CONNECTIONS, plan.time, |number| {
        let mut random = Random::new(100 + number as u64);
        Box::new(move |client| find_one(client, &record_id(random.below(records))).map(|()| 1))
    })
}

pub(super) fn insert_logged(target: &Target, plan: &Plan) -> Result<Measured> {
    insert(target, plan, "inserted_logged", true)
}

pub(super) fn insert_synced(target: &Target, plan: &Plan) -> Result<Measured> {
    insert(target, plan, "inserted_synced", false)
}

fn insert(target: &Target, plan: &Plan, collection: &'static str, w1: bool) -> Result<Measured> {
    drop_collection(&mut target.client()?, collection)?;
    // It exists before the clock starts.
    create_indexes(&mut target.client()?, collection, &["absent"], None)?;
    target.client()?.run(|doc| {
        doc.append("dropIndexes", collection).append("index", "absent_1").append("$db", DATABASE);
    })?;
    load::run(target, CONNECTIONS, plan.time, |number| {
        let mut random = Random::new(200 + number as u64);
        let mut next = number as u32;
        Box::new(move |client| {
            let document = record(next, &mut random);
            next += CONNECTIONS as u32;
            client.run(|doc| {
                doc.append("insert", collection).start_array("documents").push(&document).end();
                if w1 {
                    logged(doc);
                } else {
                    doc.start_document("writeConcern").append("w", "majority").end();
                    doc.append("$db", DATABASE);
                }
            })?;
            Ok(1)
        })
    })
}

pub(super) fn increment(target: &Target, plan: &Plan) -> Result<Measured> {
    update(target, plan, |doc, _| {
        doc.start_document("$inc").append("n", 1).end();
    })
}

pub(super) fn set_field(target: &Target, plan: &Plan) -> Result<Measured> {
    update(target, plan, |doc, random| {
        let field = format!("field{}", random.below(10));
        doc.start_document("$set").append(&field, random.text(100).as_str()).end();
    })
}

fn update(
    target: &Target,
    plan: &Plan,
    change: fn(&mut DocBuilder, &mut Random),
) -> Result<Measured> {
    load_records(target, plan.records)?;
    let records = plan.records;
    load::run(target, CONNECTIONS, plan.time, |number| -> Step {
        let mut random = Random::new(300 + number as u64);
        Box::new(move |client| {
            let id = record_id(random.below(records));
            let reply = client.run(|doc| {
                doc.append("update", RECORDS).start_array("updates").push_document();
                doc.start_document("q").append("_id", id.as_str()).end().start_document("u");
                change(doc, &mut random);
                doc.end().end().end();
                logged(doc);
            })?;
            match number_at(reply, &["nModified"]) {
                Some(1.0) => Ok(1),
                _ => bail!("record {id} was not changed"),
            }
        })
    })
}
