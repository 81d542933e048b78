//! A store that replays the log of another one becomes equal to it.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::atomic::AtomicBool;

use mayfly_base::{Clock, Namespace};
use mayfly_kv::{ChaosEngine, ChaosOptions};
use mayfly_value::bson::{DateTime, Document, doc};

use super::*;
use crate::testing::{self, Fixture, NOW, fixture, ns};
use crate::{
    CollModChange, Direction, IndexSelector, NewExpireAfter, NewSearchIndex, OpenTransaction,
    ScanLimit, SearchSelector, TransactionOwner, UpdateStyle, whole_range,
};

/// No filters of partial indexes and validators.
pub(super) fn filters() -> Arc<dyn FilterCompiler> {
    StoreOptions::default().filters
}

/// A collection: name, options, definitions of indexes, and documents with the times of their last
/// change, in the order of their keys. Search indexes are among the indexes.
type Shown = (String, DocBuf, Vec<DocBuf>, Vec<(i64, DocBuf)>);
/// The collections of a store by UUID.
type ShownStore = BTreeMap<[u8; 16], Shown>;

pub(super) fn shown(store: &Store) -> ShownStore {
    let snapshot = store.snapshot(&ReadView::now()).unwrap();
    let all = store.collections(None).into_iter().map(|collection| {
        let mut indexes: Vec<DocBuf> = collection
            .ready_indexes()
            .iter()
            .map(|index| index.spec.document().to_owned())
            .collect();
        indexes.extend(collection.search_indexes().iter().map(|index| {
            let definition = index.latest().unwrap().definition.as_bytes();
            let definition = Document::from_reader(definition).unwrap();
            let (id, name, kind) = (&index.id, &index.name, &index.kind);
            let view = index.view.clone().unwrap_or_default();
            let shown = index.latest().unwrap().transformation.clone();
            let shown = shown.unwrap_or_else(DocBuf::empty);
            let shown = Document::from_reader(shown.as_bytes()).unwrap();
            let facts = doc! { "s": [id, name, kind, view], "definition": definition, "of": shown };
            DocBuf::from_bson(&facts)
        }));
        indexes.sort_by(|a, b| a.as_bytes().cmp(b.as_bytes()));
        let mut documents = Vec::new();
        let (whole, forward) = (whole_range(), Direction::Forward);
        snapshot
            .scan_stored(&collection, &whole, forward, ScanLimit::NONE, &mut |_, record| {
                documents.push((record.modified_ms, record.document.to_owned()));
                Ok(ControlFlow::Continue(()))
            })
            .unwrap();
        let name = collection.namespace().as_str().to_owned();
        (collection.uuid(), (name, collection.options(), indexes, documents))
    });
    all.collect()
}

/// The whole log as an archive has it.
fn archived(store: &Store) -> Vec<DocBuf> {
    let mut bytes = Vec::new();
    let mut after = 0;
    // Several pieces.
    while after < store.oplog().settled() {
        after = store.oplog().read_for_archive(after, 2_000, &mut bytes).unwrap();
    }
    let mut entries = Vec::new();
    let mut rest = &bytes[..];
    while let Some(length) = rest.first_chunk() {
        let (entry, later) = rest.split_at(u32::from_le_bytes(*length) as usize);
        entries.push(RawDoc::new(entry).unwrap().to_owned());
        rest = later;
    }
    entries
}

fn timestamp(entry: &DocBuf) -> u64 {
    match entry.as_doc().get("ts") {
        Some(RawValue::Timestamp(timestamp)) => timestamp,
        other => panic!("{other:?}"),
    }
}

/// A store that random commands change.
struct Source {
    fixture: Fixture,
    next: i32,
}

impl Source {
    fn documents(&mut self, count: i32) -> Vec<Document> {
        let first = self.next;
        self.next += count;
        let date = DateTime::from_millis(self.fixture.clock.now_ms());
        (first..first + count).map(|id| doc! { "_id": id, "a": id % 7, "at": date }).collect()
    }

