//! An owner and its secondaries over one engine in memory.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use mayfly_base::ErrorCode;
use mayfly_base::testing::wait_until;
use mayfly_kv::{Engine, Guard, Keyspace, RoundTripCounter, RoundTrips, TxnOptions};
use mayfly_value::bson::{Document, doc};
use mayfly_value::{DocBuf, RawValue};

use crate::record::layout::catalog_key;
use crate::secondary::counts::ShownCounts;
use crate::shared::{NO_VERSION, change_version, version};
use crate::testing::{self, Fixture, ns};
use crate::*;

fn role(role: StoreRole) -> StoreOptions {
    StoreOptions { background: false, role, ..StoreOptions::default() }
}

/// An owner and a secondary, which nothing but their calls brings forward.
fn two() -> (Fixture, Fixture) {
    let (engine, clock) = (testing::memory(), testing::clock());
    let owner = testing::open_with(engine.clone(), clock.clone(), role(StoreRole::Owner));
    let secondary = testing::open_with(engine, clock, role(StoreRole::Secondary));
    (owner, secondary)
}

impl Fixture {
    fn read_names(&self) -> Vec<String> {
        // A read of anything brings the names forward.
        self.store.latest().unwrap();
        let all = self.store.collections(None);
        all.iter().map(|it| it.namespace().as_str().to_owned()).collect()
    }

    fn read_index_names(&self, name: &str) -> Vec<String> {
        self.store.latest().unwrap();
        let collection = self.store.collection(&ReadView::now(), &ns(name)).unwrap();
        collection.ready_indexes().iter().map(|it| it.spec.name().to_owned()).collect()
    }

    fn settle(&self) {
        let mut counts = ShownCounts::default();
        counts.note_commit();
        self.store.write_settled(self.store.oplog().settled(), &mut counts).unwrap();
    }
}

#[test]
fn a_secondary_has_the_definitions_of_each_snapshot() {
    let (owner, secondary) = two();
    assert!(!secondary.store.is_primary() && owner.store.is_primary());
    assert_eq!(secondary.read_names(), Vec::<String>::new());
    owner.insert("d.a", &doc! { "_id": 1, "x": 1 }).unwrap();
    owner.insert("d.b", &doc! { "_id": 1 }).unwrap();
    assert_eq!(secondary.read_names(), ["d.a", "d.b"]);
    assert_eq!((secondary.count("d.a"), secondary.count("d.b")), (1, 1));
    owner.insert("d.a", &doc! { "_id": 2, "x": 2 }).unwrap();
    assert_eq!(secondary.count("d.a"), 2);

    owner.index("d.a", &doc! { "key": { "x": 1 }, "name": "x_1" }).unwrap();
    assert_eq!(secondary.read_index_names("d.a"), ["_id_", "x_1"]);
    assert_eq!(secondary.entries("d.a", 0), 2);

    let a = secondary.store.collection(&ReadView::now(), &ns("d.a")).unwrap();
    owner.store.rename_collection(&ns("d.a"), &ns("d.c"), RenameTarget::MustNotExist).unwrap();
    assert_eq!(secondary.read_names(), ["d.b", "d.c"]);
    a.check_alive().unwrap();
    assert_eq!(a.check_still(&ns("d.a")).unwrap_err().code(), ErrorCode::QueryPlanKilled);
    owner.store.rename_collection(&ns("d.c"), &ns("d.b"), RenameTarget::Dropped).unwrap();
    assert_eq!(secondary.read_names(), ["d.b"]);
    let b = secondary.store.collection(&ReadView::now(), &ns("d.b")).unwrap();
    assert!(std::ptr::eq(&*a, &*b), "the collection is the same one");
    assert_eq!(secondary.count("d.b"), 2);

    owner.store.drop_collection(&ns("d.b")).unwrap();
    assert_eq!(secondary.read_names(), Vec::<String>::new());
    assert_eq!(b.check_alive().unwrap_err().code(), ErrorCode::QueryPlanKilled);
}

