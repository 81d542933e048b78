//! What becomes of reads and commits when a connection is cut, the server crashes, or nothing
//! answers: an acknowledged commit is never lost, and a failed one is never applied.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use mayfly_base::testing::wait_until;
use mayfly_base::{ErrorCode, SystemClock};
use mayfly_kv::{
    Direction, Engine, Guard, InsertCheck, KeyRange, Keyspace, KvError, KvResult, ScanLimit,
    TxnOptions,
};
use mayfly_kv_postgres::{PostgresEngine, PostgresOptions};
use mayfly_work::OpCtx;
use mayfly_work::current::{self, Current};

use crate::proxy::{Cut, Part, Proxy};
use crate::store::{self, Server};

const RECORD: Keyspace = Keyspace::Record;
const INDEX: Keyspace = Keyspace::Index;

fn get(engine: &dyn Engine, key: &[u8]) -> KvResult<Option<Vec<u8>>> {
    let mut found = None;
    engine.get_once(RECORD, key, &mut |value| found = Some(value.to_vec()))?;
    Ok(found)
}

fn put(engine: &dyn Engine, key: &[u8], value: &[u8]) -> KvResult<()> {
    let mut txn = engine.begin(TxnOptions::default())?;
    txn.put(RECORD, key, value, Guard::Checked)?;
    txn.commit()
}

/// What a test does while a cut is armed. It writes the given value to all keys or to none.
type Operation = fn(&dyn Engine, &[u8]) -> KvResult<()>;

fn read_in_transaction(engine: &dyn Engine, _: &[u8]) -> KvResult<()> {
    let txn = engine.begin(TxnOptions::default())?;
    for _ in 0..2 {
        let mut found = None;
        txn.get(RECORD, b"fixed", &mut |value| found = Some(value.to_vec()))?;
        assert_eq!(found.as_deref(), Some(&b"value"[..]));
    }
    Ok(())
}

fn read_once(engine: &dyn Engine, _: &[u8]) -> KvResult<()> {
    assert_eq!(get(engine, b"fixed")?.as_deref(), Some(&b"value"[..]));
    Ok(())
}

fn read_snapshot(engine: &dyn Engine, _: &[u8]) -> KvResult<()> {
    let txn = engine.begin(TxnOptions::READ_ONLY)?;
    assert!(txn.get(RECORD, b"fixed", &mut |_| ())?);
    assert!(engine.hold()?.begin()?.get(RECORD, b"fixed", &mut |_| ())?);
    Ok(())
}

fn write_blindly(engine: &dyn Engine, value: &[u8]) -> KvResult<()> {
    let mut txn = engine.begin(TxnOptions::default())?;
    for key in [b"a", b"b"] {
        txn.put(RECORD, key, value, Guard::Checked)?;
    }
    txn.put(INDEX, b"a", value, Guard::Derived)?;
    txn.delete(RECORD, b"absent", Guard::Checked)?;
    txn.commit()
}

fn read_and_write(engine: &dyn Engine, value: &[u8]) -> KvResult<()> {
    let mut txn = engine.begin(TxnOptions::default())?;
    assert!(txn.get_locked(RECORD, b"fixed", &mut |_| ())?);
    for key in [b"a", b"b"] {
        txn.put(RECORD, key, value, Guard::Checked)?;
    }
    txn.put(INDEX, b"a", value, Guard::Derived)?;
    txn.commit()
}

fn insert_taken(engine: &dyn Engine, value: &[u8]) -> KvResult<()> {
    let mut txn = engine.begin(TxnOptions::default())?;
    for key in [b"a", b"b"] {
        txn.put(RECORD, key, value, Guard::Checked)?;
    }
    txn.put(INDEX, b"a", value, Guard::Derived)?;
    let inserted = txn.insert(RECORD, b"fixed", value, InsertCheck::AtCommit, &mut |_| ())?;
    assert!(inserted, "only the commit can know");
    let committed = txn.commit();
    assert!(committed.is_err(), "the key is taken");
    committed
}

/// The values of the keys that operations write; asserts that they agree.
fn written(server: &Server, schema: &str) -> String {
    let of = |table: &str, key: &str| {
        server.sql(&format!(
            "select convert_from(value, 'UTF8') from {schema}.{table} where key = '{key}'"
        ))
    };
    let values = [of("record", "a"), of("record", "b"), of("\"index\"", "a")];
    assert!(values.iter().all(|value| *value == values[0]), "a part was applied: {values:?}");
    values[0].clone()
}

