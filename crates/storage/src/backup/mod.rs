//! What a store contributes to its backups: a consistent point of all keyspaces, the identity of
//! the store, the list of its backups, and the changes that make a restored folder a store of its
//! own.
//!
//! A backup is made in these steps, of which this folder has all but the second:
//!
//! 1. [`Store::backup_point`](crate::Store::backup_point) writes a checkpoint of one time of the
//!    log; an engine without files holds a snapshot instead. Commits wait only for this, not during
//!    the copy.
//! 2. The caller copies the checkpoint's files, or the [`entries`] of the snapshot, and calls
//!    [`BackupPoint::check`] in between.
//! 3. [`Store::record_backup`](crate::Store::record_backup) notes that the backup is complete. The
//!    checkpoint is removed when the [`BackupPoint`] is dropped, however the backup ends.
//!
//! [`copy`] moves a store to another engine while clients use it.
//!
//! A restored folder is opened once, offline, by
//! [`Store::become_restored`](crate::Store::become_restored).

mod copy;
mod entries;
mod history;
mod point;
mod restored;

pub(crate) use copy::CopyExport;
pub use copy::{
    COPY_LEASE, CollectionDigest, CopyEnd, CopyHold, CopyPhase, CopyPoint, CopyState, CopyTarget,
    EntriesPosition, IndexDigest, SessionsPart, identity_of, last_log_time, moved_by, note_copying,
    note_moved,
};
pub(crate) use entries::refuse_unfinished;
pub use entries::{
    EntriesReader, EntriesWriter, MAX_RUN_BYTES, RUN_BYTES, approximate_entry_bytes, end_of_run,
};
pub use history::RecordedBackup;
pub use point::{BackupPoint, Checkpoint, CollectionAtPoint, LEASE, PointContent};
pub use restored::{ExpiryAfterRestore, RestoreSource};

#[cfg(test)]
mod tests;
