//! The conformance suite on RocksDB, and tests of an engine with files.

use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use mayfly_kv::{
    ChaosEngine, ChaosOptions, Direction, Engine, Guard, KeyRange, Keyspace, KvError, ScanLimit,
    SweepEnd, TxnOptions, conformance,
};
use mayfly_kv_rocksdb::{
    FORMAT_FILE, OlderFormat, OpenError, RocksEngine, RocksOptions, SCRATCH_FOLDER,
    UNFINISHED_FORMAT_FILE,
};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tempfile::TempDir;

const RECORD: Keyspace = Keyspace::Record;

fn open(folder: &Path) -> Result<Arc<RocksEngine>, OpenError> {
    RocksEngine::open(folder, RocksOptions::default())
}

fn put(engine: &dyn Engine, key: &[u8], value: &[u8]) {
    let mut txn = engine.begin(TxnOptions::default()).unwrap();
    txn.put(RECORD, key, value, Guard::Checked).unwrap();
    txn.commit().unwrap();
}

fn has(engine: &dyn Engine, key: &[u8]) -> bool {
    engine.get_once(RECORD, key, &mut |_| ()).unwrap()
}

fn copy_folder(from: &Path) -> TempDir {
    let to = TempDir::new().unwrap();
    for file in fs::read_dir(from).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), to.path().join(file.file_name())).unwrap();
    }
    to
}

fn log_file(folder: &Path) -> PathBuf {
    let logs = fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    logs.filter(|path| path.extension().is_some_and(|e| e == "log")).max().expect("a log")
}

#[test]
fn rocksdb_conforms() {
    let base = TempDir::new().unwrap();
    let count = std::cell::Cell::new(0);
    conformance::run(&|| {
        count.set(count.get() + 1);
        open(&base.path().join(count.get().to_string())).unwrap()
    });
}

#[test]
fn retries_survive_chaos() {
    let folder = TempDir::new().unwrap();
    let options = ChaosOptions {
        seed: 1,
        conflict_probability: 0.1,
        unknown_commit_probability: 0.1,
        short_pages: true,
        ..ChaosOptions::default()
    };
    conformance::transfers(&ChaosEngine::new(open(folder.path()).unwrap(), options));
}

#[test]
fn reopening_keeps_data_with_and_without_a_clean_close() {
    let folder = TempDir::new().unwrap();
    for round in 0..4_u8 {
        let start = Instant::now();
        let engine = open(folder.path()).unwrap();
        println!("opened in {:?}", start.elapsed());
        assert!((0..round).all(|earlier| has(&*engine, &[earlier])), "round {round}");
        put(&*engine, &[round], &[7; 1_000]);
        if round % 2 == 0 {
            engine.close().unwrap();
        }
    }
}

#[test]
fn a_transaction_keeps_a_closed_store_open() {
    let folder = TempDir::new().unwrap();
    let engine = open(folder.path()).unwrap();
    put(&*engine, b"k", b"1");
    let txn = engine.begin(TxnOptions::READ_ONLY).unwrap();
    engine.close().unwrap();
    assert_eq!(txn.get(RECORD, b"k", &mut |_| ()), Ok(true));
    assert!(open(folder.path()).is_err());
    drop(txn);
    open(folder.path()).unwrap();
}

#[test]
fn a_folder_in_use_or_of_another_format_is_refused() {
    let folder = TempDir::new().unwrap();
    let engine = open(folder.path()).unwrap();
    assert_eq!(open(folder.path()).err(), Some(OpenError::InUse));
    drop(engine);
    assert_eq!(fs::read_to_string(folder.path().join(FORMAT_FILE)).unwrap(), "5\n");
    for (mark, refused) in [
        ("6\n", Some(OpenError::NewerFormat(6))),
        ("1\n", Some(OpenError::OlderFormat(1))),
        ("2\n", Some(OpenError::OlderFormat(2))),
        ("5\n", None),
    ] {
        fs::write(folder.path().join(FORMAT_FILE), mark).unwrap();
        assert_eq!(open(folder.path()).err(), refused, "{mark}");
    }
    fs::write(folder.path().join(FORMAT_FILE), "0\n").unwrap();
    assert!(matches!(open(folder.path()).err(), Some(OpenError::Damaged(_))));
}

