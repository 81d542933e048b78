//! Histories of concurrent clients that run commands with sessions ([`mayfly_testkit::history::client`]), beside index builds, kills of
//! operations and sessions, and a clock that makes transactions too old. `HISTORY_SEED=n` chooses the random numbers,
//! `HISTORY_SECS=n` makes it long.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use mayfly_kv::{ChaosEngine, ChaosOptions, Engine, MemoryEngine};
use mayfly_testkit::history::client::{Client, Line, Lost, Run, disturb};
use mayfly_testkit::history::{Outcome, Transaction, check};
use mayfly_testkit::{Fixture, KeptOpen, OpenEngine, memory, memory_under_chaos};
use mayfly_value::{DocBuf, RawDoc, RawValue};

use crate::scripts::rocksdb;

const CLIENTS: u8 = 6;

/// Commands in this process.
#[derive(Clone, Copy)]
struct Direct<'f>(&'f Fixture);

impl Line for Direct<'_> {
    fn ask(&mut self, db: &str, command: RawDoc<'_>) -> Result<DocBuf, Lost> {
        Ok(self.0.run_document(db, command))
    }
}

/// Lets the lifetime of open transactions pass now and then.
fn age(fixture: &Fixture, run: &Run) {
    while !run.over.load(Ordering::Acquire) {
        std::thread::sleep(Duration::from_millis(40));
        fixture.clock.advance_ms(1_100);
        let now_micros = mayfly_base::Clock::monotonic_micros(&*fixture.clock);
        fixture.service.sessions.transactions.abort_expired(now_micros);
    }
}

/// In doubt is what an engine leaves in doubt from its second opening on. Nobody says what of the catalog is there then, so that it
/// is made before, and nothing of it changes.
fn no_anomalies(open: OpenEngine, transactions: usize, in_doubt: bool) {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let seed = number("HISTORY_SEED").unwrap_or_else(rand::random);
    let seconds = number("HISTORY_SECS");
    let mut fixture = Fixture::new(open);
    let run = match in_doubt {
        false => Run::default(),
        true => Run::over_few_collections(),
    };
    if in_doubt {
        for (db, collection) in run.namespaces() {
            fixture.ok(db, &format!("{{create: '{collection}'}}"));
        }
        fixture.restart();
    }
    fixture.ok("admin", "{setParameter: 1, transactionLifetimeLimitSeconds: 1}");
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
        let indexes = !in_doubt;
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
        let file = std::env::temp_dir().join(format!("mayfly-history-{seed}"));
        let lines: Vec<_> = history.iter().map(ToString::to_string).collect();
        std::fs::write(&file, lines.join("\n")).unwrap();
        let (count, file) = (wrong.len(), file.display());
        wrong.truncate(5);
        panic!("HISTORY_SEED={seed}: {count} things are wrong ({file}):\n{}", wrong.join("\n"));
    }
    assert!(outcomes["ok"] > history.len() / 4, "HISTORY_SEED={seed}: {outcomes:?}");
}

#[test]
fn commands_over_memory() {
    no_anomalies(memory(), 600, false);
}

#[test]
fn commands_over_rocksdb() {
    no_anomalies(rocksdb(), 600, false);
}

#[test]
fn commands_under_chaos() {
    no_anomalies(memory_under_chaos(rand::random()), 300, false);
}

#[test]
fn commands_with_commits_in_doubt() {
    let options = ChaosOptions {
        seed: rand::random(),
        unknown_commit_probability: 0.02,
        short_pages: true,
        ..ChaosOptions::default()
    };
    let memory: Arc<dyn Engine> = Arc::new(KeptOpen(Arc::new(MemoryEngine::new())));
    let openings = AtomicUsize::new(0);
    let open = move || -> Arc<dyn Engine> {
        match openings.fetch_add(1, Ordering::Relaxed) {
            0 => memory.clone(),
            _ => Arc::new(ChaosEngine::new(memory.clone(), options)),
        }
    };
    no_anomalies(Box::new(open), 300, true);
}
