//! Drops, renames, changes of options, expiry, transactions, and builds.

use std::sync::atomic::AtomicBool;

use super::*;
use crate::testing::NOW;

#[test]
fn a_dropped_index_leaves_no_rows() {
    let f = fixture();
    for drops in ["index", "collection"] {
        f.put_text("d.c", 1, "red pen");
        f.index("d.c", &words()).unwrap();
        let id = f.words_index("d.c").id();
        assert_eq!((f.rows(Keyspace::Index, id), f.rows(Keyspace::Record, id)), (2, 1));
        match drops {
            "index" => {
                drop(f.store.drop_indexes(&ns("d.c"), Some(&[IndexSelector::Name("words")])))
            }
            _ => drop(f.store.drop_collection(&ns("d.c"))),
        }
        f.follow();
        f.store.sweep_once().unwrap();
        assert_eq!((f.rows(Keyspace::Index, id), f.rows(Keyspace::Record, id)), (0, 0));
        let txn = f.engine.begin(TxnOptions::READ_ONLY).unwrap();
        assert_eq!(crate::catalog::rows(&*txn, b'p').unwrap(), []);
    }
}

#[test]
fn a_renamed_collection_is_followed_under_its_new_name() {
    let f = fixture();
    f.index("d.a", &words()).unwrap();
    f.put_text("d.a", 1, "red");
    f.follow();
    // Back and forth between two steps: the watch of the old name has not noted the middle.
    for (from, to) in [("d.a", "d.b"), ("d.b", "d.a"), ("d.a", "d.b")] {
        f.put_text(from, 2, "in between");
        f.store.rename_collection(&ns(from), &ns(to), RenameTarget::MustNotExist).unwrap();
        f.put_text(to, 3, to);
    }
    let collection = f.of("d.b");
    let step = f.store.feed(&f.op, &collection).unwrap();
    f.put_text("d.b", 4, "later");
    if step == FeedStep::More {
        f.follow();
    }
    f.follow();
    f.check_words("d.b");
    // Another collection under the old name is another one.
    f.put_text("d.a", 9, "other");
    f.follow();
    f.check_words("d.b");
}

#[test]
fn renames_race_with_steps_and_readers() {
    let f = Arc::new(fixture());
    f.index("d.a", &words()).unwrap();
    let over = AtomicBool::new(false);
    let relaxed = std::sync::atomic::Ordering::Relaxed;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(relaxed) {
                f.follow();
            }
        });
        let (collection, index) = (f.of("d.a"), f.words_index("d.a"));
        for round in 0..60 {
            let (from, to) = if round % 2 == 0 { ("d.a", "d.b") } else { ("d.b", "d.a") };
            f.put_text(from, 2 * round, "x");
            f.store.rename_collection(&ns(from), &ns(to), RenameTarget::MustNotExist).unwrap();
            f.put_text(to, 2 * round + 1, "y");
            f.store.await_fed(&f.op, &collection, &index).unwrap();
            assert_eq!(f.entries(to, 0), 2 * round as usize + 2);
        }
        over.store(true, relaxed);
    });
    f.check_words("d.a");
}

#[test]
fn changed_options_keep_the_position() {
    let f = fixture();
    f.index("d.c", &words()).unwrap();
    f.put_text("d.c", 1, "red");
    f.follow();
    let before = feed(&f.words_index("d.c")).row();
    let change = |change: CollModChange<'_>| {
        let selector = IndexSelector::Name("words");
        f.store.modify_index(&ns("d.c"), selector, change)
    };
    change(CollModChange { hidden: Some(true), ..CollModChange::default() }).unwrap();
    assert_eq!(feed(&f.words_index("d.c")).row(), before);
    let refused = [
        CollModChange { prepare_unique: Some(true), ..CollModChange::default() },
        CollModChange {
            expire_after: Some(NewExpireAfter::Seconds(5)),
            ..CollModChange::default()
        },
    ];
    for refused in refused {
        assert_eq!(change(refused).unwrap_err().code(), ErrorCode::CannotCreateIndex);
    }
    f.put_text("d.c", 2, "red");
    f.follow();
    f.check_words("d.c");
}

#[test]
fn expired_documents_have_no_entries() {
    let f = fixture();
    f.index("d.c", &words()).unwrap();
    let ttl = doc! { "key": { "x": 1 }, "name": "x_1", "expireAfterSeconds": 60 };
    f.index("d.c", &ttl).unwrap();
    for id in 0..30 {
        let at = mayfly_value::bson::DateTime::from_millis(NOW - 1000 * i64::from(id));
        f.insert("d.c", &doc! { "_id": id, "a": "red pen", "x": at }).unwrap();
    }
    f.follow();
    f.check_words("d.c");
    f.clock.advance_ms(45_000);
    f.store.run_ttl_pass(&AtomicBool::new(false)).unwrap();
    let left = f.store.count_documents(&f.op, &f.of("d.c")).unwrap();
    assert_eq!((left, f.entries("d.c", 0)), (15, 60));
    f.follow();
    f.check_words("d.c");
    assert_eq!(f.entries("d.c", 0), 30);
}

fn owner() -> TransactionOwner {
    TransactionOwner { session: [1; 16], lsid: DocBuf::from_bson(&doc! {}), txn_number: 1 }
}

