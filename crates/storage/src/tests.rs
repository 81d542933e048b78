//! The store over the memory engine: writes, indexes, builds, expiry.

use crate::isolation::ReadView;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use mayfly_base::testing::wait_until;
use mayfly_base::{Error, ErrorCode, ManualClock, Namespace};
use mayfly_kv::{
    Caps, ChaosEngine, ChaosOptions, Engine, EngineWrapper, Guard, KeyRange, Keyspace, KvResult,
    MemoryEngine, SweepEnd, TxnOptions,
};
use mayfly_value::bson::{self, Bson, Document, doc};
use mayfly_value::{Collation, DocBuf, RawDoc, RawValue};
use mayfly_work::OpCtx;

use crate::testing::{self, NOW, Opened};
use crate::ttl::PassState;
use crate::*;

pub(crate) struct Fixture {
    pub(crate) store: Arc<Store>,
    engine: Arc<dyn Engine>,
    clock: Arc<ManualClock>,
    pub(crate) op: Arc<OpCtx>,
}

pub(crate) fn fixture() -> Fixture {
    over(testing::memory(), testing::clock())
}

fn over(engine: Arc<dyn Engine>, clock: Arc<ManualClock>) -> Fixture {
    let Opened { store, op, .. } = testing::open(engine.clone(), clock.clone());
    Fixture { store, engine, clock, op }
}

pub(crate) fn ns(name: &str) -> Namespace {
    Namespace::parse(name).unwrap()
}

fn date(ms: i64) -> Bson {
    Bson::DateTime(mayfly_value::bson::DateTime::from_millis(ms))
}

impl Fixture {
    fn insert(&self, name: &str, document: &Document) -> mayfly_base::Result<()> {
        let (collection, _) = self.store.get_or_create(&ReadView::now(), &ns(name)).unwrap();
        let document = DocBuf::from_bson(document);
        self.store
            .write(&self.op, &ReadView::now(), &collection, |unit| unit.insert(document.as_doc()))
    }

    fn index(&self, name: &str, spec: &Document) -> mayfly_base::Result<CreateIndexesResult> {
        let spec = DocBuf::from_bson(spec);
        self.store.create_indexes(
            (&self.op, &ReadView::now()),
            &ns(name),
            &[spec.as_doc()],
            CreateIndexesOptions::default(),
        )
    }

    fn count(&self, name: &str) -> usize {
        let Some(collection) = self.store.collection(&ReadView::now(), &ns(name)) else { return 0 };
        let mut count = 0;
        let snapshot = self.store.snapshot(&ReadView::now()).unwrap();
        snapshot
            .scan_records(
                &collection,
                &whole_range(),
                Direction::Forward,
                ScanLimit::NONE,
                &mut |_, _| {
                    count += 1;
                    Ok(ControlFlow::Continue(()))
                },
            )
            .unwrap();
        let counted = self.store.count_documents(&self.op, &collection).unwrap();
        assert_eq!(counted, count as i64, "the kept count agrees with the records");
        self.check_indexes(&collection);
        count
    }

    /// Checks that every entry has its record.
    fn check_indexes(&self, collection: &Collection) {
        let snapshot = self.store.snapshot(&ReadView::now()).unwrap();
        for index in collection.ready_indexes() {
            let mut orphans = 0;
            snapshot
                .scan_index(
                    &index,
                    &whole_range(),
                    Direction::Forward,
                    ScanLimit::NONE,
                    &mut |entry| {
                        if snapshot.record_owned(collection, entry.record_key)?.is_none() {
                            orphans += 1;
                        }
                        Ok(ControlFlow::Continue(()))
                    },
                )
                .unwrap();
            assert_eq!(orphans, 0, "index {}", index.spec.name());
        }
    }

