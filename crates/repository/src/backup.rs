//! Making a backup: its files first, its manifest last.

use std::collections::HashMap;
use std::path::Path;

use crate::error::{Error, Result};
use crate::lock::{Lock, Operation};
use crate::manifest::{BackupKind, CollectionEntry, FileEntry, Manifest, ManifestParts};
use crate::names::{BackupId, Checksum, ClusterTime, FilePath, Timeline};
use crate::objects::manifest_name;
use crate::repository::Repository;
use crate::transfer::Transfer;
use crate::upload::{self, Hashed, blocking};

/// What is known of a backup at its start.
#[derive(Clone, Debug)]
pub struct BackupStart {
    /// A finished backup whose files may be taken over. It must be of the same timeline, because
    /// after a restore an engine may give the same path to other content.
    pub parent: Option<BackupId>,
    /// The timeline that the store is on.
    pub timeline: Timeline,
    /// What the files contain.
    pub kind: BackupKind,
    /// The format of the store's files.
    pub store_format: u32,
    /// The version of the server.
    pub server_version: String,
}

/// How a file is named and treated.
#[derive(Clone, Debug)]
pub struct FileOptions {
    /// Where a restore puts the file.
    pub path: FilePath,
    /// Whether a file of this path never changes, as with table files. Such a file is not read if
    /// the parent has one of the same path, size and number.
    pub content: FileContent,
}

/// Whether the content of a path can change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileContent {
    /// The file is read in every backup.
    Mutable,
    /// The engine writes a file of this path once, under this number.
    Immutable {
        /// The engine's number of the file.
        number: u64,
    },
}

/// What happened to a file that was added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddedFile {
    /// The parent's content was taken over, without reading the file.
    Reused,
    /// The file was read, and the repository already had its content.
    Known,
    /// The file was read and sent.
    Sent,
}

/// A backup that is being made. If it is dropped, nothing of it is listed; its lock remains until
/// it expires, and the content that it sent until a prune. [`Backup::abandon`] removes the lock.
pub struct Backup {
    repository: Repository,
    id: BackupId,
    start: BackupStart,
    lock: Lock,
    parent: HashMap<FilePath, FileEntry>,
    /// Checksums and sizes of the content in the repository.
    contents: HashMap<Checksum, u64>,
    files: HashMap<FilePath, FileEntry>,
}

impl Repository {
    /// Begins a backup.
    ///
    /// # Errors
    /// [`Error::Busy`] while a prune runs; [`Error::InvalidInput`] for a parent of another timeline
    /// or kind; the errors of [`Repository::manifest`] for the parent.
    pub async fn begin(&self, start: BackupStart) -> Result<Backup> {
        let id = BackupId::new(self.clock.now_ms())?;
        let lock = Lock::take(&self.objects, &self.clock, Operation::Backup, &id).await?;
        // After the lock is taken, no prune deletes content that is found here.
        match self.prepare(&start).await {
            Ok((parent, contents)) => {
                let (repository, files) = (self.clone(), HashMap::new());
                Ok(Backup { repository, id, start, lock, parent, contents, files })
            }
            Err(error) => Err(lock.release_after(error).await),
        }
    }

    async fn prepare(
        &self,
        start: &BackupStart,
    ) -> Result<(HashMap<FilePath, FileEntry>, HashMap<Checksum, u64>)> {
        let contents = self.objects.contents().await?;
        let Some(id) = &start.parent else { return Ok((HashMap::new(), contents)) };
        let parent = self.manifest(id).await?;
        let fits = parent.timeline == start.timeline && parent.kind == start.kind;
        if !fits || parent.store_format != start.store_format {
            let why = format!(
                "the backup {id} cannot be a parent, because its timeline, kind or format differs; \
                 make a backup without a parent"
            );
            return Err(Error::InvalidInput { why });
        }
        let files = parent.files.into_iter().map(|file| (file.path.clone(), file));
        Ok((files.collect(), contents))
    }
}

impl Backup {
    /// The name of the backup.
    pub fn id(&self) -> &BackupId {
        &self.id
    }

