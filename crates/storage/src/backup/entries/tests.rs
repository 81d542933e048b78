//! Runs of entries between engines in memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use mayfly_base::ErrorCode;
use mayfly_kv::{
    Engine, EngineWrapper, Ingest, KvError, KvResult, MemoryEngine, SweepEnd, is_retired,
};
use mayfly_value::bson::spec::BinarySubtype;
use mayfly_value::bson::{Binary, DateTime, doc};

use super::*;
use crate::testing::{self, Fixture};
use crate::{PointContent, Store, StoreOptions};

/// An engine without bulk loading.
struct ByTransactions(MemoryEngine);

impl EngineWrapper for ByTransactions {
    fn inner(&self) -> &dyn Engine {
        &self.0
    }

    fn begin_ingest(&self, _: Keyspace) -> KvResult<Option<Box<dyn Ingest>>> {
        Ok(None)
    }
}

/// A store with 12 MB of documents, and with expired records that the log refers to.
fn filled() -> Fixture {
    let f = testing::fixture();
    let spec = doc! { "key": { "at": 1 }, "name": "at", "expireAfterSeconds": 0 };
    f.index("d.c", &spec).unwrap();
    for id in 0..12 {
        let bytes: Vec<u8> = (0..1 << 20).map(|at| (at as u8).wrapping_mul(id as u8)).collect();
        let large = Binary { subtype: BinarySubtype::Generic, bytes };
        f.insert("d.large", &doc! { "_id": id, "large": large }).unwrap();
    }
    for id in 0..100 {
        let at = DateTime::from_millis(testing::NOW + if id < 30 { -1000 } else { 3_600_000 });
        f.insert("d.c", &doc! { "_id": id, "at": at }).unwrap();
    }
    f.store.ensure_identity().unwrap();
    f.store.run_ttl_pass(&AtomicBool::new(false)).unwrap();
    assert_eq!(f.count("d.c"), 70);
    f
}

fn runs(engine: &dyn Engine) -> Vec<Vec<u8>> {
    let mut reader = EntriesReader::of_engine(engine).unwrap();
    let mut runs = Vec::new();
    while let Some((keyspace, run)) = reader.next_run().unwrap() {
        assert_eq!(run[0], keyspace as u8);
        runs.push(run);
    }
    runs
}

fn write(engine: Arc<dyn Engine>, runs: &[Vec<u8>]) -> u64 {
    let mut writer = EntriesWriter::begin(engine).unwrap();
    runs.iter().for_each(|run| writer.write_run(run).unwrap());
    writer.finish().unwrap()
}

#[test]
fn any_engine_takes_all_entries_of_another_one() {
    let f = filled();
    let all = runs(&*f.engine);
    let entries = |run: &Vec<u8>| {
        let (keyspace, entries) = open_run(run).unwrap();
        let entry = |entry: Result<(&[u8], &[u8]), _>| {
            let (key, value) = entry.unwrap();
            (keyspace, key.to_vec(), value.to_vec())
        };
        entries.map(entry).collect::<Vec<_>>()
    };
    let flat: Vec<_> = all.iter().flat_map(entries).collect();
    assert!(flat.iter().any(|(keyspace, _, value)| is_retired(*keyspace, value)));
    let targets: [Arc<dyn Engine>; 2] =
        [testing::memory(), Arc::new(ByTransactions(MemoryEngine::new()))];
    for target in targets {
        assert_eq!(write(target.clone(), &all), flat.len() as u64);
        assert_eq!(runs(&*target), all);
        let copy = testing::open(target, testing::clock());
        assert_eq!((copy.count("d.c"), copy.count("d.large")), (70, 12));
        let found = copy.store.check(&copy.op, &mut |_| ()).unwrap();
        assert!(found.faults.is_empty(), "{:?}", found.faults);
        // What expired was logged, and the log still has its document.
        assert_eq!(found.log_entries, f.store.check(&f.op, &mut |_| ()).unwrap().log_entries);
    }
}

#[test]
fn a_point_has_the_entries_of_its_time() {
    let f = filled();
    let point = f.store.backup_point(&f.op).unwrap();
    f.insert("d.c", &doc! { "_id": 1000 }).unwrap();
    let PointContent::Entries(snapshot) = &point.content else { panic!("there are no files") };
    let mut reader = EntriesReader::new(snapshot.clone());
    let target = testing::memory();
    let mut writer = EntriesWriter::begin(target.clone()).unwrap();
    while let Some((_, run)) = reader.next_run().unwrap() {
        writer.write_run(&run).unwrap();
    }
    writer.finish().unwrap();
    assert_eq!(testing::open(target, testing::clock()).count("d.c"), 70);
}

