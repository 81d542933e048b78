//! The command `backup`: copies a checkpoint of the store, or all entries of a snapshot, into a
//! repository.
//!
//! The repository is asynchronous, and commands are not: a thread of its own runs the backup, and
//! the command's thread waits for it. After the operation was killed the backup has a short time to
//! remove its lock from the repository; a request that hangs is then given up with its thread.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Duration;

use mayfly_base::{Clock, Error, ErrorCode, Result};
use mayfly_kv::HeldSnapshot;
use mayfly_repository::{
    AddedFile, Backup, BackupId, BackupKind, BackupStart, ClusterTime, CollectionEntry,
    FileContent, FileOptions, Manifest, Repository, StoreId, Timeline, Transfer,
};
use mayfly_service::{BackupOutcome, BackupParent, BackupRequest, BackupRunner};
use mayfly_storage::{
    BackupPoint, Checkpoint, PointContent, RecordedBackup, Store, StoreIdentity,
    approximate_entry_bytes,
};
use mayfly_work::op::OpProgress;
use mayfly_work::{OpCtx, current, give_way};

use super::entries;
use super::place::{BackupOptions, Missing, Place, real_path};

/// How often the command checks whether it must end.
const LOOK: Duration = Duration::from_millis(100);
/// The time that an ended backup has to release its lock.
const GRACE: Duration = Duration::from_millis(700);
/// Lower than clients' commands and the TTL monitor.
const NICENESS: i32 = 10;
/// The phase that `currentOp` shows.
const PHASE: &str = "Backup";

/// Makes backups of a store.
pub(crate) struct FileBackups {
    pub(crate) store: Arc<Store>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) options: BackupOptions,
    /// The folder that must not contain the repository.
    pub(crate) data_folder: PathBuf,
}

/// A backup that is being made: all that its thread needs.
struct Job {
    store: Arc<Store>,
    clock: Arc<dyn Clock>,
    op: Arc<OpCtx>,
    point: Arc<BackupPoint>,
    place: Place,
    parent: BackupParent,
    max_mb_per_second: u32,
}

/// The counts of files that were added.
#[derive(Default)]
struct Added {
    reused_files: i64,
    sent_bytes: i64,
}

impl BackupRunner for FileBackups {
    fn back_up(&self, op: &Arc<OpCtx>, request: &BackupRequest) -> Result<BackupOutcome> {
        let place = self.options.allowed(&request.to)?;
        self.check_outside(&place)?;
        let point = Arc::new(current::wait(|| self.store.backup_point(op))?);
        let job = Job {
            store: self.store.clone(),
            clock: self.clock.clone(),
            op: op.clone(),
            point: point.clone(),
            place,
            parent: request.parent,
            max_mb_per_second: request.max_mb_per_second,
        };
        let (outcome, finished) = sync_channel(1);
        let run = move || {
            // The command may have ended without it.
            let _ = outcome.send(job.run_to_end());
        };
        let thread = std::thread::Builder::new().name("backup".into()).spawn(run);
        thread.map_err(|error| {
            let text = format!("cannot start a thread for the backup: {error}");
            Error::new(ErrorCode::OperationFailed, text)
        })?;
        current::wait(|| {
            loop {
                match finished.recv_timeout(LOOK) {
                    Ok(outcome) => return outcome,
                    Err(RecvTimeoutError::Disconnected) => {
                        let text = "the backup ended without a result";
                        return Err(Error::new(ErrorCode::InternalError, text));
                    }
                    Err(RecvTimeoutError::Timeout) => {}
                }
                let ended = op.check().and_then(|()| point.check());
                if let Err(error) = ended {
                    // The thread sees the same, and ends within its time of grace.
                    let _ = finished.recv_timeout(GRACE + LOOK);
                    return Err(error);
                }
            }
        })
    }
}

impl FileBackups {
    /// Refuses a repository inside of the data folder, which a restore or the loss of the disk
    /// would take along.
    fn check_outside(&self, place: &Place) -> Result<()> {
        let Place::Folder(folder) = place else { return Ok(()) };
        let is_inside = || Some(real_path(folder)?.starts_with(real_path(&self.data_folder)?));
        match is_inside() {
            Some(false) => Ok(()),
            Some(true) | None => Err(Error::new(
                ErrorCode::InvalidOptions,
                format!("'to' is inside of the data folder: {}", folder.display()),
            )),
        }
    }
}

