//! Fetching the content of a file into a folder, with its checksum verified before the file gets
//! its name, or into memory.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use futures_util::TryStreamExt;
use sha2::{Digest as _, Sha256};
use tempfile::NamedTempFile;

use crate::error::{Error, Result};
use crate::manifest::FileEntry;
use crate::names::{Checksum, FilePath};
use crate::objects::content_name;
use crate::repository::Repository;
use crate::transfer::Transfer;
use crate::upload::blocking;

/// Bytes that are collected before they are written to the file.
const WRITE_BYTES: usize = 4 << 20;

impl Repository {
    /// Fetches a file of a backup into the folder of a restore, which must exist, and returns its
    /// path there. Folders below it are created as needed. The file gets its name after its
    /// checksum was verified and its content synced; the name is durable after the caller has
    /// synced the folders.
    ///
    /// # Errors
    /// [`Error::Damaged`] and [`Error::Missing`] with the name of the object,
    /// [`Error::LocalFile`] also for a file that exists and for a link in place of a folder,
    /// [`Error::Cancelled`], [`Error::Store`]. No file remains.
    pub async fn fetch(
        &self,
        file: &FileEntry,
        folder: &Path,
        transfer: &Transfer,
    ) -> Result<PathBuf> {
        transfer.check()?;
        let target = folder.join(file.path.as_str());
        let (root, path) = (folder.to_owned(), file.path.clone());
        let mut output = blocking(&target, move || create(&root, &path)).await?;
        let name = content_name(&file.sha256);
        let (size, mut pieces) = self.objects.stream(&name).await?;
        check_size(&name, size, file.size)?;
        let (mut hasher, mut received) = (Sha256::new(), 0);
        let mut collected = Vec::new();
        loop {
            let piece = pieces.try_next().await?;
            if let Some(piece) = &piece {
                let bytes = piece.len() as u64;
                transfer.pace_sending(bytes).await?;
                received += bytes;
                hasher.update(piece);
                collected.extend_from_slice(piece);
            }
            if collected.len() >= WRITE_BYTES || piece.is_none() {
                let piece = std::mem::take(&mut collected);
                let written = piece.len() as u64;
                output = blocking(&target, move || {
                    output.write_all(&piece)?;
                    Ok(output)
                })
                .await?;
                transfer.advance(written);
            }
            if piece.is_none() {
                break;
            }
        }
        check_content(&name, received, hasher, file)?;
        let named = target.clone();
        blocking(&target, move || {
            output.as_file().sync_all()?;
            output.persist_noclobber(named).map(drop).map_err(|error| error.error)
        })
        .await?;
        Ok(target)
    }
}

impl Repository {
    /// Reads a file of a backup into memory.
    ///
    /// # Errors
    /// [`Error::Damaged`] and [`Error::Missing`] with the name of the object, [`Error::TooLarge`]
    /// for more than `limit` bytes, [`Error::Cancelled`], [`Error::Store`].
    pub async fn read_content(
        &self,
        file: &FileEntry,
        limit: u64,
        transfer: &Transfer,
    ) -> Result<Bytes> {
        transfer.check()?;
        let name = content_name(&file.sha256);
        if file.size > limit {
            return Err(Error::TooLarge { what: name, size: file.size, limit });
        }
        let content = self.objects.read(&name, limit).await?;
        transfer.pace_sending(content.len() as u64).await?;
        transfer.advance(content.len() as u64);
        let mut hasher = Sha256::new();
        hasher.update(&content);
        check_content(&name, content.len() as u64, hasher, file)?;
        Ok(content)
    }
}

pub(crate) fn check_size(name: &str, found: u64, expected: u64) -> Result<()> {
    match found == expected {
        true => Ok(()),
        false => Err(Error::damaged(name, format!("it has {found} bytes instead of {expected}"))),
    }
}

fn check_content(name: &str, received: u64, hasher: Sha256, file: &FileEntry) -> Result<()> {
    check_size(name, received, file.size)?;
    match Checksum::from_bytes(hasher.finalize().into()) == file.sha256 {
        true => Ok(()),
        false => Err(Error::damaged(name, "its SHA-256 is not its name")),
    }
}

/// Creates a file without a final name in the folder of this path, and the folders above it. A link
/// in place of one of them could lead out of the root.
fn create(root: &Path, path: &FilePath) -> io::Result<NamedTempFile> {
    let mut folders: Vec<&str> = path.folders().collect();
    folders.reverse();
    for folder in &folders {
        let folder = root.join(folder);
        match fs::symlink_metadata(&folder) {
            Ok(found) if found.is_dir() => {}
            Ok(_) => return Err(io::Error::other("a folder of the path is a file or a link")),
            Err(error) if error.kind() == io::ErrorKind::NotFound => fs::create_dir(&folder)?,
            Err(error) => return Err(error),
        }
    }
    NamedTempFile::new_in(folders.last().map_or(root.to_owned(), |folder| root.join(folder)))
}
