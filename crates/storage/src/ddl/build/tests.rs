//! Builds with writes, drops, kills and crashes between any two of their steps. Pages, units and
//! limits are small in these tests, so that builds take all of their branches.

use crate::isolation::ReadView;
use std::cell::RefCell;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicUsize};

use mayfly_base::{ManualClock, Namespace};
use mayfly_kv::{
    ChaosEngine, ChaosOptions, Direction, Engine, EngineWrapper, KeyRange, MemoryEngine, ScanEnd,
    ScanLimit,
};
use mayfly_value::bson::{Bson, DateTime, Document, doc};
use mayfly_value::{DocBuf, RawValue};
use mayfly_work::current;
use parking_lot::Mutex;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::*;
use crate::testing::{self, NOW, Opened};
use crate::{
    CreateIndexesOptions, IndexSelector, OpenTransaction, TransactionOwner, UpdateStyle,
    ValidateOptions, WriteUnit, id_key, whole_range,
};

struct Fixture {
    store: Arc<Store>,
    engine: Arc<dyn Engine>,
    clock: Arc<ManualClock>,
    op: Arc<OpCtx>,
}

fn over(engine: Arc<dyn Engine>) -> Fixture {
    let clock = testing::clock();
    let Opened { store, op, .. } = testing::open(engine.clone(), clock.clone());
    store.ttl_params().last_modified.store(true, Ordering::Relaxed);
    Fixture { store, engine, op, clock }
}

fn fixture() -> Fixture {
    over(testing::memory())
}

fn ns() -> Namespace {
    Namespace::new("d", "c").unwrap()
}

fn document(random: &mut SmallRng, id: i32) -> Document {
    let value = |random: &mut SmallRng| match random.random_range(0..5) {
        0 => Bson::Int32(random.random_range(0..4)),
        1 => Bson::String("x".repeat(random.random_range(0..30))),
        2 => Bson::Null,
        3 => Bson::Double(f64::from(random.random_range(0..4))),
        _ => {
            let items = (0..random.random_range(0..25)).map(|_| random.random_range(0..30));
            Bson::Array(items.map(Bson::Int32).collect())
        }
    };
    let text = ["one two", "two three", ""][id as usize % 3];
    let date = NOW - random.random_range(-100_000..100_000);
    doc! {
        "_id": id, "a": value(random), "b": { "c": random.random_range(0..3) }, "u": id * 10,
        "d": DateTime::from_millis(date), "t": text,
    }
}

/// A client that writes, in units of its own or in a transaction of several statements.
struct Client {
    random: SmallRng,
    op: Arc<OpCtx>,
    open: Option<OpenTransaction>,
    /// The first of the ids that only this client uses.
    first: i32,
    next: i32,
    commits: usize,
}

impl Client {
    fn new(seed: u64, op: &Arc<OpCtx>) -> Client {
        let random = SmallRng::seed_from_u64(seed);
        Client { random, op: op.clone(), open: None, first: 1000, next: 0, commits: 0 }
    }

    fn write(&mut self, store: &Store, view: &ReadView) -> Result<()> {
        let collection = store.collection(view, &ns()).unwrap();
        let which = self.random.random_range(0..3);
        let id = match which {
            0 => {
                self.next += 1;
                self.first + self.next % 200
            }
            _ => self.random.random_range(0..60),
        };
        let new = DocBuf::from_bson(&document(&mut self.random, id));
        store.write(&self.op, view, &collection, |unit| {
            let key = unit.locate(id_key(RawValue::Int32(id)))?.unwrap_or_default();
            let old = unit.read(&key)?;
            match (which, old) {
                (0 | 1, None) => unit.insert(new.as_doc()),
                (0 | 1, Some(old)) => unit.update(&key, &old, new.as_doc(), UpdateStyle::Operators),
                (_, Some(old)) => unit.delete(&key, &old),
                (_, None) => Ok(()),
            }
        })
    }

    fn act(&mut self, store: &Store) {
        for _ in 0..self.random.random_range(0..8) {
            match self.random.random_range(0..8) {
                0 => store.run_ttl_pass(&AtomicBool::new(false)).unwrap(),
                1 | 2 => self.transaction(store),
                // A statement outside of the transaction could wait for it, and so for its own
                // thread.
                _ if self.open.is_none() => self.write(store, &ReadView::now()).unwrap(),
                _ => {}
            }
        }
    }

