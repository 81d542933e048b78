//! The engine's own options, and the RocksDB options derived from them.
//!
//! **Memory** is one budget: a quarter of it for the cache of records ([`crate::record_cache`]),
//! the rest for one block cache, which also contains index and filter blocks and is charged with
//! the memtables.
//!
//! **Recovery** is prepared by [`crate::log_tail`], which cuts the log at the first break after its
//! last sync. RocksDB then replays a log without holes: a record with a wrong checksum is an error,
//! not a silent end (point-in-time recovery would drop everything after it, including synced
//! commits). Logs are never recycled, because old bytes would look like records; synced logs are
//! noted in the manifest, so that a missing or shortened one is detected.
//!
//! **Idle** servers write nothing: no statistics dumps, an info log with warnings only.
//!
//! **Small disks**: buffers, tables and levels are scaled to the disk, as its reserve is (`room`),
//! so that a flush or a compaction that runs when the disk becomes full still has the room it
//! needs.
//!
//! There is no prefix extractor: with one, every scan would have to specify whether its range
//! crosses a prefix, and ranges of whole objects gain nothing. Bloom filters contain whole keys.

use std::path::Path;

use rocksdb::{
    BlockBasedIndexType, BlockBasedOptions, Cache, DBCompressionType, DBRecoveryMode,
    DataBlockIndexType, Env, LogLevel, Options, WriteBufferManager,
};

use mayfly_kv::Keyspace;

use crate::retired;
use crate::upgrade::OlderFormat;

const MB: usize = 1 << 20;

/// Options of a column family that the Rust interface has no setters for.
///
/// * RocksDB rewrites a file of the last level to remove its sequence numbers, and versions and
///   tombstones that a snapshot needed when the file was written. Records that were inserted in
///   ascending order moved down to that level without being rewritten, so this rewrite would be a
///   third of what an insert writes, and as much as an early expiry writes in all. Files of records
///   and kept versions are rewritten after a day ([`RECLAIM_DELAY`]), those of the oplog never: a
///   delay of ten years.
/// * A memtable remembers for each prefix of keys where the last one was inserted, and searches the
///   place of the next one from there. The prefix is the id of an object, or the upper bytes of a
///   timestamp.
/// * A memtable in which one step of a forward scan skips 8,192 deleted or replaced entries is
///   flushed with the next write, and compaction then removes them. Otherwise each client that
///   takes the first entry of an index and deletes it, as queues do, would skip the deleted ones
///   again until the memtable is full: 23 ms for 144,000 of them.
/// * The blocks of a deleted file leave the cache with it, as long as more than a third of those
///   tried are in the cache. Otherwise they stay until the cache is full, so that a server with few
///   data and many writes takes as much memory as the cache may have.
fn further_options(keyspace: Keyspace) -> String {
    let of_family = match keyspace {
        Keyspace::Oplog => {
            "bottommost_file_compaction_delay=315360000;memtable_insert_with_hint_prefix_extractor=fixed:2"
        }
        Keyspace::Record | Keyspace::Index => {
            "memtable_insert_with_hint_prefix_extractor=fixed:8;memtable_op_scan_flush_trigger=8192"
        }
        Keyspace::Versions | Keyspace::Catalog | Keyspace::Session => "",
    };
    let delay = match is_rewritten_late(keyspace) {
        true => format!("{DELAY_OPTION}={RECLAIM_DELAY};"),
        false => String::new(),
    };
    format!("uncache_aggressiveness=110;{delay}{of_family}")
}

/// The option with the age in seconds from which a file of the last level is rewritten.
pub(crate) const DELAY_OPTION: &str = "bottommost_file_compaction_delay";
/// Its value for records and kept versions.
pub(crate) const RECLAIM_DELAY: &str = "86400";

/// Whether files of this family's last level are rewritten after [`RECLAIM_DELAY`].
pub(crate) fn is_rewritten_late(keyspace: Keyspace) -> bool {
    matches!(keyspace, Keyspace::Record | Keyspace::Versions)
}

/// Each log file records the length of the previous one, which `log_tail` reads. The Rust interface
/// has no setter for this option.
const DATABASE_OPTIONS: &str = "track_and_verify_wals=true";

/// Compression of level 0 and of the levels below it, counted from the first one in use. Data that
/// is soon rewritten stays in LZ4, and so do stores of less than about 2 GB, where zstd would take
/// a seventh of the time of every write; ascending keys then move down to the last of these levels
/// without being rewritten. Nine tenths of a large store are in zstd.
const COMPRESSION: [DBCompressionType; 7] = {
    use DBCompressionType::{Lz4, Zstd};
    [Lz4, Lz4, Lz4, Zstd, Zstd, Zstd, Zstd]
};

