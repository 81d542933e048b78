//! The store of a restore: opening it in the folder, making it a store of its own, copying it into
//! a database, and what its errors mean.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::sync::Arc;

use anyhow::anyhow;
use mayfly_base::{Clock, Error, ErrorCode, Result};
use mayfly_kv::Engine;
use mayfly_kv_rocksdb::{OlderFormat, OpenError};
use mayfly_repository::Manifest;
use mayfly_storage::{
    Collection, EntriesWriter, ExpiryAfterRestore, RestoreSource, Store, approximate_entry_bytes,
};

use super::marker::{self, MARKER};
use crate::backup::{entries, progress};
use crate::failure::{Failure, FailureKind};
use crate::{database, offline};

const DATABASE: &str = "cannot restore into the database";

/// Opens the engine of the folder.
///
/// # Errors
/// 301 DataCorruptionDetected; 39 FileStreamFailed and 14031 OutOfDiskSpace for errors of the disk.
pub(super) fn open_engine(folder: &Path) -> Result<Arc<dyn Engine>> {
    let synced = File::open(folder).and_then(|folder| folder.sync_all());
    synced.map_err(|error| Error::new(ErrorCode::FileStreamFailed, error.to_string()))?;
    // The backup keeps the files of an older format.
    offline::open_engine(folder, OlderFormat::Replace).map_err(|error| {
        let code = match &error {
            OpenError::Unavailable { kind: io::ErrorKind::StorageFull, .. } => {
                ErrorCode::OutOfDiskSpace
            }
            OpenError::Unavailable { .. } | OpenError::InUse => ErrorCode::FileStreamFailed,
            _ => ErrorCode::DataCorruptionDetected,
        };
        Error::new(code, error.to_string())
    })
}

/// Opens the store and makes it one of its own. Without a replay, it must have the collections of
/// the manifest.
///
/// # Errors
/// As [`open_engine`], and those of the store.
pub(super) fn become_restored(
    folder: &Path,
    manifest: &Manifest,
    until: Option<u64>,
    (source, expiry): (&RestoreSource, ExpiryAfterRestore),
    clock: Arc<dyn Clock>,
) -> Result<()> {
    let store = offline::open_store(open_engine(folder)?, clock)?;
    for expected in manifest.collections.iter().filter(|_| until.is_none()) {
        let has = |collection: &Arc<Collection>| {
            let is_named = collection.namespace().as_str() == expected.ns;
            is_named && collection.uuid() == expected.uuid.into_bytes()
        };
        if !store.collections(None).iter().any(has) {
            let text = format!("the collection '{}' is missing in its files", expected.ns);
            return Err(Error::new(ErrorCode::DataCorruptionDetected, text));
        }
    }
    store.become_restored(source, expiry)?;
    Store::close(&store)
}

/// Checks that a restore into this database is possible.
///
/// # Errors
/// A [`Failure`].
pub(super) fn check_database(url: &str) -> anyhow::Result<()> {
    let engine = database::open_at(url)?;
    let checked = EntriesWriter::check(&*engine).map_err(|error| of_database(&error));
    // The check has changed nothing.
    let _ = engine.close();
    checked
}

/// Copies the store of the folder into a database.
///
/// # Errors
/// A [`Failure`].
pub(super) fn copy_into_database(folder: &Path, url: &str, tried: &str) -> anyhow::Result<()> {
    let failed = |error: &Error| failed(error, tried.to_owned());
    let from = open_engine(folder).map_err(|error| failed(&error))?;
    let to = database::open_at(url)?;
    let total = approximate_entry_bytes(&*from).map_err(|error| failed(&error))?;
    let bar = progress::bar("Copying into the database", total);
    let copied = entries::copy(&*from, to.clone(), &|bytes| bar.inc(bytes));
    bar.finish_and_clear();
    copied.map_err(|error| of_database(&error))?;
    let closed = to.close().and_then(|()| from.close());
    closed.map_err(|error| anyhow!(error).context(folder_failure(tried.to_owned())))
}

/// Makes a store of the entries in the database, and empties the folder but for the marker.
///
/// # Errors
/// A [`Failure`].
pub(super) fn release_database(folder: &Path, url: &str, tried: &str) -> anyhow::Result<()> {
    let engine = database::open_at(url)?;
    EntriesWriter::release(&*engine).map_err(|error| {
        let advice = "name the database of the restore that was interrupted with --storageUrl";
        offline::of_store(&error).context(Failure::new(FailureKind::Folder, DATABASE, advice))
    })?;
    // All is synced.
    let _ = engine.close();
    empty(folder).map_err(|error| anyhow!(error).context(folder_failure(tried.to_owned())))
}

/// The failure of a run that names no database, after another one has written into one.
pub(super) fn lacks_database(tried: String) -> anyhow::Error {
    let advice = "name the same database with --storageUrl";
    let text = "the data was written into a database";
    anyhow!(text).context(Failure::new(FailureKind::Options, tried, advice))
}

fn of_database(error: &Error) -> anyhow::Error {
    let advice = match error.code() {
        ErrorCode::IllegalOperation => "name an empty database with --storageUrl",
        _ => "run the same command again, which goes on",
    };
    offline::of_store(error).context(Failure::new(FailureKind::Folder, DATABASE, advice))
}

/// Removes all that a restore has made in the folder, which was empty, but for the marker.
fn empty(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        if name == MARKER || marker::may_be_before(&name) {
            continue;
        }
        match entry.file_type()?.is_dir() {
            true => fs::remove_dir_all(entry.path())?,
            false => fs::remove_file(entry.path())?,
        }
    }
    Ok(())
}

fn folder_failure(tried: String) -> Failure {
    let advice = "check the disk, and run the same command again, which goes on";
    Failure::new(FailureKind::Folder, tried, advice)
}

/// The failure for an error of the store or of its engine.
pub(super) fn failed(error: &Error, tried: String) -> anyhow::Error {
    let failure = match error.code() {
        ErrorCode::OutOfDiskSpace => {
            let advice = "free space on its disk, and run the same command again, which goes on";
            Failure::new(FailureKind::Folder, tried, advice)
        }
        ErrorCode::FileStreamFailed
        | ErrorCode::HostUnreachable
        | ErrorCode::NotWritablePrimary => folder_failure(tried),
        _ => {
            let advice = "delete the folder and restore another backup; 'mayflydb backup verify' \
                          checks them";
            Failure::new(FailureKind::Damage, tried, advice)
        }
    };
    offline::of_store(error).context(failure)
}