    /// Begins a transaction, continues it, or ends it.
    fn transaction(&mut self, store: &Store) {
        let open = self.open.take();
        if let Some(open) = open
            && self.random.random_range(0..2) == 0
        {
            self.commits += usize::from(store.commit_transaction(open).is_ok());
            return;
        }
        let open = store.begin_transaction(owner()).unwrap();
        let view = open.enter();
        let written = (0..3).all(|_| self.write(store, &view).is_ok());
        if let (true, Ok(open)) = (written, OpenTransaction::leave(view)) {
            self.open = Some(open);
        }
    }
}

fn owner() -> TransactionOwner {
    let id = RawValue::Binary { subtype: 4, bytes: &[7; 16] };
    let mut lsid = mayfly_value::DocBuilder::new();
    lsid.append("id", id);
    TransactionOwner { session: [7; 16], lsid: lsid.finish(), txn_number: 1 }
}

impl Fixture {
    fn insert(&self, document: &Document) {
        let (collection, _) = self.store.get_or_create(&ReadView::now(), &ns()).unwrap();
        let document = DocBuf::from_bson(document);
        self.store
            .write(&self.op, &ReadView::now(), &collection, |unit| unit.insert(document.as_doc()))
            .unwrap();
    }

    fn fill(&self, documents: i32) {
        let mut random = SmallRng::seed_from_u64(7);
        (0..documents).for_each(|id| self.insert(&document(&mut random, id)));
    }

    fn build(&self, indexes: &[Document]) -> Result<()> {
        let indexes: Vec<_> = indexes.iter().map(DocBuf::from_bson).collect();
        let indexes: Vec<_> = indexes.iter().map(DocBuf::as_doc).collect();
        let options = CreateIndexesOptions::default();
        self.store.create_indexes((&self.op, &ReadView::now()), &ns(), &indexes, options).map(drop)
    }

