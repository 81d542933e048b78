//! Deleting old backups: a plan, which changes nothing, and its execution.
//!
//! The manifest of a backup names all of its content, also what it took over from its parent, so
//! that a restore never reads the parent. A parent is therefore deleted like any other backup, and
//! content that a kept manifest names stays, whichever backup sent it.
//!
//! A plan is executed in this order, and an interruption after any step leaves a valid repository:
//!
//! 1. the lock, which keeps backups from starting;
//! 2. manifests, the oldest first: from then on these backups do not exist;
//! 3. content that no manifest names: the next prune finds what is left of it;
//! 4. parts of the log, the oldest first, so that what remains is continuous.

mod retention;

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::error::{Error, Result};
use crate::lock::{Lock, Operation, find};
use crate::log::LogPart;
use crate::manifest::Manifest;
use crate::names::{BackupId, Checksum, ClusterTime, Timeline};
use crate::objects::{content_name, manifest_name};
use crate::repository::Repository;
use crate::transfer::Transfer;

pub use retention::{KeepReason, Retention};

/// Objects that are deleted between two looks at the lock.
const BATCH: usize = 1000;

/// What a prune may delete.
#[derive(Clone, Debug, Default)]
pub struct PruneOptions {
    /// The backups to keep.
    pub retention: Retention,
    /// Further backups to keep, for example one whose verification found no problem.
    pub keep: Vec<BackupId>,
    /// Backups to delete even if the retention keeps them. The only way to delete a backup with a
    /// damaged manifest.
    pub delete: Vec<BackupId>,
}

/// What a prune will delete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrunePlan {
    /// The backups that stay, the newest last.
    pub keep: Vec<KeptBackup>,
    /// The backups to delete, the newest last.
    pub delete: Vec<BackupId>,
    /// Content that no kept backup names, with its size in bytes. While a backup runs, the content
    /// that it has sent is here, too.
    pub contents: Vec<(Checksum, u64)>,
    /// Parts of the log that no kept backup needs.
    pub log: Vec<LogPart>,
    /// Locks of running operations. While there are any, the plan cannot be executed.
    pub running: Vec<String>,
}

/// A backup that a prune keeps, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptBackup {
    /// The name of the backup.
    pub id: BackupId,
    /// The reasons, at least one.
    pub reasons: Vec<KeepReason>,
}

/// A backup as the plan sees it.
struct Candidate {
    id: BackupId,
    timeline: Timeline,
    time: ClusterTime,
    is_whole: bool,
    reasons: Vec<KeepReason>,
}

impl PrunePlan {
    /// The bytes of the content to delete.
    pub fn bytes(&self) -> u64 {
        self.contents.iter().map(|(_, size)| *size).fold(0, u64::saturating_add)
    }
}

impl Repository {
    /// Makes a plan and changes nothing. The newest backup, and the newest one that has all of its
    /// objects with the right sizes, are always kept, except for those in
    /// [`PruneOptions::delete`].
    ///
    /// # Errors
    /// [`Error::InvalidInput`] for a retention that keeps nothing, or if no whole backup would
    /// remain of those that there are; [`Error::Damaged`] or [`Error::NewerFormat`] for a manifest
    /// that cannot be read, because its content is unknown; [`Error::Store`].
    pub async fn plan_prune(&self, options: &PruneOptions) -> Result<PrunePlan> {
        if options.retention.is_empty() {
            let why = "a retention of 0 would delete all backups; keep at least one";
            return Err(Error::InvalidInput { why: why.into() });
        }
        let contents = self.objects.contents().await?;
        let mut candidates = self.candidates(&contents, &options.delete).await?;
        choose(&mut candidates, options);
        let (keep, delete): (Vec<_>, Vec<_>) =
            candidates.iter().partition(|candidate| !candidate.reasons.is_empty());
        if keep.iter().all(|kept| !kept.is_whole) && delete.iter().any(|gone| gone.is_whole) {
            let why = "no backup with all of its objects would remain; make a backup first";
            return Err(Error::InvalidInput { why: why.into() });
        }
        let contents = self.unreferenced(contents, &keep).await?;
        let log = self.unneeded_log(&keep).await?;
        let mut delete: Vec<BackupId> = delete.into_iter().map(|gone| gone.id.clone()).collect();
        // Without those whose manifests cannot be read, which are no candidates.
        let existing: HashSet<BackupId> = self.backup_ids().await?.into_iter().collect();
        delete.extend(options.delete.iter().filter(|id| existing.contains(id)).cloned());
        delete.sort();
        delete.dedup();
        let locks = find(&self.objects, self.clock.now_ms()).await?;
        let running = locks.into_iter().filter(|lock| !lock.is_expired).map(|lock| lock.name);
        let keep = keep
            .into_iter()
            .map(|kept| KeptBackup { id: kept.id.clone(), reasons: kept.reasons.clone() });
        Ok(PrunePlan { keep: keep.collect(), delete, contents, log, running: running.collect() })
    }

