//! Inserts of a thousand documents each, without and with further indexes.

use anyhow::Result;

use super::{DATABASE, Plan, create_indexes, document_count, drop_collection, fresh_collection};
use crate::caller::{Caller, Turn, caller};
use crate::documents::{Items, Random};
use crate::figures::Measured;
use crate::load::{self, Load, converse};
use crate::server::Target;
use crate::wire::Request;

/// Documents per command.
pub(super) const BATCH: u32 = 1000;
/// Batches made in advance; each use changes what makes its documents different.
const POOL: usize = 8;
/// A date that is due at once.
pub(super) const LONG_AGO_MS: i64 = 1_000_000_000_000;

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
    fresh_collection(&mut client, collection)?;
    if !indexes.is_empty() {
        create_indexes(&mut client, collection, indexes, None)?;
    }
    let load = Load::new(plan, 1, |n| Inserter::new(collection, n as u16).batch(BATCH).caller());
    let measured = load::run(target, plan, &load)?;
    drop_collection(&mut client, collection)?;
    Ok(measured)
}

/// A caller that inserts items.
pub(super) struct Inserter {
    collection: &'static str,
    /// Part of the identities, so that writers do not meet.
    writer: u16,
    batch: u32,
    first: u32,
    /// The date of the first document; each later one is a millisecond later.
    first_date_ms: i64,
}

impl Inserter {
    /// One by one, from number 0, with dates long ago.
    pub(super) fn new(collection: &'static str, writer: u16) -> Inserter {
        Inserter { collection, writer, batch: 1, first: 0, first_date_ms: LONG_AGO_MS }
    }

    /// So many at once.
    pub(super) fn batch(mut self, documents: u32) -> Inserter {
        self.batch = documents;
        self
    }

    /// From this number on.
    pub(super) fn from(mut self, first: u32) -> Inserter {
        self.first = first;
        self
    }

    /// From this date on.
    pub(super) fn dated(mut self, first_date_ms: i64) -> Inserter {
        self.first_date_ms = first_date_ms;
        self
    }

    /// Begins.
    pub(super) fn caller(self) -> Box<dyn Caller> {
        let mut random = Random::new(400 + u64::from(self.writer));
        let batches = POOL.min(10_000 / self.batch as usize).max(1);
        let pool: Vec<Items> = (0..batches).map(|_| Items::new(self.batch, &mut random)).collect();
        let size: usize = pool.first().map_or(0, |items| items.bytes.len());
        let Inserter { collection, writer, batch, first, first_date_ms } = self;
        let ask = move |(pool, random, next): &mut (Vec<Items>, Random, u32),
                        request: &mut Request| {
            let slot = (*next / batch) as usize % pool.len();
            let items = &mut pool[slot];
            items.renew(*next, writer, first_date_ms, random);
            *next += batch;
            request.command(|doc| {
                doc.append("insert", collection).append("ordered", true);
                doc.start_document("writeConcern").append("w", 1).end().append("$db", DATABASE);
            });
            request.sequence("documents", &items.bytes);
        };
        let done = Turn::wrote(u64::from(batch), size as u64);
        caller((pool, random, first), ask, move |_, _| Ok(done))
    }
}

/// Fills a collection up to this many items.
pub(super) fn fill(target: &Target, collection: &'static str, documents: u32) -> Result<()> {
    fill_from(target, collection, documents, LONG_AGO_MS)
}

/// The same with dates from this time on.
pub(super) fn fill_from(
    target: &Target,
    collection: &'static str,
    documents: u32,
    first_date_ms: i64,
) -> Result<()> {
    let mut client = target.client()?;
    let mut filled = document_count(&mut client, collection)?;
    for batch in [BATCH, 1] {
        let inserter = Inserter::new(collection, 0).batch(batch).from(filled);
        let mut caller = inserter.dated(first_date_ms).caller();
        while filled + batch <= documents {
            filled += converse(&mut client, &mut *caller)?.1.count as u32;
        }
    }
    Ok(())
}
