//! Change streams that wait while unrelated data is written: they do not run, read nothing, and
//! miss nothing.

use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use mayfly_commands::DataWait;
use mayfly_testkit::{Fixture, memory};
use mayfly_value::RawDoc;
use mayfly_value::bson::Document;

struct Stream {
    cursor: i64,
    name: String,
    db: &'static str,
}

fn to_bson(document: RawDoc<'_>) -> Document {
    let mut bytes = document.as_bytes();
    Document::from_reader(&mut bytes).unwrap_or_default()
}

impl Stream {
    /// A stream over a collection of `test`, over a database (`test.`), or over all of them (an
    /// empty string).
    fn open(f: &Fixture, scope: &str) -> Stream {
        let (db, target, options) = match scope.split_once('.') {
            None => ("admin", "1".to_owned(), ", allChangesForCluster: true"),
            Some(("test", "")) => ("test", "1".to_owned(), ""),
            Some(("other", "")) => ("other", "1".to_owned(), ""),
            Some((_, name)) => ("test", format!("'{name}'"), ""),
        };
        let stage = format!("{{$changeStream: {{showExpandedEvents: true{options}}}}}");
        let reply =
            f.ok(db, &format!("{{aggregate: {target}, pipeline: [{stage}], cursor: {{}}}}"));
        let reply = to_bson(reply.as_doc());
        let cursor = reply.get_document("cursor").unwrap();
        let ns = cursor.get_str("ns").unwrap();
        let name = ns.split_once('.').unwrap().1.to_owned();
        Stream { cursor: cursor.get_i64("id").unwrap(), name, db }
    }

    fn get_more(&self, max_time_ms: i64) -> String {
        let Stream { cursor, name, .. } = self;
        format!(
            "{{getMore: NumberLong('{cursor}'), collection: '{name}', maxTimeMS: {max_time_ms}}}"
        )
    }

    fn waits_for(&self, f: &Fixture) -> DataWait {
        let wait = f.waits_for(self.db, &self.get_more(600_000));
        let wait = wait.expect("nothing has happened yet");
        assert_eq!(wait.longest, Duration::from_secs(600), "it does not run without a change");
        wait
    }

    /// The types of the returned events, and the position of the stream.
    fn batch(&self, f: &Fixture) -> (Vec<String>, String) {
        let reply = to_bson(f.ok(self.db, &self.get_more(1)).as_doc());
        let cursor = reply.get_document("cursor").unwrap();
        let batch = cursor.get_array("nextBatch").unwrap().iter();
        let kind = |event: &Document| event.get_str("operationType").unwrap().to_owned();
        let kinds = batch.map(|event| kind(event.as_document().unwrap())).collect();
        let token = cursor.get_document("postBatchResumeToken").unwrap();
        (kinds, token.get_str("_data").unwrap().to_owned())
    }
}

/// A wait as in the connection loop.
struct Waiting<'f>(Pin<Box<dyn Future<Output = ()> + 'f>>);

impl<'f> Waiting<'f> {
    fn begin(f: &'f Fixture, wait: &'f DataWait) -> Waiting<'f> {
        let mut waiting = Waiting(Box::pin(wait.awaited.wait_past(f.store(), wait.seen)));
        assert!(!waiting.is_over(), "before anything has happened");
        waiting
    }

    fn is_over(&mut self) -> bool {
        let mut context = Context::from_waker(Waker::noop());
        pin!(&mut self.0).poll(&mut context) == Poll::Ready(())
    }
}

fn entries_read(f: &Fixture) -> i64 {
    let status = f.ok("admin", "{serverStatus: 1}");
    let status = to_bson(status.as_doc());
    let metrics = status.get_document("metrics").unwrap();
    metrics.get_document("changeStreams").unwrap().get_i64("logEntriesRead").unwrap()
}

fn transaction(f: &Fixture, number: i64, statements: &[&str]) {
    let session = "lsid: {id: BinData(4, 'AwMDAwMDAwMDAwMDAwMDAw==')}";
    let of = format!("{session}, txnNumber: NumberLong('{number}'), autocommit: false");
    for (at, statement) in statements.iter().enumerate() {
        let begin = if at == 0 { ", startTransaction: true" } else { "" };
        f.ok("test", &format!("{{{statement}, {of}{begin}}}"));
    }
    f.ok("admin", &format!("{{commitTransaction: 1, {of}}}"));
}

