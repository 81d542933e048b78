//! The loads, in the order in which they run: a function and a row each.

mod aggregate;
mod bulk;
mod connections;
mod expiry;
mod idle;
mod ids;
mod large;
mod measurements;
mod overload;
mod plans;
mod point;
mod query;
mod restart;
mod soak;
mod stall;
mod storm;
mod transactions;
mod ttl;
mod update;
mod ycsb;

use std::time::Duration;

use anyhow::Result;
use mayfly_value::{DocBuilder, RawValue};

use crate::budget::Budget;
use crate::client::Client;
use crate::figures::Measured;
use crate::server::Target;
use crate::wire::number_at;

/// The database of the loads, which is not dropped.
pub(crate) const DATABASE: &str = "mayfly_bench";

/// The extent of the loads.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// Time for each load.
    pub(crate) time: Duration,
    /// Items in the collections that are scanned and expired.
    pub(crate) documents: u32,
    /// Records of 1 KB in the collection of the point operations.
    pub(crate) records: u32,
    /// Items in the data folder that a server is started with.
    pub(crate) start_documents: u32,
    /// Operations per second; without it as many as possible.
    pub(crate) rate: Option<f64>,
    /// The number of connections, instead of the load's own.
    pub(crate) connections: Option<usize>,
    /// Requests under way on each connection.
    pub(crate) in_flight: usize,
    /// Width of the time buckets in which each load is counted, if its course in time is printed.
    pub(crate) bucket: Option<Duration>,
}

/// One load.
pub(crate) struct Work {
    /// Its name on the command line.
    pub(crate) name: &'static str,
    /// Its title in the report.
    pub(crate) title: &'static str,
    /// Its budgets.
    pub(crate) budgets: &'static [Budget],
    /// Whether it runs only when named.
    pub(crate) named_only: bool,
    /// The function that runs it.
    pub(crate) run: fn(&Target, &Plan) -> Result<Measured>,
}

type Run = fn(&Target, &Plan) -> Result<Measured>;

const fn work(name: &'static str, title: &'static str, run: Run) -> Work {
    Work { name, title, budgets: &[], named_only: false, run }
}

const fn budgeted(
    name: &'static str,
    title: &'static str,
    budgets: &'static [Budget],
    run: Run,
) -> Work {
    Work { name, title, budgets, named_only: false, run }
}

const fn named_only(name: &'static str, title: &'static str, run: Run) -> Work {
    Work { name, title, budgets: &[], named_only: true, run }
}

