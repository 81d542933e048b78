//! Commands that run on the threads that read messages, and take long after all.

use std::io::Write;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mayfly_base::testing::wait_until;
use mayfly_base::{ErrorCode, SystemClock};
use mayfly_server::{StartOptions, start};
use mayfly_testkit::outside::TaskConnection;
use mayfly_value::RawValue;
use mayfly_value::bson::spec::BinarySubtype;
use mayfly_value::bson::{Binary, Document, doc};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::common::{self, Server};

/// More of them than the runtime has threads.
const ENDLESS: usize = 3;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn short_commands_are_answered_while_others_do_not_end() {
    let server = start(StartOptions::for_tests(Arc::new(SystemClock::new())).unwrap()).await;
    let server = server.unwrap();
    let mut client = TaskConnection::open(server.address()).await;
    let reply = client.run(doc! {"insert": "c", "documents": [{"_id": 1}]}).await;
    assert_eq!(reply.get_i32("n").unwrap(), 1);
    let body = "function() { while (true) {} }";
    let endless = doc! {
        "find": "c", "filter": {"_id": 1}, "maxTimeMS": 15_000,
        "projection": {"x": {"$function": {"body": body, "args": [], "lang": "js"}}}
    };
    let mut running = Vec::new();
    for _ in 0..ENDLESS {
        let (mut client, endless) = (TaskConnection::open(server.address()).await, endless.clone());
        running.push(tokio::spawn(async move { client.run(endless).await }));
    }
    let began = Instant::now();
    // All of them run, and leave threads for others.
    wait_until("they run", || server.service.ops.list().len() >= ENDLESS);
    for _ in 0..5 {
        assert_eq!(client.run(doc! {"ping": 1}).await, doc! {"ok": 1.0});
    }
    let shown = client.run(doc! {"currentOp": 1}).await;
    let shown = shown.get_array("inprog").unwrap();
    let finds = shown.iter().filter_map(|op| op.as_document()?.get_str("op").ok());
    let (shown, answered) = (finds.filter(|op| *op == "query").count(), began.elapsed());
    for op in server.service.ops.list() {
        op.kill(ErrorCode::Interrupted);
    }
    for one in running {
        let reply = one.await.unwrap();
        assert!(matches!(reply.get_i32("code"), Ok(50 | 11601)), "{reply}");
    }
    let ended = began.elapsed();
    server.stop().await.unwrap();
    assert!(answered < Duration::from_secs(8), "{answered:?}");
    assert!(ended < Duration::from_secs(12), "{ended:?}");
    assert_eq!(shown, ENDLESS);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_that_wait_for_fsync_unlock_let_it_through_and_are_done_once() {
    const WRITERS: i32 = 40;
    let server = start(StartOptions::for_tests(Arc::new(SystemClock::new())).unwrap()).await;
    let server = server.unwrap();
    let mut client = TaskConnection::open(server.address()).await;
    client.run(doc! {"insert": "c", "documents": [{"_id": 1, "n": 0}]}).await;
    assert_eq!(
        client.run(doc! {"fsync": 1, "lock": true}).await.get_i64("lockCount").ok(),
        Some(1)
    );
    // The same write twice, like a retry of a driver, and others concurrently.
    let again = doc! {
        "update": "c", "updates": [{"q": {"_id": 1}, "u": {"$inc": {"n": 1}}}],
        "lsid": {"id": Binary { subtype: BinarySubtype::Uuid, bytes: vec![7; 16] }}, "txnNumber": 1_i64
    };
    let other = doc! {"update": "c", "updates": [{"q": {"_id": 1}, "u": {"$inc": {"n": 100}}}]};
    let mut waiting = Vec::new();
    for number in 0..WRITERS {
        let command = if number < 2 { again.clone() } else { other.clone() };
        let mut client = TaskConnection::open(server.address()).await;
        waiting.push(tokio::spawn(async move { client.run(command).await }));
    }
    // One of the two that are the same waits for the other, not for the lock.
    wait_until("all of them wait", || server.service.ops.list().len() >= WRITERS as usize);
    assert_eq!(client.run(doc! {"ping": 1}).await, doc! {"ok": 1.0});
    assert_eq!(client.run(doc! {"fsyncUnlock": 1}).await.get_i64("lockCount").ok(), Some(0));
    for one in waiting {
        assert_eq!(one.await.unwrap().get_i32("n").ok(), Some(1));
    }
    let found = client.run(doc! {"find": "c"}).await;
    let found = found.get_document("cursor").unwrap().get_array("firstBatch").unwrap();
    assert_eq!(found[0].as_document().unwrap().get_i32("n").ok(), Some(1 + 100 * (WRITERS - 2)));
    server.stop().await.unwrap();
}

/// More conversions than the runtime has threads wait for a transaction, and take no thread from
/// others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conversions_to_capped_collections_leave_threads_to_others() {
    const CONVERSIONS: usize = 4;
    let server = start(StartOptions::for_tests(Arc::new(SystemClock::new())).unwrap()).await;
    let server = server.unwrap();
    let mut client = TaskConnection::open(server.address()).await;
    let session = doc! {"id": Binary { subtype: BinarySubtype::Uuid, bytes: vec![8; 16] }};
    let name = |number: usize| format!("c{number}");
    for number in 0..CONVERSIONS {
        client.run(doc! {"insert": name(number), "documents": [{"_id": 1}]}).await;
    }
    for number in 0..CONVERSIONS {
        let mut insert =
            doc! {"insert": name(number), "documents": [{"_id": 2}], "lsid": session.clone()};
        insert.extend(doc! {"txnNumber": 1_i64, "autocommit": false});
        if number == 0 {
            insert.insert("startTransaction", true);
        }
        assert_eq!(client.run(insert).await.get_i32("n").ok(), Some(1));
    }
    let mut running = Vec::new();
    for number in 0..CONVERSIONS {
        let mut client = TaskConnection::open(server.address()).await;
        let convert = doc! {"convertToCapped": name(number), "size": 10_000};
        running.push(tokio::spawn(async move { client.run(convert).await }));
    }
    wait_until("all of them wait", || server.service.ops.list().len() >= CONVERSIONS);
    assert_eq!(client.run(doc! {"ping": 1}).await, doc! {"ok": 1.0});
    let reply = client.run(doc! {"insert": "other", "documents": [{"_id": 1}]}).await;
    assert_eq!(reply.get_i32("n").ok(), Some(1));
    assert!(running.iter().all(|one| !one.is_finished()), "one did not wait");
    let commit = doc! {
        "commitTransaction": 1, "lsid": session, "txnNumber": 1_i64, "autocommit": false, "$db": "admin"
    };
    let committed = client.run(commit).await;
    assert_eq!(committed.get_f64("ok").ok(), Some(1.0), "{committed}");
    for one in running {
        let reply = one.await.unwrap();
        assert_eq!(reply.get_f64("ok").ok(), Some(1.0), "{reply}");
    }
    for number in 0..CONVERSIONS {
        let counted = client.run(doc! {"count": name(number)}).await;
        assert_eq!(counted.get_i32("n").ok(), Some(2));
    }
    server.stop().await.unwrap();
}

