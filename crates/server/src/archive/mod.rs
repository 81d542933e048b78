//! Archives of expired documents in files: in a folder of this machine, or in an object store.
//!
//! ```text
//! <path>/<database>.<collection>/<index>-<time>-<random>.<format>
//! ```
//!
//! Every write unit of deletions makes one file. A local file is written under a temporary name,
//! synced, renamed, and its folder is synced; an object store has it once it has answered. Only
//! then are the documents deleted. Paths outside of the configured folder or URLs are refused when
//! the policy is defined, and again when it archives.

mod columns;
mod encode;
mod url;

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Component, Path, PathBuf};

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_kv_rocksdb::has_room;
use mayfly_storage::ttl::{ArchivePlace, ArchiveSink};
use mayfly_value::RawDoc;
use rustix::fs::Access;
use rustix::io::Errno;

use url::ObjectStores;

/// The allowed destinations of archives.
#[derive(Clone, Debug, Default)]
pub struct ArchiveOptions {
    /// The folder that paths are relative to.
    pub folder: Option<PathBuf>,
    /// The allowed prefixes of URLs.
    pub urls: Vec<String>,
}

/// Writes archives.
pub(crate) struct Archive {
    options: ArchiveOptions,
    stores: ObjectStores,
}

impl Archive {
    /// # Errors
    /// The folder cannot be created.
    pub(crate) fn new(options: ArchiveOptions) -> io::Result<Archive> {
        if let Some(folder) = &options.folder {
            fs::create_dir_all(folder)?;
            // Its own name must be durable, too.
            sync_names(folder, folder.parent().unwrap_or(folder))?;
        }
        Ok(Archive { options, stores: ObjectStores::from_environment() })
    }

    fn allowed_folder(&self, path: &str) -> Result<PathBuf> {
        let Some(root) = &self.options.folder else {
            return Err(invalid(
                "'ttl.archive.path' needs 'archive.folder' in the server's configuration",
            ));
        };
        let relative = Path::new(path);
        if !relative.components().all(|part| matches!(part, Component::Normal(_))) {
            return Err(invalid(format!(
                "'ttl.archive.path' must be a path inside the configured folder, but is '{path}'"
            )));
        }
        Ok(root.join(relative))
    }

    fn check_url(&self, given: &str) -> Result<()> {
        let whole = |prefix: &String| {
            given.strip_prefix(prefix.as_str()).is_some_and(|rest| {
                prefix.ends_with('/') || rest.is_empty() || rest.starts_with('/')
            })
        };
        // A path with `..` or a query could lead outside of the allowed prefix.
        let tricky = given.contains("..") || given.contains(['?', '#', '%', '@', '\\']);
        match !tricky && self.options.urls.iter().any(whole) {
            true => url::check(given),
            false => Err(invalid(format!(
                "'ttl.archive.path' is not under one of the URLs in 'archive.urls': '{given}'"
            ))),
        }
    }
}

fn invalid(text: impl Into<String>) -> Error {
    Error::new(ErrorCode::InvalidOptions, text.into())
}

impl ArchiveSink for Archive {
    fn check(&self, path: &str) -> Result<()> {
        match path.contains("://") {
            true => self.check_url(path),
            false => check_makeable(path, &self.allowed_folder(path)?),
        }
    }

    fn store(&self, place: &ArchivePlace<'_>, documents: &[RawDoc<'_>]) -> Result<()> {
        let bytes = encode::encode(place.format, documents)?;
        let folder = file_name_part(place.namespace);
        let name = format!(
            "{}-{}-{:016x}.{}",
            file_name_part(place.index),
            place.now_ms,
            rand::random::<u64>(),
            place.format.name()
        );
        if place.path.contains("://") {
            self.check_url(place.path)?;
            return self.stores.put(place.path, &format!("{folder}/{name}"), bytes);
        }
        let folder = self.allowed_folder(place.path)?.join(folder);
        let root = self.options.folder.as_deref().unwrap_or(&folder);
        let failed = |code, why: &dyn std::fmt::Display| {
            Error::new(code, format!("cannot write the archive {}: {why}", folder.display()))
        };
        // The remaining disk space is needed for deletions without an archive.
        has_room(root, bytes.len() as u64)
            .map_err(|error| failed(ErrorCode::OutOfDiskSpace, &error))?;
        write_durably(root, &folder, &name, &bytes).map_err(|error| {
            let code = match error.kind() {
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                    ErrorCode::OutOfDiskSpace
                }
                _ => ErrorCode::FileStreamFailed,
            };
            failed(code, &error)
        })
    }
}

/// The longest name of a file or folder, and the longest path, in bytes.
const MAX_NAME_BYTES: usize = 255;
const MAX_PATH_BYTES: usize = 4095;
/// The longest part of a name for a collection or an index. The name of a file has two dozen more
/// bytes, for a time and a format.
const MAX_PART_BYTES: usize = 160;

/// Refuses a folder that can never contain archives: a policy that archives there would delete
/// nothing and only log errors. Nothing is created yet.
fn check_makeable(given: &str, folder: &Path) -> Result<()> {
    let refused =
        |why: &str| Err(invalid(format!("'ttl.archive.path' cannot be '{given}': {why}")));
    if given.contains('\0') {
        return refused("it has a NUL byte");
    }
    let is_long = |part: &Path| part.as_os_str().len() > MAX_NAME_BYTES;
    if Path::new(given).iter().any(|part| is_long(Path::new(part))) {
        return refused("the name of a folder is too long");
    }
    if folder.as_os_str().len() + 2 * (MAX_NAME_BYTES + 1) > MAX_PATH_BYTES {
        return refused("it is too long");
    }
    let Some(there) = folder.ancestors().find(|above| above.symlink_metadata().is_ok()) else {
        return Ok(());
    };
    if !there.is_dir() {
        return refused(&format!("'{}' is not a folder", there.display()));
    }
    match rustix::fs::access(there, Access::WRITE_OK | Access::EXEC_OK) {
        Err(error @ (Errno::ACCESS | Errno::ROFS)) => {
            let why = format!("'{}': {}", there.display(), io::Error::from(error));
            refused(&why)
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Encodes the name of a collection or an index, which may contain any character, as a safe part of
/// a file name.
fn file_name_part(name: &str) -> String {
    let harmless = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    let mut part = String::new();
    for byte in name.as_bytes().iter().take(80) {
        if part.len() + 3 > MAX_PART_BYTES {
            break;
        }
        match harmless(byte) {
            true => part.push(char::from(*byte)),
            false => part.push_str(&format!("={byte:02X}")),
        }
    }
    // Neither a hidden file nor `..`.
    if part.starts_with('.') {
        part.insert(0, '_');
    }
    part
}

fn write_durably(root: &Path, folder: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let hidden = folder.join(format!(".{name}.part"));
    let written = File::create(&hidden).and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()
    });
    if let Err(error) = written.and_then(|()| fs::rename(&hidden, folder.join(name))) {
        // An incomplete file is of no use.
        let _ = fs::remove_file(&hidden);
        return Err(error);
    }
    // The name of the file, and of all new folders above it.
    sync_names(folder, root)
}

/// Makes names durable: those in this folder, and in its parents up to `last`.
fn sync_names(folder: &Path, last: &Path) -> io::Result<()> {
    for folder in folder.ancestors() {
        // The parent of a relative path with one component.
        let name = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        File::open(name)?.sync_all()?;
        if folder == last {
            break;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
