//! The engine's statistics.
//!
//! Some of them list the folder, or make RocksDB visit the description of each table file: 100,000
//! files take about 50 ms. Such figures are remembered, and read again once a hundred times as long
//! has passed as the last reading took. So they take at most a hundredth of a core, however often
//! they are asked for, and figures of small stores are always current.

use std::fs::{self, Metadata};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use mayfly_base::clock::{Clock, SystemClock};
use mayfly_kv::{
    BackgroundStats, CacheStats, EngineStats, FileStats, Files, HitStats, Keyspace, KeyspaceStats,
};
use parking_lot::Mutex;
use rocksdb::properties::{self, PropName};

use crate::ingest::SCRATCH_FOLDER;
use crate::room::RESERVE_FILE;
use crate::store::Store;

/// A reading that took less is always repeated.
const QUICK_MICROS: i64 = 1_000;
/// How many times as long as a reading took it is remembered.
const REMEMBERED_TIMES: i64 = 100;

/// The last reading of the figures that visit all files.
#[derive(Default)]
pub(crate) struct SlowFigures(Mutex<Option<Reading>>);

/// Figures that visit all files, and when they were read.
#[derive(Clone)]
struct Reading {
    at: i64,
    took: i64,
    keyspaces: [KeyspaceStats; Keyspace::ALL.len()],
    files: FileStats,
    table_reader_bytes: u64,
    written_bytes: u64,
}

/// Reads the statistics of an open store.
pub(crate) fn read(store: &Store, slow: &SlowFigures, clock: &SystemClock) -> EngineStats {
    let slow = slow.get(store, clock);
    // Memtables are charged to the cache, so its usage includes them.
    let cached = store.shared.cache.get_usage() as u64;
    let memtable_bytes = store.shared.buffers.get_usage() as u64;
    let record_bytes = store.records.bytes() as u64;
    let counts = &store.counts;
    let caches = CacheStats {
        block_bytes: cached.saturating_sub(memtable_bytes),
        memtable_bytes,
        record_bytes,
        table_bytes: slow.table_reader_bytes,
    };
    let read = |hits: &AtomicU64, misses: &AtomicU64| HitStats {
        hits: hits.load(Relaxed),
        misses: misses.load(Relaxed),
    };
    let of_database = |name| store.db.property_int_value(name).ok().flatten().unwrap_or(0);
    let background = BackgroundStats {
        flushes: of_database(properties::NUM_RUNNING_FLUSHES),
        compactions: of_database(properties::NUM_RUNNING_COMPACTIONS),
        pending_compaction_bytes: Keyspace::ALL
            .map(|keyspace| of(store, keyspace, properties::ESTIMATE_PENDING_COMPACTION_BYTES))
            .iter()
            .sum(),
        stalls: counts.stalls.load(Relaxed),
        stalled_micros: counts.stalled_micros.load(Relaxed),
    };
    EngineStats {
        standbys: None,
        memory_bytes: cached + record_bytes + slow.table_reader_bytes,
        disk_bytes: slow.keyspaces.iter().map(|keyspace| keyspace.files.bytes).sum(),
        written_bytes: slow.written_bytes,
        keyspaces: Some(slow.keyspaces),
        files: Some(slow.files),
        room: Some(store.room.stats()),
        caches: Some(caches),
        blocks: Some(read(&counts.block_hits, &counts.block_misses)),
        records: Some(read(&counts.record_hits, &counts.record_misses)),
        background: Some(background),
    }
}

fn of(store: &Store, keyspace: Keyspace, name: &PropName) -> u64 {
    store.db.property_int_value_cf(&store.family(keyspace), name).ok().flatten().unwrap_or(0)
}

/// The approximate size of all keys and values before compression.
pub(crate) fn entry_bytes(store: &Store, keyspace: Keyspace) -> u64 {
    let name = properties::AGGREGATED_TABLE_PROPERTIES;
    let text = store.db.property_value_cf(&store.family(keyspace), name);
    let in_files = raw_bytes(&text.ok().flatten().unwrap_or_default());
    in_files + of(store, keyspace, properties::CUR_SIZE_ALL_MEM_TABLES)
}

/// The sizes of keys and values from the properties of table files.
fn raw_bytes(properties: &str) -> u64 {
    let sizes = properties.split(';').filter_map(|property| {
        let (name, value) = property.split_once('=')?;
        let is_size = ["raw key size", "raw value size"].contains(&name.trim());
        is_size.then(|| value.trim().parse::<u64>().ok()).flatten()
    });
    sizes.sum()
}

