//! Queries with several candidate plans, or with plans of several scans.

use anyhow::Result;
use mayfly_value::DocBuilder;

use super::bulk::fill;
use super::query::{ITEMS, ask_again, exactly};
use super::{DATABASE, Plan};
use crate::documents::{GROUPS, ITEMS_PER_KEY, Random};
use crate::figures::Measured;
use crate::server::Target;

/// The limit of queries that sort.
const FIRST: u32 = 10;
/// Values of an `$in`.
const VALUES: u32 = 100;

/// Items with the indexes on `k`, on `x`, and on `g` with `x`.
fn prepare(target: &Target, plan: &Plan) -> Result<()> {
    fill(target, ITEMS, plan.documents)?;
    target.client()?.run(|doc| {
        doc.append("createIndexes", ITEMS).start_array("indexes");
        for (name, fields) in [("k_1", &["k"][..]), ("x_1", &["x"]), ("g_1_x_1", &["g", "x"])] {
            doc.push_document().start_document("key");
            for field in fields {
                doc.append(field, 1);
            }
            doc.end().append("name", name).end();
        }
        doc.end().append("$db", DATABASE);
    })?;
    target.settle();
    Ok(())
}

fn first_by_x(doc: &mut DocBuilder) {
    doc.start_document("sort").append("x", 1).end().append("limit", FIRST as i32);
}

pub(super) fn compound(target: &Target, plan: &Plan) -> Result<Measured> {
    prepare(target, plan)?;
    let ask = move |random: &mut Random, doc: &mut DocBuilder| {
        doc.append("find", ITEMS).start_document("filter");
        doc.append("g", random.below(GROUPS) as i32).start_document("x");
        doc.append("$gte", random.below(100_000) as i32).end().end();
        first_by_x(doc);
    };
    ask_again(target, plan, ask, |reply| exactly(reply, FIRST))
}

pub(super) fn merge(target: &Target, plan: &Plan) -> Result<Measured> {
    prepare(target, plan)?;
    let ask = move |random: &mut Random, doc: &mut DocBuilder| {
        let first = random.below(GROUPS);
        doc.append("find", ITEMS).start_document("filter").start_document("g");
        doc.start_array("$in");
        for number in 0..VALUES {
            doc.push(((first + number * (GROUPS / VALUES)) % GROUPS) as i32);
        }
        doc.end().end().end();
        first_by_x(doc);
    };
    ask_again(target, plan, ask, |reply| exactly(reply, FIRST))
}

pub(super) fn or(target: &Target, plan: &Plan) -> Result<Measured> {
    prepare(target, plan)?;
    let keys = plan.documents / ITEMS_PER_KEY;
    let ask = move |random: &mut Random, doc: &mut DocBuilder| {
        doc.append("find", ITEMS).start_document("filter").start_array("$or");
        doc.push_document().append("k", random.below(keys) as i32).end();
        doc.push_document().append("k", random.below(keys) as i32).append("y", 1).end();
        doc.push_document().append("g", -1).end();
        doc.end().end();
    };
    ask_again(target, plan, ask, |reply| exactly(reply, ITEMS_PER_KEY))
}

pub(super) fn in_list(target: &Target, plan: &Plan) -> Result<Measured> {
    prepare(target, plan)?;
    let keys = plan.documents / ITEMS_PER_KEY;
    let ask = move |random: &mut Random, doc: &mut DocBuilder| {
        let first = random.below(keys);
        doc.append("find", ITEMS).start_document("filter").start_document("k");
        doc.start_array("$in");
        for number in 0..VALUES {
            doc.push(((first + number * (keys / VALUES)) % keys) as i32);
        }
        doc.end().end().end().append("batchSize", (VALUES * ITEMS_PER_KEY) as i32);
    };
    ask_again(target, plan, ask, |reply| exactly(reply, VALUES * ITEMS_PER_KEY))
}

pub(super) fn top(target: &Target, plan: &Plan) -> Result<Measured> {
    prepare(target, plan)?;
    let documents = u64::from(plan.documents);
    let ask = move |_: &mut Random, doc: &mut DocBuilder| {
        doc.append("find", ITEMS).start_document("sort").append("y", 1).end();
        doc.append("limit", FIRST as i32);
    };
    ask_again(target, plan, ask, move |reply| exactly(reply, FIRST).map(|_| documents))
}

pub(super) fn hinted(target: &Target, plan: &Plan) -> Result<Measured> {
    one_of_three(target, plan, |_, doc| {
        doc.end().append("hint", "k_1");
    })
}

pub(super) fn cached(target: &Target, plan: &Plan) -> Result<Measured> {
    one_of_three(target, plan, |_, doc| {
        doc.end();
    })
}

pub(super) fn tried(target: &Target, plan: &Plan) -> Result<Measured> {
    one_of_three(target, plan, |random, doc| {
        // A query shape that the plan cache does not have.
        let field = format!("none{}", random.below(u32::MAX));
        doc.start_document(&field).append("$exists", false).end().end();
    })
}

/// Finds the documents of a key with conditions on two other indexes that all documents satisfy.
fn one_of_three(
    target: &Target,
    plan: &Plan,
    more: fn(&mut Random, &mut DocBuilder),
) -> Result<Measured> {
    prepare(target, plan)?;
    let keys = plan.documents / ITEMS_PER_KEY;
    let ask = move |random: &mut Random, doc: &mut DocBuilder| {
        doc.append("find", ITEMS).start_document("filter");
        doc.append("k", random.below(keys) as i32);
        doc.start_document("x").append("$gte", 0).end();
        doc.start_document("g").append("$gte", 0).end();
        more(random, doc);
    };
    ask_again(target, plan, ask, |reply| exactly(reply, ITEMS_PER_KEY))
}
