//! The collection stays small, and its documents do not appear in the oplog.

use mayfly_storage::ReadView;
use std::sync::Arc;

use mayfly_base::{ManualClock, Namespace};
use mayfly_kv::{Engine, KeyRange, Keyspace, MemoryEngine};
use mayfly_storage::{Store, StoreOptions};
use mayfly_value::{DocBuilder, RawValue};
use mayfly_work::{OpCtx, OpRegistry};

use super::*;

#[test]
fn the_oldest_documents_go() {
    let engine: Arc<dyn Engine> = Arc::new(MemoryEngine::new());
    let clock = Arc::new(ManualClock::at_ms(1_800_000_000_000));
    let options = StoreOptions { background: false, ..StoreOptions::default() };
    let ops = OpRegistry::new(clock.clone());
    let store = Store::open(engine.clone(), options, clock.clone(), ops).unwrap();
    let op = OpCtx::detached(clock);
    let profiler = Profiler::default();
    profiler.create(&store, "db").unwrap();
    let all = KeyRange { start: Vec::new(), end: vec![0xFF; 16] };
    let logged = engine.approximate_bytes(Keyspace::Oplog, &all).unwrap();
    let text = "x".repeat(1000);
    for number in 0..1500 {
        let mut about = DocBuilder::new();
        about.append("number", number).append("text", text.as_str());
        profiler.keep(&store, &op, "db", about.finish().as_doc()).unwrap();
    }
    let collection =
        store.collection(&ReadView::now(), &Namespace::new("db", COLLECTION).unwrap()).unwrap();
    let bytes = store.data_bytes(&collection);
    assert!(bytes <= MOST_BYTES && bytes > MOST_BYTES / 2, "{bytes}");
    let mut numbers = Vec::new();
    store
        .snapshot(&ReadView::now())
        .unwrap()
        .scan_records(
            &collection,
            &whole_range(),
            Direction::Forward,
            ScanLimit::NONE,
            &mut |_, document| {
                numbers.push(document.get("number").map(RawValue::to_owned));
                Ok(ControlFlow::Continue(()))
            },
        )
        .unwrap();
    assert_eq!(numbers.last(), Some(&Some(RawValue::Int32(1499).to_owned())));
    assert_eq!(engine.approximate_bytes(Keyspace::Oplog, &all).unwrap(), logged);
}

#[test]
fn what_is_recorded_depends_on_level_and_time() {
    let profiler = Profiler::default();
    let mut describe = || DocBuf::empty();
    assert!(!profiler.may_record(100_000) && profiler.may_record(100_001));
    let targets = profiler.targets("db", 200_000, &mut describe);
    assert_eq!(targets, RecordTargets { log: true, profile: false });
    profiler.set_database("db", Profiled { level: 1, filter: None });
    assert!(profiler.may_record(0));
    let nothing = RecordTargets { log: false, profile: false };
    assert_eq!(profiler.targets("db", 5, &mut describe), nothing);
    assert_eq!(profiler.targets("other", 5, &mut describe), nothing);
    profiler.set_sample_rate(0.0);
    assert_eq!(profiler.targets("db", 200_000, &mut describe), nothing);
    profiler.set_database("db", Profiled { level: 2, filter: None });
    assert_eq!(
        profiler.targets("db", 5, &mut describe),
        RecordTargets { log: false, profile: true }
    );
}