impl Job {
    fn run_to_end(self) -> Result<BackupOutcome> {
        // Threads of the runtime read files, compute checksums, and write to folders.
        let give_way = || give_way("a backup", NICENESS);
        give_way();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .on_thread_start(give_way)
            .build();
        let runtime = runtime.map_err(|error| {
            let text = format!("cannot start a runtime for the backup: {error}");
            Error::new(ErrorCode::OperationFailed, text)
        })?;
        let job = Arc::new(self);
        let result = runtime.block_on(async {
            tokio::select! {
                outcome = job.run() => outcome,
                () = job.ended() => Err(Error::new(ErrorCode::Interrupted, "the backup was ended")),
            }
        });
        runtime.shutdown_background();
        // The reason counts more than the error that followed from it.
        job.op.check_ended().and_then(|()| job.point.check()).and(result)
    }

    /// Resolves when the operation has ended and the time of grace is over.
    async fn ended(&self) {
        while !self.must_end() {
            tokio::time::sleep(LOOK).await;
        }
        tokio::time::sleep(GRACE).await;
    }

    fn must_end(&self) -> bool {
        self.op.check_ended().is_err() || self.point.check().is_err()
    }

    async fn run(self: &Arc<Job>) -> Result<BackupOutcome> {
        let identity = &self.point.identity;
        let store: StoreId = hex::encode(identity.store).parse()?;
        let objects = self.place.open(Missing::Create, self.clock.now_ms())?;
        let repository = Repository::open_or_create(objects, self.clock.clone(), store).await?;
        let parent = match self.parent {
            BackupParent::Latest => self.latest(&repository, identity).await?,
            BackupParent::None => None,
        };
        let start = BackupStart {
            parent: parent.clone(),
            timeline: timeline(identity)?,
            kind: self.kind(),
            store_format: mayfly_kv_rocksdb::FORMAT,
            server_version: env!("CARGO_PKG_VERSION").to_owned(),
        };
        let mut backup = repository.begin(start).await?;
        let added = match &self.point.content {
            PointContent::Files(checkpoint) => self.add_files(checkpoint, &mut backup).await,
            PointContent::Entries(snapshot) => self.add_entries(snapshot, &mut backup).await,
        };
        let added = match added {
            Ok(added) => added,
            Err(error) => {
                if let Err(error) = backup.abandon().await {
                    tracing::debug!(%error, "the lock of a failed backup stays until it expires");
                }
                return Err(error);
            }
        };
        let manifest = backup.finish(cluster_time(self.point.time), self.collections()?).await?;
        self.record(&manifest, added.sent_bytes);
        Ok(BackupOutcome {
            id: manifest.id.to_string(),
            parent: parent.map(|id| id.to_string()),
            time: self.point.time,
            files: whole(manifest.files.len() as u64),
            reused_files: added.reused_files,
            bytes: whole(manifest.bytes()),
            sent_bytes: added.sent_bytes,
            checkpoint_micros: self.point.wait_micros,
        })
    }

    /// The latest backup in the repository that this folder has made, if its files can be taken
    /// over.
    async fn latest(
        &self,
        repository: &Repository,
        identity: &StoreIdentity,
    ) -> Result<Option<BackupId>> {
        let recorded = self.store.recorded_backups()?;
        let recorded: HashSet<&str> = recorded.iter().map(|backup| backup.id.as_str()).collect();
        let ids = repository.backup_ids().await?;
        let Some(id) = ids.into_iter().rev().find(|id| recorded.contains(id.as_str())) else {
            return Ok(None);
        };
        let fits = match repository.manifest(&id).await {
            Ok(found) => {
                found.timeline == timeline(identity)?
                    && found.kind == self.kind()
                    && found.store_format == mayfly_kv_rocksdb::FORMAT
            }
            Err(error) => {
                tracing::warn!(%error, backup = %id, "the last backup cannot be read; all files are sent again");
                false
            }
        };
        Ok(fits.then_some(id))
    }

    /// What the files of the backup contain.
    fn kind(&self) -> BackupKind {
        match &self.point.content {
            PointContent::Files(_) => BackupKind::Files,
            PointContent::Entries(_) => BackupKind::Entries,
        }
    }

