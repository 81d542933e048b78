//! Commands that run on the threads that read messages, and take long after all.

use std::sync::Arc;
use std::time::{Duration, Instant};

use mayfly_base::{ErrorCode, SystemClock};
use mayfly_server::{StartOptions, start};
use mayfly_value::bson::spec::BinarySubtype;
use mayfly_value::bson::{Binary, doc};

use crate::connections::Client;

/// More of them than the runtime has threads.
const ENDLESS: usize = 3;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn others_are_answered_beside_commands_that_do_not_end() {
    let server = start(StartOptions::for_tests(Arc::new(SystemClock::new())).unwrap()).await;
    let server = server.unwrap();
    let mut client = Client::connect(&server).await;
    let reply = client.run(doc! {"insert": "c", "documents": [{"_id": 1}]}).await;
    assert_eq!(reply.get_i32("n").unwrap(), 1);
    let body = "function() { while (true) {} }";
    let endless = doc! {
        "find": "c", "filter": {"_id": 1}, "maxTimeMS": 15_000,
        "projection": {"x": {"$function": {"body": body, "args": [], "lang": "js"}}}
    };
    let mut running = Vec::new();
    for _ in 0..ENDLESS {
        let (mut client, endless) = (Client::connect(&server).await, endless.clone());
        running.push(tokio::spawn(async move { client.run(endless).await }));
    }
    let began = Instant::now();
    // All of them are there, and leave room for more.
    while server.service.ops.list().len() < ENDLESS && began.elapsed() < Duration::from_secs(10) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
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
    let mut client = Client::connect(&server).await;
    client.run(doc! {"insert": "c", "documents": [{"_id": 1, "n": 0}]}).await;
    assert_eq!(
        client.run(doc! {"fsync": 1, "lock": true}).await.get_i64("lockCount").ok(),
        Some(1)
    );
    // The same write twice, as a driver sends it again, and others beside it.
    let again = doc! {
        "update": "c", "updates": [{"q": {"_id": 1}, "u": {"$inc": {"n": 1}}}],
        "lsid": {"id": Binary { subtype: BinarySubtype::Uuid, bytes: vec![7; 16] }}, "txnNumber": 1_i64
    };
    let other = doc! {"update": "c", "updates": [{"q": {"_id": 1}, "u": {"$inc": {"n": 100}}}]};
    let mut waiting = Vec::new();
    for number in 0..WRITERS {
        let command = if number < 2 { again.clone() } else { other.clone() };
        let mut client = Client::connect(&server).await;
        waiting.push(tokio::spawn(async move { client.run(command).await }));
    }
    let began = Instant::now();
    let late = || began.elapsed() > Duration::from_secs(10);
    // One of the two that are the same waits for the other, not for the lock.
    while server.service.ops.list().len() < WRITERS as usize && !late() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(client.run(doc! {"ping": 1}).await, doc! {"ok": 1.0});
    assert_eq!(client.run(doc! {"fsyncUnlock": 1}).await.get_i64("lockCount").ok(), Some(0));
    for one in waiting {
        assert_eq!(one.await.unwrap().get_i32("n").ok(), Some(1));
    }
    let found = client.run(doc! {"find": "c"}).await;
    let found = found.get_document("cursor").unwrap().get_array("firstBatch").unwrap();
    assert_eq!(found[0].as_document().unwrap().get_i32("n").ok(), Some(1 + 100 * (WRITERS - 2)));
    assert!(!late());
    server.stop().await.unwrap();
}
