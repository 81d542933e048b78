//! The files of a tantivy index with one segment, as parts of one file of ours.
//!
//! tantivy reads them through [`Files`], which never changes them. What it writes of its own while
//! it opens an index (its list of segments) stays in memory.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use tantivy::Directory;
use tantivy::directory::error::{DeleteError, LockError, OpenReadError, OpenWriteError};
use tantivy::directory::{
    DirectoryLock, FileHandle, Lock, OwnedBytes, WatchCallback, WatchHandle, WritePtr,
};

/// Files that were written before.
#[derive(Clone, Debug)]
pub(crate) struct Files {
    files: Arc<HashMap<PathBuf, OwnedBytes>>,
    own: Arc<Mutex<HashMap<PathBuf, Vec<u8>>>>,
}

impl Files {
    pub(crate) fn new(files: impl IntoIterator<Item = (PathBuf, OwnedBytes)>) -> Files {
        Files { files: Arc::new(files.into_iter().collect()), own: Arc::default() }
    }

    /// The same files but one, for another index.
    pub(crate) fn with(&self, path: PathBuf, bytes: OwnedBytes) -> Files {
        let mut files = HashMap::clone(&self.files);
        files.insert(path, bytes);
        Files { files: Arc::new(files), own: Arc::default() }
    }

    /// The same files, for another index.
    pub(crate) fn fresh(&self) -> Files {
        Files { files: self.files.clone(), own: Arc::default() }
    }
}

impl Directory for Files {
    fn get_file_handle(&self, path: &Path) -> Result<Arc<dyn FileHandle>, OpenReadError> {
        match self.files.get(path) {
            Some(bytes) => Ok(Arc::new(bytes.clone())),
            None => Err(OpenReadError::FileDoesNotExist(path.to_owned())),
        }
    }

    fn delete(&self, _path: &Path) -> Result<(), DeleteError> {
        Ok(())
    }

    fn exists(&self, path: &Path) -> Result<bool, OpenReadError> {
        Ok(self.files.contains_key(path) || self.own.lock().contains_key(path))
    }

    fn open_write(&self, path: &Path) -> Result<WritePtr, OpenWriteError> {
        Err(OpenWriteError::FileAlreadyExists(path.to_owned()))
    }

    fn atomic_read(&self, path: &Path) -> Result<Vec<u8>, OpenReadError> {
        let own = self.own.lock().get(path).cloned();
        own.ok_or_else(|| OpenReadError::FileDoesNotExist(path.to_owned()))
    }

    fn atomic_write(&self, path: &Path, data: &[u8]) -> io::Result<()> {
        self.own.lock().insert(path.to_owned(), data.to_vec());
        Ok(())
    }

    fn sync_directory(&self) -> io::Result<()> {
        Ok(())
    }

    fn acquire_lock(&self, _lock: &Lock) -> Result<DirectoryLock, LockError> {
        Ok(DirectoryLock::from(Box::new(())))
    }

    fn watch(&self, _callback: WatchCallback) -> tantivy::Result<WatchHandle> {
        Ok(WatchHandle::empty())
    }
}