/// A stage that computes for long, with little memory.
fn long_sums() -> Document {
    let each = doc! {"$map": {"input": {"$range": [0, 1000]}, "in": {"$add": ["$$this", "$_id"]}}};
    let sums =
        doc! {"$map": {"input": {"$range": [0, {"$add": ["$_id", 30_000]}]}, "in": {"$sum": each}}};
    doc! {"$project": {"x": {"$sum": sums}}}
}

/// Keeps a server busy; returns the connections, which are not read.
fn keep_busy(server: &Server) -> Vec<common::Connection> {
    let mut client = server.connect();
    let db = "test";
    client.ok(&doc! {"insert": "c", "documents": [{"_id": 1}], "$db": db});
    let doubled = doc! {"$reduce": {
        "input": {"$range": [0, 22]}, "initialValue": "a", "in": {"$concat": ["$$value", "$$value"]}
    }};
    client.ok(&doc! {
        "aggregate": "c", "pipeline": [{"$project": {"s": doubled}}, {"$out": "text"}], "cursor": {}, "$db": db
    });
    let loops =
        doc! {"$function": {"body": "function() { for (;;) {} }", "args": [], "lang": "js"}};
    let sums = long_sums();
    let stream =
        doc! {"aggregate": "c", "pipeline": [{"$changeStream": {}}], "cursor": {}, "$db": db};
    let pattern = doc! {"s": {"$regex": "(?=a{0,900}[^=]*+=)a|(?=c)c|d"}};
    let mut busy = Vec::new();
    for number in 0..20 {
        let mut follows = server.connect();
        let stream = follows.ok(&stream);
        let cursor = stream.as_doc().get("cursor").and_then(RawValue::as_document).unwrap();
        let Some(RawValue::Int64(cursor)) = cursor.get("id") else { panic!("{cursor:?}") };
        let more = doc! {"getMore": cursor, "collection": "c", "maxTimeMS": 600_000, "$db": db};
        follows.stream.write_all(&common::message(&more)).unwrap();
        busy.push(follows);
        for command in [
            doc! {"aggregate": "c", "pipeline": [{"$project": {"x": &loops}}], "cursor": {}, "$db": db},
            doc! {"aggregate": "c", "pipeline": [&sums], "cursor": {}, "$db": db},
            doc! {"find": "text", "filter": &pattern, "$db": db},
        ] {
            let mut other = server.connect();
            // The second one begins when the first one has ended.
            other.stream.write_all(&common::message(&command)).unwrap();
            other.stream.write_all(&common::message(&command)).unwrap();
            busy.push(other);
        }
        if number == 0 {
            client.ok(&doc! {"fsync": 1, "lock": true, "$db": "admin"});
        }
        let mut waits = server.connect();
        let insert = doc! {"insert": "c", "documents": [{"_id": 2}], "$db": db};
        waits.stream.write_all(&common::message(&insert)).unwrap();
        busy.push(waits);
    }
    busy.push(client);
    busy
}