/// Below this size a cache with a simpler index suffices.
const SMALL_CACHE: usize = 64 * MB;
/// The size of buffers of files where memory is scarce.
const SMALL_BUFFER: usize = 128 << 10;
/// Files are cut so that the compaction of one of them with its overlap on the next level takes
/// about this much, which is available where the disk is nearly full (`room`).
const MAX_COMPACTION_BYTES: usize = 128 * MB;

/// How to open a store.
#[derive(Clone, Copy, Debug)]
pub struct RocksOptions {
    /// Memory for the record cache, the block cache and memtables together.
    pub cache_bytes: usize,
    /// The size of the log that triggers a flush of memtables; bounds the replay after a crash (0.4
    /// s for 100 MB). Small entries in random order, as of an index on random `_id`s, are a
    /// twentieth of the bytes written, and each flush of them leads to a rewrite of their family:
    /// with 64 MB a bulk load takes a tenth more. More files on level 0 would have the same effect
    /// for the load, and slow down every scan of an index.
    pub wal_max_bytes: u64,
    /// Whether each commit is synced before it returns, instead of by
    /// [`sync`](mayfly_kv::Engine::sync).
    pub sync_commits: bool,
    /// Disk space that only deletions and opening the store may use; at most an eighth of the disk.
    pub reserve_bytes: u64,
    /// Threads for flushes and compactions: one flushes, the others compact. With a single
    /// compaction thread the operation log, whose files only need to be moved, waits for the
    /// records, and writers are slowed down for it.
    pub background_threads: i32,
    /// Most table files held open.
    pub max_open_files: i32,
    /// What opening a folder of an older format does.
    pub older_format: OlderFormat,
}

impl Default for RocksOptions {
    fn default() -> RocksOptions {
        RocksOptions {
            cache_bytes: 256 * MB,
            wal_max_bytes: 128 << 20,
            sync_commits: false,
            reserve_bytes: 256 << 20,
            background_threads: 3,
            max_open_files: 512,
            older_format: OlderFormat::default(),
        }
    }
}

/// Resources shared by the database and all column families.
pub(crate) struct SharedResources {
    pub(crate) cache: Cache,
    pub(crate) buffers: WriteBufferManager,
    /// The size of a memtable of a family with many writes.
    memtable_bytes: usize,
    /// Size of the disk.
    disk_bytes: u64,
    /// Whether memory is so scarce that files are read and written in small pieces, and only one
    /// compaction runs.
    pub(crate) is_small: bool,
}

/// What an iterator reads ahead from a file where memory is scarce. By default RocksDB reads up to
/// 256 KiB ahead, and a scan of an index has an iterator in each file of level 0.
pub(crate) const SMALL_READAHEAD: usize = 16 << 10;

impl SharedResources {
    pub(crate) fn new(folder: &Path, options: &RocksOptions) -> SharedResources {
        let blocks = options.cache_bytes - record_bytes(options);
        // The faster cache reserves address space, and aborts where a limit does not allow that.
        let is_small = blocks < SMALL_CACHE;
        let cache = match is_small {
            true => Cache::new_lru_cache(blocks),
            false => Cache::new_hyper_clock_cache(blocks, 0),
        };
        let memtables = (options.cache_bytes / 3).clamp(8 * MB, 256 * MB);
        let charged = cache.clone();
        let buffers =
            WriteBufferManager::new_write_buffer_manager_with_cache(memtables, false, charged);
        // Four families fill up to four memtables each before their writers wait for a flush.
        // Where memory is scarce, all of them together may take twice the budget.
        let memtable_bytes = match is_small {
            true => (memtables / 8).clamp(MB, 32 * MB),
            false => 32 * MB,
        };
        let disk_bytes = fs4::total_space(folder).unwrap_or(u64::MAX);
        SharedResources { cache, buffers, memtable_bytes, disk_bytes, is_small }
    }

    /// This many bytes, at most the fraction `1/part` of the disk, but at least a megabyte.
    fn scaled(&self, bytes: usize, part: usize) -> usize {
        let disk = usize::try_from(self.disk_bytes).unwrap_or(usize::MAX);
        bytes.min((disk / part).max(MB))
    }
}

/// Memory for cached records: enough for those read most often, which take a seventh of the memory
/// of their blocks.
pub(crate) fn record_bytes(options: &RocksOptions) -> usize {
    options.cache_bytes / 4
}

