//! Definitions that change while transactions are open.

use crate::isolation::ReadView;
use std::time::Duration;

use mayfly_value::bson::oid::ObjectId;
use mayfly_work::current;

use super::*;

fn unique(field: &str) -> Document {
    doc! { "key": { field: 1 }, "name": field, "unique": true }
}

impl Fixture {
    fn make(&self, name: &str, spec: &Document) -> Result<()> {
        let spec = DocBuf::from_bson(spec);
        let options = CreateIndexesOptions::default();
        self.store
            .create_indexes((&self.op, &self.view), &ns(name), &[spec.as_doc()], options)
            .map(drop)
    }

    fn delete(&self, name: &str, id: i32) -> Result<()> {
        let collection = self.store.collection(&self.view, &ns(name)).unwrap();
        let key = self.store.locate(&self.view, &collection, RawValue::Int32(id)).unwrap().unwrap();
        self.store.write(&self.op, &self.view, &collection, |unit| {
            let old = unit.read(&key)?.expect("a document");
            unit.delete(&key, &old)
        })
    }

    fn check(&self, name: &str) {
        let collection = self.store.collection(&self.view, &ns(name)).unwrap();
        let options = ValidateOptions { bson_conformance: false };
        let found = self.store.validate(&self.op, &collection, options).unwrap();
        for index in &found.indexes {
            let name = index.index.spec.name();
            let counts = (index.missing, index.extra, &index.errors);
            assert!(index.is_valid(), "{name}: {counts:?}");
            assert_eq!(index.entries, index.expected, "{name}");
        }
    }

    fn hide(&self, name: &str, index: &str) -> Result<()> {
        let change = CollModChange { hidden: Some(true), ..CollModChange::default() };
        self.store.modify_index(&ns(name), IndexSelector::Name(index), change).map(drop)
    }

    /// Makes a change on another thread, and checks that it waits until the transaction ends.
    fn waits_for<T: Send>(
        &self,
        open: OpenTransaction,
        end: impl FnOnce(&Store, OpenTransaction),
        change: impl FnOnce() -> T + Send,
    ) -> T {
        std::thread::scope(|scope| {
            let changing = scope.spawn(change);
            // A change that does not wait has ended by then.
            std::thread::sleep(Duration::from_millis(50));
            assert!(!changing.is_finished());
            // The change holds no lock that another transaction needs.
            let ((), other) = self
                .inside(self.begin(9), |f| f.insert("d.other", &doc! { "_id": ObjectId::new() }))
                .unwrap();
            self.store.commit_transaction(other).unwrap();
            end(&self.store, open);
            changing.join().unwrap()
        })
    }
}

/// Writes of the transaction before and after the index was created, without and with an array.
#[test]
fn a_new_index_has_the_keys_of_an_open_transaction() {
    for spec in [doc! { "key": { "x": 1 }, "name": "x" }, unique("x")] {
        let f = fixture();
        for id in 1..=4 {
            f.insert("d.a", &doc! { "_id": id, "x": id }).unwrap();
        }
        let act = |f: &Fixture| {
            f.insert("d.a", &doc! { "_id": 10, "x": 10 })?;
            f.set("d.a", 1, 11)?;
            f.delete("d.a", 2)
        };
        let ((), open) = f.inside(f.begin(1), act).unwrap();
        f.make("d.a", &spec).unwrap();
        let act = |f: &Fixture| {
            f.insert("d.a", &doc! { "_id": 20, "x": [20, 21] })?;
            f.set("d.a", 1, 12)?;
            f.set("d.a", 10, 100)?;
            f.set("d.a", 3, 10)?;
            f.set("d.a", 4, 2)?;
            assert_eq!(f.count("d.a"), 5);
            Ok(())
        };
        let ((), open) = f.inside(open, act).unwrap();
        f.check("d.a");
        f.store.commit_transaction(open).unwrap();
        assert_eq!(f.count("d.a"), 5);
        f.check("d.a");
        let index = f.store.collection(&ReadView::now(), &ns("d.a")).unwrap().indexes()[0].clone();
        assert!(index.is_multikey());
    }
}

#[test]
fn a_transaction_that_is_undone_leaves_no_keys() {
    let f = fixture();
    f.insert("d.a", &doc! { "_id": 1, "x": 1 }).unwrap();
    let ((), open) = f.inside(f.begin(1), |f| f.insert("d.a", &doc! { "_id": 2, "x": 2 })).unwrap();
    f.index("d.a", "x").unwrap();
    drop(open);
    assert_eq!((f.count("d.a"), f.entries("d.a")), (1, 1));
    f.check("d.a");
}

