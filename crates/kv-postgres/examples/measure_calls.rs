//! Round trips, times, and processor time of PostgreSQL for the calls of the engine, and for plain
//! SQL; and the size and cost of ways to store large values.
//!
//! `measure_calls postgresql://user@127.0.0.1:5432/database`: a server on this machine, without other
//! clients. It makes the schemas `measure` and `measure_plain`.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;
use std::{env, fs, thread};

use mayfly_kv::{
    Direction, Engine, Guard, InsertCheck, KeyRange, Keyspace, NamedKey, ScanLimit, TxnOptions,
};
use mayfly_kv_postgres::{PostgresEngine, PostgresOptions};

const RECORD: Keyspace = Keyspace::Record;
const INDEX: Keyspace = Keyspace::Index;
const ENTRIES: u32 = 100_000;

fn main() {
    let url = env::args().nth(1).expect("the URL of a server");
    let mut through = url::Url::parse(&url).expect("a URL");
    let server = (through.host_str().expect("a host").to_owned(), through.port().unwrap_or(5432));
    let trips = Arc::<AtomicU64>::default();
    let port = count_round_trips(server, trips.clone());
    through.set_host(Some("127.0.0.1")).expect("a host");
    through.set_port(Some(port)).expect("a port");
    through.set_query(Some("sslmode=disable"));
    let options = PostgresOptions { schema: "measure".into(), ..PostgresOptions::default() };
    let engine = PostgresEngine::open(through.as_str(), options).expect("the store opens");
    fill(&*engine);
    println!("{:40} {:>6} {:>9} {:>9}", "call", "trips", "us", "server us");
    let measure = |name: &str, times: u32, call: &mut dyn FnMut(u32)| {
        (0..20).for_each(&mut *call);
        trips.store(0, Ordering::SeqCst);
        let (cpu, begun) = (server_ticks(), Instant::now());
        (20..20 + times).for_each(&mut *call);
        let micros = begun.elapsed().as_micros() as f64 / f64::from(times);
        // A tick is 10 ms.
        let server = (server_ticks() - cpu) as f64 * 10_000.0 / f64::from(times);
        let trips = trips.load(Ordering::SeqCst) as f64 / f64::from(times);
        println!("{name:40} {trips:6.2} {micros:9.0} {server:9.0}");
    };
    of_engine(&*engine, &measure);
    drop(engine);
    let options = PostgresOptions { schema: "measure".into(), ..PostgresOptions::default() };
    let engine = PostgresEngine::open(&url, options).expect("the store opens");
    for threads in [1, 4, 16] {
        concurrent(&*engine, threads);
    }
    plain(through.as_str(), &measure);
    storage(through.as_str());
}

type Measure<'m> = dyn Fn(&str, u32, &mut dyn FnMut(u32)) + 'm;

fn key(n: u32) -> [u8; 12] {
    let mut key = [7; 12];
    // Another order than that of the inserts.
    key[8..].copy_from_slice(&(n.wrapping_mul(7919) % ENTRIES).to_be_bytes());
    key
}

/// About 400 bytes.
fn value(n: u32) -> Vec<u8> {
    format!("{n:08} {}", "a document of ordinary size ".repeat(14)).into_bytes()
}

fn fill(engine: &dyn Engine) {
    if engine.get_once(RECORD, &key(ENTRIES - 1), &mut |_| ()).expect("an answer") {
        return;
    }
    for first in (0..ENTRIES).step_by(1_000) {
        let mut txn = engine.begin(TxnOptions::default()).expect("begin");
        for n in first..first + 1_000 {
            txn.put(RECORD, &key(n), &value(n), Guard::Checked).expect("put");
            txn.put(INDEX, &key(n), &key(n)[8..], Guard::Derived).expect("put");
        }
        txn.commit().expect("commit");
    }
}