/// Cuts the connection around each message that an operation sends or receives.
fn cut_everywhere(name: &str, operation: Operation, writes: bool) {
    let server = store::shared();
    let proxy = Proxy::start(server.port);
    let options = PostgresOptions {
        connections: 4,
        held_snapshots: 2,
        deadline: Duration::from_secs(10),
        ..store::fresh()
    };
    let schema = options.schema.clone();
    let engine = PostgresEngine::open(&server.url_at(proxy.port), options).unwrap();
    put(&*engine, b"fixed", b"value").unwrap();
    write_blindly(&*engine, b"0").unwrap();
    let (mut round, mut cuts, mut failures) = (0_u32, 0, 0);
    for of_client in [true, false] {
        for part in [Part::Before, Part::Middle, Part::After] {
            for message in 0.. {
                round += 1;
                let value = round.to_string();
                // Later rounds begin with a connection that is idle, and prepared statements.
                let _ = operation(&*engine, value.as_bytes());
                let before = written(server, &schema);
                let value = format!("{value}'");
                let cut = Cut { of_client, message, part };
                proxy.arm(cut);
                let begun = Instant::now();
                let result = operation(&*engine, value.as_bytes());
                assert!(begun.elapsed() < Duration::from_secs(15), "{name} {cut:?}");
                let has_cut = proxy.disarm();
                let after = written(server, &schema);
                match &result {
                    Ok(()) if writes => assert_eq!(after, value, "{name} {cut:?}: lost"),
                    Err(KvError::CommitUnknown(text)) => panic!("{name} {cut:?}: {text}"),
                    Err(_) => assert_eq!(after, before, "{name} {cut:?}: {result:?}"),
                    Ok(()) => {}
                }
                cuts += usize::from(has_cut);
                failures += usize::from(result.is_err());
                if !has_cut {
                    break;
                }
            }
        }
    }
    println!("{name}: {cuts} cuts, {failures} failures");
    assert!(cuts > 10, "{cuts}");
}

#[test]
fn reads_survive_cuts() {
    cut_everywhere("read in a transaction", read_in_transaction, false);
    cut_everywhere("read once", read_once, false);
    cut_everywhere("read of snapshots", read_snapshot, false);
}

#[test]
fn blind_commits_survive_cuts() {
    cut_everywhere("blind writes", write_blindly, true);
}

#[test]
fn commits_after_reads_survive_cuts() {
    cut_everywhere("read and write", read_and_write, true);
}

#[test]
fn inserts_of_taken_keys_survive_cuts() {
    cut_everywhere("insert of a taken key", insert_taken, true);
}

#[test]
fn a_stalled_network_ends_calls_at_their_deadline_and_no_commit_comes_late() {
    let server = store::shared();
    let proxy = Proxy::start(server.port);
    let deadline = Duration::from_secs(1);
    let options = PostgresOptions { deadline, ..store::fresh() };
    let schema = options.schema.clone();
    let engine = PostgresEngine::open(&server.url_at(proxy.port), options).unwrap();
    put(&*engine, b"fixed", b"value").unwrap();
    write_blindly(&*engine, b"0").unwrap();
    proxy.stall(true);
    let begun = Instant::now();
    assert!(matches!(get(&*engine, b"fixed"), Err(KvError::Unavailable(_))));
    assert!(begun.elapsed() < 3 * deadline, "{:?}", begun.elapsed());
    let begun = Instant::now();
    let result = write_blindly(&*engine, b"1");
    assert!(matches!(result, Err(KvError::CommitUnknown(_))), "{result:?}");
    assert!(begun.elapsed() < 4 * deadline, "{:?}", begun.elapsed());
    assert!(matches!(put(&*engine, b"x", b"1"), Err(KvError::Unavailable(_))));
    // Then the messages arrive after all: the commit is applied now or never.
    proxy.stall(false);
    wait_until("writes are accepted again", || put(&*engine, b"x", b"2").is_ok());
    let settled = written(server, &schema);
    thread::sleep(Duration::from_millis(300));
    assert_eq!(written(server, &schema), settled);
    write_blindly(&*engine, b"2").unwrap();
    assert_eq!(written(server, &schema), "2");
}

