//! `mayflydb restore`: makes a data folder from a backup, without a server.
//!
//! | step | an interruption after it leaves |
//! |---|---|
//! | 1. the folder is created, or found empty; the marker is written | the marker |
//! | 2. the files are fetched, each checked before it gets its name | the files so far; another run fetches the rest |
//! | 3. with `--at`: the entries of the log after the backup are applied | another run applies the rest |
//! | 4. the marker notes that all data is there | the same; another run fetches nothing |
//! | 5. the store becomes another store, with expiry suspended | a store that another run opens again |
//! | 6. the marker is removed | a data folder |
//!
//! A server refuses a folder with the marker ([`marker`]). The two files without which no version
//! opens a folder are fetched last.

pub(crate) mod marker;
mod replay;
mod target;

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, anyhow};
use clap::Args;
use mayfly_base::{Clock, SystemClock};
use mayfly_kv::Engine;
use mayfly_kv_rocksdb::{FORMAT, FORMAT_FILE, OlderFormat};
use mayfly_repository::{BackupKind, ClusterTime, FileEntry, Manifest, Repository, Transfer};
use mayfly_storage::{ExpiryAfterRestore, RestoreSource, Store};

use self::marker::{Marker, Phase};
use self::replay::LogReplay;
use self::target::{Target, Wanted};
use super::archive::number;
use super::runner::cluster_time;
use super::task::{block_on, open};
use super::{failed, progress, show};
use crate::failure::{Failure, FailureKind};
use crate::{data_folder, offline, permissions, processes};

