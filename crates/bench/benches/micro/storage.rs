//! The storage engine without commands: write units and reads of items with three indexes, over
//! both engines.
//!
//! Loaded items are read from RocksDB's files. Writes go to its log and to memory, and do not wait
//! for the disk.

use mayfly_storage::ReadView;
use std::cell::Cell;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use divan::counter::ItemsCount;
use divan::{Bencher, black_box};
use mayfly_base::{Clock, ManualClock, Namespace};
use mayfly_kv::{Engine, MemoryEngine};
use mayfly_kv_rocksdb::{RocksEngine, RocksOptions};
use mayfly_storage::{
    Collection, CreateIndexesOptions, Direction, KeyRange, RecordKey, ScanLimit, Store,
    StoreOptions, UpdateStyle, whole_range,
};
use mayfly_value::{DocBuf, DocBuilder, RawDoc};
use mayfly_work::{OpCtx, OpRegistry};
use tempfile::TempDir;

use crate::documents::{Random, item};
use crate::{items, parse};

/// Items in the collection at the beginning.
const LOADED: u32 = 10_000;
/// Items or entries that a scan visits.
const SCANNED: usize = 100;

const ENGINES: [Over; 2] = [Over::Memory, Over::RocksDb];

/// The engine of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Over {
    Memory,
    RocksDb,
}

#[divan::bench(args = ENGINES, sample_size = 50)]
fn insert(bencher: Bencher<'_, '_>, over: Over) {
    let bed = Bed::new(over);
    let number = Cell::new(LOADED);
    let mut random = Random::new(2);
    bencher
        .with_inputs(|| item(number.replace(number.get() + 1), 0, &mut random))
        .bench_local_refs(|item| bed.insert(item.as_doc()));
}

/// Changes a field without an index: the record is rewritten, the index entries are unchanged.
#[divan::bench(args = ENGINES, sample_size = 50)]
fn update(bencher: Bencher<'_, '_>, over: Over) {
    change(bencher, over, "y");
}

/// Changes a field with an index: an entry is deleted and another one is inserted.
#[divan::bench(args = ENGINES, sample_size = 50)]
fn update_indexed(bencher: Bencher<'_, '_>, over: Over) {
    change(bencher, over, "x");
}

#[divan::bench(args = ENGINES, sample_size = 50)]
fn delete(bencher: Bencher<'_, '_>, over: Over) {
    let bed = Bed::new(over);
    let items = items(LOADED);
    let mut number = 0;
    let inputs = || {
        let at = number % items.len();
        if number >= items.len() {
            bed.insert(items[at].as_doc());
        }
        number += 1;
        bed.keys[at].clone()
    };
    bencher.with_inputs(inputs).bench_local_values(|key| {
        bed.write(|unit| {
            let item = unit.read(&key)?.expect("an item");
            unit.delete(&key, &item)
        });
    });
}

#[divan::bench(args = ENGINES)]
fn point_read(bencher: Bencher<'_, '_>, over: Over) {
    let bed = Bed::new(over);
    let mut random = Random::new(2);
    bencher.with_inputs(|| bed.key(random.below(LOADED))).bench_local_values(|key| {
        let size = |item: RawDoc<'_>| item.as_bytes().len();
        bed.store
            .read_one(&ReadView::now(), &bed.collection, &key, size)
            .expect("a read")
            .expect("an item")
    });
}

#[divan::bench(args = ENGINES)]
fn index_scan(bencher: Bencher<'_, '_>, over: Over) {
    let bed = Bed::new(over);
    let index = bed.collection.indexes()[0].clone();
    let (range, forward) = (whole_range(), Direction::Forward);
    bencher.counter(ItemsCount::new(SCANNED)).bench_local(|| {
        let mut bytes = 0;
        let limit = ScanLimit::rows(SCANNED);
        let snapshot = bed.store.snapshot(&ReadView::now()).expect("a snapshot");
        let scanned = snapshot.scan_index(&index, &range, forward, limit, &mut |entry| {
            bytes += entry.record_key.len();
            Ok(ControlFlow::Continue(()))
        });
        scanned.expect("a scan");
        bytes
    });
}

