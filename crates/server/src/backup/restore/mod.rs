//! `mayflydb restore`: makes a data folder from a backup, without a server.
//!
//! | step | an interruption after it leaves |
//! |---|---|
//! | 1. the folder is created, or found empty; the marker is written | the marker |
//! | 2. the files are fetched, each checked before it gets its name | the files so far; another run fetches the rest |
//! | or all entries are written into a new store | a part of it, which another run replaces |
//! | 3. with `--at`: the entries of the log after the backup are applied | another run applies the rest |
//! | 4. the marker notes that all data is there | the same; another run fetches nothing |
//! | 5. the store becomes another store, with expiry suspended | a store that another run opens again |
//! | 6. with `--storageUrl`: all entries are written into the database | a part of it, which no server opens and another run replaces |
//! | 7. with `--storageUrl`: the marker notes it, the database becomes a store, the files are removed | another run does the rest of this |
//! | 8. the marker is removed | a data folder, or a database |
//!
//! A server refuses a folder with the marker ([`marker`]). The two files without which no version
//! opens a folder are fetched last.

mod entries;
mod files;
pub(crate) mod marker;
mod replay;
mod store;
mod target;

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, anyhow};
use clap::Args;
use mayfly_base::{Clock, SystemClock};
use mayfly_kv_rocksdb::FORMAT;
use mayfly_repository::{BackupKind, ClusterTime, Manifest, Repository};
use mayfly_storage::{ExpiryAfterRestore, RestoreSource};

use self::marker::{Marker, Phase};
use self::target::{Target, Wanted};
use super::archive::number;
use super::runner::cluster_time;
use super::task::{block_on, open};
use super::{failed, show};
use crate::failure::{Failure, FailureKind};
use crate::{data_folder, permissions, processes};

/// The flags of `mayflydb restore`.
#[derive(Clone, Debug, Args)]
pub struct RestoreFlags {
    /// The repository: a folder of this machine, or s3://bucket/prefix
    #[arg(long, value_name = "PLACE")]
    pub from: String,
    /// The backup to restore [default: the newest]
    #[arg(long, value_name = "ID")]
    pub backup: Option<String>,
    /// The time to restore, with a zone: 2026-11-24T10:15:00Z; needs an archive of the log
    #[arg(long, value_name = "TIME")]
    pub at: Option<String>,
    /// The new data folder, which must not exist or be empty; with --storageUrl, a folder for
    /// temporary files with room for all data
    #[arg(long, value_name = "FOLDER")]
    pub dbpath: PathBuf,
    /// The PostgreSQL database to restore into, in which there is no store
    #[arg(long = "storageUrl", value_name = "URL")]
    pub storage_url: Option<String>,
    /// Do not suspend expiry: what is due is deleted as soon as the server starts
    #[arg(long = "resumeExpiry")]
    pub resume_expiry: bool,
    /// Largest rate in millions of bytes per second [default: no limit]
    #[arg(long = "maxMBps", value_name = "MB")]
    pub max_mbps: Option<u32>,
}

impl RestoreFlags {
    fn expiry(&self) -> ExpiryAfterRestore {
        match self.resume_expiry {
            true => ExpiryAfterRestore::Resumed,
            false => ExpiryAfterRestore::Suspended,
        }
    }
}

/// Restores a backup, and prints its result for people.
///
/// # Errors
/// A [`Failure`] with the exit code.
pub fn run(flags: &RestoreFlags, out: &mut impl Write) -> anyhow::Result<()> {
    permissions::restrict_new_files();
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let restored = block_on(restore(flags, clock))?;
    out.write_all(restored.as_bytes()).context("cannot write the result")
}