    fn entries(&self, name: &str, index: usize) -> usize {
        let collection = self.store.collection(&ReadView::now(), &ns(name)).unwrap();
        let index = collection.indexes()[index].clone();
        let mut count = 0;
        let snapshot = self.store.snapshot(&ReadView::now()).unwrap();
        snapshot
            .scan_index(&index, &whole_range(), Direction::Forward, ScanLimit::NONE, &mut |_| {
                count += 1;
                Ok(ControlFlow::Continue(()))
            })
            .unwrap();
        count
    }

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
            unit.update(&key, &old, new.as_doc(), UpdateStyle::Operators)
        })
        .unwrap();
    assert_eq!(f.entries("d.c", 0), 2);
    let reopened = over(f.engine.clone(), f.clock.clone());
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
fn t_30_hourly_documents_and_two_policies() {
    let f = fixture();
    for hour in 0..24 {
        let at = date(NOW - hour * 3_600_000);
        f.insert("d.c", &doc! { "_id": hour, "x": at.clone(), "y": at }).unwrap();
    }
    let others = [Bson::Null, Bson::from(1), Bson::from("x"), Bson::from(true), doc! {}.into()];
    for (at, other) in others.into_iter().enumerate() {
        f.insert("d.c", &doc! { "_id": format!("o{at}"), "x": other }).unwrap();
    }
    f.insert("d.c", &doc! { "_id": "none" }).unwrap();
    f.index("d.c", &ttl("x", 20_000)).unwrap();
    f.pass();
    assert_eq!(f.count("d.c"), 12);
    f.index("d.c", &ttl("y", 10_000)).unwrap();
    f.pass();
    assert_eq!(f.count("d.c"), 9);
}

#[test]
fn t_31_the_cutoff_is_inclusive_and_t_39_future_dates_wait() {
    let f = fixture();
    f.index("d.c", &ttl("x", 0)).unwrap();
    f.insert("d.c", &doc! { "_id": 1, "x": date(NOW) }).unwrap();
    f.insert("d.c", &doc! { "_id": 2, "x": date(NOW + 1) }).unwrap();
    f.pass();
    assert_eq!(f.count("d.c"), 1);
    f.clock.advance_ms(1);
    f.pass();
    assert_eq!(f.count("d.c"), 0);
}

#[test]
fn t_33_the_earliest_date_of_an_array_decides() {
    let f = fixture();
    f.index("d.c", &ttl("x", 0)).unwrap();
    let (past, future) = (date(NOW - 1), date(NOW + 1));
    f.insert("d.c", &doc! { "_id": "go1", "x": [future.clone(), past.clone()] }).unwrap();
    f.insert("d.c", &doc! { "_id": "stay", "x": [future.clone(), future] }).unwrap();
    f.insert("d.c", &doc! { "_id": "go2", "x": ["x", past.clone()] }).unwrap();
    f.insert("d.c", &doc! { "_id": "stay2", "x": [] }).unwrap();
    f.insert("d.c", &doc! { "_id": "stay3", "x": [[past]] }).unwrap();
    f.pass();
    assert_eq!(f.count("d.c"), 3);
}

#[test]
fn t_36_dates_before_1970() {
    let f = fixture();
    f.index("d.c", &ttl("x", 3600)).unwrap();
    f.insert("d.c", &doc! { "_id": 1900, "x": date(-2_208_988_800_000) }).unwrap();
    f.insert("d.c", &doc! { "_id": 1, "x": date(i64::MIN) }).unwrap();
    f.pass();
    assert_eq!(f.count("d.c"), 0);
    f.index("d.e", &ttl("x", i32::MAX)).unwrap();
    f.insert("d.e", &doc! { "_id": 1950, "x": date(-631_152_000_000) }).unwrap();
    f.insert("d.e", &doc! { "_id": 1970, "x": date(0) }).unwrap();
    f.pass();
    assert_eq!(f.count("d.e"), 1);
}

#[test]
fn t_35_a_descending_index_expires_oldest_first() {
    let f = fixture();
    let spec = doc! { "key": { "x": -1 }, "name": "x_-1", "expireAfterSeconds": 0 };
    f.index("d.c", &spec).unwrap();
    for back in 0..50 {
        f.insert("d.c", &doc! { "_id": back, "x": date(NOW - back) }).unwrap();
    }
    f.insert("d.c", &doc! { "_id": "later", "x": date(NOW + 1) }).unwrap();
    f.store.ttl_params().index_target_docs.store(20, Ordering::Relaxed);
    f.store.ttl_params().sub_pass_target_secs.store(0, Ordering::Relaxed);
    let never = AtomicBool::new(false);
    assert!(f.store.run_ttl_sub_pass(&mut PassState::default(), &never).unwrap());
    assert_eq!(f.count("d.c"), 31);
    let collection = f.store.collection(&ReadView::now(), &ns("d.c")).unwrap();
    assert!(f.store.locate(&ReadView::now(), &collection, RawValue::Int32(49)).unwrap().is_none());
    f.pass();
    assert_eq!(f.count("d.c"), 1);
}

