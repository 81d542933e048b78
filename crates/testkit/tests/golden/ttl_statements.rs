//! Statements of `docs/expiry-rules.md` that need a pass in progress or a damaged catalog. The
//! others are scripts, see `tests/scripts/ttl/README.md`.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use mayfly_kv::{
    Direction, Engine, Guard, KeyRange, Keyspace, MemoryEngine, ScanLimit, TxnOptions,
};
use mayfly_testkit::gate::{GATED_THREAD, Gate, GatedEngine, Stops};
use mayfly_testkit::{Fixture, Reopenable, dialect};
use mayfly_value::bson::{Bson, Document};
use mayfly_value::{DocBuf, RawDoc, RawValue};

/// A server whose passes can be stopped in the middle.
fn gated() -> (Fixture, Arc<Gate>) {
    let gate = Arc::new(Gate::default());
    let engine = GatedEngine::new(Arc::new(MemoryEngine::new()), gate.clone());
    let engine: Arc<dyn Engine> = Arc::new(Reopenable(Arc::new(engine)));
    let fixture = Fixture::new(Box::new(move || engine.clone()));
    // The manual clock moves while a visit waits: no time box may end it.
    set(&fixture, "ttlIndexDeleteTargetTimeMS", "0");
    set(&fixture, "batchedDeletesTargetBatchTimeMS", "0");
    (fixture, gate)
}

fn set(fixture: &Fixture, name: &str, value: &str) {
    fixture.ok("admin", &format!("{{setParameter: 1, {name}: {value}}}"));
}

/// Runs a pass on a thread that the gate stops, and calls `meanwhile` while it waits there.
fn during_pass(fixture: &Fixture, gate: &Gate, meanwhile: impl FnOnce()) {
    let store = fixture.store().clone();
    let pass = move || store.run_ttl_pass(&AtomicBool::new(false)).unwrap();
    let thread = std::thread::Builder::new().name(GATED_THREAD.into()).spawn(pass).unwrap();
    gate.wait_for_arrival();
    meanwhile();
    gate.open();
    thread.join().unwrap();
}

fn count(fixture: &Fixture, db: &str, collection: &str) -> i32 {
    let reply = fixture.ok(db, &format!("{{count: '{collection}', query: {{}}}}"));
    match reply.as_doc().get("n") {
        Some(RawValue::Int32(n)) => n,
        other => panic!("{other:?}"),
    }
}

/// A collection with this many due documents and a TTL index on `d`.
fn due(fixture: &Fixture, collection: &str, documents: i64) {
    let spec = "{key: {d: 1}, name: 'd', expireAfterSeconds: 0}";
    fixture.ok("test", &format!("{{createIndexes: '{collection}', indexes: [{spec}]}}"));
    for id in 0..documents {
        let document = format!("{{_id: {id}, d: Date(now - 1000 + {id})}}");
        fixture.ok("test", &format!("{{insert: '{collection}', documents: [{document}]}}"));
    }
}

/// The operations with this `desc` in `$currentOp`.
fn operations(fixture: &Fixture, desc: &str) -> Vec<Document> {
    let stages =
        format!("[{{$currentOp: {{idleConnections: true}}}}, {{$match: {{desc: '{desc}'}}}}]");
    let reply = fixture.ok("admin", &format!("{{aggregate: 1, pipeline: {stages}, cursor: {{}}}}"));
    let batch = mayfly_testkit::expect::batch(reply.as_doc()).and_then(RawValue::as_array).unwrap();
    let documents = batch.iter().filter_map(|element| element.value().as_document());
    documents.map(|document| Document::from_reader(document.as_bytes()).unwrap()).collect()
}