    /// Calls a function between steps, until it returns true.
    fn between(&self, act: impl FnMut(&Store, &'static str) -> bool + Send + 'static) {
        *self.store.between_steps.lock() = Some(Box::new(act));
    }

    /// Calls a function at the steps of this name.
    fn at(&self, step: &'static str, act: impl Fn(&Store) + Send + 'static) {
        self.between(move |store, now| {
            if now == step {
                act(store);
            }
            false
        });
    }

    fn names(&self) -> Vec<String> {
        let collection = self.store.collection(&ReadView::now(), &ns()).unwrap();
        collection.indexes().iter().map(|index| index.spec.name().to_owned()).collect()
    }

    fn check(&self) {
        let collection = self.store.collection(&ReadView::now(), &ns()).unwrap();
        let options = ValidateOptions { bson_conformance: false };
        let found = self.store.validate(&self.op, &collection, options).unwrap();
        for index in &found.indexes {
            let name = index.index.spec.name();
            let counts = (index.missing, index.extra, &index.errors);
            assert!(index.is_valid(), "{name}: {counts:?}");
            assert_eq!(index.entries, index.expected, "{name}");
        }
        assert_eq!(found.records, found.kept_records);
    }

    /// The number of entries of all indexes except the one on `_id`, including dropped ones.
    fn stored_entries(&self) -> usize {
        let id_index = self.store.collection(&ReadView::now(), &ns()).and_then(|it| it.id_index());
        let of_id = id_index.map(|index| index.id().to_be_bytes());
        let entries = copied(&*self.engine, Keyspace::Index);
        entries.iter().filter(|(key, _)| of_id.is_none_or(|id| !key.starts_with(&id))).count()
    }
}

fn copied(engine: &dyn Engine, keyspace: Keyspace) -> Vec<(Vec<u8>, Vec<u8>)> {
    let txn = engine.begin(TxnOptions { read_only: true }).unwrap();
    let mut range = KeyRange { start: Vec::new(), end: vec![0xFF; 300] };
    let mut all = Vec::new();
    loop {
        let forward = Direction::Forward;
        let end = txn.scan(keyspace, &range, forward, ScanLimit::NONE, &mut |key, value| {
            all.push((key.to_vec(), value.to_vec()));
            ControlFlow::Continue(())
        });
        match end.unwrap() {
            ScanEnd::Exhausted => return all,
            ScanEnd::More { last_key } => range = range.after(&last_key, forward),
        }
    }
}

/// A copy of the store, as a crash leaves it.
fn copy(engine: &dyn Engine) -> Arc<dyn Engine> {
    let copy = MemoryEngine::new();
    let mut txn = copy.begin(TxnOptions::default()).unwrap();
    for keyspace in Keyspace::ALL {
        for (key, value) in copied(engine, keyspace) {
            txn.put(keyspace, &key, &value, Guard::Checked).unwrap();
        }
    }
    txn.commit().unwrap();
    Arc::new(copy)
}

/// Definitions of all kinds that need no filter compiler.
fn all_kinds() -> Vec<Document> {
    vec![
        doc! { "key": { "a": 1 }, "name": "a" },
        doc! { "key": { "b.c": -1, "a": 1 }, "name": "bc_a" },
        doc! { "key": { "u": 1 }, "name": "u", "unique": true },
        doc! { "key": { "u": -1, "a": 1 }, "name": "u_a", "unique": true, "sparse": true },
        doc! { "key": { "d": 1 }, "name": "d", "expireAfterSeconds": 50 },
        doc! { "key": { "_ts": 1 }, "name": "m", "expireAfterSeconds": 1000 },
        doc! { "key": { "b.c": "hashed" }, "name": "hashed" },
        doc! { "key": { "$**": 1 }, "name": "wildcard" },
        doc! { "key": { "t": "text" }, "name": "text" },
        doc! { "key": { "a": 1 }, "name": "collated", "collation": { "locale": "en", "strength": 2 } },
    ]
}

#[test]
fn an_index_has_what_its_documents_have_whatever_happens_meanwhile() {
    let (mut rounds, mut commits) = (0, 0);
    for seed in 0..24 {
        let memory = Arc::new(MemoryEngine::new());
        let chaos = Arc::new(ChaosEngine::new(memory, ChaosOptions::default()));
        let f = over(chaos.clone());
        f.fill([0, 1, 60, 300][seed as usize % 4]);
        if seed % 3 == 0 {
            let (conflict_probability, short_pages) = (0.05, true);
            let options =
                ChaosOptions { seed, conflict_probability, short_pages, ..Default::default() };
            chaos.change(options);
        }
        let budget = [0, 1_000, 200 << 20][seed as usize / 4 % 3];
        f.store.index_build_bytes.store(budget, Ordering::Relaxed);
        let client = Arc::new(Mutex::new((Client::new(seed, &f.op), 0)));
        let acting = client.clone();
        let clock = f.clock.clone();
        f.between(move |store, step| {
            let mut acting = acting.lock();
            clock.advance_ms(100);
            acting.0.act(store);
            acting.1 += usize::from(step == "round");
            false
        });
        let mut kinds = all_kinds();
        if seed % 2 == 1 {
            // A policy that hides waits for transactions, and invalidates those that are open at
            // the end of its build.
            kinds.retain(|spec| spec.get_str("name").ok() != Some("m"));
            if f.store.collection(&ReadView::now(), &ns()).is_some() {
                client.lock().0.transaction(&f.store);
            }
        }
        f.build(&kinds).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert_eq!(f.names().len(), kinds.len());
        f.check();
        // Writes continue after the build, with the transaction that is open.
        {
            let mut client = client.lock();
            (0..20).for_each(|_| client.0.act(&f.store));
            client.0.open = None;
            rounds += client.1;
            commits += client.0.commits;
        }
        f.check();
        let collection = f.store.collection(&ReadView::now(), &ns()).unwrap();
        f.store.rebuild_indexes(&f.op, &collection).unwrap();
        f.check();
        *f.store.between_steps.lock() = None;
        client.lock().0.open = None;
        f.store.drop_indexes(&ns(), None).unwrap();
        f.store.sweep_once().unwrap();
        assert_eq!(f.stored_entries(), 0, "seed {seed}");
    }
    assert!(rounds > 20 && commits > 5, "{rounds} rounds, {commits} transactions");
}

#[test]
fn writers_on_other_threads() {
    let f = fixture();
    f.fill(200);
    f.store.index_build_bytes.store(2_000, Ordering::Relaxed);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for seed in 0..3 {
            let (f, over) = (&f, &over);
            scope.spawn(move || {
                let mut client = Client::new(seed, &f.op);
                client.first = 1_000 * (seed as i32 + 1);
                while !over.load(Ordering::Relaxed) {
                    client.act(&f.store);
                }
            });
        }
        let built = (0..3).try_for_each(|_| {
            f.build(&all_kinds())?;
            f.check();
            f.store.drop_indexes(&ns(), None).map(drop)
        });
        over.store(true, Ordering::Relaxed);
        built.unwrap();
    });
}

fn unique() -> Document {
    doc! { "key": { "u": 1 }, "name": "u", "unique": true }
}