#[test]
fn t_45_one_sub_pass_is_fair() {
    let f = fixture();
    for id in 0..40 {
        f.insert("d.x", &doc! { "_id": id, "x": date(NOW - 1000) }).unwrap();
    }
    f.insert("d.y", &doc! { "_id": 1, "y": date(NOW - 1000) }).unwrap();
    f.index("d.x", &ttl("x", 0)).unwrap();
    f.index("d.y", &ttl("y", 0)).unwrap();
    f.store.ttl_params().index_target_docs.store(20, Ordering::Relaxed);
    f.store.ttl_params().sub_pass_target_secs.store(0, Ordering::Relaxed);
    let never = AtomicBool::new(false);
    assert!(f.store.run_ttl_sub_pass(&mut PassState::default(), &never).unwrap());
    assert_eq!((f.count("d.x"), f.count("d.y")), (20, 0));
}

#[test]
fn t_48_an_invalid_policy_does_not_stop_the_others() {
    let f = fixture();
    for name in ["d.x", "d.y"] {
        f.insert(name, &doc! { "_id": 1, "x": date(NOW - 1000) }).unwrap();
        f.index(name, &ttl("x", 0)).unwrap();
    }
    // The catalog as an old server may have left it.
    let broken = doc! { "v": 2, "key": { "x": 1 }, "name": "x_1", "expireAfterSeconds": f64::NAN };
    let collection = f.store.collection(&ReadView::now(), &ns("d.x")).unwrap();
    {
        let mut state = collection.state.write();
        let mut changed = state.clone();
        let old = state.indexes[0].clone();
        changed.indexes[0] = Arc::new(Index {
            id: old.id,
            spec: IndexSpec::from_catalog(DocBuf::from_bson(&broken)).unwrap(),
            filter: None,
            runtime: old.runtime.clone(),
        });
        collection.install(&mut state, changed);
    }
    f.pass();
    assert_eq!((f.count("d.x"), f.count("d.y")), (1, 0));
    assert_eq!(f.store.ttl_stats().invalid_ttl_index_skips.load(Ordering::Relaxed), 1);
    let listed = collection.list_indexes()[1].clone();
    assert_eq!(listed.as_doc().get("expireAfterSeconds"), Some(RawValue::Int32(i32::MAX)));
}

#[test]
fn t_49_rename_keeps_and_recreate_forgets_the_policy() {
    let f = fixture();
    f.index("d.c", &ttl("x", 0)).unwrap();
    f.insert("d.c", &doc! { "_id": 1, "x": date(NOW - 1) }).unwrap();
    f.store.rename_collection(&ns("d.c"), &ns("d.e"), false).unwrap();
    f.pass();
    assert_eq!(f.count("d.e"), 0);
    f.store.drop_collection(&ns("d.e")).unwrap();
    f.insert("d.e", &doc! { "_id": 1, "x": date(NOW - 1) }).unwrap();
    f.pass();
    f.store.sweep_once().unwrap();
    assert_eq!(f.count("d.e"), 1);
}

#[test]
fn t_50_policies_survive_a_restart() {
    let f = fixture();
    f.index("d.c", &ttl("x", 0)).unwrap();
    f.insert("d.c", &doc! { "_id": 1, "x": date(NOW + 5) }).unwrap();
    let g = over(f.engine.clone(), f.clock.clone());
    g.clock.advance_ms(5);
    g.pass();
    assert_eq!(g.count("d.c"), 0);
}

