//! Statistics of engines.

use crate::Keyspace;

/// Statistics for `serverStatus` and tests. Reading them is cheap enough for once a second.
#[derive(Clone, Copy, Debug, Default)]
pub struct EngineStats {
    /// Memory of caches and write buffers, in bytes.
    pub memory_bytes: u64,
    /// Bytes of the keyspaces on disk.
    pub disk_bytes: u64,
    /// Bytes written to files since start, compaction included.
    pub written_bytes: u64,
    /// The keyspaces, in the order of [`Keyspace::ALL`]; `None` if the engine does not know them.
    pub keyspaces: Option<[KeyspaceStats; Keyspace::ALL.len()]>,
    /// The files that belong to no keyspace; `None` for engines without a folder. With the bytes of
    /// the keyspaces they add up to the space of the folder.
    pub files: Option<FileStats>,
    /// The state of the disk; `None` for engines without a disk of their own.
    pub room: Option<RoomStats>,
    /// What holds the memory; `None` for engines without caches of their own.
    pub caches: Option<CacheStats>,
    /// Blocks that reads needed; `None` if they are not counted.
    pub blocks: Option<HitStats>,
    /// Look-ups in the cache of records; `None` for engines without one.
    pub records: Option<HitStats>,
    /// Copies of the data, and servers that wait for it; `None` for engines in this process.
    pub standbys: Option<StandbyStats>,
    /// Flushes and compactions; `None` for engines that have none.
    pub background: Option<BackgroundStats>,
}

/// A number of files and their space in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Files {
    /// The number of files.
    pub count: u64,
    /// The space that is allocated for them.
    pub bytes: u64,
}

/// A keyspace of an engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyspaceStats {
    /// Table files; for an engine without files, the bytes of the keyspace.
    pub files: Files,
    /// Commits that are not yet in table files, in bytes.
    pub memtable_bytes: u64,
}

/// The files of an engine's folder that belong to no keyspace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileStats {
    /// The write-ahead log.
    pub log: Files,
    /// Files of index builds and other work, which are removed when it ends.
    pub scratch: Files,
    /// The disk reserve.
    pub reserve: Files,
    /// Descriptions of the store and the engine's own log.
    pub other: Files,
}

impl FileStats {
    /// The space of all of these files.
    pub fn bytes(&self) -> u64 {
        [self.log, self.scratch, self.reserve, self.other].iter().map(|files| files.bytes).sum()
    }
}

/// The work of an engine in the background, and the waits for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BackgroundStats {
    /// Flushes of memtables that run now.
    pub flushes: u64,
    /// Compactions that run now.
    pub compactions: u64,
    /// An estimate of the bytes that compactions have to rewrite.
    pub pending_compaction_bytes: u64,
    /// Commits that waited for flushes or compactions, since start.
    pub stalls: u64,
    /// The time of these waits, in microseconds.
    pub stalled_micros: u64,
}

/// What takes over when a part of a deployment fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StandbyStats {
    /// Servers that wait to take the store over.
    pub servers: u64,
    /// Standbys of the database that receive its changes.
    pub databases: u64,
    /// Whether commits wait for a standby of the database, so that its failover loses none.
    pub are_synchronous: bool,
}

/// What a cache served, since start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HitStats {
    /// What was in the cache.
    pub hits: u64,
    /// What was not in the cache.
    pub misses: u64,
}

/// The parts of [`EngineStats::memory_bytes`] of an engine with caches, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStats {
    /// Blocks of table files, with those of indexes and filters.
    pub block_bytes: u64,
    /// Commits that are not yet in table files.
    pub memtable_bytes: u64,
    /// Records that were read often.
    pub record_bytes: u64,
    /// Descriptions of open table files.
    pub table_bytes: u64,
}

/// The disk space of an engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RoomStats {
    /// Size of the disk; 0 when unknown.
    pub total_bytes: u64,
    /// Bytes that this process may use, without the reserve.
    pub free_bytes: u64,
    /// Bytes reserved for deletions and for opening the store.
    pub reserve_bytes: u64,
    /// Whether only deletions are accepted.
    pub nearly_full: bool,
    /// How often the disk became nearly full since the start.
    pub times_nearly_full: u64,
}
