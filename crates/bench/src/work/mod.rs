//! The loads, in the order in which they run: a function and a row each.

mod bulk;
mod point;
mod query;
mod start;
mod ttl;

use std::time::Duration;

use anyhow::Result;
use mayfly_value::DocBuilder;

use crate::client::Client;
use crate::load::Measured;
use crate::server::Target;

/// The database that the loads use and leave behind.
pub(crate) const DATABASE: &str = "mayfly_bench";

/// How much of everything.
pub(crate) struct Plan {
    /// Time for each load.
    pub(crate) time: Duration,
    /// Items in the collections that are scanned and expired.
    pub(crate) documents: u32,
    /// Records of 1 KB in the collection of the point operations.
    pub(crate) records: u32,
}

/// One load.
pub(crate) struct Work {
    /// Its name on the command line.
    pub(crate) name: &'static str,
    /// What the report calls it.
    pub(crate) title: &'static str,
    /// What it may cost, see the design's table of budgets.
    pub(crate) budget: &'static str,
    /// Runs it.
    pub(crate) run: fn(&Target, &Plan) -> Result<Measured>,
}

const fn work(
    name: &'static str,
    title: &'static str,
    budget: &'static str,
    run: fn(&Target, &Plan) -> Result<Measured>,
) -> Work {
    Work { name, title, budget, run }
}

/// All loads.
pub(crate) const ALL: &[Work] = &[
    work("start", "start to first answer, empty", "<= 100 ms", start::start),
    work("idle", "idle, empty", "<= 60 MB, no CPU, no writes", start::idle),
    work("find", "find by _id, 1 KB, 4 connections", "<= 15 us", point::find),
    work("insert-w1", "insertOne w:1, 1 KB, 4 connections", "<= 16 us", point::insert_logged),
    work("insert-majority", "insertOne w:majority, 1 KB, 4 connections", "", point::insert_synced),
    work("update-inc", "updateOne $inc by _id, w:1, 4 connections", "<= 17 us", point::increment),
    work("update-set", "updateOne $set by _id, w:1, 4 connections", "<= 17 us", point::set_field),
    work("bulk", "insertMany 1,000 x 450 B", ">= 350,000/s, <= 1.5 us", bulk::plain),
    work("bulk-indexed", "insertMany, 3 further indexes", ">= 150,000/s, <= 7 us", bulk::indexed),
    work("indexed", "find by index, 10 documents, 1 connection", "<= 50 us", query::indexed_find),
    work("scan", "scan, three-field filter, per document", ">= 3,000,000/s", query::scan),
    work("count", "count 100,000 by an index, per command", "<= 8 ms", query::count),
    work("group", "$match + $group by 1,000 keys, per document", "<= 1.0 us", query::group),
    work("ttl", "TTL deletion, 3 further keys", ">= 80,000/s, <= 8 us, p99 <= 3 x", ttl::expire),
];

/// An empty collection.
pub(crate) fn drop_collection(client: &mut Client, name: &str) -> Result<()> {
    let dropped = client.run(|doc| {
        doc.append("drop", name).append("$db", DATABASE);
    });
    match dropped {
        Err(error) if !error.to_string().contains("ns not found") => Err(error),
        _ => Ok(()),
    }
}

/// Makes single-field indexes; `expire` is the one whose dates are due at once.
pub(crate) fn create_indexes(
    client: &mut Client,
    collection: &str,
    fields: &[&str],
    expire: Option<&str>,
) -> Result<()> {
    client.run(|doc| {
        doc.append("createIndexes", collection).start_array("indexes");
        for field in fields {
            doc.push_document().start_document("key").append(field, 1).end();
            doc.append("name", format!("{field}_1").as_str());
            if expire == Some(*field) {
                doc.append("expireAfterSeconds", 0);
            }
            doc.end();
        }
        doc.end().append("$db", DATABASE);
    })?;
    Ok(())
}

/// Adds `writeConcern: { w: 1 }` and the database.
pub(crate) fn logged(doc: &mut DocBuilder) {
    doc.start_document("writeConcern").append("w", 1).end().append("$db", DATABASE);
}