/// Options of the database.
pub(crate) fn database(
    options: &RocksOptions,
    shared: &SharedResources,
    is_tight: bool,
) -> Options {
    let mut db = Options::default();
    match db.get_options_from_string(DATABASE_OPTIONS) {
        Ok(options) => db = options,
        Err(error) => {
            tracing::warn!(%error, "RocksDB rejects the option by which log files record their predecessor; a lost log file may go unnoticed")
        }
    }
    db.create_if_missing(true);
    db.create_missing_column_families(true);
    db.set_write_buffer_manager(&shared.buffers);
    // On a nearly full disk one compaction at a time has the room.
    if shared.is_small {
        // By default 2 MB for each file of a compaction, and 1 MB for each file that is written.
        db.set_compaction_readahead_size(SMALL_BUFFER);
        db.set_writable_file_max_buffer_size(SMALL_BUFFER as u64);
    }
    db.set_max_background_jobs(match is_tight || shared.is_small {
        true => options.background_threads.min(2),
        false => options.background_threads,
    });
    // Compactions yield the processor to requests; flushes do not, because writers wait for them.
    match Env::new() {
        Ok(mut env) => {
            env.lower_thread_pool_cpu_priority();
            db.set_env(&env);
        }
        Err(error) => {
            tracing::warn!(%error, "the CPU priority of compactions cannot be lowered; they compete with requests")
        }
    }
    db.set_max_open_files(options.max_open_files);
    db.set_max_file_opening_threads(2);
    db.set_skip_stats_update_on_db_open(true);

    db.set_paranoid_checks(true);
    db.set_wal_recovery_mode(DBRecoveryMode::TolerateCorruptedTailRecords);
    db.set_track_and_verify_wals_in_manifest(true);
    // Opening replays the log into tables, which half of the reserve is kept for: a sixteenth of a
    // small disk.
    let wal_max_bytes = usize::try_from(options.wal_max_bytes).unwrap_or(usize::MAX);
    db.set_max_total_wal_size(shared.scaled(wal_max_bytes, 32) as u64);
    db.set_max_manifest_file_size(16 * MB);
    db.set_bytes_per_sync(MB as u64);

    db.set_stats_dump_period_sec(0);
    db.set_stats_persist_period_sec(0);
    db.set_log_level(LogLevel::Warn);
    db.set_keep_log_file_num(2);
    db.set_max_log_file_size(MB);
    db
}

/// Options of one keyspace's column family.
pub(crate) fn column_family(keyspace: Keyspace, shared: &SharedResources) -> Options {
    let mut cf = Options::default();
    match cf.get_options_from_string(further_options(keyspace)) {
        Ok(options) => cf = options,
        Err(error) => {
            tracing::warn!(%error, family = keyspace.name(), "RocksDB rejects options, and writes cost more")
        }
    }
    cf.set_block_based_table_factory(&table(keyspace, &shared.cache));
    cf.set_level_compaction_dynamic_level_bytes(true);
    match keyspace {
        // One compression for all levels, so that a file moves down a level without being
        // rewritten, because its keys ascend.
        Keyspace::Oplog => {
            cf.set_compression_type(DBCompressionType::Lz4);
            // A negative level is LZ4's acceleration.
            cf.set_compression_options(-14, -8, 0, 0);
        }
        _ => cf.set_compression_per_level(&COMPRESSION),
    }
    // Small files, because the space of a dropped range is reclaimed by whole files.
    cf.set_target_file_size_base(shared.scaled(32 * MB, 128) as u64);
    cf.set_max_compaction_bytes(shared.scaled(MAX_COMPACTION_BYTES, 16) as u64);
    cf.set_max_bytes_for_level_base(shared.scaled(256 * MB, 32) as u64);
    cf.set_max_write_buffer_number(4);
    match keyspace {
        Keyspace::Record | Keyspace::Index | Keyspace::Oplog | Keyspace::Versions => {
            cf.set_write_buffer_size(shared.scaled(shared.memtable_bytes, 128));
            // Files with many tombstones are compacted soon: nothing else reclaims space after a
            // mass deletion.
            cf.add_compact_on_deletion_collector_factory(4_096, 2_048, 0.4);
        }
        Keyspace::Catalog | Keyspace::Session => {
            cf.set_write_buffer_size(shared.scaled(shared.memtable_bytes.min(8 * MB), 512))
        }
    }
    if keyspace == Keyspace::Record {
        retired::accept(&mut cf);
    }
    if matches!(keyspace, Keyspace::Record | Keyspace::Index) {
        // An insert looks up an absent key of a record or of a unique index; the filter answers
        // that without a search of the memtable: 1.2 us instead of 1.7 for random keys, and a bulk
        // load with random ids takes a twentieth less.
        cf.set_memtable_whole_key_filtering(true);
        cf.set_memtable_prefix_bloom_ratio(0.02);
    }
    cf
}