/// A busy server took more than ten seconds once.
const ENDS_WITHIN: Duration = Duration::from_secs(9);

fn ends_soon(stop: impl FnOnce(&mut Server, common::Connection)) {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::start(folder.path());
    let busy = keep_busy(&server);
    let client = server.connect();
    let began = Instant::now();
    stop(&mut server, client);
    let ended = server.child.wait().unwrap();
    assert!(ended.success() && began.elapsed() < ENDS_WITHIN, "{ended} {:?}", began.elapsed());
    drop(busy);
}

#[test]
fn a_busy_server_ends_on_request() {
    ends_soon(|_, mut client| drop(client.ok(&doc! {"shutdown": 1, "$db": "admin"})));
}

#[test]
fn a_busy_server_ends_by_a_signal() {
    ends_soon(|server, _| {
        let pid = server.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    });
}

/// The number of clients that wait for a lock, and of those that compute. (An unoptimised server on
/// a busy machine would need more than a minute to start more of them.)
const WAITING: usize = 600;
const COMPUTING: usize = 40;
/// The longest time of an answer. On an idle machine it takes a tenth of a second at most.
const ANSWERED_WITHIN: Duration = Duration::from_secs(5);

/// Each of them needs a socket at either end.
fn allow_many_sockets() {
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}

#[test]
fn administrative_commands_are_answered_while_many_wait_and_many_compute() {
    allow_many_sockets();
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::start(folder.path());
    let mut client = server.connect();
    client.ok(&doc! {"insert": "c", "documents": [{"_id": 1}], "$db": "test"});
    client.ok(&doc! {"fsync": 1, "lock": true, "$db": "admin"});
    let computes = doc! {"aggregate": "c", "pipeline": [long_sums()], "cursor": {}, "$db": "test"};
    let waits = doc! {"insert": "c", "documents": [{"x": 1}], "$db": "test"};
    let mut busy = Vec::new();
    for (command, clients) in [(&waits, WAITING), (&computes, COMPUTING)] {
        let message = common::message(command);
        for _ in 0..clients {
            let mut other = server.connect();
            other.stream.write_all(&message).unwrap();
            busy.push(other);
        }
    }
    let mut longest: Vec<(&str, Duration)> = Vec::new();
    let mut timed = |client: &mut common::Connection, name: &'static str, command: &Document| {
        let began = Instant::now();
        let reply = client.ok(command);
        longest.push((name, began.elapsed()));
        reply
    };
    let began = Instant::now();
    let (mut shown, mut computing) = (0, None);
    while shown < WAITING + COMPUTING && began.elapsed() < Duration::from_secs(60) {
        let reply = timed(&mut client, "currentOp", &doc! {"currentOp": 1, "$db": "admin"});
        let inprog = reply.as_doc().get("inprog").and_then(RawValue::as_array).unwrap();
        shown = inprog.iter().count();
        let ops = inprog.iter().filter_map(|op| op.value().as_document());
        let mut aggregates = ops.filter(|op| op.get("op") == Some(RawValue::String("command")));
        computing = aggregates.find_map(|op| match (op.get("opid"), op.get("ns")) {
            (Some(RawValue::Int32(id)), Some(RawValue::String("test.c"))) => Some(id),
            _ => None,
        });
    }
    assert!(shown >= WAITING + COMPUTING, "{shown} operations");
    let computing = computing.unwrap();
    for _ in 0..3 {
        for (name, command) in [
            ("hello", doc! {"hello": 1, "$db": "admin"}),
            ("ping", doc! {"ping": 1, "$db": "admin"}),
            ("currentOp", doc! {"currentOp": 1, "$db": "admin"}),
            ("serverStatus", doc! {"serverStatus": 1, "$db": "admin"}),
            ("killOp", doc! {"killOp": 1, "op": computing, "$db": "admin"}),
        ] {
            timed(&mut client, name, &command);
            // Also on a connection of its own.
            timed(&mut server.connect(), name, &command);
        }
    }
    timed(&mut client, "fsyncUnlock", &doc! {"fsyncUnlock": 1, "$db": "admin"});
    timed(&mut client, "shutdown", &doc! {"shutdown": 1, "$db": "admin"});
    let began = Instant::now();
    assert!(server.child.wait().unwrap().success());
    println!("{longest:?}, ended after {:?}", began.elapsed());
    longest.retain(|(_, time)| *time > ANSWERED_WITHIN);
    assert!(longest.is_empty(), "{longest:?}");
}
