//! `mayflydb backup`: makes a backup through a running server, or lists, verifies and prunes the
//! backups of a repository, for which no server is needed.

use std::io::Write;
use std::sync::Arc;

use anyhow::{Context, anyhow};
use clap::{Args, Subcommand};
use mayfly_base::{Clock, SystemClock};
use mayfly_repository::{
    BackupId, KeepReason, ProblemKind, PruneOptions, PrunePlan, Repository, Retention, Transfer,
    VerifyReport, VerifyScope,
};

use super::place::{Missing, Place};
use super::{failed, progress, show};
use crate::failure::{Failure, FailureKind};

/// The flags of `mayflydb backup`.
#[derive(Clone, Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct BackupFlags {
    /// List, verify or prune the backups of a repository
    #[command(subcommand)]
    pub action: Option<BackupAction>,
    /// The server to back up: mongodb://user:password@host:27017
    #[arg(long, value_name = "URI")]
    pub uri: Option<String>,
    /// The repository: a folder of the server's machine, or s3://bucket/prefix
    #[arg(long, value_name = "PLACE")]
    pub to: Option<String>,
    /// auto: send new files only; none: send all files [default: auto]
    #[arg(long, value_name = "PARENT")]
    pub parent: Option<String>,
    /// Largest rate in millions of bytes per second [default: no limit]
    #[arg(long = "maxMBps", value_name = "MB")]
    pub max_mbps: Option<u32>,
}

/// A task with the backups of a repository.
#[derive(Clone, Debug, Subcommand)]
pub enum BackupAction {
    /// List the backups and the times to which a restore is possible
    List {
        /// The repository: a folder of this machine, or s3://bucket/prefix
        #[arg(long, value_name = "PLACE")]
        to: String,
    },
    /// Read all objects and compare them with their checksums
    Verify {
        /// The repository: a folder of this machine, or s3://bucket/prefix
        #[arg(long, value_name = "PLACE")]
        to: String,
        /// Only this backup, and the log after it
        #[arg(long, value_name = "ID")]
        backup: Option<String>,
        /// Largest rate in millions of bytes per second [default: no limit]
        #[arg(long = "maxMBps", value_name = "MB")]
        max_mbps: Option<u32>,
    },
    /// Delete old backups, and what only they need; without --yes it prints what it would delete
    Prune {
        /// The repository: a folder of this machine, or s3://bucket/prefix
        #[arg(long, value_name = "PLACE")]
        to: String,
        /// Number of the newest backups to keep
        #[arg(long = "keep-last", value_name = "N", default_value_t = 0)]
        keep_last: u32,
        /// Number of days of which the newest backup is kept
        #[arg(long = "keep-daily", value_name = "N", default_value_t = 0)]
        keep_daily: u32,
        /// Number of weeks of which the newest backup is kept
        #[arg(long = "keep-weekly", value_name = "N", default_value_t = 0)]
        keep_weekly: u32,
        /// A backup to delete in any case, also if its manifest is damaged; repeatable
        #[arg(long, value_name = "ID")]
        delete: Vec<String>,
        /// Delete
        #[arg(long)]
        yes: bool,
    },
}

/// Runs the task, and prints its result for people.
///
/// # Errors
/// A [`Failure`] with the exit code.
pub fn run(flags: &BackupFlags, out: &mut impl Write) -> anyhow::Result<()> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let text = match &flags.action {
        None => super::client::back_up(flags)?,
        Some(BackupAction::List { to }) => block_on(list(to, clock))?,
        Some(BackupAction::Verify { to, backup, max_mbps }) => {
            block_on(verify(to, backup.as_deref(), max_mbps.unwrap_or(0), clock))?
        }
        Some(BackupAction::Prune { to, keep_last, keep_daily, keep_weekly, delete, yes }) => {
            let retention = Retention {
                keep_last: *keep_last,
                keep_daily: *keep_daily,
                keep_weekly: *keep_weekly,
            };
            let mode = if *yes { PruneMode::Delete } else { PruneMode::Show };
            block_on(prune(to, retention, delete, mode, clock))?
        }
    };
    out.write_all(text.as_bytes()).context("cannot write the result")
}

/// Runs a task over a repository.
pub(crate) fn block_on<T>(task: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.context("cannot start the runtime")?;
    let result = runtime.block_on(task);
    runtime.shutdown_background();
    result
}

/// Opens an existing repository.
///
/// # Errors
/// A [`Failure`].
pub(crate) async fn open(to: &str, clock: &Arc<dyn Clock>) -> anyhow::Result<Repository> {
    let tried = || format!("cannot open the repository {to}");
    let objects = Place::of_operator(to).open(Missing::Refuse, clock.now_ms());
    let objects = objects.map_err(|error| {
        let advice = "name a folder that a backup was made to, or s3://bucket/prefix";
        anyhow!("{}", error.message()).context(Failure::new(FailureKind::Folder, tried(), advice))
    })?;
    let opened = Repository::open(objects, clock.clone()).await;
    opened.map_err(|error| failed::repository(tried(), error))
}

