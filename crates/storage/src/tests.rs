//! The store over the memory engine: writes, indexes and builds.

mod expiry;
mod faults;
mod log;
mod two_stores;

use crate::isolation::ReadView;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use mayfly_base::testing::wait_until;
use mayfly_base::{Error, ErrorCode};
use mayfly_kv::{
    Caps, ChaosEngine, ChaosOptions, Engine, EngineWrapper, Guard, KeyRange, Keyspace, KvResult,
    MemoryEngine, SweepEnd, TxnOptions,
};
use mayfly_value::bson::{Bson, Document, doc};
use mayfly_value::{Collation, DocBuf, RawDoc, RawValue};

use crate::testing::{self, Fixture, NOW, fixture, ns};
use crate::ttl::PassState;
use crate::*;

fn date(ms: i64) -> Bson {
    Bson::DateTime(mayfly_value::bson::DateTime::from_millis(ms))
}

impl Fixture {
    fn pass(&self) {
        self.store.run_ttl_pass(&AtomicBool::new(false)).unwrap();
    }
}

fn ttl(field: &str, secs: i32) -> Document {
    doc! { "key": { field: 1 }, "name": format!("{field}_1"), "expireAfterSeconds": secs }
}

#[test]
fn duplicate_id_is_refused_across_numeric_types() {
    let f = fixture();
    f.insert("d.c", &doc! { "_id": 1i32 }).unwrap();
    let error = f.insert("d.c", &doc! { "_id": 1.0 }).unwrap_err();
    assert_eq!(error.code(), ErrorCode::DuplicateKey);
    assert!(error.message().contains("dup key: { _id: 1.0 }"), "{error}");
    assert_eq!(f.count("d.c"), 1);
}

#[test]
fn unique_index_refuses_and_a_failed_build_leaves_nothing() {
    let f = fixture();
    f.insert("d.c", &doc! { "_id": 1, "a": 5 }).unwrap();
    f.insert("d.c", &doc! { "_id": 2, "a": 5i64 }).unwrap();
    let spec = doc! { "key": { "a": 1 }, "name": "a_1", "unique": true };
    assert_eq!(f.index("d.c", &spec).unwrap_err().code(), ErrorCode::DuplicateKey);
    let collection = f.store.collection(&ReadView::now(), &ns("d.c")).unwrap();
    assert!(collection.indexes().is_empty());
    f.store
        .write(&f.op, &ReadView::now(), &collection, |unit| {
            let key = f.key(2);
            let old = unit.read(&key)?.unwrap();
            unit.delete(&key, &old)
        })
        .unwrap();
    f.index("d.c", &spec).unwrap();
    assert_eq!(
        f.insert("d.c", &doc! { "_id": 3, "a": 5 }).unwrap_err().code(),
        ErrorCode::DuplicateKey
    );
    f.insert("d.c", &doc! { "_id": 4, "a": 6 }).unwrap();
    assert_eq!(f.entries("d.c", 0), 2);
}

#[test]
fn multikey_keys_follow_updates() {
    let f = fixture();
    f.index("d.c", &doc! { "key": { "a": 1 }, "name": "a_1" }).unwrap();
    f.insert("d.c", &doc! { "_id": 1, "a": [1, 2, 2, 3] }).unwrap();
    assert_eq!(f.entries("d.c", 0), 3);
    let collection = f.store.collection(&ReadView::now(), &ns("d.c")).unwrap();
    assert!(collection.indexes()[0].is_multikey());
    let new = DocBuf::from_bson(&doc! { "_id": 1, "a": [3, 4] });
    f.store
        .write(&f.op, &ReadView::now(), &collection, |unit| {
            let key = f.key(1);
            let old = unit.read(&key)?.unwrap();
            unit.update(&key, &old, new.as_doc(), UpdateStyle::Computed)
        })
        .unwrap();
    assert_eq!(f.entries("d.c", 0), 2);
    let reopened = testing::open(f.engine.clone(), f.clock.clone());
    let collection = reopened.store.collection(&ReadView::now(), &ns("d.c")).unwrap();
    assert!(collection.indexes()[0].is_multikey(), "the mark outlives a restart");
}

#[test]
fn parallel_arrays_are_refused_and_shared_arrays_are_not() {
    let f = fixture();
    f.index("d.c", &doc! { "key": { "a": 1, "b": 1 }, "name": "ab" }).unwrap();
    let error = f.insert("d.c", &doc! { "_id": 1, "a": [1], "b": [2] }).unwrap_err();
    assert_eq!(error.code(), ErrorCode::CannotIndexParallelArrays);
    f.index("d.e", &doc! { "key": { "a.b": 1, "a.c": 1 }, "name": "abc" }).unwrap();
    f.insert("d.e", &doc! { "_id": 1, "a": [{ "b": 1, "c": 2 }, { "b": 3, "c": 4 }] }).unwrap();
    assert_eq!(f.entries("d.e", 0), 2);
}

