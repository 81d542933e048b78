//! Backups: the one that is running, and the outcome of the last one.
//!
//! The service does not know repositories: the server installs a [`BackupRunner`], which makes the
//! backup. One backup runs at a time, because each keeps the space of the store's old files
//! occupied.

use std::sync::{Arc, OnceLock};

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_work::OpCtx;
use parking_lot::Mutex;

/// The parent of a backup: the earlier backup whose files it takes over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackupParent {
    /// The latest backup of this store in the repository, if there is one.
    Latest,
    /// None: all files are read and sent.
    None,
}

/// The options of a backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackupRequest {
    /// The folder or URL of the repository.
    pub to: String,
    /// Which earlier backup is the parent.
    pub parent: BackupParent,
    /// The limit of the rate in millions of bytes per second; 0 for none.
    pub max_mb_per_second: u32,
}

/// A backup that was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackupOutcome {
    /// The name of the backup.
    pub id: String,
    /// The parent, if there was one.
    pub parent: Option<String>,
    /// The backup contains the entries of the log up to this time.
    pub time: u64,
    /// The number of files.
    pub files: i64,
    /// The number of files that were taken over from the parent.
    pub reused_files: i64,
    /// The bytes of all files.
    pub bytes: i64,
    /// The bytes that were sent.
    pub sent_bytes: i64,
    /// How long commits waited for the checkpoint, in microseconds.
    pub checkpoint_micros: i64,
}

/// Makes backups of a store in repositories.
pub trait BackupRunner: Send + Sync {
    /// Makes a backup on behalf of an operation, which ends it and shows its progress.
    ///
    /// # Errors
    /// Errors of the destination, of the store and of the operation's deadline.
    fn back_up(&self, op: &Arc<OpCtx>, request: &BackupRequest) -> Result<BackupOutcome>;
}

/// The backup that is running.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunningBackup {
    /// The id of the operation.
    pub op_id: i32,
    /// The folder or URL of the repository.
    pub to: String,
    /// When it began, in milliseconds since 1970.
    pub started_ms: i64,
}

/// A backup that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedBackup {
    /// The folder or URL of the repository.
    pub to: String,
    /// When it failed, in milliseconds since 1970.
    pub at_ms: i64,
    /// The text of the error.
    pub error: String,
}

/// The state of the archive of the log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ArchiveStatus {
    /// The folder or URL of the repository.
    pub to: String,
    /// The repository has the entries of the log up to this time; 0 before the first segment.
    pub archived: u64,
    /// The number of gaps that this process has recorded.
    pub gaps: i64,
    /// The error of the last upload, if it failed.
    pub error: Option<String>,
}

/// The backups of this server.
#[derive(Default)]
pub struct Backups {
    runner: OnceLock<Arc<dyn BackupRunner>>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    running: Option<RunningBackup>,
    failed: Option<FailedBackup>,
    archive: Option<ArchiveStatus>,
}

impl Backups {
    /// Installs the runner. Only the first call has an effect.
    pub fn run_by(&self, runner: Arc<dyn BackupRunner>) {
        let _ = self.runner.set(runner);
    }

    /// Makes a backup, unless one is running.
    ///
    /// # Errors
    /// 115 CommandNotSupported without a runner, 117 ConflictingOperationInProgress; errors of the
    /// runner.
    pub fn back_up(&self, op: &Arc<OpCtx>, request: &BackupRequest) -> Result<BackupOutcome> {
        let Some(runner) = self.runner.get() else {
            let text = "the configuration allows no destination of backups: set backup.folder or \
                        backup.urls";
            return Err(Error::new(ErrorCode::CommandNotSupported, text));
        };
        let _running = self.begin(op, request)?;
        let outcome = runner.back_up(op, request);
        self.state.lock().failed = outcome.as_ref().err().map(|error| FailedBackup {
            to: request.to.clone(),
            at_ms: op.now_ms(),
            error: error.message().to_owned(),
        });
        outcome
    }

    fn begin(&self, op: &OpCtx, request: &BackupRequest) -> Result<Running<'_>> {
        let mut state = self.state.lock();
        if let Some(RunningBackup { op_id, to, .. }) = &state.running {
            let text = format!(
                "a backup to '{to}' is running as operation {op_id}; wait for its end, or end it \
                 with killOp"
            );
            return Err(Error::new(ErrorCode::ConflictingOperationInProgress, text));
        }
        state.running =
            Some(RunningBackup { op_id: op.id(), to: request.to.clone(), started_ms: op.now_ms() });
        Ok(Running(self))
    }

    /// The backup that is running.
    pub fn running(&self) -> Option<RunningBackup> {
        self.state.lock().running.clone()
    }

    /// The state of the archive of the log, if there is one.
    pub fn archive(&self) -> Option<ArchiveStatus> {
        self.state.lock().archive.clone()
    }

    /// Changes the state of the archive of the log.
    pub fn update_archive(&self, change: impl FnOnce(&mut ArchiveStatus)) {
        change(self.state.lock().archive.get_or_insert_default());
    }

    /// The last backup of this process, if it failed.
    pub fn failed(&self) -> Option<FailedBackup> {
        self.state.lock().failed.clone()
    }
}

/// Removes the running backup when dropped.
struct Running<'b>(&'b Backups);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.state.lock().running = None;
    }
}

#[cfg(test)]
mod tests {
    use mayfly_base::ManualClock;

    use super::*;

    /// A runner that tries to begin a second backup.
    struct Nested(Arc<Backups>);

    impl BackupRunner for Nested {
        fn back_up(&self, op: &Arc<OpCtx>, request: &BackupRequest) -> Result<BackupOutcome> {
            assert_eq!(self.0.running().map(|running| running.to), Some("x".into()));
            self.0.back_up(op, request)
        }
    }

    #[test]
    fn one_backup_runs_at_a_time() {
        let backups = Arc::new(Backups::default());
        let op = OpCtx::detached(Arc::new(ManualClock::at_ms(7)));
        let request =
            BackupRequest { to: "x".into(), parent: BackupParent::None, max_mb_per_second: 0 };
        let code = |result: Result<BackupOutcome>| result.unwrap_err().code();
        assert_eq!(code(backups.back_up(&op, &request)), ErrorCode::CommandNotSupported);
        assert_eq!(backups.failed(), None);
        backups.run_by(Arc::new(Nested(backups.clone())));
        let refused = code(backups.back_up(&op, &request));
        assert_eq!(refused, ErrorCode::ConflictingOperationInProgress);
        assert_eq!(backups.running(), None);
        assert_eq!(backups.failed().map(|failed| failed.at_ms), Some(7));
    }
}
