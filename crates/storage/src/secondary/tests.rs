//! An owner and its secondaries over one engine in memory.

use mayfly_base::ErrorCode;
use mayfly_value::bson::{Document, doc};

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
        self.store.write_settled(self.store.oplog().settled()).unwrap();
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
