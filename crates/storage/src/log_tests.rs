//! References of the log over the memory engine: where documents are, and the errors when they are
//! missing. That readers get what was written is tested against a model (`log_model` of the test
//! kit).

use crate::isolation::ReadView;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use mayfly_base::{Error, ErrorCode, Namespace, Result};
use mayfly_kv::{
    Engine, EngineWrapper, Guard, KeyRange, Keyspace, MemoryEngine, TxnOptions, is_retired,
};
use mayfly_value::bson::{Document, doc};
use mayfly_value::{DocBuf, RawDoc, RawValue};
use mayfly_work::OpCtx;

use crate::oplog::{decode, visit_all};
use crate::record::kept::{RetiredRow, visit_kept};
use crate::record::layout::{decode_retired, decode_stored, prefixed};
use crate::testing;
use crate::*;

struct Fixture {
    store: Arc<Store>,
    engine: Arc<MemoryEngine>,
    disk: Arc<Full>,
    op: Arc<OpCtx>,
    view: ReadView,
}

/// An engine whose disk counts as nearly full when a test sets the flag.
struct Full {
    inner: Arc<MemoryEngine>,
    full: AtomicBool,
}

impl EngineWrapper for Full {
    fn inner(&self) -> &dyn Engine {
        &*self.inner
    }

    fn is_nearly_full(&self) -> bool {
        self.full.load(Ordering::Relaxed)
    }
}

fn open(engine: &Arc<MemoryEngine>, oplog_bytes: u64) -> Fixture {
    let disk = Full { inner: engine.clone(), full: AtomicBool::new(false) };
    open_on(Arc::new(disk), oplog_bytes)
}

fn open_on(disk: Arc<Full>, oplog_bytes: u64) -> Fixture {
    let options = StoreOptions { background: false, oplog_bytes, ..StoreOptions::default() };
    let testing::Fixture { store, op, .. } =
        testing::open_with(disk.clone(), testing::clock(), options);
    Fixture { store, engine: disk.inner.clone(), disk, op, view: ReadView::now() }
}

fn fixture() -> Fixture {
    open(&Arc::new(MemoryEngine::new()), 1 << 20)
}

fn document(bson: Document) -> DocBuf {
    DocBuf::from_bson(&bson)
}

impl Fixture {
    /// The fixture with the view of a transaction.
    fn in_transaction(&self) -> Fixture {
        let owner = TransactionOwner { session: [1; 16], lsid: document(doc! {}), txn_number: 1 };
        let view = self.store.begin_transaction(owner).unwrap().enter();
        let (store, engine) = (self.store.clone(), self.engine.clone());
        Fixture { store, engine, disk: self.disk.clone(), op: self.op.clone(), view }
    }

    /// Commits that transaction.
    fn commit(self) -> u64 {
        let open = OpenTransaction::leave(self.view).unwrap();
        self.store.commit_transaction(open).unwrap()
    }

    fn collection(&self, name: &str) -> Arc<Collection> {
        self.store.get_or_create(&self.view, &Namespace::parse(name).unwrap()).unwrap().0
    }

