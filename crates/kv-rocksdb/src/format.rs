//! The folder's format marker: a file with one number, so that an older build refuses a newer folder in clear words
//! instead of misreading it.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::Path;

use mayfly_kv::{KvError, KvResult};

/// The format that this build writes and reads.
pub const FORMAT: u32 = 1;

/// Its file in the data folder.
pub const FORMAT_FILE: &str = "MAYFLYDB_FORMAT";

/// Whether the folder is marked; fails when this build cannot read it.
pub(crate) fn check(folder: &Path) -> KvResult<bool> {
    let file = folder.join(FORMAT_FILE);
    let text = match fs::read_to_string(&file) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(KvError::Unavailable(format!("{}: {error}", file.display()))),
    };
    let Ok(number) = text.trim().parse::<u32>() else {
        return Err(KvError::Corrupt(format!("{} holds no format number", file.display())));
    };
    if number > FORMAT {
        let folder = folder.display();
        return Err(KvError::Invalid(format!(
            "data folder {folder} was written by a newer format {number}; this build reads {FORMAT}"
        )));
    }
    Ok(true)
}

/// Marks the folder; the file is whole or absent, whatever happens meanwhile.
pub(crate) fn mark(folder: &Path) -> KvResult<()> {
    let write = || -> std::io::Result<()> {
        let unfinished = folder.join(format!("{FORMAT_FILE}.new"));
        let mut file = File::create(&unfinished)?;
        writeln!(file, "{FORMAT}")?;
        file.sync_all()?;
        fs::rename(unfinished, folder.join(FORMAT_FILE))?;
        File::open(folder)?.sync_all()
    };
    write()
        .map_err(|error| KvError::Unavailable(format!("cannot mark {}: {error}", folder.display())))
}