#[test]
fn a_folder_of_one_of_the_two_formats_before_is_converted() {
    let folder = TempDir::new().unwrap();
    put(&*open(folder.path()).unwrap(), b"k", b"v");
    let mark = folder.path().join(FORMAT_FILE);
    for before in ["3\n", "4\n"] {
        fs::write(&mark, before).unwrap();
        assert!(matches!(open(folder.path()).err(), Some(OpenError::NotUpgraded(_))));
        let options =
            RocksOptions { older_format: OlderFormat::Replace, ..RocksOptions::default() };
        assert!(has(&*RocksEngine::open(folder.path(), options).unwrap(), b"k"));
        assert_eq!(fs::read_to_string(&mark).unwrap(), "5\n");
    }
}

#[test]
fn a_database_of_another_program_is_refused_and_an_unfinished_store_is_not() {
    let folder = TempDir::new().unwrap();
    drop(open(folder.path()).unwrap());
    // The state after a crash before the new store is marked.
    let (mark, claim) =
        (folder.path().join(FORMAT_FILE), folder.path().join(UNFINISHED_FORMAT_FILE));
    fs::rename(&mark, &claim).unwrap();
    drop(open(folder.path()).unwrap());
    assert!(mark.exists() && !claim.exists());
    fs::remove_file(&mark).unwrap();
    assert!(matches!(open(folder.path()).err(), Some(OpenError::Foreign(_))));
    assert!(!mark.exists() && !claim.exists());
}

#[test]
fn a_torn_tail_of_the_log_loses_only_the_tail() {
    const COMMITS: u8 = 50;
    let folder = TempDir::new().unwrap();
    let engine = open(folder.path()).unwrap();
    let mut lengths = Vec::new();
    for n in 0..COMMITS {
        put(&*engine, &[n], &[n; 500]);
        engine.sync().unwrap();
        lengths.push(fs::metadata(log_file(folder.path())).unwrap().len());
    }
    drop(engine);
    let log_len = fs::metadata(log_file(folder.path())).unwrap().len();
    for cut in [0, 1, 6, 7, 100, 499, 530, 5_000, 20_000] {
        let copy = copy_folder(folder.path());
        let log = fs::OpenOptions::new().write(true).open(log_file(copy.path())).unwrap();
        log.set_len(log_len - cut).unwrap();
        let whole = lengths.iter().filter(|length| **length <= log_len - cut).count();
        let engine = open(copy.path()).unwrap();
        let kept = (0..COMMITS).filter(|n| has(&*engine, &[*n])).count();
        assert_eq!(kept, whole, "commits before the cut of {cut} bytes, all and only");
        assert!((0..kept as u8).all(|n| has(&*engine, &[n])), "what is kept is the beginning");
        put(&*engine, b"later", b"1");
    }
}

/// Unsynced pages may survive a power cut in any order. The log ends where one is missing.
#[test]
fn a_hole_after_the_last_sync_ends_the_log() {
    const PAGE: usize = 4096;
    let folder = TempDir::new().unwrap();
    let engine = open(folder.path()).unwrap();
    let mut lengths = Vec::new();
    for n in 0..200_u8 {
        put(&*engine, &[n], &vec![1 + n % 127; 100 + usize::from(n) * 7]);
        lengths.push(fs::metadata(log_file(folder.path())).unwrap().len() as usize);
        if n == 49 {
            engine.sync().unwrap();
        }
    }
    drop(engine);
    let log = fs::read(log_file(folder.path())).unwrap();
    for hole in (0..log.len()).step_by(PAGE) {
        let copy = copy_folder(folder.path());
        let mut torn = log.clone();
        // The synced beginning of the page in which the sync ended survives.
        let from = hole.max(lengths[49]);
        torn[from.min(hole + PAGE).min(log.len())..(hole + PAGE).min(log.len())].fill(0);
        fs::write(log_file(copy.path()), &torn).unwrap();
        let engine = open(copy.path()).unwrap();
        let whole = match torn == log {
            true => lengths.len(),
            false => lengths.iter().filter(|length| **length <= from).count(),
        };
        let kept = (0..200).filter(|n| has(&*engine, &[*n])).count();
        assert_eq!(kept, whole, "with a hole at {hole}");
        assert!((0..kept as u8).all(|n| has(&*engine, &[n])), "what is kept is the beginning");
    }
    // A missing page before the last sync is damage, not the result of a power cut: the log
    // contains its mark.
    let copy = copy_folder(folder.path());
    let mut damaged = log;
    damaged[..PAGE].fill(0);
    fs::write(log_file(copy.path()), &damaged).unwrap();
    assert!(matches!(open(copy.path()).err(), Some(OpenError::Damaged(_))));
}

