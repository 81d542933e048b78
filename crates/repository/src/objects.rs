//! The operations on objects that a repository needs, over any [`ObjectStore`]. Errors name the
//! object. Requests that fail for a passing reason are repeated by the client of the object store
//! (its `RetryConfig`: with a growing pause, ten times, for three minutes at most); a download that
//! breaks off continues where it ended.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use object_store::path::Path;
use object_store::{GetOptions, ObjectStore, ObjectStoreExt, PutMode, PutPayload};

use crate::error::{Error, Result};
use crate::names::{BackupId, Checksum, Timeline};

/// The objects below the root of a repository.
#[derive(Clone, Debug)]
pub(crate) struct Objects {
    store: Arc<dyn ObjectStore>,
}

/// The name of an object, relative to the repository, and its size in bytes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Listed {
    pub(crate) name: String,
    pub(crate) size: u64,
}

/// The folder of all content.
const FILES: &str = "files";
/// The folder of all backups.
pub(crate) const BACKUPS: &str = "backups";
/// The folder of all timelines.
pub(crate) const LOG: &str = "log";
/// The folder of locks.
pub(crate) const LOCKS: &str = "locks";

/// The name of the object with the content of this checksum.
pub(crate) fn content_name(checksum: &Checksum) -> String {
    format!("{FILES}/{checksum}")
}

/// The name of a backup's manifest.
pub(crate) fn manifest_name(id: &BackupId) -> String {
    format!("{BACKUPS}/{id}/manifest.json")
}

/// The prefix of a timeline's segments, without a final `/`.
pub(crate) fn timeline_prefix(timeline: &Timeline) -> String {
    format!("{LOG}/{timeline}")
}

fn path(name: &str) -> Result<Path> {
    Path::parse(name).map_err(|error| Error::of_store(name, error.into()))
}

impl Objects {
    pub(crate) fn new(store: Arc<dyn ObjectStore>) -> Objects {
        Objects { store }
    }

    pub(crate) fn store(&self) -> &dyn ObjectStore {
        &*self.store
    }

    /// Reads a whole object.
    ///
    /// # Errors
    /// [`Error::Missing`], [`Error::TooLarge`] beyond the limit in bytes, [`Error::Store`].
    pub(crate) async fn read(&self, name: &str, limit: u64) -> Result<Bytes> {
        let failed = |error| Error::of_store(name, error);
        let result = self.store.get(&path(name)?).await.map_err(failed)?;
        let size = result.meta.size;
        if size > limit {
            return Err(Error::TooLarge { what: name.to_owned(), size, limit });
        }
        result.bytes().await.map_err(failed)
    }

    /// Reads the first bytes of an object, at most this many.
    pub(crate) async fn read_start(&self, name: &str, bytes: u64) -> Result<Bytes> {
        let options = GetOptions::new().with_range(Some(0..bytes));
        let failed = |error| Error::of_store(name, error);
        let result = self.store.get_opts(&path(name)?, options).await.map_err(failed)?;
        result.bytes().await.map_err(failed)
    }

    /// The size of an object in bytes, and its content in pieces.
    pub(crate) async fn stream(
        &self,
        name: &str,
    ) -> Result<(u64, stream::BoxStream<'static, Result<Bytes>>)> {
        let result = self.store.get(&path(name)?).await;
        let result = result.map_err(|error| Error::of_store(name, error))?;
        let (size, name) = (result.meta.size, name.to_owned());
        let pieces = result.into_stream();
        Ok((size, pieces.map_err(move |error| Error::of_store(&name, error)).boxed()))
    }

    /// Writes an object, or replaces it.
    pub(crate) async fn write(&self, name: &str, payload: PutPayload) -> Result<()> {
        let put = self.store.put(&path(name)?, payload).await;
        put.map(drop).map_err(|error| Error::of_store(name, error))
    }

    /// Writes an object that does not exist. A repeated request may find the object of the first
    /// one, whose reply was lost: the same content is not an error.
    ///
    /// # Errors
    /// [`Error::Exists`] with other content, [`Error::Store`].
    pub(crate) async fn write_new(&self, name: &str, bytes: Bytes) -> Result<()> {
        let put =
            self.store.put_opts(&path(name)?, bytes.clone().into(), PutMode::Create.into()).await;
        match put.map_err(|error| Error::of_store(name, error)) {
            Ok(_) => Ok(()),
            Err(Error::Exists { object }) => match self.read(name, bytes.len() as u64).await {
                Ok(found) if found == bytes => Ok(()),
                Ok(_) | Err(Error::TooLarge { .. }) => Err(Error::Exists { object }),
                Err(error) => Err(error),
            },
            Err(error) => Err(error),
        }
    }

    /// Whether any object exists, and its name.
    pub(crate) async fn any(&self) -> Result<Option<String>> {
        let first = self.store.list(None).try_next().await;
        let first = first.map_err(|error| Error::of_store("", error))?;
        Ok(first.map(|found| found.location.to_string()))
    }

    /// The objects under a prefix, sorted by name.
    pub(crate) async fn list(&self, prefix: &str) -> Result<Vec<Listed>> {
        let found = self.store.list(Some(&path(prefix)?));
        let found =
            found.map_ok(|found| Listed { name: found.location.to_string(), size: found.size });
        let mut all: Vec<Listed> =
            found.try_collect().await.map_err(|error| Error::of_store(prefix, error))?;
        all.sort();
        Ok(all)
    }

    /// Checksums and sizes of all content. Objects with other names are left out.
    pub(crate) async fn contents(&self) -> Result<HashMap<Checksum, u64>> {
        let failed = |error| Error::of_store(FILES, error);
        let mut all = HashMap::new();
        let mut found = self.store.list(Some(&path(FILES)?));
        while let Some(found) = found.try_next().await.map_err(failed)? {
            if let Some(checksum) = found.location.filename().and_then(|name| name.parse().ok()) {
                all.insert(checksum, found.size);
            }
        }
        Ok(all)
    }

    /// Deletes an object. An object that does not exist is not an error.
    pub(crate) async fn delete(&self, name: &str) -> Result<()> {
        match self.store.delete(&path(name)?).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(Error::of_store(name, error)),
        }
    }

    /// Deletes objects in this order, several with one request where the store can. Objects that do
    /// not exist are no error.
    pub(crate) async fn delete_all(&self, names: &[String]) -> Result<()> {
        let paths: Vec<_> = names.iter().map(|name| path(name)).collect::<Result<_>>()?;
        let paths = stream::iter(paths.into_iter().map(Ok)).boxed();
        let mut deleted = self.store.delete_stream(paths);
        while let Some(deleted) = deleted.next().await {
            match deleted {
                Ok(_) | Err(object_store::Error::NotFound { .. }) => {}
                Err(error) => return Err(Error::of_store(&names[0], error)),
            }
        }
        Ok(())
    }
}
