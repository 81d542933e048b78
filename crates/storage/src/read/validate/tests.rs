//! Damage that the tests inflict is found.

use crate::isolation::ReadView;
use std::sync::Arc;

use mayfly_base::{ErrorCode, Namespace};
use mayfly_kv::{Engine, Guard, TxnOptions};
use mayfly_value::bson::{Document, doc};
use mayfly_work::{OpCtx, OpInfo, OpRegistry};

use super::*;
use crate::testing;
use crate::{CreateIndexesOptions, Store};

struct Fixture {
    store: Arc<Store>,
    engine: Arc<dyn Engine>,
    collection: Arc<Collection>,
    op: Arc<OpCtx>,
    ops: Arc<OpRegistry>,
}

/// Three documents, one with an array; a plain, a unique and a descending index.
fn fixture() -> Fixture {
    let engine = testing::memory();
    let testing::Fixture { store, ops, op, .. } = testing::open(engine.clone(), testing::clock());
    let ns = Namespace::parse("db.c").unwrap();
    let (collection, _) = store.get_or_create(&ReadView::now(), &ns).unwrap();
    for document in [
        doc! {"_id": 1, "a": 1, "u": 1},
        doc! {"_id": 2, "a": [1.5, 2], "u": "x"},
        doc! {"_id": 3, "u": 7},
    ] {
        let document = DocBuf::from_bson(&document);
        store
            .write(&op, &ReadView::now(), &collection, |unit| unit.insert(document.as_doc()))
            .unwrap();
    }
    let specs = [
        doc! {"key": {"a": 1}, "name": "a_1"},
        doc! {"key": {"u": 1}, "name": "u_1", "unique": true},
        doc! {"key": {"a": -1, "u": 1}, "name": "a_-1_u_1", "sparse": true},
    ];
    let specs: Vec<DocBuf> = specs.iter().map(|spec: &Document| DocBuf::from_bson(spec)).collect();
    let specs: Vec<RawDoc<'_>> = specs.iter().map(DocBuf::as_doc).collect();
    store
        .create_indexes((&op, &ReadView::now()), &ns, &specs, CreateIndexesOptions::default())
        .unwrap();
    Fixture { store, engine, collection, op, ops }
}

impl Fixture {
    fn validate(&self) -> ValidationResult {
        let options = ValidateOptions { bson_conformance: true };
        self.store.validate(&self.op, &self.collection, options).unwrap()
    }

    /// All keys of an object with their values.
    fn keys(&self, keyspace: Keyspace, id: u64) -> Vec<(Vec<u8>, Vec<u8>)> {
        let txn = self.engine.begin(TxnOptions::READ_ONLY).unwrap();
        let mut keys = Vec::new();
        txn.scan(
            keyspace,
            &object_range(id),
            Direction::Forward,
            ScanLimit::NONE,
            &mut |key, value| {
                keys.push((key.to_vec(), value.to_vec()));
                ControlFlow::Continue(())
            },
        )
        .unwrap();
        keys
    }

    fn put(&self, keyspace: Keyspace, key: &[u8], value: &[u8]) {
        let mut txn = self.engine.begin(TxnOptions::default()).unwrap();
        txn.put(keyspace, key, value, Guard::Checked).unwrap();
        txn.commit().unwrap();
    }

    fn delete(&self, keyspace: Keyspace, key: &[u8]) {
        let mut txn = self.engine.begin(TxnOptions::default()).unwrap();
        txn.delete(keyspace, key, Guard::Checked).unwrap();
        txn.commit().unwrap();
    }
}

#[test]
fn nothing_is_found_where_nothing_is_wrong() {
    let found = fixture().validate();
    assert_eq!((found.records, found.kept_records, found.not_conformant), (3, 3, 0));
    assert!(found.corrupt.is_empty());
    let entries: Vec<u64> = found.indexes.iter().map(|of| of.entries).collect();
    // The index on `_id` comes first.
    assert_eq!(entries, [3, 4, 3, 4]);
    assert!(found.indexes.iter().all(ValidatedIndex::is_valid));
}

#[test]
fn missing_and_extra_entries_are_found() {
    let fixture = fixture();
    for at in 0..4 {
        let id = fixture.validate().indexes[at].index.id();
        let (key, value) = fixture.keys(Keyspace::Index, id).remove(1);
        fixture.delete(Keyspace::Index, &key);
        let found = fixture.validate();
        assert_eq!((found.indexes[at].missing, found.indexes[at].extra), (1, 0), "{at}");
        assert!(!found.indexes[at].is_valid());
        assert_eq!(found.missing[0].index, at);
        assert!(!found.missing[0].key.as_doc().is_empty());
        // The number of entries is correct again, but one of them is wrong.
        fixture.put(
            Keyspace::Index,
            &[id.to_be_bytes().as_slice(), &[0x18, 0x18]].concat(),
            &value,
        );
        let found = fixture.validate();
        assert_eq!((found.indexes[at].missing, found.indexes[at].extra), (1, 1), "{at}");
        fixture.delete(Keyspace::Index, &[id.to_be_bytes().as_slice(), &[0x18, 0x18]].concat());
        fixture.put(Keyspace::Index, &key, &value);
        assert!(fixture.validate().indexes.iter().all(ValidatedIndex::is_valid), "{at}");
    }
}

#[test]
fn damaged_records_and_wrong_counts_are_found() {
    let fixture = fixture();
    let (key, value) = fixture.keys(Keyspace::Record, fixture.collection.id()).remove(0);
    fixture.put(Keyspace::Record, &key, &value[..value.len() - 2]);
    let found = fixture.validate();
    assert_eq!((found.records, found.corrupt.len()), (3, 1));
    assert!(found.indexes.iter().all(|of| of.extra > 0), "its keys belong to no record");
    fixture.delete(Keyspace::Record, &key);
    let found = fixture.validate();
    assert_eq!((found.records, found.kept_records), (2, 3));
    let found = fixture.validate();
    assert_eq!((found.records, found.kept_records), (2, 2), "the count was set right");
}

#[test]
fn a_lost_multikey_mark_is_found() {
    let fixture = fixture();
    fixture.collection.indexes()[0].runtime.multikey.store(0, Ordering::Release);
    let found = fixture.validate();
    assert!(!found.indexes[1].is_valid());
    assert_eq!(found.indexes[1].errors.len(), 1);
}

#[test]
fn repeated_names_are_not_conformant() {
    let fixture = fixture();
    let mut document = DocBuilder::new();
    document.append("_id", 9).start_document("d").append("x", 1).append("x", 2).end();
    let document = document.finish();
    let insert = |unit: &mut crate::WriteUnit<'_>| unit.insert(document.as_doc());
    fixture.store.write(&fixture.op, &ReadView::now(), &fixture.collection, insert).unwrap();
    assert_eq!(fixture.validate().not_conformant, 1);
}

#[test]
fn a_kill_ends_it() {
    let fixture = fixture();
    for id in 10..600 {
        let document = DocBuf::from_bson(&doc! {"_id": id, "u": id});
        let insert = |unit: &mut crate::WriteUnit<'_>| unit.insert(document.as_doc());
        fixture.store.write(&fixture.op, &ReadView::now(), &fixture.collection, insert).unwrap();
    }
    let guard = fixture.ops.begin(OpInfo::default());
    guard.op().kill(ErrorCode::Interrupted);
    let ended = fixture.store.validate(guard.op(), &fixture.collection, ValidateOptions::default());
    assert_eq!(ended.err().map(|error| error.code()), Some(ErrorCode::Interrupted));
}