fn add(store: &Store, op: &OpCtx, id: i32) {
    let collection = store.collection(&ReadView::now(), &ns()).unwrap();
    let document = DocBuf::from_bson(&doc! { "_id": id, "u": id });
    // Some of them exist already.
    let _ = store.write(op, &ReadView::now(), &collection, |unit| unit.insert(document.as_doc()));
}

fn delete(store: &Store, op: &OpCtx, id: i32) {
    let collection = store.collection(&ReadView::now(), &ns()).unwrap();
    let delete = |unit: &mut WriteUnit<'_>| {
        let key = unit.locate(id_key(RawValue::Int32(id)))?.unwrap();
        let old = unit.read(&key)?.unwrap();
        unit.delete(&key, &old)
    };
    store.write(op, &ReadView::now(), &collection, delete).unwrap();
}

#[test]
fn duplicates_end_a_build_whenever_they_come() {
    for step in ["before", "page", "load", "loaded", "last"] {
        let f = fixture();
        (0..100).for_each(|id| f.insert(&doc! { "_id": id, "u": id }));
        let again = DocBuf::from_bson(&doc! { "_id": 1000, "u": 5 });
        if step == "before" {
            f.insert(&doc! { "_id": 1000, "u": 5 });
        }
        let op = f.op.clone();
        let done = Mutex::new(false);
        f.at(step, move |store| {
            let collection = store.collection(&ReadView::now(), &ns()).unwrap();
            if !std::mem::replace(&mut *done.lock(), true) {
                store
                    .write(&op, &ReadView::now(), &collection, |unit| unit.insert(again.as_doc()))
                    .unwrap();
            }
        });
        let error = f.build(&[unique()]).unwrap_err();
        assert_eq!(error.code(), ErrorCode::DuplicateKey, "{step}");
        let text = "E11000 duplicate key error collection: d.c index: u dup key: { u: 5 }";
        assert_eq!(error.message(), text);
        let extra = Document::from_reader(error.extra().unwrap()).unwrap();
        assert_eq!(extra, doc! { "keyPattern": { "u": 1 }, "keyValue": { "u": 5 } });
        assert!(f.names().is_empty());
        f.store.sweep_once().unwrap();
        assert_eq!(f.stored_entries(), 0);
    }
}

#[test]
fn duplicates_that_are_gone_again_end_nothing() {
    for (step, gone) in [("load", 5), ("load", 1000), ("page", 5), ("page", 1000)] {
        let f = fixture();
        (0..100).for_each(|id| f.insert(&doc! { "_id": id, "u": id }));
        f.insert(&doc! { "_id": 1000, "u": 5 });
        let (op, seen) = (f.op.clone(), AtomicUsize::new(0));
        f.at(step, move |store| {
            // The walk may or may not have read the last page.
            if seen.fetch_add(1, Ordering::Relaxed) == 0 {
                delete(store, &op, gone);
            }
        });
        f.build(&[unique()]).unwrap();
        f.check();
        let left = if gone == 5 { 1000 } else { 5 };
        let error = {
            let collection = f.store.collection(&ReadView::now(), &ns()).unwrap();
            let document = DocBuf::from_bson(&doc! { "_id": 2000, "u": 5 });
            f.store
                .write(&f.op, &ReadView::now(), &collection, |unit| unit.insert(document.as_doc()))
                .unwrap_err()
        };
        assert_eq!(error.code(), ErrorCode::DuplicateKey, "{left} has it");
    }
}

#[test]
fn a_key_goes_from_one_document_to_another() {
    // At every step the value moves to another document, so that the build sees it twice.
    let f = fixture();
    (0..50).for_each(|id| f.insert(&doc! { "_id": id, "u": id }));
    let (op, next) = (f.op.clone(), AtomicUsize::new(0));
    f.between(move |store, _| {
        if next.load(Ordering::Relaxed) > 200 {
            return true;
        }
        let collection = store.collection(&ReadView::now(), &ns()).unwrap();
        for _ in 0..4 {
            let n = next.fetch_add(1, Ordering::Relaxed) as i32;
            let (from, to) = (n % 50, (n + 1) % 50);
            let set = |unit: &mut WriteUnit<'_>, id: i32, u: i32| {
                let key = unit.locate(id_key(RawValue::Int32(id)))?.unwrap();
                let old = unit.read(&key)?.unwrap();
                let new = DocBuf::from_bson(&doc! { "_id": id, "u": u });
                unit.update(&key, &old, new.as_doc(), UpdateStyle::Operators)
            };
            let number = |id: i32, unit: &mut WriteUnit<'_>| {
                let key = unit.locate(id_key(RawValue::Int32(id))).unwrap().unwrap();
                let old = unit.read(&key).unwrap().unwrap();
                old.as_doc().get("u").and_then(|u| match u {
                    RawValue::Int32(u) => Some(u),
                    _ => None,
                })
            };
            let swap = |unit: &mut WriteUnit<'_>| {
                let (a, b) = (number(from, unit).unwrap(), number(to, unit).unwrap());
                set(unit, from, b)?;
                set(unit, to, a)
            };
            store.write(&op, &ReadView::now(), &collection, swap).unwrap();
        }
        false
    });
    f.build(&[unique()]).unwrap();
    f.check();
}