#[test]
fn later_snapshots_have_most_runs_in_common() {
    let f = testing::fixture();
    for part in 0..40 {
        for id in 0..500 {
            let text = format!("{part}.{id}").repeat(300);
            f.insert("d.c", &doc! { "_id": part * 500 + id, "text": text }).unwrap();
        }
    }
    let of_records = || -> Vec<Vec<u8>> {
        let records = |run: &Vec<u8>| run[0] == Keyspace::Record as u8;
        runs(&*f.engine).into_iter().filter(records).collect()
    };
    let before = of_records();
    assert!(before.len() >= 3 && before.iter().all(|run| run.len() < RUN_BYTES + 10_000));
    f.insert("a.first", &doc! { "_id": 1 }).unwrap();
    let after = of_records();
    let common = after.iter().filter(|run| before.contains(run)).count();
    assert!(common + 2 >= before.len(), "{common} of {}", before.len());
}

#[test]
fn an_unfinished_restore_is_no_store_and_begins_again() {
    let f = filled();
    let (all, target) = (runs(&*f.engine), testing::memory());
    let open = |engine: Arc<dyn Engine>| {
        let clock = testing::clock();
        let ops = mayfly_work::OpRegistry::new(clock.clone());
        let options = StoreOptions { background: false, ..StoreOptions::default() };
        Store::open(engine, options, clock, ops).map(|_| ()).map_err(|error| error.code())
    };
    for written in 0..all.len() {
        let mut writer = EntriesWriter::begin(target.clone()).unwrap();
        all[..written].iter().for_each(|run| writer.write_run(run).unwrap());
        drop(writer);
        assert_eq!(open(target.clone()), Err(ErrorCode::NotYetInitialized));
    }
    write(target.clone(), &all);
    assert_eq!(runs(&*target), all);
    assert_eq!(open(target.clone()), Ok(()));
    // It is not overwritten.
    let refused = EntriesWriter::begin(target).map(|_| ()).unwrap_err();
    assert_eq!(refused.code(), ErrorCode::IllegalOperation);
}

/// An engine that ends after some calls of `sweep_range`.
struct Killed(Arc<dyn Engine>, AtomicUsize);

impl EngineWrapper for Killed {
    fn inner(&self) -> &dyn Engine {
        &*self.0
    }

    fn sweep_range(&self, keyspace: Keyspace, range: &KeyRange, _: usize) -> KvResult<SweepEnd> {
        match self.1.fetch_sub(1, Ordering::Relaxed) {
            0 => Err(KvError::Unavailable("on purpose".into())),
            _ => self.0.sweep_range(keyspace, range, 20),
        }
    }
}

#[test]
fn a_restore_that_is_interrupted_while_it_clears_the_engine_can_go_on() {
    let f = filled();
    let all = runs(&*f.engine);
    for calls in 0..30 {
        let target = testing::memory();
        let mut writer = EntriesWriter::begin(target.clone()).unwrap();
        all.iter().for_each(|run| writer.write_run(run).unwrap());
        drop(writer);
        let killed = EntriesWriter::begin(Arc::new(Killed(target.clone(), calls.into())));
        if killed.is_ok() {
            assert!(calls > 10);
            return;
        }
        EntriesWriter::check(&*target).unwrap();
        write(target.clone(), &all);
        assert_eq!(runs(&*target), all);
    }
    panic!("it took more calls");
}

#[test]
fn bytes_that_are_no_run_are_refused() {
    let run = [&[0_u8][..], &1_u32.to_le_bytes(), &2_u32.to_le_bytes(), b"key"].concat();
    let mut high = run.clone();
    high[1..9].fill(0xFF);
    let damaged = [vec![], vec![9], run[..5].to_vec(), run[..11].to_vec(), high, b"\0xxx".to_vec()];
    for bytes in damaged {
        let mut writer = EntriesWriter::begin(testing::memory()).unwrap();
        let refused = writer.write_run(&bytes).unwrap_err();
        assert_eq!(refused.code(), ErrorCode::DataCorruptionDetected, "{bytes:?}");
    }
    assert!(EntriesWriter::begin(testing::memory()).unwrap().write_run(&run).is_ok());
    let empty = EntriesWriter::begin(testing::memory()).unwrap().finish().unwrap_err();
    assert_eq!(empty.code(), ErrorCode::DataCorruptionDetected);
}
