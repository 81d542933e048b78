//! Updates beyond those of YCSB: one field of a document with sixteen, and ten thousand in one
//! command.

use anyhow::{Result, bail};
use mayfly_value::DocBuilder;

use super::point::{RECORDS, load_records};
use super::{DATABASE, Plan, document_count, fresh_collection, logged};
use crate::caller::{Turn, caller};
use crate::documents::{FIELDS, Random, pooled, record_id};
use crate::figures::Measured;
use crate::load::{self, Load};
use crate::server::Target;
use crate::wire::{Request, number_at};

const WIDE: &str = "wide";
const WIDE_FIELDS: u32 = 16;
const WIDE_CONNECTIONS: usize = 4;
/// Updates of a bulk.
const BULK: u32 = 10_000;
const BATCH: u32 = 1000;
/// Bytes of the number that an update changes.
const NUMBER_BYTES: u64 = 4;

/// Documents of sixteen short fields of several types, as applications have them.
fn load_wide(target: &Target, documents: u32) -> Result<()> {
    let mut client = target.client()?;
    if document_count(&mut client, WIDE)? == documents {
        return Ok(());
    }
    fresh_collection(&mut client, WIDE)?;
    let mut random = Random::new(2);
    for first in (0..documents).step_by(BATCH as usize) {
        client.run(|doc| {
            doc.append("insert", WIDE).start_array("documents");
            for number in first..documents.min(first + BATCH) {
                doc.push_document().append("_id", number as i32);
                for field in 0..WIDE_FIELDS / 2 {
                    doc.append(&format!("n{field}"), random.below(1000) as i32);
                    doc.append(&format!("t{field}"), pooled(20, &mut random));
                }
                doc.end();
            }
            doc.end();
            logged(doc);
        })?;
    }
    target.settle();
    Ok(())
}

pub(super) fn wide(target: &Target, plan: &Plan) -> Result<Measured> {
    load_wide(target, plan.records)?;
    let documents = plan.records;
    let load = Load::new(plan, WIDE_CONNECTIONS, |number| {
        let ask = move |random: &mut Random, request: &mut Request| {
            request.command(|doc| {
                doc.append("update", WIDE).start_array("updates").push_document();
                doc.start_document("q").append("_id", random.below(documents) as i32).end();
                let value = random.next() as i32;
                doc.start_document("u").start_document("$set").append("n4", value).end().end();
                doc.end().end();
                logged(doc);
            });
        };
        caller(Random::new(900 + number as u64), ask, |_, reply| match number_at(reply, &["n"]) {
            Some(1.0) => Ok(Turn::wrote(1, NUMBER_BYTES)),
            _ => bail!("a document was not changed"),
        })
    });
    load::run(target, plan, &load)
}

pub(super) fn bulk(target: &Target, plan: &Plan) -> Result<Measured> {
    load_records(target, RECORDS, plan.records)?;
    let records = plan.records;
    let load = Load::new(plan, 1, |number| {
        let ask = move |(random, updates): &mut (Random, Vec<u8>), request: &mut Request| {
            request.command(|doc| {
                doc.append("update", RECORDS).append("ordered", false);
                doc.start_document("writeConcern").append("w", 1).end().append("$db", DATABASE);
            });
            updates.clear();
            for _ in 0..BULK {
                let mut doc = DocBuilder::in_buffer(std::mem::take(updates));
                let (id, field) = (record_id(random.below(records)), random.below(10));
                doc.start_document("q").append("_id", id.as_str()).end().start_document("u");
                doc.start_document("$set").append(FIELDS[field as usize], pooled(100, random));
                doc.end().end();
                *updates = doc.finish_buffer();
            }
            request.sequence("updates", updates);
        };
        let state = (Random::new(950 + number as u64), Vec::new());
        caller(state, ask, |_, reply| match number_at(reply, &["n"]) {
            Some(n) if n == f64::from(BULK) => Ok(Turn::wrote(BULK.into(), u64::from(BULK) * 100)),
            other => bail!("{other:?} records were changed instead of {BULK}"),
        })
    });
    load::run(target, plan, &load)
}