#[divan::bench(args = ENGINES)]
fn record_scan(bencher: Bencher<'_, '_>, over: Over) {
    let bed = Bed::new(over);
    let mut random = Random::new(2);
    let forward = Direction::Forward;
    let limit = ScanLimit::rows(SCANNED);
    bencher
        .counter(ItemsCount::new(SCANNED))
        .with_inputs(|| bed.key(random.below(LOADED - SCANNED as u32)))
        .bench_local_values(|start| {
            let mut bytes = 0;
            let range = KeyRange { start, end: Vec::new() };
            let snapshot = bed.store.snapshot(&ReadView::now()).expect("a snapshot");
            let collection = &bed.collection;
            let scanned =
                snapshot.scan_records(collection, &range, forward, limit, &mut |_, item| {
                    bytes += item.as_bytes().len();
                    Ok(ControlFlow::Continue(()))
                });
            scanned.expect("a scan");
            bytes
        });
}

/// Changes this field of an item to a new number in each iteration.
fn change(bencher: Bencher<'_, '_>, over: Over, field: &str) {
    let bed = Bed::new(over);
    let mut random = Random::new(2);
    let inputs = || (bed.key(random.below(LOADED)), random.next() as i64);
    bencher.with_inputs(inputs).bench_local_values(|(key, value)| {
        bed.write(|unit| {
            let old = unit.read(&key)?.expect("an item");
            let new = with_value(old.as_doc(), field, value);
            unit.update(&key, &old, new.as_doc(), UpdateStyle::Computed)
        });
    });
}

fn with_value(item: RawDoc<'_>, field: &str, value: i64) -> DocBuf {
    let mut out = DocBuilder::in_buffer(Vec::with_capacity(item.as_bytes().len() + 8));
    for element in item.iter() {
        if element.name() == field {
            out.append(field, value);
        } else {
            out.append_element(element);
        }
    }
    out.finish()
}

/// A store with one collection of items.
struct Bed {
    store: Arc<Store>,
    collection: Arc<Collection>,
    op: Arc<OpCtx>,
    keys: Vec<RecordKey>,
    /// Declared last, so that it is dropped after the store.
    _folder: TempDir,
}

impl Bed {
    fn new(over: Over) -> Bed {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let clock: Arc<dyn Clock> = Arc::new(ManualClock::at_ms(0));
        let op = OpCtx::detached(clock.clone());
        let namespace = Namespace::parse("d.c").expect("a namespace");
        let mut store = open(over, folder.path(), &clock);
        for field in ["k", "x", "at"] {
            let spec = parse(&format!("{{key: {{{field}: 1}}, name: '{field}_1'}}"));
            let created = store.create_indexes(
                (&op, &ReadView::now()),
                &namespace,
                &[spec.as_doc()],
                CreateIndexesOptions::default(),
            );
            created.expect("an index");
        }
        let keys = load(&store, &op, &namespace);
        if over == Over::RocksDb {
            store.close().expect("the store closes");
            drop(store);
            store = open(over, folder.path(), &clock);
        }
        let collection =
            store.collection(&ReadView::now(), &namespace).expect("the collection is there");
        Bed { store, collection, op, keys, _folder: folder }
    }

    fn key(&self, number: u32) -> RecordKey {
        self.keys[number as usize].clone()
    }

    fn insert(&self, item: RawDoc<'_>) {
        self.write(|unit| unit.insert(item));
    }

    fn write(
        &self,
        body: impl FnMut(&mut mayfly_storage::WriteUnit<'_>) -> mayfly_base::Result<()>,
    ) {
        let written = self.store.write(&self.op, &ReadView::now(), &self.collection, body);
        black_box(written).expect("a write");
    }
}

fn open(over: Over, folder: &Path, clock: &Arc<dyn Clock>) -> Arc<Store> {
    let engine: Arc<dyn Engine> = match over {
        Over::Memory => Arc::new(MemoryEngine::new()),
        Over::RocksDb => {
            RocksEngine::open(folder, RocksOptions::default()).expect("the engine opens")
        }
    };
    let options = StoreOptions { background: false, ..StoreOptions::default() };
    let ops = OpRegistry::new(clock.clone());
    Store::open(engine, options, clock.clone(), ops).expect("the store opens")
}

/// Loads the items; returns their record keys.
fn load(store: &Store, op: &OpCtx, namespace: &Namespace) -> Vec<RecordKey> {
    let collection =
        store.collection(&ReadView::now(), namespace).expect("the collection is there");
    let items = items(LOADED);
    for batch in items.chunks(256) {
        let written = store.write(op, &ReadView::now(), &collection, |unit| {
            batch.iter().try_for_each(|item| unit.insert(item.as_doc()))
        });
        written.expect("a write");
    }
    let key = |item: &DocBuf| {
        let id = item.as_doc().get("_id").expect("an item has an _id");
        store.locate(&ReadView::now(), &collection, id).expect("a read").expect("the item is there")
    };
    items.iter().map(key).collect()
}
