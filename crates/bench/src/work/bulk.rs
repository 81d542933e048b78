//! Inserts of a thousand documents each, without and with secondary indexes.

use std::time::{SystemTime, UNIX_EPOCH};

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
/// Batches that are encoded in advance; before each use, the values that make documents different
/// are changed.
const POOL: usize = 8;
/// A date that is due at once.
pub(super) const LONG_AGO_MS: i64 = 1_000_000_000_000;

pub(super) fn plain(target: &Target, plan: &Plan) -> Result<Measured> {
    measure(target, plan, "bulk", &[])
}

pub(super) fn indexed(target: &Target, plan: &Plan) -> Result<Measured> {
    measure(target, plan, "bulk_indexed", &["g", "y", "at"])
}

/// Inserts into a collection whose validator checks the types of six fields and the bounds of two.
pub(super) fn validated(target: &Target, plan: &Plan) -> Result<Measured> {
    let mut client = target.client()?;
    drop_collection(&mut client, "bulk_validated")?;
    client.run(|doc| {
        doc.append("create", "bulk_validated").start_document("validator");
        doc.start_document("$jsonSchema").append("bsonType", "object");
        doc.start_array("required").push("k").push("at").push("name").end();
        doc.start_document("properties");
        let types =
            [("k", "int"), ("y", "long"), ("at", "date"), ("name", "string"), ("text", "string")];
        for (field, kind) in types {
            doc.start_document(field).append("bsonType", kind).end();
        }
        doc.start_document("x").append("bsonType", "int");
        doc.append("minimum", 0).append("maximum", 1_000_000).end();
        doc.end().end().end().append("$db", DATABASE);
    })?;
    let load =
        Load::new(plan, 1, |n| Inserter::new("bulk_validated", n as u16).batch(BATCH).caller());
    let measured = load::run(target, plan, &load)?;
    drop_collection(&mut client, "bulk_validated")?;
    Ok(measured)
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
    /// A part of the `_id`s, so that writers insert different ones.
    writer: u16,
    batch: u32,
    first: u32,
    dates: Dates,
}

/// The dates of inserted items.
#[derive(Clone, Copy)]
pub(super) enum Dates {
    /// From this time on, a millisecond later for each item.
    From(i64),
    /// The present time.
    Now,
}

impl Inserter {
    /// Inserts items one by one, from number 0 on, with dates in the past.
    pub(super) fn new(collection: &'static str, writer: u16) -> Inserter {
        Inserter { collection, writer, batch: 1, first: 0, dates: Dates::From(LONG_AGO_MS) }
    }

    /// Sets the number of items per command.
    pub(super) fn batch(mut self, documents: u32) -> Inserter {
        self.batch = documents;
        self
    }

    /// Sets the first number.
    pub(super) fn from(mut self, first: u32) -> Inserter {
        self.first = first;
        self
    }

    /// Sets the dates.
    pub(super) fn dated(mut self, dates: Dates) -> Inserter {
        self.dates = dates;
        self
    }

    /// Creates the caller.
    pub(super) fn caller(self) -> Box<dyn Caller> {
        let mut random = Random::new(400 + u64::from(self.writer));
        let batches = POOL.min(10_000 / self.batch as usize).max(1);
        let pool: Vec<Items> = (0..batches).map(|_| Items::new(self.batch, &mut random)).collect();
        let size: usize = pool.first().map_or(0, |items| items.bytes.len());
        let Inserter { collection, writer, batch, first, dates } = self;
        let ask = move |(pool, random, next): &mut (Vec<Items>, Random, u32),
                        request: &mut Request| {
            let slot = (*next / batch) as usize % pool.len();
            let items = &mut pool[slot];
            let date = match dates {
                Dates::From(first) => first,
                // The number of the item is added to it.
                Dates::Now => now_ms() - i64::from(*next),
            };
            items.renew(*next, writer, date, random);
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

fn now_ms() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(LONG_AGO_MS, |now| now.as_millis() as i64)
}

/// Fills a collection up to this many items.
pub(super) fn fill(target: &Target, collection: &'static str, documents: u32) -> Result<()> {
    fill_from(target, collection, documents, LONG_AGO_MS)
}

/// Fills a collection with items whose dates begin at this time.
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
        let mut caller = inserter.dated(Dates::From(first_date_ms)).caller();
        while filled + batch <= documents {
            filled += converse(&mut client, &mut *caller)?.1.count as u32;
        }
    }
    Ok(())
}