    fn collection(&self, name: &str) -> Arc<Collection> {
        self.fixture.store.get_or_create(&ReadView::now(), &ns(name)).unwrap().0
    }

    fn insert(&self, view: &ReadView, name: &str, documents: &[Document]) {
        let f = &self.fixture;
        let collection = f.store.get_or_create(view, &ns(name)).unwrap().0;
        let documents: Vec<_> = documents.iter().map(DocBuf::from_bson).collect();
        let all = &mut |unit: &mut crate::WriteUnit<'_>| {
            documents.iter().try_for_each(|document| unit.insert(document.as_doc()))
        };
        f.store.write(&f.op, view, &collection, all).unwrap();
    }

    /// Changes or deletes some of the documents.
    fn change(&self, name: &str) {
        let f = &self.fixture;
        let collection = self.collection(name);
        for _ in 0..8 {
            let id = RawValue::Int32(rand::random_range(0..self.next));
            let Some(key) = f.store.locate(&ReadView::now(), &collection, id).unwrap() else {
                continue;
            };
            let value = rand::random_range(0..100);
            let new = doc! { "_id": match id { RawValue::Int32(id) => id, _ => 0 }, "a": value, "l": [value, 1] };
            let new = DocBuf::from_bson(&new);
            f.store
                .write(&f.op, &ReadView::now(), &collection, |unit| {
                    let Some(old) = unit.read(&key)? else { return Ok(()) };
                    match value % 3 {
                        0 if collection.capped().is_none() => unit.delete(&key, &old),
                        1 => unit.update(&key, &old, new.as_doc(), UpdateStyle::Computed),
                        _ => unit.update(&key, &old, new.as_doc(), UpdateStyle::Replacement),
                    }
                })
                .unwrap();
        }
    }

    fn create(&self, name: &str, options: Document) {
        let options = DocBuf::from_bson(&options);
        // It may exist.
        let _ = self.fixture.store.create_collection(&ReadView::now(), &ns(name), options);
    }

    fn measure(&mut self, name: &str) {
        self.create(name, doc! { "timeseries": { "timeField": "at", "metaField": "a" } });
        let collection = self.collection(name);
        let rows: Vec<_> = self.documents(20).iter().map(DocBuf::from_bson).collect();
        let rows: Vec<_> = rows.iter().map(DocBuf::as_doc).collect();
        let f = &self.fixture;
        f.store
            .insert_measurements((&f.op, &ReadView::now()), &collection, &rows, |_| Ok(()))
            .unwrap();
    }

    fn transaction(&mut self, names: [&str; 2]) {
        let documents = [self.documents(5), self.documents(4)];
        let owner = TransactionOwner { session: [1; 16], lsid: DocBuf::empty(), txn_number: 1 };
        let view = self.fixture.store.begin_transaction(owner).unwrap().enter();
        for (name, documents) in names.iter().zip(&documents) {
            self.insert(&view, name, documents);
        }
        let open = OpenTransaction::leave(view).unwrap();
        self.fixture.store.commit_transaction(open).unwrap();
    }

    fn index(&self, name: &str) {
        let specs = [
            doc! { "key": { "a": 1 }, "name": "a_1" },
            doc! { "key": { "at": 1 }, "name": "at_1", "expireAfterSeconds": 50 },
            doc! { "key": { "l": 1, "a": -1 }, "name": "l_a", "sparse": true },
        ];
        let _ = self.fixture.index(name, &specs[rand::random_range(0..3)]);
    }

    /// Changes the options of an index or of the collection, or drops an index.
    fn modify(&self, name: &str) {
        let store = &self.fixture.store;
        let selected = IndexSelector::Name("at_1");
        let _ = match rand::random_range(0..4) {
            0 => {
                let seconds = Some(NewExpireAfter::Seconds(rand::random_range(10..90)));
                let change = CollModChange { expire_after: seconds, ..CollModChange::default() };
                store.modify_index(&ns(name), selected, change).map(drop)
            }
            1 => {
                let hidden = Some(rand::random());
                let change = CollModChange { hidden, ..CollModChange::default() };
                store.modify_index(&ns(name), IndexSelector::Name("a_1"), change).map(drop)
            }
            2 => store.drop_indexes(&ns(name), Some(&[selected])).map(drop),
            _ => store.modify_options(&ns(name), RawDoc::EMPTY, |old| {
                let mut new = Document::from_reader(old.as_bytes()).unwrap();
                new.insert(
                    "changeStreamPreAndPostImages",
                    doc! { "enabled": rand::random::<bool>() },
                );
                Ok(DocBuf::from_bson(&new))
            }),
        };
    }

    fn step(&mut self) {
        let plain = ["d.a", "d.b", "e.a"];
        let name = plain[rand::random_range(0..3)];
        let store = self.fixture.store.clone();
        match rand::random_range(0..22) {
            0..=3 => {
                let documents = self.documents(rand::random_range(1..12));
                self.insert(&ReadView::now(), name, &documents);
            }
            4..=6 => self.change(name),
            7 => self.index(name),
            8 => self.modify(name),
            9 => {
                self.create("d.capped", doc! { "capped": true, "size": 4096i64, "max": 10i64 });
                let documents = self.documents(6);
                self.insert(&ReadView::now(), "d.capped", &documents);
            }
            10 => self.measure("d.system.buckets.s"),
            11 => {
                let other = plain[rand::random_range(0..3)];
                let target = crate::RenameTarget::Dropped;
                let _ = store.rename_collection(&ns(name), &ns(other), target);
            }
            12 if rand::random_range(0..3) == 0 => drop(store.drop_collection(&ns(name)).unwrap()),
            13 => self.transaction(["d.a", "d.t"]),
            14 => {
                self.fixture.clock.advance_ms(20_000);
                store.run_ttl_pass(&AtomicBool::new(false)).unwrap();
            }
            15 => self.replace(name),
            16 => {
                let capped = DocBuf::from_bson(&doc! { "capped": true, "size": 4096i64 });
                let _ = store.convert_collection(&self.fixture.op, &ns("e.b"), capped.as_doc());
                let documents = self.documents(3);
                self.insert(&ReadView::now(), "e.b", &documents);
            }
            18 | 19 => self.search(name),
            20 | 21 => self.view(),
            17 if rand::random_range(0..6) == 0 => drop(store.drop_database("e").unwrap()),
            _ => self
                .create("d.k", doc! { "clusteredIndex": { "key": { "_id": 1 }, "unique": true } }),
        }
    }

    /// Creates, changes or drops a view, or changes its search indexes. One view reads the other.
    fn view(&self) {
        let (store, op) = (&self.fixture.store, &self.fixture.op);
        let (name, on) = [("d.v", ["a", "b"]), ("d.w", ["v", "a"])][rand::random_range(0..2)];
        let stages = vec![doc! { "$set": { "n": rand::random_range(0..3) } }];
        let options = doc! { "viewOn": on[rand::random_range(0..2)], "pipeline": stages };
        let options = DocBuf::from_bson(&options);
        let reads = |db: &str, view: RawDoc<'_>| {
            let on = view.get("viewOn").and_then(RawValue::as_str).unwrap();
            vec![Namespace::new(db, on).unwrap()]
        };
        // The view may exist or not.
        let _ = match rand::random_range(0..6) {
            0 | 1 => store.create_view(op, &ns(name), options.as_doc(), &reads),
            2 => store.replace_view(op, &ns(name), options.as_doc(), &reads),
            3 if rand::random_range(0..3) == 0 => store.drop_view(op, &ns(name)).map(drop),
            _ => {
                self.search(name);
                Ok(())
            }
        };
    }

    /// Creates, updates or drops a search index.
    fn search(&self, name: &str) {
        let (store, ns) = (&self.fixture.store, ns(name));
        let index = ["x", "y"][rand::random_range(0..2)];
        let definition = DocBuf::from_bson(&doc! { "number": rand::random_range(0..3) });
        let selector = SearchSelector::Name(index);
        // The collection or the index may not exist.
        let _ = match rand::random_range(0..4) {
            0 | 1 => {
                let (name, kind) = (index.to_owned(), "search".to_owned());
                let new = NewSearchIndex { name, kind, definition };
                store.create_search_indexes(&ns, &[new]).map(drop)
            }
            2 => store.update_search_index(&ns, selector, &definition, |_| Ok(())),
            _ => store.drop_search_index(&ns, selector),
        };
    }

    /// Replaces a collection as `$out` does.
    fn replace(&mut self, name: &str) {
        let (store, target) = (self.fixture.store.clone(), Namespace::parse(name).unwrap());
        let existing = store.collection(&ReadView::now(), &target);
        let made = store.begin_replacement(&target, existing.as_deref(), DocBuf::empty()).unwrap();
        let documents: Vec<_> = self.documents(5).iter().map(DocBuf::from_bson).collect();
        store
            .write(&self.fixture.op, &ReadView::now(), made.collection(), |unit| {
                documents.iter().try_for_each(|document| unit.insert(document.as_doc()))
            })
            .unwrap();
        store.finish_replacement(&made).unwrap();
    }
}