async fn restore(flags: &RestoreFlags, clock: Arc<dyn Clock>) -> anyhow::Result<String> {
    let folder = &flags.dbpath;
    let begun = examine(folder)?;
    let wanted = Wanted::of(flags, begun.as_ref())?;
    let repository = open(&flags.from, &clock).await?;
    let target = Target::find(&repository, &flags.from, wanted).await?;
    let wanted = target.backup.clone();
    let tried = || format!("cannot restore the backup {wanted} into {}", folder.display());
    let failed = |error| failed::repository(tried(), error);
    let of_store = |error: mayfly_base::Error| store::failed(&error, tried());
    let manifest = repository.manifest(&wanted).await.map_err(failed)?;
    check_format(&manifest).context(Failure::new(
        FailureKind::Incompatible,
        tried(),
        "use the version of mayflydb that made the backup, or a later one",
    ))?;
    let last_time = last_time(&repository).await.map_err(failed)?;
    let database = flags.storage_url.as_deref();
    check_database(database, begun.as_ref(), &tried).await?;
    let marker = Marker {
        store: repository.store().to_string(),
        backup: wanted.to_string(),
        until: target.until,
        phase: Phase::Files,
    };
    let (_ours, phase) = begin(folder, &marker, &manifest, &tried)?;
    let write = |phase| {
        let marker = Marker { phase, ..marker.clone() };
        marker.write(folder).map_err(|error| of_io(error, tried()))
    };
    if phase == Phase::Files {
        let fetched = (&repository, &manifest);
        match manifest.kind {
            BackupKind::Files => files::fetch(fetched, flags, &clock).await.map_err(failed)?,
            BackupKind::Entries => entries::fetch(fetched, flags, &clock, &tried).await?,
        }
        write(if target.until.is_some() { Phase::Replay } else { Phase::Store })?;
    }
    let mut replayed = None;
    if target.until.is_some() && phase < Phase::Store {
        let data = (folder.as_path(), number(manifest.time));
        replayed = Some(replay::replay(&repository, &target, data, &tried).await?);
        write(Phase::Store)?;
    }
    let expiry = flags.expiry();
    let source = RestoreSource {
        backup: wanted.to_string(),
        time: number(manifest.time),
        last_time: number(last_time.max(manifest.time)),
    };
    if phase < Phase::Moved {
        let restored = (&source, expiry);
        store::become_restored(folder, &manifest, target.until, restored, clock)
            .map_err(of_store)?;
    }
    if let Some(url) = database {
        if phase < Phase::Moved {
            let (folder, tried) = (folder.clone(), tried());
            on_own_thread(url, move |url| store::copy_into_database(&folder, url, &tried)).await?;
            write(Phase::Moved)?;
        }
        let (folder, tried) = (folder.clone(), tried());
        on_own_thread(url, move |url| store::release_database(&folder, url, &tried)).await?;
    }
    Marker::remove(folder).map_err(|error| of_io(error, tried()))?;
    let place = database.map_or(folder.display().to_string(), |_| "the database".to_owned());
    Ok(summary(&manifest, &place, expiry, (target.until, replayed)))
}

/// Checks that there is a database if one is needed, and that it can take the store.
async fn check_database(
    database: Option<&str>,
    begun: Option<&Marker>,
    tried: &dyn Fn() -> String,
) -> anyhow::Result<()> {
    let is_moved = begun.is_some_and(|marker| marker.phase == Phase::Moved);
    match database {
        Some(url) if !is_moved => on_own_thread(url, store::check_database).await,
        None if is_moved => Err(store::lacks_database(tried())),
        _ => Ok(()),
    }
}

/// Calls what waits for the database.
async fn on_own_thread<T: Send + 'static>(
    url: &str,
    work: impl FnOnce(&str) -> anyhow::Result<T> + Send + 'static,
) -> anyhow::Result<T> {
    let url = url.to_owned();
    let done = tokio::task::spawn_blocking(move || work(&url)).await;
    done.context("a thread of the restore has ended")?
}