fn of_engine(engine: &dyn Engine, measure: &Measure<'_>) {
    let named = NamedKey { keyspace: RECORD, prefix: &[7; 8], part: 0..4 };
    measure("get_once", 5_000, &mut |n| {
        assert!(engine.get_once(RECORD, &key(n), &mut |_| ()).expect("get"));
    });
    measure("get_through_once", 5_000, &mut |n| {
        let mut seen = false;
        let see = &mut |_: &[u8], record: Option<&[u8]>| seen = record.is_some();
        assert!(engine.get_through_once(INDEX, &key(n), &named, see).expect("get"));
        assert!(seen);
    });
    let reader = || engine.begin(TxnOptions::READ_ONLY).expect("begin");
    measure("read-only transaction: get", 5_000, &mut |n| {
        assert!(reader().get(RECORD, &key(n), &mut |_| ()).expect("get"));
    });
    measure("read-only transaction: multi_get 100", 1_000, &mut |n| {
        let keys: Vec<_> = (n * 100..n * 100 + 100).map(key).collect();
        let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
        let mut seen = 0;
        let see = &mut |_: usize, _: &[u8]| {
            seen += 1;
            ControlFlow::Continue(())
        };
        reader().multi_get(RECORD, &keys, see).expect("multi_get");
        assert_eq!(seen, 100);
    });
    measure("read-only transaction: scan of 100", 1_000, &mut |n| {
        let range = KeyRange { start: key(n % 1000).to_vec(), end: vec![8] };
        let mut seen = 0;
        let limit = ScanLimit::rows(100);
        reader()
            .scan(RECORD, &range, Direction::Forward, limit, &mut |_, _| {
                seen += 1;
                ControlFlow::Continue(())
            })
            .expect("scan");
        assert!(seen > 0);
    });
    measure("read-only transaction: count of 10000", 100, &mut |_| {
        let range = KeyRange { start: vec![7], end: vec![8] };
        let (counted, _) = reader().count(INDEX, &range, 10_000).expect("count");
        assert_eq!(counted, 10_000);
    });
    measure("update: get_locked, 2 puts, commit", 2_000, &mut |n| {
        let mut txn = engine.begin(TxnOptions::default()).expect("begin");
        assert!(txn.get_locked(RECORD, &key(n), &mut |_| ()).expect("get"));
        txn.put(RECORD, &key(n), &value(n), Guard::Derived).expect("put");
        txn.put(Keyspace::Oplog, &n.to_be_bytes(), &value(n), Guard::Derived).expect("put");
        txn.commit().expect("commit");
    });
    let fresh = AtomicU64::new(0);
    let inserts = |count: u64| {
        let mut txn = engine.begin(TxnOptions::default()).expect("begin");
        for _ in 0..count {
            let mut key = [9; 16];
            let nanos = Instant::now().elapsed().as_nanos() as u64;
            let number = fresh.fetch_add(1, Ordering::Relaxed) << 8 | nanos & 0xFF;
            key[8..].copy_from_slice(&(number | started() << 40).to_be_bytes());
            let check = InsertCheck::AtCommit;
            txn.insert(RECORD, &key, &value(1), check, &mut |_| ()).expect("insert");
            txn.put(INDEX, &key, b"1234", Guard::Derived).expect("put");
        }
        txn.commit().expect("commit");
    };
    measure("insert of 1 with an index entry, commit", 2_000, &mut |_| inserts(1));
    measure("insert of 100 with index entries, commit", 200, &mut |_| inserts(100));
}

/// Threads that insert, and as many that read, for two seconds, without the proxy.
fn concurrent(engine: &dyn Engine, threads: u64) {
    let (is_over, reads, writes) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    let read = |thread: u64| {
        for n in (thread as u32..).step_by(7) {
            if is_over.load(Ordering::SeqCst) {
                return;
            }
            let txn = engine.begin(TxnOptions::READ_ONLY).expect("begin");
            assert!(txn.get(RECORD, &key(n), &mut |_| ()).expect("get"));
            reads.fetch_add(1, Ordering::Relaxed);
        }
    };
    let write = |thread: u64| {
        for n in 0_u64.. {
            if is_over.load(Ordering::SeqCst) {
                return;
            }
            let mut txn = engine.begin(TxnOptions::default()).expect("begin");
            let number = started() << 40 | threads << 34 | thread << 28 | n;
            let key = [[10; 8], number.to_be_bytes()].concat();
            let check = InsertCheck::AtCommit;
            txn.insert(RECORD, &key, &value(1), check, &mut |_| ()).expect("insert");
            txn.put(INDEX, &key, b"1234", Guard::Derived).expect("put");
            txn.commit().expect("commit");
            writes.fetch_add(1, Ordering::Relaxed);
        }
    };
    thread::scope(|scope| {
        let (read, write) = (&read, &write);
        for n in 0..threads {
            scope.spawn(move || read(n));
            scope.spawn(move || write(n));
        }
        thread::sleep(std::time::Duration::from_secs(2));
        is_over.store(true, Ordering::SeqCst);
    });
    let each = |count: &AtomicU64| count.load(Ordering::Relaxed) / 2;
    let (reads, writes) = (each(&reads), each(&writes));
    println!("{threads:2} readers and {threads:2} writers: {reads} reads/s, {writes} commits/s");
}

/// Differs between runs, so that keys are new.
fn started() -> u64 {
    u64::from(std::process::id()) & 0xFF_FFFF
}