    /// All backups except for those that are deleted on request.
    async fn candidates(
        &self,
        contents: &HashMap<Checksum, u64>,
        delete: &[BackupId],
    ) -> Result<Vec<Candidate>> {
        let mut candidates = Vec::new();
        for id in self.backup_ids().await? {
            let manifest = match self.manifest(&id).await {
                Err(_) if delete.contains(&id) => continue,
                read => read?,
            };
            let is_there = |checksum, size| contents.get(checksum) == Some(size);
            let is_whole = manifest.files.iter().all(|file| is_there(&file.sha256, &file.size));
            let Manifest { timeline, time, .. } = manifest;
            candidates.push(Candidate { id, timeline, time, is_whole, reasons: Vec::new() });
        }
        Ok(candidates)
    }

    /// The content that none of the kept backups names, sorted.
    async fn unreferenced(
        &self,
        mut contents: HashMap<Checksum, u64>,
        keep: &[&Candidate],
    ) -> Result<Vec<(Checksum, u64)>> {
        for kept in keep {
            for file in self.manifest(&kept.id).await?.files {
                contents.remove(&file.sha256);
            }
        }
        let mut contents: Vec<_> = contents.into_iter().collect();
        contents.sort();
        Ok(contents)
    }

    /// The parts of the log that end before the oldest kept backup of their timeline. A timeline
    /// without a kept backup is compared with the oldest of all, since its backups may follow.
    async fn unneeded_log(&self, keep: &[&Candidate]) -> Result<Vec<LogPart>> {
        let Some(oldest) = keep.iter().map(|kept| kept.time).min() else { return Ok(Vec::new()) };
        let mut starts: BTreeMap<&Timeline, ClusterTime> = BTreeMap::new();
        for kept in keep {
            let start = starts.entry(&kept.timeline).or_insert(kept.time);
            *start = kept.time.min(*start);
        }
        let logs = self.logs().await?.into_iter().flat_map(|(timeline, parts)| {
            let start = starts.get(&timeline).copied().unwrap_or(oldest);
            parts.into_iter().filter(move |part| part.name.to <= start)
        });
        Ok(logs.collect())
    }

    /// Executes a plan. It may be executed again after an interruption.
    ///
    /// # Errors
    /// [`Error::Busy`] while a backup or another prune runs, [`Error::PlanOutdated`] if a backup
    /// was made after the plan, [`Error::Cancelled`], [`Error::LockLost`], [`Error::Store`].
    pub async fn apply_prune(&self, plan: &PrunePlan, transfer: &Transfer) -> Result<()> {
        let id = BackupId::new(self.clock.now_ms())?;
        let lock = Lock::take(&self.objects, &self.clock, Operation::Prune, &id).await?;
        let applied = self.apply_locked(plan, transfer, &lock).await;
        let released = lock.release().await;
        applied.and(released)
    }

    async fn apply_locked(&self, plan: &PrunePlan, transfer: &Transfer, lock: &Lock) -> Result<()> {
        // Manifests never change, so with the same backups the same content is unreferenced.
        let kept: Vec<&BackupId> = plan.keep.iter().map(|kept| &kept.id).collect();
        for id in self.backup_ids().await? {
            if !kept.contains(&&id) && !plan.delete.contains(&id) {
                return Err(Error::PlanOutdated);
            }
        }
        let manifests = plan.delete.iter().map(manifest_name);
        let contents = plan.contents.iter().map(|(checksum, _)| content_name(checksum));
        let log = plan.log.iter().map(LogPart::object);
        for names in [manifests.collect::<Vec<_>>(), contents.collect(), log.collect()] {
            for batch in names.chunks(BATCH) {
                transfer.check()?;
                lock.keep().await?;
                self.objects.delete_all(batch).await?;
            }
        }
        Ok(())
    }
}

/// Enters the reasons to keep backups, which are sorted, the newest last.
fn choose(candidates: &mut [Candidate], options: &PruneOptions) {
    candidates.sort_by(|a, b| a.id.cmp(&b.id));
    let is_free = |candidate: &Candidate| !options.delete.contains(&candidate.id);
    let mut free: Vec<&mut Candidate> =
        candidates.iter_mut().filter(|candidate| is_free(candidate)).collect();
    let times: Vec<u32> = free.iter().map(|candidate| candidate.time.seconds).collect();
    for (candidate, reasons) in free.iter_mut().zip(options.retention.reasons(&times)) {
        candidate.reasons = reasons;
        if options.keep.contains(&candidate.id) {
            candidate.reasons.push(KeepReason::Requested);
        }
    }
    if let Some(newest) = free.last_mut() {
        newest.reasons.push(KeepReason::Newest);
    }
    if let Some(newest) = free.iter_mut().rev().find(|candidate| candidate.is_whole) {
        newest.reasons.push(KeepReason::NewestWhole);
    }
}
