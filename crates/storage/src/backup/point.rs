//! A consistent point: a checkpoint that contains all commits up to one time of the log, and none
//! after it.
//!
//! 1. All keyspaces are flushed. Commits continue, and the checkpoint has little else to copy.
//! 2. [`OplogClock::at_rest`](crate::oplog::OplogClock::at_rest) waits until no commit is under
//!    way, and lets none begin.
//! 3. The last time of the log is noted, and the engine writes the checkpoint: links to its tables,
//!    and a copy of the end of its write-ahead log.
//!
//! An engine without files has no checkpoint: it takes a snapshot in step 3, whose entries are read
//! ([`EntriesReader`](super::EntriesReader)).
//!
//! The checkpoint keeps the space of its tables occupied on the disk, also of those that the store
//! has replaced since; a snapshot keeps a database from removing old versions. Therefore it is
//! removed when it is no longer used ([`LEASE`]), and when the disk is nearly full:
//! [`BackupPoint::check`] then fails.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use mayfly_base::{Clock, Error, ErrorCode, Result};
use mayfly_kv::{CheckpointFile, Engine, HeldSnapshot, KvResult};
use mayfly_work::OpCtx;

use crate::Store;
use crate::oplog::StoreIdentity;
use crate::record::error::from_kv;

/// How long a point lives without [`BackupPoint::renew`].
pub const LEASE: Duration = Duration::from_secs(600);

/// The store at one time of its log.
pub struct BackupPoint {
    /// It contains the entries of the log up to this time.
    pub time: u64,
    /// The identity of the store.
    pub identity: StoreIdentity,
    /// Where the data is.
    pub content: PointContent,
    /// The collections at that time.
    pub collections: Vec<CollectionAtPoint>,
    /// How long commits waited for the checkpoint or the snapshot, in microseconds.
    pub wait_micros: i64,
    engine: Arc<dyn Engine>,
    clock: Arc<dyn Clock>,
    used_micros: AtomicI64,
    /// Exists while this is the point of a backup cursor.
    of_cursor: Option<Arc<()>>,
}

/// Where the data of a point is.
pub enum PointContent {
    /// A copy in a folder.
    Files(Checkpoint),
    /// A snapshot, whose entries are read.
    Entries(Arc<dyn HeldSnapshot>),
}

/// A folder with a copy of a store. It is removed when this is dropped.
#[derive(Debug)]
pub struct Checkpoint {
    /// The folder, below that for temporary files.
    pub folder: PathBuf,
    /// The files in it.
    pub files: Vec<CheckpointFile>,
}

/// A collection at the time of a point.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CollectionAtPoint {
    /// The namespace, `database.collection`.
    pub ns: String,
    /// Its identity, which a rename does not change.
    pub uuid: [u8; 16],
    /// The number of documents; of buckets for a time series.
    pub documents: u64,
}

impl BackupPoint {
    /// Whether this is the point of a backup cursor.
    pub fn is_of_cursor(&self) -> bool {
        self.of_cursor.is_some()
    }

    /// The checkpoint, if the engine has files.
    pub fn checkpoint(&self) -> Option<&Checkpoint> {
        match &self.content {
            PointContent::Files(checkpoint) => Some(checkpoint),
            PointContent::Entries(_) => None,
        }
    }

    /// Extends the lease. Called after each step forward of the copy.
    pub fn renew(&self) {
        self.used_micros.store(self.clock.monotonic_micros(), Ordering::Relaxed);
    }

    /// Checks that the point may still be used.
    ///
    /// # Errors
    /// 262 ExceededTimeLimit when its lease has run out; 14031 OutOfDiskSpace when
    /// the disk is nearly full.
    pub fn check(&self) -> Result<()> {
        let unused = self.clock.monotonic_micros() - self.used_micros.load(Ordering::Relaxed);
        if u64::try_from(unused).unwrap_or(0) > LEASE.as_micros() as u64 {
            let text = format!(
                "the backup has copied nothing for {} seconds and was given up, because it \
                 occupies disk space; check the destination, and start it again",
                LEASE.as_secs()
            );
            return Err(Error::new(ErrorCode::ExceededTimeLimit, text));
        }
        match self.engine.is_nearly_full() {
            false => Ok(()),
            true => Err(Error::new(
                ErrorCode::OutOfDiskSpace,
                "the disk is nearly full, and the backup was given up, because it occupies disk \
                 space; free some, and start the backup again",
            )),
        }
    }
}