    fn write(&self, name: &str, act: impl FnMut(&mut WriteUnit<'_>) -> Result<()>) {
        self.store.write(&self.op, &self.view, &self.collection(name), act).unwrap();
    }

    fn insert(&self, name: &str, ids: std::ops::Range<i32>) {
        let documents: Vec<_> = ids.map(|id| document(doc! { "_id": id, "n": id })).collect();
        self.write(name, |unit| documents.iter().try_for_each(|it| unit.insert(it.as_doc())));
    }

    /// Changes a document in a unit of its own.
    fn change(&self, name: &str, id: i32, new: Option<Document>, style: UpdateStyle<'_>) {
        let collection = self.collection(name);
        let key = self.store.locate(&self.view, &collection, RawValue::Int32(id)).unwrap().unwrap();
        self.write(name, |unit| {
            let old = unit.read(&key)?.unwrap();
            match &new {
                Some(new) => unit.update(&key, &old, document(new.clone()).as_doc(), style),
                None => unit.delete(&key, &old),
            }
        });
    }

    fn rows(&self, keyspace: Keyspace) -> Vec<(Vec<u8>, Vec<u8>)> {
        let txn = self.engine.begin(TxnOptions::READ_ONLY).unwrap();
        let (mut rows, whole) = (Vec::new(), KeyRange { start: vec![], end: vec![0xFF; 40] });
        visit_all(&*txn, keyspace, whole, &mut |key, value| {
            rows.push((key.to_vec(), value.to_vec()));
            Ok(())
        })
        .unwrap();
        rows
    }

    /// The kept versions, with those in retired records: timestamp, collection, record key,
    /// document.
    fn kept(&self) -> BTreeMap<(u64, u64, RecordKey), DocBuf> {
        let mut found = BTreeMap::new();
        let records: BTreeMap<_, _> = self.rows(Keyspace::Record).into_iter().collect();
        for (key, value) in self.rows(Keyspace::Versions) {
            let number = |at: usize| u64::from_be_bytes(key[at..at + 8].try_into().unwrap());
            visit_kept(&key, &value, &mut |record_key, document| {
                found.insert((number(0), number(8), record_key.to_vec()), document.to_owned());
            });
            let Some(row) = RetiredRow::decode(&key, &value) else { continue };
            let mut bytes = 0;
            row.visit(&mut |record_key| {
                let stored = &records[record_key];
                assert!(is_retired(Keyspace::Record, stored));
                let record = decode_retired(stored).unwrap();
                assert_eq!(record.logged_at, Some(number(0)));
                bytes += record.document.as_bytes().len() as i64;
                let key = (number(0), number(8), record_key[8..].to_vec());
                found.insert(key, record.document.to_owned());
            });
            assert_eq!((row.collection(), row.tally().bytes), (number(8), bytes));
        }
        found
    }

    /// Changes documents in one unit, in this order.
    fn change_together(&self, name: &str, ids: impl Iterator<Item = i32>, to: Option<i32>) {
        let (collection, ids) = (self.collection(name), ids.collect::<Vec<_>>());
        let key =
            |id| self.store.locate(&self.view, &collection, RawValue::Int32(id)).unwrap().unwrap();
        let keys: Vec<_> = ids.iter().map(|id| (*id, key(*id))).collect();
        self.write(name, |unit| {
            keys.iter().try_for_each(|(id, key)| {
                let old = unit.read(key)?.unwrap();
                let Some(n) = to else { return unit.delete(key, &old) };
                let new = document(doc! { "_id": id, "n": n });
                unit.update(key, &old, new.as_doc(), UpdateStyle::Replacement)
            })
        });
    }

    /// The stored length of the newest entry, and its length for readers.
    fn newest(&self) -> (usize, u64) {
        let (_, value) = self.rows(Keyspace::Oplog).pop().unwrap();
        (value.len(), decode(&value).unwrap().logical)
    }

    /// The numbers in the documents that the log shows for a collection.
    fn inserted(&self, name: &str) -> Result<Vec<i32>> {
        let mut found = Vec::new();
        self.store.oplog().read_changes(self.store.oplog().cut(), &mut |entry| {
            entry.operations(&mut |operation| {
                let is = |field, text| operation.get(field) == Some(RawValue::String(text));
                if is("ns", name) && is("op", "i") {
                    let object = operation.object()?;
                    found.extend(match object.as_doc().get("n") {
                        Some(RawValue::Int32(n)) => Some(n),
                        _ => None,
                    });
                }
                Ok(ControlFlow::Continue(()))
            })?;
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(found)
    }
}

#[test]
fn a_document_is_written_once() {
    let f = fixture();
    let long = "x".repeat(10_000);
    f.write("d.c", |unit| unit.insert(document(doc! { "_id": 1, "s": &long }).as_doc()));
    let (stored, logical) = f.newest();
    assert!(stored < 200 && logical > 10_000, "{stored}, {logical}");
    f.change("d.c", 1, Some(doc! { "_id": 1, "t": &long }), UpdateStyle::Replacement);
    let (stored, logical) = f.newest();
    assert!(stored < 200 && logical > 10_000, "{stored}, {logical}");
    let kept = f.rows(Keyspace::Versions);
    assert_eq!(kept.len(), 1, "the insert's document");
    assert!(RawDoc::new(&kept[0].1).unwrap().get("s").is_some());
    // The entry of an operator update has its delta; the document that it changes is kept once.
    f.change("d.c", 1, Some(doc! { "_id": 1, "t": "y" }), UpdateStyle::Parts);
    f.change("d.c", 1, Some(doc! { "_id": 1, "t": "z" }), UpdateStyle::Parts);
    f.change("d.c", 1, None, UpdateStyle::Parts);
    assert_eq!(f.kept().len(), 2);
}

#[test]
fn inserts_of_a_unit_share_an_item() {
    let f = fixture();
    f.insert("d.c", 0..1000);
    let (stored, logical) = f.newest();
    assert!(stored < 12_000 && logical > 70_000, "{stored}, {logical}");
    let mut capped = mayfly_value::DocBuilder::new();
    capped.append("capped", true).append("size", 1 << 20);
    let ns = Namespace::parse("d.capped").unwrap();
    f.store.create_collection(&ReadView::now(), &ns, capped.finish()).unwrap();
    f.insert("d.capped", 0..1000);
    let (stored, _) = f.newest();
    assert!(stored < 200, "numbers that ascend take no room: {stored}");
    for name in ["d.c", "d.capped"] {
        assert_eq!(f.inserted(name).unwrap(), (0..1000).collect::<Vec<_>>());
    }
}

#[test]
fn a_long_run_is_read_back_in_its_order() {
    let f = fixture();
    let mut capped = mayfly_value::DocBuilder::new();
    capped.append("capped", true).append("size", 10 << 20);
    let ns = Namespace::parse("d.capped").unwrap();
    f.store.create_collection(&ReadView::now(), &ns, capped.finish()).unwrap();
    f.insert("d.capped", 0..10_000);
    // Some of them have been changed or deleted.
    for id in (0..10_000).step_by(997) {
        f.change("d.capped", id, Some(doc! { "_id": id, "m": id }), UpdateStyle::Replacement);
    }
    for id in 5_000..5_200 {
        f.change("d.capped", id, None, UpdateStyle::Computed);
    }
    assert_eq!(f.inserted("d.capped").unwrap(), (0..10_000).collect::<Vec<_>>());
}

#[test]
fn what_was_cut_from_the_log_is_not_kept() {
    let f = open(&Arc::new(MemoryEngine::new()), 2_000);
    f.insert("d.c", 0..10);
    for id in 10..100 {
        f.insert("d.c", id..id + 1);
    }
    f.change("d.c", 98, None, UpdateStyle::Computed);
    f.store.trim_oplog().unwrap();
    let sizes = f.store.oplog().sizes().unwrap();
    assert!(sizes.bytes <= 2_000 && sizes.bytes > 1_500, "{sizes:?}");
    assert_eq!(f.kept().len(), 1);
    // Deleting a document whose entry was cut writes nothing but the deletion.
    for id in 0..10 {
        f.change("d.c", id, None, UpdateStyle::Computed);
    }
    assert_eq!(f.kept().len(), 1);
    for id in 10..60 {
        f.change("d.c", id, None, UpdateStyle::Computed);
    }
    f.store.trim_oplog().unwrap();
    assert_eq!(f.kept().len(), 0);
    // A start reads the sums from the catalog, and counts the entries after them.
    let sizes = f.store.oplog().sizes().unwrap();
    let again = open(&f.engine, 2_000);
    assert_eq!(again.store.oplog().sizes().unwrap(), sizes);
    let cut = again.store.oplog().cut();
    assert!(f.rows(Keyspace::Catalog).iter().all(|(key, _)| {
        key.first() != Some(&b'l') || u64::from_be_bytes(key[1..].try_into().unwrap()) > cut
    }));
}

#[test]
fn nothing_refers_to_what_is_not_logged() {
    let f = fixture();
    f.insert("d.c", 0..1);
    let before = f.rows(Keyspace::Oplog).len();
    f.write("d.c", |unit| {
        unit.leave_unlogged();
        unit.insert(document(doc! { "_id": 7 }).as_doc())?;
        let key = unit.locate(id_key(RawValue::Int32(0)))?.unwrap();
        let old = unit.read(&key)?.unwrap();
        unit.delete(&key, &old)
    });
    assert_eq!(f.rows(Keyspace::Oplog).len(), before);
    let mut records = f.rows(Keyspace::Record);
    records.retain(|(_, value)| !is_retired(Keyspace::Record, value));
    assert_eq!(records.len(), 1);
    assert_eq!(decode_stored(&records[0].1).unwrap().logged_at, None);
    assert_eq!(f.inserted("d.c").unwrap(), [0], "what was logged before is kept");
}

#[test]
fn a_missing_document_is_corruption_that_names_entry_and_record() {
    let f = fixture();
    f.insert("d.c", 0..3);
    f.insert("d.other", 0..3);
    let id = f.collection("d.c").id();
    let one = f
        .store
        .locate(&ReadView::now(), &f.collection("d.c"), RawValue::Int32(1))
        .unwrap()
        .unwrap();
    let key = prefixed(id, &one);
    let mut txn = f.engine.begin(TxnOptions::default()).unwrap();
    txn.delete(Keyspace::Record, &key, Guard::Checked).unwrap();
    txn.commit().unwrap();
    let error = f.inserted("d.c").unwrap_err();
    assert_eq!(error.code(), ErrorCode::DataCorruptionDetected);
    let shown = hex::encode(&key[8..]);
    let text = error.message();
    assert!(text.contains("Timestamp(1800000000, 2)") && text.contains(&shown), "{text}");
    assert!(text.contains(&format!("id {id},")), "{text}");
    // A reader of other collections is unaffected.
    assert_eq!(f.inserted("d.other").unwrap(), [0, 1, 2]);
}

#[test]
fn a_commit_of_an_open_transaction_lists_its_records() {
    let f = fixture();
    f.insert("d.c", 0..2);
    let inside = f.in_transaction();
    inside.insert("d.c", 2..4);
    inside.change("d.c", 3, Some(doc! { "_id": 3, "n": 33 }), UpdateStyle::Replacement);
    inside.change("d.c", 3, Some(doc! { "_id": 3, "n": 34 }), UpdateStyle::Replacement);
    inside.change("d.c", 0, Some(doc! { "_id": 0, "n": 30 }), UpdateStyle::Replacement);
    let committed = inside.commit();
    let mut logged: Vec<_> = f
        .rows(Keyspace::Record)
        .iter()
        .map(|(_, value)| decode_stored(value).unwrap().logged_at)
        .collect();
    let before = logged.remove(1);
    assert_eq!(logged, [Some(committed), Some(committed), None]);
    assert!(before.is_some_and(|before| before < committed));
    assert_eq!(f.kept().len(), 2, "0 as it was, and 3 as it was first");
    assert_eq!(f.inserted("d.c").unwrap(), [0, 1, 2, 3]);
}

#[test]
fn a_dropped_collection_leaves_what_the_log_refers_to() {
    let f = fixture();
    f.insert("d.c", 0..500);
    f.insert("d.other", 0..2);
    f.store.drop_collection(&Namespace::parse("d.c").unwrap()).unwrap();
    f.store.sweep_once().unwrap();
    assert_eq!(f.rows(Keyspace::Record).len(), 2);
    assert_eq!(f.inserted("d.c").unwrap(), (0..500).collect::<Vec<_>>());
    let again = open(&f.engine, 1 << 20);
    assert_eq!(again.inserted("d.c").unwrap(), (0..500).collect::<Vec<_>>());
}

#[test]
fn the_log_names_all_records_that_are_to_be_kept() {
    let f = fixture();
    let mut capped = mayfly_value::DocBuilder::new();
    capped.append("capped", true).append("size", 10 << 20);
    let ns = Namespace::parse("d.capped").unwrap();
    f.store.create_collection(&ReadView::now(), &ns, capped.finish()).unwrap();
    for name in ["d.capped", "d.c"] {
        f.insert(name, 0..300);
        f.insert(name, 300..301);
        for id in [0, 7, 250, 300] {
            let new = doc! { "_id": id, "n": -id };
            f.change(name, id, Some(new), UpdateStyle::Replacement);
        }
        f.change(name, 8, Some(doc! { "_id": 8, "m": 1 }), UpdateStyle::Parts);
        f.change(name, 9, None, UpdateStyle::Parts);
        let before = f.kept().len();
        let id = f.collection(name).id();
        f.store.keep_by_log(id).unwrap();
        let by_log = f.kept();
        assert_eq!(by_log.len(), before + 299);
        f.store.keep_by_records(id).unwrap();
        assert!(f.kept() == by_log);
    }
}

/// Collections of both layouts.
fn in_both_layouts(f: &Fixture) -> [&'static str; 2] {
    let mut clustered = mayfly_value::DocBuilder::new();
    clustered.start_document("clusteredIndex");
    clustered.start_document("key").append("_id", 1).end();
    clustered.append("unique", true).end();
    let ns = Namespace::parse("d.clustered").unwrap();
    f.store.create_collection(&ReadView::now(), &ns, clustered.finish()).unwrap();
    ["d.c", "d.clustered"]
}

#[test]
fn what_units_remove_together_is_kept_together() {
    let f = fixture();
    f.insert("d.c", 0..512);
    f.change_together("d.c", 0..512, None);
    let rows = f.rows(Keyspace::Versions).len();
    assert!(rows <= 6, "512 consecutive numbers are in three blocks: {rows}");
    assert_eq!(f.kept().len(), 512);
    assert_eq!(f.inserted("d.c").unwrap(), (0..512).collect::<Vec<_>>());
}

#[test]
fn rows_of_units_that_interleave_are_all_found() {
    let f = fixture();
    for name in in_both_layouts(&f) {
        f.insert(name, 0..300);
        f.change_together(name, (0..300).step_by(3), None);
        f.change_together(name, (0..300).skip(1).step_by(3).rev(), None);
        for id in (5..300).step_by(9) {
            f.change(name, id, Some(doc! { "_id": id, "n": -1 }), UpdateStyle::Replacement);
        }
        f.change_together(name, (2..300).step_by(9), Some(-2));
        f.change_together(name, (2..300).step_by(3), None);
        assert_eq!(f.inserted(name).unwrap(), (0..300).collect::<Vec<_>>());
        let id = f.collection(name).id();
        let kept = f.kept();
        let replaced = kept.iter().filter(|((_, collection, _), kept)| {
            let n = kept.as_doc().get("n");
            *collection == id && [-1, -2].map(|n| Some(RawValue::Int32(n))).contains(&n)
        });
        assert_eq!(replaced.count(), 33 + 34);
        let again = open(&f.engine, 1 << 20);
        assert_eq!(again.inserted(name).unwrap(), (0..300).collect::<Vec<_>>());
    }
}

#[test]
fn what_several_statements_of_a_transaction_remove_is_kept_together() {
    let f = fixture();
    for name in in_both_layouts(&f) {
        f.insert(name, 0..100);
        let before = f.kept();
        let undone = f.in_transaction();
        undone.change_together(name, 0..50, None);
        drop(undone);
        assert_eq!(f.kept(), before);
        let inside = f.in_transaction();
        inside.change_together(name, 0..50, None);
        inside.change_together(name, 50..60, Some(1000));
        // Documents that the transaction itself has written, and overwrites.
        inside.insert(name, 100..200);
        inside.change_together(name, 100..150, Some(2000));
        inside.change_together(name, 120..150, None);
        inside.change_together(name, 55..65, None);
        inside.commit();
        assert_eq!(f.kept().len() - before.len(), 65 + 5 + 50);
        assert_eq!(f.inserted(name).unwrap(), (0..200).collect::<Vec<_>>());
    }
}

#[test]
fn a_cut_takes_whole_entries_with_what_is_kept_for_them() {
    let f = open(&Arc::new(MemoryEngine::new()), 20_000);
    let mut all = Vec::new();
    for first in (0..1000).step_by(100) {
        f.insert("d.c", first..first + 100);
        f.change_together("d.c", first..first + 100, None);
        all.extend(first..first + 100);
    }
    f.store.trim_oplog().unwrap();
    let left = f.inserted("d.c").unwrap();
    assert!(left.len() >= 100 && left.len() < 1000, "{}", left.len());
    assert_eq!(left, all[1000 - left.len()..]);
    assert_eq!(f.kept().len(), left.len());
    let records = f.rows(Keyspace::Record);
    assert_eq!(records.len(), left.len(), "retired records go with the log");
    // A crash between the removal of records and that of their rows, which the next trim repeats.
    let rows = f.rows(Keyspace::Versions);
    let mut txn = f.engine.begin(TxnOptions::default()).unwrap();
    for (key, _) in &records[..5] {
        txn.delete(Keyspace::Record, key, Guard::Checked).unwrap();
    }
    txn.commit().unwrap();
    f.store.cut_log_whole().unwrap();
    f.store.trim_oplog().unwrap();
    assert!(!rows.is_empty() && f.rows(Keyspace::Versions).is_empty());
    assert_eq!(f.rows(Keyspace::Record), []);
}

#[test]
fn what_waits_for_the_log_is_counted() {
    let engine = Arc::new(MemoryEngine::new());
    let retired = |f: &Fixture| f.store.retired(&f.collection("d.c"));
    let tally = |documents| Some(RetiredTally { documents, bytes: documents * 21 });
    let f = open(&engine, 1 << 30);
    f.insert("d.c", 0..20);
    f.change_together("d.c", 0..6, None);
    f.change("d.c", 6, None, UpdateStyle::Computed);
    assert_eq!(retired(&f), tally(7));
    // An aborted unit and an update retire nothing.
    let collection = f.collection("d.c");
    let key = f.store.locate(&f.view, &collection, RawValue::Int32(8)).unwrap().unwrap();
    let failed = f.store.write(&f.op, &f.view, &collection, |unit| {
        let old = unit.read(&key)?.unwrap();
        unit.delete(&key, &old)?;
        Err::<(), _>(Error::new(ErrorCode::BadValue, "no"))
    });
    assert!(failed.is_err());
    f.change("d.c", 9, Some(doc! { "_id": 9, "n": 1 }), UpdateStyle::Replacement);
    assert_eq!(retired(&f), tally(7));
    // A clean close stores the tally.
    f.store.store_counts().unwrap();
    let f = open(&engine, 1 << 30);
    f.change("d.c", 10, None, UpdateStyle::Computed);
    assert_eq!(retired(&f), tally(8));
    // After a crash it is not known, until the log is cut up to the start.
    let f = open(&engine, 1 << 30);
    assert_eq!(retired(&f), None);
    f.change("d.c", 11, None, UpdateStyle::Computed);
    assert_eq!(retired(&f), None);
    f.store.count_documents(&f.op, &f.collection("d.c")).unwrap();
    f.store.store_counts().unwrap();
    let f = open(&engine, 1 << 30);
    assert_eq!(retired(&f), None, "the close stored that it is not known");
    let before = f.store.oplog().settled();
    f.insert("d.c", 20..22);
    f.change_together("d.c", 20..22, None);
    f.store.note_cut(before, None).unwrap();
    f.store.trim_oplog().unwrap();
    assert_eq!(retired(&f), tally(2));
    f.store.cut_log_whole().unwrap();
    f.store.trim_oplog().unwrap();
    assert_eq!(retired(&f), tally(0));
}

#[test]
fn a_sweep_that_was_cut_off_loses_nothing_that_was_kept() {
    let f = fixture();
    f.insert("d.c", 0..256);
    let id = f.collection("d.c").id();
    f.store.drop_collection(&Namespace::parse("d.c").unwrap()).unwrap();
    let clear = |numbers: std::ops::Range<usize>| {
        let rows = f.rows(Keyspace::Record);
        let mut txn = f.engine.begin(TxnOptions::default()).unwrap();
        for (key, _) in &rows[numbers] {
            assert_eq!(key[..8], id.to_be_bytes());
            txn.delete(Keyspace::Record, key, Guard::Checked).unwrap();
        }
        txn.commit().unwrap();
    };
    // The state after a crash: some records are cleared, and the object still waits for the
    // sweeper.
    f.store.keep_logged_versions(&[id]).unwrap();
    clear(0..100);
    let again = open(&f.engine, 1 << 20);
    again.store.sweep_once().unwrap();
    assert_eq!(f.rows(Keyspace::Record).len(), 0);
    assert_eq!(again.inserted("d.c").unwrap(), (0..256).collect::<Vec<_>>());
}

/// Inserts documents which make the log long enough to be cut.
fn insert_large(f: &Fixture, name: &str, ids: std::ops::Range<i32>) {
    for id in ids {
        let text = "x".repeat(250_000);
        f.write(name, |unit| unit.insert(document(doc! { "_id": id, "text": &text }).as_doc()));
    }
}

#[test]
fn on_a_full_disk_the_log_gives_way_to_deletions() {
    let f = open(&Arc::new(MemoryEngine::new()), 1 << 30);
    insert_large(&f, "d.c", 0..20);
    f.change("d.c", 0, None, UpdateStyle::Computed);
    assert_eq!(f.kept().len(), 1);
    let before = f.store.oplog().settled();
    f.disk.full.store(true, Ordering::Relaxed);
    for id in 1..15 {
        f.change("d.c", id, None, UpdateStyle::Computed);
    }
    assert_eq!(f.kept().len(), 1, "nothing more is kept");
    assert_eq!(f.store.oplog().cuts_for_room(), 1, "it is cut once, not for each deletion");
    let late = f.store.oplog().read_changes(before - 1, &mut |_| Ok(ControlFlow::Continue(())));
    let late = late.unwrap_err();
    assert_eq!(late.code(), ErrorCode::ChangeStreamHistoryLost);
    f.store.trim_oplog().unwrap();
    assert_eq!(f.kept().len(), 0);
    // The rest of the log begins with the note, followed by later entries.
    let entries = f.rows(Keyspace::Oplog);
    assert_eq!(entries.len(), 15);
    let note = decode(&entries[0].1).unwrap().fields.get("o").and_then(RawValue::as_document);
    assert!(
        matches!(note.unwrap().get("msg"), Some(RawValue::String(text)) if text.contains("full"))
    );
    assert_eq!(f.inserted("d.c").unwrap(), []);
    // The next run has the cut.
    let again = open(&f.engine, 1 << 30);
    assert_eq!(again.store.oplog().cut(), f.store.oplog().cut());
    f.disk.full.store(false, Ordering::Relaxed);
    f.insert("d.c", 100..101);
    f.change("d.c", 100, None, UpdateStyle::Computed);
    assert_eq!(f.kept().len(), 1, "versions are kept again");
}

#[test]
fn on_a_full_disk_a_drop_keeps_nothing() {
    let f = open(&Arc::new(MemoryEngine::new()), 1 << 30);
    f.insert("d.c", 0..100);
    f.disk.full.store(true, Ordering::Relaxed);
    f.store.drop_collection(&Namespace::parse("d.c").unwrap()).unwrap();
    f.store.sweep_once().unwrap();
    assert_eq!((f.rows(Keyspace::Record).len(), f.kept().len()), (0, 0));
    f.store.trim_oplog().unwrap();
    assert_eq!(f.inserted("d.c").unwrap(), []);
}

#[test]
fn a_log_is_resized_at_run_time_and_stays_so() {
    let engine = Arc::new(MemoryEngine::new());
    let f = open(&engine, 1 << 30);
    insert_large(&f, "d.c", 0..30);
    f.store.trim_oplog().unwrap();
    assert_eq!(f.store.oplog().cut(), 0);
    let bytes = 1 << 20;
    f.store.resize_oplog(LogLimits { bytes, retention_ms: 3_600_000 }).unwrap();
    f.store.trim_oplog().unwrap();
    assert_eq!(f.store.oplog().cut(), 0, "young entries are kept");
    f.store.resize_oplog(LogLimits { bytes, retention_ms: 0 }).unwrap();
    f.store.trim_oplog().unwrap();
    let left = f.store.oplog().sizes().unwrap().bytes;
    assert!(left > 0 && left <= 1 << 20, "{left}");
    let limits = |oplog_bytes| open(&engine, oplog_bytes).store.oplog().limits();
    assert_eq!(limits(1 << 30), LogLimits { bytes, retention_ms: 0 });
    assert_eq!(limits(1 << 29).bytes, 1 << 29, "another size was configured since");
}