/// Random changes of a store: its log, and the store at some of the log's times.
fn history(steps: usize) -> (Vec<DocBuf>, BTreeMap<u64, ShownStore>) {
    let mut source = Source { fixture: fixture(), next: 1 };
    let mut seen = BTreeMap::new();
    for step in 0..steps {
        source.fixture.clock.advance_ms(rand::random_range(1..3_000));
        source.step();
        if step % 7 == 0 || step + 1 == steps {
            let store = &source.fixture.store;
            seen.insert(store.oplog().settled(), shown(store));
        }
    }
    (archived(&source.fixture.store), seen)
}

fn assert_same(replay: &Replay, seen: &ShownStore) {
    let now = shown(replay.store());
    for (uuid, collection) in seen {
        let (name, options, indexes, documents) = collection;
        let found = now.get(uuid).unwrap_or_else(|| panic!("{name} is missing"));
        assert_eq!((&found.0, &found.1, &found.2), (name, options, indexes));
        for (found, document) in found.3.iter().zip(documents) {
            assert_eq!(found, document, "{name}");
        }
        assert_eq!(found.3.len(), documents.len(), "{name}");
    }
    assert_eq!(now.len(), seen.len());
}

#[test]
fn a_replay_gives_the_same_store_at_every_time() {
    for _ in 0..20 {
        let (entries, seen) = history(60);
        let mut replay = Replay::open(testing::memory(), filters()).unwrap();
        let mut compared = 0;
        let mut waiting = Vec::new();
        for (entry, next) in entries.iter().zip(entries.iter().skip(1).map(Some).chain([None])) {
            waiting.push(entry.as_doc());
            let (now, later) = (timestamp(entry), next.map_or(u64::MAX, timestamp));
            // Entries are applied alone, or several together.
            let is_seen = seen.range(now..later).next().is_some();
            if next.is_some() && !is_seen && rand::random_bool(0.8) {
                continue;
            }
            replay.apply_all(&waiting).unwrap();
            waiting.clear();
            if let Some((_, seen)) = seen.range(now..later).next() {
                assert_same(&replay, seen);
                compared += 1;
            }
        }
        assert!(compared > 3, "{compared}");
        replay.finish().unwrap();
    }
}

