//! `mayflydb check`: checks a data folder that no server has open.
//!
//! The check opens a copy of the folder, in its folder for temporary files: tables are hard links,
//! the few other files are copied. The folder itself stays as it is, except with `--repair`, which
//! then opens it and builds faulty indexes again.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, anyhow};
use clap::Args;
use mayfly_base::{Clock, SystemClock};
use mayfly_kv_rocksdb::{FORMAT_FILE, OlderFormat, OpenError, SCRATCH_FOLDER, copy_by_links};
use mayfly_storage::{CheckedStore, FaultyPart, Store, StoreFault};
use mayfly_work::OpCtx;

use crate::backup::progress;
use crate::backup::restore::marker::MARKER;
use crate::failure::{Failure, FailureKind};
use crate::{data_folder, offline, processes};

const RESTORE: &str = "restore a backup";
const UPGRADE: &str = "start mayflydb once with --upgrade to convert it, and repair it then";
/// The most faults that are printed.
const MOST_PRINTED: usize = 100;

/// The flags of `mayflydb check`.
#[derive(Clone, Debug, Args)]
pub struct CheckFlags {
    /// The data folder; no server may have it open
    #[arg(long, value_name = "FOLDER")]
    pub dbpath: PathBuf,
    /// Build faulty indexes again, and cut an operation log that cannot be read; documents stay
    #[arg(long)]
    pub repair: bool,
}

/// Removes the copy.
struct Copy(PathBuf);

