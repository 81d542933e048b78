//! Statistics of engines.

/// Statistics for `serverStatus` and tests.
#[derive(Clone, Copy, Debug, Default)]
pub struct EngineStats {
    /// Memory of caches and write buffers, in bytes.
    pub memory_bytes: u64,
    /// Files on disk, in bytes.
    pub disk_bytes: u64,
    /// Bytes written to files since start, compaction included.
    pub written_bytes: u64,
    /// Size of the write-ahead log's files, in bytes.
    pub log_bytes: u64,
    /// The state of the disk; `None` for engines without a disk of their own.
    pub room: Option<RoomStats>,
    /// What holds the memory; `None` for engines without caches of their own.
    pub caches: Option<CacheStats>,
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
