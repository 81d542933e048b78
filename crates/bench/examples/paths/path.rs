//! The table of paths: what each prepares, and the messages that are counted.
//!
//! Reads and updates find their documents in files (the store is opened again after loading) whose
//! blocks are cached. Inserts find existing documents in files. Commands have the form that drivers
//! send: with a session, and documents in a sequence of their own. Writes ask for `w: 1`, because a
//! thread that waits for the disk executes no instructions.

use mayfly_testkit::START_MS;
use mayfly_value::{DocBuf, DocBuilder, RawValue};

use crate::documents::{GROUPS, ITEMS_PER_KEY, Random, X_END, item, record, record_id};
use crate::server::{COLLECTION, DB, Server, expect_batch, expect_number, message};

/// A path.
pub(crate) struct Path {
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    /// The number of counted iterations.
    pub(crate) iterations: u32,
    /// Operations or documents of one iteration, which the count is divided by.
    pub(crate) units: u32,
    /// Loads data; returns the work of this many iterations.
    pub(crate) prepare: fn(&mut Server, u32) -> Work,
}

/// The counted work.
pub(crate) enum Work {
    /// Handles these messages in order. `check` checks the last reply.
    Messages { messages: Vec<Vec<u8>>, check: fn(&DocBuf) },
    /// A pass of the TTL monitor, which deletes a document per iteration.
    TtlPass,
}

/// Documents of collections that are only read.
const LOADED: u32 = 2_000;
/// Documents of a large insert.
const MANY: u32 = 1_000;

/// All paths.
pub(crate) const ALL: &[Path] = &[
    row("ping", "ping", 1_000, 1, ping),
    row("find-id", "find by _id, record of 1 KB", 1_000, 1, find_id),
    row("find-id-user", "find by _id of a user, with access control", 1_000, 1, find_id_user),
    row("find-10", "find 10 items by an index", 500, 1, find_10),
    row("scan", "find by three ranges without an index, per item", 6, LOADED, scan),
    row("group", "$match and $group, per item", 6, LOADED, group),
    row("insert-one", "insertOne of 1 KB, w: 1", 1_000, 1, insert_one),
    row("insert-one-user", "insertOne of a user, with access control", 1_000, 1, insert_one_user),
    row("insert-many", "insertMany of 1,000 items, per item", 4, MANY, insert_many),
    row("insert-many-3", "the same with 3 indexes, per item", 4, MANY, insert_many_3),
    row("update-inc", "updateOne by _id with $inc, w: 1", 1_000, 1, update_inc),
    row("update-set", "updateOne by _id with $set of 100 bytes, w: 1", 1_000, 1, update_set),
    row("ttl", "TTL deletion, per item", 2_000, 1, ttl),
];

const fn row(
    name: &'static str,
    title: &'static str,
    iterations: u32,
    units: u32,
    prepare: fn(&mut Server, u32) -> Work,
) -> Path {
    Path { name, title, iterations, units, prepare }
}

fn ping(_: &mut Server, iterations: u32) -> Work {
    let messages = repeat(iterations, |_| message(&command("admin", "ping", 1, |_| {}), None));
    Work::Messages { messages, check: |_| {} }
}

fn find_id(server: &mut Server, iterations: u32) -> Work {
    load_records(server);
    let mut random = Random::new(2);
    let messages = repeat(iterations, |_| {
        let id = record_id(random.below(LOADED));
        let command = command(DB, "find", COLLECTION, |doc| {
            doc.start_document("filter").append("_id", id.as_str()).end();
            doc.append("limit", 1).append("singleBatch", true);
        });
        message(&command, None)
    });
    Work::Messages { messages, check: |reply| expect_batch(reply, 1) }
}

fn find_id_user(server: &mut Server, iterations: u32) -> Work {
    let work = find_id(server, iterations);
    server.log_in();
    work
}

fn find_10(server: &mut Server, iterations: u32) -> Work {
    server.ok("{createIndexes: 'c', indexes: [{key: {k: 1}, name: 'k_1'}]}");
    load_items(server, LOADED);
    let mut random = Random::new(2);
    let messages = repeat(iterations, |_| {
        let k = random.below(LOADED / ITEMS_PER_KEY) as i32;
        let command = command(DB, "find", COLLECTION, |doc| {
            doc.start_document("filter").append("k", k).end();
        });
        message(&command, None)
    });
    Work::Messages { messages, check: |reply| expect_batch(reply, 10) }
}

/// Most items satisfy two of the ranges, and none the last one, so that all are evaluated and
/// nothing is returned.
fn scan(server: &mut Server, iterations: u32) -> Work {
    load_items(server, LOADED);
    let command = command(DB, "find", COLLECTION, |doc| {
        doc.start_document("filter");
        doc.start_document("g").append("$gte", GROUPS as i32 / 10).end();
        doc.start_document("x").append("$lt", (X_END / 10 * 9) as i32).end();
        doc.start_document("y").append("$lt", 0).end();
        doc.end();
    });
    let messages = repeat(iterations, |_| message(&command, None));
    Work::Messages { messages, check: |reply| expect_batch(reply, 0) }
}