fn table(keyspace: Keyspace, cache: &Cache) -> BlockBasedOptions {
    let mut table = BlockBasedOptions::default();
    table.set_block_cache(cache);
    table.set_block_size(8 << 10);
    table.set_index_type(BlockBasedIndexType::BinarySearch);
    table.set_cache_index_and_filter_blocks(true);
    table.set_cache_index_and_filter_blocks_with_high_priority(true);
    table.set_pin_l0_filter_and_index_blocks_in_cache(true);
    if keyspace != Keyspace::Oplog {
        table.set_bloom_filter(10.0, false);
        table.set_whole_key_filtering(true);
    }
    if keyspace == Keyspace::Record {
        table.set_data_block_index_type(DataBlockIndexType::BinaryAndHash);
    }
    table
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::time::Duration;

    use rocksdb::{ColumnFamilyDescriptor, DB, properties};

    use super::*;

    /// How often the test checks whether RocksDB is quiet.
    const MAX_CHECKS: u32 = 3_000;
    const CHECK: Duration = Duration::from_millis(10);

    fn is_quiet(db: &DB) -> bool {
        let records = db.cf_handle("record").unwrap();
        let number = |name| db.property_int_value_cf(&records, name).unwrap().unwrap_or(1);
        let compacts = [properties::COMPACTION_PENDING, properties::NUM_RUNNING_COMPACTIONS];
        compacts.into_iter().all(|name| number(name) == 0)
    }

    /// A database with the family of records in an empty folder.
    fn open(folder: &Path, cache_bytes: usize) -> DB {
        let options = RocksOptions { cache_bytes, ..RocksOptions::default() };
        let shared = SharedResources::new(folder, &options);
        let family =
            ColumnFamilyDescriptor::new("record", column_family(Keyspace::Record, &shared));
        DB::open_cf_descriptors(&database(&options, &shared, false), folder, [family]).unwrap()
    }

    #[test]
    fn a_scan_over_many_deleted_entries_flushes_them() {
        let folder = tempfile::tempdir().unwrap();
        let db = open(folder.path(), 64 * MB);
        let records = db.cf_handle("record").unwrap();
        let key = |number: u64| [7_u64.to_be_bytes(), number.to_be_bytes()].concat();
        for number in 0..10_001 {
            db.put_cf(&records, key(number), [2; 10]).unwrap();
        }
        (0..10_000).for_each(|number| db.delete_cf(&records, key(number)).unwrap());
        let deleted = || {
            let name = properties::NUM_DELETES_ACTIVE_MEM_TABLE;
            db.property_int_value_cf(&records, name).unwrap().unwrap()
        };
        assert_eq!(deleted(), 10_000);
        let mut scan = db.raw_iterator_cf(&records);
        scan.seek_to_first();
        assert_eq!(scan.key(), Some(&key(10_000)[..]));
        // The next write begins another memtable.
        db.put_cf(&records, key(10_001), [2; 10]).unwrap();
        let mut checks = 0;
        while deleted() > 0 {
            checks += 1;
            assert!(checks < MAX_CHECKS, "the memtable with the deleted entries is still in use");
            std::thread::sleep(CHECK);
            db.put_cf(&records, key(10_002), [2; 10]).unwrap();
        }
    }

    #[test]
    fn records_in_ascending_order_are_written_once() {
        let folder = tempfile::tempdir().unwrap();
        let db = open(folder.path(), 8 * MB);
        let records = db.cf_handle("record").unwrap();
        let (mut flushed, mut number) = (BTreeSet::new(), 0_u64);
        let files = || {
            let live = db.live_files().unwrap().into_iter();
            let files = live.filter(|file| file.column_family_name == "record");
            files.map(|file| (file.name, file.level)).collect::<Vec<_>>()
        };
        for _ in 0..5 {
            for _ in 0..100 {
                number += 1;
                db.put_cf(
                    &records,
                    [7_u64.to_be_bytes(), number.to_be_bytes()].concat(),
                    [2; 1000],
                )
                .unwrap();
            }
            db.flush_cf(&records).unwrap();
            flushed.extend(files().into_iter().map(|(name, _)| name));
        }
        let mut checks = 0;
        while !(is_quiet(&db) && files().iter().any(|(_, level)| *level == 6)) {
            checks += 1;
            assert!(checks < MAX_CHECKS, "nothing moves to the last level: {:?}", files());
            std::thread::sleep(CHECK);
        }
        // A snapshot of a later state that ends makes RocksDB look for files to rewrite.
        db.put_cf(&records, [8; 16], [2; 10]).unwrap();
        drop(db.snapshot());
        std::thread::sleep(CHECK * 20);
        let now: BTreeSet<String> = files().into_iter().map(|(name, _)| name).collect();
        assert_eq!(now, flushed, "no file was rewritten");
    }
}