#[test]
fn a_dropped_index_is_noticed_before_its_entries_are_missed() {
    let (owner, secondary) = two();
    owner.index("d.c", &doc! { "key": { "x": 1 }, "name": "x_1" }).unwrap();
    owner.insert("d.c", &doc! { "_id": 1, "x": 1 }).unwrap();
    secondary.store.latest().unwrap();
    let collection = secondary.store.collection(&ReadView::now(), &ns("d.c")).unwrap();
    let index = collection.indexes()[0].clone();
    let before = secondary.store.latest().unwrap();
    owner.store.drop_indexes(&ns("d.c"), Some(&[IndexSelector::Name("x_1")])).unwrap();
    owner.store.sweep_once().unwrap();
    // The snapshot of before still has the entries.
    assert_eq!(before.count_entries(&index, &whole_range(), 10).unwrap().0, 1);
    index.check_alive().unwrap();
    let after = secondary.store.latest().unwrap();
    assert_eq!(index.check_alive().unwrap_err().code(), ErrorCode::QueryPlanKilled);
    assert_eq!(after.count_entries(&index, &whole_range(), 10).unwrap().0, 0);
    assert_eq!(secondary.count("d.c"), 1);
}

#[test]
fn options_and_multikey_bits_come_over() {
    let (owner, secondary) = two();
    owner.index("d.c", &doc! { "key": { "x": 1 }, "name": "x_1" }).unwrap();
    owner.insert("d.c", &doc! { "_id": 1, "x": 1 }).unwrap();
    secondary.store.latest().unwrap();
    let index = || {
        let found = secondary.store.collection(&ReadView::now(), &ns("d.c")).unwrap();
        found.indexes()[0].clone()
    };
    let before = index();
    assert_eq!(before.multikey_mask(), 0);
    owner.insert("d.c", &doc! { "_id": 2, "x": [1, 2] }).unwrap();
    secondary.store.latest().unwrap();
    assert_eq!(before.multikey_mask(), 1);
    let change = CollModChange { hidden: Some(true), ..CollModChange::default() };
    owner.store.modify_index(&ns("d.c"), IndexSelector::Name("x_1"), change).unwrap();
    secondary.store.latest().unwrap();
    assert!(index().spec.hidden() && !before.spec.hidden());
    assert_eq!(index().multikey_mask(), 1);
}

#[test]
fn each_commit_of_the_owner_is_announced() {
    let (engine, clock) = (testing::memory(), testing::clock());
    let of = |role| StoreOptions { role, ..StoreOptions::default() };
    let owner = testing::open_with(engine.clone(), clock.clone(), of(StoreRole::Owner));
    let secondary = testing::open_with(engine, clock, of(StoreRole::Secondary));
    for id in 1..=3 {
        owner.insert("d.c", &doc! { "_id": id }).unwrap();
        let settled = owner.store.oplog().settled();
        wait_until("the secondary follows", || secondary.store.oplog().settled() >= settled);
    }
}

#[test]
fn a_secondary_writes_nothing() {
    let (owner, secondary) = two();
    owner.insert("d.c", &doc! { "_id": 1 }).unwrap();
    let rows =
        |f: &Fixture| owner.store.oplog().settled() + f.log(Direction::Forward, 99).len() as u64;
    let before = rows(&owner);
    assert_eq!(secondary.read_names(), ["d.c"]);
    let refused = |result: mayfly_base::Result<()>| {
        assert_eq!(result.unwrap_err().code(), ErrorCode::NotWritablePrimary);
    };
    refused(secondary.insert("d.c", &doc! { "_id": 2 }));
    refused(secondary.insert("d.new", &doc! { "_id": 2 }));
    refused(secondary.store.drop_collection(&ns("d.c")).map(drop));
    refused(secondary.index("d.c", &doc! { "key": { "x": 1 }, "name": "x" }).map(drop));
    assert_eq!(secondary.store.pin_reads().err().unwrap().code(), ErrorCode::CommandNotSupported);
    assert_eq!(rows(&owner), before);
    assert_eq!(owner.count("d.c"), 1);
}