#[test]
fn damage_inside_the_log_is_an_error_that_names_the_file() {
    let folder = TempDir::new().unwrap();
    let engine = open(folder.path()).unwrap();
    for n in 0..50_u8 {
        put(&*engine, &[n], &[n; 500]);
    }
    engine.sync().unwrap();
    drop(engine);
    let log = log_file(folder.path());
    let mut bytes = fs::read(&log).unwrap();
    bytes[12_000] ^= 0xFF;
    fs::write(&log, bytes).unwrap();
    let Some(OpenError::Damaged(text)) = open(folder.path()).err() else {
        panic!("damage must be reported as such")
    };
    let name = log.file_name().unwrap().to_string_lossy();
    assert!(text.contains(&*name), "{text:?} should name {name}");
}

#[test]
fn a_checkpoint_opens_as_a_store() {
    let folder = TempDir::new().unwrap();
    let engine = open(folder.path()).unwrap();
    put(&*engine, b"before", b"1");
    let copy = folder.path().join("copy");
    engine.checkpoint(&copy).unwrap();
    put(&*engine, b"after", b"1");
    assert!(matches!(engine.checkpoint(&copy), Err(KvError::Invalid(_))));
    let copied = open(&copy).unwrap();
    assert!(has(&*copied, b"before"));
    assert!(!has(&*copied, b"after"));
}

#[test]
fn checkpoints_share_tables_that_have_numbers() {
    use std::os::unix::fs::MetadataExt;
    let folder = TempDir::new().unwrap();
    let engine = open(folder.path()).unwrap();
    put(&*engine, b"flushed", b"1");
    engine.flush().unwrap();
    put(&*engine, b"buffered", b"1");
    let copies = [folder.path().join("first"), folder.path().join("second")];
    let tables = copies.map(|copy| {
        let files = engine.checkpoint(&copy).unwrap();
        let inode = |name: &str| fs::metadata(copy.join(name)).unwrap().ino();
        let tables = files.iter().filter(|file| file.number.is_some());
        let tables: Vec<_> = tables.map(|file| (file.number, inode(&file.name))).collect();
        assert!(!tables.is_empty() && files.iter().any(|file| file.name == "CURRENT"));
        let copied = open(&copy).unwrap();
        assert!(has(&*copied, b"flushed") && has(&*copied, b"buffered"));
        tables
    });
    assert_eq!(tables[0], tables[1], "a checkpoint flushes nothing");
}

#[test]
fn a_long_range_is_swept_at_once_and_for_good() {
    let folder = TempDir::new().unwrap();
    let engine = open(folder.path()).unwrap();
    let mut txn = engine.begin(TxnOptions::default()).unwrap();
    for n in 0..20_000_u32 {
        let key = [&[(n % 2) as u8][..], &n.to_be_bytes()].concat();
        txn.put(RECORD, &key, &[9; 100], Guard::Checked).unwrap();
    }
    txn.put(RECORD, &[1], b"the end itself", Guard::Checked).unwrap();
    txn.commit().unwrap();
    engine.close().unwrap();
    drop(engine);
    let engine = open(folder.path()).unwrap();
    let (dropped, kept) = (KeyRange::prefix(&[0]), KeyRange::prefix(&[1]));
    assert!(engine.approximate_bytes(RECORD, &dropped).unwrap() > 0);
    assert!(engine.stats().disk_bytes > 0);
    assert_eq!(engine.sweep_range(RECORD, &dropped, 100), Ok(SweepEnd::Done));
    drop(engine);
    let engine = open(folder.path()).unwrap();
    let count = |range: &KeyRange| {
        let txn = engine.begin(TxnOptions::READ_ONLY).unwrap();
        let mut count = 0;
        let limit = ScanLimit::NONE;
        txn.scan(RECORD, range, Direction::Forward, limit, &mut |_, _| {
            count += 1;
            ControlFlow::Continue(())
        })
        .unwrap();
        count
    };
    assert_eq!(count(&dropped), 0);
    assert_eq!(count(&kept), 10_001);
}