/// A transaction plans with the indexes that existed when it began: its snapshot has no entries of
/// others.
#[test]
fn a_transaction_does_not_use_an_index_that_came_later() {
    let f = fixture();
    f.insert("d.a", &doc! { "_id": 1, "x": 1 }).unwrap();
    let plannable = |f: &Fixture| {
        let collection = f.store.collection(&f.view, &ns("d.a")).unwrap();
        Ok(collection.plannable_indexes(f.view.visible_indexes()).len())
    };
    let (before, open) = f.inside(f.begin(1), plannable).unwrap();
    f.index("d.a", "x").unwrap();
    let (after, open) = f.inside(open, plannable).unwrap();
    assert_eq!((before, after, plannable(&f).unwrap()), (1, 1, 2));
    let (later, _) = f.inside(f.begin(2), plannable).unwrap();
    assert_eq!(later, 2);
    f.store.commit_transaction(open).unwrap();
}

#[test]
fn a_unique_index_that_came_later_holds_for_a_commit() {
    let insert = |f: &Fixture, open, id, x| {
        let act = |f: &Fixture| f.insert("d.a", &doc! { "_id": id, "x": x });
        f.inside(open, act).unwrap().1
    };
    let f = fixture();
    f.insert("d.a", &doc! { "_id": 1, "x": 1 }).unwrap();
    // Another document had the key before.
    let taken = insert(&f, f.begin(1), 2, 1);
    // Two transactions have the same key.
    let (first, second) = (insert(&f, f.begin(2), 3, 3), insert(&f, f.begin(3), 4, 3));
    // One transaction has the key twice.
    let twice = insert(&f, insert(&f, f.begin(4), 5, 5), 6, 5);
    // Another document gets the key after the index was created.
    let late = insert(&f, f.begin(5), 7, 7);
    f.make("d.a", &unique("x")).unwrap();
    f.insert("d.a", &doc! { "_id": 8, "x": 7 }).unwrap();
    f.store.commit_transaction(first).unwrap();
    for open in [taken, second, twice, late] {
        let error = f.store.commit_transaction(open).unwrap_err();
        assert_eq!(error.code(), ErrorCode::WriteConflict, "{error}");
    }
    assert_eq!(f.count("d.a"), 3);
    f.check("d.a");
    // A second run of the statement reports the duplicate.
    let error =
        f.inside(f.begin(6), |f| f.insert("d.a", &doc! { "_id": 2, "x": 1 })).err().unwrap();
    assert_eq!(error.code(), ErrorCode::DuplicateKey);
}

/// A key moves from one record of the transaction to another.
#[test]
fn keys_of_a_unique_index_may_change_hands_within_a_transaction() {
    let f = fixture();
    for id in 1..=3 {
        f.insert("d.a", &doc! { "_id": id, "x": id }).unwrap();
    }
    let act = |f: &Fixture| {
        f.set("d.a", 1, 2)?;
        f.set("d.a", 2, 1)?;
        f.delete("d.a", 3)?;
        f.insert("d.a", &doc! { "_id": 4, "x": 3 })
    };
    let ((), open) = f.inside(f.begin(1), act).unwrap();
    f.make("d.a", &unique("x")).unwrap();
    f.store.commit_transaction(open).unwrap();
    assert_eq!((f.count("d.a"), f.entries("d.a")), (3, 3));
    f.check("d.a");
}

#[test]
fn a_document_that_has_no_keys_fails_the_commit() {
    let f = fixture();
    f.insert("d.a", &doc! { "_id": 1 }).unwrap();
    let parallel = doc! { "_id": 2, "a": [1, 2], "b": [1, 2] };
    let ((), open) = f.inside(f.begin(1), |f| f.insert("d.a", &parallel)).unwrap();
    f.make("d.a", &doc! { "key": { "a": 1, "b": 1 }, "name": "ab" }).unwrap();
    let error = f.store.commit_transaction(open).unwrap_err();
    assert_eq!(error.code(), ErrorCode::WriteConflict);
    assert!(error.message().contains("'ab'"), "{error}");
    f.check("d.a");
}

#[test]
fn what_changes_nothing_for_a_transaction_does_not_wait() {
    let f = fixture();
    f.insert("d.a", &doc! { "_id": 1, "x": 1 }).unwrap();
    f.index("d.a", "x").unwrap();
    let ((), open) = f.inside(f.begin(1), |f| f.insert("d.a", &doc! { "_id": 2, "x": 2 })).unwrap();
    f.hide("d.a", "x").unwrap();
    let change = CollModChange {
        expire_after: Some(NewExpireAfter::Seconds(60)),
        ..CollModChange::default()
    };
    f.store.modify_index(&ns("d.a"), IndexSelector::Name("x"), change).unwrap();
    f.store.create_collection(&ReadView::now(), &ns("d.b"), DocBuf::empty()).unwrap();
    f.store.drop_collection(&ns("d.b")).unwrap();
    assert!(f.store.drop_collection(&ns("d.none")).unwrap().is_none());
    let ((), open) = f.inside(open, |f| f.set("d.a", 1, 3)).unwrap();
    f.store.commit_transaction(open).unwrap();
    f.check("d.a");
}

