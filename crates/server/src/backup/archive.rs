//! The archive of the log: a thread that follows the operation log and writes segments of it into a
//! repository.
//!
//! A segment is written when the interval is over or [`SEGMENT_BYTES`] are collected, if there are
//! entries. It contains whole entries, with the documents that the log only refers to. An upload
//! that fails is tried again with a growing pause; the log meanwhile keeps the entries, up to a
//! limit ([`Oplog::note_archived`](mayfly_storage::Oplog::note_archived)). If they are cut
//! nevertheless, a gap is recorded, and restores to later times need a backup after it.
//!
//! The archive continues where the repository ends. In a repository without a log it begins with
//! the last backup there, if the log still has the entries after it, otherwise with the start of
//! the archive.

use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context;
use mayfly_base::{ErrorCode, Result};
use mayfly_repository::{
    ClusterTime, PartKind, Repository, SegmentLink, SegmentName, StoreId, Timeline,
};
use mayfly_service::Service;

use super::place::{BackupOptions, Missing, Place};
use super::runner::{cluster_time, timeline};

/// Bytes of entries after which a segment is written before the interval is over.
const SEGMENT_BYTES: usize = 16 << 20;
/// The interval of two looks at the log.
const LOOK: Duration = Duration::from_secs(1);
/// The longest pause after a failure, in looks at the log.
const LONGEST_PAUSE: u32 = 64;
/// The time limit of the last segment at a stop.
const LAST_SEGMENT: Duration = Duration::from_secs(5);
/// The reason of a gap.
const CUT: &str = "the operation log was cut before it was archived";

/// The thread of the archive; it ends when this is stopped or dropped.
pub(crate) struct LogArchive {
    stop: mpsc::Sender<()>,
    thread: JoinHandle<()>,
}

impl LogArchive {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system gives no thread.
    pub(crate) fn start(
        service: Arc<Service>,
        options: &BackupOptions,
        to: &str,
    ) -> anyhow::Result<LogArchive> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.context("cannot start a runtime for the archive of the log")?;
        let (stop, stopped) = mpsc::channel();
        let interval_secs = options.log_interval_secs;
        let lag_bytes =
            options.max_lag_bytes.unwrap_or_else(|| service.store.oplog().limits().bytes);
        let place = Place::of_operator(to);
        service.backups.update_archive(|status| status.to = place.to_string());
        let begun = service.store.oplog().settled();
        // Until the position is known, nothing may be cut.
        service.store.oplog().note_archived(service.store.oplog().cut(), lag_bytes);
        let mut follower = Follower {
            service,
            place,
            interval_secs,
            lag_bytes,
            begun,
            state: None,
            collected: Vec::new(),
            collected_to: 0,
            waited_secs: 0,
        };
        let run = move || {
            follower.run(&runtime, &stopped);
            runtime.shutdown_background();
        };
        let thread = std::thread::Builder::new().name("log archive".into()).spawn(run);
        let thread = thread.context("cannot start a thread for the archive of the log")?;
        Ok(LogArchive { stop, thread })
    }

    /// Writes a last segment, and ends the thread.
    pub(crate) fn stop(self) {
        drop(self.stop);
        // A thread that has panicked has been reported.
        let _ = self.thread.join();
    }
}

/// The repository, and where the archive ends there.
struct State {
    repository: Repository,
    timeline: Timeline,
    previous: Option<SegmentLink>,
    /// The repository has the entries up to this time.
    archived: u64,
}

struct Follower {
    service: Arc<Service>,
    place: Place,
    interval_secs: u64,
    /// By how many bytes the log may exceed its limit while it waits for the archive.
    lag_bytes: u64,
    /// The last time of the log when the archive was started. A backup that is under way when the
    /// repository is opened has a later one.
    begun: u64,
    /// `None` until the repository could be opened.
    state: Option<State>,
    /// Entries of the next segment.
    collected: Vec<u8>,
    /// The time up to which entries are collected.
    collected_to: u64,
    waited_secs: u64,
}

impl Follower {
    fn run(&mut self, runtime: &tokio::runtime::Runtime, stopped: &mpsc::Receiver<()>) {
        let (mut failures, mut pause) = (0u32, 0u32);
        loop {
            let ends = stopped.recv_timeout(LOOK) != Err(RecvTimeoutError::Timeout);
            if pause > 0 && !ends {
                pause -= 1;
                continue;
            }
            let step = async {
                match ends {
                    true => tokio::time::timeout(LAST_SEGMENT, self.step(Due::Now))
                        .await
                        .unwrap_or_else(|_| Err(late())),
                    false => self.step(Due::AtInterval).await,
                }
            };
            match runtime.block_on(step) {
                Ok(()) => {
                    failures = 0;
                    self.service.backups.update_archive(|status| status.error = None);
                }
                Err(error) => {
                    failures += 1;
                    pause = 1 << failures.min(LONGEST_PAUSE.ilog2());
                    let text = error.message().to_owned();
                    tracing::warn!(error = %text, to = %self.place, failures, "the operation log could not be archived; the archive tries again");
                    self.service.backups.update_archive(|status| status.error = Some(text));
                }
            }
            if ends {
                return;
            }
        }
    }

