//! A server that is killed while it acknowledges writes, again and again: nothing acknowledged with
//! `w: "majority"` may be missing afterwards, and indexes must agree with records.

use mayfly_storage::ReadView;
use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::{Connection, Server};
use mayfly_base::{Namespace, SystemClock};
use mayfly_kv_rocksdb::{RocksEngine, RocksOptions};
use mayfly_storage::{Store, StoreOptions};
use mayfly_value::bson::{Document, doc};
use mayfly_value::{DocBuf, RawDoc, RawValue};
use mayfly_work::{OpCtx, OpRegistry};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

const ROUNDS: u32 = 20;
const WRITERS: u32 = 4;

/// The acknowledged state: `_id` to the value of `v`; `None` for a deleted document.
type Acknowledged = Arc<Mutex<BTreeMap<i64, Option<i32>>>>;

/// Inserts, updates and deletes until the connection breaks.
fn write_until_cut(mut client: Connection, writer: u32, round: u32, known: &Acknowledged) {
    let concern = doc! { "w": "majority" };
    for count in 0.. {
        let id = i64::from(round) * 1_000_000 + i64::from(writer) * 100_000 + count;
        let insert = doc! {
            "insert": "c", "$db": "crash", "writeConcern": concern.clone(),
            "documents": [{ "_id": id, "v": 0, "a": id % 17, "tags": ["x", id % 5], "words": "red pen" }],
        };
        if client.run(&insert).is_err() {
            return;
        }
        known.lock().unwrap().insert(id, Some(0));
        if count % 3 == 1 {
            let update = doc! {
                "update": "c", "$db": "crash", "writeConcern": concern.clone(),
                "updates": [{ "q": { "_id": id }, "u": { "$inc": { "v": 1 }, "$set": { "a": 99, "words": "ink" } } }],
            };
            // Until the reply arrives, either value may be found.
            known.lock().unwrap().remove(&id);
            if client.run(&update).is_err() {
                return;
            }
            known.lock().unwrap().insert(id, Some(1));
        }
        if count % 5 == 4 {
            let delete = doc! {
                "delete": "c", "$db": "crash", "writeConcern": concern.clone(),
                "deletes": [{ "q": { "_id": id }, "limit": 1 }],
            };
            known.lock().unwrap().remove(&id);
            if client.run(&delete).is_err() {
                return;
            }
            known.lock().unwrap().insert(id, None);
        }
    }
}

fn int(document: RawDoc<'_>, name: &str) -> i64 {
    match document.get(name) {
        Some(RawValue::Int32(value)) => i64::from(value),
        Some(RawValue::Int64(value)) => value,
        other => panic!("{name}: {other:?}"),
    }
}

fn check(client: &mut Connection, known: &Acknowledged, round: u32) {
    let find = |hint: Document| doc! { "find": "c", "filter": {}, "hint": hint, "$db": "crash" };
    let scanned = client.all(&find(doc! { "$natural": 1 }));
    let found: BTreeMap<i64, i64> =
        scanned.iter().map(|d| (int(d.as_doc(), "_id"), int(d.as_doc(), "v"))).collect();
    for (id, value) in known.lock().unwrap().iter() {
        match value {
            Some(value) => assert_eq!(
                found.get(id),
                Some(&i64::from(*value)),
                "round {round}: document {id} was acknowledged"
            ),
            None => {
                assert!(!found.contains_key(id), "round {round}: deletion of {id} was acknowledged")
            }
        }
    }
    for index in [doc! { "a": 1 }, doc! { "tags": 1 }, doc! { "v": 1, "a": -1 }] {
        let by_index = client.all(&find(index.clone()));
        assert_eq!(by_index.len(), scanned.len(), "round {round}: index {index}");
        for document in &by_index {
            let id = int(document.as_doc(), "_id");
            assert!(found.contains_key(&id), "round {round}: index {index} has a stray entry {id}");
        }
    }
    // `validate` waits until the follower has brought the log-fed index forward.
    let validated = client.ok(&doc! { "validate": "c", "$db": "crash" });
    assert_eq!(validated.as_doc().get("valid"), Some(RawValue::Bool(true)), "round {round}");
    let keys = validated.as_doc().get("keysPerIndex").and_then(RawValue::as_document).unwrap();
    let words = found.values().map(|updates| if *updates == 0 { 2 } else { 1 }).sum::<i64>();
    assert_eq!(int(keys, "words"), words, "round {round}: the log-fed index");
    let by_value = doc! { "find": "c", "filter": { "a": 99 }, "$db": "crash" };
    let plain = scanned.iter().filter(|d| int(d.as_doc(), "a") == 99).count();
    assert_eq!(client.all(&by_value).len(), plain, "round {round}: bounds on a");
    let count = client.ok(&doc! { "count": "c", "$db": "crash" });
    assert_eq!(int(count.as_doc(), "n"), scanned.len() as i64, "round {round}: count");
}

