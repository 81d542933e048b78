//! Counts how often operations call the engine in a way that would cross a network, and compares
//! the counts with `crates/testkit/round_trips.txt`.
//!
//! A count that grows fails. `UPDATE_ROUND_TRIPS=1` writes the file; `ROUND_TRIPS=find` counts only
//! operations whose name contains the text. The server is restarted before most operations, so that
//! it knows nothing from earlier ones.

use std::fmt::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use mayfly_base::testing::crate_folder;
use mayfly_kv::{Engine, MemoryEngine, RoundTripCounter, RoundTrips};
use mayfly_testkit::{Fixture, OpenEngine, Reopenable, environment};
use mayfly_value::{DocBuf, RawValue};

/// An operation whose round trips are counted.
struct Operation {
    name: &'static str,
    title: &'static str,
    /// What the store over a network aims at.
    aim: Option<u64>,
    prepare: fn(&mut Fixture),
    run: fn(&mut Fixture),
    server: Server,
}

/// The server that executes an operation.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Server {
    /// The one that was prepared.
    Same,
    /// The same after a restart, so that it knows nothing from before.
    Restarted,
    /// A secondary, which has executed the operation before.
    Secondary,
}

impl Operation {
    const fn without_restart(self) -> Operation {
        Operation { server: Server::Same, ..self }
    }

    const fn on_a_secondary(self) -> Operation {
        Operation { server: Server::Secondary, ..self }
    }
}