#[test]
fn the_log_is_read_up_to_the_row_of_the_owner() {
    let (owner, secondary) = two();
    let changes = |f: &Fixture, after: u64| {
        let mut ids = Vec::new();
        let see = &mut |entry: &LogEntry<'_>| {
            let whole = entry.whole()?.into_owned();
            let whole = Document::from_reader(whole.as_bytes()).unwrap();
            if let Ok(o) = whole.get_document("o") {
                ids.extend(o.get_i32("_id"));
            }
            Ok(std::ops::ControlFlow::Continue(()))
        };
        let reached = f.store.oplog().read_changes(after, see).unwrap();
        (ids, reached)
    };
    let watch = secondary.store.oplog().watch(ChangeScope::Collection(ns("d.c")));
    owner.insert("d.c", &doc! { "_id": 1 }).unwrap();
    assert_eq!(secondary.store.oplog().settled(), 0);
    assert_eq!(changes(&secondary, 0), (vec![], 0));
    owner.settle();
    assert!(secondary.store.follow_settled().unwrap());
    assert!(!secondary.store.follow_settled().unwrap());
    let first = owner.store.oplog().settled();
    assert_eq!(changes(&secondary, 0), (vec![1], first));
    assert_eq!(secondary.store.oplog().quiet_until(&watch, first), first);
    owner.insert("d.c", &doc! { "_id": 2 }).unwrap();
    assert_eq!(changes(&secondary, first), (vec![], first));
    owner.settle();
    secondary.store.follow_settled().unwrap();
    // The watch does not know whether the entry concerns it.
    assert_eq!(secondary.store.oplog().quiet_until(&watch, first), first);
    assert_eq!(changes(&secondary, first).0, [2]);
    // A cut is noticed by the next read.
    owner.store.cut_log_whole().unwrap();
    let see = &mut |_: &LogEntry<'_>| Ok(std::ops::ControlFlow::Continue(()));
    let lost = secondary.store.oplog().read_changes(1, see).unwrap_err();
    assert_eq!(lost.code(), ErrorCode::ChangeStreamHistoryLost);
}

#[test]
fn an_owner_gives_a_store_without_a_version_its_first() {
    let (engine, clock) = (testing::memory(), testing::clock());
    let present =
        |engine: &Arc<dyn Engine>| version(&*engine.begin(TxnOptions::READ_ONLY).unwrap()).unwrap();
    drop(testing::open_with(engine.clone(), clock.clone(), role(StoreRole::Alone)));
    assert_eq!(present(&engine), NO_VERSION);
    let owner = testing::open_with(engine.clone(), clock.clone(), role(StoreRole::Owner));
    let first = present(&engine);
    assert_ne!(first, NO_VERSION);
    drop(owner);
    let _again = testing::open_with(engine.clone(), clock, role(StoreRole::Owner));
    assert_eq!(present(&engine), first);
}

#[test]
fn damage_of_the_definitions_keeps_its_code() {
    let (owner, secondary) = two();
    owner.insert("d.c", &doc! { "_id": 1 }).unwrap();
    assert_eq!(secondary.read_names(), ["d.c"]);
    let id = secondary.store.collection(&ReadView::now(), &ns("d.c")).unwrap().id();
    let mut txn = owner.store.engine().begin(TxnOptions::default()).unwrap();
    txn.put(Keyspace::Catalog, &catalog_key::collection(id), b"damaged", Guard::Derived).unwrap();
    change_version(&mut *txn).unwrap();
    txn.commit().unwrap();
    let error = secondary.store.latest().err().unwrap();
    assert_eq!(error.code(), ErrorCode::DataCorruptionDetected);
}

#[test]
fn a_point_read_is_one_round_trip_until_a_definition_changes() {
    let (engine, clock) = (testing::memory(), testing::clock());
    let owner = testing::open_with(engine.clone(), clock.clone(), role(StoreRole::Owner));
    owner.insert("d.c", &doc! { "_id": 1, "x": 1 }).unwrap();
    owner.insert("d.c", &doc! { "_id": 2, "x": 2 }).unwrap();
    let counter = Arc::<RoundTripCounter>::default();
    let counted = Arc::new(RoundTrips::new(engine, counter.clone()));
    let secondary = testing::open_with(counted, clock, role(StoreRole::Secondary));
    secondary.store.latest().unwrap();
    let collection = secondary.store.collection(&ReadView::now(), &ns("d.c")).unwrap();
    let read = |id: i32| {
        counter.take();
        let key = collection.id_key(RawValue::Int32(id));
        let found =
            secondary.store.read_by_id(&ReadView::now(), &collection, &key, |_, document| {
                document.get("x") == Some(RawValue::Int32(id))
            });
        (found.unwrap(), counter.take())
    };
    // By the entry of the index; then by the number of the record, which is remembered.
    assert_eq!([read(1), read(1), read(3)], [(Some(true), 1), (Some(true), 1), (None, 1)]);
    owner.index("d.c", &doc! { "key": { "x": 1 }, "name": "x_1" }).unwrap();
    // The versions differ, twice, before the definitions are loaded.
    let (found, trips) = read(1);
    assert!(found == Some(true) && trips > 3, "{found:?} in {trips} round trips");
    assert_eq!([read(1), read(2)], [(Some(true), 1), (Some(true), 1)]);
}