#[test]
fn counts_are_right_after_an_unclean_stop() {
    let f = fixture();
    for id in 0..10 {
        f.insert("d.c", &doc! { "_id": id }).unwrap();
    }
    let g = over(f.engine.clone(), f.clock.clone());
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
                            unit.update(&key, &old, new.as_doc(), UpdateStyle::Operators)
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
                    unit.update(&f.key(id), &old, new.as_doc(), UpdateStyle::Operators)
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

#[test]
fn a_dropped_store_lets_go_of_its_engine() {
    let f = fixture();
    f.insert("d.c", &doc! { "_id": 1 }).unwrap();
    let engine = f.engine.clone();
    drop(f);
    assert_eq!(Arc::strong_count(&engine), 1, "no thread keeps the engine");
}

impl Fixture {
    /// The key of a record of `d.c`.
    fn key(&self, id: i32) -> RecordKey {
        let collection = self.store.collection(&ReadView::now(), &ns("d.c")).unwrap();
        self.store.locate(&ReadView::now(), &collection, RawValue::Int32(id)).unwrap().unwrap()
    }

    /// The entries of the oplog, oldest first.
    fn oplog(&self) -> Vec<Document> {
        let whole = LogRange { first: 1, last: u64::MAX };
        let mut entries = Vec::new();
        let see = &mut |entry: &LogEntry<'_>| {
            let whole = entry.whole()?;
            assert_eq!(entry.bytes(), whole.as_doc().as_bytes().len() as u64);
            entries.push(bson::Document::from_reader(whole.as_doc().as_bytes()).unwrap());
            Ok(ControlFlow::Continue(()))
        };
        self.store.oplog().read(whole, Direction::Forward, see).unwrap();
        entries
    }
}

#[test]
fn the_oplog_distinguishes_replacements_from_changes() {
    let f = fixture();
    f.insert("d.c", &doc! { "_id": 1, "a": 1, "b": 1 }).unwrap();
    let collection = f.store.collection(&ReadView::now(), &ns("d.c")).unwrap();
    let key = f.key(1);
    let write = |new: &[Document], style| {
        f.store
            .write(&f.op, &ReadView::now(), &collection, |unit| {
                new.iter().try_for_each(|new| {
                    let (old, new) = (unit.read(&key)?.unwrap(), DocBuf::from_bson(new));
                    unit.update(&key, &old, new.as_doc(), style)
                })
            })
            .unwrap();
        let entry = f.oplog().pop().unwrap();
        (entry.get_str("op").unwrap().to_owned(), entry.get_document("o").unwrap().clone())
    };
    let new = doc! { "_id": 1, "a": 2, "b": 1 };
    let (op, o) = write(std::slice::from_ref(&new), UpdateStyle::Operators);
    assert_eq!((op.as_str(), o), ("u", doc! { "$v": 2, "diff": { "u": { "a": 2 } } }));
    let (op, o) = write(std::slice::from_ref(&new), UpdateStyle::Replacement);
    assert_eq!((op.as_str(), o), ("u", new));
    let both = [doc! { "_id": 1, "a": 3, "b": 1 }, doc! { "_id": 1, "a": 3 }];
    let (op, o) = write(&both, UpdateStyle::Operators);
    assert_eq!(op, "c", "two operations of one unit are one entry");
    let operations = o.get_array("applyOps").unwrap();
    let deltas: Vec<_> = operations
        .iter()
        .map(|operation| operation.as_document().unwrap().get_document("o").unwrap().clone())
        .collect();
    let expected = [doc! { "u": { "a": 3 } }, doc! { "d": { "b": false } }];
    assert_eq!(deltas, expected.map(|diff| doc! { "$v": 2, "diff": diff }));
}

#[test]
fn a_rename_over_another_collection_is_one_change() {
    let f = fixture();
    f.insert("d.a", &doc! { "_id": 1 }).unwrap();
    f.insert("d.b", &doc! { "_id": 2 }).unwrap();
    f.insert("d.b", &doc! { "_id": 3 }).unwrap();
    let target = f.store.collection(&ReadView::now(), &ns("d.b")).unwrap();
    let before = f.oplog().len();
    f.store.rename_collection(&ns("d.a"), &ns("d.b"), true).unwrap();
    assert_eq!(f.oplog().len(), before + 1, "a crash finds both halves or none");
    assert!(f.oplog().last().unwrap().get_document("o").unwrap().contains_key("dropTarget"));
    assert!(target.is_dropped());
    let g = over(f.engine.clone(), f.clock.clone());
    assert_eq!((g.count("d.a"), g.count("d.b")), (0, 1));
    g.store.sweep_once().unwrap();
    assert_eq!(g.count("d.b"), 1);
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
fn a_closed_store_refuses_writes_and_ends_waits() {
    let f = fixture();
    f.insert("d.c", &doc! { "_id": 1 }).unwrap();
    f.store.close().unwrap();
    let late = f.insert("d.c", &doc! { "_id": 2 }).unwrap_err();
    assert_eq!(late.code(), ErrorCode::InterruptedAtShutdown);
    // A wait for durability ends.
    let mut waiting = std::pin::pin!(f.store.wait_durable());
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(waiting.as_mut().poll(&mut context).is_ready());
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
        unit.update(&key, &old, new.as_doc(), UpdateStyle::Operators)
    };
    f.store.write(&f.op, &ReadView::now(), &collection, update).unwrap();
    assert_eq!(f.entries("d.c", 0), 90_000);
}

