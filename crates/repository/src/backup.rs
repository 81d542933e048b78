//! Making a backup: its files first, its manifest last.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::pin::pin;

use futures_util::future::{Either, select};

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
        let read = self.read(local, options, transfer).await?;
        let (entry, added) = self.send(read, transfer).await?;
        self.note(entry);
        Ok(added)
    }

    /// Adds local files in this order, each as [`Backup::add_file`] does. While one is sent, the
    /// next one is read. Returns what happened to each.
    ///
    /// # Errors
    /// Those of [`Backup::add_file`] for the first file that fails. The files before it are part of
    /// the backup.
    pub async fn add_files(
        &mut self,
        files: &[(PathBuf, FileOptions)],
        transfer: &Transfer,
    ) -> Result<Vec<AddedFile>> {
        let mut all_added = Vec::with_capacity(files.len());
        let mut files = files.iter();
        let mut next = match files.next() {
            Some((local, options)) => Some(self.read(local, options.clone(), transfer).await?),
            None => None,
        };
        while let Some(current) = next {
            let (sent, read) = self.send_and_read(current, files.next(), transfer).await;
            let (entry, added) = sent?;
            self.note(entry);
            all_added.push(added);
            next = read?;
        }
        Ok(all_added)
    }

    /// Sends a file, and reads the next one meanwhile. If the sending fails, the reading ends.
    async fn send_and_read(
        &self,
        current: ReadFile,
        next: Option<&(PathBuf, FileOptions)>,
        transfer: &Transfer,
    ) -> (Result<(FileEntry, AddedFile)>, Result<Option<ReadFile>>) {
        let path = current.path.clone();
        let send = pin!(self.send(current, transfer));
        let read = pin!(async {
            match next {
                None => Ok(None),
                Some((_, options)) if options.path == path => Err(twice(&path)),
                Some((local, options)) => {
                    self.read(local, options.clone(), transfer).await.map(Some)
                }
            }
        });
        match select(send, read).await {
            Either::Left((Err(error), _)) => (Err(error), Ok(None)),
            Either::Left((sent, read)) => (sent, read.await),
            // An upload that has begun is not left unfinished in the repository.
            Either::Right((read, send)) => (send.await, read),
        }
    }

    /// Reads a file, or finds that the parent has it.
    async fn read(
        &self,
        local: &Path,
        options: FileOptions,
        transfer: &Transfer,
    ) -> Result<ReadFile> {
        let FileOptions { path, content } = options;
        self.check_new(&path, transfer).await?;
        let number = match content {
            FileContent::Immutable { number } => Some(number),
            FileContent::Mutable => None,
        };
        if let Some(number) = number
            && let Some(entry) = self.reusable(local, &path, number).await?
        {
            return Ok(ReadFile { path, content: ReadContent::OfParent(entry) });
        }
        let hashed = upload::hash(local, transfer, &self.lock).await?;
        Ok(ReadFile { path, content: ReadContent::Hashed(hashed, number) })
    }

    async fn check_new(&self, path: &FilePath, transfer: &Transfer) -> Result<()> {
        transfer.check()?;
        self.lock.keep().await?;
        match self.files.contains_key(path) {
            true => Err(twice(path)),
            false => Ok(()),
        }
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
        self.check_new(&path, transfer).await?;
        let content = ReadContent::Hashed(Hashed::of_content(content), None);
        let (entry, added) = self.send(ReadFile { path, content }, transfer).await?;
        self.note(entry);
        Ok(added)
    }

    /// Sends what the repository does not have.
    async fn send(&self, file: ReadFile, transfer: &Transfer) -> Result<(FileEntry, AddedFile)> {
        let ReadFile { path, content } = file;
        let (hashed, file_number) = match content {
            ReadContent::OfParent(entry) => {
                transfer.advance(entry.size);
                return Ok((entry, AddedFile::Reused));
            }
            ReadContent::Hashed(hashed, number) => (hashed, number),
        };
        let (sha256, size) = (hashed.checksum, hashed.size);
        let added = match self.contents.get(&sha256) {
            Some(found) if *found == size => {
                transfer.advance(size);
                AddedFile::Known
            }
            _ => {
                upload::send(&self.repository.objects, hashed, transfer, &self.lock).await?;
                AddedFile::Sent
            }
        };
        Ok((FileEntry { path, size, sha256, file_number, parent_file: None }, added))
    }

    fn note(&mut self, entry: FileEntry) {
        self.contents.insert(entry.sha256, entry.size);
        self.files.insert(entry.path.clone(), entry);
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

/// A file between reading and sending.
struct ReadFile {
    path: FilePath,
    content: ReadContent,
}

enum ReadContent {
    /// The parent's content is taken over.
    OfParent(FileEntry),
    /// The content, and the engine's number of the file.
    Hashed(Hashed, Option<u64>),
}

fn twice(path: &FilePath) -> Error {
    Error::InvalidInput { why: format!("the backup has '{path}' already") }
}

async fn write_manifest(repository: &Repository, lock: &Lock, manifest: &Manifest) -> Result<()> {
    let text = manifest.encode()?;
    lock.check().await?;
    repository.objects.write_new(&manifest_name(&manifest.id), text.into()).await
}