impl Checkpoint {
    /// A checkpoint that is still to be written, in a folder for temporary files.
    fn new_in(scratch: &Path) -> Checkpoint {
        let folder = scratch.join(format!("backup-{:016x}", rand::random::<u64>()));
        Checkpoint { folder, files: Vec::new() }
    }

    fn filled_by(mut self, engine: &dyn Engine) -> KvResult<Checkpoint> {
        self.files = engine.checkpoint(&self.folder)?;
        Ok(self)
    }
}

impl Drop for Checkpoint {
    fn drop(&mut self) {
        match std::fs::remove_dir_all(&self.folder) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                tracing::warn!(%error, folder = %self.folder.display(), "the checkpoint of a backup cannot be removed; the next start removes it");
            }
            _ => {}
        }
    }
}

impl Store {
    /// Writes a checkpoint of the present state, or takes a snapshot of it if the engine has no
    /// files.
    ///
    /// # Errors
    /// 14031 OutOfDiskSpace, errors of the operation's deadline and of the engine.
    pub fn backup_point(&self, op: &OpCtx) -> Result<BackupPoint> {
        let scratch = self.engine.scratch(0).map_err(from_kv)?;
        self.point(op, scratch)
    }

    /// Takes a snapshot of the present state, also of an engine with files.
    ///
    /// # Errors
    /// As [`Store::backup_point`].
    pub(super) fn point_of_entries(&self, op: &OpCtx) -> Result<BackupPoint> {
        self.point(op, None)
    }

    fn point(&self, op: &OpCtx, scratch: Option<PathBuf>) -> Result<BackupPoint> {
        // Under the lock of `fsync` no file of the folder changes.
        let _writing = self.fsync_lock.enter(op)?;
        let identity = self.ensure_identity()?;
        for collection in self.collections(None) {
            // Counts that a crash has lost.
            self.count_documents(op, &collection)?;
        }
        if scratch.is_some() {
            self.engine.flush().map_err(from_kv)?;
        }
        let mut checkpoint = scratch.map(|scratch| Checkpoint::new_in(&scratch));
        let began = self.clock.monotonic_micros();
        let (time, content, collections) = self.oplog.clock.at_rest(|time| {
            let content = match checkpoint.take() {
                Some(checkpoint) => checkpoint.filled_by(&*self.engine).map(PointContent::Files),
                None => self.engine.hold_for_export().map(PointContent::Entries),
            };
            (time, content, self.collections_at_rest())
        });
        let ended = self.clock.monotonic_micros();
        let point = BackupPoint {
            time,
            identity,
            content: content.map_err(from_kv)?,
            collections,
            wait_micros: ended - began,
            engine: self.engine.clone(),
            clock: self.clock.clone(),
            used_micros: AtomicI64::new(ended),
            of_cursor: None,
        };
        point.check()?;
        Ok(point)
    }

    /// The point of a backup cursor, of which there is one at a time.
    ///
    /// # Errors
    /// 50886 while there is another one; 115 CommandNotSupported for an engine without files;
    /// errors of [`Store::backup_point`].
    pub fn backup_point_of_cursor(&self, op: &OpCtx) -> Result<BackupPoint> {
        if self.engine.scratch(0).map_err(from_kv)?.is_none() {
            return Err(without_files(self.engine.name()));
        }
        let own = Arc::new(());
        {
            let mut present = self.cursor_point.lock();
            if present.strong_count() > 0 {
                let text =
                    "The existing backup cursor must be closed before $backupCursor can succeed.";
                return Err(Error::new(ErrorCode(50886), text));
            }
            *present = Arc::downgrade(&own);
        }
        let mut point = self.backup_point(op)?;
        point.of_cursor = Some(own);
        Ok(point)
    }

    fn collections_at_rest(&self) -> Vec<CollectionAtPoint> {
        let at_point = |collection: &Arc<crate::Collection>| CollectionAtPoint {
            ns: collection.namespace().as_str().to_owned(),
            uuid: collection.uuid(),
            documents: collection.counts.documents.load(Ordering::Acquire).max(0).unsigned_abs(),
        };
        let collections = self.collections(None);
        collections.iter().filter(|it| !it.is_temporary()).map(at_point).collect()
    }
}

fn without_files(engine: &str) -> Error {
    let text = format!(
        "the storage engine '{engine}' has no files that a program could copy; use the command \
         'backup'"
    );
    Error::new(ErrorCode::CommandNotSupported, text)
}
