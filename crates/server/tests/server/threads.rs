//! Commands that run on the threads that read messages, and take long after all.

use std::sync::Arc;
use std::time::{Duration, Instant};

use mayfly_base::{ErrorCode, SystemClock};
use mayfly_server::{StartOptions, start};
use mayfly_value::bson::doc;

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
