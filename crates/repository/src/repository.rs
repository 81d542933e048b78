//! Opening a repository, and reading what it has.

use std::sync::Arc;

use jiff::Timestamp;
use mayfly_base::Clock;
use object_store::ObjectStore;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::manifest::{BackupSummary, MAX_MANIFEST_BYTES, Manifest};
use crate::names::{BackupId, StoreId};
use crate::objects::{BACKUPS, Objects, manifest_name};
use crate::sealed::{FORMAT, seal, unseal};

/// The object that names the store.
pub(crate) const IDENTITY: &str = "repository.json";
/// Longest `repository.json` in bytes.
const MAX_IDENTITY_BYTES: u64 = 64 << 10;

#[derive(Serialize, Deserialize)]
struct Identity {
    format: u64,
    store: StoreId,
    created: String,
}

/// A repository of the backups of one store. It holds no connection and no lock; clones share the
/// object store.
#[derive(Clone)]
pub struct Repository {
    pub(crate) objects: Objects,
    pub(crate) clock: Arc<dyn Clock>,
    store: StoreId,
}

/// A finished backup. A damaged manifest does not hide the other backups.
#[derive(Debug)]
pub struct ListedBackup {
    /// The name of the backup.
    pub id: BackupId,
    /// What its manifest says, or why it cannot be read.
    pub summary: Result<BackupSummary>,
}

impl Repository {
    /// Opens a repository of any store. The root of `objects` is the root of the repository: wrap a
    /// bucket with a prefix in [`object_store::prefix::PrefixStore`].
    ///
    /// # Errors
    /// [`Error::NoRepository`], [`Error::NotEmpty`], [`Error::NewerFormat`], [`Error::Damaged`],
    /// [`Error::Store`].
    pub async fn open(objects: Arc<dyn ObjectStore>, clock: Arc<dyn Clock>) -> Result<Repository> {
        let objects = Objects::new(objects);
        let store = read_identity(&objects).await?.ok_or(Error::NoRepository)?;
        Ok(Repository { objects, clock, store })
    }

    /// Opens the repository of this store, and creates it in an empty folder or bucket.
    ///
    /// # Errors
    /// Those of [`Repository::open`] without `NoRepository`, and [`Error::OtherStore`].
    pub async fn open_or_create(
        objects: Arc<dyn ObjectStore>,
        clock: Arc<dyn Clock>,
        store: StoreId,
    ) -> Result<Repository> {
        let objects = Objects::new(objects);
        let found = match read_identity(&objects).await? {
            Some(found) => found,
            None => create(&objects, &*clock, store).await?,
        };
        match found == store {
            true => Ok(Repository { objects, clock, store }),
            false => Err(Error::OtherStore { found, expected: store }),
        }
    }

    /// The store whose backups are here.
    pub fn store(&self) -> StoreId {
        self.store
    }

    /// The names of all finished backups, the newest last.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub async fn backup_ids(&self) -> Result<Vec<BackupId>> {
        let found = self.objects.list(BACKUPS).await?;
        let id = |name: &str| -> Option<BackupId> {
            let (id, file) = name.strip_prefix("backups/")?.split_once('/')?;
            id.parse().ok().filter(|_| file == "manifest.json")
        };
        let mut ids: Vec<BackupId> = found.iter().filter_map(|found| id(&found.name)).collect();
        ids.sort();
        Ok(ids)
    }

    /// All finished backups, the newest last.
    ///
    /// # Errors
    /// [`Error::Store`]; errors of single manifests are in the list.
    pub async fn backups(&self) -> Result<Vec<ListedBackup>> {
        let mut backups = Vec::new();
        for id in self.backup_ids().await? {
            let summary = match self.manifest(&id).await {
                // A prune has just deleted it.
                Err(Error::Missing { .. }) => continue,
                Err(error @ Error::Store { .. }) => return Err(error),
                read => read.map(|manifest| manifest.summary()),
            };
            backups.push(ListedBackup { id, summary });
        }
        Ok(backups)
    }

    /// Reads and validates the manifest of a backup. Its paths are safe: no file of it is outside
    /// of the folder of a restore, and no two files have the same path.
    ///
    /// # Errors
    /// [`Error::Missing`], [`Error::NewerFormat`], [`Error::Damaged`], [`Error::OtherStore`],
    /// [`Error::Store`].
    pub async fn manifest(&self, id: &BackupId) -> Result<Manifest> {
        let bytes = self.objects.read(&manifest_name(id), MAX_MANIFEST_BYTES).await?;
        Manifest::decode(id, self.store, &bytes)
    }
}

/// The store of the repository; `None` if the place is empty.
pub(crate) async fn read_identity(objects: &Objects) -> Result<Option<StoreId>> {
    if let Some(store) = read_existing(objects).await? {
        return Ok(Some(store));
    }
    let Some(found) = objects.any().await? else { return Ok(None) };
    // Another process may have just created the repository.
    match read_existing(objects).await? {
        Some(store) => Ok(Some(store)),
        None => Err(Error::NotEmpty { found }),
    }
}

async fn read_existing(objects: &Objects) -> Result<Option<StoreId>> {
    match objects.read(IDENTITY, MAX_IDENTITY_BYTES).await {
        Ok(bytes) => {
            let identity: Identity = unseal(IDENTITY, &bytes)?;
            Ok(Some(identity.store))
        }
        Err(Error::Missing { .. }) => Ok(None),
        Err(Error::TooLarge { what, size, .. }) => {
            Err(Error::damaged(&what, format!("it has {size} bytes")))
        }
        Err(error) => Err(error),
    }
}

/// Writes `repository.json`, and returns the store that it names: that of another process, if it
/// was faster.
async fn create(objects: &Objects, clock: &dyn Clock, store: StoreId) -> Result<StoreId> {
    let now_ms = clock.now_ms();
    let created = Timestamp::from_millisecond(now_ms).map_err(|_| Error::Clock { now_ms })?;
    let identity = Identity { format: FORMAT, store, created: created.to_string() };
    match objects.write_new(IDENTITY, seal(IDENTITY, &identity)?.into()).await {
        Ok(()) => Ok(store),
        Err(Error::Exists { object }) => {
            let bytes = objects.read(&object, MAX_IDENTITY_BYTES).await?;
            Ok(unseal::<Identity>(&object, &bytes)?.store)
        }
        Err(error) => Err(error),
    }
}