#[test]
fn t_59_a_visit_is_an_operation_and_kill_op_ends_it() {
    let (fixture, gate) = gated();
    due(&fixture, "c", 20);
    set(&fixture, "batchedDeletesTargetBatchDocs", "2");
    gate.close_after(Stops::Writes, 3);
    let cutoff = mayfly_testkit::START_MS;
    during_pass(&fixture, &gate, || {
        fixture.clock.advance_ms(7_000);
        let [visit] = operations(&fixture, "TTLMonitor").try_into().unwrap();
        assert!(visit.get_bool("active").unwrap());
        assert_eq!(visit.get_str("op").unwrap(), "remove");
        assert_eq!(visit.get_str("ns").unwrap(), "test.c");
        assert_eq!(visit.get_str("planSummary").unwrap(), "IXSCAN { d: 1 }");
        assert_eq!(visit.get_i64("secs_running").unwrap(), 7);
        assert_eq!(visit.get_i64("microsecs_running").unwrap(), 7_000_000);
        assert_eq!(visit.get_i32("numYields").unwrap(), 3);
        assert!(!visit.get_bool("waitingForLock").unwrap());
        let ttl = visit.get_document("ttl").unwrap();
        assert_eq!(ttl.get_str("index").unwrap(), "d");
        assert_eq!(ttl.get_i64("deleted").unwrap(), 6);
        assert_eq!(ttl.get_datetime("cutoff").unwrap().timestamp_millis(), cutoff);
        let command = visit.get_document("command").unwrap();
        assert_eq!(command.get_str("delete").unwrap(), "c");
        assert_eq!(command.get_str("$db").unwrap(), "test");
        let opid = visit.get_i32("opid").unwrap();
        fixture.ok("admin", &format!("{{killOp: 1, op: {opid}}}"));
        let [killed] = operations(&fixture, "TTLMonitor").try_into().unwrap();
        assert!(killed.get_bool("killPending").unwrap());
    });
    // The batch that waits at the gate is still deleted, but none after it.
    assert_eq!(count(&fixture, "test", "c"), 12);
    let [idle] = operations(&fixture, "TTLMonitor").try_into().unwrap();
    assert!(!idle.get_bool("active").unwrap());
    fixture.store().run_ttl_pass(&AtomicBool::new(false)).unwrap();
    assert_eq!(count(&fixture, "test", "c"), 0);
}

#[test]
fn t_51_stepping_down_ends_the_pass_before_its_next_unit() {
    let (fixture, gate) = gated();
    due(&fixture, "c", 20);
    set(&fixture, "batchedDeletesTargetBatchDocs", "2");
    gate.close_after(Stops::Writes, 3);
    let store = fixture.store().clone();
    let pass = move || store.run_ttl_pass(&AtomicBool::new(false));
    let thread = std::thread::Builder::new().name(GATED_THREAD.into()).spawn(pass).unwrap();
    gate.wait_for_arrival();
    fixture.store().step_down(60);
    gate.open();
    let error = thread.join().unwrap().unwrap_err();
    assert_eq!(error.code(), mayfly_base::ErrorCode::InterruptedDueToReplStateChange);
    fixture.store().run_ttl_pass(&AtomicBool::new(false)).unwrap();
    fixture.clock.advance_ms(60_000);
    assert_eq!(count(&fixture, "test", "c"), 12);
    fixture.store().run_ttl_pass(&AtomicBool::new(false)).unwrap();
    assert_eq!(count(&fixture, "test", "c"), 0);
}

#[test]
fn t_40_a_visit_of_a_clustered_collection_is_an_operation() {
    let (fixture, gate) = gated();
    let index = "{key: {_id: 1}, unique: true}";
    fixture.ok("test", &format!("{{create: 'c', clusteredIndex: {index}, expireAfterSeconds: 1}}"));
    fixture.ok("test", "{insert: 'c', documents: [{_id: Date(now - 1000)}, {_id: Date(now)}]}");
    gate.close_after(Stops::Writes, 0);
    during_pass(&fixture, &gate, || {
        let [visit] = operations(&fixture, "TTLMonitor").try_into().unwrap();
        assert_eq!(visit.get_str("planSummary").unwrap(), "CLUSTERED_IXSCAN");
        let ttl = visit.get_document("ttl").unwrap();
        assert_eq!(ttl.get_i32("expireAfterSeconds").unwrap(), 1);
    });
    assert_eq!(count(&fixture, "test", "c"), 1);
}

#[test]
fn t_53_without_idle_connections_a_working_monitor_is_listed() {
    let (fixture, gate) = gated();
    due(&fixture, "c", 3);
    gate.close_after(Stops::Writes, 0);
    during_pass(&fixture, &gate, || {
        let reply = fixture.ok("admin", "{currentOp: 1}");
        let shown = dialect::show(reply.as_doc());
        assert!(shown.contains("desc: 'TTLMonitor', active: true"), "{shown}");
    });
}

#[test]
fn t_38_a_document_refreshed_after_it_was_selected_survives() {
    let (fixture, gate) = gated();
    due(&fixture, "c", 5);
    gate.close_after(Stops::Writes, 0);
    during_pass(&fixture, &gate, || {
        let refresh = "{q: {_id: 3}, u: {$set: {d: Date(now + 60000)}}}";
        fixture.ok("test", &format!("{{update: 'c', updates: [{refresh}]}}"));
        fixture.ok("test", "{delete: 'c', deletes: [{q: {_id: 4}, limit: 1}]}");
        fixture.ok("test", "{insert: 'c', documents: [{_id: 4, d: 'no date'}]}");
    });
    let reply = fixture.ok("test", "{find: 'c', projection: {_id: 1}}");
    let shown = dialect::show(reply.as_doc());
    assert!(shown.contains("firstBatch: [{_id: 3}, {_id: 4}]"), "{shown}");
}

