//! Ten thousand updates in one command.

use anyhow::{Result, bail};
use mayfly_value::DocBuilder;

use super::point::{RECORDS, load_records};
use super::{DATABASE, Plan};
use crate::caller::{Turn, caller};
use crate::documents::{FIELDS, Random, pooled, record_id};
use crate::figures::Measured;
use crate::load::{self, Load};
use crate::server::Target;
use crate::wire::{Request, number_at};

/// Updates of a bulk.
const BULK: u32 = 10_000;

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
