//! Documents that a unit looks up or reads together, compared with single look-ups: over engines
//! with random conflicts and short pages, in both layouts.

use crate::isolation::ReadView;
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use mayfly_base::{Error, ErrorCode, Namespace, Result};
use mayfly_kv::{ChaosEngine, ChaosOptions, Engine, MemoryEngine};
use mayfly_value::bson::{Bson, DateTime, doc};
use mayfly_value::{ChangedPath, DocBuf, PathWrite, RawDoc, RawValue};
use mayfly_work::OpCtx;

use crate::record::RecordKey;
use crate::testing::{self, NOW};
use crate::*;

struct Fixture {
    store: Arc<Store>,
    collection: Arc<Collection>,
    op: Arc<OpCtx>,
}

fn fixture(engine: Arc<dyn Engine>, options: mayfly_value::bson::Document) -> Fixture {
    let testing::Fixture { store, op, .. } = testing::open(engine, testing::clock());
    let ns = Namespace::parse("d.c").unwrap();
    store.create_collection(&ReadView::now(), &ns, DocBuf::from_bson(&options)).unwrap();
    let collection = store.collection(&ReadView::now(), &ns).unwrap();
    Fixture { store, collection, op }
}

/// Fixtures of both layouts over chaos engines.
fn fixtures() -> impl Iterator<Item = Fixture> {
    let clustered = doc! { "clusteredIndex": { "key": { "_id": 1 }, "unique": true } };
    [doc! {}, clustered].into_iter().flat_map(|options| {
        (0..4).map(move |seed| {
            let chaos = ChaosOptions {
                seed,
                conflict_probability: 0.02,
                short_pages: true,
                late_inserts: seed % 2 == 1,
                ..ChaosOptions::default()
            };
            let engine = ChaosEngine::new(Arc::new(MemoryEngine::new()), chaos);
            fixture(Arc::new(engine), options.clone())
        })
    })
}

fn documents(ids: &[i32]) -> Vec<DocBuf> {
    let at = Bson::DateTime(DateTime::from_millis(NOW - 60_000));
    ids.iter().map(|id| DocBuf::from_bson(&doc! { "_id": id, "at": at.clone() })).collect()
}

fn insert_together(unit: &mut WriteUnit<'_>, documents: &[DocBuf]) -> Result<()> {
    unit.expect_inserts(documents.iter().map(DocBuf::as_doc))?;
    documents.iter().try_for_each(|document| unit.insert(document.as_doc()))
}