#[test]
fn counts_are_right_after_an_unclean_stop() {
    let f = fixture();
    for id in 0..10 {
        f.insert("d.c", &doc! { "_id": id }).unwrap();
    }
    let g = testing::open(f.engine.clone(), f.clock.clone());
    assert_eq!(g.count("d.c"), 10);
}

#[test]
fn racing_writers_and_an_index_build_agree() {
    let f = Arc::new(fixture());
    for id in 0..500 {
        f.insert("d.c", &doc! { "_id": id, "a": id }).unwrap();
    }
    std::thread::scope(|scope| {
        for thread in 0..2i32 {
            let f = f.clone();
            scope.spawn(move || {
                let collection = f.store.collection(&ReadView::now(), &ns("d.c")).unwrap();
                for round in 0..500i32 {
                    let id = (round * 7 + thread) % 500;
                    let new = DocBuf::from_bson(&doc! { "_id": id, "a": 1000 + round });
                    f.store
                        .write(&f.op, &ReadView::now(), &collection, |unit| {
                            let key = f.key(id);
                            let old = unit.read(&key)?.unwrap();
                            unit.update(&key, &old, new.as_doc(), UpdateStyle::Computed)
                        })
                        .unwrap();
                }
            });
        }
        f.index("d.c", &doc! { "key": { "a": 1 }, "name": "a_1" }).unwrap();
    });
    assert_eq!(f.count("d.c"), 500);
    assert_eq!(f.entries("d.c", 0), 500);
}

#[test]
fn rebuilt_indexes_are_right_while_writers_go_on() {
    let f = fixture();
    for id in 0..300i32 {
        f.insert("d.c", &doc! { "_id": id, "a": id % 7, "u": id }).unwrap();
    }
    f.index("d.c", &doc! { "key": { "a": 1 }, "name": "a_1" }).unwrap();
    f.index("d.c", &doc! { "key": { "u": 1 }, "name": "u_1", "unique": true }).unwrap();
    let collection = f.store.collection(&ReadView::now(), &ns("d.c")).unwrap();
    let old: Vec<u64> = collection.indexes().iter().map(|index| index.id()).collect();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..i32::MAX {
                if over.load(Ordering::Relaxed) {
                    return;
                }
                let id = round % 300;
                let new = DocBuf::from_bson(&doc! { "_id": id, "a": [round, id], "u": id });
                let change = f.store.write(&f.op, &ReadView::now(), &collection, |unit| {
                    let old = unit.read(&f.key(id))?.unwrap();
                    unit.update(&f.key(id), &old, new.as_doc(), UpdateStyle::Computed)
                });
                change.unwrap();
            }
        });
        for _ in 0..5 {
            assert_eq!(f.store.rebuild_indexes(&f.op, &collection).unwrap(), 3);
        }
        over.store(true, Ordering::Relaxed);
    });
    let indexes = collection.indexes();
    let names: Vec<&str> = indexes.iter().map(|index| index.spec.name()).collect();
    assert_eq!(names, ["a_1", "u_1"]);
    assert!(indexes.iter().all(|index| index.is_ready() && !old.contains(&index.id())));
    let options = ValidateOptions { bson_conformance: false };
    let found = f.store.validate(&f.op, &collection, options).unwrap();
    assert_eq!(found.records, 300);
    assert!(found.indexes.iter().all(|index| index.is_valid()));
}

#[test]
fn nesting_is_limited_where_documents_are_stored() {
    let f = fixture();
    let nested = |levels: usize| {
        let mut inner =
            doc! { "x": "padding that makes the document long enough to be looked at ".repeat(40) };
        for _ in 1..levels {
            inner = doc! { "a": inner };
        }
        inner.insert("_id", levels as i32);
        inner
    };
    f.insert("d.c", &nested(180)).unwrap();
    assert_eq!(f.insert("d.c", &nested(181)).unwrap_err().code(), ErrorCode::Overflow);
}

impl Fixture {
    /// The key of a record of `d.c`.
    fn key(&self, id: i32) -> RecordKey {
        let collection = self.store.collection(&ReadView::now(), &ns("d.c")).unwrap();
        self.store.locate(&ReadView::now(), &collection, RawValue::Int32(id)).unwrap().unwrap()
    }

    /// The entries of the oplog, oldest first.
    fn oplog(&self) -> Vec<Document> {
        self.log(Direction::Forward, usize::MAX)
    }
}

