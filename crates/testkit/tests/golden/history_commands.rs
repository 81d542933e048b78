//! Histories of concurrent clients that run commands with sessions
//! ([`mayfly_testkit::history::client`]), during index builds, kills of operations and sessions,
//! and a clock that makes transactions too old. `HISTORY_SEED=n` selects the random numbers,
//! `HISTORY_SECS=n` sets the duration.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use mayfly_kv::{ChaosEngine, ChaosOptions, Engine, MemoryEngine};
use mayfly_testkit::history::client::{Client, Line, Lost, Run};
use mayfly_testkit::history::disturb::{IndexChanges, disturb};
use mayfly_testkit::history::{Outcome, Transaction, check};
use mayfly_testkit::{
    Fixture, OpenEngine, Reopenable, dialect, environment, memory, memory_under_chaos,
};
use mayfly_value::{DocBuf, RawDoc, RawValue};

use crate::scripts::{postgres, rocksdb};

const CLIENTS: u8 = 6;

/// A connection that runs commands in this process.
#[derive(Clone, Copy)]
struct Direct<'f>(&'f Fixture);

impl Line for Direct<'_> {
    fn ask(&mut self, db: &str, command: RawDoc<'_>) -> Result<DocBuf, Lost> {
        Ok(self.0.run_document(db, command))
    }
}

/// Advances the clock beyond the lifetime of open transactions from time to time.
fn age(fixture: &Fixture, run: &Run) {
    while !run.over.load(Ordering::Acquire) {
        std::thread::sleep(Duration::from_millis(40));
        fixture.clock.advance_ms(1_100);
        let now_micros = mayfly_base::Clock::monotonic_micros(&*fixture.clock);
        fixture.service.sessions.transactions.abort_expired(now_micros);
    }
}

/// Faults begin when the store is open and its collections exist. After a commit with an unknown
/// outcome the catalog is not specified, so that the catalog does not change while there are
/// faults.
fn no_anomalies(
    open: OpenEngine,
    transactions: usize,
    faults: Option<(Arc<ChaosEngine>, ChaosOptions)>,
) {
    let seed = environment::number("HISTORY_SEED").unwrap_or_else(rand::random);
    let seconds = environment::number("HISTORY_SECS");
    let fixture = Fixture::new(open);
    let (indexes, run) = match faults {
        None => (IndexChanges::Made, Run::default()),
        Some(_) => (IndexChanges::None, Run::over_few_collections()),
    };
    fixture.ok("admin", "{setParameter: 1, transactionLifetimeLimitSeconds: 1}");
    if let Some((engine, options)) = faults {
        for (db, collection) in run.namespaces() {
            fixture.ok(db, &format!("{{create: '{collection}'}}"));
        }
        engine.change(options);
    }
    let (run, fixture) = (&run, &fixture);
    let more = move |seen: usize| match seconds {
        Some(seconds) => run.elapsed().as_secs() < seconds,
        None => seen < transactions,
    };
    let mut history: Vec<Transaction> = std::thread::scope(|threads| {
        let client = |session| {
            let mut client = Client::new(run, Direct(fixture), session, seed);
            threads.spawn(move || {
                let mut seen = Vec::new();
                while more(seen.len()) {
                    seen.push(client.transaction());
                }
                seen
            })
        };
        let clients: Vec<_> = (1..=CLIENTS).map(client).collect();
        threads.spawn(move || disturb(run, &mut Direct(fixture), indexes, CLIENTS, seed));
        threads.spawn(|| age(fixture, run));
        let seen: Vec<_> = clients.into_iter().map(|client| client.join()).collect();
        run.over.store(true, Ordering::Release);
        seen.into_iter().flat_map(|seen| seen.unwrap()).collect()
    });
    let mut outcomes: BTreeMap<&str, usize> = BTreeMap::new();
    for transaction in &history {
        let name = match transaction.outcome {
            Outcome::Ok => "ok",
            Outcome::Fail => "fail",
            Outcome::Info => "info",
        };
        *outcomes.entry(name).or_default() += 1;
    }
    println!(
        "{outcomes:?} in {:?}, refused by code {:?}, asked again: {:?}",
        run.elapsed(),
        run.refusals(),
        run.repeats()
    );
    history.push(run.read_all(&mut Direct(fixture)).unwrap());
    let mut wrong = run.complaints();
    wrong.extend(check(&history).iter().map(ToString::to_string));
    // Indexes and counts agree with the records.
    for (db, collection) in run.namespaces() {
        let reply = fixture.run(db, &format!("{{validate: '{collection}', full: true}}"));
        if reply.as_doc().get("valid") == Some(RawValue::Bool(false)) {
            wrong.push(format!("{db}.{collection} is damaged"));
        }
    }
    if !wrong.is_empty() {
        let lines: Vec<_> = history.iter().map(ToString::to_string).collect();
        let file = tempfile::Builder::new().prefix("mayfly-history-").tempfile().unwrap();
        std::fs::write(file.path(), lines.join("\n")).unwrap();
        let (_, file) = file.keep().unwrap();
        let (count, file) = (wrong.len(), file.display());
        wrong.truncate(5);
        panic!("HISTORY_SEED={seed}: {count} things are wrong ({file}):\n{}", wrong.join("\n"));
    }
    assert!(outcomes["ok"] > history.len() / 4, "HISTORY_SEED={seed}: {outcomes:?}");
}

