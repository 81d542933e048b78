//! The loads, in the order in which they run: a function and a row each.

mod aggregate;
mod bulk;
mod expiry;
mod idle;
mod ids;
mod mass;
mod measurements;
mod overload;
mod plans;
mod point;
mod query;
mod restart;
mod search;
mod transactions;
mod ttl;
mod update;
mod ycsb;

use std::path::PathBuf;
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

/// How much of everything.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// Time for each load.
    pub(crate) time: Duration,
    /// Items in the collections that are scanned and expired.
    pub(crate) documents: u32,
    /// Records of 1 KB in the collection of the point operations.
    pub(crate) records: u32,
    /// Items in the folder over which a server is started.
    pub(crate) start_documents: u32,
    /// Operations in a second; as many as there can be when absent.
    pub(crate) rate: Option<f64>,
    /// Instead of the load's own number of connections.
    pub(crate) connections: Option<usize>,
    /// Where a load that has a course in time writes it.
    pub(crate) csv: Option<PathBuf>,
}

/// One load.
pub(crate) struct Work {
    /// Its name on the command line.
    pub(crate) name: &'static str,
    /// What the report calls it.
    pub(crate) title: &'static str,
    /// What it may cost, see the design's table of budgets.
    pub(crate) budgets: &'static [Budget],
    /// Runs only when named.
    pub(crate) named_only: bool,
    /// Runs it.
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
    budgeted("update-inc", "updateOne $inc by _id, w:1, 4 connections",
        &[Budget::server(17.0)], point::increment),
    budgeted("update-set", "updateOne $set by _id, w:1, 4 connections",
        &[Budget::server(17.0)], point::set_field),
    budgeted("ycsb-a", "YCSB A: 50 % updates", &[Budget::server(16.0)], ycsb::a),
    budgeted("ycsb-e", "YCSB E: scans of 1-100, 5 % inserts", &[Budget::server(90.0)], ycsb::e),
    budgeted("bulk", "insertMany 1,000 x 450 B, per document",
        &[Budget::rate(350_000.0), Budget::server(1.5)], bulk::plain),
    budgeted("bulk-indexed", "insertMany, 3 further indexes",
        &[Budget::rate(150_000.0), Budget::server(7.0)], bulk::indexed),
    work("bulk-update", "unordered bulk of 10,000 updates, each", update::bulk),
    budgeted("indexed", "find by index, 10 documents, 1 connection",
        &[Budget::server(50.0)], query::indexed_find),
    budgeted("scan", "scan, three-field filter, per document", &[Budget::per_core(3_000_000.0)], query::scan),
    budgeted("count", "count 100,000 by an index, per command", &[Budget::server(8_000.0)], query::count),
    budgeted("group", "$match + $group by 1,000 keys, /document", &[Budget::server(1.0)], query::group),
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
    work("ttl-hidden", "find by _id where a policy hides", expiry::hidden),
    // Last of those that write, because the disk may be busy with its gigabytes for long.
    budgeted("start-2m", "start with 2,000,000 documents",
        &[Budget::at_most("first document", 300.0, "ms")], restart::filled),
    named_only("ycsb-e-large", "YCSB E over 2,000,000 records", ycsb::e_large),
    named_only("plan-hinted", "find by one of 3 indexes, hinted", plans::hinted),
    named_only("plan-cached", "the same, its plan is cached", plans::cached),
    named_only("plan-tried", "the same, its plan is tried each time", plans::tried),
    named_only("aggregate-lookup", "$lookup of 10 by an index, /look-up", aggregate::lookup),
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
    named_only("ids-ttl-object", "TTL deletion, 2 indexes, ObjectIds", ids::expire_object),
    named_only("ids-ttl-uuid", "TTL deletion, 2 indexes, UUID strings", ids::expire_uuid),
    named_only("ids-memory", "5,000,000 UUID strings, 2 scans, 2 builds", ids::memory),
    named_only("ttl-mass", "mass expiry during YCSB A, by seconds", mass::expire),
    named_only("search-any", "$search, best 10 of two words, either", search::any_word),
    named_only("search-all", "$search, best 10 of two words, both", search::all_words),
    named_only("search-vector", "$vectorSearch, nearest 10, 128 dimensions", search::vectors),
    named_only("search-insert", "insert, then a search that finds it", search::insert_and_search),
    named_only("overload", "finds by _id beside attacks", overload::overload),
];

/// The load of this name.
#[cfg(test)]
pub(crate) fn named(name: &str) -> Option<&'static Work> {
    ALL.iter().find(|work| work.name == name)
}

/// The loads that are wanted: those of a name or its beginning, or all that need not be named.
pub(crate) fn select(names: &[String], only_budgets: bool) -> Result<Vec<&'static Work>> {
    let mut wanted = vec![false; ALL.len()];
    for name in names {
        let exact = ALL.iter().any(|work| work.name == name);
        let fits = |work: &Work| match exact {
            true => work.name == name,
            false => work.name.starts_with(name.as_str()),
        };
        if !ALL.iter().any(fits) {
            anyhow::bail!("no load is called '{name}'; see 'list'");
        }
        for (wanted, work) in wanted.iter_mut().zip(ALL) {
            *wanted |= fits(work);
        }
    }
    let choice = ALL.iter().zip(wanted).filter(|(work, wanted)| {
        let wanted = if names.is_empty() { !work.named_only } else { *wanted };
        wanted && (!only_budgets || !work.budgets.is_empty())
    });
    Ok(choice.map(|(work, _)| work).collect())
}

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

/// An existing collection without documents, so that the load's first insert need not make it.
pub(crate) fn fresh_collection(client: &mut Client, name: &str) -> Result<()> {
    drop_collection(client, name)?;
    client.run(|doc| {
        doc.append("create", name).append("$db", DATABASE);
    })?;
    Ok(())
}

/// How many documents a collection has, without counting them one by one.
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
        assert_eq!(names(&["start-", "upd"], false).len(), 3);
        assert_eq!(names(&["overload"], false), ["overload"]);
        assert!(!names(&[], false).contains(&"overload"));
        assert_eq!(names(&["ycsb"], true), ["ycsb-a", "ycsb-e"]);
        assert!(select(&["nothing".to_owned()], false).is_err());
    }
}