/// Stops a pass in its third visit of `test.c`, before it reads anything; 4 of the 10 documents are
/// deleted then.
fn in_third_visit(meanwhile: impl FnOnce(&Fixture)) -> Fixture {
    let (fixture, gate) = gated();
    due(&fixture, "c", 10);
    set(&fixture, "ttlIndexDeleteTargetDocs", "2");
    gate.close_after(Stops::Reads, 2);
    during_pass(&fixture, &gate, || meanwhile(&fixture));
    fixture.sweep();
    fixture
}

#[test]
fn t_49_dropping_during_a_pass() {
    let fixture = in_third_visit(|fixture| {
        fixture.ok("test", "{drop: 'c'}");
    });
    assert_eq!(count(&fixture, "test", "c"), 0);
    let fixture = in_third_visit(|fixture| {
        fixture.ok("test", "{dropDatabase: 1}");
    });
    assert_eq!(count(&fixture, "test", "c"), 0);
}

#[test]
fn t_49_dropping_the_index_during_a_pass() {
    let fixture = in_third_visit(|fixture| {
        fixture.ok("test", "{dropIndexes: 'c', index: 'd'}");
    });
    assert_eq!(count(&fixture, "test", "c"), 6);
}

#[test]
fn t_49_renaming_during_a_pass() {
    let mut fixture = in_third_visit(|fixture| {
        fixture.ok("admin", "{renameCollection: 'test.c', to: 'other.e'}");
    });
    assert_eq!(count(&fixture, "other", "e"), 0);
    fixture.ok("other", "{insert: 'e', documents: [{_id: 1, d: Date(now)}]}");
    fixture.ttl_pass();
    assert_eq!(count(&fixture, "other", "e"), 0);
}

#[test]
fn t_49_a_collection_made_anew_during_a_pass_loses_nothing() {
    let fixture = in_third_visit(|fixture| {
        fixture.ok("test", "{drop: 'c'}");
        fixture
            .ok("test", "{insert: 'c', documents: [{_id: 9, d: Date(0)}, {_id: 1, d: Date(0)}]}");
    });
    assert_eq!(count(&fixture, "test", "c"), 2);
}

#[test]
fn t_49_a_changed_time_to_live_counts_from_the_next_unit() {
    let fixture = in_third_visit(|fixture| {
        fixture.ok("test", "{collMod: 'c', index: {name: 'd', expireAfterSeconds: 100}}");
    });
    // Two visits had their two documents each; nothing is deleted by the old policy after the
    // change was acknowledged.
    assert_eq!(count(&fixture, "test", "c"), 6);
}

/// Rewrites every catalog entry.
fn rewrite_catalog(engine: &dyn Engine, change: impl Fn(&mut Document)) {
    let mut rows = Vec::new();
    let read = engine.begin(TxnOptions::READ_ONLY).unwrap();
    let whole = KeyRange { start: Vec::new(), end: vec![0xFF; 16] };
    read.scan(Keyspace::Catalog, &whole, Direction::Forward, ScanLimit::NONE, &mut |key, value| {
        if RawDoc::new(value).is_some_and(|row| row.get("indexes").is_some()) {
            rows.push((key.to_vec(), Document::from_reader(value).unwrap()));
        }
        std::ops::ControlFlow::Continue(())
    })
    .unwrap();
    let mut write = engine.begin(TxnOptions::default()).unwrap();
    for (key, mut row) in rows {
        change(&mut row);
        let row = DocBuf::from_bson(&row);
        write.put(Keyspace::Catalog, &key, row.as_bytes(), Guard::Checked).unwrap();
    }
    write.commit().unwrap();
}

/// A server, and its engine.
fn open_engine() -> (Fixture, Arc<dyn Engine>) {
    let engine: Arc<dyn Engine> = Arc::new(Reopenable(Arc::new(MemoryEngine::new())));
    let kept = engine.clone();
    (Fixture::new(Box::new(move || kept.clone())), engine)
}