/// All loads.
#[rustfmt::skip] // A table.
pub(crate) const ALL: &[Work] = &[
    budgeted("start", "start to first answer, empty",
        &[Budget::at_most("first answer", 100.0, "ms")], restart::empty),
    budgeted("idle", "idle, empty", &[
        Budget::at_most("idle resident", 60.0, "MB"),
        Budget::at_most("idle CPU", 1.0, "ms/s"),
        Budget::at_most("idle writes", 0.0, "bytes"),
    ], idle::idle),
    budgeted("find", "find by _id, 1 KB, 4 connections", &[Budget::server(15.0)], point::find),
    budgeted("insert-w1", "insertOne w:1, 1 KB, 4 connections",
        &[Budget::server(16.0)], point::insert_logged),
    work("insert-majority", "insertOne w:majority, 1 KB, 4 connections", point::insert_synced),
    budgeted("update-inc", "updateOne $inc by _id, w:1, 4 connections",
        &[Budget::server(17.0)], point::increment),
    budgeted("update-set", "updateOne $set by _id, w:1, 4 connections",
        &[Budget::server(17.0)], point::set_field),
    budgeted("ycsb-a", "YCSB A: 50 % updates", &[Budget::server(16.0)], ycsb::a),
    work("ycsb-b", "YCSB B: 5 % updates", ycsb::b),
    work("ycsb-c", "YCSB C: reads", ycsb::c),
    work("ycsb-d", "YCSB D: reads of the newest, 5 % inserts", ycsb::d),
    budgeted("ycsb-e", "YCSB E: scans of 1-100, 5 % inserts", &[Budget::server(90.0)], ycsb::e),
    work("ycsb-f", "YCSB F: 50 % read-modify-write", ycsb::f),
    budgeted("bulk", "insertMany 1,000 x 450 B, per document",
        &[Budget::rate(350_000.0), Budget::server(1.5)], bulk::plain),
    budgeted("bulk-indexed", "insertMany, 3 further indexes",
        &[Budget::rate(150_000.0), Budget::server(7.0)], bulk::indexed),
    work("bulk-validated", "insertMany under a $jsonSchema", bulk::validated),
    work("bulk-update", "unordered bulk of 10,000 updates, each", update::bulk),
    work("update-wide", "update of 1 of 16 fields, 4 connections", update::wide),
    budgeted("indexed", "find by index, 10 documents, 1 connection",
        &[Budget::server(50.0)], query::indexed_find),
    work("range", "find by index, range of 100 documents", query::range),
    work("in", "find { $in: 1,000 values }", query::in_list),
    budgeted("scan", "scan, three-field filter, per document", &[Budget::per_core(3_000_000.0)], query::scan),
    work("scan-two", "scan, two-field filter, per document", query::scan_two),
    budgeted("count", "count 100,000 by an index, per command", &[Budget::server(8_000.0)], query::count),
    budgeted("group", "$match + $group by 1,000 keys, /document", &[Budget::server(1.0)], query::group),
    work("connections-1", "find by _id, 1 connection, event loop", connections::one),
    work("connections-16", "find by _id, 16 connections", connections::sixteen),
    work("connections-256", "find by _id, 256 connections", connections::many),
    work("connections-2000", "find by _id, 2,000 connections", connections::thousands),
    work("pipelined", "find by _id, 4 connections x 8 under way", connections::pipelined),
    work("large-100k", "100 KB: insert and find", large::hundred_kilobytes),
    work("large-10m", "10 MB: insert and find", large::ten_megabytes),
    budgeted("measurements", "insertMany of 1,000 measurements, each",
        &[Budget::rate(150_000.0), Budget::at_most("bytes each", 20.0, "bytes")], measurements::ingest),
    budgeted("measurements-ttl", "expiry of whole buckets, measurements",
        &[Budget::rate(5_000_000.0)], measurements::expire),
    budgeted("ttl", "TTL deletion, 3 further keys", &[
        Budget::rate(80_000.0),
        Budget::server(8.0),
        Budget::at_most("p99 ratio", 3.0, "x"),
    ], ttl::expire),
    budgeted("ttl-idle", "pass over 1,000 idle policies",
        &[Budget::at_most("pass", 50.0, "ms"), Budget::at_most("pass writes", 0.0, "bytes")], expiry::idle_passes),
    work("ttl-fair", "TTL in 100 collections, one of them large", expiry::fairness),
    work("ttl-hidden", "find by _id where a policy hides", expiry::hidden),
    work("storm", "TTL storm: 90 % expires beside a load", storm::storm),
    // After all other loads that write, because it writes gigabytes, which may occupy the disk for
    // long.
    budgeted("start-2m", "start with 2,000,000 documents",
        &[Budget::at_most("first document", 300.0, "ms")], restart::filled),
    named_only("ycsb-e-large", "YCSB E over 2,000,000 records", ycsb::e_large),
    named_only("plan-compound", "one value, a range, in order, first 10", plans::compound),
    named_only("plan-merge", "$in of 100 values in order, first 10", plans::merge),
    named_only("plan-or", "$or of two indexes", plans::or),
    named_only("plan-in", "find { $in: 100 values }", plans::in_list),
    named_only("plan-top", "first 10 without an index, /document", plans::top),
    named_only("plan-hinted", "find by one of 3 indexes, hinted", plans::hinted),
    named_only("plan-cached", "the same, its plan is cached", plans::cached),
    named_only("plan-tried", "the same, its plan is tried each time", plans::tried),
    named_only("aggregate-group", "$match + $group by 1,000 keys, /document", aggregate::group),
    named_only("aggregate-group-many", "$group by as many keys as half, /document", aggregate::group_many),
    named_only("aggregate-unwind", "$unwind of 5 + $group, /document", aggregate::unwind),
    named_only("aggregate-sort", "$sort of everything, /document", aggregate::sort),
    named_only("aggregate-lookup", "$lookup of 10 by an index, /look-up", aggregate::lookup),
    named_only("aggregate-windows", "$setWindowFields, moving mean, /document", aggregate::windows),
    named_only("aggregate-facet", "$facet of three, /document", aggregate::facet),
    named_only("txn-outside-1", "$inc by _id outside, 1 connection", transactions::outside_one),
    named_only("txn-outside-16", "$inc by _id outside, 16 connections", transactions::outside_many),
    named_only("txn-1-1", "transactions of 1 $inc, 1 connection", transactions::of_one),
    named_only("txn-1-16", "transactions of 1 $inc, 16 connections", transactions::of_one_many),
    named_only("txn-10-1", "transactions of 10 $inc, 1 connection", transactions::of_ten),
    named_only("txn-10-16", "transactions of 10 $inc, 16 connections", transactions::of_ten_many),
    named_only("txn-100-1", "transactions of 100 $inc, 1 connection", transactions::of_hundred),
    named_only("txn-100-16", "transactions of 100 $inc, 16 connections", transactions::of_hundred_many),
    named_only("txn-counter", "one counter that 16 clients raise", transactions::counter),
    named_only("txn-long", "100,000 writes, 1,000,000 reads in one", transactions::long),
    named_only("txn-open", "1,000 open transactions of one write", transactions::open),
    named_only("ids-object", "2,000,000 x 1.15 KB, ObjectIds", ids::object),
    named_only("ids-uuid", "2,000,000 x 1.15 KB, UUID strings", ids::uuid_text),
    named_only("ids-hashed-few", "100,000 x 1.15 KB, hashed ids", ids::hashed_few),
    named_only("ids-hashed", "5,000,000 x 1.15 KB, hashed ids", ids::hashed),
    named_only("ids-ttl-object", "TTL deletion, 2 indexes, ObjectIds", ids::expire_object),
    named_only("ids-ttl-uuid", "TTL deletion, 2 indexes, UUID strings", ids::expire_uuid),
    named_only("ids-memory", "5,000,000 UUID strings, 2 scans, 2 builds", ids::memory),
    named_only("overload", "finds by _id beside attacks", overload::overload),
    named_only("stall", "sustained insertMany, 3 further indexes", stall::stall),
    named_only("soak", "reads, inserts, updates, TTL for long", soak::soak),
];

