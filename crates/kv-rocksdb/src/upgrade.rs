//! Converting a folder of an older format: the old files are kept first.
//!
//! The folder `before-format-N` gets links to the tables, which never change, and copies of all
//! other files. The marker of the new format is written after it, so that one of the two folders
//! can always be opened by the old version. To go back, this folder is moved to another place.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use crate::format::FORMAT;
use crate::open_error::OpenError;

/// What opening a folder of an older format does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OlderFormat {
    /// It fails, and changes nothing.
    #[default]
    Refuse,
    /// It keeps the old files in the folder `before-format-N`, and converts the store.
    Keep,
    /// It converts the store.
    Replace,
}

/// Files that belong to the running process, not to the data.
const NOT_DATA: [&str; 3] = ["LOCK", "LOG", "RESERVE"];

/// The name of the folder with the old files.
fn kept_folder() -> String {
    format!("before-format-{FORMAT}")
}

/// Makes a folder of an older format ready to be converted. `lock` takes the lock of RocksDB.
pub(crate) fn prepare(
    folder: &Path,
    found: u32,
    older: OlderFormat,
    lock: impl FnOnce() -> Result<File, OpenError>,
) -> Result<(), OpenError> {
    match older {
        OlderFormat::Refuse => Err(OpenError::NotUpgraded(found)),
        OlderFormat::Replace => Ok(()),
        OlderFormat::Keep => {
            let _ours = lock()?;
            keep(folder)
        }
    }
}

/// Logs that a folder was converted.
pub(crate) fn report(from: u32, older: OlderFormat) {
    let kept = (older == OlderFormat::Keep).then(kept_folder);
    tracing::info!(
        from,
        to = FORMAT,
        kept,
        "the data folder was converted to the present format; earlier versions of the server can only open the kept files"
    );
}

/// Copies the files of a store that no process has open into a new folder. Tables, which never
/// change, become links.
///
/// # Errors
/// [`OpenError::InUse`], and errors of the file system.
pub fn copy_by_links(folder: &Path, to: &Path) -> Result<(), OpenError> {
    let _ours = crate::store::lock(folder)?;
    copy_files(folder, to).map_err(|error| OpenError::of_file(to, &error))
}

fn copy_files(folder: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir(to)?;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        if !entry.file_type()?.is_file() || NOT_DATA.iter().any(|other| name == *other) {
            continue;
        }
        let copy = to.join(&name);
        if name.to_string_lossy().ends_with(".sst") {
            fs::hard_link(entry.path(), &copy)?;
        } else {
            fs::copy(entry.path(), &copy)?;
            File::open(&copy)?.sync_all()?;
        }
    }
    File::open(to)?.sync_all()
}

/// Keeps the files of the folder.
fn keep(folder: &Path) -> Result<(), OpenError> {
    let (kept, unfinished) = (folder.join(kept_folder()), folder.join("before-format.new"));
    let keep = || -> io::Result<()> {
        for old in [&unfinished, &kept] {
            // An earlier attempt left it. The old version may have written to the folder since.
            match fs::remove_dir_all(old) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                Ok(()) | Err(_) => {}
            }
        }
        copy_files(folder, &unfinished)?;
        fs::rename(&unfinished, &kept)?;
        File::open(folder)?.sync_all()
    };
    keep().map_err(|error| OpenError::of_file(&kept, &error))
}
