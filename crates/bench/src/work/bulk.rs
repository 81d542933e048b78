//! Inserts of a thousand documents each, without and with further indexes.

use anyhow::Result;

use super::{DATABASE, Plan, create_indexes, drop_collection, logged};
use crate::documents::{Items, Random};
use crate::load::{self, Measured, Step};
use crate::server::Target;

/// Documents per command.
pub(super) const BATCH: u32 = 1000;
/// A date that is due at once.
const LONG_AGO_MS: i64 = 1_000_000_000_000;

pub(super) fn plain(target: &Target, plan: &Plan) -> Result<Measured> {
    measure(target, plan, "bulk", &[])
}

pub(super) fn indexed(target: &Target, plan: &Plan) -> Result<Measured> {
    measure(target, plan, "bulk_indexed", &["g", "y", "at"])
}

fn measure(
    target: &Target,
    plan: &Plan,
    collection: &'static str,
    indexes: &[&str],
) -> Result<Measured> {
    let mut client = target.client()?;
    drop_collection(&mut client, collection)?;
    if !indexes.is_empty() {
        create_indexes(&mut client, collection, indexes, None)?;
    }
    let measured = load::run(target, 1, plan.time, |number| inserter(collection, number as u8))?;
    drop_collection(&mut client, collection)?;
    Ok(measured)
}

fn inserter(collection: &'static str, writer: u8) -> Step {
    let mut random = Random::new(400 + u64::from(writer));
    let mut pool: Vec<Items> = (0..8).map(|_| Items::new(BATCH, &mut random)).collect();
    let mut next = 0;
    Box::new(move |client| {
        let slot = (next / BATCH) as usize % pool.len();
        let items = &mut pool[slot];
        items.renew(next, writer, LONG_AGO_MS, &mut random);
        next += BATCH;
        let command = |doc: &mut mayfly_value::DocBuilder| {
            doc.append("insert", collection).append("ordered", true);
            logged(doc);
        };
        client.run_with(command, Some(("documents", &items.bytes)))?;
        Ok(items.len() as u64)
    })
}

/// Fills a collection with this many items, unless it holds them already.
pub(super) fn fill(target: &Target, collection: &'static str, documents: u32) -> Result<()> {
    let mut client = target.client()?;
    let counted = client.ask(|doc| {
        doc.append("count", collection).append("$db", DATABASE);
    })?;
    let there = crate::client::number_at(counted.as_doc(), &["n"]).unwrap_or(0.0) as u32;
    if there == documents {
        return Ok(());
    }
    let mut insert = inserter(collection, 0);
    let mut filled = 0;
    while filled < documents {
        filled += insert(&mut client)? as u32;
    }
    Ok(())
}