#[test]
fn nothing_acknowledged_is_lost_by_kill_9() {
    let folder = tempfile::tempdir().unwrap();
    let known: Acknowledged = Arc::default();
    let mut random = SmallRng::seed_from_u64(1);
    for round in 0..ROUNDS {
        let mut server = Server::start(folder.path());
        let mut client = server.connect();
        if round == 0 {
            client.ok(&doc! { "createIndexes": "c", "$db": "crash", "indexes": [
                { "key": { "a": 1 }, "name": "a_1" },
                { "key": { "tags": 1 }, "name": "tags_1" },
                { "key": { "v": 1, "a": -1 }, "name": "v_1_a_-1" },
                { "key": { "words": "fixtureWords" }, "name": "words" },
            ] });
        }
        check(&mut client, &known, round);
        std::thread::scope(|scope| {
            for writer in 0..WRITERS {
                let client = server.connect();
                let known = &known;
                scope.spawn(move || write_until_cut(client, writer, round, known));
            }
            // Uses real time: the kill must be possible at any point of a write.
            std::thread::sleep(Duration::from_millis(random.random_range(20..170)));
            server.child.kill().unwrap();
            server.child.wait().unwrap();
        });
    }
    let server = Server::start(folder.path());
    check(&mut server.connect(), &known, ROUNDS);
    assert!(known.lock().unwrap().len() > 100, "the writers did write");
}

/// T-50 with a real crash: after `kill -9` the policy exists, and deletes.
#[test]
fn t_50_a_ttl_index_survives_a_crash() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::start(folder.path());
    let mut client = server.connect();
    client.ok(&doc! { "createIndexes": "c", "$db": "crash", "indexes": [
        { "key": { "at": 1 }, "name": "at_1", "expireAfterSeconds": 0 },
    ] });
    let past = mayfly_value::bson::DateTime::from_millis(1000);
    client.ok(&doc! { "insert": "c", "$db": "crash", "documents": [{ "_id": 1, "at": past }, { "_id": 2 }] });
    server.child.kill().unwrap();
    server.child.wait().unwrap();
    // A pass of this process, so that the test does not wait for one.
    let clock = Arc::new(SystemClock::new());
    let engine = RocksEngine::open(folder.path(), RocksOptions::default()).unwrap();
    let options = StoreOptions { background: false, ..StoreOptions::default() };
    let store =
        Store::open(engine, options, clock.clone(), OpRegistry::new(clock.clone())).unwrap();
    let collection =
        store.collection(&ReadView::now(), &Namespace::parse("crash.c").unwrap()).unwrap();
    let count = || store.count_documents(&OpCtx::detached(clock.clone()), &collection).unwrap();
    assert_eq!(count(), 2);
    store.run_ttl_pass(&AtomicBool::new(false)).unwrap();
    assert_eq!(count(), 1);
    store.close().unwrap();
}

