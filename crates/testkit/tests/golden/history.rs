//! Histories of concurrent transactions over the store: appends to lists and reads of them, checked
//! for everything that snapshot isolation forbids ([`mayfly_testkit::history`]). `HISTORY_SEED=n`
//! selects the random numbers, `HISTORY_SECS=n` sets the duration.

use mayfly_storage::ReadView;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use mayfly_base::{ErrorCode, Namespace, Result};
use mayfly_kv::{ChaosEngine, ChaosOptions, Engine, MemoryEngine};
use mayfly_storage::{
    CreateIndexesOptions, IndexSelector, OpenTransaction, Store, TransactionOwner, UpdateStyle,
    id_key,
};
use mayfly_testkit::history::{Outcome, Step, Transaction, check};
use mayfly_testkit::{Fixture, OpenEngine, Reopenable, environment, memory, memory_under_chaos};
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue};
use mayfly_work::OpCtx;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::scripts::{postgres, rocksdb};

/// The collections of the lists, in two databases.
const COLLECTIONS: [&str; 3] = ["one.lists", "one.others", "two.lists"];
/// Lists in use at a time.
const KEYS: u32 = 6;
/// The number of appends to a list before another one is used.
const APPENDS: u64 = 60;

fn namespace(key: u32) -> Namespace {
    let names = COLLECTIONS.map(|name| Namespace::parse(name).unwrap());
    names.into_iter().nth(key as usize % COLLECTIONS.len()).unwrap()
}

fn values(document: RawDoc<'_>) -> Vec<u64> {
    let list = document.get("list").and_then(RawValue::as_array).unwrap_or(RawDoc::EMPTY);
    let number = |value| match value {
        RawValue::Int64(number) => number as u64,
        _ => 0,
    };
    list.iter().map(|element| number(element.value())).collect()
}

fn list(key: u32, values: &[u64]) -> DocBuf {
    let mut document = DocBuilder::new();
    document.append("_id", key as i32).append("length", values.len() as i32).start_array("list");
    values.iter().for_each(|value| {
        document.push(*value as i64);
    });
    document.end();
    document.finish()
}

fn read(store: &Store, view: &ReadView, key: u32) -> Result<Vec<u64>> {
    let Some(collection) = store.collection(view, &namespace(key)) else {
        return Ok(Vec::new());
    };
    let id_key = id_key(RawValue::Int32(key as i32));
    let read = store.read_by_id(view, &collection, &id_key, |_, document| values(document))?;
    Ok(read.unwrap_or_default())
}

fn append((store, op, view): (&Store, &OpCtx, &ReadView), key: u32, value: u64) -> Result<()> {
    let (collection, _) = store.get_or_create(view, &namespace(key))?;
    let id_key = id_key(RawValue::Int32(key as i32));
    store.write(op, view, &collection, |unit| {
        let found = match unit.locate(id_key.clone())? {
            Some(record) => unit.read(&record)?.map(|old| (record, old)),
            None => None,
        };
        match found {
            None => unit.insert(list(key, &[value]).as_doc()),
            Some((record, old)) => {
                let mut values = values(old.as_doc());
                values.push(value);
                let new = list(key, &values);
                unit.update(&record, &old, new.as_doc(), UpdateStyle::Computed)
            }
        }
    })
}

/// The state that all clients share.
struct Run {
    store: Arc<Store>,
    op: Arc<OpCtx>,
    began: Instant,
    next_value: AtomicU64,
}

/// A client that runs transactions sequentially.
struct Client<'r> {
    run: &'r Run,
    session: u8,
    number: i64,
    random: SmallRng,
}

