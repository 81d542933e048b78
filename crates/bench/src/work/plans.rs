//! Queries that there are several plans for.

use anyhow::Result;
use mayfly_value::DocBuilder;

use super::bulk::fill;
use super::query::{ITEMS, ask_again, exactly};
use super::{DATABASE, Plan};
use crate::documents::{ITEMS_PER_KEY, Random};
use crate::figures::Measured;
use crate::server::Target;

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
        // A shape that was never seen.
        let field = format!("none{}", random.below(u32::MAX));
        doc.start_document(&field).append("$exists", false).end().end();
    })
}

/// Finds the documents of a key, where conditions on two other indexes hold for all of them.
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