#[test]
fn writes_to_other_collections_wake_no_stream() {
    let f = Fixture::new(memory());
    for name in ["c", "d"] {
        f.ok("test", &format!("{{insert: '{name}', documents: [{{_id: -1}}]}}"));
    }
    let mut streams: Vec<Stream> = (0..50).map(|_| Stream::open(&f, "test.c")).collect();
    streams.extend((0..10).map(|_| Stream::open(&f, "other.")));
    let waits: Vec<DataWait> = streams.iter().map(|stream| stream.waits_for(&f)).collect();
    let mut waiting: Vec<Waiting<'_>> = waits.iter().map(|wait| Waiting::begin(&f, wait)).collect();
    let (read, (_, before)) = (entries_read(&f), streams[0].batch(&f));
    for id in 0..50 {
        f.ok(
            "test",
            &format!("{{insert: 'd', documents: [{{_id: {id}}}, {{_id: {}}}]}}", id + 100),
        );
    }
    f.ok("test", "{update: 'd', updates: [{q: {}, u: {$set: {a: 1}}, multi: true}]}");
    f.ok("test", "{delete: 'd', deletes: [{q: {_id: {$lt: 20}}, limit: 0}]}");
    f.ok("test", "{createIndexes: 'd', indexes: [{key: {a: 1}, name: 'a_1'}]}");
    transaction(
        &f,
        1,
        &[
            "insert: 'd', documents: [{_id: 'a'}]",
            "delete: 'd', deletes: [{q: {_id: 30}, limit: 1}]",
        ],
    );
    f.ok("test", "{drop: 'd'}");
    f.ok("admin", "{appendOplogNote: 1, data: {a: 1}}");
    assert!(waiting.iter_mut().all(|waiting| !waiting.is_over()));
    // They are at the end of the log nevertheless, and have read nothing.
    let (kinds, after) = streams[0].batch(&f);
    assert!(kinds.is_empty() && after > before, "{before} {after}");
    let (_, now) = Stream::open(&f, "test.c").batch(&f);
    assert_eq!(after, now);
    assert_eq!(entries_read(&f), read);

    f.ok("test", "{insert: 'c', documents: [{_id: 1}]}");
    let (of_c, of_other) = waiting.split_at_mut(50);
    assert!(of_c.iter_mut().all(Waiting::is_over));
    assert!(of_other.iter_mut().all(|waiting| !waiting.is_over()));
    for stream in &streams[..50] {
        assert_eq!(stream.batch(&f).0, ["insert"]);
    }
    // Each of them reads the one entry.
    assert_eq!(entries_read(&f), read + 50);
}

/// Commands, and which streams they concern: over `test.c`, `test`, `other`, everything.
const CASES: &[(&str, &str, [bool; 4])] = &[
    ("test", "{insert: 'c', documents: [{_id: 1}]}", [true, true, false, true]),
    ("test", "{insert: 'c', documents: [{_id: 2}, {_id: 3}]}", [true, true, false, true]),
    ("test", "{insert: 'd', documents: [{_id: 1}]}", [false, true, false, true]),
    ("other", "{insert: 'c', documents: [{_id: 1}]}", [false, false, true, true]),
    ("config", "{insert: 'c', documents: [{_id: 1}]}", [false, false, false, false]),
    ("test", "{update: 'c', updates: [{q: {_id: 1}, u: {a: 2}}]}", [true, true, false, true]),
    (
        "test",
        "{update: 'c', updates: [{q: {_id: 1}, u: {$set: {a: 3}}}]}",
        [true, true, false, true],
    ),
    ("test", "{delete: 'c', deletes: [{q: {_id: 2}, limit: 1}]}", [true, true, false, true]),
    ("test", "{delete: 'c', deletes: [{q: {_id: 2}, limit: 1}]}", [false; 4]),
    (
        "test",
        "{createIndexes: 'c', indexes: [{key: {a: 1}, name: 'a_1'}]}",
        [true, true, false, true],
    ),
    ("test", "{collMod: 'c', index: {name: 'a_1', hidden: true}}", [true, true, false, true]),
    ("test", "{dropIndexes: 'c', index: 'a_1'}", [true, true, false, true]),
    ("other", "{create: 'e'}", [false, false, true, true]),
    ("test", "{create: 'ts', timeseries: {timeField: 't'}}", [false, true, false, true]),
    ("test", "{drop: 'v'}", [false, true, false, true]),
    ("admin", "{renameCollection: 'test.d', to: 'test.e'}", [false, true, false, true]),
    (
        "admin",
        "{renameCollection: 'test.e', to: 'test.c', dropTarget: true}",
        [true, true, false, true],
    ),
    ("admin", "{renameCollection: 'test.c', to: 'test.f'}", [true, true, false, true]),
    ("test", "{insert: 'c', documents: [{_id: 1}]}", [true, true, false, true]),
    ("test", "{drop: 'f'}", [false, true, false, true]),
    ("test", "{drop: 'c'}", [true, true, false, true]),
    ("test", "{insert: 'c', documents: [{_id: 1}]}", [true, true, false, true]),
    ("other", "{dropDatabase: 1}", [false, false, true, true]),
    ("test", "{dropDatabase: 1}", [true, true, false, true]),
];