impl Fixture {
    fn write<T>(&self, act: impl FnMut(&mut WriteUnit<'_>) -> Result<T>) -> Result<T> {
        self.store.write(&self.op, &ReadView::now(), &self.collection, act)
    }

    fn count(&self) -> i64 {
        self.store.count_documents(&self.op, &self.collection).unwrap()
    }

    fn key(&self, id: i32) -> Option<RecordKey> {
        self.store.locate(&ReadView::now(), &self.collection, RawValue::Int32(id)).unwrap()
    }
}

/// The `_id` in a duplicate key error.
fn duplicate(error: &Error) -> i32 {
    assert_eq!(error.code(), ErrorCode::DuplicateKey, "{error}");
    let extra = RawDoc::new(error.extra().unwrap()).unwrap();
    match extra.get("keyValue").and_then(RawValue::as_document).and_then(|key| key.get("_id")) {
        Some(RawValue::Int32(id)) => id,
        other => panic!("{other:?}"),
    }
}

#[test]
fn inserts_together_are_as_inserts_one_by_one() {
    for f in fixtures() {
        let mut there = BTreeSet::new();
        let (mut refused, mut done) = (0, 0);
        for _ in 0..60 {
            let ids: Vec<i32> =
                (0..rand::random_range(1..20)).map(|_| rand::random_range(0..600)).collect();
            let mut after = there.clone();
            let first = ids.iter().find(|id| !after.insert(**id));
            let documents = documents(&ids);
            match (f.write(|unit| insert_together(unit, &documents)), first) {
                (Ok(()), None) => {
                    done += 1;
                    there = after;
                }
                (Err(error), Some(first)) => {
                    refused += 1;
                    assert_eq!(duplicate(&error), *first, "{ids:?}");
                }
                (result, first) => panic!("{result:?}, {first:?}: {ids:?}"),
            }
        }
        assert_eq!(f.count(), there.len() as i64);
        assert!(refused > 5 && done > 5, "{refused}, {done}");
    }
}

#[test]
fn a_refused_document_before_a_conflict_is_reported_at_once() {
    let f = fixture(Arc::new(MemoryEngine::new()), doc! {});
    f.write(|unit| insert_together(unit, &documents(&[3]))).unwrap();
    let owner =
        TransactionOwner { session: [1; 16], lsid: DocBuf::from_bson(&doc! {}), txn_number: 1 };
    let view = f.store.begin_transaction(owner).unwrap().enter();
    let insert = |unit: &mut WriteUnit<'_>| insert_together(unit, &documents(&[8]));
    f.store.write(&f.op, &view, &f.collection, insert).unwrap();
    let open = OpenTransaction::leave(view).unwrap();
    // The transaction holds 8; the unit ends before it.
    let ids: Vec<i32> = (0..10).collect();
    let error = f.write(|unit| insert_together(unit, &documents(&ids))).unwrap_err();
    assert_eq!(duplicate(&error), 3);
    drop(open);
}

#[test]
fn hidden_documents_are_in_the_way_of_none_that_is_inserted_with_others() {
    for f in fixtures() {
        let ids: Vec<i32> = (0..20).collect();
        f.write(|unit| insert_together(unit, &documents(&ids[..10]))).unwrap();
        let index = DocBuf::from_bson(&doc! {
            "key": { "at": 1 }, "name": "at_1", "expireAfterSeconds": 1, "ttl": { "hideExpired": true },
        });
        let ns = Namespace::parse("d.c").unwrap();
        let options = CreateIndexesOptions::default();
        f.store.create_indexes((&f.op, &ReadView::now()), &ns, &[index.as_doc()], options).unwrap();
        f.write(|unit| insert_together(unit, &documents(&ids))).unwrap();
        assert!(ids.iter().all(|id| f.key(*id).is_some()));
        assert_eq!(f.count(), 20);
    }
}

#[test]
fn records_read_together_are_as_those_read_one_by_one() {
    for f in fixtures() {
        let ids: Vec<i32> = (0..100).collect();
        f.write(|unit| insert_together(unit, &documents(&ids))).unwrap();
        let keys: Vec<RecordKey> = ids.iter().map(|id| f.key(*id).unwrap()).collect();
        f.write(|unit| {
            for key in keys.iter().step_by(7) {
                let old = unit.read(key)?.unwrap();
                unit.delete(key, &old)?;
            }
            Ok(())
        })
        .unwrap();
        for _ in 0..40 {
            let (from, spread) = (rand::random_range(0..60), rand::random_range(1..40));
            let some: Vec<&[u8]> = (0..rand::random_range(1..20))
                .map(|_| keys[from + rand::random_range(0..spread)].as_slice())
                .collect();
            f.write(|unit| {
                let gone = rand::random_range(0..some.len());
                if let Some(old) = unit.read(some[gone])? {
                    unit.delete(some[gone], &old)?;
                }
                let together = unit.read_many(&some)?;
                for (key, found) in some.iter().zip(together) {
                    let alone = unit.read(key)?;
                    let bytes = |it: &StoredDocument| it.as_doc().as_bytes().to_vec();
                    assert_eq!(found.as_ref().map(bytes), alone.as_ref().map(bytes));
                }
                Ok(())
            })
            .unwrap();
        }
    }
}

#[test]
fn records_read_together_are_locked() {
    let f = fixture(Arc::new(MemoryEngine::new()), doc! {});
    let ids: Vec<i32> = (0..10).collect();
    f.write(|unit| insert_together(unit, &documents(&ids))).unwrap();
    let keys: Vec<RecordKey> = ids.iter().map(|id| f.key(*id).unwrap()).collect();
    let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let owner =
        TransactionOwner { session: [1; 16], lsid: DocBuf::from_bson(&doc! {}), txn_number: 1 };
    let view = f.store.begin_transaction(owner).unwrap().enter();
    let read = |unit: &mut WriteUnit<'_>| unit.read_many(&keys[2..8]).map(drop);
    f.store.write(&f.op, &view, &f.collection, read).unwrap();
    let open = OpenTransaction::leave(view).unwrap();
    for (at, key) in keys.iter().enumerate() {
        let now = ReadView::now();
        let brief = WriteOptions::new(&f.op, &now, &f.collection).in_background();
        let read = f.store.write_with(brief, |unit| unit.read(key).map(drop));
        assert_eq!(read.is_err(), (2..8).contains(&at), "{at}");
    }
    drop(open);
}

/// The values of all entries of the collection's only further index.
fn entries(f: &Fixture) -> Vec<Vec<u8>> {
    let snapshot = f.store.snapshot(&ReadView::now()).unwrap();
    let index = f.collection.indexes().remove(0);
    let mut found = Vec::new();
    let all = KeyRange { start: Vec::new(), end: Vec::new() };
    let see = &mut |entry: Entry<'_>| {
        found.push(entry.values.to_vec());
        Ok(ControlFlow::Continue(()))
    };
    snapshot.scan_index(&index, &all, Direction::Forward, ScanLimit::NONE, see).unwrap();
    found
}