/// The same with statements that an application would write, each a transaction of its own.
fn plain(url: &str, measure: &Measure<'_>) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("a runtime");
    let (client, connection) =
        runtime.block_on(tokio_postgres::connect(url, tokio_postgres::NoTls)).expect("connects");
    runtime.spawn(connection);
    let prepare = |text: &str| runtime.block_on(client.prepare(text)).expect("prepares");
    let get = prepare("select value from measure.record where key = $1");
    measure("plain: select by key", 5_000, &mut |n| {
        let key = key(n);
        let rows = runtime.block_on(client.query(&get, &[&&key[..]])).expect("select");
        assert_eq!(rows.len(), 1);
    });
    let many = prepare("select key, value from measure.record where key = any($1)");
    measure("plain: select of 100 keys (= any)", 1_000, &mut |n| {
        let keys: Vec<_> = (n * 100..n * 100 + 100).map(key).collect();
        let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
        let rows = runtime.block_on(client.query(&many, &[&keys])).expect("select");
        assert_eq!(rows.len(), 100);
    });
    let page =
        prepare("select key, value from measure.record where key >= $1 order by key limit 100");
    measure("plain: page of 100", 1_000, &mut |n| {
        let key = key(n % 1000);
        runtime.block_on(client.query(&page, &[&&key[..]])).expect("select");
    });
    runtime
        .block_on(client.batch_execute(
            "drop schema if exists measure_plain cascade; create schema measure_plain; \
             create table measure_plain.t (key bytea primary key, value bytea not null)",
        ))
        .expect("makes a table");
    let insert = prepare("insert into measure_plain.t values ($1, $2)");
    measure("plain: insert of 1", 2_000, &mut |n| {
        let (key, value) = (key(n), value(n));
        runtime.block_on(client.execute(&insert, &[&&key[..], &value])).expect("insert");
    });
}

/// The size of 5,000 documents of 4 kB, and the time to write and to read them, by the way in
/// which PostgreSQL stores large values.
fn storage(url: &str) {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let (client, connection) =
            tokio_postgres::connect(url, tokio_postgres::NoTls).await.expect("connects");
        tokio::spawn(connection);
        println!(
            "{:40} {:>9} {:>9} {:>9}",
            "storage of 5,000 values of 4 kB", "MiB", "write ms", "read ms"
        );
        for (name, change) in [
            ("external (not compressed)", "alter value set storage external"),
            ("pglz", "alter value set compression pglz"),
            ("lz4", "alter value set compression lz4"),
        ] {
            let table = format!(
                "drop table if exists measure_plain.s; create table measure_plain.s \
                 (key int primary key, value bytea not null); \
                 alter table measure_plain.s {change}"
            );
            client.batch_execute(&table).await.expect("makes a table");
            let begun = Instant::now();
            for n in 0..50 {
                let fields =
                    (0..100).map(|f| format!("\"field{f}\":\"{:08x}{f}\",\"n\":{n}", n * f * 7919));
                let value = fields.collect::<Vec<_>>().join(",").into_bytes();
                let insert =
                    "insert into measure_plain.s select $1 + i, $2 from generate_series(0, 99) i";
                client
                    .execute(insert, &[&(n * 100), &&value[..4000.min(value.len())]])
                    .await
                    .expect("insert");
            }
            let written = begun.elapsed().as_millis();
            let begun = Instant::now();
            for _ in 0..3 {
                let rows = client.query("select value from measure_plain.s", &[]).await;
                assert_eq!(rows.expect("select").len(), 5_000);
            }
            let read = begun.elapsed().as_millis() / 3;
            let size = "select pg_total_relation_size('measure_plain.s')";
            let size: i64 = client.query_one(size, &[]).await.expect("a size").get(0);
            let mib = size as f64 / f64::from(1 << 20);
            println!("{name:40} {mib:9.1} {written:9} {read:9}");
        }
    });
}

/// Processor time of the server's processes on this machine, in ticks.
fn server_ticks() -> u64 {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let ticks = processes.filter_map(|process| {
        let stat = fs::read_to_string(process.path().join("stat")).ok()?;
        let (before, after) = stat.rsplit_once(')')?;
        let fields: Vec<&str> = after.split_whitespace().collect();
        before.contains("(postgres").then(|| {
            fields[11].parse::<u64>().unwrap_or(0) + fields[12].parse::<u64>().unwrap_or(0)
        })
    });
    ticks.sum()
}

/// A proxy that counts how often a client sends after the server has answered.
fn count_round_trips(server: (String, u16), trips: Arc<AtomicU64>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let server = TcpStream::connect((server.0.as_str(), server.1)).expect("the server");
            let has_answered = Arc::new(AtomicBool::new(true));
            for from_client in [true, false] {
                let (mut from, mut to) =
                    (client.try_clone().expect("a socket"), server.try_clone().expect("a socket"));
                from.set_nodelay(true).and(to.set_nodelay(true)).expect("a socket");
                if !from_client {
                    std::mem::swap(&mut from, &mut to);
                }
                let (has_answered, trips) = (has_answered.clone(), trips.clone());
                thread::spawn(move || {
                    let mut bytes = [0; 1 << 16];
                    while let Ok(read @ 1..) = from.read(&mut bytes) {
                        let answered = has_answered.swap(!from_client, Ordering::SeqCst);
                        if from_client && answered {
                            trips.fetch_add(1, Ordering::SeqCst);
                        }
                        if to.write_all(&bytes[..read]).is_err() {
                            break;
                        }
                    }
                    let _ = to.shutdown(Shutdown::Both);
                });
            }
        }
    });
    port
}