#[test]
fn what_concerns_a_stream_wakes_it() {
    let f = Fixture::new(memory());
    // Its creation wakes all streams, because the log refers to the document with its name.
    f.ok("test", "{create: 'v', viewOn: 'c', pipeline: []}");
    let mut wrong = Vec::new();
    for (db, command, concerned) in CASES {
        let scopes = ["test.c", "test.", "other.", ""];
        let streams = scopes.map(|scope| Stream::open(&f, scope));
        let waits = streams.each_ref().map(|stream| stream.waits_for(&f));
        let mut waiting = waits.each_ref().map(|wait| Waiting::begin(&f, wait));
        f.ok(db, command);
        for (at, scope) in scopes.iter().enumerate() {
            let woken = waiting[at].is_over();
            let (events, _) = streams[at].batch(&f);
            if woken != concerned[at] || woken == events.is_empty() {
                wrong.push(format!("{command}: '{scope}' woken: {woken}, {events:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn a_transaction_wakes_those_whose_collections_it_wrote_to() {
    let f = Fixture::new(memory());
    for name in ["c", "d", "e"] {
        f.ok("test", &format!("{{create: '{name}'}}"));
    }
    // A transaction with two entries, because one would be too long: the first is about `c`, the
    // timestamp of the commit is that of the second.
    let long = "x".repeat(9 << 20);
    let of_d = format!("insert: 'd', documents: [{{_id: 1, t: '{long}'}}]");
    let also = format!("insert: 'd', documents: [{{_id: 2, t: '{long}'}}]");
    let [c, d, e] = ["test.c", "test.d", "test.e"].map(|scope| Stream::open(&f, scope));
    let waits = [&c, &d, &e].map(|stream| stream.waits_for(&f));
    let mut waiting = waits.each_ref().map(|wait| Waiting::begin(&f, wait));
    transaction(&f, 1, &["insert: 'c', documents: [{_id: 1}]", &of_d, &also]);
    assert_eq!(waiting.each_mut().map(Waiting::is_over), [true, true, false]);
    assert_eq!(c.batch(&f).0, ["insert"]);
    // A batch has no room for both.
    assert_eq!([d.batch(&f).0, d.batch(&f).0], [["insert"], ["insert"]]);
    assert!(e.batch(&f).0.is_empty());
}

#[test]
fn a_stream_that_lags_far_misses_nothing() {
    let f = Fixture::new(memory());
    let insert = |name: &str, id: i32| {
        f.ok("test", &format!("{{insert: '{name}', documents: [{{_id: {id}}}]}}"));
    };
    let streams = [Stream::open(&f, "test.c"), Stream::open(&f, "test.c")];
    let mut events = [0, 0];
    // More entries than a watch notes, with others between them; the second stream reads meanwhile.
    for id in 0..700 {
        insert("d", id);
        if id % 2 == 0 {
            insert("c", id);
        }
        if id % 50 == 0 {
            events[1] += streams[1].batch(&f).0.len();
        }
    }
    for (stream, events) in streams.iter().zip(&mut events) {
        loop {
            let (kinds, _) = stream.batch(&f);
            if kinds.is_empty() {
                break;
            }
            *events += kinds.len();
        }
    }
    // The creation of the collection is an event, too.
    assert_eq!(events, [351, 351]);
    for id in 700..710 {
        insert("d", id);
    }
    let read = entries_read(&f);
    for stream in &streams {
        let wait = stream.waits_for(&f);
        assert!(!Waiting::begin(&f, &wait).is_over());
    }
    assert_eq!(entries_read(&f), read);
}
