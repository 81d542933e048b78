//! Builds with writes, drops, kills and crashes between any two of their steps. Pages, units and
//! limits are small in these tests, so that builds take all of their branches.

mod duplicates;
mod interrupted;
mod unique;
mod writers;

use crate::isolation::ReadView;
use std::cell::RefCell;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicUsize};

use mayfly_base::Namespace;
use mayfly_kv::{
    ChaosEngine, ChaosOptions, Direction, Engine, EngineWrapper, Guard, KeyRange, Keyspace,
    MemoryEngine, ScanEnd, ScanLimit,
};
use mayfly_value::bson::{Bson, DateTime, Document, doc};
use mayfly_value::{DocBuf, RawValue};
use mayfly_work::current;
use parking_lot::Mutex;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::*;
use crate::testing::{self, Fixture, NOW};
use crate::{
    CreateIndexesOptions, IndexSelector, OpenTransaction, TransactionOwner, UpdateStyle,
    ValidateOptions, WriteUnit, id_key, whole_range,
};

fn over(engine: Arc<dyn Engine>) -> Fixture {
    let clock = testing::clock();
    let f = testing::open(engine, clock);
    f.store.ttl_params().last_modified.store(true, Ordering::Relaxed);
    f
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
                (0 | 1, Some(old)) => unit.update(&key, &old, new.as_doc(), UpdateStyle::Computed),
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
    let id = RawValue::uuid(&[7; 16]);
    let mut lsid = mayfly_value::DocBuilder::new();
    lsid.append("id", id);
    TransactionOwner { session: [7; 16], lsid: lsid.finish(), txn_number: 1 }
}

impl Fixture {
    fn put(&self, document: &Document) {
        self.insert("d.c", document).unwrap();
    }

    fn fill(&self, documents: i32) {
        let mut random = SmallRng::seed_from_u64(7);
        (0..documents).for_each(|id| self.put(&document(&mut random, id)));
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
    let txn = engine.begin(TxnOptions::READ_ONLY).unwrap();
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

thread_local! {
    /// Called while this thread waits.
    static WHILE_WAITING: RefCell<Option<Box<dyn FnMut()>>> = const { RefCell::new(None) };
}