fn group(server: &mut Server, iterations: u32) -> Work {
    load_items(server, LOADED);
    let command = command(DB, "aggregate", COLLECTION, |doc| {
        doc.start_array("pipeline");
        doc.push_document().start_document("$match");
        doc.start_document("x").append("$gte", 0).end().end().end();
        doc.push_document().start_document("$group").append("_id", "$g");
        doc.start_document("n").append("$sum", 1).end();
        doc.start_document("x").append("$sum", "$x").end().end().end();
        doc.end().start_document("cursor").end();
    });
    let messages = repeat(iterations, |_| message(&command, None));
    Work::Messages { messages, check: |reply| expect_batch(reply, GROUPS as usize) }
}

fn insert_one(server: &mut Server, iterations: u32) -> Work {
    load_records(server);
    let mut random = Random::new(2);
    let messages = repeat(iterations, |at| {
        let document = record(LOADED + at, &mut random);
        insert(document.as_bytes())
    });
    Work::Messages { messages, check: |reply| expect_number(reply, "n", 1) }
}

fn insert_one_user(server: &mut Server, iterations: u32) -> Work {
    let work = insert_one(server, iterations);
    server.log_in();
    work
}

fn insert_many(server: &mut Server, iterations: u32) -> Work {
    load_items(server, LOADED);
    let mut random = Random::new(2);
    let messages = repeat(iterations, |at| insert(&items(LOADED + at * MANY, MANY, &mut random)));
    Work::Messages { messages, check: |reply| expect_number(reply, "n", MANY as i32) }
}

fn insert_many_3(server: &mut Server, iterations: u32) -> Work {
    server.ok("{createIndexes: 'c', indexes: [{key: {k: 1}, name: 'k_1'}, \
         {key: {g: 1, x: -1}, name: 'g_1_x_-1'}, {key: {at: 1}, name: 'at_1'}]}");
    insert_many(server, iterations)
}

fn update_inc(server: &mut Server, iterations: u32) -> Work {
    load_records(server);
    let mut random = Random::new(2);
    let messages = repeat(iterations, |_| {
        update(&record_id(random.below(LOADED)), |doc| {
            doc.start_document("$inc").append("n", 1).end();
        })
    });
    Work::Messages { messages, check: |reply| expect_number(reply, "nModified", 1) }
}

fn update_set(server: &mut Server, iterations: u32) -> Work {
    load_records(server);
    let mut random = Random::new(2);
    let messages = repeat(iterations, |_| {
        let text = random.text(100);
        update(&record_id(random.below(LOADED)), |doc| {
            doc.start_document("$set").append("field5", text.as_str()).end();
        })
    });
    Work::Messages { messages, check: |reply| expect_number(reply, "nModified", 1) }
}

fn ttl(server: &mut Server, iterations: u32) -> Work {
    server.ok(
        "{createIndexes: 'c', indexes: [{key: {at: 1}, name: 'at_1', expireAfterSeconds: 3600}]}",
    );
    load_items(server, iterations);
    Work::TtlPass
}

fn repeat(iterations: u32, message: impl FnMut(u32) -> Vec<u8>) -> Vec<Vec<u8>> {
    (0..iterations).map(message).collect()
}

/// A command with this name and value, these fields, and the fields that every driver adds.
fn command<'v>(
    db: &str,
    name: &str,
    value: impl Into<RawValue<'v>>,
    fields: impl FnOnce(&mut DocBuilder),
) -> DocBuf {
    let mut doc = DocBuilder::new();
    doc.append(name, value);
    fields(&mut doc);
    doc.start_document("lsid").append("id", RawValue::uuid(&[7; 16])).end();
    doc.append("$db", db);
    doc.finish()
}

fn write_command(name: &str) -> DocBuf {
    command(DB, name, COLLECTION, |doc| {
        doc.append("ordered", true).start_document("writeConcern").append("w", 1).end();
    })
}

fn insert(documents: &[u8]) -> Vec<u8> {
    message(&write_command("insert"), Some(("documents", documents)))
}

fn update(id: &str, operators: impl FnOnce(&mut DocBuilder)) -> Vec<u8> {
    let mut doc = DocBuilder::new();
    doc.start_document("q").append("_id", id).end().start_document("u");
    operators(&mut doc);
    message(&write_command("update"), Some(("updates", doc.finish().as_bytes())))
}

/// Concatenated items. The date of each is a millisecond after that of the previous one, and all
/// have been due for long.
fn items(first: u32, count: u32, random: &mut Random) -> Vec<u8> {
    let due = START_MS - 86_400_000;
    let documents = (first..first + count).map(|n| item(n, due + i64::from(n), random));
    documents.flat_map(DocBuf::into_bytes).collect()
}

fn load_items(server: &mut Server, count: u32) {
    let mut random = Random::new(1);
    for first in (0..count).step_by(MANY as usize) {
        server.serve(&insert(&items(first, MANY.min(count - first), &mut random)));
    }
    server.settle();
}

fn load_records(server: &mut Server) {
    let mut random = Random::new(1);
    for first in (0..LOADED).step_by(MANY as usize) {
        let records = (first..first + MANY).map(|number| record(number, &mut random));
        let documents: Vec<u8> = records.flat_map(DocBuf::into_bytes).collect();
        server.serve(&insert(&documents));
    }
    server.settle();
}