const OPERATIONS: &[Operation] = &[
    row("find-id", "find by _id", Some(1), numbered, find_by_id),
    row("find-missing", "find by an _id that does not exist", Some(1), numbered, |fixture| {
        assert_eq!(batch(&fixture.ok("test", "{find: 'c', filter: {_id: -1}}")), 0);
    }),
    row("find-100", "find 100 by an index", Some(2), numbered, find_by_index),
    row("find-range-100", "find 100 by a range of _id", Some(2), numbered, |fixture| {
        let command = "{find: 'c', filter: {_id: {$gte: 300}}, limit: 100}";
        assert_eq!(batch(&fixture.ok("test", command)), 100);
    }),
    row("find-in-1000", "find by $in of 1,000 values", Some(16), numbered, |fixture| {
        let values = joined(0..1000, |n| n.to_string());
        let command = format!("{{find: 'c', filter: {{u: {{$in: [{values}]}}}}, batchSize: 2000}}");
        assert_eq!(batch(&fixture.ok("test", &command)), 1000);
    }),
    row("scan-1000", "find all of 1,000 without an index", None, numbered, |fixture| {
        assert_eq!(batch(&fixture.ok("test", "{find: 'c', batchSize: 2000}")), 1000);
    }),
    row("count-1000", "count of 1,000 by an index", Some(1), numbered, count_by_index),
    row("insert-one-3", "insertOne with three indexes", Some(1), three_indexes, |fixture| {
        expect(&fixture.ok("test", "{insert: 'c', documents: [{_id: -1, a: 1, b: 2}]}"), "n", 1);
    })
    .without_restart(),
    row("insert-first", "the same, the first one after a start", None, three_indexes, |fixture| {
        expect(&fixture.ok("test", "{insert: 'c', documents: [{_id: -1, a: 1, b: 2}]}"), "n", 1);
    }),
    row("insert-1000", "insertMany of 1,000, unique index", Some(6), numbered, |fixture| {
        insert(fixture, 1000..2000, 1000);
    }),
    row("insert-taken-256", "insertMany of 256, 3 of them there", None, numbered, |fixture| {
        let ids = joined(0..256, |n| match n {
            20 | 21 | 190 => format!("{{_id: {n}}}"),
            n => format!("{{_id: {}, u: {}}}", 2000 + n, 2000 + n),
        });
        let command = format!("{{insert: 'c', documents: [{ids}], ordered: false}}");
        expect(&fixture.run("test", &command), "n", 253);
    }),
    row("update-id", "updateOne by _id", Some(2), numbered, |fixture| {
        let command = "{update: 'c', updates: [{q: {_id: 7}, u: {$inc: {n: 1}}}]}";
        expect(&fixture.ok("test", command), "nModified", 1);
    }),
    row("update-id-retry", "the same, retryable", Some(2), in_session, |fixture| {
        update_retryably(fixture, 2);
    })
    .without_restart(),
    row("update-id-first", "the same, the first one of a session", None, numbered, |fixture| {
        update_retryably(fixture, 1);
    }),
    row("update-1000", "updateMany of 1,000", Some(24), numbered, |fixture| {
        let command = "{update: 'c', updates: [{q: {}, u: {$inc: {n: 1}}, multi: true}]}";
        expect(&fixture.ok("test", command), "nModified", 1000);
    }),
    row("bulk-update-1000", "1,000 updates by _id in a command", Some(24), numbered, |fixture| {
        let updates = joined(0..1000, |n| format!("{{q: {{_id: {n}}}, u: {{$inc: {{n: 1}}}}}}"));
        let command = format!("{{update: 'c', updates: [{updates}]}}");
        expect(&fixture.ok("test", &command), "nModified", 1000);
    }),
    row("bulk-upsert-1000", "1,000 upserts by _id in a command", Some(24), numbered, |fixture| {
        let upsert = |n: u32| format!("{{q: {{_id: {n}}}, u: {{$inc: {{n: 1}}}}, upsert: true}}");
        let command = format!("{{update: 'd', updates: [{}]}}", joined(0..1000, upsert));
        expect(&fixture.ok("test", &command), "n", 1000);
    }),
    row("bulk-delete-1000", "1,000 deletions by _id in a command", Some(24), numbered, |fixture| {
        let deletion = |n: u32| format!("{{q: {{_id: {n}}}, limit: 1}}");
        let command = format!("{{delete: 'c', deletes: [{}]}}", joined(0..1000, deletion));
        expect(&fixture.ok("test", &command), "n", 1000);
    }),
    row("delete-1000", "deleteMany of 1,000", Some(24), numbered, |fixture| {
        let command = "{delete: 'c', deletes: [{q: {}, limit: 0}]}";
        expect(&fixture.ok("test", command), "n", 1000);
    }),
    row("lookup-1000", "$lookup of 1,000 by an index", Some(40), numbered, look_up),
    row("lookup-id-1000", "$lookup of 1,000 by _id", None, numbered, |fixture| {
        let lookup = "{$lookup: {from: 'c', localField: 'u', foreignField: '_id', as: 'found'}}";
        let command =
            format!("{{aggregate: 'c', pipeline: [{lookup}], cursor: {{batchSize: 2000}}}}");
        assert_eq!(batch(&fixture.ok("test", &command)), 1000);
    }),
    row("graph-1000", "$graphLookup of 1,000, one step each", None, numbered, |fixture| {
        let lookup = "{$graphLookup: {from: 'c', startWith: '$u', connectFromField: 'u', connectToField: 'u', as: 'found'}}";
        let command =
            format!("{{aggregate: 'c', pipeline: [{lookup}], cursor: {{batchSize: 2000}}}}");
        assert_eq!(batch(&fixture.ok("test", &command)), 1000);
    }),
    row("union-10", "ten $unionWith of 100 each", None, numbered, |fixture| {
        let stages = joined(0..9, |n| {
            format!("{{$unionWith: {{coll: 'c', pipeline: [{{$match: {{k: {n}}}}}]}}}}")
        });
        let command = format!(
            "{{aggregate: 'c', pipeline: [{{$match: {{k: 9}}}}, {stages}], cursor: {{batchSize: 2000}}}}"
        );
        assert_eq!(batch(&fixture.ok("test", &command)), 1000);
    }),
    row("sort-1000", "find with a sort in memory", None, numbered, |fixture| {
        assert_eq!(batch(&fixture.ok("test", "{find: 'c', sort: {n: 1}, batchSize: 2000}")), 1000);
    }),
    row("distinct-10", "distinct of 10 values by an index", None, numbered, |fixture| {
        fixture.ok("test", "{distinct: 'c', key: 'k'}");
    }),
    row("distinct-1000", "distinct of 1,000 values by an index", None, numbered, |fixture| {
        fixture.ok("test", "{distinct: 'c', key: 'u'}");
    }),
    row("group-first", "$group of 10 values with $first by an index", None, numbered, |fixture| {
        let stages = "{$sort: {k: 1}}, {$group: {_id: '$k', n: {$first: '$n'}}}";
        fixture.ok("test", &format!("{{aggregate: 'c', pipeline: [{stages}], cursor: {{}}}}"));
    }),
    row("lookup-pipeline", "$lookup of 100 with a pipeline", None, numbered, |fixture| {
        let stage = "{$lookup: {from: 'c', let: {u: '$u'}, pipeline: [{$match: {$expr: {$eq: ['$u', '$$u']}}}], as: 'found'}}";
        let command = format!(
            "{{aggregate: 'c', pipeline: [{{$match: {{k: 5}}}}, {stage}], cursor: {{batchSize: 2000}}}}"
        );
        assert_eq!(batch(&fixture.ok("test", &command)), 100);
    }),
    row("update-by-index", "updateMany of 100 by an index", None, numbered, |fixture| {
        let command = "{update: 'c', updates: [{q: {k: 5}, u: {$inc: {n: 1}}, multi: true}]}";
        expect(&fixture.ok("test", command), "nModified", 100);
    }),
    row("bulk-by-index", "100 updates by an index in a command", None, numbered, |fixture| {
        let update = |n: u32| format!("{{q: {{u: {n}}}, u: {{$inc: {{n: 1}}}}}}");
        let command = format!("{{update: 'c', updates: [{}]}}", joined(0..100, update));
        expect(&fixture.ok("test", &command), "nModified", 100);
    }),
    row("capped-1000", "insertMany of 1,000 into a capped collection", None, capped, |fixture| {
        insert_into(fixture, "capped", 0..1000);
    }),
    row("series-1000", "insertMany of 1,000 measurements", None, series, |fixture| {
        let documents =
            joined(0..1000, |n| format!("{{t: Date(now + {n}), m: {}, a: {n}}}", n % 10));
        let command = format!("{{insert: 'series', documents: [{documents}]}}");
        expect(&fixture.ok("test", &command), "n", 1000);
    }),
    row("updates-looked-up", "1,000 change events with updateLookup", None, updated, |fixture| {
        let since =
            "{startAtOperationTime: Timestamp(1800000000, 2), fullDocument: 'updateLookup'}";
        let command = format!(
            "{{aggregate: 'c', pipeline: [{{$changeStream: {since}}}, {{$match: {{operationType: 'update'}}}}], cursor: {{batchSize: 2000}}}}"
        );
        assert_eq!(batch(&fixture.ok("test", &command)), 1000);
    }),
    row("collections-100", "listCollections of 100", None, many_collections, |fixture| {
        assert_eq!(
            batch(&fixture.ok("test", "{listCollections: 1, cursor: {batchSize: 200}}")),
            100
        );
    }),
    row("db-stats-100", "dbStats of 100 collections", None, many_collections, |fixture| {
        fixture.ok("test", "{dbStats: 1}");
    }),
    row("drop-100", "dropDatabase of 100 collections", None, many_collections, |fixture| {
        fixture.ok("test", "{dropDatabase: 1}");
    }),
    row("text-100", "$text that finds 100", None, worded, |fixture| {
        assert_eq!(
            batch(&fixture.ok("test", "{find: 'w', filter: {$text: {$search: 'pen'}}}")),
            100
        );
    }),
    row("near-100", "the 100 nearest points", None, worded, |fixture| {
        let near = "{p: {$nearSphere: {$geometry: {type: 'Point', coordinates: [0, 0]}}}}";
        let command = format!("{{find: 'w', filter: {near}, limit: 100}}");
        assert_eq!(batch(&fixture.ok("test", &command)), 100);
    }),
    row("create-index", "createIndexes over 1,000", None, numbered, |fixture| {
        fixture.ok("test", "{createIndexes: 'c', indexes: [{key: {n: 1}, name: 'n'}]}");
    }),
    row("validate-1000", "validate of 1,000", None, numbered, |fixture| {
        fixture.ok("test", "{validate: 'c'}");
    }),
    row("find-and-modify", "findAndModify by an index", None, numbered, |fixture| {
        fixture.ok("test", "{findAndModify: 'c', query: {u: 7}, update: {$inc: {n: 1}}}");
    }),
    row("upsert", "an upsert that inserts", None, numbered, |fixture| {
        let command = "{update: 'c', updates: [{q: {_id: -5}, u: {$inc: {n: 1}}, upsert: true}]}";
        expect(&fixture.ok("test", command), "n", 1);
    }),
    row("delete-id", "deleteOne by _id", None, numbered, |fixture| {
        expect(&fixture.ok("test", "{delete: 'c', deletes: [{q: {_id: 7}, limit: 1}]}"), "n", 1);
    }),
    row("merge-1000", "$merge of 1,000 into another collection", None, numbered, |fixture| {
        fixture.ok("test", "{aggregate: 'c', pipeline: [{$merge: {into: 'd'}}], cursor: {}}");
    }),
    row("out-1000", "$out of 1,000", None, numbered, |fixture| {
        fixture.ok("test", "{aggregate: 'c', pipeline: [{$out: 'd'}], cursor: {}}");
    }),
    row("expire-1000", "expiry of 1,000", Some(8), expiring, |fixture| {
        fixture.ttl_pass();
    }),
    row("secondary-id", "find by _id on a secondary", Some(1), numbered, find_by_id)
        .on_a_secondary(),
    row("secondary-100", "find 100 by an index on a secondary", Some(2), numbered, find_by_index)
        .on_a_secondary(),
    row(
        "secondary-count",
        "count of 1,000 by an index on a secondary",
        Some(1),
        numbered,
        count_by_index,
    )
    .on_a_secondary(),
    row("secondary-lookup", "$lookup of 1,000 on a secondary", Some(40), numbered, look_up)
        .on_a_secondary(),
    row("events-1000", "1,000 change events", Some(8), numbered, |fixture| {
        let since = "{startAtOperationTime: Timestamp(1800000000, 2)}";
        let command = format!(
            "{{aggregate: 'c', pipeline: [{{$changeStream: {since}}}], cursor: {{batchSize: 2000}}}}"
        );
        assert_eq!(batch(&fixture.ok("test", &command)), 1000);
    }),
    // An open transaction would not survive a restart.
    row("commit-100", "commit of a transaction with 100 writes", Some(1), transaction, |fixture| {
        fixture.ok("admin", &format!("{{commitTransaction: 1, {IN_TRANSACTION}}}"));
    })
    .without_restart(),
];

