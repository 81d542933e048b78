//! Fetching the files of a backup into the folder.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

use anyhow::anyhow;
use indicatif::ProgressBar;
use mayfly_base::Clock;
use mayfly_kv_rocksdb::FORMAT_FILE;
use mayfly_repository::{FileEntry, Manifest, Repository, Transfer};

use super::RestoreFlags;
use crate::backup::{progress, show};

/// Files that are fetched last.
const LAST_FILES: [&str; 2] = ["CURRENT", FORMAT_FILE];
/// Names of files that were being fetched when a restore was interrupted.
const UNFINISHED_PREFIX: &str = ".tmp";

/// Checks that the disk has room for all files.
pub(super) fn check_room(folder: &Path, manifest: &Manifest) -> anyhow::Result<()> {
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

/// Fetches the files that are missing.
///
/// # Errors
/// Errors of the repository.
pub(super) async fn fetch(
    (repository, manifest): (&Repository, &Manifest),
    flags: &RestoreFlags,
    clock: &Arc<dyn Clock>,
) -> mayfly_repository::Result<()> {
    let folder = &flags.dbpath;
    remove_unfinished(folder);
    let (transfer, bar) = shown_transfer(manifest, flags, clock);
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

/// A transfer of all files, and the bar that shows it.
pub(super) fn shown_transfer(
    manifest: &Manifest,
    flags: &RestoreFlags,
    clock: &Arc<dyn Clock>,
) -> (Transfer, ProgressBar) {
    let bar = progress::bar("Restoring", manifest.bytes());
    let shown = bar.clone();
    let transfer = Transfer::new(clock.clone())
        .with_max_mb_per_second(flags.max_mbps.unwrap_or(0))
        .with_report(move |progress| shown.set_position(progress.done));
    transfer.set_total(manifest.bytes());
    (transfer, bar)
}
