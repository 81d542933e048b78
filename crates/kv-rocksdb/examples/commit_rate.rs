//! Measures the engine: commits of 1 KB puts, synced commits by eight threads, point gets.
//!
//! `cargo run --release -p mayfly-kv-rocksdb --example commit_rate`

use std::thread;
use std::time::{Duration, Instant};

use mayfly_kv::{Engine, Guard, Keyspace, KvResult, TxnOptions};
use mayfly_kv_rocksdb::{RocksEngine, RocksOptions};

const EACH: Duration = Duration::from_secs(2);

fn main() -> KvResult<()> {
    let folder = tempfile::tempdir().expect("a folder for the measurement");
    let start = Instant::now();
    let engine = RocksEngine::open(&folder.path().join("data"), RocksOptions::default())?;
    println!("open, empty: {:?}, {}", start.elapsed(), resident());

    let commits = rate(|n| insert(&*engine, 0, n, 0))?;
    println!("1 KB commits, one thread, no sync: {commits}/s");

    let documents = 1_000 * rate(|n| batch(&*engine, 9, n, 3))?;
    println!("450 B documents with 3 derived keys, 1000 a commit: {documents}/s");

    let plain = 1_000 * rate(|n| batch(&*engine, 10, n, 0))?;
    println!("450 B documents alone, 1000 a commit: {plain}/s");

    let synced: u64 = thread::scope(|scope| {
        let workers: Vec<_> = (1..=8)
            .map(|worker| {
                let engine = &*engine;
                scope.spawn(move || {
                    rate(|n| insert(engine, worker, n, 0).and_then(|()| engine.sync()))
                })
            })
            .collect();
        workers.into_iter().map(|worker| worker.join().expect("no panic").unwrap_or(0)).sum()
    });
    println!("1 KB commits, 8 threads, each synced: {synced}/s");

    // Only the first keys, so that they fit the cache.
    let known = (commits * EACH.as_secs()).clamp(1, 50_000);
    let gets = rate(|n| {
        let key = key(0, n.wrapping_mul(7_919) % known);
        engine.get_once(Keyspace::Record, &key, &mut |value| assert!(!value.is_empty())).map(drop)
    })?;
    println!("point gets, one thread: {gets}/s");
    let in_txn = rate(|n| {
        let key = key(0, n.wrapping_mul(7_919) % known);
        let txn = engine.begin(TxnOptions::READ_ONLY)?;
        txn.get(Keyspace::Record, &key, &mut |_| ()).map(drop)
    })?;
    println!("begin, get, drop, one thread: {in_txn}/s");
    println!("{:?}, {}", engine.stats(), resident());
    let start = Instant::now();
    engine.close()?;
    println!("close: {:?}", start.elapsed());
    Ok(())
}

/// Resident memory of this process, on Linux.
fn resident() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    status.lines().find(|line| line.starts_with("VmRSS")).unwrap_or_default().to_owned()
}

fn key(worker: u64, n: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&worker.to_be_bytes());
    key[8..].copy_from_slice(&n.to_be_bytes());
    key
}

fn insert(engine: &dyn Engine, worker: u64, n: u64, salt: u8) -> KvResult<()> {
    let mut txn = engine.begin(TxnOptions::default())?;
    let key = key(worker, n);
    txn.get(Keyspace::Record, &key, &mut |_| ())?;
    txn.put(Keyspace::Record, &key, &[salt; 1_024], Guard::Checked)?;
    txn.commit()
}

fn batch(engine: &dyn Engine, worker: u64, n: u64, indexes: u8) -> KvResult<()> {
    let mut txn = engine.begin(TxnOptions::default())?;
    for document in 0..1_000 {
        let key = key(worker, n * 1_000 + document);
        txn.get(Keyspace::Record, &key, &mut |_| ())?;
        txn.put(Keyspace::Record, &key, &[1; 450], Guard::Checked)?;
        for index in 0..indexes {
            let entry = [&[index][..], &key].concat();
            txn.put(Keyspace::Index, &entry, &[1; 8], Guard::Derived)?;
        }
    }
    txn.commit()
}

/// Executions of `work` per second.
fn rate(mut work: impl FnMut(u64) -> KvResult<()>) -> KvResult<u64> {
    let start = Instant::now();
    let mut done = 0;
    while start.elapsed() < EACH {
        work(done)?;
        done += 1;
    }
    Ok(done / EACH.as_secs())
}