const IN_TRANSACTION: &str = "lsid: {id: BinData(4, 'AAAAAAAAAAAAAAAAAAAAAA==')}, txnNumber: NumberLong(1), autocommit: false";

const fn row(
    name: &'static str,
    title: &'static str,
    aim: Option<u64>,
    prepare: fn(&mut Fixture),
    run: fn(&mut Fixture),
) -> Operation {
    Operation { name, title, aim, prepare, run, server: Server::Restarted }
}

fn find_by_id(fixture: &mut Fixture) {
    assert_eq!(batch(&fixture.ok("test", "{find: 'c', filter: {_id: 7}}")), 1);
}

fn find_by_index(fixture: &mut Fixture) {
    assert_eq!(batch(&fixture.ok("test", "{find: 'c', filter: {k: 5}}")), 100);
}

fn count_by_index(fixture: &mut Fixture) {
    expect(&fixture.ok("test", "{count: 'c', query: {k: {$gte: 0}}}"), "n", 1000);
}

fn look_up(fixture: &mut Fixture) {
    let lookup = "{$lookup: {from: 'c', localField: 'u', foreignField: 'u', as: 'found'}}";
    let command = format!(
        "{{aggregate: 'c', pipeline: [{lookup}, {{$match: {{'found.n': {{$gte: 0}}}}}}], cursor: {{batchSize: 2000}}}}"
    );
    assert_eq!(batch(&fixture.ok("test", &command)), 1000);
}

