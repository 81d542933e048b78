//! The manifest of a backup: all that a restore needs to know, except the content of the files.

use std::collections::{HashMap, HashSet};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::error::{Error, Result};
use crate::names::{BackupId, Checksum, ClusterTime, FilePath, StoreId, Timeline};
use crate::objects::manifest_name;
use crate::sealed::{FORMAT, seal, unseal};

/// Longest manifest in bytes: room for 200,000 files.
pub(crate) const MAX_MANIFEST_BYTES: u64 = 64 << 20;

/// The description of a finished backup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Manifest {
    /// The format of the repository.
    format: u64,
    /// The name of the backup.
    pub id: BackupId,
    /// The store that was backed up.
    pub store: StoreId,
    /// The timeline that the store was on.
    pub timeline: Timeline,
    /// The backup contains all entries of the log up to this time, and none after it.
    pub time: ClusterTime,
    /// The format of the store's files.
    pub store_format: u32,
    /// The version of the server that made the backup.
    pub server_version: String,
    /// The backup whose files this one took over. It is not needed for a restore.
    pub parent: Option<BackupId>,
    /// What the files contain.
    pub kind: BackupKind,
    /// All files, also those that were taken over.
    pub files: Vec<FileEntry>,
    /// The collections at the time of the backup.
    pub collections: Vec<CollectionEntry>,
}

/// What the files of a backup contain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BackupKind {
    /// The files of the embedded engine: a restore puts them into a data folder.
    Files,
    /// The entries of any engine, exported: a restore writes them into an empty store.
    Entries,
}

/// One file of a backup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FileEntry {
    /// Where a restore puts the file.
    pub path: FilePath,
    /// The size in bytes.
    pub size: u64,
    /// The checksum of the content, which is also the content's name in the repository.
    pub sha256: Checksum,
    /// The engine's number of a table file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file_number: Option<u64>,
    /// The path in the parent's manifest, if the content was taken over without being read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_file: Option<FilePath>,
}

/// One collection at the time of a backup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CollectionEntry {
    /// The namespace, `database.collection`.
    pub ns: String,
    /// The identity of the collection.
    pub uuid: Uuid,
    /// The number of documents.
    pub count: u64,
}

/// What a manifest says of its backup as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackupSummary {
    /// The timeline, as in [`Manifest::timeline`].
    pub timeline: Timeline,
    /// The end of the log in it, as in [`Manifest::time`].
    pub time: ClusterTime,
    /// The version of the server that made it.
    pub server_version: String,
    /// The backup whose files it took over, as in [`Manifest::parent`].
    pub parent: Option<BackupId>,
    /// What its files contain.
    pub kind: BackupKind,
    /// The number of files.
    pub files: usize,
    /// The size of all files in bytes.
    pub bytes: u64,
}

/// The parts of a manifest that a backup knows at its end.
pub(crate) struct ManifestParts {
    pub(crate) id: BackupId,
    pub(crate) store: StoreId,
    pub(crate) timeline: Timeline,
    pub(crate) time: ClusterTime,
    pub(crate) store_format: u32,
    pub(crate) server_version: String,
    pub(crate) parent: Option<BackupId>,
    pub(crate) kind: BackupKind,
    pub(crate) files: Vec<FileEntry>,
    pub(crate) collections: Vec<CollectionEntry>,
}

impl Manifest {
    pub(crate) fn new(parts: ManifestParts) -> Manifest {
        let ManifestParts { id, store, timeline, time, store_format, server_version, .. } = parts;
        let ManifestParts { parent, kind, files, collections, .. } = parts;
        Manifest {
            format: FORMAT,
            id,
            store,
            timeline,
            time,
            store_format,
            server_version,
            parent,
            kind,
            files,
            collections,
        }
    }

    /// The size of all files in bytes.
    pub fn bytes(&self) -> u64 {
        // Checked when the manifest was read.
        self.files.iter().map(|file| file.size).fold(0, u64::saturating_add)
    }

    /// What the manifest says of the backup as a whole.
    pub fn summary(&self) -> BackupSummary {
        BackupSummary {
            timeline: self.timeline.clone(),
            time: self.time,
            server_version: self.server_version.clone(),
            parent: self.parent.clone(),
            kind: self.kind,
            files: self.files.len(),
            bytes: self.bytes(),
        }
    }

    /// The text of a valid manifest.
    pub(crate) fn encode(&self) -> Result<Vec<u8>> {
        let object = manifest_name(&self.id);
        self.validate().map_err(|why| Error::InvalidInput { why })?;
        let text = seal(&object, self)?;
        let size = text.len() as u64;
        match size > MAX_MANIFEST_BYTES {
            true => Err(Error::TooLarge { what: object, size, limit: MAX_MANIFEST_BYTES }),
            false => Ok(text),
        }
    }

    /// Reads and validates the manifest of this backup.
    ///
    /// # Errors
    /// [`Error::NewerFormat`], [`Error::Damaged`], [`Error::OtherStore`].
    pub(crate) fn decode(id: &BackupId, store: StoreId, bytes: &[u8]) -> Result<Manifest> {
        let object = manifest_name(id);
        let manifest: Manifest = unseal(&object, bytes)?;
        if manifest.id != *id {
            let why = format!("it is the manifest of the backup {}", manifest.id);
            return Err(Error::Damaged { object, why });
        }
        if manifest.store != store {
            return Err(Error::OtherStore { found: manifest.store, expected: store });
        }
        match manifest.validate() {
            Ok(()) => Ok(manifest),
            Err(why) => Err(Error::Damaged { object, why }),
        }
    }

    /// Checks what the types of the fields do not guarantee. The error is a text.
    fn validate(&self) -> std::result::Result<(), String> {
        if self.parent.as_ref() == Some(&self.id) {
            return Err("the backup is its own parent".into());
        }
        let mut paths = HashSet::with_capacity(self.files.len());
        let mut sizes = HashMap::with_capacity(self.files.len());
        let mut total: u64 = 0;
        for file in &self.files {
            if !paths.insert(file.path.as_str()) {
                return Err(format!("it has the file '{}' twice", file.path));
            }
            if *sizes.entry(file.sha256).or_insert(file.size) != file.size {
                return Err(format!("it gives two sizes for the content {}", file.sha256));
            }
            if file.parent_file.is_some() && self.parent.is_none() {
                return Err(format!("'{}' is from a parent, but there is none", file.path));
            }
            let Some(sum) = total.checked_add(file.size) else {
                return Err("its files have more than 2^64 bytes".into());
            };
            total = sum;
        }
        for file in &self.files {
            if let Some(folder) = file.path.folders().find(|folder| paths.contains(folder)) {
                return Err(format!("'{folder}' is a file and the folder of '{}'", file.path));
            }
        }
        Ok(())
    }
}