/// Files that are fetched last.
const LAST_FILES: [&str; 2] = ["CURRENT", FORMAT_FILE];
/// Names of files that were being fetched when a restore was interrupted.
const UNFINISHED_PREFIX: &str = ".tmp";

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
    /// The new data folder, which must not exist or be empty
    #[arg(long, value_name = "FOLDER")]
    pub dbpath: PathBuf,
    /// Do not suspend expiry: what is due is deleted as soon as the server starts
    #[arg(long = "resumeExpiry")]
    pub resume_expiry: bool,
    /// Largest rate in millions of bytes per second [default: no limit]
    #[arg(long = "maxMBps", value_name = "MB")]
    pub max_mbps: Option<u32>,
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
    let manifest = repository.manifest(&wanted).await.map_err(failed)?;
    check_format(&manifest).context(Failure::new(
        FailureKind::Incompatible,
        tried(),
        "use the version of mayflydb that made the backup, or a later one",
    ))?;
    let last_time = last_time(&repository).await.map_err(failed)?;
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
        fetch(&repository, &manifest, flags, &clock).await.map_err(failed)?;
        write(if target.until.is_some() { Phase::Replay } else { Phase::Store })?;
    }
    let damaged = || {
        let advice = "delete the folder and restore another backup; 'mayflydb backup verify' \
                      checks them";
        Failure::new(FailureKind::Damage, tried(), advice)
    };
    let mut replayed = None;
    if let Some(until) = target.until.filter(|_| phase != Phase::Store) {
        let from = number(manifest.time);
        let mut replay = LogReplay::open(folder, from, until).with_context(damaged)?;
        for name in &target.segments {
            let segment = repository.read_segment(name).await.map_err(failed)?;
            replay.segment(&segment.entries).with_context(damaged)?;
        }
        replayed = Some(replay.end().with_context(damaged)?);
        write(Phase::Store)?;
    }
    let store = open_store(folder, &manifest, target.until, clock).with_context(damaged)?;
    let expiry = match flags.resume_expiry {
        true => ExpiryAfterRestore::Resumed,
        false => ExpiryAfterRestore::Suspended,
    };
    let source = RestoreSource {
        backup: wanted.to_string(),
        time: number(manifest.time),
        last_time: number(last_time.max(manifest.time)),
    };
    let become_own = store.become_restored(&source, expiry).and_then(|_| store.close());
    become_own.map_err(|error| offline::of_store(&error)).with_context(damaged)?;
    Marker::remove(folder).map_err(|error| of_io(error, tried()))?;
    Ok(summary(&manifest, folder, expiry, target.until.zip(replayed)))
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
    if let Err(error) = check_room(folder, manifest) {
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
    folder: &Path,
    expiry: ExpiryAfterRestore,
    replayed: Option<(u64, u64)>,
) -> String {
    let (id, files, size) = (&manifest.id, manifest.files.len(), show::size(manifest.bytes()));
    let folder = folder.display();
    let mut text = format!("The backup {id} ({files} files, {size}) was restored into {folder}");
    text += &match replayed {
        None => format!(", as of {}.\n", manifest.time.rfc3339()),
        Some((until, entries)) => {
            let until = cluster_time(until).rfc3339();
            format!(", with {entries} entries of the log after it, as of {until}.\n")
        }
    };
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
        if name != "lost+found" && !marker::is_unfinished(&name) {
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
    if manifest.kind != BackupKind::Files {
        return Err(anyhow!("its kind is not known to this version"));
    }
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

/// Checks that the disk has room for all files.
fn check_room(folder: &Path, manifest: &Manifest) -> anyhow::Result<()> {
    let disk = rustix::fs::statvfs(folder).map_err(io::Error::from)?;
    let free = disk.f_bavail.saturating_mul(disk.f_frsize);
    let needed = manifest.bytes();
    match needed < free {
        true => Ok(()),
        false => {
            let (needed, free) = (show::size(needed), show::size(free));
            Err(anyhow!("the disk is full: {needed} are needed, and {free} are free"))
        }
    }
}

async fn fetch(
    repository: &Repository,
    manifest: &Manifest,
    flags: &RestoreFlags,
    clock: &Arc<dyn Clock>,
) -> mayfly_repository::Result<()> {
    let folder = &flags.dbpath;
    remove_unfinished(folder);
    let bar = progress::bar("Restoring", manifest.bytes());
    let shown = bar.clone();
    let transfer = Transfer::new(clock.clone())
        .with_max_mb_per_second(flags.max_mbps.unwrap_or(0))
        .with_report(move |progress| shown.set_position(progress.done));
    transfer.set_total(manifest.bytes());
    let is_last = |file: &&FileEntry| LAST_FILES.contains(&file.path.as_str());
    let (last, first): (Vec<_>, Vec<_>) = manifest.files.iter().partition(is_last);
    for file in first.into_iter().chain(last) {
        // A file has its name only when it was checked and synced.
        let found = fs::metadata(folder.join(file.path.as_str()));
        if found.is_ok_and(|found| found.len() == file.size) {
            continue;
        }
        repository.fetch(file, folder, &transfer).await?;
    }
    bar.finish_and_clear();
    Ok(())
}

/// Removes what a restore that was interrupted has left of files. What stays is only in the way.
fn remove_unfinished(folder: &Path) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        if entry.file_name().to_string_lossy().starts_with(UNFINISHED_PREFIX) {
            let _ = fs::remove_file(entry.path());
        }
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

fn open_engine(folder: &Path) -> anyhow::Result<Arc<dyn Engine>> {
    File::open(folder)?.sync_all()?;
    // The backup keeps the files of an older format.
    Ok(offline::open_engine(folder, OlderFormat::Replace)?)
}

/// Opens the store. Without a replay, it must have the collections of the manifest.
fn open_store(
    folder: &Path,
    manifest: &Manifest,
    until: Option<u64>,
    clock: Arc<dyn Clock>,
) -> anyhow::Result<Arc<Store>> {
    let store = offline::open_store(open_engine(folder)?, clock)?;
    for expected in manifest.collections.iter().filter(|_| until.is_none()) {
        let has = |collection: &Arc<mayfly_storage::Collection>| {
            let is_named = collection.namespace().as_str() == expected.ns;
            is_named && collection.uuid() == expected.uuid.into_bytes()
        };
        if !store.collections(None).iter().any(has) {
            return Err(anyhow!("the collection '{}' is missing in its files", expected.ns));
        }
    }
    Ok(store)
}