/// Creates and locks the folder, and writes the marker, unless a restore of this backup has begun
/// there. Returns the lock, and what is to be done.
fn begin(
    folder: &Path,
    marker: &Marker,
    manifest: &Manifest,
    tried: &dyn Fn() -> String,
) -> anyhow::Result<(File, Phase)> {
    let is_new = !folder.exists();
    fs::create_dir_all(folder).map_err(|error| of_io(error, tried()))?;
    let ours = marker::lock(folder).map_err(|error| of_io(error, tried()))?;
    match examine(folder)? {
        Some(found) if found.is_of(marker) => return Ok((ours, found.phase)),
        Some(found) => {
            let text = format!("{} into it is not complete", found.describe());
            let advice = "complete it by the same command with its --backup and --at, or delete \
                          the folder";
            return Err(anyhow!(text).context(Failure::new(FailureKind::Folder, tried(), advice)));
        }
        None => {}
    }
    if let Err(error) = files::check_room(folder, manifest) {
        if is_new {
            // It is empty; if it stays, that does no harm.
            let _ = fs::remove_dir(folder);
        }
        let advice = "free space on its disk, or choose another folder with --dbpath";
        return Err(error.context(Failure::new(FailureKind::Folder, tried(), advice)));
    }
    marker.write(folder).map_err(|error| of_io(error, tried()))?;
    Ok((ours, Phase::Files))
}

fn summary(
    manifest: &Manifest,
    place: &str,
    expiry: ExpiryAfterRestore,
    (until, replayed): (Option<u64>, Option<u64>),
) -> String {
    let (id, files, size) = (&manifest.id, manifest.files.len(), show::size(manifest.bytes()));
    let mut text = format!("The backup {id} ({files} files, {size}) was restored into {place}");
    if let Some(entries) = replayed {
        text += &format!(", with {entries} entries of the log after it");
    }
    let until = until.map_or(manifest.time, cluster_time);
    text += &format!(", as of {}.\n", until.rfc3339());
    text + match expiry {
        ExpiryAfterRestore::Suspended => {
            "Expiry is suspended: no document is deleted or hidden until the command ttlResume. \
             ttlStatus shows how many are due.\n"
        }
        ExpiryAfterRestore::Resumed => "Expiry runs as soon as the server is started.\n",
    }
}

/// Checks the folder; returns the marker of a restore that was interrupted.
fn examine(folder: &Path) -> anyhow::Result<Option<Marker>> {
    let tried = || format!("cannot restore into {}", folder.display());
    let refused = |text: String| {
        let advice = "name an empty folder or a new one with --dbpath";
        anyhow!(text).context(Failure::new(FailureKind::Folder, tried(), advice))
    };
    if let Some(holder) = processes::holding_lock(&folder.join(data_folder::LOCK_FILE)) {
        return Err(refused(format!("{holder}, has it open")));
    }
    if !folder.exists() {
        return Ok(None);
    }
    if let Some(marker) = Marker::read(folder).map_err(|error| of_io(error, tried()))? {
        return Ok(Some(marker));
    }
    for entry in fs::read_dir(folder).map_err(|error| of_io(error, tried()))? {
        let name = entry.map_err(|error| of_io(error, tried()))?.file_name();
        if !marker::may_be_before(&name) {
            let name = name.to_string_lossy();
            return Err(refused(format!("it is not empty: it contains '{name}'")));
        }
    }
    Ok(None)
}

fn of_io(error: io::Error, tried: String) -> anyhow::Error {
    let advice = data_folder::advice(error.kind());
    anyhow!(error).context(Failure::new(FailureKind::Folder, tried, advice))
}

fn check_format(manifest: &Manifest) -> anyhow::Result<()> {
    match manifest.store_format <= FORMAT {
        true => Ok(()),
        false => Err(anyhow!(
            "version {} made it with format {} of the data folder, and this version reads up to \
             {FORMAT}",
            manifest.server_version,
            manifest.store_format
        )),
    }
}

/// The last time that the repository knows.
async fn last_time(repository: &Repository) -> mayfly_repository::Result<ClusterTime> {
    let mut last = ClusterTime::default();
    for parts in repository.logs().await?.into_values() {
        last = parts.iter().map(|part| part.name.to).fold(last, Ord::max);
    }
    for backup in repository.backups().await? {
        last = last.max(backup.summary.map_or(last, |summary| summary.time));
    }
    Ok(last)
}