#[test]
fn a_swept_range_leaves_nothing_in_the_memtable() {
    let folder = tempfile::tempdir().unwrap();
    let engine = open(folder.path()).unwrap();
    let bytes = || engine.stats().keyspaces.unwrap()[RECORD as usize].memtable_bytes;
    let empty = bytes();
    let mut txn = engine.begin(TxnOptions::default()).unwrap();
    for n in 0..2_000_u32 {
        txn.put(RECORD, &[&[0][..], &n.to_be_bytes()].concat(), &[9; 1_000], Guard::Checked)
            .unwrap();
    }
    txn.commit().unwrap();
    assert!(bytes() > 2_000_000);
    assert_eq!(engine.sweep_range(RECORD, &KeyRange::prefix(&[0]), 100_000), Ok(SweepEnd::Done));
    engine.reclaim_space().unwrap();
    // A flush in the background.
    for _ in 0..1_000 {
        if bytes() <= empty + 100_000 {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("{} bytes are in the memtables, {empty} in empty ones", bytes());
}

#[test]
fn files_of_an_abandoned_ingest_are_removed() {
    let folder = TempDir::new().unwrap();
    let scratch = folder.path().join(SCRATCH_FOLDER);
    let files = || fs::read_dir(&scratch).map_or(0, Iterator::count);
    let engine = open(folder.path()).unwrap();
    let begin = || engine.begin_ingest(Keyspace::Index).unwrap().unwrap();
    // Enough for several files.
    let fill = |ingest: &mut dyn mayfly_kv::Ingest| {
        let value = vec![7; 1 << 20];
        for n in 0..70_u8 {
            ingest.add(&[1, n], &value).unwrap();
        }
    };
    let mut given_up = begin();
    fill(&mut *given_up);
    assert_eq!(files(), 2);
    drop(given_up);
    assert_eq!(files(), 0);
    let mut moved = begin();
    fill(&mut *moved);
    moved.finish().unwrap();
    assert_eq!(files(), 0);
    // Without a sync, and without a clean close.
    let mut left = begin();
    fill(&mut *left);
    std::mem::forget(left);
    let copy = TempDir::new().unwrap();
    let held = copy_all(folder.path(), copy.path());
    assert!(held > 0);
    assert_eq!(fs::read_dir(copy.path().join(SCRATCH_FOLDER)).unwrap().count(), 2);
    let engine = open(copy.path()).unwrap();
    assert!(!copy.path().join(SCRATCH_FOLDER).exists());
    assert!(engine.get_once(Keyspace::Index, &[1, 69], &mut |_| ()).unwrap());
}

#[test]
fn temporary_files_leave_the_reserve_alone() {
    let folder = TempDir::new().unwrap();
    let engine = open(folder.path()).unwrap();
    assert!(engine.scratch(0).unwrap().is_some_and(|scratch| scratch.is_dir()));
    let refused = engine.scratch(u64::MAX);
    assert!(matches!(refused, Err(KvError::Unavailable(text)) if text.contains("disk is full")));
}

/// Records are read repeatedly while they are written, one by one and together, in old and new
/// snapshots: every reader sees the sum that every commit keeps, and every writer sees its own
/// writes.
/// The bytes of cached blocks.
fn cached(engine: &dyn Engine) -> u64 {
    engine.stats().caches.unwrap().block_bytes
}

#[test]
fn passing_scans_and_deleted_files_leave_nothing_in_the_cache() {
    let folder = TempDir::new().unwrap();
    let key = |number: u32| [b"k".as_slice(), &number.to_be_bytes()].concat();
    let engine = open(folder.path()).unwrap();
    let mut random = SmallRng::seed_from_u64(1);
    for block in 0..40 {
        let mut txn = engine.begin(TxnOptions::default()).unwrap();
        for number in block * 500..(block + 1) * 500 {
            let mut value = vec![0; 500];
            random.fill(&mut value[1..]);
            txn.put(RECORD, &key(number), &value, Guard::Checked).unwrap();
        }
        txn.commit().unwrap();
    }
    engine.close().unwrap();
    drop(engine);
    let engine = open(folder.path()).unwrap();
    let range = KeyRange::prefix(b"k");
    let scan = |limit: ScanLimit| {
        let txn = engine.begin(TxnOptions::READ_ONLY).unwrap();
        let see = &mut |_: &[u8], _: &[u8]| ControlFlow::Continue(());
        txn.scan(RECORD, &range, Direction::Forward, limit, see).unwrap();
    };
    let data = 10_000_000;
    scan(ScanLimit::ALL.passing());
    let passed = cached(&*engine);
    assert!(passed < data / 5, "{passed}");
    scan(ScanLimit::ALL);
    let kept = cached(&*engine);
    assert!(kept > data, "{kept}");
    // All files are replaced.
    let mut txn = engine.begin(TxnOptions::default()).unwrap();
    for number in (0..20_000).step_by(2) {
        txn.delete(RECORD, &key(number), Guard::Checked).unwrap();
    }
    txn.commit().unwrap();
    engine.compact_range(RECORD, &range).unwrap();
    let left = cached(&*engine);
    assert!(left < data / 2, "{left} of {kept}");
}

#[test]
fn cached_records_are_those_of_the_snapshot() {
    const RECORDS: u64 = 12;
    const EACH: i64 = 1000;
    let folder = TempDir::new().unwrap();
    let engine = open(folder.path()).unwrap();
    let key = |n: u64| [7_u64.to_be_bytes(), n.to_be_bytes()].concat();
    for n in 0..RECORDS {
        put(&*engine, &key(n), &EACH.to_be_bytes());
    }
    let keys: Vec<Vec<u8>> = (0..RECORDS).map(key).collect();
    let number = |value: &[u8]| i64::from_be_bytes(value.try_into().unwrap());
    let read = |txn: &dyn mayfly_kv::Txn| -> Vec<i64> {
        let asked: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        let mut found = Vec::new();
        txn.multi_get(RECORD, &asked, &mut |_, value| {
            found.push(number(value));
            ControlFlow::Continue(())
        })
        .unwrap();
        found
    };
    let stop = std::sync::atomic::AtomicBool::new(false);
    let going = || !stop.load(std::sync::atomic::Ordering::Relaxed);
    std::thread::scope(|scope| {
        for writer in 0..3_u64 {
            let (engine, keys) = (&engine, &keys);
            scope.spawn(move || {
                let mut random = SmallRng::seed_from_u64(writer);
                for _ in 0..3000 {
                    let (from, to) =
                        (random.random_range(0..RECORDS), random.random_range(0..RECORDS));
                    if from == to {
                        continue;
                    }
                    let mut txn = engine.begin(TxnOptions::default()).unwrap();
                    let mut changed = Vec::new();
                    for (n, by) in [(from, -1), (to, 1)] {
                        let mut before = 0;
                        let see = &mut |value: &[u8]| before = number(value);
                        if txn.get_locked(RECORD, &keys[n as usize], see).is_err() {
                            break;
                        }
                        let value = before + by;
                        let (key, guard) = (&keys[n as usize], Guard::Checked);
                        if txn.put(RECORD, key, &value.to_be_bytes(), guard).is_err() {
                            break;
                        }
                        changed.push((n, value));
                    }
                    // Most transactions that conflict give up.
                    if changed.len() == 2 {
                        txn.commit().unwrap();
                    }
                }
            });
        }
        let readers: Vec<_> = (0..3)
            .map(|reader| {
                let (engine, keys) = (&engine, &keys);
                scope.spawn(move || {
                    let mut kept = None;
                    for round in 0..4000 {
                        let txn = engine.begin(TxnOptions::READ_ONLY).unwrap();
                        let first = read(&*txn);
                        assert_eq!(first.iter().sum::<i64>(), EACH * RECORDS as i64);
                        for (at, key) in keys.iter().enumerate().skip(reader) {
                            txn.get(RECORD, key, &mut |value| {
                                assert_eq!(number(value), first[at], "of one snapshot");
                            })
                            .unwrap();
                            engine.get_once(RECORD, key, &mut |_| ()).unwrap();
                        }
                        assert_eq!(read(&*txn), first, "read again");
                        if round % 50 == 0
                            && let Some((old, seen)) = kept.replace((txn, first))
                        {
                            assert_eq!(read(&*old), seen, "an old snapshot");
                        }
                    }
                })
            })
            .collect();
        // A record with a single writer, which must see its own writes at once.
        let own = scope.spawn(|| {
            let own = key(500);
            let mut written = 0_i64;
            while going() {
                written += 1;
                put(&*engine, &own, &written.to_be_bytes());
                for _ in 0..3 {
                    let see = &mut |value: &[u8]| assert_eq!(number(value), written);
                    assert!(engine.get_once(RECORD, &own, see).unwrap());
                    let txn = engine.begin(TxnOptions::READ_ONLY).unwrap();
                    assert!(txn.get(RECORD, &own, see).unwrap());
                }
            }
        });
        let read: Vec<_> = readers.into_iter().map(|reader| reader.join()).collect();
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        own.join().unwrap();
        read.into_iter().for_each(|read| read.unwrap());
    });
}

/// Copies a folder with its subfolders; returns the number of files in them.
fn copy_all(from: &Path, to: &Path) -> usize {
    fs::create_dir_all(to).unwrap();
    let mut files = 0;
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            files += copy_all(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
            files += 1;
        }
    }
    files
}