#[test]
fn what_would_make_a_transaction_wrong_waits_for_its_end() {
    let commit = |store: &Store, open| assert!(store.commit_transaction(open).unwrap() > 0);
    let undo = |_: &Store, open| drop(open);
    let hiding = doc! { "hideExpired": true };
    let hiding = DocBuf::from_bson(&hiding);
    let policy = || CollModChange {
        expire_after: Some(NewExpireAfter::Seconds(60)),
        ttl: Some(hiding.as_doc()),
        ..CollModChange::default()
    };
    let f = &fixture();
    let touched = |session: u8, id: i32| {
        f.inside(f.begin(session), |f| f.insert("d.a", &doc! { "_id": id, "x": id })).unwrap().1
    };
    f.insert("d.a", &doc! { "_id": 0, "x": 0 }).unwrap();
    f.index("d.a", "x").unwrap();
    f.index("d.a", "y").unwrap();
    let (store, op) = (&f.store, &f.op);
    f.waits_for(touched(1, 1), commit, || {
        store.drop_indexes(&ns("d.a"), Some(&[IndexSelector::Name("y")]))
    })
    .unwrap();
    f.waits_for(touched(1, 2), undo, || {
        store.modify_index(&ns("d.a"), IndexSelector::Name("x"), policy())
    })
    .unwrap();
    let validator = DocBuf::from_bson(&doc! { "validationLevel": "off" });
    f.waits_for(touched(1, 3), commit, || {
        store.modify_options(&ns("d.a"), mayfly_value::RawDoc::EMPTY, |_| Ok(validator.clone()))
    })
    .unwrap();
    f.waits_for(touched(1, 4), commit, || {
        store.rebuild_indexes(op, &store.collection(&ReadView::now(), &ns("d.a")).unwrap())
    })
    .unwrap();
    f.waits_for(touched(1, 5), commit, || {
        store.rename_collection(&ns("d.a"), &ns("d.b"), RenameTarget::MustNotExist)
    })
    .unwrap();
    store.rename_collection(&ns("d.b"), &ns("d.a"), RenameTarget::MustNotExist).unwrap();
    let size = DocBuf::from_bson(&doc! { "capped": true, "size": 100_000 });
    f.waits_for(touched(1, 6), undo, || store.convert_collection(op, &ns("d.a"), size.as_doc()))
        .unwrap();
    assert_eq!(f.count("d.a"), 5);
    // Two transactions, of which one is dropped and one is committed.
    let read = |session: u8| f.inside(f.begin(session), |f| Ok(f.count("d.a"))).unwrap().1;
    let (one, other) = (read(1), read(2));
    let both = |store: &Store, one: OpenTransaction| {
        drop(other);
        std::thread::sleep(Duration::from_millis(20));
        let (seen, one) = f.inside(one, |f| Ok(f.count("d.a"))).unwrap();
        assert_eq!(seen, 5);
        store.commit_transaction(one).unwrap();
    };
    f.waits_for(one, both, || store.drop_collection(&ns("d.a"))).unwrap();
    f.insert("d.a", &doc! { "_id": 0 }).unwrap();
    f.waits_for(read(1), undo, || store.drop_database("d")).unwrap();
}

/// A change does not wait for transactions that looked the name up after it had begun to wait.
#[test]
fn a_stream_of_transactions_does_not_keep_a_change_off() {
    let f = &fixture();
    f.insert("d.a", &doc! { "_id": 0 }).unwrap();
    let touch = |session: u8| f.inside(f.begin(session), |f| Ok(f.count("d.a"))).unwrap().1;
    let mut late = None;
    let end = |_: &Store, open| {
        late = Some(touch(2));
        drop(open);
    };
    let store = &f.store;
    f.waits_for(touch(1), end, || store.drop_collection(&ns("d.a"))).unwrap();
    let error = f.inside(late.unwrap(), |f| Ok(f.count("d.a"))).err().unwrap();
    assert_eq!(error.code(), ErrorCode::SnapshotUnavailable);
}

#[test]
fn a_change_waits_no_longer_than_its_operation_may_take() {
    let f = fixture();
    f.insert("d.a", &doc! { "_id": 0 }).unwrap();
    let (_, open) = f.inside(f.begin(1), |f| Ok(f.count("d.a"))).unwrap();
    f.op.kill(ErrorCode::Interrupted);
    let current = current::Current { op: Some(f.op.clone()) };
    let _entered = current::enter(current);
    let error = f.store.drop_collection(&ns("d.a")).unwrap_err();
    assert_eq!(error.code(), ErrorCode::Interrupted);
    drop(open);
}
