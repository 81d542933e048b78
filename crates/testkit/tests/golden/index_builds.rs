//! Index builds in whole servers: all kinds of indexes with concurrent writers, on engines with
//! files.

use mayfly_storage::ReadView;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use mayfly_base::Namespace;
use mayfly_kv_rocksdb::{RocksEngine, RocksOptions, SCRATCH_FOLDER};
use mayfly_storage::{Store, UpdateStyle, WriteUnit};
use mayfly_testkit::{Fixture, OpenEngine, clustered, memory, memory_under_chaos};

use crate::scripts::postgres;
use mayfly_value::bson::{DateTime, Document, doc};
use mayfly_value::{DocBuf, RawValue};
use mayfly_work::OpCtx;
use mayfly_work::op::{OpInfo, OpProgress};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tempfile::TempDir;

const KINDS: &str = "[{key: {a: 1}, name: 'a'}, {key: {b: -1, a: 1}, name: 'b_a'}, {key: {u: 1}, name: 'u', unique: true}, \
     {key: {a: 1, u: 1}, name: 'partial', partialFilterExpression: {b: {$gte: 2}}}, \
     {key: {b: 1, u: -1}, name: 'unique_partial', unique: true, partialFilterExpression: {b: {$gte: 2}}}, \
     {key: {d: 1}, name: 'd', expireAfterSeconds: 100}, {key: {b: 'hashed'}, name: 'hashed'}, {key: {'$**': 1}, name: 'all'}, \
     {key: {t: 'text'}, name: 'text'}, {key: {p: '2dsphere'}, name: 'place'}, {key: {s: 1}, name: 'sparse', sparse: true}]";

fn document(random: &mut SmallRng, id: i32, now: i64) -> Document {
    let items: Vec<i32> =
        (0..random.random_range(0..4)).map(|_| random.random_range(0..9)).collect();
    let place = [random.random_range(-90.0..90.0), random.random_range(-80.0..80.0)];
    let mut document = doc! {
        "_id": id, "a": items, "b": random.random_range(0..4), "u": id,
        "d": DateTime::from_millis(now + random.random_range(-200_000..1_000_000)),
        "t": "a stitch in time saves nine", "p": { "type": "Point", "coordinates": place.to_vec() },
    };
    if random.random_bool(0.3) {
        document.insert("s", "x".repeat(random.random_range(0..40)));
    }
    document
}

fn put(store: &Store, op: &OpCtx, random: &mut SmallRng, id: i32, now: i64) {
    let Some(collection) = store.collection(&ReadView::now(), &Namespace::parse("test.c").unwrap())
    else {
        return;
    };
    let new = DocBuf::from_bson(&document(random, id, now));
    let id_key = collection.id_key(RawValue::Int32(id));
    let delete = random.random_bool(0.3);
    let written = store.write(op, &ReadView::now(), &collection, |unit: &mut WriteUnit<'_>| {
        let key = unit.locate(id_key.clone())?.unwrap_or_default();
        match unit.read(&key)? {
            None => unit.insert(new.as_doc()),
            Some(old) if delete => unit.delete(&key, &old),
            Some(old) => unit.update(&key, &old, new.as_doc(), UpdateStyle::Computed),
        }
    });
    written.unwrap();
}

fn is_valid(fixture: &Fixture, indexes: i32) {
    let found = fixture.ok("test", "{validate: 'c', full: true}");
    let found = found.as_doc();
    let shown = mayfly_testkit::dialect::show(found);
    assert_eq!(found.get("valid"), Some(RawValue::Bool(true)), "{shown}");
    assert_eq!(found.get("nIndexes"), Some(RawValue::Int32(indexes)), "{shown}");
}

/// Builds indexes over `documents` documents with `bytes` of memory for keys.
fn with_concurrent_writers(documents: i32, bytes: i64, open: OpenEngine) {
    let mut fixture = Fixture::new(open);
    let now = fixture.env().now_ms;
    let store = fixture.store().clone();
    store.index_build_bytes.store(bytes, Ordering::Relaxed);
    fixture.ok("test", "{create: 'c'}");
    let op = OpCtx::detached(fixture.clock.clone());
    let mut random = SmallRng::seed_from_u64(5);
    (0..documents).for_each(|id| put(&store, &op, &mut random, id, now));
    let over = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..2_u64)
        .map(|seed| {
            let (store, op, over) = (store.clone(), op.clone(), over.clone());
            std::thread::spawn(move || {
                let mut random = SmallRng::seed_from_u64(seed);
                while !over.load(Ordering::Relaxed) {
                    let id = random.random_range(0..documents + 100);
                    put(&store, &op, &mut random, id, now);
                    if random.random_bool(0.01) {
                        store.run_ttl_pass(&AtomicBool::new(false)).unwrap();
                    }
                }
            })
        })
        .collect();
    let built = fixture.run("test", &format!("{{createIndexes: 'c', indexes: {KINDS}}}"));
    let alive: Vec<bool> = writers.iter().map(|writer| !writer.is_finished()).collect();
    is_valid(&fixture, 12);
    over.store(true, Ordering::Relaxed);
    writers.into_iter().for_each(|writer| writer.join().unwrap());
    assert!(alive.iter().all(|alive| *alive));
    assert_eq!(built.as_doc().get("numIndexesAfter"), Some(RawValue::Int32(12)));
    is_valid(&fixture, 12);
    drop((store, op));
    fixture.crash();
    is_valid(&fixture, 12);
    fixture.restart();
    is_valid(&fixture, 12);
    fixture.ok("test", "{dropIndexes: 'c', index: '*'}");
    fixture.sweep();
    is_valid(&fixture, 1);
}

#[test]
fn builds_with_concurrent_writers_in_memory() {
    with_concurrent_writers(2_000, 30_000, memory());
}

#[test]
fn builds_with_concurrent_writers_over_clustered_records() {
    with_concurrent_writers(1_000, 30_000, clustered(memory()));
}

#[test]
fn builds_with_concurrent_writers_over_postgres() {
    with_concurrent_writers(300, 0, postgres());
}

#[test]
fn builds_with_concurrent_writers_under_chaos() {
    with_concurrent_writers(300, 0, memory_under_chaos(3));
}

#[test]
fn builds_with_concurrent_writers_with_files() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().to_owned();
    let options = RocksOptions { cache_bytes: 32 << 20, ..RocksOptions::default() };
    with_concurrent_writers(
        4_000,
        300_000,
        Box::new(move || RocksEngine::open(&path, options).unwrap()),
    );
    let scratch = folder.path().join(SCRATCH_FOLDER);
    assert_eq!(std::fs::read_dir(scratch).map_or(0, Iterator::count), 0);
}

/// Manual: "currentOp", `msg` and `progress`.
#[test]
fn progress_is_shown() {
    let fixture = Fixture::in_memory();
    let message = "Index Build: scanning collection";
    let progress = Some(OpProgress { message, done: 30, total: 120 });
    let info = OpInfo { op: "command", ns: "test.c".to_owned(), progress, ..OpInfo::default() };
    let _running = fixture.service.ops.begin(info);
    let found = fixture.ok("admin", "{currentOp: 1, ns: 'test.c'}");
    let shown = mayfly_testkit::dialect::show(found.as_doc());
    let message = "Index Build: scanning collection Index Build: scanning collection: 30/120 25%";
    assert!(shown.contains(message), "{shown}");
    let progress = "progress: {done: NumberLong(30), total: NumberLong(120)}";
    assert!(shown.contains(progress), "{shown}");
}