impl Drop for Copy {
    fn drop(&mut self) {
        // A start of the server removes what stays.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Checks the folder, and prints the result for people.
///
/// # Errors
/// A [`Failure`] with the exit code, 14 for damaged data.
pub fn run(flags: &CheckFlags, out: &mut impl Write) -> anyhow::Result<()> {
    let folder = &flags.dbpath;
    examine(folder)?;
    let mut checked = check(folder)?;
    let faults = std::mem::take(&mut checked.faults);
    if !faults.is_empty() && flags.repair {
        print(&faults, out)?;
        let repaired = repair(folder, &faults)?;
        writeln!(out, "{repaired} of {} faults were repaired.", faults.len())?;
        checked = check(folder)?;
        return conclude(folder, &checked, out);
    }
    conclude(folder, &CheckedStore { faults, ..checked }, out)
}

fn conclude(folder: &Path, checked: &CheckedStore, out: &mut impl Write) -> anyhow::Result<()> {
    let CheckedStore { entries, bytes, collections, documents, log_entries, faults } = checked;
    print(faults, out)?;
    writeln!(
        out,
        "Checked {collections} collections with {documents} documents, {log_entries} entries of \
         the operation log, {entries} keys with {} MB in all.",
        bytes / 1_000_000
    )?;
    if faults.is_empty() {
        writeln!(out, "No faults were found.")?;
        return Ok(());
    }
    let is_derived =
        |fault: &StoreFault| matches!(fault.part, FaultyPart::Indexes(_) | FaultyPart::Log);
    let advice = match faults.iter().all(is_derived) {
        true => "run it again with --repair, which changes no document",
        false => "restore a backup; 'mayflydb backup verify' checks those that there are",
    };
    let text = format!("{} faults were found", faults.len());
    Err(anyhow!(text).context(failure(folder, FailureKind::Damage, advice)))
}

fn print(faults: &[StoreFault], out: &mut impl Write) -> anyhow::Result<()> {
    for StoreFault { part, text } in faults.iter().take(MOST_PRINTED) {
        let part = match part {
            FaultyPart::Keyspace(name) => format!("the keyspace '{name}'"),
            FaultyPart::Records(ns) | FaultyPart::Indexes(ns) => ns.to_string(),
            FaultyPart::Log => "the operation log".to_owned(),
        };
        writeln!(out, "{part}: {text}").context("cannot write the result")?;
    }
    if let Some(more @ 1..) = faults.len().checked_sub(MOST_PRINTED) {
        writeln!(out, "and {more} further faults")?;
    }
    Ok(())
}

/// Checks that the folder contains a store of this server that no process has open.
fn examine(folder: &Path) -> anyhow::Result<()> {
    let refused = |text: String, advice: &str| {
        Err(anyhow!(text).context(failure(folder, FailureKind::Folder, advice)))
    };
    if let Some(holder) = processes::holding_lock(&folder.join(data_folder::LOCK_FILE)) {
        return refused(format!("{holder}, has it open"), "stop the server first");
    }
    if folder.join(MARKER).exists() {
        let advice = "complete it by running the same 'mayflydb restore' again";
        return refused("a restore into it is not complete".to_owned(), advice);
    }
    match folder.join(FORMAT_FILE).exists() {
        true => Ok(()),
        false => refused("it contains no store".to_owned(), "name the data folder with --dbpath"),
    }
}

fn check(folder: &Path) -> anyhow::Result<CheckedStore> {
    let scratch = folder.join(SCRATCH_FOLDER);
    std::fs::create_dir_all(&scratch)
        .map_err(|error| anyhow!(error).context(failure(folder, FailureKind::Folder, "")))?;
    let copy = Copy(scratch.join(format!("check-{}", std::process::id())));
    copy_by_links(folder, &copy.0).map_err(|error| open_failed(folder, error))?;
    let opened = open(&copy.0, OlderFormat::Replace).and_then(|(store, op)| {
        let line = progress::parts();
        let checked = store.check(&op, &mut |part| line.set_message(part.to_owned()));
        line.finish_and_clear();
        let checked = checked.map_err(|error| offline::of_store(&error))?;
        // Only a copy is closed.
        let _ = store.close();
        Ok(checked)
    });
    opened.map_err(|error| match error.downcast::<OpenError>() {
        Ok(error) => open_failed(folder, error),
        Err(error) => error.context(failure(folder, FailureKind::Damage, RESTORE)),
    })
}

fn repair(folder: &Path, faults: &[StoreFault]) -> anyhow::Result<usize> {
    let of_open = |error| match anyhow::Error::downcast::<OpenError>(error) {
        Ok(error) => open_failed(folder, error),
        Err(error) => error.context(failure(folder, FailureKind::Damage, RESTORE)),
    };
    let (store, op) = open(folder, OlderFormat::Refuse).map_err(of_open)?;
    let repaired = store.repair(&op, faults);
    let repaired = repaired.and_then(|repaired| store.close().map(|()| repaired));
    repaired.map_err(|error| {
        offline::of_store(&error).context(failure(folder, FailureKind::Damage, RESTORE))
    })
}

fn open(folder: &Path, older_format: OlderFormat) -> anyhow::Result<(Arc<Store>, Arc<OpCtx>)> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let engine = offline::open_engine(folder, older_format)?;
    let store = offline::open_store(engine, clock.clone());
    let store = store.map_err(|error| offline::of_store(&error))?;
    Ok((store, OpCtx::detached(clock)))
}

fn open_failed(folder: &Path, error: OpenError) -> anyhow::Error {
    let (kind, advice) = match &error {
        OpenError::InUse => (FailureKind::Folder, "stop the server first"),
        OpenError::Damaged(_) => (FailureKind::Damage, RESTORE),
        OpenError::NotUpgraded(_) => (FailureKind::Incompatible, UPGRADE),
        OpenError::NewerFormat(_) | OpenError::OlderFormat(_) => {
            (FailureKind::Incompatible, "use the version that wrote it")
        }
        OpenError::Foreign(_) | OpenError::Unavailable { .. } => {
            (FailureKind::Folder, "check the disk and the rights of the folder")
        }
    };
    anyhow!(error).context(failure(folder, kind, advice))
}

fn failure(folder: &Path, kind: FailureKind, advice: &str) -> Failure {
    let advice = match advice {
        "" => "check the disk and the rights of the folder",
        other => other,
    };
    Failure::new(kind, format!("cannot vouch for the data folder {}", folder.display()), advice)
}
