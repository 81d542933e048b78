//! Everything that a change stream or a majority read has returned survives a power cut.
//!
//! Writers use `w: 1`, so that they do not wait for a sync; readers do what the connection loop
//! does. Everything that a reader has got must be in a store that is opened with the synced data.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use mayfly_kv::{ChaosEngine, ChaosOptions, Engine, MemoryEngine};
use mayfly_testkit::{Fixture, PowerCut, expect};
use mayfly_value::{DocBuf, Number, RawDoc, RawValue};

fn over(engine: &Arc<PowerCut>) -> Fixture {
    let engine: Arc<dyn Engine> = engine.clone();
    Fixture::new(Box::new(move || engine.clone()))
}

fn powered() -> Arc<PowerCut> {
    let options = ChaosOptions {
        seed: 7,
        conflict_probability: 0.02,
        short_pages: true,
        ..ChaosOptions::default()
    };
    let chaos = Arc::new(ChaosEngine::new(Arc::new(MemoryEngine::new()), options));
    Arc::new(PowerCut::new(chaos).unwrap())
}

/// The reply as a client gets it: after the sync that the connection loop waits for.
fn served(fixture: &Fixture, command: &str) -> DocBuf {
    let (reply, outcome) = fixture.dispatched("test", command);
    assert_eq!(reply.as_doc().get("ok"), Some(RawValue::Double(1.0)), "{command}");
    if outcome.wait_shown > 0 {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(fixture.store().wait_durable_up_to(outcome.wait_shown)).unwrap();
    }
    if outcome.wait_durable {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(fixture.store().wait_durable()).unwrap();
    }
    reply
}

fn waits(fixture: &Fixture, command: &str) -> bool {
    let (reply, outcome) = fixture.dispatched("test", command);
    assert_eq!(reply.as_doc().get("ok"), Some(RawValue::Double(1.0)), "{command}");
    outcome.wait_durable || outcome.wait_shown > 0
}

fn batch(reply: RawDoc<'_>) -> Vec<RawDoc<'_>> {
    let batch = expect::batch(reply).and_then(RawValue::as_array).unwrap_or(RawDoc::EMPTY);
    batch.iter().filter_map(|element| element.value().as_document()).collect()
}

fn number(value: Option<RawValue<'_>>) -> i64 {
    value.and_then(Number::from_value).and_then(Number::to_i64_exact).unwrap()
}

/// The ids of all documents after a power cut now.
fn survivors(engine: &PowerCut) -> BTreeSet<i64> {
    let engine = engine.survivors().unwrap();
    let fixture = Fixture::new(Box::new(move || engine.clone()));
    let reply = fixture.ok("test", "{find: 'c', batchSize: 100000, singleBatch: true}");
    batch(reply.as_doc()).iter().map(|document| number(document.get("_id"))).collect()
}

const WRITES: i64 = 400;

/// Runs a reader concurrently to a writer. Everything that the reader has got must survive a power
/// cut at that time.
fn survives(mut read: impl FnMut(&Fixture) -> Vec<i64>) {
    let engine = powered();
    let fixture = over(&engine);
    fixture.ok("test", "{create: 'c'}");
    let done = AtomicBool::new(false);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            for id in 0..WRITES {
                let insert =
                    format!("{{insert: 'c', documents: [{{_id: {id}}}], writeConcern: {{w: 1}}}}");
                assert!(!waits(&fixture, &insert));
                std::thread::yield_now();
            }
            done.store(true, Ordering::Release);
        });
        let mut seen = 0;
        loop {
            let last = done.load(Ordering::Acquire);
            let shown = read(&fixture);
            let survivors = survivors(&engine);
            assert!(shown.iter().all(|id| survivors.contains(id)), "{shown:?} of {survivors:?}");
            seen += shown.len();
            if last {
                break;
            }
        }
        assert!(seen > 0);
    });
}

#[test]
fn a_majority_read() {
    survives(|fixture| {
        let reply = served(
            fixture,
            "{find: 'c', sort: {_id: -1}, limit: 3, readConcern: {level: 'majority'}}",
        );
        batch(reply.as_doc()).iter().map(|document| number(document.get("_id"))).collect()
    });
}

#[test]
fn later_batches_of_a_majority_read() {
    survives(|fixture| {
        let open = "{find: 'c', batchSize: 0, sort: {_id: -1}, hint: {_id: 1}, readConcern: {level: 'majority'}}";
        let reply = served(fixture, open);
        let cursor = reply.as_doc().get("cursor").and_then(RawValue::as_document).unwrap();
        let id = number(cursor.get("id"));
        let more = format!("{{getMore: NumberLong('{id}'), collection: 'c', batchSize: 3}}");
        let reply = served(fixture, &more);
        batch(reply.as_doc()).iter().map(|document| number(document.get("_id"))).collect()
    });
}