/// Parses the name of a backup.
///
/// # Errors
/// A [`Failure`].
pub(crate) fn backup_id(text: &str) -> anyhow::Result<BackupId> {
    let advice = "'mayflydb backup list' shows the names";
    let tried = "cannot use this backup";
    text.parse().map_err(|error| failed::options(tried, format!("{error}"), advice))
}

async fn list(to: &str, clock: Arc<dyn Clock>) -> anyhow::Result<String> {
    let repository = open(to, &clock).await?;
    let failed = |error| failed::repository(format!("cannot list the backups in {to}"), error);
    let backups = repository.backups().await.map_err(failed)?;
    let ranges = repository.restore_ranges().await.map_err(failed)?;
    let mut text = show::backups(&backups);
    if !ranges.is_empty() {
        text += &format!("Restores are possible to: {}.\n", show::ranges(&ranges));
    }
    Ok(text)
}

async fn verify(
    to: &str,
    backup: Option<&str>,
    max_mbps: u32,
    clock: Arc<dyn Clock>,
) -> anyhow::Result<String> {
    let scope = match backup {
        Some(id) => VerifyScope::Backup(backup_id(id)?),
        None => VerifyScope::All,
    };
    let repository = open(to, &clock).await?;
    let bar = progress::bar("Verifying", 0);
    let shown = bar.clone();
    let transfer =
        Transfer::new(clock).with_max_mb_per_second(max_mbps).with_report(move |progress| {
            shown.set_length(progress.total);
            shown.set_position(progress.done);
        });
    let report = repository.verify(&scope, &transfer).await;
    bar.finish_and_clear();
    let tried = format!("cannot verify the repository {to}");
    let report = report.map_err(|error| failed::repository(&*tried, error))?;
    let VerifyReport { backups, objects, bytes, problems } = &report;
    let counted = format!("{backups} backups, {objects} objects, {}", show::size(*bytes));
    if problems.is_empty() {
        return Ok(format!("The repository is whole: {counted} were read.\n"));
    }
    let mut text = format!("{counted} were read; {} problems were found:", problems.len());
    for problem in problems {
        let needed: Vec<&str> = problem.backups.iter().map(BackupId::as_str).collect();
        let needed = match needed.is_empty() {
            true => String::new(),
            false => format!(" (needed by {})", needed.join(", ")),
        };
        text += &format!(" '{}': {}{needed};", problem.object, found(&problem.kind));
    }
    let advice = "restore these objects from a copy of the repository, or delete them and make a \
                  backup with --parent none";
    let failure = Failure::new(FailureKind::Damage, "the repository is damaged", advice);
    Err(anyhow!(text.trim_end_matches(';').to_owned()).context(failure))
}

fn found(kind: &ProblemKind) -> String {
    match kind {
        ProblemKind::Missing => "does not exist".to_owned(),
        ProblemKind::Damaged(why) => format!("is damaged: {why}"),
        ProblemKind::Unreadable(why) => format!("cannot be read: {why}"),
        ProblemKind::Break(found) => found.to_string(),
    }
}

/// Whether a prune deletes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PruneMode {
    Show,
    Delete,
}

async fn prune(
    to: &str,
    retention: Retention,
    delete: &[String],
    mode: PruneMode,
    clock: Arc<dyn Clock>,
) -> anyhow::Result<String> {
    let delete = delete.iter().map(|id| backup_id(id)).collect::<anyhow::Result<Vec<_>>>()?;
    let repository = open(to, &clock).await?;
    let failed = |error| failed::repository(format!("cannot prune the repository {to}"), error);
    let options = PruneOptions { retention, keep: Vec::new(), delete };
    let plan = repository.plan_prune(&options).await.map_err(failed)?;
    let mut text = planned(&plan);
    match mode {
        PruneMode::Show => text += "Nothing was deleted; --yes deletes.\n",
        PruneMode::Delete => {
            repository.apply_prune(&plan, &Transfer::new(clock)).await.map_err(failed)?;
            text += "This was deleted.\n";
        }
    }
    Ok(text)
}

fn planned(plan: &PrunePlan) -> String {
    let mut text = String::new();
    for kept in &plan.keep {
        let reasons: Vec<&str> = kept.reasons.iter().map(|reason| reason_text(*reason)).collect();
        text += &format!("keep    {}  {}\n", kept.id, reasons.join(", "));
    }
    for id in &plan.delete {
        text += &format!("delete  {id}\n");
    }
    for lock in &plan.running {
        text += &format!("in use  {lock}: a backup or a prune is running\n");
    }
    let (contents, log) = (plan.contents.len(), plan.log.len());
    let size = show::size(plan.bytes());
    text + &format!("{contents} files ({size}) and {log} parts of the log are no longer needed.\n")
}

fn reason_text(reason: KeepReason) -> &'static str {
    match reason {
        KeepReason::Last => "last",
        KeepReason::Daily => "daily",
        KeepReason::Weekly => "weekly",
        KeepReason::Newest => "the newest",
        KeepReason::NewestWhole => "the newest that is whole",
        KeepReason::Requested => "requested",
    }
}