/// Filters that match everything, and panic at their second evaluation.
#[derive(Default)]
struct PanicOnce(Arc<std::sync::atomic::AtomicUsize>);

impl FilterCompiler for PanicOnce {
    fn compile(
        &self,
        _: RawDoc<'_>,
        _: Option<&Arc<Collation>>,
    ) -> mayfly_base::Result<Arc<dyn RecordFilter>> {
        Ok(Arc::new(PanicOnce(self.0.clone())))
    }
}

impl RecordFilter for PanicOnce {
    fn matches(&self, _: RawDoc<'_>) -> mayfly_base::Result<bool> {
        assert_ne!(self.0.fetch_add(1, Ordering::Relaxed), 1, "on purpose");
        Ok(true)
    }

    fn as_any(&self) -> &dyn std::any::Any {
        self
    }
}

#[test]
fn the_monitor_outlives_a_panic_of_a_pass() {
    let clock = testing::clock();
    let filters = Arc::new(PanicOnce::default());
    let asked = filters.0.clone();
    let options = StoreOptions { background: true, filters, ..StoreOptions::default() };
    let engine = testing::memory();
    let Opened { store, op, .. } = testing::open_with(engine.clone(), clock.clone(), options);
    let f = Fixture { store, engine, clock, op };
    let mut spec = ttl("x", 0);
    spec.insert("partialFilterExpression", doc! { "y": 1 });
    f.index("d.c", &spec).unwrap();
    f.insert("d.c", &doc! { "_id": 1, "x": date(NOW - 1) }).unwrap();
    let collection = f.store.collection(&ReadView::now(), &ns("d.c")).unwrap();
    wait_until("the document goes", || {
        assert!(asked.load(Ordering::Relaxed) < 2 || f.store.ttl_running(), "expiry has ended");
        f.clock.advance_ms(60_000);
        f.store.ttl_params().wake();
        f.store.count_documents(&f.op, &collection).unwrap() == 0
    });
    f.store.close().unwrap();
}

/// Its first sweep panics.
struct SweepsLater(std::sync::atomic::AtomicUsize, MemoryEngine);

impl EngineWrapper for SweepsLater {
    fn inner(&self) -> &dyn Engine {
        &self.1
    }

    fn sweep_range(&self, keyspace: Keyspace, range: &KeyRange, max: usize) -> KvResult<SweepEnd> {
        assert_ne!(self.0.fetch_add(1, Ordering::AcqRel), 0, "on purpose");
        self.1.sweep_range(keyspace, range, max)
    }
}

#[test]
fn the_sweeper_outlives_a_panic() {
    let clock = testing::clock();
    let sweeps = Arc::new(SweepsLater(Default::default(), MemoryEngine::new()));
    let engine: Arc<dyn Engine> = sweeps.clone();
    let options = StoreOptions::default();
    let Opened { store, op, .. } = testing::open_with(engine.clone(), clock.clone(), options);
    let f = Fixture { store, engine, clock, op };
    f.insert("d.c", &doc! { "_id": 1 }).unwrap();
    let all = KeyRange { start: Vec::new(), end: vec![0xFF; 16] };
    let stored = || f.engine.approximate_bytes(Keyspace::Record, &all).unwrap();
    assert!(stored() > 0);
    f.store.drop_collection(&ns("d.c")).unwrap();
    wait_until("the record is cleared", || {
        assert!(sweeps.0.load(Ordering::Acquire) < 1 || f.store.sweeper_running(), "it has ended");
        f.store.wake_sweeper();
        stored() == 0
    });
    f.store.close().unwrap();
}

/// Filters that fail on documents with a field `hard` while a flag is set.
#[derive(Clone, Default)]
struct Unsure(Arc<AtomicBool>);

impl FilterCompiler for Unsure {
    fn compile(
        &self,
        _: RawDoc<'_>,
        _: Option<&Arc<Collation>>,
    ) -> mayfly_base::Result<Arc<dyn RecordFilter>> {
        Ok(Arc::new(self.clone()))
    }
}