#[test]
fn a_hidden_document_is_no_duplicate() {
    for step in ["before", "page", "loaded", "last"] {
        let f = fixture();
        let ttl = doc! { "hideExpired": true };
        let hiding = doc! { "key": { "d": 1 }, "name": "d", "expireAfterSeconds": 10, "ttl": ttl };
        f.insert(&doc! { "_id": -1 });
        f.build(&[hiding]).unwrap();
        (0..100).for_each(|id| f.insert(&doc! { "_id": id, "u": id }));
        let date = DateTime::from_millis(NOW);
        let early = doc! { "_id": 1000, "u": 5, "d": date };
        let late = DocBuf::from_bson(&doc! { "_id": -5, "u": 6, "d": date });
        f.insert(&early);
        if step == "before" {
            f.clock.advance_ms(20_000);
        }
        let (op, clock, done) = (f.op.clone(), f.clock.clone(), Mutex::new(false));
        f.at(step, move |store| {
            let collection = store.collection(&ReadView::now(), &ns()).unwrap();
            if !std::mem::replace(&mut *done.lock(), true) {
                store
                    .write(&op, &ReadView::now(), &collection, |unit| unit.insert(late.as_doc()))
                    .unwrap();
                clock.advance_ms(20_000);
            }
        });
        if step == "loaded" || step == "last" {
            // Both documents are visible and have the key.
            let error = f.build(&[unique()]).unwrap_err();
            assert_eq!(error.code(), ErrorCode::DuplicateKey);
            f.clock.advance_ms(20_000);
        }
        f.build(&[unique()]).unwrap();
        f.check();
    }
}

/// Runs a build of two indexes once for each of its steps, and calls `act` at that step.
fn at_each_step(mut act: impl FnMut(&Fixture, usize) -> Arc<AtomicUsize>) {
    for step in 0.. {
        let f = fixture();
        f.fill(40);
        f.store.index_build_bytes.store(1_000, Ordering::Relaxed);
        let steps = act(&f, step);
        if steps.load(Ordering::Relaxed) <= step {
            assert!(step > 10, "{step}");
            return;
        }
    }
}

/// Calls `act` at one step, and makes a note at each of the others, so that there are rounds.
fn once(f: &Fixture, at: usize, act: impl Fn(&Store) + Send + 'static) -> Arc<AtomicUsize> {
    let (count, op) = (Arc::new(AtomicUsize::new(0)), f.op.clone());
    let counted = count.clone();
    let mut random = SmallRng::seed_from_u64(3);
    f.between(move |store, step| {
        let now = counted.fetch_add(1, Ordering::Relaxed);
        if now == at {
            act(store);
        }
        if let Some(collection) = store.collection(&ReadView::now(), &ns())
            && step != "last"
        {
            let new = document(&mut random, 100 + now as i32);
            let new = DocBuf::from_bson(&new);
            // Fails after a close or a kill.
            let _ =
                store.write(&op, &ReadView::now(), &collection, |unit| unit.insert(new.as_doc()));
        }
        false
    });
    count
}

fn two() -> [Document; 2] {
    [doc! { "key": { "a": 1 }, "name": "a" }, unique()]
}

#[test]
fn a_killed_build_leaves_nothing() {
    at_each_step(|f, at| {
        let op = OpCtx::detached(f.clock.clone());
        let killed = op.clone();
        let steps = once(f, at, move |_| killed.kill(ErrorCode::Interrupted));
        let indexes = two().map(|index| DocBuf::from_bson(&index));
        let indexes = [indexes[0].as_doc(), indexes[1].as_doc()];
        let built = f.store.create_indexes(
            (&op, &ReadView::now()),
            &ns(),
            &indexes,
            CreateIndexesOptions::default(),
        );
        if let Err(error) = built {
            assert_eq!(error.code(), ErrorCode::Interrupted);
            assert!(f.names().is_empty());
            f.store.sweep_once().unwrap();
            assert_eq!(f.stored_entries(), 0);
            *f.store.between_steps.lock() = None;
            f.build(&two()).unwrap();
        }
        assert_eq!(op.info().progress, None);
        f.check();
        steps
    });
}