#[test]
fn no_write_goes_into_a_collection_that_the_catalog_has_dropped() {
    let f = fixture();
    let name = ns("d.c");
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for writer in 0..3 {
            let (f, over) = (&f, &over);
            scope.spawn(move || {
                for n in 0.. {
                    if over.load(Ordering::Relaxed) {
                        return;
                    }
                    // The collection may be dropped between the two steps.
                    let _ = f.store.get_or_create(&ReadView::now(), &ns("d.c")).and_then(
                        |(collection, _)| {
                            let document = DocBuf::from_bson(&doc! { "_id": n * 3 + writer });
                            f.store.write(&f.op, &ReadView::now(), &collection, |unit| {
                                unit.insert(document.as_doc())
                            })
                        },
                    );
                }
            });
        }
        for _ in 0..300 {
            std::thread::yield_now();
            f.store.drop_collection(&name).unwrap();
        }
        over.store(true, Ordering::Relaxed);
    });
    let mut gone = std::collections::HashSet::new();
    for entry in f.oplog() {
        let uuid = format!("{:?}", entry.get("ui"));
        assert!(!gone.contains(&uuid), "{entry}");
        if entry.get_document("o").unwrap().contains_key("drop") {
            gone.insert(uuid);
        }
    }
}

#[test]
fn an_index_exists_when_its_creation_succeeds_although_another_build_of_it_failed() {
    let f = fixture();
    f.insert("d.c", &doc! { "_id": 1, "a": 1 }).unwrap();
    let collection = f.store.collection(&ReadView::now(), &ns("d.c")).unwrap();
    let spec = doc! { "v": 2, "key": { "a": 1 }, "name": "a_1" };
    let parsed = IndexSpec::from_catalog(DocBuf::from_bson(&spec)).unwrap();
    let building = f.store.register_building(&collection, vec![parsed]).unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| f.index("d.c", &spec));
        // Long enough to find the other build in most runs; the result must be right in all.
        (0..20_000).for_each(|_| std::thread::yield_now());
        f.store.abandon_building(&collection, &building).unwrap();
        let result = waiting.join().unwrap().unwrap();
        assert_eq!((result.before, result.after), (1, 2));
    });
    assert_eq!(f.entries("d.c", 0), 1);
}

#[test]
fn a_long_array_changes_its_keys() {
    // Comparing each key with each other one would take minutes.
    let f = fixture();
    f.index("d.c", &doc! { "key": { "a": 1 }, "name": "a_1" }).unwrap();
    let array = |from: i32| {
        DocBuf::from_bson(&doc! { "_id": 1, "a": (from..from + 90_000).collect::<Vec<_>>() })
    };
    let (old, new) = (array(0), array(1));
    f.insert("d.c", &Document::from_reader(old.as_doc().as_bytes()).unwrap()).unwrap();
    let collection = f.store.collection(&ReadView::now(), &ns("d.c")).unwrap();
    let key = f.key(1);
    let update = |unit: &mut WriteUnit<'_>| {
        let old = unit.read(&key)?.unwrap();
        unit.update(&key, &old, new.as_doc(), UpdateStyle::Computed)
    };
    f.store.write(&f.op, &ReadView::now(), &collection, update).unwrap();
    assert_eq!(f.entries("d.c", 0), 90_000);
}

#[test]
fn sizes_of_documents_and_of_indexes_are_separate() {
    let fixture = fixture();
    for id in 0..300 {
        fixture.insert("db.c", &doc! {"_id": id, "a": id}).unwrap();
    }
    fixture.index("db.c", &doc! {"key": {"a": 1}, "name": "a_1"}).unwrap();
    let collection = fixture.store.collection(&ReadView::now(), &ns("db.c")).unwrap();
    let sizes = fixture.store.sizes(&fixture.op, &collection).unwrap();
    assert_eq!((sizes.documents, sizes.data_bytes), (300, 300 * 21));
    assert!(sizes.storage_bytes > 300 * 21);
    assert_eq!(sizes.indexes.len(), 1);
    assert!(sizes.indexes[0].1 > 300);
    let all = whole_range();
    let limit = CountLimit { bytes: None, documents: Some(10) };
    let counted = fixture.store.count_range(&fixture.op, &collection, None, &all, limit).unwrap();
    assert_eq!(counted, CountResult { documents: 11, bytes: 11 * 21, cut_off: true });
}

#[test]
fn numbers_of_a_collection_that_never_came_are_forgotten() {
    let f = fixture();
    f.insert("d.c", &doc! { "_id": 1 }).unwrap();
    let own = f.store.collection(&ReadView::now(), &ns("d.c")).unwrap().id();
    let stored = |id: u64| {
        let key = crate::record::layout::catalog_key::numbers(id);
        f.engine.get_once(Keyspace::Catalog, &key, &mut |_| {}).unwrap()
    };
    let mut txn = f.engine.begin(TxnOptions::default()).unwrap();
    let key = crate::record::layout::catalog_key::numbers(9_999);
    txn.put(Keyspace::Catalog, &key, &7_u64.to_be_bytes(), Guard::Checked).unwrap();
    txn.commit().unwrap();
    assert_eq!((stored(own), stored(9_999)), (true, true));
    let _reopened = testing::open(f.engine.clone(), f.clock.clone());
    assert_eq!((stored(own), stored(9_999)), (true, false));
}
