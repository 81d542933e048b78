//! The files of an index: their names, and how they are written and read.
//!
//! A file is complete before anything refers to it: its bytes are synced, it gets its name, and the
//! folder is synced. Files that no commit refers to are removed when the index is opened.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use tantivy::directory::{MmapDirectory, OwnedBytes};
use tantivy::{Directory, directory::error::OpenReadError};

use super::IndexError;
use crate::filter::BitSet;

const DELETIONS: &[u8; 8] = b"mayflyDL";

/// A folder with one index.
pub(super) struct Folder {
    path: PathBuf,
    /// Maps files into memory.
    maps: MmapDirectory,
}

/// The name of a segment's file.
pub(super) fn segment_name(number: u64) -> String {
    format!("{number:016x}.seg")
}

/// The name of the file with the deletions of a segment.
pub(super) fn deletions_name(number: u64, generation: u64) -> String {
    format!("{number:016x}.{generation:016x}.del")
}

/// The name of the folder for the writing of a segment.
pub(super) fn scratch_name(number: u64) -> String {
    format!("{number:016x}.tmp")
}

impl Folder {
    pub(super) fn open(path: &Path) -> Result<Folder, IndexError> {
        fs::create_dir_all(path)?;
        let maps =
            MmapDirectory::open(path).map_err(|error| io::Error::other(error.to_string()))?;
        Ok(Folder { path: path.to_owned(), maps })
    }

    /// An empty folder for the writing of a segment.
    pub(super) fn scratch(&self, number: u64) -> io::Result<PathBuf> {
        let path = self.path.join(scratch_name(number));
        match fs::remove_dir_all(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => fs::create_dir(&path)?,
        }
        Ok(path)
    }

    /// Writes a file as a whole.
    pub(super) fn write(
        &self,
        name: &str,
        write: impl FnOnce(File) -> io::Result<File>,
    ) -> io::Result<()> {
        let (temporary, path) = (self.path.join(format!("{name}.tmp")), self.path.join(name));
        write(File::create(&temporary)?)?.sync_all()?;
        fs::rename(&temporary, &path)?;
        File::open(&self.path)?.sync_all()
    }

    pub(super) fn write_bytes(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.write(name, |mut file| {
            file.write_all(bytes)?;
            Ok(file)
        })
    }

    /// The bytes of a small file; `None` if it does not exist.
    pub(super) fn read(&self, name: &str) -> Result<Option<Vec<u8>>, IndexError> {
        match fs::read(self.path.join(name)) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(IndexError::Io(error)),
        }
    }

    /// Maps a file into memory.
    pub(super) fn map(&self, name: &str) -> Result<OwnedBytes, IndexError> {
        let file = self.maps.open_read(Path::new(name)).map_err(|error| match error {
            OpenReadError::FileDoesNotExist(_) => {
                IndexError::Rebuild(format!("the file {name} is missing"))
            }
            error => IndexError::Io(io::Error::other(error.to_string())),
        })?;
        Ok(file.read_bytes()?)
    }

    pub(super) fn write_deletions(
        &self,
        number: u64,
        generation: u64,
        deleted: &BitSet,
    ) -> io::Result<()> {
        let mut bytes = DELETIONS.to_vec();
        bytes.extend_from_slice(&deleted.to_bytes());
        bytes.extend_from_slice(&crc32c::crc32c(&bytes).to_le_bytes());
        self.write_bytes(&deletions_name(number, generation), &bytes)
    }

    pub(super) fn read_deletions(
        &self,
        number: u64,
        generation: u64,
        documents: usize,
    ) -> Result<BitSet, IndexError> {
        let name = deletions_name(number, generation);
        let bytes = self.read(&name)?;
        let checked = bytes.as_deref().and_then(checked).and_then(|content| {
            BitSet::from_bytes(content.strip_prefix(DELETIONS.as_slice())?, documents)
        });
        checked.ok_or_else(|| IndexError::Rebuild(format!("the file {name} is damaged or missing")))
    }

    /// Removes the files that are not among these.
    pub(super) fn remove_others(&self, names: &[String]) -> io::Result<()> {
        for entry in fs::read_dir(&self.path)? {
            let entry = entry?;
            let name = entry.file_name();
            let is_ours = Path::new(&name)
                .extension()
                .is_some_and(|ending| ending == "seg" || ending == "del" || ending == "tmp");
            if is_ours && !names.iter().any(|other| name == other.as_str()) {
                match entry.file_type()?.is_dir() {
                    true => fs::remove_dir_all(entry.path())?,
                    false => fs::remove_file(entry.path())?,
                }
            }
        }
        Ok(())
    }
}

/// The bytes before a CRC-32C, if it is theirs.
pub(super) fn checked(bytes: &[u8]) -> Option<&[u8]> {
    let (content, crc) = bytes.split_last_chunk::<4>()?;
    (crc32c::crc32c(content) == u32::from_le_bytes(*crc)).then_some(content)
}