#[test]
fn calls_that_are_under_way_end_soon_after_the_store_begins_to_close() {
    let server = store::shared();
    let proxy = Proxy::start(server.port);
    let longest_close = Duration::from_millis(200);
    let options = PostgresOptions { longest_close, ..store::fresh() };
    let deadline = options.deadline;
    let engine = PostgresEngine::open(&server.url_at(proxy.port), options).unwrap();
    put(&*engine, b"fixed", b"value").unwrap();
    write_blindly(&*engine, b"0").unwrap();
    proxy.stall(true);
    let begun = Instant::now();
    thread::scope(|threads| {
        let read = threads.spawn(|| get(&*engine, b"fixed"));
        let write = threads.spawn(|| write_blindly(&*engine, b"1"));
        thread::sleep(Duration::from_millis(100));
        engine.begin_to_close();
        let read = read.join().unwrap();
        assert!(matches!(read, Err(KvError::Unavailable(_))), "{read:?}");
        let write = write.join().unwrap();
        assert!(matches!(write, Err(KvError::CommitUnknown(_))), "{write:?}");
    });
    assert!(begun.elapsed() < deadline / 3, "{:?}", begun.elapsed());
    engine.close().unwrap();
}

#[test]
fn a_crash_of_the_server_loses_no_acknowledged_commit() {
    let mut server = Server::start();
    let options = PostgresOptions { deadline: Duration::from_secs(20), ..store::fresh() };
    let engine = PostgresEngine::open(&server.url(), options).unwrap();
    let is_over = AtomicBool::new(false);
    let write = |writer: u8| {
        let mut outcomes = Vec::new();
        for n in 0..u32::MAX {
            if is_over.load(Ordering::SeqCst) {
                break;
            }
            let key = [&[writer][..], &n.to_be_bytes()].concat();
            outcomes.push((key.clone(), put(&*engine, &key, b"v")));
        }
        outcomes
    };
    let outcomes: Vec<_> = thread::scope(|scope| {
        let writers: Vec<_> = (0..4).map(|writer| scope.spawn(move || write(writer))).collect();
        for _ in 0..2 {
            thread::sleep(Duration::from_millis(400));
            server.crash();
            server.run();
        }
        thread::sleep(Duration::from_millis(400));
        is_over.store(true, Ordering::SeqCst);
        writers.into_iter().flat_map(|writer| writer.join().unwrap()).collect()
    });
    let (mut applied, mut failed) = (0, 0);
    for (key, result) in outcomes {
        let is_there = get(&*engine, &key).unwrap().is_some();
        match result {
            Ok(()) => assert!(is_there, "an acknowledged commit is lost"),
            Err(KvError::CommitUnknown(_)) => {}
            Err(error) => assert!(!is_there, "a failed commit was applied: {error}"),
        }
        applied += usize::from(is_there);
        failed += usize::from(!is_there);
    }
    println!("{applied} commits applied, {failed} failed");
    assert!(applied > 100);
}

/// Runs it as an operation of a client.
fn in_operation<T>(run: impl FnOnce() -> T) -> T {
    let op = OpCtx::detached(Arc::new(SystemClock::new()));
    let _entered = current::enter(Current { op: Some(op) });
    run()
}

#[test]
fn when_all_connections_are_in_use_a_call_fails_at_its_deadline() {
    let deadline = Duration::from_millis(300);
    let options = PostgresOptions { connections: 2, held_snapshots: 1, deadline, ..store::fresh() };
    let engine = PostgresEngine::open(&store::shared().url(), options).unwrap();
    put(&*engine, b"k", b"1").unwrap();
    let reader = || engine.begin(TxnOptions::READ_ONLY);
    let first = in_operation(|| {
        let first = reader().unwrap();
        // An operation that holds a connection does not wait for others.
        (0..3).for_each(|_| drop(reader().unwrap()));
        first
    });
    let readers = [first, in_operation(|| reader().unwrap())];
    let refused = in_operation(|| reader().err());
    assert!(matches!(&refused, Some(KvError::Busy(text)) if text.contains("in use")));
    let refused = in_operation(|| put(&*engine, b"k", b"2"));
    assert!(matches!(refused, Err(KvError::Busy(_))));
    assert_eq!(get(&*engine, b"k"), Ok(Some(b"1".to_vec())), "single reads have their own");
    drop(readers);
    put(&*engine, b"k", b"3").unwrap();
    // The oldest held snapshot makes room for a newer one, except for that of an export.
    let export = engine.hold_for_export().unwrap();
    let (first, reader) = (engine.hold().unwrap(), engine.hold().unwrap());
    assert_eq!(first.begin().err(), Some(KvError::TooOld));
    assert_eq!(export.begin().unwrap().get(RECORD, b"k", &mut |_| ()), Ok(true));
    assert_eq!(reader.begin().unwrap().get(RECORD, b"k", &mut |_| ()), Ok(true));
}