    async fn add_entries(
        self: &Arc<Job>,
        snapshot: &Arc<dyn HeldSnapshot>,
        backup: &mut Backup,
    ) -> Result<Added> {
        let store = self.store.clone();
        let size = move || approximate_entry_bytes(store.engine());
        let sized = tokio::task::spawn_blocking(size).await;
        let total = sized.unwrap_or(Ok(0))?;
        let begun = OpProgress { message: PHASE, done: 0, total };
        self.op.update_info(|info| info.progress = Some(begun));
        let sent = entries::add(snapshot.clone(), backup, total, &self.transfer()).await?;
        Ok(Added { reused_files: 0, sent_bytes: whole(sent) })
    }

    async fn add_files(
        self: &Arc<Job>,
        checkpoint: &Checkpoint,
        backup: &mut Backup,
    ) -> Result<Added> {
        let transfer = self.transfer();
        let (mut files, mut sizes) = (Vec::new(), Vec::new());
        for file in &checkpoint.files {
            let local = checkpoint.folder.join(&file.name);
            let size = std::fs::metadata(&local).map_err(|error| {
                let text = format!("cannot read {}: {error}", local.display());
                Error::new(ErrorCode::FileStreamFailed, text)
            })?;
            let content = match file.number {
                Some(number) => FileContent::Immutable { number },
                None => FileContent::Mutable,
            };
            files.push((local, FileOptions { path: file.name.parse()?, content }));
            sizes.push(size.len());
        }
        let total = sizes.iter().sum();
        transfer.set_total(total);
        let begun = OpProgress { message: PHASE, done: 0, total };
        self.op.update_info(|info| info.progress = Some(begun));
        let mut added = Added::default();
        for (file, size) in backup.add_files(&files, &transfer).await?.into_iter().zip(sizes) {
            match file {
                AddedFile::Reused => added.reused_files += 1,
                AddedFile::Known => {}
                AddedFile::Sent => added.sent_bytes += whole(size),
            }
        }
        Ok(added)
    }

    /// Shows the progress of the operation, and ends with it.
    fn transfer(self: &Arc<Job>) -> Transfer {
        let (shown, ends) = (self.clone(), self.clone());
        Transfer::new(self.clock.clone())
            .with_max_mb_per_second(self.max_mb_per_second)
            .with_report(move |progress| {
                shown.point.renew();
                let progress =
                    OpProgress { message: PHASE, done: progress.done, total: progress.total };
                shown.op.update_info(|info| info.progress = Some(progress));
            })
            .with_cancel(move || ends.must_end())
    }

    fn collections(&self) -> Result<Vec<CollectionEntry>> {
        let entry = |collection: &mayfly_storage::CollectionAtPoint| CollectionEntry {
            ns: collection.ns.clone(),
            uuid: uuid::Uuid::from_bytes(collection.uuid),
            count: collection.documents,
        };
        Ok(self.point.collections.iter().map(entry).collect())
    }

    /// Notes the backup in the store. Without the note the next backup sends all files.
    fn record(&self, manifest: &Manifest, sent_bytes: i64) {
        let recorded = self.store.record_backup(&RecordedBackup {
            id: manifest.id.to_string(),
            to: self.place.to_string(),
            time: self.point.time,
            finished_ms: self.clock.now_ms(),
            bytes: whole(manifest.bytes()),
            sent_bytes,
        });
        let bytes = manifest.bytes();
        match recorded {
            Ok(()) => {
                tracing::info!(backup = %manifest.id, to = %self.place, bytes, sent = sent_bytes, "a backup is complete")
            }
            Err(error) => {
                tracing::warn!(%error, backup = %manifest.id, to = %self.place, "a backup is complete, but could not be noted; the next one sends all files")
            }
        }
    }
}

/// The name of the store's timeline in repositories.
pub(super) fn timeline(identity: &StoreIdentity) -> Result<Timeline> {
    Ok(format!("t{}", identity.timeline).parse()?)
}

/// The time of the log in the form of repositories.
pub(super) fn cluster_time(time: u64) -> ClusterTime {
    ClusterTime { seconds: (time >> 32) as u32, increment: time as u32 }
}

fn whole(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