#[test]
fn an_interrupted_replay_goes_on() {
    for _ in 0..20 {
        let (entries, seen) = history(40);
        let options = ChaosOptions {
            seed: rand::random(),
            unknown_commit_probability: 0.02,
            ..ChaosOptions::default()
        };
        let engine: Arc<dyn Engine> = Arc::new(ChaosEngine::new(testing::memory(), options));
        let mut tries = 0;
        let replay = loop {
            tries += 1;
            let Ok(mut replay) = Replay::open(engine.clone(), filters()) else { continue };
            // Begins with entries that were applied before.
            let stops = rand::random_range(1..entries.len().max(2));
            let most = if tries > 30 { entries.len() } else { stops };
            let together = rand::random_range(1..20);
            let applied = entries[..most].chunks(together).try_for_each(|chunk| {
                replay.apply_all(&chunk.iter().map(DocBuf::as_doc).collect::<Vec<_>>())
            });
            if applied.is_ok() && most == entries.len() {
                break replay;
            }
            assert!(tries < 1_000, "{applied:?}");
        };
        assert_same(&replay, seen.last_key_value().unwrap().1);
    }
}

#[test]
fn a_transaction_is_replayed_when_its_last_entry_is_there() {
    let part = |last: bool, id: i32| {
        let mut command = doc! { "applyOps": [
            { "op": "i", "ns": "d.c", "ui": mayfly_value::bson::Uuid::from_bytes([7; 16]), "o": { "_id": id } }
        ] };
        if !last {
            command.insert("partialTxn", true);
        }
        let entry = doc! {
            "lsid": {}, "txnNumber": 1i64, "op": "c", "ns": "admin.$cmd", "o": command,
            "ts": mayfly_value::bson::Timestamp { time: 5, increment: id as u32 },
            "wall": DateTime::from_millis(NOW),
        };
        DocBuf::from_bson(&entry)
    };
    let mut replay = Replay::open(testing::memory(), filters()).unwrap();
    replay.store.create_defined(&ns("d.c"), DocBuf::empty(), [7; 16], &[]).unwrap();
    let documents = |replay: &Replay| shown(&replay.store)[&[7; 16]].3.len();
    replay.apply(part(false, 1).as_doc()).unwrap();
    replay.apply(part(false, 2).as_doc()).unwrap();
    assert_eq!((documents(&replay), replay.position()), (0, 0));
    replay.apply(part(true, 3).as_doc()).unwrap();
    assert_eq!((documents(&replay), replay.position()), (3, (5 << 32) | 3));
}