fn joined(numbers: std::ops::Range<u32>, text: impl Fn(u32) -> String) -> String {
    numbers.map(text).collect::<Vec<_>>().join(", ")
}

fn batch(reply: &DocBuf) -> usize {
    let cursor = reply.as_doc().get("cursor").and_then(RawValue::as_document);
    let found = cursor.and_then(|cursor| cursor.get("firstBatch")?.as_array());
    found.map_or(0, |found| found.iter().count())
}

fn expect(reply: &DocBuf, field: &str, number: i32) {
    assert_eq!(reply.as_doc().get(field), Some(RawValue::Int32(number)), "{field}");
}

fn insert(fixture: &Fixture, numbers: std::ops::Range<u32>, wanted: i32) {
    let document = |n: u32| format!("{{_id: {n}, k: {}, u: {n}, n: 0}}", n / 100);
    let command = format!("{{insert: 'c', documents: [{}]}}", joined(numbers, document));
    expect(&fixture.ok("test", &command), "n", wanted);
}

/// 1,000 documents with an index on `k`, which 100 share, and a unique one on `u`.
fn numbered(fixture: &mut Fixture) {
    let indexes = "{key: {k: 1}, name: 'k'}, {key: {u: 1}, name: 'u', unique: true}";
    fixture.ok("test", &format!("{{createIndexes: 'c', indexes: [{indexes}]}}"));
    insert(fixture, 0..1000, 1000);
}

/// The same, and a session with a retryable write.
fn in_session(fixture: &mut Fixture) {
    numbered(fixture);
    update_retryably(fixture, 1);
}

