//! The repository of backups: files, manifests, checksums, and segments of the log, in an object
//! store or a folder. It knows no store: the caller gives it files and bytes.
//!
//! ```text
//! repository.json                          the store whose backups are here
//! backups/<id>/manifest.json               one backup; without it the backup does not exist
//! files/<sha256>                           the content of files, each once
//! log/<timeline>/<from>-<to>.bson.zst      a segment of the log
//! log/<timeline>/<from>-<to>.gap.json      times whose log is lost
//! locks/<operation>-<id>.json              a backup or a prune that is running
//! ```
//!
//! [`Repository`] has all operations: [`begin`](Repository::begin) a backup,
//! [`fetch`](Repository::fetch) its files, [`verify`](Repository::verify) and
//! [prune](Repository::plan_prune) backups, write and read the [log](Repository::chain). The
//! README of this crate describes the layout, the order of writes, and what an interruption leaves.
//!
//! All operations are asynchronous and need a runtime of `tokio` with time. Reads of local files
//! and checksums run on its threads for blocking work.

mod backup;
mod error;
mod fetch;
mod folder;
mod lock;
mod log;
mod manifest;
mod names;
mod objects;
mod prune;
mod repository;
mod sealed;
mod transfer;
mod upload;
mod verify;

pub use backup::{AddedFile, Backup, BackupStart, FileContent, FileOptions};
pub use error::{Error, Result, StoreProblem};
pub use folder::FolderStore;
pub use log::{
    Chain, LogBreak, LogPart, MAX_SEGMENT_BYTES, PartKind, RestoreRange, Segment, SegmentLink,
    SegmentName,
};
pub use manifest::{BackupKind, BackupSummary, CollectionEntry, FileEntry, Manifest};
pub use names::{BackupId, Checksum, ClusterTime, FilePath, StoreId, Timeline};
pub use prune::{KeepReason, KeptBackup, PruneOptions, PrunePlan, Retention};
pub use repository::{ListedBackup, Repository};
pub use transfer::{Progress, Transfer};
pub use verify::{Problem, ProblemKind, VerifyReport, VerifyScope};

#[cfg(test)]
mod tests;
