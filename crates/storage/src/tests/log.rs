//! The oplog: its entries, readers of a log that is cut, and watches.

use super::*;

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
    let (op, o) = write(std::slice::from_ref(&new), UpdateStyle::Parts);
    assert_eq!((op.as_str(), o), ("u", doc! { "$v": 2, "diff": { "u": { "a": 2 } } }));
    let (op, o) = write(std::slice::from_ref(&new), UpdateStyle::Replacement);
    assert_eq!((op.as_str(), o), ("u", new));
    let both = [doc! { "_id": 1, "a": 3, "b": 1 }, doc! { "_id": 1, "a": 3 }];
    let (op, o) = write(&both, UpdateStyle::Parts);
    assert_eq!(op, "c", "two operations of one unit are one entry");
    let operations = o.get_array("applyOps").unwrap();
    let deltas: Vec<_> = operations
        .iter()
        .map(|operation| operation.as_document().unwrap().get_document("o").unwrap().clone())
        .collect();
    let expected = [doc! { "u": { "a": 3 } }, doc! { "d": { "b": false } }];
    assert_eq!(deltas, expected.map(|diff| doc! { "$v": 2, "diff": diff }));
    // A computed document is logged as a whole unless its delta is shorter.
    let small = doc! { "_id": 1, "a": 4 };
    assert_eq!(write(std::slice::from_ref(&small), UpdateStyle::Computed).1, small);
    let mut large = doc! { "_id": 1, "a": 4, "s": "x".repeat(50) };
    write(std::slice::from_ref(&large), UpdateStyle::Replacement);
    large.insert("a", 5);
    let (_, o) = write(&[large], UpdateStyle::Computed);
    assert_eq!(o, doc! { "$v": 2, "diff": { "u": { "a": 5 } } });
}

#[test]
fn a_rename_over_another_collection_is_one_change() {
    let f = fixture();
    f.insert("d.a", &doc! { "_id": 1 }).unwrap();
    f.insert("d.b", &doc! { "_id": 2 }).unwrap();
    f.insert("d.b", &doc! { "_id": 3 }).unwrap();
    let target = f.store.collection(&ReadView::now(), &ns("d.b")).unwrap();
    let before = f.oplog().len();
    f.store.rename_collection(&ns("d.a"), &ns("d.b"), RenameTarget::Dropped).unwrap();
    assert_eq!(f.oplog().len(), before + 1, "a crash finds both halves or none");
    assert!(f.oplog().last().unwrap().get_document("o").unwrap().contains_key("dropTarget"));
    assert!(target.is_dropped());
    let g = testing::open(f.engine.clone(), f.clock.clone());
    assert_eq!((g.count("d.a"), g.count("d.b")), (0, 1));
    g.store.sweep_once().unwrap();
    assert_eq!(g.count("d.b"), 1);
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
    let fixture = open();
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
    let testing::Fixture { store, .. } = open();
    for store in [&fixture.store, &store] {
        for after in [0, first - 1, first] {
            assert_eq!(follow(store, after).unwrap_err(), ErrorCode::ChangeStreamHistoryLost);
        }
        // From the first allowed position on, all later entries are there.
        let after =
            all.iter().copied().find(|after| store.oplog().check_not_cut(*after).is_ok()).unwrap();
        let later: Vec<u64> = all.iter().copied().filter(|one| *one > after).collect();
        assert!(!later.is_empty() && later.len() < all.len());
        // A reopened store starts at a later second.
        let settled = store.oplog().settled();
        assert!(settled >= reached);
        assert_eq!(follow(store, after).unwrap(), (later, settled));
        assert_eq!(follow(store, settled).unwrap(), (Vec::new(), settled));
    }
}

/// A stream over one collection skips entries of others, even if they were cut meanwhile.
#[test]
fn a_watch_knows_what_need_not_be_read() {
    let clock = testing::clock();
    let engine = testing::memory();
    let options = StoreOptions { background: false, oplog_bytes: 4096, ..StoreOptions::default() };
    let fixture = testing::open_with(engine.clone(), clock, options);
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
