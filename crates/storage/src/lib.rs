//! The storage engine: catalog, collections, indexes, write units, oplog, and the TTL monitor.
//!
//! It has no query language, no wire format, and no system clock. A [`Store`] uses one byte store
//! ([`mayfly_kv::Engine`]) and provides [`Collection`]s, [`Snapshot`]s and [`WriteUnit`]s.

mod backup;
mod catalog;
mod check;
mod ddl;
mod empty_timestamps;
mod feed;
mod index;
mod isolation;
#[cfg(test)]
mod log_tests;
mod oplog;
pub mod policy;
mod read;
mod record;
mod replay;
mod secondary;
mod session;
mod shared;
mod store;
mod sweep;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
pub mod timeseries;
pub mod ttl;
mod views;
mod write;

pub use backup::{
    BackupPoint, COPY_LEASE, Checkpoint, CollectionAtPoint, CollectionDigest, CopyEnd, CopyHold,
    CopyPhase, CopyPoint, CopyState, CopyTarget, EntriesPosition, EntriesReader, EntriesWriter,
    ExpiryAfterRestore, IndexDigest, LEASE as BACKUP_LEASE, MAX_RUN_BYTES, PointContent, RUN_BYTES,
    RecordedBackup, RestoreSource, SessionsPart, approximate_entry_bytes, end_of_run, identity_of,
    last_log_time, moved_by, note_copying, note_moved,
};
pub use catalog::{
    Attached, Capped, Collection, Core, History, Index, SearchIndex, SearchVersion, Settings,
    UseCounter, VisibleIndexes,
};
pub use check::{CheckedStore, FaultyPart, StoreFault};
pub use ddl::{
    CollModChange, CollModResult, CreateIndexesOptions, CreateIndexesResult, IndexSelector,
    NewExpireAfter, NewSearchIndex, RenameTarget, Replacement, SearchSelector, TempMark,
};
pub use empty_timestamps::is_empty_timestamp;
pub use feed::{FedDocument, FeedFiles, FeedStep};
pub use index::{
    DocumentCheck, FilterCompiler, IndexField, IndexSpec, RecordFilter, WriteTime, check_id_index,
    kinds,
};
pub use isolation::{BeforeRecord, ReadView, SessionKey, TransactionOwner};
pub use oplog::{
    ChangeScope, EntryVisitor as LogVisitor, LogEnd, LogEntry, LogLimits, LogObject, LogOperation,
    LogRange, LogSizes, LostTimes, OPLOG, OperationVisitor, Oplog, SYSTEM_VIEWS, StoreIdentity,
    UpdateStyle, Watch,
};
pub use policy::watch::RESTORED;
pub use policy::{ExpireAfter, TtlIndexRules, TtlParameters};
pub use read::{
    CollectionSizes, CountLimit, CountResult, Entry, EntryFinding, EntryVisitor, FilesCheck,
    RangesVisitor, RecordKeys, RecordVisitor, RecordsVisitor, ScanResult, Snapshot,
    ValidateOptions, ValidatedIndex, ValidationResult, position_of, whole_range,
};
pub use record::error::from_kv as of_engine;
pub use record::{IdKey, RecordKey, RetiredTally, StoredDocument, id_key, new_uuid, record_id};
pub use replay::Replay;
pub use session::StoreSession;
pub use store::{CatalogMarks, Store, StoreOptions, StoreRole};
pub use ttl::TtlStats;
pub use views::{
    MAX_VIEW_DEPTH, ReadsOf, ResolvedView, SHOW_BUCKETS_STAGE, UNPACK_STAGE, View, buckets_view,
};

pub use write::{
    COMMIT_STATEMENT, DefinitionChange, ExecutedStatements, FsyncLock, OpenTransaction,
    OtherCollection, ReplayedChange, Statement, TransactionSize, UnitCollections, WriteOptions,
    WriteUnit, Writer, WritingCommand,
};

// Types of the byte store that callers of scans and of backups need.
pub use mayfly_kv::{CheckpointFile, Direction, FIRST_PAGE, KeyRange, MAX_PAGE, ScanLimit};