#[test]
fn what_cannot_be_replayed_is_an_error() {
    let uuid = mayfly_value::bson::Uuid::from_bytes([7; 16]);
    let entry = |more: Document| {
        let mut entry = doc! {
            "ns": "d.c", "ui": uuid, "ts": mayfly_value::bson::Timestamp { time: 5, increment: 1 },
        };
        entry.extend(more);
        DocBuf::from_bson(&entry)
    };
    let update =
        doc! { "op": "u", "o": { "$v": 2, "diff": { "u": { "a": 1 } } }, "o2": { "_id": 1 } };
    let cases = [
        (
            doc! { "op": "i", "ui": mayfly_value::bson::Uuid::from_bytes([8; 16]), "o": { "_id": 1 } },
            26,
        ),
        (update, 301),
        (doc! { "op": "c", "o": { "collMod": "c" } }, 301),
        (doc! { "op": "x", "o": {} }, 9),
        (doc! { "op": "i", "o": { "a": 1 } }, 9),
        (doc! { "op": "c", "o": { "create": "c" }, "definition": { "ns": "d.c" } }, 9),
        (doc! { "op": "i", "ts": 1, "o": {} }, 9),
    ];
    for (case, code) in cases {
        let mut replay = Replay::open(testing::memory(), filters()).unwrap();
        replay.store.create_defined(&ns("d.c"), DocBuf::empty(), [7; 16], &[]).unwrap();
        let error = replay.apply(entry(case.clone()).as_doc()).unwrap_err();
        assert_eq!(error.code().0, code, "{case}: {error}");
        assert_eq!(replay.position(), 0);
    }
}
