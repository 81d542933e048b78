//! Permissions of files: only the server's user has access to its files, 0600 for files and 0700
//! for folders.
//!
//! The process's file mode creation mask applies to every file, whichever library creates it:
//! tables and logs of RocksDB, the log, the audit log, spill files, archives. The data folder of an
//! older version is restricted when it is opened. The parameter `honorSystemUmask` leaves both to
//! the system, as in the reference.

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use rustix::fs::Mode;

/// The permissions of the group and of all others.
const OTHERS: u32 = 0o077;
/// A folder of the file system itself.
const LOST_AND_FOUND: &str = "lost+found";

/// Restricts new files and folders of this process to its user.
pub fn restrict_new_files() {
    rustix::process::umask(Mode::from_raw_mode(OTHERS));
}

/// Removes the permissions of the group and of others from a folder and its contents; returns the
/// number of changed entries. Entries of other users are not changed: a mount point often is one.
///
/// # Errors
/// Errors of the file system.
pub(crate) fn restrict(folder: &Path) -> io::Result<usize> {
    let user = rustix::process::geteuid().as_raw();
    let mut changed = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        // Links are not followed: their targets are not part of the folder.
        let metadata = match entry.metadata() {
            Ok(metadata) => metadata,
            // The engine or another process may remove files concurrently.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        if metadata.is_dir() && entry.file_name() != LOST_AND_FOUND && metadata.uid() == user {
            changed += restrict(&entry.path())?;
        } else if metadata.is_file() {
            changed += usize::from(restrict_one(&entry.path(), &metadata, user)?);
        }
    }
    Ok(changed + usize::from(restrict_one(folder, &fs::metadata(folder)?, user)?))
}

fn restrict_one(path: &Path, metadata: &fs::Metadata, user: u32) -> io::Result<bool> {
    let mode = metadata.mode();
    if metadata.uid() != user || mode & OTHERS == 0 {
        return Ok(false);
    }
    match fs::set_permissions(path, fs::Permissions::from_mode(mode & 0o7777 & !OTHERS)) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o777
    }

    #[test]
    fn a_folder_is_closed_with_everything_in_it() {
        let above = tempfile::tempdir().unwrap();
        let (folder, outside) = (above.path().join("data"), above.path().join("outside"));
        let inner = folder.join("_tmp");
        fs::create_dir_all(&inner).unwrap();
        let set = |path: &Path, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        };
        for path in [&outside, &folder.join("000004.sst"), &inner.join("scratch")] {
            fs::write(path, "").unwrap();
            set(path, 0o644);
        }
        set(&folder, 0o755);
        set(&inner, 0o750);
        symlink(&outside, folder.join("link")).unwrap();
        assert_eq!(restrict(&folder).unwrap(), 4);
        assert_eq!((mode(&folder), mode(&inner)), (0o700, 0o700));
        assert_eq!(mode(&folder.join("000004.sst")), 0o600);
        assert_eq!(mode(&inner.join("scratch")), 0o600);
        assert_eq!(mode(&outside), 0o644);
        assert_eq!(restrict(&folder).unwrap(), 0);
    }
}