impl RecordFilter for Unsure {
    fn matches(&self, document: RawDoc<'_>) -> mayfly_base::Result<bool> {
        match document.get("hard").is_some() && self.0.load(Ordering::Relaxed) {
            true => Err(Error::new(ErrorCode(51156), "not finished")),
            false => Ok(true),
        }
    }

    fn as_any(&self) -> &dyn std::any::Any {
        self
    }
}

/// If it is unknown whether the document belongs into the index, it is neither left out of it nor
/// removed.
#[test]
fn a_filter_that_fails_decides_nothing() {
    let clock = testing::clock();
    let filters = Unsure::default();
    let fails = filters.0.clone();
    let options =
        StoreOptions { background: false, filters: Arc::new(filters), ..StoreOptions::default() };
    let engine = testing::memory();
    let Opened { store, op, .. } = testing::open_with(engine.clone(), clock.clone(), options);
    let f = Fixture { store, engine, clock, op };
    let mut spec = ttl("x", 0);
    spec.insert("partialFilterExpression", doc! { "y": 1 });
    f.index("d.c", &spec).unwrap();
    let old = doc! { "_id": 1, "x": date(NOW - 1), "hard": 1 };
    f.insert("d.c", &old).unwrap();
    let unfinished = ErrorCode(51156);

    fails.store(true, Ordering::Relaxed);
    // Expiry leaves the document.
    f.pass();
    assert_eq!((f.count("d.c"), f.entries("d.c", 0)), (1, 1));
    // Documents are not written, replaced or removed either.
    let another = doc! { "_id": 2, "hard": 1 };
    assert_eq!(f.insert("d.c", &another).unwrap_err().code(), unfinished);
    let collection = f.store.collection(&ReadView::now(), &ns("d.c")).unwrap();
    let key = f.key(1);
    let new = DocBuf::from_bson(&doc! { "_id": 1 });
    let update = |unit: &mut WriteUnit<'_>| {
        let old = unit.read(&key)?.unwrap();
        unit.update(&key, &old, new.as_doc(), UpdateStyle::Operators)
    };
    let updated = f.store.write(&f.op, &ReadView::now(), &collection, update);
    assert_eq!(updated.unwrap_err().code(), unfinished);
    let deleted = f.store.write(&f.op, &ReadView::now(), &collection, |unit| {
        let old = unit.read(&key)?.unwrap();
        unit.delete(&key, &old)
    });
    assert_eq!(deleted.unwrap_err().code(), unfinished);
    // An index build fails as well.
    let partial = doc! { "key": { "z": 1 }, "name": "z_1", "partialFilterExpression": { "y": 1 } };
    assert_eq!(f.index("d.c", &partial).unwrap_err().code(), unfinished);
    assert_eq!(f.store.collection(&ReadView::now(), &ns("d.c")).unwrap().ready_indexes().len(), 2);
    assert_eq!((f.count("d.c"), f.entries("d.c", 0)), (1, 1));

    fails.store(false, Ordering::Relaxed);
    f.pass();
    assert_eq!((f.count("d.c"), f.entries("d.c", 0)), (0, 0));
}