#[test]
fn a_killed_operation_does_not_wait_for_a_connection() {
    let deadline = Duration::from_secs(30);
    let options = PostgresOptions { connections: 2, deadline, ..store::fresh() };
    let engine = PostgresEngine::open(&store::shared().url(), options).unwrap();
    let reader = || in_operation(|| engine.begin(TxnOptions::READ_ONLY).unwrap());
    let _all = [reader(), reader()];
    let op = OpCtx::detached(Arc::new(SystemClock::new()));
    let begun = Instant::now();
    let refused = thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let _entered = current::enter(Current { op: Some(op.clone()) });
            engine.begin(TxnOptions::READ_ONLY).err()
        });
        thread::sleep(Duration::from_millis(50));
        op.kill(ErrorCode::Interrupted);
        waiting.join().unwrap()
    });
    assert_eq!(refused, Some(KvError::Timeout));
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
}

#[test]
fn a_cancelled_statement_and_an_ended_session() {
    let server = store::shared();
    let deadline = Duration::from_secs(3);
    let options = PostgresOptions { deadline, ..store::fresh() };
    let schema = options.schema.clone();
    let url = format!("{}&application_name=faulty", server.url());
    let engine = PostgresEngine::open(&url, options).unwrap();
    put(&*engine, b"fixed", b"value").unwrap();
    let all = "from pg_stat_activity where application_name = 'faulty'";
    for signal in ["pg_cancel_backend", "pg_terminate_backend"] {
        for round in 0..5 {
            assert_ne!(server.sql(&format!("select count({signal}(pid)) {all}")), "0");
            thread::sleep(Duration::from_millis(20));
            assert_eq!(get(&*engine, b"fixed"), Ok(Some(b"value".to_vec())), "{signal} {round}");
            put(&*engine, b"k", b"1").unwrap();
        }
    }
    // A statement that waits for a lock is cancelled, and one of a lost session is not repeated.
    for (signal, n) in [("pg_cancel_backend", b"1"), ("pg_terminate_backend", b"2")] {
        let blocker = thread::spawn({
            let schema = schema.clone();
            move || {
                store::shared()
                    .sql(&format!("begin; lock table {schema}.record; select pg_sleep(2); commit"))
            }
        });
        until_locked(server, &schema);
        let writer = thread::spawn({
            let engine = engine.clone();
            move || write_blindly(&*engine, n)
        });
        let waiting = format!("{all} and wait_event_type = 'Lock'");
        wait_until("the statement waits", || {
            server.sql(&format!("select count(*) {waiting}")) == "1"
        });
        assert_eq!(server.sql(&format!("select count({signal}(pid)) {waiting}")), "1");
        let result = writer.join().unwrap();
        blocker.join().unwrap();
        match signal {
            "pg_cancel_backend" => {
                assert_eq!(result, Err(KvError::Timeout));
                assert_eq!(written(server, &schema), "");
            }
            // It is sent again on another connection.
            _ => {
                assert_eq!(result, Ok(()));
                assert_eq!(written(server, &schema), "2");
            }
        }
    }
}

/// Waits until a transaction has locked the table of records.
fn until_locked(server: &Server, schema: &str) {
    let locks = format!(
        "select count(*) from pg_locks where relation = '{schema}.record'::regclass \
         and mode = 'AccessExclusiveLock' and granted"
    );
    wait_until("the table is locked", || server.sql(&locks) == "1");
}

#[test]
fn a_killed_operation_does_not_wait_for_its_read() {
    let (server, options) = (store::shared(), store::fresh());
    let schema = options.schema.clone();
    let engine = PostgresEngine::open(&server.url(), options).unwrap();
    put(&*engine, b"fixed", b"value").unwrap();
    let lock = format!("begin; lock table {schema}.record; select pg_sleep(4); commit");
    let locked = thread::spawn(move || store::shared().sql(&lock));
    until_locked(server, &schema);
    let op = OpCtx::detached(Arc::new(SystemClock::new()));
    op.set_max_time_ms(300);
    let begun = Instant::now();
    let entered = current::enter(Current { op: Some(op) });
    assert_eq!(get(&*engine, b"fixed"), Err(KvError::Timeout));
    let txn = engine.begin(TxnOptions::READ_ONLY).unwrap();
    assert_eq!(txn.get(RECORD, b"fixed", &mut |_| ()), Err(KvError::Timeout));
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    drop(entered);
    locked.join().unwrap();
    assert_eq!(get(&*engine, b"fixed"), Ok(Some(b"value".to_vec())));
}

