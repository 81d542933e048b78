//! Reads of many documents: by an index, by scanning, counting, grouping.

use anyhow::{Result, bail};
use mayfly_value::{RawDoc, RawValue};

use super::bulk::fill;
use super::{DATABASE, Plan, create_indexes};
use crate::client::number_at;
use crate::documents::{GROUPS, ITEMS_PER_KEY, Random};
use crate::load::{self, Measured};
use crate::server::Target;

const ITEMS: &str = "items";

fn prepare(target: &Target, plan: &Plan) -> Result<()> {
    fill(target, ITEMS, plan.documents)?;
    create_indexes(&mut target.client()?, ITEMS, &["k"], None)?;
    target.settle();
    Ok(())
}

fn first_batch(reply: RawDoc<'_>) -> usize {
    let batch = reply.get("cursor").and_then(RawValue::as_document);
    let batch = batch.and_then(|cursor| cursor.get("firstBatch")?.as_array());
    batch.map_or(0, |batch| batch.iter().count())
}

pub(super) fn indexed_find(target: &Target, plan: &Plan) -> Result<Measured> {
    prepare(target, plan)?;
    let keys = plan.documents / ITEMS_PER_KEY;
    load::run(target, 1, plan.time, |_| {
        let mut random = Random::new(500);
        Box::new(move |client| {
            let key = random.below(keys) as i32;
            let reply = client.run(|doc| {
                doc.append("find", ITEMS).start_document("filter").append("k", key).end();
                doc.append("$db", DATABASE);
            })?;
            match first_batch(reply) {
                10 => Ok(1),
                other => bail!("{other} documents instead of 10"),
            }
        })
    })
}

pub(super) fn scan(target: &Target, plan: &Plan) -> Result<Measured> {
    prepare(target, plan)?;
    let documents = u64::from(plan.documents);
    load::run(target, 1, plan.time, |_| {
        let mut random = Random::new(600);
        Box::new(move |client| {
            // The first condition lets half of them through, the second a tenth, the third next to none.
            let least = 500_000 + random.below(1000) as i32;
            let reply = client.run(|doc| {
                doc.append("find", ITEMS).start_document("filter");
                doc.start_document("x").append("$gte", least).end();
                doc.start_document("g").append("$lt", 100).end();
                doc.start_document("name").append("$gt", "zz").end().end();
                doc.append("batchSize", 10_000).append("$db", DATABASE);
            })?;
            match first_batch(reply) {
                0..10_000 => Ok(documents),
                other => bail!("{other} documents are too many"),
            }
        })
    })
}

pub(super) fn count(target: &Target, plan: &Plan) -> Result<Measured> {
    prepare(target, plan)?;
    let wanted = plan.documents.min(100_000);
    load::run(target, 1, plan.time, |_| {
        Box::new(move |client| {
            let reply = client.run(|doc| {
                let end = (wanted / ITEMS_PER_KEY) as i32;
                doc.append("count", ITEMS).start_document("query").start_document("k");
                doc.append("$gte", 0).append("$lt", end).end().end().append("$db", DATABASE);
            })?;
            match number_at(reply, &["n"]) {
                Some(n) if n == f64::from(wanted) => Ok(1),
                other => bail!("counted {other:?} instead of {wanted}"),
            }
        })
    })
}

pub(super) fn group(target: &Target, plan: &Plan) -> Result<Measured> {
    prepare(target, plan)?;
    let documents = u64::from(plan.documents);
    load::run(target, 1, plan.time, |_| {
        Box::new(move |client| {
            let reply = client.run(|doc| {
                doc.append("aggregate", ITEMS).start_array("pipeline");
                doc.push_document().start_document("$match");
                doc.start_document("x").append("$gte", 0).end().end().end();
                doc.push_document().start_document("$group").append("_id", "$g");
                doc.start_document("total").append("$sum", "$x").end().end().end().end();
                doc.start_document("cursor").append("batchSize", 10_000).end();
                doc.append("$db", DATABASE);
            })?;
            match first_batch(reply) {
                found if found == GROUPS as usize => Ok(documents),
                other => bail!("{other} groups instead of {GROUPS}"),
            }
        })
    })
}
