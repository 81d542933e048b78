//! Verification: reads every object and compares it with what the manifests, the names and the
//! headers say of it.

use std::collections::{BTreeMap, HashMap, HashSet};

use futures_util::{StreamExt, TryStreamExt, stream};
use sha2::{Digest as _, Sha256};

use crate::error::{Error, Result, StoreProblem};
use crate::fetch::check_size;
use crate::log::{Links, LogBreak, LogPart, PartKind, breaks, wrong_links};
use crate::manifest::Manifest;
use crate::names::{BackupId, Checksum, ClusterTime, Timeline};
use crate::objects::{content_name, manifest_name, timeline_prefix};
use crate::repository::{IDENTITY, Repository, read_identity};
use crate::transfer::Transfer;

/// Objects that are read at the same time.
const AT_ONCE: usize = 2;
/// Objects that the store may fail to read before verification ends with the store's error.
const MAX_UNREADABLE: usize = 10;

/// What to verify.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VerifyScope {
    /// All backups and all of the log.
    All,
    /// One backup, and the log of its timeline after it.
    Backup(BackupId),
}

/// What a verification found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VerifyReport {
    /// The backups whose manifests were read.
    pub backups: usize,
    /// The objects with content and the parts of the log that were read.
    pub objects: usize,
    /// The bytes that were read.
    pub bytes: u64,
    /// All problems, by object. Empty for a repository that is whole.
    pub problems: Vec<Problem>,
}

/// A problem of one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The name of the object, or of a timeline for a break of its log.
    pub object: String,
    /// What is wrong.
    pub kind: ProblemKind,
    /// The backups that cannot be restored because of it.
    pub backups: Vec<BackupId>,
}

/// Kinds of problems that a verification finds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProblemKind {
    /// The object does not exist.
    Missing,
    /// The object is not what was written.
    Damaged(String),
    /// The store failed to read the object.
    Unreadable(String),
    /// The log is not continuous.
    Break(LogBreak),
}

/// Content that manifests name: its size and the backups that need it.
struct Needed {
    size: u64,
    backups: Vec<BackupId>,
}

impl Repository {
    /// Reads every object in the scope. Recorded gaps of the log are not problems; objects that
    /// nothing references are not read.
    ///
    /// # Errors
    /// [`Error::Missing`] for a backup that does not exist, [`Error::Cancelled`], [`Error::Store`]
    /// if the store fails as a whole. Damage is in the report.
    pub async fn verify(&self, scope: &VerifyScope, transfer: &Transfer) -> Result<VerifyReport> {
        let mut found = Found::default();
        found.keep(IDENTITY, Vec::new(), read_identity(&self.objects).await)?;
        let ids = match scope {
            VerifyScope::All => self.backup_ids().await?,
            VerifyScope::Backup(id) => vec![id.clone()],
        };
        let mut needed = HashMap::new();
        let mut starts: BTreeMap<Timeline, ClusterTime> = BTreeMap::new();
        for id in ids {
            transfer.check()?;
            let manifest = match self.manifest(&id).await {
                Err(Error::Missing { .. }) if *scope == VerifyScope::All => continue,
                Err(error @ Error::Missing { .. }) => return Err(error),
                read => found.keep(&manifest_name(&id), vec![id.clone()], read)?,
            };
            let Some(manifest) = manifest else { continue };
            found.report.backups += 1;
            let start = starts.entry(manifest.timeline.clone()).or_insert(manifest.time);
            *start = manifest.time.min(*start);
            need(&mut needed, manifest);
        }
        let mut logs = self.logs().await?;
        if let VerifyScope::Backup(_) = scope {
            logs.retain(|timeline, parts| {
                let start = starts.get(timeline);
                parts.retain(|part| start.is_some_and(|start| part.name.to > *start));
                start.is_some()
            });
        }
        transfer.set_total(needed.values().map(|needed| needed.size).fold(0, u64::saturating_add));
        self.verify_contents(needed, transfer, &mut found).await?;
        self.forget_deleted(&mut found.report).await?;
        for (timeline, parts) in logs {
            self.verify_log(&timeline, &parts, transfer, &mut found).await?;
        }
        found.report.problems.sort_by(|a, b| a.object.cmp(&b.object));
        Ok(found.report)
    }

    async fn verify_contents(
        &self,
        needed: HashMap<Checksum, Needed>,
        transfer: &Transfer,
        found: &mut Found,
    ) -> Result<()> {
        let reads = needed.into_iter().map(|(checksum, needed)| async move {
            let read = self.verify_content(&checksum, needed.size, transfer).await;
            (content_name(&checksum), needed, read)
        });
        let mut reads = stream::iter(reads).buffer_unordered(AT_ONCE);
        while let Some((name, needed, read)) = reads.next().await {
            found.read(&name, needed.size);
            found.keep(&name, needed.backups, read)?;
        }
        Ok(())
    }