    /// Adds a local file. It must not change while it is being read.
    ///
    /// # Errors
    /// [`Error::LocalFile`], [`Error::SourceChanged`], [`Error::TooLarge`], [`Error::Cancelled`],
    /// [`Error::InvalidInput`] for a second file of the same path, [`Error::LockLost`],
    /// [`Error::Store`]. After an error the file is not part of the backup, which may continue.
    pub async fn add_file(
        &mut self,
        local: &Path,
        options: FileOptions,
        transfer: &Transfer,
    ) -> Result<AddedFile> {
        transfer.check()?;
        self.lock.keep().await?;
        let FileOptions { path, content } = options;
        if self.files.contains_key(&path) {
            return Err(Error::InvalidInput { why: format!("the backup has '{path}' already") });
        }
        if let FileContent::Immutable { number } = content
            && let Some(entry) = self.reusable(local, &path, number).await?
        {
            transfer.advance(entry.size);
            self.files.insert(path, entry);
            return Ok(AddedFile::Reused);
        }
        let hashed = upload::hash(local, transfer, &self.lock).await?;
        let file_number = match content {
            FileContent::Immutable { number } => Some(number),
            FileContent::Mutable => None,
        };
        self.add_hashed((path, file_number), hashed, transfer).await
    }

    /// Adds a file whose content is in memory.
    ///
    /// # Errors
    /// As [`Backup::add_file`], without those of local files.
    pub async fn add_content(
        &mut self,
        path: FilePath,
        content: Vec<u8>,
        transfer: &Transfer,
    ) -> Result<AddedFile> {
        transfer.check()?;
        self.lock.keep().await?;
        if self.files.contains_key(&path) {
            return Err(Error::InvalidInput { why: format!("the backup has '{path}' already") });
        }
        self.add_hashed((path, None), Hashed::of_content(content), transfer).await
    }

    async fn add_hashed(
        &mut self,
        (path, file_number): (FilePath, Option<u64>),
        hashed: Hashed,
        transfer: &Transfer,
    ) -> Result<AddedFile> {
        let (sha256, size) = (hashed.checksum, hashed.size);
        let added = match self.contents.get(&sha256) {
            Some(found) if *found == size => {
                transfer.advance(size);
                AddedFile::Known
            }
            _ => {
                upload::send(&self.repository.objects, hashed, transfer, &self.lock).await?;
                self.contents.insert(sha256, size);
                AddedFile::Sent
            }
        };
        let entry = FileEntry { path: path.clone(), size, sha256, file_number, parent_file: None };
        self.files.insert(path, entry);
        Ok(added)
    }

    /// The entry of a file that the parent has, too, and whose content is still there.
    async fn reusable(
        &self,
        local: &Path,
        path: &FilePath,
        number: u64,
    ) -> Result<Option<FileEntry>> {
        let Some(known) = self.parent.get(path) else { return Ok(None) };
        let asked = local.to_owned();
        let size = blocking(local, move || Ok(std::fs::metadata(asked)?.len())).await?;
        let is_same = known.size == size && known.file_number == Some(number);
        if !is_same || self.contents.get(&known.sha256) != Some(&size) {
            return Ok(None);
        }
        Ok(Some(FileEntry { parent_file: Some(path.clone()), ..known.clone() }))
    }

    /// Ends the backup: writes its manifest, and from then on it exists. `time` is the last time of
    /// the log whose entry the files contain.
    ///
    /// # Errors
    /// [`Error::LockLost`], [`Error::Exists`] if another backup took the same name,
    /// [`Error::InvalidInput`] if a file has the path of another one's folder,
    /// [`Error::TooLarge`], [`Error::Store`]. After an error of the store the backup exists if only
    /// the reply to the last request was lost, and [`Repository::backup_ids`] then lists it.
    pub async fn finish(
        self,
        time: ClusterTime,
        collections: Vec<CollectionEntry>,
    ) -> Result<Manifest> {
        let Backup { repository, id, start, lock, files, .. } = self;
        let mut files: Vec<FileEntry> = files.into_values().collect();
        files.sort_by(|a, b| a.path.cmp(&b.path));
        let manifest = Manifest::new(ManifestParts {
            id,
            store: repository.store(),
            timeline: start.timeline,
            time,
            store_format: start.store_format,
            server_version: start.server_version,
            parent: start.parent,
            kind: start.kind,
            files,
            collections,
        });
        let written = write_manifest(&repository, &lock, &manifest).await;
        let released = lock.release().await;
        written?;
        // The backup exists; a lock that could not be removed expires.
        if let Err(error) = released {
            tracing::warn!(%error, "the lock of a finished backup could not be removed");
        }
        Ok(manifest)
    }

    /// Ends the backup without a result. The content that it sent remains until a prune, or until
    /// another backup uses it.
    ///
    /// # Errors
    /// [`Error::Store`]; the lock then remains until it expires.
    pub async fn abandon(self) -> Result<()> {
        self.lock.release().await
    }
}

async fn write_manifest(repository: &Repository, lock: &Lock, manifest: &Manifest) -> Result<()> {
    let text = manifest.encode()?;
    lock.check().await?;
    repository.objects.write_new(&manifest_name(&manifest.id), text.into()).await
}