/// The entries of the oplog as clients read them, oldest first.
fn oplog(fixture: &Fixture) -> Vec<Document> {
    let reply = fixture.ok("local", "{find: 'oplog.rs', batchSize: 10000}");
    let reply = Document::from_reader(reply.as_bytes()).unwrap();
    let batch = reply.get_document("cursor").unwrap().get_array("firstBatch").unwrap();
    batch.iter().map(|entry| entry.as_document().unwrap().clone()).collect()
}

/// The deletions of an entry: itself, or the operations of its `applyOps`.
fn deletions(entry: &Document) -> Vec<Document> {
    let all = match entry.get_document("o").and_then(|o| o.get_array("applyOps")) {
        Ok(several) => several.iter().map(|op| op.as_document().unwrap().clone()).collect(),
        Err(_) => vec![entry.clone()],
    };
    all.into_iter().filter(|op| op.get_str("op").is_ok_and(|kind| kind == "d")).collect()
}

#[test]
fn t_70_log_entries_of_expired_documents_name_the_policy() {
    let (mut fixture, _) = open_engine();
    due(&fixture, "c", 3);
    fixture.ok("test", "{delete: 'c', deletes: [{q: {_id: 0}, limit: 1}]}");
    fixture.ttl_pass();
    let deletions: Vec<_> = oplog(&fixture).iter().flat_map(deletions).collect();
    let ids = deletions.iter().map(|op| op.get_document("o").unwrap().get_i32("_id").unwrap());
    assert_eq!(ids.collect::<Vec<_>>(), [0, 1, 2]);
    assert!(!deletions[0].contains_key("ttl"), "a client deleted it");
    for expired in &deletions[1..] {
        let ttl = expired.get_document("ttl").unwrap();
        assert_eq!(ttl.get_str("index").unwrap(), "d");
        assert_eq!(ttl.get_i32("expireAfterSeconds").unwrap(), 0);
    }
}

/// Only for time series: a bucket is deleted as a whole, which is one deletion in the log.
#[test]
fn t_75_a_bucket_that_expires_is_one_deletion_in_the_log() {
    let (mut fixture, _) = open_engine();
    let series = "{timeField: 't', metaField: 'm'}";
    fixture.ok("test", &format!("{{create: 's', timeseries: {series}, expireAfterSeconds: 10}}"));
    for source in 0..2 {
        let of_source = |n: i32| format!("{{t: Date(now + {n}), m: {source}, v: {n}}}");
        let documents: Vec<String> = (0..500).map(of_source).collect();
        fixture.ok("test", &format!("{{insert: 's', documents: [{}]}}", documents.join(", ")));
    }
    let before = oplog(&fixture).len();
    fixture.clock.advance_ms(11_000);
    fixture.ttl_pass();
    assert_eq!(count(&fixture, "test", "s"), 0);
    let entries = oplog(&fixture).split_off(before);
    assert_eq!(entries.iter().flat_map(deletions).count(), 2, "{entries:?}");
    let bytes: usize = entries.iter().map(|entry| DocBuf::from_bson(entry).as_bytes().len()).sum();
    assert!(bytes < 1000, "{bytes} bytes for 1000 measurements");
}

/// A catalog as another server may have left it.
#[test]
fn t_48_an_invalid_policy_in_the_catalog_stops_no_other_policy() {
    for bad in [Bson::Double(f64::NAN), Bson::Int32(-5), Bson::Int64(1 << 40), "20000".into()] {
        let (mut fixture, engine) = open_engine();
        due(&fixture, "bad", 2);
        due(&fixture, "good", 2);
        rewrite_catalog(&*engine, |row| {
            if row.get_str("ns").unwrap() == "test.bad" {
                let index = row.get_array_mut("indexes").unwrap()[0].as_document_mut().unwrap();
                index.get_document_mut("spec").unwrap().insert("expireAfterSeconds", bad.clone());
            }
        });
        fixture.crash();
        fixture.ttl_pass();
        assert_eq!(count(&fixture, "test", "bad"), 2, "{bad}");
        assert_eq!(count(&fixture, "test", "good"), 0, "{bad}");
        let listed = dialect::show(fixture.ok("test", "{listIndexes: 'bad'}").as_doc());
        assert!(listed.contains("name: 'd', expireAfterSeconds: 2147483647"), "{listed}");
        let status = dialect::show(fixture.ok("admin", "{serverStatus: 1}").as_doc());
        assert!(status.contains("invalidTTLIndexSkips: NumberLong(1)"), "{status}");
        // collMod makes it usable again.
        fixture.ok("test", "{collMod: 'bad', index: {name: 'd', expireAfterSeconds: 0}}");
        fixture.ttl_pass();
        assert_eq!(count(&fixture, "test", "bad"), 0, "{bad}");
    }
}