#[test]
fn nothing_follows_what_is_dropped_meanwhile() {
    at_each_step(|f, at| {
        let steps = once(f, at, |store| {
            store.drop_indexes(&ns(), Some(&[IndexSelector::Name("a")])).unwrap();
            store.sweep_once().unwrap();
        });
        if let Err(error) = f.build(&two()) {
            assert_eq!(error.code(), ErrorCode::IndexBuildAborted);
            f.store.sweep_once().unwrap();
            assert_eq!(f.stored_entries(), 0);
        }
        steps
    });
    at_each_step(|f, at| {
        let steps = once(f, at, |store| {
            store.drop_collection(&ns()).unwrap();
            store.sweep_once().unwrap();
        });
        if let Err(error) = f.build(&two()) {
            assert_eq!(error.code(), ErrorCode::IndexBuildAborted);
            assert_eq!(f.stored_entries(), 0);
            assert_eq!(copied(&*f.engine, Keyspace::Record).len(), 0);
        }
        steps
    });
}

#[test]
fn a_rebuild_goes_on_without_what_is_dropped() {
    at_each_step(|f, at| {
        f.build(&two()).unwrap();
        let steps = once(f, at, |store| {
            // A drop by name would be ambiguous: there are two indexes.
            store.drop_indexes(&ns(), None).unwrap();
            store.sweep_once().unwrap();
        });
        let collection = f.store.collection(&ReadView::now(), &ns()).unwrap();
        f.store.rebuild_indexes(&f.op, &collection).unwrap();
        f.check();
        f.store.drop_indexes(&ns(), None).unwrap();
        f.store.sweep_once().unwrap();
        assert_eq!(f.stored_entries(), 0);
        steps
    });
}

#[test]
fn a_crash_leaves_no_half_index() {
    at_each_step(|f, at| {
        let survivor = Arc::new(Mutex::new(None));
        let (crashed, engine) = (survivor.clone(), f.engine.clone());
        let steps = once(f, at, move |_| *crashed.lock() = Some(copy(&*engine)));
        f.build(&two()).unwrap();
        f.check();
        let crashed = survivor.lock().take();
        if let Some(crashed) = crashed {
            let g = over(crashed);
            assert!(g.names().is_empty());
            g.store.sweep_once().unwrap();
            assert_eq!(g.stored_entries(), 0);
            g.build(&two()).unwrap();
            g.check();
        }
        steps
    });
}

#[test]
fn a_store_that_closes_ends_its_builds() {
    at_each_step(|f, at| {
        let steps = once(f, at, |store| store.close().unwrap());
        let _ = f.build(&two());
        steps
    });
}

#[test]
fn a_build_says_how_far_it_has_come() {
    let f = fixture();
    f.fill(100);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (op, shown) = (f.op.clone(), seen.clone());
    f.between(move |store, step| {
        let collection = store.collection(&ReadView::now(), &ns()).unwrap();
        if step == "load" {
            for id in 1000..1010 {
                let new = DocBuf::from_bson(&doc! { "_id": id + shown.lock().len() as i32 * 10 });
                store
                    .write(&op, &ReadView::now(), &collection, |unit| unit.insert(new.as_doc()))
                    .unwrap();
            }
        }
        if let Some(progress) = op.info().progress {
            shown.lock().push(progress);
        }
        false
    });
    f.build(&[doc! { "key": { "b.c": 1 }, "name": "bc" }]).unwrap();
    let seen = seen.lock();
    let first = |message: &str| seen.iter().find(|progress| progress.message.contains(message));
    let scanning = OpProgress { message: "Index Build: scanning collection", done: 0, total: 100 };
    assert_eq!(first("scanning"), Some(&scanning));
    assert!(seen.contains(&OpProgress { done: 98, ..scanning }));
    assert!(first("inserting keys from external sorter into index").is_some());
    assert!(first("draining writes received during build").is_some());
    assert_eq!(f.op.info().progress, None);
}