#[test]
fn transactions_are_followed_at_their_commit() {
    let f = fixture();
    f.put_text("d.c", 1, "red");
    f.put_text("d.c", 2, "blue");
    let view = f.store.begin_transaction(owner()).unwrap().enter();
    f.set(&view, "d.c", 1, Some(doc! { "_id": 1, "a": "in the transaction" })).unwrap();
    // The transaction does not see the index.
    f.index("d.c", &words()).unwrap();
    f.set(&view, "d.c", 2, None).unwrap();
    f.set(&view, "d.c", 3, Some(doc! { "_id": 3, "a": "new" })).unwrap();
    f.set(&view, "d.c", 3, Some(doc! { "_id": 3, "a": "newer" })).unwrap();
    f.follow();
    assert_eq!(f.entries("d.c", 0), 2);
    f.store.commit_transaction(OpenTransaction::leave(view).unwrap()).unwrap();
    f.follow();
    f.check_words("d.c");
    assert_eq!(f.entries("d.c", 0), 4);
    // A collection that a transaction creates with its index.
    let view = f.store.begin_transaction(TransactionOwner { txn_number: 2, ..owner() });
    let view = view.unwrap().enter();
    f.index_in(&view, "d.new", &words()).unwrap();
    f.set(&view, "d.new", 1, Some(doc! { "_id": 1, "a": "red" })).unwrap();
    f.follow();
    f.store.commit_transaction(OpenTransaction::leave(view).unwrap()).unwrap();
    f.follow();
    f.check_words("d.new");
    assert_eq!(f.entries("d.new", 0), 1);
}

/// Its log entries have several timestamps, and the watch is notified once.
#[test]
fn all_entries_of_a_large_transaction_are_followed() {
    let f = fixture();
    f.index("d.c", &words()).unwrap();
    f.follow();
    f.insert("d.other", &doc! { "_id": 1 }).unwrap();
    let view = f.store.begin_transaction(owner()).unwrap().enter();
    let padding = "x".repeat(6 << 20);
    for id in 0..7 {
        let document = doc! { "_id": id, "a": format!("word{id}"), "padding": &padding };
        f.set(&view, "d.c", id, Some(document)).unwrap();
    }
    f.store.commit_transaction(OpenTransaction::leave(view).unwrap()).unwrap();
    let parts = f.log(Direction::Backward, 2);
    assert!(parts[1].get_document("o").unwrap().contains_key("partialTxn"), "it has several");
    f.follow();
    f.check_words("d.c");
    assert_eq!(f.entries("d.c", 0), 7);
}

#[test]
fn indexes_are_built_and_rebuilt_while_writers_go_on() {
    let f = Arc::new(fixture());
    for id in 0..200 {
        f.put_text("d.c", id, "old words");
    }
    let over = AtomicBool::new(false);
    let relaxed = std::sync::atomic::Ordering::Relaxed;
    let collection = f.of("d.c");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0.. {
                if over.load(relaxed) {
                    return;
                }
                match round % 3 {
                    0 => f.delete("d.c", round % 200),
                    _ => f.put_text("d.c", (7 * round) % 250, &format!("new {round}")),
                }
            }
        });
        scope.spawn(|| {
            while !over.load(relaxed) {
                f.follow();
            }
        });
        let specs = [words(), doc! { "key": { "a": 1 }, "name": "a_1" }];
        let specs: Vec<_> = specs.iter().map(DocBuf::from_bson).collect();
        let specs: Vec<_> = specs.iter().map(DocBuf::as_doc).collect();
        let options = CreateIndexesOptions::default();
        let made = f.store.create_indexes((&f.op, &ReadView::now()), &ns("d.c"), &specs, options);
        assert_eq!(made.unwrap().after, 3);
        for _ in 0..3 {
            assert_eq!(f.store.rebuild_indexes(&f.op, &collection).unwrap(), 3);
        }
        over.store(true, relaxed);
    });
    f.follow();
    f.check_words("d.c");
    f.store.sweep_once().unwrap();
    f.check_words("d.c");
}

#[test]
fn a_dropped_index_ends_its_build() {
    let f = fixture();
    for id in 0..30 {
        f.put_text("d.c", id, "red");
    }
    let collection = f.of("d.c");
    let spec = IndexSpec::from_catalog(DocBuf::from_bson(&words())).unwrap();
    let building = f.store.register_building(&collection, vec![spec]).unwrap();
    assert!(collection.log_fed().is_empty(), "the follower leaves it to the build");
    f.store.abandon_building(&collection, &building).unwrap();
    let goes_on = || Ok(!building[0].is_dropped());
    f.store.fill_log_fed(&f.op, &collection, &building[0], &goes_on).unwrap();
    assert_eq!(f.rows(Keyspace::Index, building[0].id()), 0);
}

#[test]
fn a_replacement_has_the_indexes_of_its_target() {
    let f = fixture();
    f.index("d.c", &words()).unwrap();
    f.put_text("d.c", 1, "red pen");
    f.follow();
    let target = f.of("d.c");
    let made = f.store.begin_replacement(&ns("d.c"), Some(&target), DocBuf::empty()).unwrap();
    let document = DocBuf::from_bson(&doc! { "_id": 7, "a": "from out" });
    f.store
        .write(&f.op, &ReadView::now(), made.collection(), |unit| unit.insert(document.as_doc()))
        .unwrap();
    f.store.finish_replacement(&made).unwrap();
    f.follow();
    f.check_words("d.c");
    assert_eq!(f.entries("d.c", 0), 2);
    let capped = DocBuf::from_bson(&doc! { "capped": true, "size": 4096i64 });
    f.store.convert_collection(&f.op, &ns("d.c"), capped.as_doc()).unwrap();
    assert!(f.store.log_fed_collections().is_empty(), "a conversion drops the indexes");
}