#[test]
fn a_snapshot_read() {
    survives(|fixture| {
        let reply =
            served(fixture, "{distinct: 'c', key: '_id', readConcern: {level: 'snapshot'}}");
        let values = reply.as_doc().get("values").and_then(RawValue::as_array).unwrap();
        values.iter().map(|value| number(Some(value.value()))).collect()
    });
}

#[test]
fn a_read_by_the_default_concern() {
    let mut first = true;
    survives(|fixture| {
        if std::mem::take(&mut first) {
            fixture
                .ok("admin", "{setDefaultRWConcern: 1, defaultReadConcern: {level: 'majority'}}");
        }
        let reply = served(fixture, "{find: 'c', sort: {_id: -1}, limit: 3}");
        batch(reply.as_doc()).iter().map(|document| number(document.get("_id"))).collect()
    });
}

#[test]
fn a_change_stream() {
    let mut stream = None;
    survives(|fixture| {
        let reply = match stream {
            None => {
                served(fixture, "{aggregate: 'c', pipeline: [{$changeStream: {}}], cursor: {}}")
            }
            Some(id) => served(
                fixture,
                &format!("{{getMore: NumberLong('{id}'), collection: 'c', maxTimeMS: 5}}"),
            ),
        };
        let cursor = reply.as_doc().get("cursor").and_then(RawValue::as_document).unwrap();
        stream = Some(number(cursor.get("id")));
        let ids = batch(reply.as_doc()).into_iter().map(|event| {
            let key = event.get("documentKey").and_then(RawValue::as_document);
            number(key.unwrap().get("_id"))
        });
        ids.collect()
    });
}

/// An update's document may be newer than the event that it is looked up for.
#[test]
fn a_document_that_a_change_stream_looks_up() {
    let engine = powered();
    let fixture = over(&engine);
    fixture.ok("test", "{insert: 'c', documents: [{_id: 1, n: 0}]}");
    let open =
        "{aggregate: 'c', pipeline: [{$changeStream: {fullDocument: 'updateLookup'}}], cursor: {}}";
    let reply = served(&fixture, open);
    let cursor = reply.as_doc().get("cursor").and_then(RawValue::as_document).unwrap();
    let more = format!(
        "{{getMore: NumberLong('{}'), collection: 'c', batchSize: 1}}",
        number(cursor.get("id"))
    );
    for n in 1..=2 {
        let update = format!(
            "{{update: 'c', updates: [{{q: {{_id: 1}}, u: {{$set: {{n: {n}}}}}}}], writeConcern: {{w: 1}}}}"
        );
        assert!(!waits(&fixture, &update));
        if n == 1 {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            runtime.block_on(fixture.store().wait_durable()).unwrap();
        }
    }
    // The first event is durable; its document is that of the second one.
    let reply = served(&fixture, &more);
    let events = batch(reply.as_doc());
    let shown = events[0].get("fullDocument").and_then(RawValue::as_document).unwrap();
    assert_eq!(number(shown.get("n")), 2);
    let engine = engine.survivors().unwrap();
    let after = Fixture::new(Box::new(move || engine.clone()));
    let reply = after.ok("test", "{find: 'c'}");
    assert_eq!(number(batch(reply.as_doc())[0].get("n")), 2);
}

/// Durable data is not synced again.
#[test]
fn a_quiet_server_syncs_for_no_read() {
    let engine = Arc::new(PowerCut::new(Arc::new(MemoryEngine::new())).unwrap());
    let fixture = over(&engine);
    served(&fixture, "{insert: 'c', documents: [{_id: 1}], writeConcern: {w: 'majority'}}");
    let reply = served(
        &fixture,
        "{aggregate: 'c', pipeline: [{$changeStream: {startAtOperationTime: Timestamp(1800000000, 1)}}], cursor: {batchSize: 0}}",
    );
    let cursor = reply.as_doc().get("cursor").and_then(RawValue::as_document).unwrap();
    let more = format!("{{getMore: NumberLong('{}'), collection: 'c'}}", number(cursor.get("id")));
    let syncs = engine.syncs();
    for level in ["majority", "linearizable", "snapshot"] {
        assert!(!waits(&fixture, &format!("{{find: 'c', readConcern: {{level: '{level}'}}}}")));
    }
    assert!(!waits(&fixture, &more));
    assert_eq!(engine.syncs(), syncs);
    // Writes with `w: 1` do not wait either.
    assert!(!waits(&fixture, "{insert: 'c', documents: [{_id: 2}], writeConcern: {w: 1}}"));
    for level in ["local", "available"] {
        assert!(!waits(&fixture, &format!("{{find: 'c', readConcern: {{level: '{level}'}}}}")));
    }
    assert!(!waits(&fixture, "{find: 'c'}"));
}