#[test]
fn a_unit_that_was_too_slow_once_is_tried_again() {
    let clock = testing::clock();
    let memory = Arc::new(MemoryEngine::new());
    let limits = Some(Caps { max_txn_age_ms: 1000, ..memory.caps() });
    let options = ChaosOptions { limits, ..ChaosOptions::default() };
    let engine = ChaosEngine::with_clock(memory, options, clock.clone());
    let f = over(Arc::new(engine), clock);
    let (collection, _) = f.store.get_or_create(&ReadView::now(), &ns("d.c")).unwrap();
    let document = DocBuf::from_bson(&doc! { "_id": 1 });
    let insert = |wait: &mut i64| {
        f.store.write(&f.op, &ReadView::now(), &collection, |unit| {
            f.clock.advance_ms(std::mem::take(wait));
            unit.insert(document.as_doc())
        })
    };
    insert(&mut 5000).unwrap();
    assert_eq!(f.count("d.c"), 1);
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

/// A reader of the log gets an error for entries that were cut, even after a restart.
#[test]
fn what_follows_the_log_learns_that_it_was_cut() {
    let engine: Arc<dyn Engine> = Arc::new(MemoryEngine::new());
    let clock = testing::clock();
    let open = || {
        let options =
            StoreOptions { background: false, oplog_bytes: 4096, ..StoreOptions::default() };
        testing::open_with(engine.clone(), clock.clone(), options)
    };
    let Opened { store, op, .. } = open();
    let fixture = Fixture { store, engine: engine.clone(), clock: clock.clone(), op };
    for id in 0..100 {
        fixture.insert("db.c", &doc! { "_id": id, "text": "x".repeat(100) }).unwrap();
    }
    let follow = |store: &Store, after: u64| {
        let mut seen = Vec::new();
        let read = store.oplog().read_changes(after, &mut |entry| {
            seen.push(entry.timestamp());
            Ok(ControlFlow::Continue(()))
        });
        read.map(|reached| (seen, reached)).map_err(|error| error.code())
    };
    let (all, reached) = follow(&fixture.store, 0).unwrap();
    let first = all[0];
    fixture.store.trim_oplog().unwrap();
    let Opened { store, .. } = open();
    for store in [&fixture.store, &store] {
        for after in [0, first - 1, first] {
            assert_eq!(follow(store, after).unwrap_err(), ErrorCode::ChangeStreamHistoryLost);
        }
        // From the first allowed position on, all later entries are there.
        let after =
            all.iter().copied().find(|after| store.oplog().check_not_cut(*after).is_ok()).unwrap();
        let behind: Vec<u64> = all.iter().copied().filter(|one| *one > after).collect();
        assert!(!behind.is_empty() && behind.len() < all.len());
        // A reopened store starts at a later second.
        let settled = store.oplog().settled();
        assert!(settled >= reached);
        assert_eq!(follow(store, after).unwrap(), (behind, settled));
        assert_eq!(follow(store, settled).unwrap(), (Vec::new(), settled));
    }
}

/// A stream over one collection skips entries of others, even if they were cut meanwhile.
#[test]
fn a_watch_knows_what_need_not_be_read() {
    let clock = testing::clock();
    let engine = testing::memory();
    let options = StoreOptions { background: false, oplog_bytes: 4096, ..StoreOptions::default() };
    let Opened { store, op, .. } = testing::open_with(engine.clone(), clock.clone(), options);
    let fixture = Fixture { store, engine, clock, op };
    let many = |name: &str, ids: std::ops::Range<i32>| {
        for id in ids {
            fixture.insert(name, &doc! { "_id": id, "text": "x".repeat(100) }).unwrap();
        }
    };
    many("db.own", 0..1);
    let oplog = fixture.store.oplog();
    let watch = oplog.watch(ChangeScope::Collection(ns("db.own")));
    let begun = oplog.settled();
    assert!(Arc::ptr_eq(&watch, &oplog.watch(ChangeScope::Collection(ns("db.own")))));
    many("db.other", 0..100);
    fixture.store.trim_oplog().unwrap();
    assert!(oplog.check_not_cut(begun).is_err(), "cut");
    let before = oplog.settled();
    assert_eq!(oplog.quiet_until(&watch, begun), before);
    many("db.own", 1..2);
    let own = oplog.settled();
    many("db.other", 100..103);
    for (after, until) in [(begun, own - 1), (own - 1, own - 1), (own, oplog.settled())] {
        assert_eq!(oplog.quiet_until(&watch, after), until);
        oplog.check_not_cut(until).unwrap();
    }
    // Nothing is known about earlier entries.
    assert_eq!(oplog.quiet_until(&watch, begun - 1), begun - 1);
    // A new watch does not have the notes of the old one.
    drop(watch);
    let watch = oplog.watch(ChangeScope::Collection(ns("db.own")));
    assert_eq!(oplog.quiet_until(&watch, begun), begun);
    // More entries than a watch notes.
    let begun = oplog.settled();
    many("db.own", 2..600);
    assert_eq!(oplog.quiet_until(&watch, begun), begun);
    assert_eq!(oplog.quiet_until(&watch, oplog.settled()), oplog.settled());
}

/// Readers that come and go during writes see the same as a reader of the whole log.
#[test]
fn what_a_watch_skips_concerns_none_of_its_streams() {
    let f = fixture();
    for name in ["db.own", "db.other"] {
        f.insert(name, &doc! { "_id": "first" }).unwrap();
    }
    let scope = || ChangeScope::Collection(ns("db.own"));
    let oplog = f.store.oplog();
    let own_behind = |after: u64, seen: &mut Vec<u64>| {
        let see = &mut |entry: &LogEntry<'_>| {
            if entry.get("ns") == Some(RawValue::String("db.own")) {
                seen.push(entry.timestamp());
            }
            Ok(ControlFlow::Continue(()))
        };
        oplog.read_changes(after, see).unwrap()
    };
    let left = AtomicUsize::new(3);
    std::thread::scope(|threads| {
        for writer in 0..3 {
            let (f, left) = (&f, &left);
            threads.spawn(move || {
                for id in 0..400 {
                    let name = if (id + writer) % 7 == 0 { "db.own" } else { "db.other" };
                    f.insert(name, &doc! { "_id": id * 10 + writer }).unwrap();
                }
                left.fetch_sub(1, Ordering::AcqRel);
            });
        }
        for _ in 0..2 {
            threads.spawn(|| {
                while left.load(Ordering::Acquire) > 0 {
                    let watch = oplog.watch(scope());
                    let begun = oplog.settled();
                    let (mut at, mut seen) = (begun, Vec::new());
                    for _ in 0..20 {
                        let quiet = oplog.quiet_until(&watch, at);
                        at = own_behind(quiet, &mut seen);
                        std::thread::yield_now();
                    }
                    let mut all = Vec::new();
                    own_behind(begun, &mut all);
                    all.retain(|timestamp| *timestamp <= at);
                    assert_eq!(seen, all);
                }
            });
        }
    });
}

