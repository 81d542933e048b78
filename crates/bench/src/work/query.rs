//! Reads of many documents: by an index, by scanning, counting, grouping.

use anyhow::{Result, bail};
use mayfly_value::{DocBuilder, RawDoc};

use super::bulk::fill;
use super::{DATABASE, Plan, create_indexes};
use crate::caller::{Turn, caller};
use crate::documents::{GROUPS, ITEMS_PER_KEY, Random};
use crate::figures::Measured;
use crate::load::{self, Load};
use crate::server::Target;
use crate::wire::{Request, first_batch, number_at};

pub(super) const ITEMS: &str = "items";

fn prepare(target: &Target, plan: &Plan) -> Result<()> {
    fill(target, ITEMS, plan.documents)?;
    create_indexes(&mut target.client()?, ITEMS, &["k"], None)?;
    target.settle();
    Ok(())
}

/// Runs a query with one synchronous client: what it asks, and what it makes of the answer.
fn run(
    target: &Target,
    plan: &Plan,
    ask: impl Fn(&mut Random, &mut DocBuilder) + Send + Sync + Copy + 'static,
    answer: impl Fn(RawDoc<'_>) -> Result<u64> + Send + Sync + Copy + 'static,
) -> Result<Measured> {
    prepare(target, plan)?;
    ask_again(target, plan, ask, answer)
}

/// The same over what is there.
pub(super) fn ask_again(
    target: &Target,
    plan: &Plan,
    ask: impl Fn(&mut Random, &mut DocBuilder) + Send + Sync + Copy + 'static,
    answer: impl Fn(RawDoc<'_>) -> Result<u64> + Send + Sync + Copy + 'static,
) -> Result<Measured> {
    let load = Load::new(plan, 1, |number| {
        let ask = move |random: &mut Random, request: &mut Request| {
            request.command(|doc| {
                ask(random, doc);
                doc.append("$db", DATABASE);
            });
        };
        let random = Random::new(500 + number as u64);
        caller(random, ask, move |_, reply| answer(reply).map(Turn::done))
    });
    load::run(target, plan, &load)
}

pub(super) fn exactly(reply: RawDoc<'_>, wanted: u32) -> Result<u64> {
    match first_batch(reply) {
        found if found == wanted as usize => Ok(1),
        found => bail!("{found} documents instead of {wanted}"),
    }
}

pub(super) fn indexed_find(target: &Target, plan: &Plan) -> Result<Measured> {
    let keys = plan.documents / ITEMS_PER_KEY;
    let ask = move |random: &mut Random, doc: &mut DocBuilder| {
        doc.append("find", ITEMS).start_document("filter");
        doc.append("k", random.below(keys) as i32).end();
    };
    run(target, plan, ask, |reply| exactly(reply, ITEMS_PER_KEY))
}

pub(super) fn scan(target: &Target, plan: &Plan) -> Result<Measured> {
    // The first condition lets half of them through, the second a tenth, the third next to none.
    scan_with(target, plan, |least, doc| {
        doc.start_document("x").append("$gte", least).end();
        doc.start_document("g").append("$lt", 100).end();
        doc.start_document("name").append("$gt", "zz").end();
    })
}

fn scan_with(target: &Target, plan: &Plan, filter: fn(i32, &mut DocBuilder)) -> Result<Measured> {
    let documents = u64::from(plan.documents);
    let ask = move |random: &mut Random, doc: &mut DocBuilder| {
        let least = 500_000 + random.below(1000) as i32;
        doc.append("find", ITEMS).start_document("filter");
        filter(least, doc);
        doc.end().append("batchSize", 10_000);
    };
    run(target, plan, ask, move |reply| match first_batch(reply) {
        0..10_000 => Ok(documents),
        other => bail!("{other} documents are too many"),
    })
}

pub(super) fn count(target: &Target, plan: &Plan) -> Result<Measured> {
    let wanted = plan.documents.min(100_000);
    let ask = move |_: &mut Random, doc: &mut DocBuilder| {
        let end = (wanted / ITEMS_PER_KEY) as i32;
        doc.append("count", ITEMS).start_document("query").start_document("k");
        doc.append("$gte", 0).append("$lt", end).end().end();
    };
    run(target, plan, ask, move |reply| match number_at(reply, &["n"]) {
        Some(n) if n == f64::from(wanted) => Ok(1),
        other => bail!("counted {other:?} instead of {wanted}"),
    })
}

pub(super) fn group(target: &Target, plan: &Plan) -> Result<Measured> {
    let documents = u64::from(plan.documents);
    let ask = move |_: &mut Random, doc: &mut DocBuilder| {
        doc.append("aggregate", ITEMS).start_array("pipeline");
        doc.push_document().start_document("$match");
        doc.start_document("x").append("$gte", 0).end().end().end();
        doc.push_document().start_document("$group").append("_id", "$g");
        doc.start_document("total").append("$sum", "$x").end().end().end().end();
        doc.start_document("cursor").append("batchSize", 10_000).end();
    };
    run(target, plan, ask, move |reply| exactly(reply, GROUPS).map(|_| documents))
}