impl Client<'_> {
    fn now(&self) -> u64 {
        self.run.began.elapsed().as_micros() as u64
    }

    fn transaction(&mut self) -> Transaction {
        let begin = self.now();
        let mut steps = Vec::new();
        let result = match self.random.random_range(0..4) {
            0 => self.alone(&mut steps),
            _ => self.several(&mut steps),
        };
        Transaction { begin, end: self.now(), outcome: result, steps }
    }

    fn key(&mut self) -> u32 {
        let turn = self.run.next_value.load(Ordering::Relaxed) / APPENDS;
        turn as u32 * KEYS + self.random.random_range(0..KEYS)
    }

    /// A single write or read, outside transactions.
    fn alone(&mut self, steps: &mut Vec<Step>) -> Outcome {
        let key = self.key();
        let result = if self.random.random_bool(0.5) {
            self.append(&ReadView::now(), key, steps)
        } else {
            self.read(&ReadView::now(), key, steps)
        };
        outcome(result)
    }

    fn append(&self, view: &ReadView, key: u32, steps: &mut Vec<Step>) -> Result<()> {
        let value = self.run.next_value.fetch_add(1, Ordering::Relaxed) + 1;
        steps.push(Step::Append { key, value });
        append((&self.run.store, &self.run.op, view), key, value)
    }

    fn read(&self, view: &ReadView, key: u32, steps: &mut Vec<Step>) -> Result<()> {
        let values = read(&self.run.store, view, key)?;
        steps.push(Step::Read { key, values });
        Ok(())
    }

    fn several(&mut self, steps: &mut Vec<Step>) -> Outcome {
        self.number += 1;
        let mut lsid = DocBuilder::new();
        let id = [self.session; 16];
        lsid.append("id", RawValue::uuid(&id));
        let owner = TransactionOwner { session: id, lsid: lsid.finish(), txn_number: self.number };
        let begun = self.run.store.begin_transaction(owner);
        match begun.and_then(|open| self.statements(open, steps)) {
            // Abandoned by its client.
            Ok(open) if self.random.random_bool(0.1) => {
                drop(open);
                Outcome::Fail
            }
            Ok(open) => outcome(self.run.store.commit_transaction(open).map(|_| ())),
            Err(_) => Outcome::Fail,
        }
    }

    fn statements(
        &mut self,
        mut open: OpenTransaction,
        steps: &mut Vec<Step>,
    ) -> Result<OpenTransaction> {
        for _ in 0..self.random.random_range(1..6) {
            let key = self.key();
            let view = open.enter();
            if self.random.random_bool(0.5) {
                self.append(&view, key, steps)?;
            } else {
                self.read(&view, key, steps)?;
            }
            open = OpenTransaction::leave(view)?;
            if self.random.random_bool(0.1) {
                std::thread::yield_now();
            }
        }
        Ok(open)
    }
}

fn outcome(result: Result<()>) -> Outcome {
    match result {
        Ok(()) => Outcome::Ok,
        Err(error) if error.code() == ErrorCode::HostUnreachable => Outcome::Info,
        Err(_) => Outcome::Fail,
    }
}

/// Creates and drops an index repeatedly.
fn disturb(run: &Run, over: &AtomicBool) {
    let mut spec = DocBuilder::new();
    spec.start_document("key").append("length", 1).end().append("name", "length");
    let spec = spec.finish();
    for turn in 0.. {
        if over.load(Ordering::Acquire) {
            return;
        }
        let ns = namespace(turn % COLLECTIONS.len() as u32);
        let options = CreateIndexesOptions::default();
        let made =
            run.store.create_indexes((&run.op, &ReadView::now()), &ns, &[spec.as_doc()], options);
        std::thread::sleep(Duration::from_millis(3));
        if made.is_ok() {
            let _gone = run.store.drop_indexes(&ns, Some(&[IndexSelector::Name("length")]));
        }
    }
}