#[test]
fn large_values_and_long_keys() {
    let engine = store::open();
    let caps = engine.caps();
    // Random bytes: compression does not make them fit.
    let mut state = 1_u64;
    let mut random = |bytes: usize| -> Vec<u8> {
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 40) as u8 & 0x7F
        };
        (0..bytes).map(|_| next()).collect()
    };
    for keyspace in Keyspace::ALL {
        let (key, value) = (random(caps.max_key_bytes), random(1000));
        let mut txn = engine.begin(TxnOptions::default()).unwrap();
        txn.put(keyspace, &key, &value, Guard::Checked).unwrap();
        txn.commit().unwrap();
        let mut found = Vec::new();
        engine.get_once(keyspace, &key, &mut |value| found = value.to_vec()).unwrap();
        assert!(found == value, "{keyspace:?}");
    }
    let large = random(16 << 20);
    let mut txn = engine.begin(TxnOptions::default()).unwrap();
    for key in 0..3_u8 {
        txn.put(RECORD, &[key], &large, Guard::Checked).unwrap();
    }
    txn.commit().unwrap();
    let txn = engine.begin(TxnOptions::default()).unwrap();
    let range = KeyRange { start: vec![0], end: vec![3] };
    let mut seen = 0;
    txn.scan(RECORD, &range, Direction::Backward, ScanLimit::ALL, &mut |_, value| {
        assert!(value == large);
        seen += 1;
        ControlFlow::Continue(())
    })
    .unwrap();
    txn.multi_get(RECORD, &[&[2], &[7], &[0], &[1]], &mut |_, value| {
        assert!(value == large);
        seen += 1;
        ControlFlow::Continue(())
    })
    .unwrap();
    assert_eq!(seen, 6);
    // Small, large and absent ones in turn.
    let mut txn = engine.begin(TxnOptions::default()).unwrap();
    let value =
        |n: u8| vec![n; if n.is_multiple_of(3) { 20_000 + 50_000 * usize::from(n) } else { 10 }];
    for n in 10..100_u8 {
        txn.put(RECORD, &[n], &value(n), Guard::Checked).unwrap();
    }
    txn.commit().unwrap();
    let mut txn = engine.begin(TxnOptions::default()).unwrap();
    txn.put(RECORD, &[0], b"own", Guard::Checked).unwrap();
    let ranges: Vec<KeyRange> =
        (0..5).map(|n| KeyRange { start: vec![10 + 20 * n], end: vec![25 + 20 * n] }).collect();
    let numbers: Vec<[u8; 1]> = (5..110).rev().map(|n| [n]).collect();
    let keys: Vec<&[u8]> = numbers.iter().map(|key| &key[..]).collect();
    for has_own in [true, false] {
        if !has_own {
            txn = engine.begin(TxnOptions::READ_ONLY).unwrap();
        }
        for direction in [Direction::Forward, Direction::Backward] {
            let (mut seen, whole) = (0, KeyRange { start: vec![10], end: vec![100] });
            txn.scan(RECORD, &whole, direction, ScanLimit::NONE, &mut |key, found| {
                assert!(found == value(key[0]), "{key:?}");
                seen += 1;
                ControlFlow::Continue(())
            })
            .unwrap();
            assert_eq!(seen, 90);
        }
        let mut seen = Vec::new();
        txn.scan_ranges(RECORD, &ranges, (Direction::Forward, 8), &mut |_, key, found| {
            assert!(found == value(key[0]), "{key:?}");
            seen.push(key[0]);
            ControlFlow::Continue(())
        })
        .unwrap();
        let expected: Vec<u8> = (10..100).filter(|n| (n - 10) % 20 < 15).collect();
        assert_eq!(seen, expected);
        let mut seen = 0;
        txn.multi_get(RECORD, &keys, &mut |at, found| {
            assert!(found == value(numbers[at][0]), "{at}");
            seen += 1;
            ControlFlow::Continue(())
        })
        .unwrap();
        assert_eq!(seen, 90);
    }
}