/// Waiting hellos are answered when the only member of a set steps down, and again when its time is
/// over: nothing but the clock elects it.
#[test]
fn a_waiting_hello_sees_a_step_down_and_the_next_election() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start_with(folder.path(), &["--replSet", "rs0"]);
    let (mut monitor, mut client) = (server.connect(), server.connect());
    let hello = |monitor: &mut Connection, seen: Option<DocBuf>| {
        let mut command = doc! { "hello": 1, "$db": "admin" };
        if let Some(seen) = seen {
            let version = Document::from_reader(seen.as_doc().as_bytes()).unwrap();
            command.extend(doc! { "topologyVersion": version, "maxAwaitTimeMS": 10_000_i64 });
        }
        let reply = monitor.ok(&command);
        let primary = reply.as_doc().get("isWritablePrimary") == Some(RawValue::Bool(true));
        let version = reply.as_doc().get("topologyVersion").and_then(RawValue::as_document);
        (primary, version.unwrap().to_owned())
    };
    let (primary, version) = hello(&mut monitor, None);
    assert!(primary);
    let began = std::time::Instant::now();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(move || {
            let (primary, version) = hello(&mut monitor, Some(version));
            assert!(!primary);
            hello(&mut monitor, Some(version)).0
        });
        std::thread::sleep(Duration::from_millis(100));
        client.ok(&doc! { "replSetStepDown": 1, "force": true, "$db": "admin" });
        assert!(waiting.join().unwrap());
    });
    assert!(began.elapsed() < Duration::from_secs(5), "the election went unnoticed");
}

/// A change stream continues after a kill and returns every event once.
#[test]
fn a_change_stream_continues_after_kill_9() {
    let folder = tempfile::tempdir().unwrap();
    let (mut seen, mut token, mut next) = (Vec::new(), None::<Document>, 0_i64);
    let mut acknowledged = 0;
    for round in 0..6_u64 {
        let mut server = Server::start(folder.path());
        let (mut reader, mut client) = (server.connect(), server.connect());
        client.ok(&doc! { "insert": "other", "$db": "crash", "documents": [{ "x": 1 }] });
        let stage = match &token {
            Some(token) => doc! { "resumeAfter": token.clone() },
            None => doc! {},
        };
        let mut reply = reader.ok(&doc! {
            "aggregate": "c", "pipeline": [{ "$changeStream": stage }], "cursor": {}, "$db": "crash",
        });
        std::thread::scope(|scope| {
            let writer = scope.spawn(move || {
                let (mut client, mut id, mut known) = (client, next, acknowledged);
                loop {
                    let insert = doc! { "insert": "c", "$db": "crash", "documents": [{ "_id": id }, { "_id": id + 1 }] };
                    if client.run(&insert).is_err() {
                        return (id + 2, known);
                    }
                    id += 2;
                    known = id;
                }
            });
            let began = std::time::Instant::now();
            let last = round == 5;
            while last || began.elapsed() < Duration::from_millis(80 + 37 * round) {
                let cursor = reply.as_doc().get("cursor").and_then(RawValue::as_document).unwrap();
                let batch = cursor.get("firstBatch").or(cursor.get("nextBatch"));
                for event in batch.and_then(RawValue::as_array).unwrap().iter() {
                    let event = event.value().as_document().unwrap();
                    let key = event.get("documentKey").and_then(RawValue::as_document).unwrap();
                    seen.push(int(key, "_id"));
                }
                let stands = cursor.get("postBatchResumeToken").and_then(RawValue::as_document);
                token = Some(Document::from_reader(stands.unwrap().as_bytes()).unwrap());
                if last && began.elapsed() > Duration::from_millis(300) {
                    break;
                }
                let Some(RawValue::Int64(id)) = cursor.get("id") else { panic!("{cursor:?}") };
                let size = 3 + round as i32;
                reply = reader.ok(&doc! { "getMore": id, "collection": "c", "batchSize": size, "maxTimeMS": 50, "$db": "crash" });
            }
            server.child.kill().unwrap();
            server.child.wait().unwrap();
            (next, acknowledged) = writer.join().unwrap();
        });
    }
    let server = Server::start(folder.path());
    let mut client = server.connect();
    let mut reply = client.ok(&doc! {
        "aggregate": "c", "pipeline": [{ "$changeStream": { "resumeAfter": token.unwrap() } }], "cursor": {}, "$db": "crash",
    });
    loop {
        let cursor = reply.as_doc().get("cursor").and_then(RawValue::as_document).unwrap();
        let batch = cursor.get("firstBatch").or(cursor.get("nextBatch"));
        let before = seen.len();
        for event in batch.and_then(RawValue::as_array).unwrap().iter() {
            let key = event.value().as_document().unwrap().get("documentKey");
            seen.push(int(key.and_then(RawValue::as_document).unwrap(), "_id"));
        }
        if seen.len() == before && cursor.get("nextBatch").is_some() {
            break;
        }
        let Some(RawValue::Int64(id)) = cursor.get("id") else { panic!("{cursor:?}") };
        reply =
            client.ok(&doc! { "getMore": id, "collection": "c", "maxTimeMS": 50, "$db": "crash" });
    }
    let stored = client.all(&doc! { "find": "c", "sort": { "_id": 1 }, "$db": "crash" });
    let stored: Vec<i64> = stored.iter().map(|document| int(document.as_doc(), "_id")).collect();
    assert!(acknowledged > 10 && stored.len() > 10);
    assert_eq!(seen, stored);
}

