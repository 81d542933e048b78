//! Multi-document transactions that run concurrently, are killed, and lose their sessions while
//! they run.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use mayfly_base::ErrorCode;
use mayfly_base::testing::wait_until;
use mayfly_testkit::{Fixture, dialect, memory, memory_under_chaos};
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue};

use crate::scripts::rocksdb;

const ACCOUNTS: u64 = 8;
const EACH: i32 = 100;
const COMMIT: &str = "{commitTransaction: 1, writeConcern: {w: 1}";

fn number(document: RawDoc<'_>, name: &str) -> i32 {
    match document.get(name) {
        Some(RawValue::Int32(number)) => number,
        _ => 0,
    }
}

fn code(reply: &DocBuf) -> i32 {
    number(reply.as_doc(), "code")
}

fn batch(reply: &DocBuf) -> Vec<DocBuf> {
    let cursor = reply.as_doc().get("cursor").and_then(RawValue::as_document);
    let list = cursor.and_then(|cursor| cursor.get("firstBatch")).and_then(RawValue::as_array);
    let list = list.unwrap_or(RawDoc::EMPTY);
    list.iter().filter_map(|element| element.value().as_document().map(RawDoc::to_owned)).collect()
}

fn is_transient(reply: &DocBuf) -> bool {
    let labels = reply.as_doc().get("errorLabels").and_then(RawValue::as_array);
    let transient = RawValue::String("TransientTransactionError");
    labels.is_some_and(|labels| labels.iter().any(|label| label.value() == transient))
}

/// Completes a command and runs it as a statement of a session's transaction.
fn statement(
    fixture: &Fixture,
    (session, txn): (u8, u64),
    begins: bool,
    db: &str,
    command: &str,
) -> DocBuf {
    let mut body = DocBuilder::new();
    let command = dialect::document(&format!("{command}}}"), &fixture.env()).unwrap();
    body.append_all(command.as_doc()).start_document("lsid");
    body.append("id", RawValue::uuid(&[session; 16])).end();
    body.append("txnNumber", txn as i64).append("autocommit", false);
    if begins {
        body.append("startTransaction", true);
    }
    fixture.run_document(db, body.finish().as_doc())
}

/// Moves money between two accounts in one transaction. Returns false if it must be retried.
fn moved(fixture: &Fixture, at: (u8, u64), from: u64, to: u64, amount: i32) -> bool {
    let change = |account: u64, by: i32| {
        format!(
            "{{findAndModify: 'accounts', query: {{_id: {account}}}, update: {{$inc: {{n: {by}}}}}"
        )
    };
    let steps = [
        ("test", format!("{{find: 'accounts', filter: {{_id: {from}}}")),
        ("test", change(from, -amount)),
        ("test", change(to, amount)),
        ("test", format!("{{insert: 'log', documents: [{{by: {}, amount: {amount}}}]", at.0)),
        ("admin", COMMIT.to_owned()),
    ];
    for (step, (db, command)) in steps.iter().enumerate() {
        let reply = statement(fixture, at, step == 0, db, command);
        if code(&reply) != 0 {
            assert!(is_transient(&reply), "{}", dialect::show(reply.as_doc()));
            return false;
        }
    }
    true
}

/// The sum of all accounts at one time.
fn total(fixture: &Fixture, at: (u8, u64)) -> Option<i32> {
    let found = statement(fixture, at, true, "test", "{find: 'accounts', batchSize: 3");
    let again = statement(fixture, at, false, "test", "{find: 'accounts', batchSize: 100");
    for reply in [&found, &again] {
        if code(reply) != 0 {
            assert!(is_transient(reply), "{}", dialect::show(reply.as_doc()));
            return None;
        }
    }
    let all = batch(&again);
    assert_eq!(batch(&found), all[..3], "a transaction reads twice the same");
    Some(all.iter().map(|account| number(account.as_doc(), "n")).sum())
}

fn money_is_neither_made_nor_lost(fixture: &Fixture, rounds: u64) {
    for account in 0..ACCOUNTS {
        fixture.ok(
            "test",
            &format!("{{insert: 'accounts', documents: [{{_id: {account}, n: {EACH}}}]}}"),
        );
    }
    // Created before the transactions, whose first statements would all create it.
    fixture.ok("test", "{create: 'log'}");
    let done = AtomicBool::new(false);
    let committed = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (1..=4u8)
            .map(|worker| {
                let committed = &committed;
                scope.spawn(move || {
                    let mut txn = 0;
                    for round in 0..rounds {
                        let from = (round * 3 + u64::from(worker)) % ACCOUNTS;
                        let to = (from + 1 + round % (ACCOUNTS - 1)) % ACCOUNTS;
                        loop {
                            txn += 1;
                            if moved(fixture, (worker, txn), from, to, (round % 7) as i32) {
                                committed.fetch_add(1, Ordering::Relaxed);
                                break;
                            }
                        }
                    }
                })
            })
            .collect();
        let (done, reader) = (&done, 9u8);
        let reader = scope.spawn(move || {
            let mut looked = 0;
            for txn in 1.. {
                if let Some(total) = total(fixture, (reader, txn)) {
                    assert_eq!(total, ACCOUNTS as i32 * EACH);
                    looked += 1;
                }
                if done.load(Ordering::Relaxed) && looked > 0 {
                    break;
                }
            }
        });
        for worker in workers {
            worker.join().unwrap();
        }
        done.store(true, Ordering::Relaxed);
        reader.join().unwrap();
    });
    let log = fixture.ok("test", "{count: 'log'}");
    assert_eq!(number(log.as_doc(), "n") as u64, committed.load(Ordering::Relaxed));
    for name in ["accounts", "log"] {
        let report = fixture.ok("test", &format!("{{validate: '{name}', full: true}}"));
        assert_eq!(report.as_doc().get("valid"), Some(RawValue::Bool(true)));
    }
    fixture.service.sessions.transactions.abort(ErrorCode::Interrupted, |_| true);
    let counts = fixture.service.sessions.transactions.counts();
    assert_eq!((counts.active, counts.inactive), (0, 0));
}