#[test]
fn commands_over_memory() {
    no_anomalies(memory(), 600, None);
}

#[test]
fn commands_over_rocksdb() {
    no_anomalies(rocksdb(), 600, None);
}

#[test]
fn commands_over_postgres() {
    no_anomalies(postgres(), 300, None);
}

#[test]
fn commands_under_chaos() {
    no_anomalies(memory_under_chaos(rand::random()), 300, None);
}

#[test]
fn commands_with_commits_in_doubt() {
    let options = ChaosOptions {
        seed: rand::random(),
        unknown_commit_probability: 0.02,
        short_pages: true,
        ..ChaosOptions::default()
    };
    let (open, engine) = calm();
    no_anomalies(open, 300, Some((engine, options)));
}

/// An engine without faults until they are enabled.
fn calm() -> (OpenEngine, Arc<ChaosEngine>) {
    let chaos = Arc::new(ChaosEngine::new(Arc::new(MemoryEngine::new()), ChaosOptions::default()));
    let engine: Arc<dyn Engine> = Arc::new(Reopenable(chaos.clone()));
    (Box::new(move || engine.clone()), chaos)
}

/// All commits have an unknown outcome, and half are applied: a client that repeats its write until
/// it gets a reply has written once.
#[test]
fn a_write_in_doubt_is_sent_again() {
    let (open, engine) = calm();
    let fixture = Fixture::new(open);
    fixture.ok("test", "{insert: 'c', documents: [{_id: 'n', n: 0}]}");
    let options = ChaosOptions { unknown_commit_probability: 1.0, ..ChaosOptions::default() };
    engine.change(options);
    let mut doubts = 0;
    for turn in 1..=20 {
        let write = match turn % 4 {
            0 => "update: 'c', updates: [{q: {_id: 'n'}, u: {$inc: {n: 1}}}]".to_owned(),
            1 => format!("insert: 'c', documents: [{{_id: {turn}}}]"),
            2 => "findAndModify: 'c', query: {_id: 'n'}, update: {$inc: {n: 1}}".to_owned(),
            _ => format!("delete: 'c', deletes: [{{q: {{_id: {}}}, limit: 1}}]", turn - 2),
        };
        let session = "lsid: {id: BinData(4, 'AAAAAAAAAAAAAAAAAAAABw==')}";
        let command = format!("{{{write}, {session}, txnNumber: NumberLong({turn})}}");
        loop {
            let reply = fixture.run("test", &command);
            if reply.as_doc().get("ok") == Some(RawValue::Double(1.0)) {
                let shown = dialect::show(reply.as_doc());
                assert!(shown.contains("retriedStmtId"), "{command}: {shown}");
                break;
            }
            let shown = dialect::show(reply.as_doc());
            assert!(shown.contains("RetryableWriteError") && shown.contains("code: 6"), "{shown}");
            doubts += 1;
            assert!(doubts < 1000, "{command}: {shown}");
        }
    }
    let found = fixture.ok("test", "{find: 'c'}");
    let shown = dialect::show(found.as_doc());
    assert!(shown.contains("[{_id: 'n', n: 10}]"), "{shown}");
}