#[test]
fn readers_and_definitions_race() {
    let (engine, clock) = (testing::memory(), testing::clock());
    let owner = testing::open_with(engine.clone(), clock.clone(), role(StoreRole::Owner));
    for id in 0..50 {
        owner.insert("d.c", &doc! { "_id": id, "x": id }).unwrap();
    }
    let ended = std::sync::atomic::AtomicBool::new(false);
    let clock = &clock;
    std::thread::scope(|scope| {
        for _ in 0..3 {
            let (engine, ended) = (engine.clone(), &ended);
            scope.spawn(move || {
                let secondary =
                    testing::open_with(engine, clock.clone(), role(StoreRole::Secondary));
                let mut used = 0;
                while !ended.load(std::sync::atomic::Ordering::Acquire) {
                    let view = ReadView::now();
                    secondary.store.latest().unwrap();
                    let collection = secondary.store.collection(&view, &ns("d.c")).unwrap();
                    let Some(index) = collection.indexes().first().cloned() else { continue };
                    if !index.is_ready() {
                        continue;
                    }
                    let snapshot = secondary.store.snapshot(&view).unwrap();
                    if index.check_alive().is_ok() {
                        let found = snapshot.count_entries(&index, &whole_range(), 99).unwrap();
                        assert_eq!(found.0, 50);
                        used += 1;
                    }
                }
                used
            });
        }
        for _ in 0..100 {
            owner.index("d.c", &doc! { "key": { "x": 1 }, "name": "x_1" }).unwrap();
            let selectors = [IndexSelector::Name("x_1")];
            owner.store.drop_indexes(&ns("d.c"), Some(&selectors)).unwrap();
            owner.store.sweep_once().unwrap();
        }
        ended.store(true, std::sync::atomic::Ordering::Release);
    });
}

#[test]
fn threads_bring_a_secondary_forward() {
    let (engine, clock) = (testing::memory(), testing::clock());
    let options = |role| StoreOptions { role, ..StoreOptions::default() };
    let owner = testing::open_with(engine.clone(), clock.clone(), options(StoreRole::Owner));
    let secondary = testing::open_with(engine, clock, options(StoreRole::Secondary));
    owner.insert("d.c", &doc! { "_id": 1 }).unwrap();
    let (last, log) = (owner.store.last_timestamp(), secondary.store.oplog());
    mayfly_base::testing::wait_until("the log is followed", || log.settled() >= last);
    assert!(!secondary.store.ttl_running() && !secondary.store.sweeper_running());
    // Both stores have the engine in memory, which the first one closes for both.
    secondary.store.close().unwrap();
}

/// Files of a search index: the documents by their ordered `_id`.
#[derive(Default)]
struct Files(RefCell<BTreeMap<Vec<u8>, DocBuf>>);

impl FeedFiles for Files {
    fn apply(&self, documents: &[FedDocument]) -> mayfly_base::Result<()> {
        for fed in documents {
            let mut documents = self.0.borrow_mut();
            let id_key = fed.id_key.to_vec();
            match &fed.document {
                Some((_, document)) => drop(documents.insert(id_key, document.clone())),
                None => drop(documents.remove(&id_key)),
            }
        }
        Ok(())
    }
}

impl Fixture {
    fn define_search(&self, a: i32) {
        let definition = DocBuf::from_bson(&doc! { "a": a });
        let name = "s".to_owned();
        let new = NewSearchIndex { name, kind: "search".into(), definition: definition.clone() };
        let selector = SearchSelector::Name("s");
        match self.of("d.c").search_indexes().is_empty() {
            true => self.store.create_search_indexes(&ns("d.c"), &[new]).map(drop),
            false => self.store.update_search_index(&ns("d.c"), selector, &definition, |_| Ok(())),
        }
        .unwrap();
    }

    /// The versions of the only search index.
    fn search_versions(&self) -> Vec<Arc<SearchVersion>> {
        self.store.latest().unwrap();
        let indexes = self.of("d.c").search_indexes();
        indexes.first().map_or_else(Vec::new, |index| index.versions.clone())
    }

    fn bring_forward(&self, version: &SearchVersion, files: &Files) {
        let found = self.of("d.c");
        let mut step = FeedStep::More;
        while step == FeedStep::More {
            step = self.store.feed_search(&self.op, &found, version, files).unwrap();
        }
    }

    /// Commits files; returns their position.
    fn commit_search(&self, version: &SearchVersion) -> u64 {
        let found = self.of("d.c");
        let position = self.store.search_position(&found, version).unwrap().unwrap();
        self.store.note_search_committed(version, position);
        self.store.note_search_ready(&found, version).unwrap();
        position
    }