fn update_retryably(fixture: &Fixture, number: u32) {
    let session = "lsid: {id: BinData(4, 'AAAAAAAAAAAAAAAAAAAAAA==')}";
    let update = "{q: {_id: 7}, u: {$inc: {n: 1}}}";
    let command =
        format!("{{update: 'c', updates: [{update}], {session}, txnNumber: NumberLong({number})}}");
    expect(&fixture.ok("test", &command), "nModified", 1);
}

fn three_indexes(fixture: &mut Fixture) {
    let indexes = "{key: {a: 1}, name: 'a'}, {key: {b: 1}, name: 'b'}, {key: {u: 1}, name: 'u', unique: true}";
    fixture.ok("test", &format!("{{createIndexes: 'c', indexes: [{indexes}]}}"));
    insert(fixture, 0..10, 10);
}

fn expiring(fixture: &mut Fixture) {
    let index = "{key: {d: 1}, name: 'd', expireAfterSeconds: 0}";
    fixture.ok("test", &format!("{{createIndexes: 'c', indexes: [{index}]}}"));
    let documents = joined(0..1000, |n| format!("{{_id: {n}, d: Date(now - 1000 + {n})}}"));
    expect(&fixture.ok("test", &format!("{{insert: 'c', documents: [{documents}]}}")), "n", 1000);
}

fn insert_into(fixture: &Fixture, name: &str, numbers: std::ops::Range<u32>) {
    let wanted = i32::try_from(numbers.len()).unwrap();
    let documents = joined(numbers, |n| format!("{{_id: {n}}}"));
    let command = format!("{{insert: '{name}', documents: [{documents}]}}");
    expect(&fixture.ok("test", &command), "n", wanted);
}

fn capped(fixture: &mut Fixture) {
    fixture.ok("test", "{create: 'capped', capped: true, size: 100000, max: 500}");
    insert_into(fixture, "capped", 5000..5500);
}

fn series(fixture: &mut Fixture) {
    fixture.ok("test", "{create: 'series', timeseries: {timeField: 't', metaField: 'm'}}");
}

fn updated(fixture: &mut Fixture) {
    numbered(fixture);
    for n in 0..1000 {
        let command =
            format!("{{update: 'c', updates: [{{q: {{_id: {n}}}, u: {{$inc: {{n: 1}}}}}}]}}");
        fixture.ok("test", &command);
    }
}

fn many_collections(fixture: &mut Fixture) {
    for n in 0..100 {
        insert_into(fixture, &format!("c{n}"), 0..1);
    }
}

fn worded(fixture: &mut Fixture) {
    let indexes = "{key: {s: 'text'}, name: 's'}, {key: {p: '2dsphere'}, name: 'p'}";
    fixture.ok("test", &format!("{{createIndexes: 'w', indexes: [{indexes}]}}"));
    let document = |n: u32| {
        let word = if n.is_multiple_of(10) { "pen" } else { "ink" };
        format!("{{_id: {n}, s: '{word}', p: [{}, {}]}}", n % 100, n / 100)
    };
    let command = format!("{{insert: 'w', documents: [{}]}}", joined(0..1000, document));
    expect(&fixture.ok("test", &command), "n", 1000);
}

fn transaction(fixture: &mut Fixture) {
    insert(fixture, 0..1000, 1000);
    let documents = joined(1000..1100, |n| format!("{{_id: {n}}}"));
    let command = format!(
        "{{insert: 'c', documents: [{documents}], {IN_TRANSACTION}, startTransaction: true}}"
    );
    expect(&fixture.ok("test", &command), "n", 100);
}

/// Opens an engine with this data, whose round trips are counted.
fn counted(data: &Arc<MemoryEngine>, counter: &Arc<RoundTripCounter>) -> OpenEngine {
    let engine = RoundTrips::new(data.clone(), counter.clone());
    let engine: Arc<dyn Engine> = Arc::new(Reopenable(Arc::new(engine)));
    Box::new(move || engine.clone())
}

fn count(operation: &Operation, delay: Duration) -> (u64, Duration) {
    let (data, counter) = (Arc::new(MemoryEngine::new()), Arc::<RoundTripCounter>::default());
    let mut fixture = Fixture::new(counted(&data, &counter));
    (operation.prepare)(&mut fixture);
    match operation.server {
        Server::Same => {}
        Server::Restarted => fixture.restart(),
        Server::Secondary => {
            fixture = fixture.secondary(counted(&data, &counter));
            (operation.run)(&mut fixture);
        }
    }
    counter.take();
    counter.delay(delay);
    let begun = std::time::Instant::now();
    (operation.run)(&mut fixture);
    (counter.take(), begun.elapsed())
}