/// Faults begin when the store is open and its collections exist. After a commit with an unknown
/// outcome the catalog is not specified, so that the catalog does not change while there are
/// faults.
fn no_anomalies(
    open: OpenEngine,
    default_transactions: u64,
    faults: Option<(Arc<ChaosEngine>, ChaosOptions)>,
) {
    let seed = environment::number("HISTORY_SEED").unwrap_or_else(rand::random);
    let seconds = environment::number("HISTORY_SECS");
    let fixture = Fixture::new(open);
    let disturbed = faults.is_none();
    if let Some((engine, options)) = faults {
        for (db, collection) in COLLECTIONS.iter().filter_map(|name| name.split_once('.')) {
            fixture.ok(db, &format!("{{create: '{collection}'}}"));
        }
        engine.change(options);
    }
    let run = Run {
        store: fixture.store().clone(),
        op: OpCtx::detached(fixture.clock.clone()),
        began: Instant::now(),
        next_value: AtomicU64::new(0),
    };
    let over = AtomicBool::new(false);
    let mut history: Vec<Transaction> = std::thread::scope(|threads| {
        let clients: Vec<_> = (0..6u8)
            .map(|session| {
                let mut client = Client {
                    run: &run,
                    session,
                    number: 0,
                    random: SmallRng::seed_from_u64(seed.wrapping_add(u64::from(session))),
                };
                threads.spawn(move || {
                    let mut seen = Vec::new();
                    let more = |seen: &Vec<_>| match seconds {
                        Some(seconds) => client.run.began.elapsed().as_secs() < seconds,
                        None => (seen.len() as u64) < default_transactions,
                    };
                    while more(&seen) {
                        seen.push(client.transaction());
                    }
                    seen
                })
            })
            .collect();
        if disturbed {
            threads.spawn(|| disturb(&run, &over));
        }
        let seen: Vec<_> = clients.into_iter().map(|client| client.join()).collect();
        over.store(true, Ordering::Release);
        seen.into_iter().flat_map(|seen| seen.unwrap()).collect()
    });
    let ok = history.iter().filter(|it| it.outcome == Outcome::Ok).count();
    let turns = run.next_value.load(Ordering::Relaxed) / APPENDS;
    let steps = (0..(turns as u32 + 1) * KEYS)
        .map(|key| Step::Read { key, values: read(&run.store, &ReadView::now(), key).unwrap() })
        .collect();
    let end = run.began.elapsed().as_micros() as u64;
    history.push(Transaction { begin: end, end: end + 1, outcome: Outcome::Ok, steps });
    let anomalies = check(&history);
    assert!(
        anomalies.is_empty(),
        "HISTORY_SEED={seed}: {} anomalies in {} transactions: {}",
        anomalies.len(),
        history.len(),
        anomalies.iter().take(5).map(ToString::to_string).collect::<Vec<_>>().join("\n")
    );
    assert!(
        ok > history.len() / 4,
        "HISTORY_SEED={seed}: only {ok} of {} committed",
        history.len()
    );
    // Indexes and counts agree with the records.
    for name in COLLECTIONS {
        let (db, collection) = name.split_once('.').unwrap();
        let reply = fixture.ok(db, &format!("{{validate: '{collection}', full: true}}"));
        let valid = reply.as_doc().get("valid");
        assert_eq!(valid, Some(RawValue::Bool(true)), "HISTORY_SEED={seed}: {name}");
    }
}

#[test]
fn concurrent_transactions_over_memory() {
    no_anomalies(memory(), 1_500, None);
}

#[test]
fn concurrent_transactions_over_rocksdb() {
    no_anomalies(rocksdb(), 1_500, None);
}

#[test]
fn concurrent_transactions_over_postgres() {
    no_anomalies(postgres(), 600, None);
}

#[test]
fn concurrent_transactions_under_chaos() {
    no_anomalies(memory_under_chaos(rand::random()), 600, None);
}

#[test]
fn concurrent_transactions_with_commits_in_doubt() {
    let options = ChaosOptions {
        seed: rand::random(),
        unknown_commit_probability: 0.02,
        short_pages: true,
        ..ChaosOptions::default()
    };
    let chaos = Arc::new(ChaosEngine::new(Arc::new(MemoryEngine::new()), ChaosOptions::default()));
    let engine: Arc<dyn Engine> = Arc::new(Reopenable(chaos.clone()));
    no_anomalies(Box::new(move || engine.clone()), 600, Some((chaos, options)));
}

#[test]
fn a_file_is_checked() {
    let folder = tempfile::tempdir().unwrap();
    let status = |text: &str| {
        let file = folder.path().join("history");
        std::fs::write(&file, text).unwrap();
        let program = env!("CARGO_BIN_EXE_check-history");
        let output = std::process::Command::new(program).arg(&file).output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    };
    assert_eq!(
        status("1 2 ok a:1=1\n3 4 ok r:1=1\n"),
        (Some(0), "2 transactions, 0 anomalies\n".into())
    );
    let (code, text) = status("1 2 ok a:1=1\n3 4 ok r:1=\n");
    assert_eq!(code, Some(1));
    assert!(text.contains("lost write"), "{text}");
    assert_eq!(status("1 2 perhaps").0, Some(2));
}