/// A document without valid keys ends the build only if it still exists at the end.
#[test]
fn a_document_without_keys_may_go_meanwhile() {
    let index = doc! { "key": { "a": 1, "b": 1 }, "name": "ab" };
    let parallel = doc! { "_id": 1000, "a": [1, 2], "b": [1, 2] };
    let f = fixture();
    f.fill(40);
    f.insert(&parallel);
    let error = f.build(std::slice::from_ref(&index)).unwrap_err();
    assert_eq!(error.code(), ErrorCode::CannotIndexParallelArrays);
    let (op, done) = (f.op.clone(), Mutex::new(false));
    f.at("page", move |store| {
        if !std::mem::replace(&mut *done.lock(), true) {
            delete(store, &op, 1000);
        }
    });
    f.build(&[index]).unwrap();
    f.check();
}

/// The transaction is open at the start of the build, and commits during the build or after its
/// end.
#[test]
fn a_transaction_that_wrote_before_the_build_gets_its_keys() {
    let f = fixture();
    f.fill(20);
    let write = |open: OpenTransaction, id: i32| {
        let view = open.enter();
        let collection = f.store.collection(&view, &ns()).unwrap();
        let document = DocBuf::from_bson(&doc! { "_id": id, "u": id });
        f.store.write(&f.op, &view, &collection, |unit| unit.insert(document.as_doc())).unwrap();
        OpenTransaction::leave(view)
    };
    let begin = |id: i32| {
        let owner = TransactionOwner { session: [id as u8; 16], ..owner() };
        write(f.store.begin_transaction(owner).unwrap(), id).unwrap()
    };
    let mut open: Vec<(&str, OpenTransaction)> =
        ["page", "round", "last", "never"].into_iter().zip((500..).map(begin)).collect();
    let after = open.pop().unwrap().1;
    let op = f.op.clone();
    f.between(move |store, step| {
        // Enough notes for a round.
        (1000..1010).filter(|_| step == "page").for_each(|id| add(store, &op, id));
        if let Some(at) = open.iter().position(|(when, _)| *when == step) {
            store.commit_transaction(open.remove(at).1).unwrap();
        }
        open.is_empty()
    });
    f.build(&[unique()]).unwrap();
    assert!(f.store.between_steps.lock().is_none(), "all of them were committed");
    f.check();
    f.store.commit_transaction(after).unwrap();
    f.check();
    let collection = f.store.collection(&ReadView::now(), &ns()).unwrap();
    let entries = f.store.snapshot(&ReadView::now()).unwrap();
    let entries = entries.count_entries(&collection.indexes()[0], &whole_range(), ScanLimit::NONE);
    assert_eq!(entries.unwrap().0, 34);
}

/// A memory engine whose disk for temporary files is full after some of them.
struct FullDisk {
    inner: MemoryEngine,
    left: AtomicUsize,
    folder: std::path::PathBuf,
}

impl EngineWrapper for FullDisk {
    fn inner(&self) -> &dyn Engine {
        &self.inner
    }

    fn scratch(&self, _: u64) -> mayfly_kv::KvResult<Option<std::path::PathBuf>> {
        let left = |left: usize| left.checked_sub(1);
        match self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, left) {
            Ok(_) => Ok(Some(self.folder.clone())),
            Err(_) => Err(mayfly_kv::KvError::Unavailable("the disk is full".to_owned())),
        }
    }
}

#[test]
fn a_full_disk_ends_a_build_and_no_write() {
    let mut built = 0;
    for left in 0..60 {
        let folder = std::env::temp_dir();
        let left = AtomicUsize::new(left);
        let f = over(Arc::new(FullDisk { inner: MemoryEngine::new(), left, folder }));
        f.fill(60);
        f.store.index_build_bytes.store(2_000, Ordering::Relaxed);
        let (op, mut random, mut id) = (f.op.clone(), SmallRng::seed_from_u64(9), 1000);
        f.between(move |store, step| {
            let collection = store.collection(&ReadView::now(), &ns()).unwrap();
            for _ in 0..if step == "page" { 5 } else { 0 } {
                id += 1;
                let new = DocBuf::from_bson(&document(&mut random, id));
                store
                    .write(&op, &ReadView::now(), &collection, |unit| unit.insert(new.as_doc()))
                    .unwrap();
            }
            false
        });
        match f.build(&two()) {
            Ok(()) => built += 1,
            Err(error) => {
                assert_eq!(error.code(), ErrorCode::OutOfDiskSpace);
                assert!(f.names().is_empty());
                f.store.sweep_once().unwrap();
                assert_eq!(f.stored_entries(), 0);
            }
        }
        f.check();
    }
    assert!((1..60).contains(&built), "{built} were built");
}

