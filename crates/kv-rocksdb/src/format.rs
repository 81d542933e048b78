//! The format marker of the data folder: a file with one number. A build refuses a folder of
//! another format with a clear message instead of misreading it.
//!
//! | format | change |
//! |---|---|
//! | 1 | the first one |
//! | 2 | records have numbers as their keys, and the log refers to them |
//! | 3 | several versions that the log refers to share a row |
//! | 4 | deleted records that the log refers to are retired, not copied |
//! | 5 | consecutive deletions of a unit are one item of the log, with a list of ids |
//!
//! A folder of format 3 or 4 is converted when it is opened, if the options say so: format 5 reads
//! it as it is, and only the marker is replaced, before the first write, because older builds would
//! not understand a retired record or a list of ids. The old files are kept ([`crate::upgrade`]).
//! Older folders are not converted: their data is moved by a dump and a restore.
//!
//! A new store is created in three steps, so that the files of another program are never taken for
//! an unfinished store: the marker is created under another name and claims the folder, RocksDB
//! creates its files, the marker is renamed.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::Path;

use crate::open_error::OpenError;

/// The format that this build writes and reads.
pub const FORMAT: u32 = 5;

/// The oldest format that is converted when a folder is opened.
const CONVERTED: u32 = 3;

/// The marker file in the data folder.
pub const FORMAT_FILE: &str = "MAYFLYDB_FORMAT";

/// The name of the marker while the store is being created.
pub const UNFINISHED_FORMAT_FILE: &str = "MAYFLYDB_FORMAT.new";

/// A file in the folder of every RocksDB database.
const ROCKSDB_FILE: &str = "CURRENT";

/// The marker of a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Marker {
    /// There is none: the folder is new, or its store is not complete.
    Absent,
    /// The store has this build's format.
    Current,
    /// The store has an older format, which is converted by [`mark`].
    Older(u32),
}

/// Reads the marker. Fails when this build cannot read its format.
pub(crate) fn check(folder: &Path) -> Result<Marker, OpenError> {
    let file = folder.join(FORMAT_FILE);
    let text = match fs::read_to_string(&file) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Marker::Absent),
        Err(error) => return Err(OpenError::of_file(&file, &error)),
    };
    match text.trim().parse::<u32>() {
        Ok(FORMAT) => Ok(Marker::Current),
        Ok(older @ CONVERTED..FORMAT) => Ok(Marker::Older(older)),
        Ok(number) if number > FORMAT => Err(OpenError::NewerFormat(number)),
        Ok(number) if number > 0 => Err(OpenError::OlderFormat(number)),
        Ok(_) | Err(_) => {
            Err(OpenError::Damaged(format!("{} holds no format number", file.display())))
        }
    }
}

/// Claims a folder without a marker. An unfinished store of ours is claimed already.
pub(crate) fn claim(folder: &Path) -> Result<(), OpenError> {
    let claim = folder.join(UNFINISHED_FORMAT_FILE);
    if claim.exists() {
        return Ok(());
    }
    // Checked again, because another process may have created the store meanwhile.
    if folder.join(ROCKSDB_FILE).exists() && check(folder)? == Marker::Absent {
        let text = "it holds a RocksDB database that another program made";
        return Err(OpenError::Foreign(text.to_owned()));
    }
    File::create(&claim).map(drop).map_err(|error| OpenError::of_file(&claim, &error))
}

/// Writes the marker. After a crash the file is complete or absent.
pub(crate) fn mark(folder: &Path) -> Result<(), OpenError> {
    let unfinished = folder.join(UNFINISHED_FORMAT_FILE);
    let write = || -> std::io::Result<()> {
        let mut file = File::create(&unfinished)?;
        writeln!(file, "{FORMAT}")?;
        file.sync_all()?;
        fs::rename(&unfinished, folder.join(FORMAT_FILE))?;
        File::open(folder)?.sync_all()
    };
    write().map_err(|error| OpenError::of_file(&unfinished, &error))
}