fn path() -> PathBuf {
    crate_folder().join("round_trips.txt")
}

fn selected() -> Vec<&'static Operation> {
    environment::selected("ROUND_TRIPS", OPERATIONS.iter().collect(), |row| row.name.to_owned())
}

/// The count of an operation in the file.
fn kept(file: &str, name: &str) -> Option<u64> {
    let line = file.lines().find(|line| line.split_whitespace().next() == Some(name))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

#[test]
fn round_trips_do_not_grow() {
    let update = environment::number("UPDATE_ROUND_TRIPS") == Some(1);
    let file = std::fs::read_to_string(path()).unwrap_or_default();
    let mut written = String::from(
        "# Round trips to the store per operation, if the store is in another process.\n\
         # Written by UPDATE_ROUND_TRIPS=1, checked by the test round_trips_do_not_grow.\n\
         # operation, round trips, aim, description\n",
    );
    let mut wrong = Vec::new();
    for operation in selected() {
        let (trips, _) = count(operation, Duration::ZERO);
        let Operation { name, title, aim, .. } = operation;
        let aim = aim.map_or("-".into(), |aim| aim.to_string());
        writeln!(written, "{name:<18} {trips:>6} {aim:>4}   {title}").unwrap();
        match kept(&file, name) {
            Some(kept) if kept == trips => {}
            kept => wrong.push(format!("{name}: {trips}, kept {kept:?}")),
        }
    }
    if update {
        std::fs::write(path(), written).unwrap();
        return;
    }
    assert!(wrong.is_empty(), "round trips have changed:\n{}", wrong.join("\n"));
}

/// The first read over the network finds that definitions have changed, and the query begins again.
#[test]
fn a_secondary_answers_with_the_definitions_of_the_owner() {
    let (data, counter) = (Arc::new(MemoryEngine::new()), Arc::<RoundTripCounter>::default());
    let owner = Fixture::new(counted(&data, &counter));
    owner.ok("test", "{createIndexes: 'c', indexes: [{key: {a: 1}, name: 'a'}]}");
    owner.ok(
        "test",
        "{insert: 'c', documents: [{_id: 1, a: 1, d: Date(now - 5000)}, {_id: 2, a: 2}]}",
    );
    let secondary = owner.secondary(counted(&data, &counter));
    let queries = [
        "{find: 'c', filter: {a: {$gte: 1}}}",
        "{find: 'c', filter: {a: {$gte: 1}}, projection: {_id: 0, a: 1}}",
        "{find: 'c', filter: {b: 1}}",
        "{find: 'c', sort: {d: 1}}",
        "{aggregate: 'c', pipeline: [{$lookup: {from: 'c', localField: 'a', foreignField: 'a', as: 'x'}}, {$project: {n: {$size: '$x'}}}], cursor: {}}",
        "{distinct: 'c', key: 'a'}",
        "{count: 'c', query: {a: {$gte: 1}}}",
    ];
    let changes = [
        "{insert: 'c', documents: [{_id: 3, a: [1, 2], b: 1}]}",
        "{createIndexes: 'c', indexes: [{key: {b: 1}, name: 'b'}]}",
        "{createIndexes: 'c', indexes: [{key: {d: 1}, name: 'd', expireAfterSeconds: 0, ttl: {hideExpired: true}}]}",
        "{dropIndexes: 'c', index: 'b'}",
    ];
    for change in changes {
        // Each query is the first one on the secondary after a change of its own.
        for query in queries {
            let before = secondary.ok("test", query);
            assert_eq!(before, owner.ok("test", query), "{query} before {change}");
        }
        owner.ok("test", change);
        for (at, query) in queries.iter().enumerate() {
            owner.ok("test", &format!("{{create: 'other{at}'}}"));
            let after = secondary.ok("test", query);
            assert_eq!(after, owner.ok("test", query), "{query} after {change}");
            owner.ok("test", &format!("{{drop: 'other{at}'}}"));
        }
    }
}

/// Prints how long operations take when each round trip takes half a millisecond, and five.
#[test]
#[ignore = "takes a minute; it prints times and checks none"]
fn operations_over_a_slow_network() {
    for operation in selected() {
        let times = [500, 5_000].map(|micros| count(operation, Duration::from_micros(micros)).1);
        let [near, far] = times.map(|time| time.as_millis());
        println!("{:<18} {near:>6} ms {far:>6} ms   {}", operation.name, operation.title);
    }
}
