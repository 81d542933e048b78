//! The storage engine: its memory, its files, its caches, its work in the background.

use mayfly_kv::{
    BackgroundStats, CacheStats, FileStats, HitStats, Keyspace, KeyspaceStats, StandbyStats,
};

use super::long;
use crate::observe::Representation;
use crate::observe::figure::{Figure, Points, Unit, counter, gauge};
use crate::observe::reading::Reading;

pub(super) const ROWS: &[Figure] = &[
    gauge(
        "storageEngine.memoryBytes",
        "mayflydb_storage_memory_bytes",
        "Memory of the caches and write buffers of the storage engine.",
    )
    .bytes()
    .read(|r| long(r.engine().memory_bytes)),
    gauge(
        "storageEngine.caches.blockBytes",
        "mayflydb_storage_block_cache_bytes",
        "Memory of the blocks of table files that are cached, with those of indexes and filters.",
    )
    .bytes()
    .each(|r, out| of_caches(r, out, |caches| long(caches.block_bytes))),
    gauge(
        "storageEngine.caches.memtableBytes",
        "mayflydb_storage_memtable_bytes",
        "Memory of the commits that are not yet in table files.",
    )
    .bytes()
    .each(|r, out| of_caches(r, out, |caches| long(caches.memtable_bytes))),
    gauge(
        "storageEngine.caches.recordBytes",
        "mayflydb_storage_record_cache_bytes",
        "Memory of the cached documents that were read often.",
    )
    .bytes()
    .each(|r, out| of_caches(r, out, |caches| long(caches.record_bytes))),
    gauge(
        "storageEngine.caches.tableBytes",
        "mayflydb_storage_open_tables_bytes",
        "Memory of the descriptions of open table files.",
    )
    .bytes()
    .each(|r, out| of_caches(r, out, |caches| long(caches.table_bytes))),
    gauge(
        "storageEngine.diskBytes",
        "mayflydb_storage_disk_bytes",
        "Bytes of all keyspaces on the disk.",
    )
    .bytes()
    .read(|r| long(r.engine().disk_bytes)),
    counter(
        "storageEngine.writtenBytes",
        "mayflydb_storage_written_bytes_total",
        "Bytes that the storage engine wrote to files, compaction included.",
    )
    .bytes()
    .read(|r| long(r.engine().written_bytes)),
    gauge(
        "storageEngine.totalBytes",
        "mayflydb_storage_folder_bytes",
        "Space of all files of the storage engine: the sum of the following parts. Files of search indexes are not among them.",
    )
    .bytes()
    .each(|r, out| of_files(r, out, |files| long(files.bytes() + r.engine().disk_bytes))),
    gauge(
        "storageEngine.keyspaces.{keyspace}.bytes",
        "mayflydb_storage_keyspace_bytes",
        "Bytes of table files, by keyspace: documents, index entries, the operation log and others.",
    )
    .bytes()
    .each(|r, out| of_keyspaces(r, out, |keyspace| keyspace.files.bytes)),
    gauge(
        "storageEngine.keyspaces.{keyspace}.files",
        "mayflydb_storage_keyspace_files",
        "Table files, by keyspace.",
    )
    .each(|r, out| of_keyspaces(r, out, |keyspace| keyspace.files.count)),
    gauge(
        "storageEngine.keyspaces.{keyspace}.memtableBytes",
        "mayflydb_storage_keyspace_memtable_bytes",
        "Memory of the commits that are not yet in table files, by keyspace.",
    )
    .bytes()
    .each(|r, out| of_keyspaces(r, out, |keyspace| keyspace.memtable_bytes)),
    gauge(
        "storageEngine.writeAheadLogBytes",
        "mayflydb_storage_log_bytes",
        "Space of the files of the write-ahead log, a part of which is allocated in advance.",
    )
    .bytes()
    .read(|r| long(r.engine().files.map_or(0, |files| files.log.bytes))),
    gauge(
        "storageEngine.writeAheadLogFiles",
        "mayflydb_storage_log_files",
        "Files of the write-ahead log.",
    )
    .each(|r, out| of_files(r, out, |files| long(files.log.count))),
    gauge(
        "storageEngine.scratchBytes",
        "mayflydb_storage_scratch_bytes",
        "Space of the temporary files of index builds.",
    )
    .bytes()
    .each(|r, out| of_files(r, out, |files| long(files.scratch.bytes))),
    gauge(
        "storageEngine.scratchFiles",
        "mayflydb_storage_scratch_files",
        "Temporary files of index builds.",
    )
    .each(|r, out| of_files(r, out, |files| long(files.scratch.count))),
    gauge(
        "storageEngine.reserveBytes",
        "mayflydb_storage_reserve_bytes",
        "Space of the file that holds the disk reserve.",
    )
    .bytes()
    .each(|r, out| of_files(r, out, |files| long(files.reserve.bytes))),
    gauge(
        "storageEngine.otherBytes",
        "mayflydb_storage_other_bytes",
        "Space of the files that describe the store.",
    )
    .bytes()
    .each(|r, out| of_files(r, out, |files| long(files.other.bytes))),
    gauge(
        "storageEngine.standbys.servers",
        "mayflydb_storage_waiting_servers",
        "Servers that wait to take the store in PostgreSQL over.",
    )
    .each(|r, out| of_standbys(r, out, |standbys| long(standbys.servers))),
    gauge(
        "storageEngine.standbys.databases",
        "mayflydb_storage_database_standbys",
        "Standbys of PostgreSQL that receive its changes.",
    )
    .each(|r, out| of_standbys(r, out, |standbys| long(standbys.databases))),
    gauge(
        "storageEngine.standbys.areSynchronous",
        "mayflydb_storage_database_standbys_synchronous",
        "1 if commits wait for a standby of PostgreSQL, so that its failover loses none.",
    )
    .unit(Unit::Flag)
    .shown(Representation::Bool)
    .each(|r, out| of_standbys(r, out, |standbys| i64::from(standbys.are_synchronous))),
    counter(
        "storageEngine.reads.{cache}.hits",
        "mayflydb_storage_cache_hits_total",
        "Reads that a cache served: blocks of table files, and whole documents (record).",
    )
    .each(|r, out| reads(r, out, |stats| stats.hits)),
    counter(
        "storageEngine.reads.{cache}.misses",
        "mayflydb_storage_cache_misses_total",
        "Reads that a cache did not serve: blocks of table files, and whole documents (record).",
    )
    .each(|r, out| reads(r, out, |stats| stats.misses)),
    gauge(
        "storageEngine.background.running.{job}",
        "mayflydb_storage_jobs_running",
        "Running flushes of memory to table files, and running compactions.",
    )
    .each(|r, out| {
        if let Some(background) = &r.engine().background {
            out.add(&["flush"], long(background.flushes));
            out.add(&["compaction"], long(background.compactions));
        }
    }),
    gauge(
        "storageEngine.background.pendingCompactionBytes",
        "mayflydb_storage_pending_compaction_bytes",
        "An estimate of the bytes that compactions have to rewrite.",
    )
    .bytes()
    .each(|r, out| background(r, out, |background| background.pending_compaction_bytes)),
    counter(
        "storageEngine.background.writeStalls",
        "mayflydb_storage_write_stalls_total",
        "Commits that waited for flushes or compactions.",
    )
    .each(|r, out| background(r, out, |background| background.stalls)),
    counter(
        "storageEngine.background.writeStallMicros",
        "mayflydb_storage_write_stall_seconds_total",
        "Time that commits waited for flushes or compactions.",
    )
    .micros()
    .each(|r, out| background(r, out, |background| background.stalled_micros)),
    gauge(
        "storageEngine.keptVersionBytes",
        "mayflydb_storage_kept_version_bytes",
        "Bytes of table files with deleted documents that the operation log still references.",
    )
    .bytes()
    .read(|r| long(r.service.store.kept_bytes().unwrap_or(0))),
];