impl SlowFigures {
    fn get(&self, store: &Store, clock: &SystemClock) -> Reading {
        // A second caller waits for the reading of the first one and uses it.
        let mut last = self.0.lock();
        let start = clock.monotonic_micros();
        if let Some(reading) = &*last
            && reading.took > QUICK_MICROS
            && start - reading.at < reading.took * REMEMBERED_TIMES
        {
            return reading.clone();
        }
        let mut reading = read_slow(store);
        reading.at = clock.monotonic_micros();
        reading.took = reading.at - start;
        last.insert(reading).clone()
    }
}

fn read_slow(store: &Store) -> Reading {
    let (mut table_reader_bytes, mut written_bytes) = (0, 0);
    let keyspaces = Keyspace::ALL.map(|keyspace| {
        table_reader_bytes += of(store, keyspace, properties::ESTIMATE_TABLE_READERS_MEM);
        let text = |name| {
            let text = store.db.property_value_cf(&store.family(keyspace), name);
            text.ok().flatten().unwrap_or_default()
        };
        written_bytes += written_by_compaction(&text(properties::CFSTATS_NO_FILE_HISTOGRAM));
        let files = Files {
            count: files_of_levels(&text(properties::LEVELSTATS)),
            bytes: of(store, keyspace, properties::TOTAL_SST_FILES_SIZE),
        };
        let memtable_bytes = of(store, keyspace, properties::CUR_SIZE_ALL_MEM_TABLES);
        KeyspaceStats { files, memtable_bytes }
    });
    let files = other_files(&store.folder);
    Reading { at: 0, took: 0, keyspaces, files, table_reader_bytes, written_bytes }
}

/// The space of all files of the folder except tables.
fn other_files(folder: &Path) -> FileStats {
    let mut stats = FileStats::default();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.ends_with(".sst") {
            continue;
        }
        let Ok(metadata) = entry.metadata() else { continue };
        match &*name {
            SCRATCH_FOLDER => {
                let scratch = fs::read_dir(entry.path()).into_iter().flatten().flatten();
                let files = scratch.filter_map(|entry| entry.metadata().ok());
                files.for_each(|file| add(&mut stats.scratch, &file));
            }
            RESERVE_FILE => add(&mut stats.reserve, &metadata),
            log if log.ends_with(".log") => add(&mut stats.log, &metadata),
            _ if metadata.is_file() => add(&mut stats.other, &metadata),
            _ => {}
        }
    }
    stats
}

/// Adds a file with the space that is allocated for it: RocksDB allocates the space of a log in
/// advance.
fn add(files: &mut Files, file: &Metadata) {
    files.count += 1;
    files.bytes += allocated(file);
}

#[cfg(unix)]
fn allocated(file: &Metadata) -> u64 {
    std::os::unix::fs::MetadataExt::blocks(file) * 512
}

#[cfg(not(unix))]
fn allocated(file: &Metadata) -> u64 {
    file.len()
}

/// The number of files, from lines of level, files and megabytes.
fn files_of_levels(text: &str) -> u64 {
    let count = |line: &str| {
        let mut words = line.split_whitespace();
        words.next()?.parse::<u32>().ok()?;
        words.next()?.parse::<u64>().ok()
    };
    text.lines().filter_map(count).sum()
}

/// Bytes written by flushes and compactions. RocksDB reports them only as text, in GB with two
/// decimals.
fn written_by_compaction(text: &str) -> u64 {
    let gigabytes = text
        .lines()
        .find_map(|line| line.strip_prefix("Cumulative compaction: "))
        .and_then(|rest| rest.split(' ').next()?.parse::<f64>().ok());
    (gigabytes.unwrap_or(0.0) * f64::from(1 << 30)) as u64
}

#[cfg(test)]
mod tests {
    use mayfly_kv::{Engine, Guard, TxnOptions};

    use super::*;
    use crate::{RocksEngine, RocksOptions};

    /// What `du` counts: the allocated blocks of all files, and of the folders themselves.
    fn disk_usage(folder: &Path) -> u64 {
        let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
        let of_entry = |entry: fs::DirEntry| match entry.metadata().unwrap() {
            folder if folder.is_dir() => disk_usage(&entry.path()),
            file => allocated(&file),
        };
        allocated(&fs::metadata(folder).unwrap()) + entries.map(of_entry).sum::<u64>()
    }