/// An engine that refuses writes on command.
struct Unwritable {
    inner: MemoryEngine,
    refuses: Arc<AtomicBool>,
}

impl EngineWrapper for Unwritable {
    fn inner(&self) -> &dyn Engine {
        &self.inner
    }

    fn begin(
        &self,
        options: mayfly_kv::TxnOptions,
    ) -> mayfly_kv::KvResult<Box<dyn mayfly_kv::Txn>> {
        match self.refuses.load(Ordering::Relaxed) && !options.read_only {
            true => Err(mayfly_kv::KvError::Unavailable("the disk is full".to_owned())),
            false => self.inner.begin(options),
        }
    }
}

/// The failed build is reported although its index cannot be dropped; the index is dropped when
/// that is possible.
#[test]
fn a_build_that_cannot_be_taken_back_is_taken_back_later() {
    for by_sweeper in [true, false] {
        let refuses = Arc::new(AtomicBool::new(false));
        let inner = MemoryEngine::new();
        let f = over(Arc::new(Unwritable { inner, refuses: refuses.clone() }));
        f.fill(60);
        let refused = refuses.clone();
        f.at("last", move |_| refused.store(true, Ordering::Relaxed));
        let error = f.build(&two()).unwrap_err();
        assert_eq!(error.code(), ErrorCode::OutOfDiskSpace);
        assert_eq!(f.names().len(), 2, "they cannot be dropped yet");
        let listed = f.store.collection(&ReadView::now(), &ns()).unwrap().list_indexes();
        assert_eq!(listed.len(), 1, "only that on _id");
        f.at("none", |_| ());
        assert!(f.store.sweep_once().is_err());
        refuses.store(false, Ordering::Relaxed);
        if by_sweeper {
            f.store.sweep_once().unwrap();
            assert!(f.names().is_empty());
            assert_eq!(f.stored_entries(), 0);
        }
        f.build(&two()).unwrap();
        f.store.sweep_once().unwrap();
        assert_eq!(f.names().len(), 2);
        f.check();
    }
}

thread_local! {
    /// Called while this thread waits.
    static WHILE_WAITING: RefCell<Option<Box<dyn FnMut()>>> = const { RefCell::new(None) };
}

#[test]
fn a_writer_that_waits_for_a_build_holds_no_locks() {
    current::announce_waits_by(|wait| {
        WHILE_WAITING.with_borrow_mut(|act| act.iter_mut().for_each(|act| act()));
        wait();
    });
    let waited = Arc::new(AtomicUsize::new(0));
    for capped in [false, true] {
        let f = fixture();
        if capped {
            f.store.drop_collection(&ns()).unwrap();
            let options = DocBuf::from_bson(&doc! { "capped": true, "size": 1 << 20 });
            f.store.create_collection(&ReadView::now(), &ns(), options).unwrap();
        }
        f.fill(40);
        let (op, waited) = (f.op.clone(), waited.clone());
        f.between(move |store, step| {
            if step != "loaded" {
                return false;
            }
            let collection = store.collection(&ReadView::now(), &ns()).unwrap();
            let indexes = collection.indexes();
            let building = indexes.iter().find_map(|index| index.building()).unwrap();
            building.notes.delay(1);
            let (of, waited) = (collection.clone(), waited.clone());
            WHILE_WAITING.set(Some(Box::new(move || {
                assert!(of.state.try_write().is_some(), "the collection's state");
                assert!(of.capped.writing.try_lock().is_some(), "the turn of a capped collection");
                waited.fetch_add(1, Ordering::Relaxed);
            })));
            let new = DocBuf::from_bson(&doc! { "_id": 1000, "a": 5, "u": 1000 });
            store
                .write(&op, &ReadView::now(), &collection, |unit| unit.insert(new.as_doc()))
                .unwrap();
            let owner = TransactionOwner {
                session: [1; 16],
                lsid: DocBuf::from_bson(&doc! {}),
                txn_number: 1,
            };
            if collection.capped().is_none() {
                let view = store.begin_transaction(owner).unwrap().enter();
                let new = DocBuf::from_bson(&doc! { "_id": 1001, "a": 5, "u": 1001 });
                store.write(&op, &view, &collection, |unit| unit.insert(new.as_doc())).unwrap();
                store.commit_transaction(OpenTransaction::leave(view).unwrap()).unwrap();
            }
            WHILE_WAITING.set(None);
            building.notes.delay(0);
            true
        });
        f.build(&two()).unwrap();
        f.check();
    }
    assert_eq!(waited.load(Ordering::Relaxed), 3);
}
