//! Transactions of several statements over the memory engine. Tests of the server cover the
//! commands.

use crate::isolation::ReadView;
use std::ops::Deref;
use std::sync::Arc;

use mayfly_base::{ErrorCode, Result};
use mayfly_value::bson::{Document, doc};
use mayfly_value::{DocBuf, RawValue};

use super::*;
use crate::testing::{self, ns};
use crate::*;

mod definitions;

/// A store, with the view of its reads and writes.
struct Fixture {
    base: Arc<testing::Fixture>,
    view: ReadView,
}

impl Deref for Fixture {
    type Target = testing::Fixture;

    fn deref(&self) -> &testing::Fixture {
        &self.base
    }
}

fn fixture() -> Fixture {
    Fixture { base: Arc::new(testing::fixture()), view: ReadView::now() }
}

fn owner(session: u8) -> TransactionOwner {
    let mut lsid = mayfly_value::DocBuilder::new();
    lsid.append("id", RawValue::uuid(&[session; 16]));
    TransactionOwner { session: [session; 16], lsid: lsid.finish(), txn_number: 1 }
}

impl Fixture {
    fn begin(&self, session: u8) -> OpenTransaction {
        self.store.begin_transaction(owner(session)).unwrap()
    }

    /// Runs a statement of a transaction.
    fn inside<T>(
        &self,
        open: OpenTransaction,
        act: impl FnOnce(&Fixture) -> Result<T>,
    ) -> Result<(T, OpenTransaction)> {
        let inside = self.entered(open);
        let result = act(&inside)?;
        Ok((result, OpenTransaction::leave(inside.view)?))
    }

    /// The fixture with the view of a transaction.
    fn entered(&self, open: OpenTransaction) -> Fixture {
        Fixture { base: self.base.clone(), view: open.enter() }
    }

    fn set(&self, name: &str, id: i32, x: i32) -> Result<()> {
        let collection = self.store.collection(&self.view, &ns(name)).unwrap();
        let key = self.store.locate(&self.view, &collection, RawValue::Int32(id)).unwrap().unwrap();
        let new = DocBuf::from_bson(&doc! { "_id": id, "x": x });
        self.store.write(&self.op, &self.view, &collection, |unit| {
            let old = unit.read(&key)?.expect("a document");
            unit.update(&key, &old, new.as_doc(), UpdateStyle::Computed)
        })
    }

    fn insert(&self, name: &str, document: &Document) -> Result<()> {
        self.insert_in(&self.view, name, document)
    }

    fn count(&self, name: &str) -> usize {
        self.count_in(&self.view, name)
    }

    fn entries(&self, name: &str) -> usize {
        self.entries_in(&self.view, name, 0)
    }

    fn index(&self, name: &str, field: &str) -> Result<CreateIndexesResult> {
        self.index_in(&self.view, name, &doc! { "key": { field: 1 }, "name": field })
    }

    /// The log's newest entries, newest first.
    fn newest(&self, entries: usize) -> Vec<Document> {
        self.log(Direction::Backward, entries)
    }
}

#[test]
fn writes_of_several_collections_become_visible_together() {
    let f = fixture();
    f.insert("d.a", &doc! { "_id": 1 }).unwrap();
    f.insert("e.b", &doc! { "_id": 1 }).unwrap();
    let open = f.begin(1);
    let ((), open) = f
        .inside(open, |f| {
            f.insert("d.a", &doc! { "_id": 2 })?;
            f.insert("e.b", &doc! { "_id": 2 })?;
            assert_eq!((f.count("d.a"), f.count("e.b")), (2, 2), "its own writes");
            Ok(())
        })
        .unwrap();
    assert_eq!((f.count("d.a"), f.count("e.b")), (1, 1));
    f.insert("d.a", &doc! { "_id": 3 }).unwrap();
    let (seen, open) = f.inside(open, |f| Ok(f.count("d.a"))).unwrap();
    assert_eq!(seen, 2, "not what others wrote after it began");
    assert_eq!(open.size().operations, 2);
    let committed = f.store.commit_transaction(open).unwrap();
    assert_eq!((f.count("d.a"), f.count("e.b")), (3, 2));
    let a = f.store.collection(&ReadView::now(), &ns("d.a")).unwrap();
    assert_eq!(f.store.count_documents(&f.op, &a).unwrap(), 3);
    let entry = &f.newest(1)[0];
    assert_eq!(entry.get_document("o").unwrap().get_array("applyOps").unwrap().len(), 2);
    assert_eq!(entry.get_i64("txnNumber").unwrap(), 1);
    let ts = entry.get_timestamp("ts").unwrap();
    assert_eq!((u64::from(ts.time) << 32) | u64::from(ts.increment), committed);
    let executed = f.store.executed_statements(&[1; 16]).unwrap().unwrap();
    assert_eq!((executed.0, executed.1[0].id), (1, COMMIT_STATEMENT));
}

#[test]
fn a_dropped_transaction_leaves_nothing() {
    let f = fixture();
    f.insert("d.a", &doc! { "_id": 1 }).unwrap();
    let (_, open) = f.inside(f.begin(1), |f| f.insert("d.a", &doc! { "_id": 2 })).unwrap();
    drop(open);
    let entered = f.entered(f.begin(1));
    entered.insert("d.a", &doc! { "_id": 2 }).unwrap();
    assert!(entered.view.in_transaction() && !f.view.in_transaction());
    drop(entered);
    assert_eq!(f.count("d.a"), 1);
    f.insert("d.a", &doc! { "_id": 2 }).unwrap();
}