    fn fill(engine: &dyn Engine, keyspace: Keyspace, megabytes: u8) {
        for n in 0..megabytes {
            let mut txn = engine.begin(TxnOptions::default()).unwrap();
            for k in 0..64_u8 {
                let value: Vec<u8> = (0..1 << 14).map(|_| rand::random::<u8>() & 0x7f).collect();
                txn.put(keyspace, &[1, n, k], &value, Guard::Checked).unwrap();
            }
            txn.commit().unwrap();
        }
    }

    #[test]
    fn the_sum_is_what_du_shows() {
        let folder = tempfile::tempdir().unwrap();
        let options = RocksOptions { reserve_bytes: 8 << 20, ..RocksOptions::default() };
        let engine = RocksEngine::open(folder.path(), options).unwrap();
        let check = |stage: &str| {
            let (stats, used) = (engine.stats(), disk_usage(folder.path()));
            let sum = stats.disk_bytes + stats.files.unwrap().bytes();
            let difference = sum.abs_diff(used);
            assert!(difference * 20 <= used, "{stage}: {sum} of {used}: {stats:?}");
            stats
        };
        check("empty");
        fill(&*engine, Keyspace::Record, 12);
        fill(&*engine, Keyspace::Index, 3);
        check("in the log");
        engine.flush().unwrap();
        let mut ingest = engine.begin_ingest(Keyspace::Index).unwrap().unwrap();
        for n in 0..35_u8 {
            let value: Vec<u8> = (0..1 << 20).map(|_| rand::random::<u8>() & 0x7f).collect();
            ingest.add(&[2, n], &value).unwrap();
        }
        // The figures of a slow machine may be remembered for a moment.
        mayfly_base::testing::wait_until("files are counted", || {
            engine.stats().files.is_some_and(|files| files.scratch.count == 1)
        });
        let stats = check("in tables");
        let [record, index, ..] = stats.keyspaces.unwrap();
        assert!(record.files.count >= 1 && record.files.bytes > 12 << 20, "{record:?}");
        assert!(index.files.count >= 1 && index.files.bytes > 3 << 20, "{index:?}");
        assert!(stats.files.unwrap().reserve.bytes > 0);
    }

    /// The progress of a copy depends on it, also for a store that is young or compresses well.
    #[test]
    fn the_size_of_entries_does_not_depend_on_where_they_are() {
        let folder = tempfile::tempdir().unwrap();
        let engine = RocksEngine::open(folder.path(), RocksOptions::default()).unwrap();
        let (count, value) = (2000_u64, [7; 4000]);
        let mut txn = engine.begin(TxnOptions::default()).unwrap();
        for n in 0..count {
            txn.put(Keyspace::Record, &n.to_be_bytes(), &value, Guard::Checked).unwrap();
        }
        txn.commit().unwrap();
        let expected = count * 4008;
        let check = |stage: &str| {
            let found = engine.entry_bytes(Keyspace::Record).unwrap();
            assert!(found * 10 > expected * 9 && found < expected * 2, "{stage}: {found}");
        };
        check("in a memtable");
        engine.flush().unwrap();
        check("in a file");
    }

    #[test]
    fn reads_are_counted_by_what_served_them() {
        let folder = tempfile::tempdir().unwrap();
        let engine = RocksEngine::open(folder.path(), RocksOptions::default()).unwrap();
        let key = [7; 16];
        let mut txn = engine.begin(TxnOptions::default()).unwrap();
        txn.put(Keyspace::Record, &key, &[1; 100], Guard::Checked).unwrap();
        txn.commit().unwrap();
        engine.flush().unwrap();
        for _ in 0..200 {
            assert!(engine.get_once(Keyspace::Record, &key, &mut |_| ()).unwrap());
            assert!(!engine.get_once(Keyspace::Record, &[8; 16], &mut |_| ()).unwrap());
        }
        let records = engine.stats().records.unwrap();
        assert!(records.hits > 100 && records.misses > 100, "{records:?}");
        let blocks = engine.stats().blocks.unwrap();
        assert!(blocks.hits + blocks.misses > 0, "{blocks:?}");
    }

    #[test]
    fn texts_of_rocksdb_are_read() {
        let levels = "Level Files Size(MB)\n-----\n  0        2        1\n  6       40      900\n";
        assert_eq!((files_of_levels(levels), files_of_levels("")), (42, 0));
        let text = "x\nCumulative compaction: 1.50 GB write, 0.10 MB/s write\n";
        assert_eq!(written_by_compaction(text), 3 << 29);
        assert_eq!(written_by_compaction("nothing"), 0);
        let text = "# entries=2; raw key size=30; raw average key size=15.0; raw value size=12; ";
        assert_eq!((raw_bytes(text), raw_bytes("")), (42, 0));
    }
}
