//! The pace of deletion over the wire, with a clock that the test moves.

use std::sync::Arc;

use mayfly_base::ManualClock;
use mayfly_base::testing::wait_until;
use mayfly_server::{Running, StartOptions, start};
use mayfly_testkit::outside::TaskConnection;
use mayfly_value::bson::{Bson, DateTime, Document, doc};

const DUE: i64 = 5000;
const PER_SEC: i64 = 500;
const SLEEP_MS: i64 = 60_000;

/// Advances the clock, and lets the monitor do its due work.
fn after(server: &Running, clock: &ManualClock, ms: i64) -> i64 {
    clock.advance_ms(ms);
    let params = server.service.store.ttl_params();
    let change = params.wake();
    wait_until("the monitor sleeps", || params.slept_after(change));
    let stats = server.service.store.ttl_stats();
    stats.deleted_documents.load(std::sync::atomic::Ordering::Relaxed)
}

/// The `$ttlStats` of the policy.
async fn ttl_stats(client: &mut TaskConnection) -> Document {
    let command =
        doc! { "aggregate": "c", "pipeline": [{ "$ttlStats": {} }], "cursor": {}, "$db": "test" };
    let reply = client.run(command).await;
    let batch = reply.get_document("cursor").unwrap().get_array("firstBatch").unwrap();
    batch[0].as_document().unwrap().clone()
}

/// T-69, with a client of the server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t_69_deletion_keeps_its_pace() {
    let clock = Arc::new(ManualClock::at_ms(1_700_000_000_000));
    let options =
        StartOptions { background: true, ..StartOptions::for_tests(clock.clone()).unwrap() };
    let server = start(options).await.unwrap();
    let mut client = TaskConnection::open(server.address()).await;
    let index = doc! {
        "key": { "at": 1 }, "name": "at_1", "expireAfterSeconds": 0, "ttl": { "maxDocsPerSec": PER_SEC },
    };
    client.run(doc! { "createIndexes": "c", "indexes": [index], "$db": "test" }).await;
    let at = DateTime::from_millis(1_000_000);
    let documents: Vec<Bson> = (0..DUE).map(|id| doc! { "_id": id, "at": at }.into()).collect();
    client.run(doc! { "insert": "c", "documents": documents, "$db": "test" }).await;
    // The first visit may use the accumulated budget.
    let begun = after(&server, &clock, SLEEP_MS);
    assert!(begun > 0 && begun <= PER_SEC, "{begun}");
    for step in 1..=40 {
        let deleted = after(&server, &clock, 100);
        let expected = begun + step * PER_SEC / 10;
        assert!((deleted - expected).abs() <= 1, "{deleted} of {expected}");
    }
    let stats = ttl_stats(&mut client).await;
    let due = stats.get_i64("due").unwrap();
    assert!(due > 0 && due < DUE, "{stats}");
    assert!(stats.get_f64("oldestOverdueSecs").unwrap() > 1e6, "{stats}");
    let eta = stats.get_f64("etaSecs").unwrap();
    assert!((eta - due as f64 / PER_SEC as f64).abs() < 1.0, "{stats}");
    server.stop().await.unwrap();
}