/// Adds a figure that engines without caches do not have.
fn of_caches(reading: &Reading<'_>, out: &mut Points<'_>, of: fn(&CacheStats) -> i64) {
    if let Some(caches) = &reading.engine().caches {
        out.add(&[], of(caches));
    }
}

/// Adds a figure that engines without a folder do not have.
fn of_files(reading: &Reading<'_>, out: &mut Points<'_>, of: impl Fn(&FileStats) -> i64) {
    if let Some(files) = &reading.engine().files {
        out.add(&[], of(files));
    }
}

fn of_keyspaces(reading: &Reading<'_>, out: &mut Points<'_>, of: fn(&KeyspaceStats) -> u64) {
    for (keyspace, stats) in Keyspace::ALL.iter().zip(reading.engine().keyspaces.iter().flatten()) {
        out.add(&[keyspace.name()], long(of(stats)));
    }
}

fn reads(reading: &Reading<'_>, out: &mut Points<'_>, of: fn(&HitStats) -> u64) {
    let engine = reading.engine();
    for (cache, stats) in [("block", &engine.blocks), ("record", &engine.records)] {
        if let Some(stats) = stats {
            out.add(&[cache], long(of(stats)));
        }
    }
}

/// Adds a figure of work in the background, which not all engines have.
fn background(reading: &Reading<'_>, out: &mut Points<'_>, of: fn(&BackgroundStats) -> u64) {
    if let Some(background) = &reading.engine().background {
        out.add(&[], long(of(background)));
    }
}

/// Adds a figure of engines across a network.
fn of_standbys(reading: &Reading<'_>, out: &mut Points<'_>, of: fn(&StandbyStats) -> i64) {
    if let Some(standbys) = &reading.engine().standbys {
        out.add(&[], of(standbys));
    }
}
