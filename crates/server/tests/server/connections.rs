//! A whole server inside this process, with the memory engine, and clients that send bytes.

use std::sync::Arc;

use mayfly_base::testing::wait_until;
use mayfly_base::{ManualClock, SystemClock};
use mayfly_server::{Running, StartOptions, start};
use mayfly_testkit::outside::{TaskConnection, decode};
use mayfly_value::bson::{Document, doc};
use mayfly_wire::{Compressor, Flags};
use tokio::io::AsyncWriteExt;

pub(crate) async fn server() -> Running {
    let clock = Arc::new(ManualClock::at_ms(1_700_000_000_000));
    start(StartOptions::for_tests(clock).unwrap()).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_are_answered_in_kind() {
    let server = server().await;
    let mut client = TaskConnection::open(server.address()).await;
    assert_eq!(client.run(doc! {"ping": 1}).await, doc! {"ok": 1.0});
    for compressor in [Compressor::Snappy, Compressor::Zlib, Compressor::Zstd] {
        client.send(doc! {"ping": 1}, Flags::CHECKSUM_PRESENT, Some(compressor)).await;
        let reply = client.receive().await.unwrap();
        assert_eq!(reply.compressor, Some(compressor));
        assert!(reply.flags.contains(Flags::CHECKSUM_PRESENT));
    }
    // A request that announces more requests gets no reply; the next one does.
    client.send(doc! {"nonsense": 1}, Flags::MORE_TO_COME, None).await;
    assert_eq!(client.run(doc! {"nonsense": 1}).await.get_i32("code").unwrap(), 59);
    let status = client.run(doc! {"serverStatus": 1}).await;
    let network = status.get_document("network").unwrap();
    assert_eq!(network.get_i64("numRequests").unwrap(), 7);
    server.stop().await.unwrap();
    assert!(client.receive().await.is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn malformed_content_is_answered_and_malformed_frames_close() {
    let server = server().await;
    let mut client = TaskConnection::open(server.address()).await;
    // A section of an unknown kind in a valid frame.
    let mut bytes = vec![21, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0];
    bytes.extend_from_slice(&2013i32.to_le_bytes());
    bytes.extend_from_slice(&[0, 0, 0, 0, 7]);
    client.stream.write_all(&bytes).await.unwrap();
    let reply = client.receive().await.unwrap();
    assert_eq!(reply.header.response_to, 9);
    assert_eq!(decode(&reply).get_i32("code").unwrap(), 40432);
    for name in ["$clusterTime", "operationTime"] {
        assert!(reply.document().get(name).is_some(), "{name}");
    }
    assert_eq!(client.run(doc! {"ping": 1}).await, doc! {"ok": 1.0});
    client.stream.write_all(&[1, 0, 0, 0]).await.unwrap();
    assert!(client.receive().await.is_none());
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_hellos_stream_and_end_with_the_server() {
    let server = server().await;
    let mut client = TaskConnection::open(server.address()).await;
    let hello = client.run(doc! {"hello": 1}).await;
    let version = hello.get_document("topologyVersion").unwrap().clone();
    let awaiting = doc! {"hello": 1, "topologyVersion": version, "maxAwaitTimeMS": 600_000};
    let id = client.send(awaiting, Flags::EXHAUST_ALLOWED, None).await;
    // Topology changes before the wait begins are not missed, because of the counter.
    server.service.topology.changed();
    let first = client.receive().await.unwrap();
    assert_eq!(first.header.response_to, id);
    assert!(first.flags.contains(Flags::MORE_TO_COME));
    server.service.topology.changed();
    let second = client.receive().await.unwrap();
    assert_eq!(second.header.response_to, first.header.request_id);
    let stopped = tokio::spawn(server.stop());
    let last = client.receive().await.unwrap();
    assert!(!last.flags.contains(Flags::MORE_TO_COME));
    assert_eq!(decode(&last).get_i32("code").unwrap(), 91);
    assert!(client.receive().await.is_none());
    stopped.await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn batches_stream_until_the_cursor_ends() {
    let server = server().await;
    let mut client = TaskConnection::open(server.address()).await;
    let documents: Vec<_> = (0..7).map(|id| doc! {"_id": id}).collect();
    client.run(doc! {"insert": "streamed", "documents": documents, "$db": "test"}).await;
    let found = client.run(doc! {"find": "streamed", "batchSize": 2, "$db": "test"}).await;
    let id = found.get_document("cursor").unwrap().get_i64("id").unwrap();
    let more = doc! {"getMore": id, "collection": "streamed", "batchSize": 2, "$db": "test"};
    let mut asked = client.send(more, Flags::EXHAUST_ALLOWED, None).await;
    let mut sizes = Vec::new();
    loop {
        let reply = client.receive().await.unwrap();
        assert_eq!(reply.header.response_to, asked);
        asked = reply.header.request_id;
        let streams = reply.flags.contains(Flags::MORE_TO_COME);
        let reply = decode(&reply);
        let cursor = reply.get_document("cursor").unwrap();
        sizes.push(cursor.get_array("nextBatch").unwrap().len());
        assert_eq!(streams, cursor.get_i64("id").unwrap() != 0);
        if !streams {
            break;
        }
    }
    assert_eq!(sizes, [2, 2, 1]);
    // The connection accepts further commands.
    assert_eq!(client.run(doc! {"ping": 1}).await.get_f64("ok").unwrap(), 1.0);
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_port_in_use_is_named() {
    let server = server().await;
    let clock = Arc::new(ManualClock::at_ms(0));
    let mut options = StartOptions::for_tests(clock).unwrap();
    options.config.port = server.address().port();
    let why = start(options).await.err().unwrap();
    assert!(why.to_string().contains(&server.address().to_string()), "{why:#}");
    server.stop().await.unwrap();
}

/// With few descriptors the server refuses connections before the engine lacks them for its files.
#[test]
fn connections_leave_descriptors_to_the_engine() {
    const LIMIT: usize = 160;
    let folder = tempfile::tempdir().unwrap();
    let mut command = std::process::Command::new("sh");
    let program = env!("CARGO_BIN_EXE_mayflydb");
    // The soft limit alone is raised by the server: only the hard one counts.
    let limited = format!("ulimit -S -n 32; ulimit -H -n {LIMIT}; exec {program} \"$@\"");
    command.args(["-c", &limited, "sh"]);
    let server = crate::common::Server::start_by(command, folder.path(), &[]);
    let mut clients: Vec<_> = (0..2 * LIMIT).map(|_| server.connect()).collect();
    let ping = mayfly_value::bson::doc! { "ping": 1, "$db": "admin" };
    clients.retain_mut(|client| client.run(&ping).is_ok());
    assert!((32..LIMIT - 64).contains(&clients.len()), "{} connections", clients.len());
    // Opens files: logs, tables, spill files of sorts.
    let client = &mut clients[0];
    for round in 0..20 {
        let documents: Vec<_> = (0..50).map(|n| doc! { "n": n, "round": round }).collect();
        client.ok(&doc! { "insert": "c", "documents": documents, "$db": "test" });
        client.ok(&doc! { "compact": "c", "$db": "test" });
    }
    let found = client.ok(&doc! { "count": "c", "$db": "test" });
    assert_eq!(found.as_doc().get("n"), Some(mayfly_value::RawValue::Int32(1000)));
    // A new connection is accepted when others have been closed.
    clients.truncate(1);
    let come = || server.connect().run(&ping).is_ok();
    wait_until("a connection is let in", come);
}

/// A server with a clock that the operations observe.
async fn server_in_time() -> Running {
    start(StartOptions::for_tests(Arc::new(SystemClock::new())).unwrap()).await.unwrap()
}

/// A find that never ends.
fn endless() -> Document {
    let body = "function() { while (true) {} }";
    let script = doc! {"$function": {"body": body, "args": [], "lang": "js"}};
    doc! {"find": "c", "filter": {"_id": 1}, "projection": {"x": script}, "$db": "test"}
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operations_end_with_their_clients() {
    let server = server_in_time().await;
    let mut client = TaskConnection::open(server.address()).await;
    client.run(doc! {"insert": "c", "documents": [{"_id": 1}], "$db": "test"}).await;
    let hello = client.run(doc! {"hello": 1}).await;
    let version = hello.get_document("topologyVersion").unwrap().clone();
    // One operation that computes, two that wait for events which do not happen.
    let mut computes = TaskConnection::open(server.address()).await;
    computes.send(endless(), Flags::empty(), None).await;
    let mut greets = TaskConnection::open(server.address()).await;
    let awaiting = doc! {"hello": 1, "topologyVersion": version, "maxAwaitTimeMS": 600_000};
    greets.send(awaiting, Flags::EXHAUST_ALLOWED, None).await;
    let mut follows = TaskConnection::open(server.address()).await;
    let stream = doc! {
        "aggregate": "c", "pipeline": [{"$changeStream": {}}], "cursor": {}, "$db": "test"
    };
    let stream = follows.run(stream).await;
    let cursor = stream.get_document("cursor").unwrap().get_i64("id").unwrap();
    let more = doc! {"getMore": cursor, "collection": "c", "maxTimeMS": 600_000, "$db": "test"};
    follows.send(more.clone(), Flags::empty(), None).await;
    let runs = || !server.service.ops.list().is_empty();
    wait_until("it runs", runs);
    // Two operations that wait for a lock. The client of one expects no reply; it is executed in
    // any case.
    client.run(doc! {"fsync": 1, "lock": true}).await;
    let (mut waits, mut unacknowledged) = (
        TaskConnection::open(server.address()).await,
        TaskConnection::open(server.address()).await,
    );
    waits
        .send(doc! {"insert": "c", "documents": [{"_id": 2}], "$db": "test"}, Flags::empty(), None)
        .await;
    let forgotten =
        doc! {"insert": "c", "documents": [{"_id": 3}], "writeConcern": {"w": 0}, "$db": "test"};
    unacknowledged.send(forgotten, Flags::MORE_TO_COME, None).await;
    wait_until("three operations", || server.service.ops.list().len() == 3);
    drop((computes, greets, follows, waits, unacknowledged));
    wait_until("connections go", || server.service.connections.current() == 2);
    assert_eq!(server.service.ops.list().len(), 1);
    client.run(doc! {"fsyncUnlock": 1}).await;
    wait_until("connections go", || server.service.connections.current() == 1);
    let left = client.run(doc! {"find": "c", "projection": {"_id": 1}, "$db": "test"}).await;
    let left = left.get_document("cursor").unwrap().get_array("firstBatch").unwrap().clone();
    assert_eq!(left, vec![doc! {"_id": 1}.into(), doc! {"_id": 3}.into()]);
    // Cursors stay open for their session.
    let more = doc! {"getMore": cursor, "collection": "c", "$db": "test"};
    let batch = client.run(more).await;
    assert_eq!(batch.get_document("cursor").unwrap().get_array("nextBatch").unwrap().len(), 1);
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_sends_no_more_is_gone_once_everything_was_read() {
    let server = server_in_time().await;
    let mut client = TaskConnection::open(server.address()).await;
    client.run(doc! {"insert": "c", "documents": [{"_id": 1}], "$db": "test"}).await;
    // Further commands are not a disconnect, whatever follows them.
    let body = "function() { var end = Date.now() + 2000; while (Date.now() < end) {} return 7; }";
    let script = doc! {"$function": {"body": body, "args": [], "lang": "js"}};
    let slow = doc! {"find": "c", "projection": {"x": script}, "$db": "test"};
    let mut half = TaskConnection::open(server.address()).await;
    let first = half.send(slow, Flags::empty(), None).await;
    let second = half.send(doc! {"ping": 1}, Flags::empty(), None).await;
    half.stream.shutdown().await.unwrap();
    let reply = half.receive().await.unwrap();
    assert_eq!((reply.header.response_to, decode(&reply).get_f64("ok").ok()), (first, Some(1.0)));
    let reply = half.receive().await.unwrap();
    assert_eq!((reply.header.response_to, decode(&reply).get_f64("ok").ok()), (second, Some(1.0)));
    assert!(half.receive().await.is_none());
    // A closed sending direction is a disconnect, although the client could still read.
    let mut half = TaskConnection::open(server.address()).await;
    half.send(endless(), Flags::empty(), None).await;
    half.stream.shutdown().await.unwrap();
    let reply = decode(&half.receive().await.unwrap());
    assert_eq!(reply.get_i32("code").unwrap(), 279, "{reply}");
    assert!(half.receive().await.is_none());
    server.stop().await.unwrap();
}
