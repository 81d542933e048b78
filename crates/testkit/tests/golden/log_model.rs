//! Compares the log with a list of the writes: random units, transactions and changes of the
//! catalog, with a window of a few kilobytes that is trimmed repeatedly. Most documents that the
//! log refers to have been changed, deleted, dropped or moved before it is read. `LOG_SEED=n` runs
//! only one case, `MORE=20` runs twenty times as many.

use mayfly_storage::OpenTransaction;
use mayfly_storage::ReadView;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use mayfly_base::{ErrorCode, ManualClock, Namespace, Result};
use mayfly_storage::{
    Direction, LogEntry, LogRange, RenameTarget, Store, StoreOptions, TransactionOwner, UpdateStyle,
};
use mayfly_testkit::{OpenEngine, clustered, environment, memory, memory_under_chaos};
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue};
use mayfly_work::{OpCtx, OpRegistry};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::scripts::{postgres, rocksdb};

const PLAIN: [&str; 3] = ["db.a", "db.b", "other.c"];
const CAPPED: &str = "db.capped";
const CAPPED_MAX: usize = 12;
const IDS: i32 = 25;
const WINDOW_BYTES: u64 = 20_000;

/// An expected operation of the log.
#[derive(Clone, Debug, PartialEq)]
enum Logged {
    Insert(String, DocBuf),
    Replace(String, DocBuf),
    Change(String, i32),
    Delete(String, i32),
}

/// A step of a unit.
#[derive(Clone, Debug)]
enum Step {
    Insert(DocBuf),
    Replace(i32, DocBuf),
    Change(i32, i32),
    Delete(i32),
}

struct Model {
    open: OpenEngine,
    store: Arc<Store>,
    clock: Arc<ManualClock>,
    random: SmallRng,
    /// The documents of each collection, oldest first.
    live: BTreeMap<&'static str, Vec<(i32, DocBuf)>>,
    /// Commits in their order.
    log: Vec<(u64, Vec<Logged>)>,
    transactions: i64,
    entries_read: usize,
    trimmed: usize,
    numbered: i32,
}

fn ns(name: &str) -> Namespace {
    Namespace::parse(name).unwrap()
}

fn document(id: i32, number: i32, length: usize) -> DocBuf {
    let mut document = DocBuilder::new();
    document.append("_id", id).append("number", number).append("text", "x".repeat(length).as_str());
    document.finish()
}

fn open_store(open: &OpenEngine, clock: &Arc<ManualClock>) -> Arc<Store> {
    let options =
        StoreOptions { background: false, oplog_bytes: WINDOW_BYTES, ..StoreOptions::default() };
    Store::open(open(), options, clock.clone(), OpRegistry::new(clock.clone())).unwrap()
}

fn id_of(document: RawDoc<'_>) -> i32 {
    match document.get("_id") {
        Some(RawValue::Int32(id)) => id,
        other => panic!("an _id: {other:?}"),
    }
}