    /// Removes problems of backups that a prune has deleted in the meantime.
    async fn forget_deleted(&self, report: &mut VerifyReport) -> Result<()> {
        if report.problems.iter().all(|problem| problem.backups.is_empty()) {
            return Ok(());
        }
        let ids: HashSet<BackupId> = self.backup_ids().await?.into_iter().collect();
        report.problems.retain_mut(|problem| {
            let had_none = problem.backups.is_empty();
            problem.backups.retain(|id| ids.contains(id));
            had_none || !problem.backups.is_empty()
        });
        Ok(())
    }

    async fn verify_content(
        &self,
        checksum: &Checksum,
        expected: u64,
        transfer: &Transfer,
    ) -> Result<()> {
        transfer.check()?;
        let name = content_name(checksum);
        let (size, mut pieces) = self.objects.stream(&name).await?;
        check_size(&name, size, expected)?;
        let mut hasher = Sha256::new();
        while let Some(piece) = pieces.try_next().await? {
            transfer.pace_sending(piece.len() as u64).await?;
            hasher.update(&piece);
            transfer.advance(piece.len() as u64);
        }
        match Checksum::from_bytes(hasher.finalize().into()) == *checksum {
            true => Ok(()),
            false => Err(Error::damaged(&name, "its SHA-256 is not its name")),
        }
    }

    async fn verify_log(
        &self,
        timeline: &Timeline,
        parts: &[LogPart],
        transfer: &Transfer,
        found: &mut Found,
    ) -> Result<()> {
        let mut breaks = breaks(parts);
        breaks.retain(|found| !matches!(found, LogBreak::Gap { .. }));
        // Links between neighbours that can both be read.
        let mut before: Option<(LogPart, Links)> = None;
        for part in parts {
            transfer.check()?;
            let object = part.object();
            if part.kind == PartKind::Gap {
                let read = self.read_gap(&part.name).await;
                found.read(&object, 0);
                found.keep(&object, Vec::new(), read)?;
                continue;
            }
            let read = self.read_segment(&part.name).await;
            let bytes = read.as_ref().map_or(0, |segment| segment.entries.len() as u64);
            transfer.pace_sending(bytes).await?;
            found.read(&object, bytes);
            let segment = found.keep(&object, Vec::new(), read)?;
            let links =
                segment.map(|segment| Links { link: segment.link, previous: segment.previous });
            let here = links.map(|links| (part.clone(), links));
            if let (Some((a, links_a)), Some((b, links_b))) = (before.take(), &here) {
                let names = [a.name, b.name.clone()];
                breaks.extend(wrong_links(&names, &[links_a, links_b.clone()]));
            }
            before = here;
        }
        let prefix = timeline_prefix(timeline);
        let problem = |found: LogBreak| {
            let object = match &found {
                LogBreak::Overlap { object } | LogBreak::WrongLink { object } => object.clone(),
                LogBreak::Gap { .. } | LogBreak::Missing { .. } => prefix.clone(),
            };
            Problem { object, kind: ProblemKind::Break(found), backups: Vec::new() }
        };
        found.report.problems.extend(breaks.into_iter().map(problem));
        Ok(())
    }
}

/// The report so far, and the number of objects that the store could not read.
#[derive(Default)]
struct Found {
    report: VerifyReport,
    unreadable: usize,
}

impl Found {
    fn read(&mut self, object: &str, bytes: u64) {
        tracing::trace!(object, bytes, "verified");
        self.report.objects += 1;
        self.report.bytes = self.report.bytes.saturating_add(bytes);
    }

    /// The value that was read, or a problem of the object in the report.
    ///
    /// # Errors
    /// Those that are not about this object.
    fn keep<T>(
        &mut self,
        object: &str,
        backups: Vec<BackupId>,
        read: Result<T>,
    ) -> Result<Option<T>> {
        let kind = match read {
            Ok(value) => return Ok(Some(value)),
            Err(Error::Missing { .. } | Error::NotEmpty { .. }) => ProblemKind::Missing,
            Err(Error::Damaged { why, .. }) => ProblemKind::Damaged(why),
            Err(
                error @ (Error::NewerFormat { .. }
                | Error::OtherStore { .. }
                | Error::TooLarge { .. }),
            ) => ProblemKind::Damaged(error.to_string()),
            Err(Error::Store { problem: StoreProblem::Other, source, .. })
                if self.unreadable < MAX_UNREADABLE =>
            {
                self.unreadable += 1;
                ProblemKind::Unreadable(source.to_string())
            }
            Err(error) => return Err(error),
        };
        self.report.problems.push(Problem { object: object.to_owned(), kind, backups });
        Ok(None)
    }
}

fn need(needed: &mut HashMap<Checksum, Needed>, manifest: Manifest) {
    for file in manifest.files {
        let new = || Needed { size: file.size, backups: Vec::new() };
        let entry = needed.entry(file.sha256).or_insert_with(new);
        if entry.backups.last() != Some(&manifest.id) {
            entry.backups.push(manifest.id.clone());
        }
    }
}