#[test]
fn an_update_computes_the_keys_of_indexes_on_the_paths_of_its_operators_only() {
    let f = fixture(Arc::new(MemoryEngine::new()), doc! {});
    let index = DocBuf::from_bson(&doc! { "key": { "a.b": 1 }, "name": "a.b_1" });
    let ns = Namespace::parse("d.c").unwrap();
    let options = CreateIndexesOptions::default();
    f.store.create_indexes((&f.op, &ReadView::now()), &ns, &[index.as_doc()], options).unwrap();
    let document = |b: i32| DocBuf::from_bson(&doc! { "_id": 1, "a": { "b": b }, "n": b });
    f.write(|unit| unit.insert(document(0).as_doc())).unwrap();
    let key = f.key(1).unwrap();
    let mut before = entries(&f);
    assert_eq!(before.len(), 1);
    // Each document changes the indexed value, whatever the operators' path is: so the entry shows
    // whether the keys were computed.
    for (value, path, computed) in [(1, "n", false), (2, "a", true), (3, "a.0.b", true)] {
        let parts: Vec<Box<str>> = path.split('.').map(Box::from).collect();
        let path = ChangedPath { parts: &parts, given: &parts, write: PathWrite::Whole };
        f.write(|unit| {
            let old = unit.read(&key)?.unwrap();
            let style = UpdateStyle::Operators(std::slice::from_ref(&path));
            unit.update(&key, &old, document(value).as_doc(), style)
        })
        .unwrap();
        let after = entries(&f);
        assert_eq!(after != before, computed, "{parts:?}");
        before = after;
    }
}

/// Records that were read ahead are those of single reads, also after the unit has changed them.
#[test]
fn reads_ahead_show_what_the_unit_has_written() {
    let with = |id: i32, n: i32| DocBuf::from_bson(&doc! { "_id": id, "n": n });
    let n_of = |stored: Option<StoredDocument>| {
        stored.and_then(|stored| match stored.as_doc().get("n") {
            Some(RawValue::Int32(n)) => Some(n),
            _ => None,
        })
    };
    for f in fixtures() {
        let all: Vec<DocBuf> = (0..60).map(|id| with(id, 0)).collect();
        f.write(|unit| insert_together(unit, &all)).unwrap();
        let mut keys: Vec<RecordKey> = (0..60).map(|id| f.key(id).unwrap()).collect();
        // An unknown key, one without a record, and one that comes twice.
        keys.push(Vec::new());
        keys.push(b"nothing".to_vec());
        keys.push(keys[59].clone());
        let seen = f.write(|unit| {
            let mut seen = Vec::new();
            for (at, key) in keys.iter().enumerate() {
                unit.expect_reads(&keys, at)?;
                let before = if key.is_empty() { None } else { unit.read(key)? };
                if let Some(before) = &before {
                    let next = keys.get(at + 1).filter(|next| !next.is_empty());
                    if at % 10 == 3
                        && let Some(next) = next
                        && let Some(later) = unit.read(next)?
                    {
                        unit.delete(next, &later)?;
                    }
                    let Some(RawValue::Int32(id)) = before.as_doc().get("_id") else { continue };
                    let new = with(id, at as i32 + 1);
                    unit.update(key, before, new.as_doc(), UpdateStyle::Replacement)?;
                }
                seen.push(n_of(before));
            }
            Ok(seen)
        });
        let mut expected: Vec<Option<i32>> =
            (0..60).map(|at| (at % 10 != 4).then_some(0)).collect();
        expected.extend([None, None, Some(60)]);
        assert_eq!(seen.unwrap(), expected);
        assert_eq!(f.count(), 54);
    }
}

#[test]
fn ids_that_are_looked_up_together_are_located() {
    for f in fixtures() {
        let all = documents(&(0..40).collect::<Vec<_>>());
        f.write(|unit| insert_together(unit, &all)).unwrap();
        let ids: Vec<_> = (0..50).map(|id| f.collection.id_key(RawValue::Int32(id))).collect();
        let keys: Vec<_> = (0..40).map(|id| f.key(id)).collect();
        let located = f.write(|unit| {
            unit.expect_ids(ids.iter())?;
            let gone = unit.locate(ids[7].clone())?.unwrap();
            let stored = unit.read(&gone)?.unwrap();
            unit.delete(&gone, &stored)?;
            ids.iter().map(|id| unit.locate(id.clone())).collect::<Result<Vec<_>>>()
        });
        let located = located.unwrap();
        if f.collection.is_numbered() {
            assert_eq!(located[7], None, "it was deleted");
            assert_eq!(located[40..], vec![None; 10]);
        }
        for (at, key) in keys.iter().enumerate().filter(|(at, _)| *at != 7) {
            assert_eq!(located[at], *key);
        }
    }
}