/// The log shows every document as it was inserted, though it was replaced, deleted or dropped
/// before a kill.
#[test]
fn the_log_has_its_documents_after_kill_9() {
    let folder = tempfile::tempdir().unwrap();
    let (mut next, mut acknowledged) = (0_i64, 0_usize);
    for round in 0..5_u64 {
        let mut server = Server::start(folder.path());
        let mut client = server.connect();
        let from = next;
        std::thread::scope(|scope| {
            let writer = scope.spawn(move || {
                let mut known = 0;
                for id in from.. {
                    let fresh = |id: i64| doc! { "_id": id, "x": id, "text": "y".repeat(300) };
                    let commands = [
                        doc! { "insert": "c", "$db": "crash", "documents": [fresh(3 * id), fresh(3 * id + 1), fresh(3 * id + 2)] },
                        doc! { "update": "c", "$db": "crash", "updates": [{ "q": { "_id": 3 * id }, "u": { "r": 1 } }] },
                        doc! { "delete": "c", "$db": "crash", "deletes": [{ "q": { "_id": 3 * id + 1 }, "limit": 1 }] },
                        doc! { "drop": "c", "$db": "crash" },
                    ];
                    let last = if id % 25 == 24 { 4 } else { 3 };
                    for command in &commands[..last] {
                        if client.run(command).is_err() {
                            return (id + 1, known);
                        }
                    }
                    known += 3;
                }
                (from, known)
            });
            std::thread::sleep(Duration::from_millis(150 + 61 * round));
            server.child.kill().unwrap();
            server.child.wait().unwrap();
            let (reached, known) = writer.join().unwrap();
            (next, acknowledged) = (reached, acknowledged + known);
        });
        let mut server = Server::start(folder.path());
        let mut client = server.connect();
        let entries = client.all(&doc! {
            "aggregate": "oplog.rs", "$db": "local", "cursor": { "batchSize": 1_000_000 },
            "pipeline": [{ "$unwind": "$o.applyOps" }, { "$match": { "o.applyOps.op": "i" } }, { "$replaceWith": "$o.applyOps.o" }],
        });
        assert!(entries.len() >= acknowledged, "{} of {acknowledged}", entries.len());
        for document in &entries {
            assert_eq!(int(document.as_doc(), "_id"), int(document.as_doc(), "x"));
        }
        let count = client.ok(&doc! { "count": "oplog.rs", "$db": "local" });
        let all =
            client.all(&doc! { "find": "oplog.rs", "$db": "local", "projection": { "ts": 1 }, "batchSize": 1_000_000 });
        assert_eq!(count.as_doc().get("n"), Some(RawValue::Int32(all.len() as i32)));
        server.child.kill().unwrap();
        server.child.wait().unwrap();
    }
    assert!(acknowledged > 100, "{acknowledged}");
}