fn shown(entry: &LogEntry<'_>) -> Result<Vec<Logged>> {
    let mut operations = Vec::new();
    entry.operations(&mut |operation| {
        let text = |name| operation.get(name).and_then(RawValue::as_str).unwrap_or("").to_owned();
        let ns = text("ns");
        if ns.contains("tmp") {
            return Ok(ControlFlow::Continue(()));
        }
        let is_delta = |document: RawDoc<'_>| document.get("diff").is_some();
        match text("op").as_str() {
            "i" => operations.push(Logged::Insert(ns, operation.object()?.into_owned())),
            "u" => {
                let object = operation.object()?.into_owned();
                let key = operation.get("o2").and_then(RawValue::as_document).unwrap();
                operations.push(match is_delta(object.as_doc()) {
                    true => Logged::Change(ns, id_of(key)),
                    false => Logged::Replace(ns, object),
                });
            }
            "d" => operations.push(Logged::Delete(ns, id_of(operation.object()?.as_doc()))),
            _ => {}
        }
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(operations)
}

fn assert_same(seen: &[(u64, Vec<Logged>)], expected: &[(u64, Vec<Logged>)]) {
    let first = |list: &[(u64, Vec<Logged>)], at: usize| {
        list.get(at).map(|one| format!("{one:?}").replace("xx", ""))
    };
    let differs = (0..seen.len().max(expected.len())).find(|at| seen.get(*at) != expected.get(*at));
    if let Some(at) = differs {
        panic!("at {at}: seen {:?}\nwanted {:?}", first(seen, at), first(expected, at));
    }
}

impl Model {
    fn new(open: OpenEngine, seed: u64) -> Model {
        let clock = Arc::new(ManualClock::at_ms(1_800_000_000_000));
        let store = open_store(&open, &clock);
        let mut model = Model {
            store,
            open,
            clock,
            random: SmallRng::seed_from_u64(seed),
            live: BTreeMap::new(),
            log: Vec::new(),
            transactions: 0,
            entries_read: 0,
            trimmed: 0,
            numbered: 0,
        };
        model.create_capped();
        model
    }

    fn op(&self) -> Arc<OpCtx> {
        OpCtx::detached(self.clock.clone())
    }

    fn create_capped(&mut self) {
        let mut options = DocBuilder::new();
        options.append("capped", true).append("size", 1 << 20).append("max", CAPPED_MAX as i32);
        self.store.create_collection(&ReadView::now(), &ns(CAPPED), options.finish()).unwrap();
        self.live.insert(CAPPED, Vec::new());
    }

    fn fresh(&mut self, id: i32) -> DocBuf {
        self.numbered += 1;
        let length = self.random.random_range(0..400);
        document(id, self.numbered, length)
    }

    /// Steps on a collection, and the expected operations of the log.
    fn steps(&mut self, name: &'static str) -> (Vec<Step>, Vec<Logged>) {
        let mut live = self.live.get(name).cloned().unwrap_or_default();
        let mut before: Vec<i32> = live.iter().map(|(id, _)| *id).collect();
        let (mut steps, mut logged) = (Vec::new(), Vec::new());
        let ns = || name.to_owned();
        for _ in 0..self.random.random_range(1..=6) {
            let id = self.random.random_range(0..IDS);
            let at = live.iter().position(|(other, _)| *other == id);
            // A unit finds what it has put into a capped collection by its number only.
            if name == CAPPED && at.is_some() && !before.contains(&id) {
                continue;
            }
            match (at, self.random.random_range(0..4)) {
                (None, _) => {
                    let new = self.fresh(id);
                    steps.push(Step::Insert(new.clone()));
                    logged.push(Logged::Insert(ns(), new.clone()));
                    live.push((id, new));
                }
                (Some(at), 0 | 1) => {
                    let new = self.fresh(id);
                    steps.push(Step::Replace(id, new.clone()));
                    logged.push(Logged::Replace(ns(), new.clone()));
                    live[at].1 = new;
                }
                (Some(at), 2) => {
                    self.numbered += 1;
                    let number = self.numbered;
                    let length = live[at].1.as_doc().get("text").unwrap().as_str().unwrap().len();
                    steps.push(Step::Change(id, number));
                    logged.push(Logged::Change(ns(), id));
                    live[at].1 = document(id, number, length);
                }
                (Some(at), _) => {
                    steps.push(Step::Delete(id));
                    logged.push(Logged::Delete(ns(), id));
                    live.remove(at);
                    before.retain(|other| *other != id);
                }
            }
        }
        while name == CAPPED && live.len() > CAPPED_MAX {
            logged.push(Logged::Delete(ns(), live.remove(0).0));
        }
        self.live.insert(name, live);
        (steps, logged)
    }

    fn run(&self, view: &ReadView, name: &str, steps: &[Step]) -> Result<()> {
        let (collection, _) = self.store.get_or_create(view, &ns(name))?;
        self.store.write(&self.op(), view, &collection, |unit| {
            for step in steps {
                let key = match step {
                    Step::Insert(_) => Vec::new(),
                    Step::Replace(id, _) | Step::Change(id, _) | Step::Delete(id) => {
                        let id_key = collection.id_key(RawValue::Int32(*id));
                        unit.locate(id_key)?.expect("a record of its own")
                    }
                };
                let key = key.as_slice();
                let old = if key.is_empty() { None } else { unit.read(key)? };
                let old = old.as_ref();
                match step {
                    Step::Insert(new) => unit.insert(new.as_doc())?,
                    Step::Replace(_, new) => {
                        unit.update(key, old.unwrap(), new.as_doc(), UpdateStyle::Replacement)?;
                    }
                    Step::Change(id, number) => {
                        let old = old.unwrap();
                        let text = old.as_doc().get("text").unwrap().as_str().unwrap().len();
                        let new = document(*id, *number, text);
                        unit.update(key, old, new.as_doc(), UpdateStyle::Parts)?;
                    }
                    Step::Delete(_) => unit.delete(key, old.unwrap())?,
                }
            }
            Ok(())
        })
    }

    fn committed(&mut self, logged: Vec<Logged>) {
        if !logged.is_empty() {
            self.log.push((self.store.oplog().settled(), logged));
        }
    }

    fn unit(&mut self) {
        let name = match self.random.random_range(0..4) {
            0 => CAPPED,
            at => PLAIN[at - 1],
        };
        let (steps, logged) = self.steps(name);
        if !steps.is_empty() {
            self.run(&ReadView::now(), name, &steps).unwrap();
            self.committed(logged);
        }
    }

    fn transaction(&mut self) {
        self.transactions += 1;
        let before = self.live.clone();
        let id = RawValue::uuid(&[7; 16]);
        let mut lsid = DocBuilder::new();
        lsid.append("id", id);
        let owner = TransactionOwner {
            session: [7; 16],
            lsid: lsid.finish(),
            txn_number: self.transactions,
        };
        PLAIN
            .iter()
            .for_each(|name| drop(self.store.get_or_create(&ReadView::now(), &ns(name)).unwrap()));
        let units: Vec<_> = (0..self.random.random_range(1..5))
            .map(|_| {
                let name = PLAIN[self.random.random_range(0..PLAIN.len())];
                (name, self.steps(name))
            })
            .collect();
        // Under chaos a transaction may fail at any of its steps; it is retried then.
        let committed = (0..1000).find_map(|_| {
            let mut open = self.store.begin_transaction(owner.clone()).ok()?;
            for (name, (steps, _)) in &units {
                let view = open.enter();
                // Dropping it undoes the transaction.
                self.run(&view, name, steps).ok()?;
                open = OpenTransaction::leave(view).unwrap();
            }
            self.store.commit_transaction(open).ok()
        });
        match committed {
            Some(_) => {
                let logged = units.into_iter().flat_map(|(_, (_, logged))| logged).collect();
                self.committed(logged);
            }
            None => self.live = before,
        }
    }

    fn definition(&mut self) {
        let name = PLAIN[self.random.random_range(0..PLAIN.len())];
        let other = PLAIN[self.random.random_range(0..PLAIN.len())];
        let exists = |name: &str| self.store.collection(&ReadView::now(), &ns(name)).is_some();
        match self.random.random_range(0..4) {
            0 => {
                self.store.drop_collection(&ns(name)).unwrap();
                self.live.remove(name);
            }
            1 if name != other && exists(name) => {
                self.store.rename_collection(&ns(name), &ns(other), RenameTarget::Dropped).unwrap();
                let moved = self.live.remove(name).unwrap_or_default();
                self.live.insert(other, moved);
            }
            2 => {
                self.store.drop_collection(&ns(CAPPED)).unwrap();
                self.create_capped();
            }
            3 if exists(name) => {
                // The copy has other record numbers. It is dropped afterwards, which frees its
                // name.
                let mut capped = DocBuilder::new();
                capped.append("capped", true).append("size", 1 << 20);
                let capped = capped.finish();
                self.store.convert_collection(&self.op(), &ns(name), capped.as_doc()).unwrap();
                self.store.drop_collection(&ns(name)).unwrap();
                self.live.remove(name);
            }
            _ => {}
        }
    }

    fn reopen(&mut self) {
        let before = self.store.oplog().sizes().unwrap();
        if self.random.random_bool(0.5) {
            self.store.close().unwrap();
        }
        // The engine is opened again after its last owner has dropped it.
        self.store = {
            let clock = self.clock.clone();
            drop(std::mem::replace(&mut self.store, open_store(&memory(), &clock)));
            open_store(&self.open, &clock)
        };
        let after = self.store.oplog().sizes().unwrap();
        assert_eq!((after.entries, after.bytes), (before.entries, before.bytes));
    }

    /// The expected entries after a timestamp.
    fn expected(&self, after: u64) -> Vec<(u64, Vec<Logged>)> {
        self.log.iter().filter(|(timestamp, _)| *timestamp > after).cloned().collect()
    }

    fn read(&mut self, disturbed: bool) {
        let oldest = self.store.oplog().cut();
        let known: Vec<u64> = self.log.iter().map(|(timestamp, _)| *timestamp).collect();
        let after = match self.random.random_range(0..4) {
            0 => oldest,
            1 if !known.is_empty() => known[self.random.random_range(0..known.len())],
            _ => known.get(known.len().saturating_sub(20)).copied().unwrap_or(0),
        };
        let expected = self.expected(after);
        let disturb_at = if disturbed { self.random.random_range(0..10) } else { usize::MAX };
        let (store, mut seen, mut count) = (self.store.clone(), Vec::new(), 0);
        let mut model = disturbed.then_some(&mut *self);
        let read = store.oplog().read_changes(after, &mut |entry| {
            if count == disturb_at
                && let Some(model) = model.take()
            {
                // While the reader is at this entry.
                for _ in 0..30 {
                    model.unit();
                }
                model.definition();
                model.store.sweep_once()?;
                model.store.trim_oplog()?;
            }
            count += 1;
            let operations = shown(entry)?;
            if !operations.is_empty() {
                seen.push((entry.timestamp(), operations));
            }
            Ok(ControlFlow::Continue(()))
        });
        self.entries_read += seen.len();
        match read {
            Ok(_) => {
                assert_same(&seen, &expected);
                assert!(after >= oldest);
            }
            Err(error) if error.code() == ErrorCode::ChangeStreamHistoryLost => {
                assert!(after < self.store.oplog().cut(), "{error}");
                // Cut entries are missing at the front only.
                let front = expected.iter().position(|one| Some(one) == seen.first());
                let front = if after >= oldest { 0 } else { front.unwrap_or(0) };
                assert_same(&seen, &expected[front..front + seen.len()]);
            }
            Err(error) => panic!("{error}"),
        }
    }

    /// Checks the results of reads of `local.oplog.rs`.
    fn read_entries(&mut self, direction: Direction) {
        let (mut bytes, mut entries) = (0, 0);
        let whole = LogRange { first: 1, last: u64::MAX };
        self.store
            .oplog()
            .read(whole, direction, &mut |entry| {
                let whole = entry.whole()?.into_owned();
                assert_eq!(whole.as_bytes().len() as u64, entry.bytes());
                let checked = mayfly_value::validate(whole.as_bytes(), 200);
                assert!(checked.is_ok(), "{checked:?}");
                (bytes, entries) = (bytes + entry.bytes() as i64, entries + 1);
                Ok(ControlFlow::Continue(()))
            })
            .unwrap();
        let sizes = self.store.oplog().sizes().unwrap();
        assert_eq!((sizes.bytes, sizes.entries), (bytes, entries));
    }

    fn trim(&mut self) {
        let before = self.store.oplog().cut();
        self.store.trim_oplog().unwrap();
        let sizes = self.store.oplog().sizes().unwrap();
        assert!(sizes.bytes as u64 <= WINDOW_BYTES);
        self.trimmed += usize::from(self.store.oplog().cut() > before);
    }

    fn play(&mut self, steps: usize) {
        for _ in 0..steps {
            match self.random.random_range(0..100) {
                0..60 => self.unit(),
                60..70 => self.transaction(),
                70..75 => self.definition(),
                75..80 => self.store.sweep_once().unwrap(),
                80..85 => self.trim(),
                85..87 => self.reopen(),
                87..95 => self.read(false),
                95..97 => self.read(true),
                97 => self.read_entries(Direction::Forward),
                98 => self.read_entries(Direction::Backward),
                _ => self.clock.advance_ms(1_000),
            }
        }
    }
}

fn check(open: impl Fn(u64) -> OpenEngine, cases: u64, steps: usize) {
    let seeds = match environment::number("LOG_SEED") {
        Some(seed) => vec![seed],
        None => {
            (0..cases * environment::number("MORE").unwrap_or(1)).map(|_| rand::random()).collect()
        }
    };
    for seed in seeds {
        println!("LOG_SEED={seed}");
        let mut model = Model::new(open(seed), seed);
        model.play(steps);
        assert!(model.entries_read > steps / 2 && model.trimmed > 0, "too little was looked at");
    }
}

#[test]
fn the_log_shows_what_was_written_over_memory() {
    check(|_| memory(), 4, 800);
}

#[test]
fn the_log_shows_what_was_written_over_rocksdb() {
    check(|_| rocksdb(), 1, 800);
}

#[test]
fn the_log_shows_what_was_written_over_postgres() {
    check(|_| postgres(), 1, 400);
}

#[test]
fn the_log_shows_what_was_written_under_chaos() {
    check(memory_under_chaos, 2, 500);
}

#[test]
fn the_log_shows_what_was_written_over_clustered_records() {
    check(|_| clustered(memory()), 3, 800);
    check(|_| clustered(rocksdb()), 1, 400);
}