    fn is_search_current(&self, version: &SearchVersion) -> bool {
        let until = (self.store.newest_write().unwrap(), Duration::from_millis(1));
        self.store.await_search(&self.op, &self.of("d.c"), version, until).unwrap()
    }
}

#[test]
fn a_search_waits_for_writes_that_the_owner_has_not_reported_yet() {
    let (owner, secondary) = two();
    owner.insert("d.c", &doc! { "_id": 1 }).unwrap();
    owner.define_search(1);
    owner.settle();
    secondary.store.follow_settled().unwrap();
    let (version, files) = (secondary.search_versions()[0].clone(), Files::default());
    assert!(secondary.store.open_search(&version, None));
    secondary.bring_forward(&version, &files);
    secondary.commit_search(&version);
    assert!(secondary.is_search_current(&version) && files.0.borrow().len() == 1);
    // Acknowledged, but the log of the secondary ends before it.
    owner.insert("d.c", &doc! { "_id": 2 }).unwrap();
    secondary.bring_forward(&version, &files);
    assert!(!secondary.is_search_current(&version));
    owner.settle();
    // The search itself has read that the log goes on.
    assert!(!secondary.is_search_current(&version));
    secondary.bring_forward(&version, &files);
    assert!(secondary.is_search_current(&version) && files.0.borrow().len() == 2);
    // All entries are cut: the files lack the change, and say so.
    owner.insert("d.c", &doc! { "_id": 3 }).unwrap();
    owner.store.cut_log_whole().unwrap();
    owner.store.sweep_once().unwrap();
    assert!(!secondary.is_search_current(&version));
    owner.settle();
    secondary.store.follow_settled().unwrap();
    let found = secondary.of("d.c");
    let lost = secondary.store.feed_search(&secondary.op, &found, &version, &files).unwrap_err();
    assert_eq!(lost.code(), ErrorCode::ChangeStreamHistoryLost);
    assert!(!secondary.is_search_current(&version));
}

#[test]
fn search_versions_of_a_secondary_are_ready_when_its_own_files_are() {
    let (owner, secondary) = two();
    owner.insert("d.c", &doc! { "_id": 1 }).unwrap();
    owner.define_search(1);
    owner.settle();
    let of_owner = owner.search_versions()[0].clone();
    owner.store.open_search(&of_owner, None);
    owner.bring_forward(&of_owner, &Files::default());
    owner.commit_search(&of_owner);
    let rows = || {
        let txn = owner.store.engine().begin(TxnOptions::READ_ONLY).unwrap();
        [b's', b'p'].map(|kind| crate::catalog::rows(&*txn, kind).unwrap())
    };
    let (stored, first) = (rows(), secondary.search_versions()[0].clone());
    assert!(of_owner.is_ready() && !first.is_ready());
    secondary.store.follow_settled().unwrap();
    secondary.store.open_search(&first, None);
    secondary.bring_forward(&first, &Files::default());
    let position = secondary.commit_search(&first);
    assert!(first.is_ready() && rows() == stored);

    // The owner has dropped the version that still serves the searches of the secondary.
    owner.define_search(2);
    let next = owner.search_versions()[1].clone();
    owner.store.open_search(&next, None);
    owner.bring_forward(&next, &Files::default());
    owner.commit_search(&next);
    assert_eq!(owner.search_versions().len(), 1);
    let versions = secondary.search_versions();
    assert_eq!(versions.len(), 2);
    assert!(Arc::ptr_eq(&versions[0], &first) && first.is_ready() && !versions[1].is_ready());
    owner.settle();
    secondary.store.follow_settled().unwrap();
    secondary.store.open_search(&versions[1], None);
    secondary.bring_forward(&versions[1], &Files::default());
    secondary.commit_search(&versions[1]);
    assert!(first.is_dropped() && secondary.search_versions().len() == 1);

    // A restart of the secondary uses complete files of a version, and no others.
    let (engine, clock) = (secondary.engine.clone(), secondary.clock.clone());
    let again = testing::open_with(engine, clock, role(StoreRole::Secondary));
    let version = again.search_versions()[0].clone();
    assert!(!version.is_ready() && !again.store.open_search(&version, Some(0)));
    assert!(again.store.open_search(&version, Some(position)) && version.is_ready());
    let selector = SearchSelector::Name("s");
    owner.store.drop_search_index(&ns("d.c"), selector).unwrap();
    assert!(again.search_versions().is_empty() && version.is_dropped());
}