/// The load of this name.
#[cfg(test)]
pub(crate) fn named(name: &str) -> Option<&'static Work> {
    ALL.iter().find(|work| work.name == name)
}

/// The loads with these names, or whose names begin with them; without names all loads that need
/// not be named.
pub(crate) fn select(names: &[String], only_budgets: bool) -> Result<Vec<&'static Work>> {
    let mut selected = vec![false; ALL.len()];
    for name in names {
        let exact = ALL.iter().any(|work| work.name == name);
        let fits = |work: &Work| match exact {
            true => work.name == name,
            false => work.name.starts_with(name.as_str()),
        };
        if !ALL.iter().any(fits) {
            anyhow::bail!("no load is called '{name}'; see 'list'");
        }
        for (selected, work) in selected.iter_mut().zip(ALL) {
            *selected |= fits(work);
        }
    }
    let choice = ALL.iter().zip(selected).filter(|(work, selected)| {
        let selected = if names.is_empty() { !work.named_only } else { *selected };
        selected && (!only_budgets || !work.budgets.is_empty())
    });
    Ok(choice.map(|(work, _)| work).collect())
}

/// Drops a collection.
pub(crate) fn drop_collection(client: &mut Client, name: &str) -> Result<()> {
    let dropped = client.run(|doc| {
        doc.append("drop", name).append("$db", DATABASE);
    });
    match dropped {
        Err(error) if !error.to_string().contains("ns not found") => Err(error),
        _ => Ok(()),
    }
}

/// Creates an empty collection, so that the load's first insert does not have to.
pub(crate) fn fresh_collection(client: &mut Client, name: &str) -> Result<()> {
    drop_collection(client, name)?;
    client.run(|doc| {
        doc.append("create", name).append("$db", DATABASE);
    })?;
    Ok(())
}

/// The number of documents of a collection, from its metadata.
pub(crate) fn document_count(client: &mut Client, name: &str) -> Result<u32> {
    let counted = client.run(|doc| {
        doc.append("count", name).append("$db", DATABASE);
    })?;
    Ok(number_at(counted, &["n"]).unwrap_or(0.0) as u32)
}

/// Makes single-field indexes; `expire` is the one whose dates are due, and after how many seconds.
pub(crate) fn create_indexes(
    client: &mut Client,
    collection: &str,
    fields: &[&str],
    expire: Option<(&str, i32)>,
) -> Result<()> {
    client.run(|doc| {
        doc.append("createIndexes", collection).start_array("indexes");
        for field in fields {
            doc.push_document().start_document("key").append(field, 1).end();
            doc.append("name", format!("{field}_1").as_str());
            if let Some((_, seconds)) = expire.filter(|(name, _)| name == field) {
                doc.append("expireAfterSeconds", seconds);
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

/// Sets a parameter of the server.
pub(crate) fn set_parameter(client: &mut Client, name: &str, value: RawValue<'_>) -> Result<()> {
    client.run(|doc| {
        doc.append("setParameter", 1).append(name, value).append("$db", "admin");
    })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_choose_exactly_or_by_their_beginning() {
        let names = |names: &[&str], budget| -> Vec<&str> {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            select(&names, budget).unwrap().iter().map(|work| work.name).collect()
        };
        assert_eq!(names(&["scan"], false), ["scan"]);
        assert_eq!(names(&["start-", "upd"], false).len(), 4);
        assert_eq!(names(&["stall"], false), ["stall"]);
        assert!(!names(&[], false).contains(&"soak"));
        assert_eq!(names(&["ycsb"], true), ["ycsb-a", "ycsb-e"]);
        assert!(select(&["nothing".to_owned()], false).is_err());
    }
}