#[test]
fn money_is_neither_made_nor_lost_in_memory() {
    money_is_neither_made_nor_lost(&Fixture::new(memory()), 60);
}

#[test]
fn money_is_neither_made_nor_lost_under_chaos() {
    money_is_neither_made_nor_lost(&Fixture::new(memory_under_chaos(5)), 30);
}

#[test]
fn money_is_neither_made_nor_lost_on_rocksdb() {
    money_is_neither_made_nor_lost(&Fixture::new(rocksdb()), 30);
}

/// Runs a statement that takes long, disturbs it from another thread, and returns its reply.
fn disturbed(fixture: &Fixture, disturb: impl Fn(i32) + Sync) -> DocBuf {
    let long = "{aggregate: 'c', pipeline: [{$group: {_id: null, n: {$sum: {$size: {$range: [{$abs: '$_id'}, 100000]}}}}}], \
                cursor: {}";
    std::thread::scope(|scope| {
        let running = scope.spawn(|| statement(fixture, (1, 7), false, "test", long));
        let found = loop {
            let ops = fixture.service.ops.list();
            if let Some(op) =
                ops.iter().find(|op| op.info().op == "command" && !op.info().lsid.is_empty())
            {
                break op.id();
            }
            assert!(!running.is_finished(), "the statement was over before anybody saw it");
        };
        std::thread::sleep(Duration::from_millis(20));
        disturb(found);
        running.join().unwrap()
    })
}

fn with_an_open_transaction() -> Fixture {
    let fixture = Fixture::in_memory();
    for chunk in 0..20 {
        let ids = (0..200).map(|id| format!("{{_id: {}}}", chunk * 200 + id)).collect::<Vec<_>>();
        fixture.ok("test", &format!("{{insert: 'c', documents: [{}]}}", ids.join(", ")));
    }
    let begun = statement(&fixture, (1, 7), true, "test", "{insert: 'c', documents: [{_id: -1}]");
    assert_eq!(code(&begun), 0);
    fixture
}

fn is_gone(fixture: &Fixture) {
    let commit = statement(fixture, (1, 7), false, "admin", COMMIT);
    assert_eq!(code(&commit), 251, "{}", dialect::show(commit.as_doc()));
    let found = fixture.ok("test", "{find: 'c', filter: {_id: -1}}");
    assert!(batch(&found).is_empty());
}

#[test]
fn a_killed_statement_ends_its_transaction() {
    let fixture = with_an_open_transaction();
    let reply = disturbed(&fixture, |op| {
        fixture.ok("admin", &format!("{{killOp: 1, op: {op}}}"));
    });
    assert_eq!(code(&reply), 11601, "{}", dialect::show(reply.as_doc()));
    is_gone(&fixture);
}

#[test]
fn the_end_of_time_and_a_kill_of_the_session_end_a_running_statement() {
    let fixture = with_an_open_transaction();
    let reply = disturbed(&fixture, |_| {
        fixture.clock.advance_ms(61_000);
        let now = mayfly_base::Clock::monotonic_micros(&*fixture.clock);
        fixture.service.sessions.transactions.abort_expired(now);
    });
    assert_eq!(code(&reply), 290, "{}", dialect::show(reply.as_doc()));
    is_gone(&fixture);
    let fixture = with_an_open_transaction();
    let reply = disturbed(&fixture, |_| {
        fixture.ok("admin", "{killAllSessions: []}");
    });
    assert_eq!(code(&reply), 11601, "{}", dialect::show(reply.as_doc()));
    is_gone(&fixture);
}

/// A retryable write is sent again after its session was ended while it ran: it is executed once.
#[test]
fn a_session_that_ends_while_it_writes_forgets_nothing() {
    let fixture = Fixture::in_memory();
    let mut command = DocBuilder::new();
    command.append("update", "c").start_array("updates");
    for id in 0..4000 {
        command.push_document().start_document("q").append("_id", id).end();
        command.start_document("u").start_document("$inc").append("n", 1).end().end();
        command.append("upsert", true).end();
    }
    command.end().start_document("lsid");
    command.append("id", RawValue::uuid(&[3; 16])).end();
    command.append("txnNumber", 1_i64);
    let command = command.finish();
    std::thread::scope(|scope| {
        let first = scope.spawn(|| fixture.run_document("test", command.as_doc()));
        wait_until("the first upsert", || {
            number(fixture.ok("test", "{count: 'c'}").as_doc(), "n") > 0
        });
        fixture.ok("admin", "{endSessions: [{id: BinData(4, 'AwMDAwMDAwMDAwMDAwMDAw==')}]}");
        let second = fixture.run_document("test", command.as_doc());
        let first = first.join().unwrap();
        for reply in [&first, &second] {
            assert!(
                reply.as_doc().get("writeErrors").is_none(),
                "{}",
                dialect::show(reply.as_doc())
            );
        }
    });
    let twice = fixture.ok("test", "{count: 'c', query: {n: {$ne: 1}}}");
    assert_eq!(number(twice.as_doc(), "n"), 0);
}