#[test]
fn the_second_writer_of_a_record_fails_at_once() {
    let f = fixture();
    f.insert("d.a", &doc! { "_id": 1, "x": 0 }).unwrap();
    let (_, one) = f.inside(f.begin(1), |f| f.set("d.a", 1, 1)).unwrap();
    let error = f.inside(f.begin(2), |f| f.set("d.a", 1, 2)).err().unwrap();
    assert_eq!(error.code(), ErrorCode::WriteConflict);
    let late = f.begin(3);
    f.store.commit_transaction(one).unwrap();
    let error = f.inside(late, |f| f.set("d.a", 1, 3)).err().unwrap();
    assert_eq!(error.code(), ErrorCode::WriteConflict, "it began before the commit");
    f.inside(f.begin(4), |f| f.set("d.a", 1, 4)).unwrap();
}

#[test]
fn what_a_failed_unit_wrote_is_never_committed() {
    let f = fixture();
    f.insert("d.a", &doc! { "_id": 1 }).unwrap();
    let collection = f.store.collection(&ReadView::now(), &ns("d.a")).unwrap();
    let view = f.begin(1).enter();
    let documents = [doc! { "_id": 2 }, doc! { "_id": 1 }].map(|it| DocBuf::from_bson(&it));
    let failed = f.store.write(&f.op, &view, &collection, |unit| {
        documents.iter().try_for_each(|document| unit.insert(document.as_doc()))
    });
    assert_eq!(failed.unwrap_err().code(), ErrorCode::DuplicateKey);
    let error = f.store.commit_transaction(OpenTransaction::leave(view).unwrap()).unwrap_err();
    assert_eq!(error.code(), ErrorCode::NoSuchTransaction);
    assert_eq!(f.count("d.a"), 1);
}

#[test]
fn a_collection_made_inside_is_there_for_others_after_the_commit() {
    let f = fixture();
    let act = |f: &Fixture| {
        f.index("d.new", "x")?;
        f.insert("d.new", &doc! { "_id": 1, "x": 1 })?;
        assert_eq!((f.count("d.new"), f.entries("d.new")), (1, 1));
        let error = f.index("d.new", "y").unwrap_err();
        assert_eq!(error.code(), ErrorCode::OperationNotSupportedInTransaction);
        Ok(())
    };
    // The refused index has written nothing.
    let ((), open) = f.inside(f.begin(1), act).unwrap();
    assert!(f.store.collection(&ReadView::now(), &ns("d.new")).is_none());
    drop(open);
    let ((), open) = f.inside(f.begin(1), act).unwrap();
    let (_, other) = f.inside(f.begin(2), |f| f.insert("d.new", &doc! { "_id": 2 })).unwrap();
    f.store.commit_transaction(open).unwrap();
    assert_eq!((f.count("d.new"), f.entries("d.new")), (1, 1));
    let error = f.store.commit_transaction(other).unwrap_err();
    assert_eq!(error.code(), ErrorCode::WriteConflict, "the name is taken");
    // Ids taken in a transaction are never reused.
    f.insert("d.later", &doc! { "_id": 1 }).unwrap();
    let ids = ["d.new", "d.later"]
        .map(|name| f.store.collection(&ReadView::now(), &ns(name)).unwrap().id());
    assert!(ids[0] < ids[1]);
}

#[test]
fn a_long_transaction_has_several_entries_of_one_commit() {
    let f = fixture();
    f.insert("d.a", &doc! { "_id": 0 }).unwrap();
    let long = "x".repeat(5 << 20);
    let act = |f: &Fixture| {
        (1..=7).try_for_each(|id| f.insert("d.a", &doc! { "_id": id, "long": &long }))
    };
    let ((), open) = f.inside(f.begin(1), act).unwrap();
    let before = f.store.oplog().settled();
    let committed = f.store.commit_transaction(open).unwrap();
    assert_eq!(f.store.oplog().settled(), committed);
    assert_eq!(f.count("d.a"), 8);
    let log = f.newest(3);
    let of = |at: usize| log[at].get_document("o").unwrap();
    let operations = |at: usize| of(at).get_array("applyOps").unwrap().len();
    assert_eq!(committed, before + 3);
    assert_eq!(operations(0) + operations(1) + operations(2), 7);
    assert_eq!(of(0).get_i64("count").unwrap(), 7);
    assert!(of(1).get_bool("partialTxn").unwrap() && of(2).get_bool("partialTxn").unwrap());
    for at in 0..2 {
        let before = log[at].get_document("prevOpTime").unwrap().get_timestamp("ts").unwrap();
        assert_eq!(before, log[at + 1].get_timestamp("ts").unwrap());
    }
    let size = |entry: &Document| DocBuf::from_bson(entry).as_bytes().len();
    assert!(log.iter().all(|entry| size(entry) <= 16 << 20));
    // Each part refers to the records of the commit, whatever happens to them later.
    let collection = f.store.collection(&ReadView::now(), &ns("d.a")).unwrap();
    for id in [1, 4, 7] {
        let key =
            f.store.locate(&ReadView::now(), &collection, RawValue::Int32(id)).unwrap().unwrap();
        let delete = |unit: &mut WriteUnit<'_>| {
            let old = unit.read(&key)?.unwrap();
            unit.delete(&key, &old)
        };
        f.store.write(&f.op, &ReadView::now(), &collection, delete).unwrap();
    }
    assert_eq!(f.newest(6)[3..], log);
}

#[test]
fn a_statement_waits_only_so_long_for_a_lock() {
    let f = fixture();
    let changing = f.store.catalog.changing.lock();
    let error = f.inside(f.begin(1), |f| f.insert("d.new", &doc! { "_id": 2 })).err().unwrap();
    assert_eq!(error.code(), ErrorCode::LockTimeout);
    drop(changing);
    f.inside(f.begin(1), |f| f.insert("d.new", &doc! { "_id": 2 })).unwrap();
}