/// The document with a name `abc` in it that ends after its first letter, so that the next byte is
/// no type.
fn with_early_end(document: &Document) -> DocBuf {
    let mut bytes = DocBuf::from_bson(document).into_bytes();
    let at = bytes.windows(3).position(|name| name == b"abc").unwrap();
    bytes[at + 1] = 0;
    DocBuf::from_bytes(bytes).unwrap()
}

#[test]
fn damaged_bytes_are_not_stored() {
    let fixture = fixture();
    let whole = doc! {"_id": 1, "a": {"b": 1}, "c": [{"d": 1}]};
    fixture.insert("test.c", &whole).unwrap();
    let collection = fixture.store.collection(&ReadView::now(), &ns("test.c")).unwrap();
    let key =
        fixture.store.locate(&ReadView::now(), &collection, RawValue::Int32(1)).unwrap().unwrap();
    let write = |act: &dyn Fn(&mut WriteUnit<'_>) -> mayfly_base::Result<()>| {
        fixture.store.write(&fixture.op, &ReadView::now(), &collection, act).unwrap_err().code()
    };
    let inserted = with_early_end(&doc! {"_id": 2, "abc": 1});
    assert_eq!(write(&|unit| unit.insert(inserted.as_doc())), ErrorCode::InvalidBSON);
    // At the top level, in a document, in an array, and with the damage in the last field and
    // before it.
    let updated = [
        doc! {"_id": 1, "a": {"b": 1}, "c": [{"d": 1}], "abc": 1},
        doc! {"_id": 1, "abc": 1, "a": {"b": 1}, "c": [{"d": 1}]},
        doc! {"_id": 1, "a": {"b": 1, "abc": 1}, "c": [{"d": 1}]},
        doc! {"_id": 1, "a": {"abc": 1}, "c": [{"d": 1}]},
        doc! {"_id": 1, "a": {"b": 1}, "c": [{"d": 1, "abc": 1}]},
        doc! {"_id": 1, "a": {"b": 1}, "c": [{"d": 1}, {"abc": 1}]},
    ];
    for style in [UpdateStyle::Replacement, UpdateStyle::Operators, UpdateStyle::Growth] {
        for damaged in &updated {
            let new = with_early_end(damaged);
            let code = write(&|unit| {
                let old = unit.read(&key)?.unwrap();
                unit.update(&key, &old, new.as_doc(), style)
            });
            assert_eq!(code, ErrorCode::InvalidBSON, "{style:?} {damaged}");
        }
    }
    assert_eq!(fixture.count("test.c"), 1);
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
    let _reopened = over(f.engine.clone(), f.clock.clone());
    assert_eq!((stored(own), stored(9_999)), (true, false));
}
