//! Bulk loads over connections that are cut or stalled: all entries of a load that has finished
//! are there, and none appears after the range of a failed one was swept.

use std::ops::ControlFlow;
use std::thread;
use std::time::{Duration, Instant};

use mayfly_base::testing::wait_until;
use mayfly_kv::{
    Direction, Engine, Guard, KeyRange, Keyspace, KvError, KvResult, ScanLimit, SweepEnd,
    TxnOptions,
};
use mayfly_kv_postgres::{PostgresEngine, PostgresOptions};

use crate::proxy::{Cut, Part, Proxy};
use crate::store;

const RECORD: Keyspace = Keyspace::Record;
/// Large values, which fill a chunk, and small ones, which are the next chunk.
const LARGE: u8 = 10;
const SMALL: u8 = 2;

/// Loads the entries of an object, in two chunks.
fn load(engine: &dyn Engine, object: u32) -> KvResult<()> {
    let mut ingest = engine.begin_ingest(RECORD)?.expect("the engine has bulk loading");
    for n in 0..LARGE + SMALL {
        let bytes = if n < LARGE { 450_000 } else { 10 };
        ingest.add(&key(object, n), &vec![b'v'; bytes])?;
    }
    ingest.finish()
}

fn key(object: u32, n: u8) -> Vec<u8> {
    [&object.to_be_bytes()[..], &[n]].concat()
}

fn sweep(engine: &dyn Engine, object: u32) {
    let range = KeyRange::prefix(&object.to_be_bytes());
    wait_until("the range is swept", || {
        engine.sweep_range(RECORD, &range, 100) == Ok(SweepEnd::Done)
    });
}

fn count(engine: &dyn Engine, range: &KeyRange) -> usize {
    let (txn, mut seen) = (engine.begin(TxnOptions::READ_ONLY).unwrap(), 0);
    txn.scan(RECORD, range, Direction::Forward, ScanLimit::ALL, &mut |_, _| {
        seen += 1;
        ControlFlow::Continue(())
    })
    .unwrap();
    seen
}

#[test]
fn loads_survive_cuts() {
    let server = store::shared();
    let proxy = Proxy::start(server.port);
    let deadline = Duration::from_secs(10);
    let options = PostgresOptions { connections: 4, deadline, ..store::fresh() };
    let engine = PostgresEngine::open(&server.url_at(proxy.port), options).unwrap();
    let all = usize::from(LARGE + SMALL);
    // Later loads begin with a connection that is idle.
    load(&*engine, 0).unwrap();
    let (mut object, mut cuts, mut loaded) = (0_u32, 0, 0);
    for of_client in [true, false] {
        for part in [Part::Before, Part::Middle, Part::After] {
            let mut message = 0;
            loop {
                object += 1;
                proxy.arm(Cut { of_client, message, part });
                let result = load(&*engine, object);
                let has_cut = proxy.disarm();
                let found = count(&*engine, &KeyRange::prefix(&object.to_be_bytes()));
                match result {
                    Ok(()) => {
                        assert_eq!(found, all, "{of_client} {part:?} {message}");
                        loaded += 1;
                    }
                    Err(error) => {
                        println!("{of_client} {part:?} {message}: {error}");
                        sweep(&*engine, object);
                    }
                }
                cuts += usize::from(has_cut);
                if !has_cut {
                    break;
                }
                // Most of the later messages are data.
                message += if message < 6 { 1 } else { 3 };
            }
        }
    }
    println!("{cuts} cuts, {loaded} of {object} loads finished");
    assert!(cuts > 30, "{cuts}");
    assert_eq!(loaded, object as usize, "a chunk is sent again after one cut");
    let whole = KeyRange { start: Vec::new(), end: vec![0xFF; 8] };
    assert_eq!(count(&*engine, &whole), all * (loaded + 1), "a chunk came late, or is missing");
}

#[test]
fn a_load_does_not_replace_entries() {
    let engine = store::open();
    let mut txn = engine.begin(TxnOptions::default()).unwrap();
    txn.put(RECORD, &key(1, LARGE), b"before", Guard::Checked).unwrap();
    txn.commit().unwrap();
    assert!(matches!(load(&*engine, 1), Err(KvError::Invalid(_))));
    sweep(&*engine, 1);
    load(&*engine, 1).unwrap();
    let long = vec![1; engine.caps().max_key_bytes + 1];
    let mut ingest = engine.begin_ingest(RECORD).unwrap().unwrap();
    assert!(matches!(ingest.add(&long, b""), Err(KvError::TooLarge(_))));
}

#[test]
fn a_load_that_is_dropped_adds_nothing_after_the_sweep() {
    let (server, options) = (store::shared(), store::fresh());
    let schema = options.schema.clone();
    let engine = PostgresEngine::open(&server.url(), options).unwrap();
    load(&*engine, 1).unwrap();
    let locked = thread::spawn({
        let schema = schema.clone();
        move || {
            let lock = format!(
                "begin; lock table {schema}.record in share mode; select pg_sleep(0.7); commit"
            );
            store::shared().sql(&lock)
        }
    });
    let holds = format!(
        "select count(*) from pg_locks where mode = 'ShareLock' \
         and relation = '{schema}.record'::regclass"
    );
    wait_until("the table is locked", || server.sql(&holds) == "1");
    let mut ingest = engine.begin_ingest(RECORD).unwrap().unwrap();
    for n in 0..LARGE {
        ingest.add(&key(2, n), &vec![b'v'; 450_000]).unwrap();
    }
    // Its first chunk waits for the lock.
    drop(ingest);
    sweep(&*engine, 2);
    locked.join().unwrap();
    assert_eq!(count(&*engine, &KeyRange::prefix(&2_u32.to_be_bytes())), 0);
}

#[test]
fn a_chunk_whose_commit_is_late_is_settled_before_the_sweep() {
    let server = store::shared();
    let proxy = Proxy::start(server.port);
    let options = PostgresOptions { deadline: Duration::from_secs(1), ..store::fresh() };
    let engine = PostgresEngine::open(&server.url_at(proxy.port), options).unwrap();
    load(&*engine, 1).unwrap();
    let last = |message| Cut { of_client: true, message, part: Part::Hold };
    proxy.arm(last(1_000));
    load(&*engine, 2).unwrap();
    // The last message of a load is COMMIT.
    proxy.arm(last(proxy.messages(1_000) - 1));
    let result = load(&*engine, 3);
    assert!(matches!(result, Err(KvError::CommitUnknown(_))), "{result:?}");
    // The others go on.
    proxy.stall(false);
    sweep(&*engine, 3);
    proxy.release();
    thread::sleep(Duration::from_millis(300));
    assert_eq!(count(&*engine, &KeyRange::prefix(&3_u32.to_be_bytes())), 0);
}

#[test]
fn a_load_over_a_stalled_network_ends_at_the_deadline() {
    let server = store::shared();
    let proxy = Proxy::start(server.port);
    let deadline = Duration::from_secs(1);
    let options = PostgresOptions { deadline, ..store::fresh() };
    let engine = PostgresEngine::open(&server.url_at(proxy.port), options).unwrap();
    load(&*engine, 1).unwrap();
    proxy.stall(true);
    let begun = Instant::now();
    assert!(load(&*engine, 2).is_err());
    assert!(begun.elapsed() < 6 * deadline, "{:?}", begun.elapsed());
    proxy.stall(false);
    sweep(&*engine, 2);
    load(&*engine, 3).unwrap();
    let whole = KeyRange { start: Vec::new(), end: vec![0xFF; 8] };
    assert_eq!(count(&*engine, &whole), 2 * usize::from(LARGE + SMALL));
}
