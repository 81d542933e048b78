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
/// Documents that the range query finds.
const RANGE: u32 = 100;
/// Values of the `$in`; each matches ten documents.
const VALUES: u32 = 1000;

fn prepare(target: &Target, plan: &Plan) -> Result<()> {
    fill(target, ITEMS, plan.documents)?;
    create_indexes(&mut target.client()?, ITEMS, &["k"], None)?;
    target.settle();
    Ok(())
}

/// Runs a query with one synchronous client. One function builds the request, the other one checks
/// the reply.
fn run(
    target: &Target,
    plan: &Plan,
    ask: impl Fn(&mut Random, &mut DocBuilder) + Send + Sync + Copy + 'static,
    answer: impl Fn(RawDoc<'_>) -> Result<u64> + Send + Sync + Copy + 'static,
) -> Result<Measured> {
    prepare(target, plan)?;
    ask_again(target, plan, ask, answer)
}

/// The same over existing collections.
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

pub(super) fn exactly(reply: RawDoc<'_>, expected: u32) -> Result<u64> {
    match first_batch(reply) {
        found if found == expected as usize => Ok(1),
        found => bail!("{found} documents instead of {expected}"),
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

pub(super) fn range(target: &Target, plan: &Plan) -> Result<Measured> {
    let width = RANGE / ITEMS_PER_KEY;
    let keys = plan.documents / ITEMS_PER_KEY - width;
    let ask = move |random: &mut Random, doc: &mut DocBuilder| {
        let first = random.below(keys);
        doc.append("find", ITEMS).start_document("filter").start_document("k");
        doc.append("$gte", first as i32).append("$lt", (first + width) as i32).end().end();
    };
    run(target, plan, ask, |reply| exactly(reply, RANGE))
}

pub(super) fn in_list(target: &Target, plan: &Plan) -> Result<Measured> {
    let keys = plan.documents / ITEMS_PER_KEY;
    let ask = move |random: &mut Random, doc: &mut DocBuilder| {
        doc.append("find", ITEMS).start_document("filter").start_document("k").start_array("$in");
        // Different values, spread over all keys.
        let first = random.below(keys);
        for number in 0..VALUES {
            doc.push(((first + number * (keys / VALUES)) % keys) as i32);
        }
        doc.end().end().end().append("batchSize", (VALUES * ITEMS_PER_KEY) as i32);
    };
    run(target, plan, ask, |reply| exactly(reply, VALUES * ITEMS_PER_KEY))
}

pub(super) fn scan(target: &Target, plan: &Plan) -> Result<Measured> {
    // Half of the documents satisfy the first condition, a tenth the second, hardly any the third.
    scan_with(target, plan, |least, doc| {
        doc.start_document("x").append("$gte", least).end();
        doc.start_document("g").append("$lt", 100).end();
        doc.start_document("name").append("$gt", "zz").end();
    })
}

pub(super) fn scan_two(target: &Target, plan: &Plan) -> Result<Measured> {
    scan_with(target, plan, |least, doc| {
        doc.start_document("x").append("$gte", least).end();
        doc.start_document("g").append("$lt", 10).end();
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
    let expected = plan.documents.min(100_000);
    let ask = move |_: &mut Random, doc: &mut DocBuilder| {
        let end = (expected / ITEMS_PER_KEY) as i32;
        doc.append("count", ITEMS).start_document("query").start_document("k");
        doc.append("$gte", 0).append("$lt", end).end().end();
    };
    run(target, plan, ask, move |reply| match number_at(reply, &["n"]) {
        Some(n) if n == f64::from(expected) => Ok(1),
        other => bail!("counted {other:?} instead of {expected}"),
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