    async fn step(&mut self, due: Due) -> Result<()> {
        if self.state.is_none() {
            let state = self.open().await?;
            self.note_archived(state.archived);
            (self.collected_to, self.state) = (state.archived, Some(state));
        }
        self.waited_secs += LOOK.as_secs();
        loop {
            self.collect().await?;
            let is_full = self.collected.len() >= SEGMENT_BYTES;
            let is_due = due == Due::Now || self.waited_secs >= self.interval_secs;
            if self.collected.is_empty() || !(is_full || is_due) {
                return Ok(());
            }
            self.write().await?;
            if !is_full {
                self.waited_secs = 0;
                return Ok(());
            }
        }
    }

    /// Opens the repository, and finds where the archive ends.
    async fn open(&self) -> Result<State> {
        let store = &self.service.store;
        let identity = store.ensure_identity()?;
        let id: StoreId = hex::encode(identity.store).parse()?;
        let clock = self.service.clock.clone();
        let objects = self.place.open(Missing::Create, clock.now_ms())?;
        let repository = Repository::open_or_create(objects, clock, id).await?;
        let timeline = timeline(&identity)?;
        let parts = repository.log(&timeline).await?;
        let last_segment = parts.iter().rev().find(|part| part.kind == PartKind::Segment);
        let previous = match last_segment {
            Some(part) => Some(repository.read_segment(&part.name).await?.link),
            None => None,
        };
        let end = parts.iter().map(|part| number(part.name.to)).max();
        let archived = match end {
            Some(end) => end,
            None => self.begin_at(&repository).await?,
        };
        Ok(State { repository, timeline, previous, archived })
    }

    /// The time at which a new archive begins.
    async fn begin_at(&self, repository: &Repository) -> Result<u64> {
        let oplog = self.service.store.oplog();
        let ids = repository.backup_ids().await?;
        let recorded = self.service.store.recorded_backups()?;
        let last =
            recorded.iter().rev().find(|backup| ids.iter().any(|id| id.as_str() == backup.id));
        let usable = last.filter(|backup| backup.time >= oplog.cut());
        Ok(usable.map_or(self.begun, |backup| backup.time))
    }

    /// Collects entries after those that were collected, until there is enough for a segment.
    async fn collect(&mut self) -> Result<()> {
        let oplog = self.service.store.oplog();
        let room = SEGMENT_BYTES.saturating_sub(self.collected.len());
        match oplog.read_for_archive(self.collected_to, room, &mut self.collected) {
            Ok(reached) => {
                self.collected_to = reached;
                Ok(())
            }
            Err(error) if error.code() == ErrorCode::ChangeStreamHistoryLost => {
                self.skip_cut().await
            }
            Err(error) => Err(error),
        }
    }

    /// Records a gap for entries that were cut, after what was collected before them.
    async fn skip_cut(&mut self) -> Result<()> {
        if !self.collected.is_empty() {
            self.write().await?;
        }
        let cut = self.service.store.oplog().cut();
        let Some(state) = self.state.as_mut().filter(|state| state.archived < cut) else {
            return Ok(());
        };
        let name = SegmentName {
            timeline: state.timeline.clone(),
            from: cluster_time(state.archived),
            to: cluster_time(cut),
        };
        state.repository.write_gap(&name, CUT).await?;
        tracing::warn!(from = %name.from, to = %name.to, "the operation log was cut before it was archived: a restore to later times needs a new backup");
        state.archived = cut;
        self.collected_to = cut;
        self.service.backups.update_archive(|status| status.gaps += 1);
        self.note_archived(cut);
        Ok(())
    }

    /// Writes what was collected as a segment.
    async fn write(&mut self) -> Result<()> {
        let Some(state) = &mut self.state else { return Ok(()) };
        // After a power cut the archive must not have entries that the store has lost.
        self.service.store.sync_all()?;
        let name = SegmentName {
            timeline: state.timeline.clone(),
            from: cluster_time(state.archived),
            to: cluster_time(self.collected_to),
        };
        let written =
            state.repository.write_segment(&name, state.previous.clone(), &self.collected);
        match written.await {
            Ok(link) => state.previous = Some(link),
            Err(error) => {
                // A later attempt reads again where the repository ends: another attempt may have
                // reached it although its reply was lost.
                (self.state, self.collected) = (None, Vec::new());
                return Err(error.into());
            }
        }
        state.archived = self.collected_to;
        self.collected.clear();
        let archived = self.collected_to;
        self.note_archived(archived);
        Ok(())
    }

    fn note_archived(&self, archived: u64) {
        self.service.store.oplog().note_archived(archived, self.lag_bytes);
        self.service.backups.update_archive(|status| status.archived = archived);
    }
}

/// When a segment is written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Due {
    AtInterval,
    Now,
}

fn late() -> mayfly_base::Error {
    let text = "the last segment was not written in time";
    mayfly_base::Error::new(ErrorCode::ExceededTimeLimit, text)
}

/// The time of a repository as the log has it.
pub(super) fn number(time: ClusterTime) -> u64 {
    u64::from(time.seconds) << 32 | u64::from(time.increment)
}
