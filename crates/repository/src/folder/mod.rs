//! A local folder as an [`ObjectStore`]. An object is a file of the same path.
//!
//! `LocalFileSystem` of `object_store` is not used: it needs a further library, does not sync
//! deletions, and leaves unfinished files of a crashed process among the objects.
//!
//! An object appears under its name when it is complete and on the disk: it is written to a file in
//! `.unfinished/`, synced, and renamed (or, for an object that must not exist yet, hard-linked);
//! then its folder is synced. Names that begin with a dot are no objects.

mod list;
mod write;

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path as FsPath, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::stream::{self, BoxStream, StreamExt};
use object_store::path::Path;
use object_store::{
    Attributes, CopyOptions, Error, GetOptions, GetResult, GetResultPayload, ListResult,
    MultipartUpload, ObjectMeta, ObjectStore, PutMode, PutMultipartOptions, PutOptions, PutPayload,
    PutResult, Result,
};
use parking_lot::Mutex;

use crate::error::{Error as RepositoryError, Result as RepositoryResult};
use write::Unfinished;

/// Bytes that a download reads at a time.
const PIECE_BYTES: u64 = 1 << 20;
/// The folder of files that are being written.
const UNFINISHED: &str = ".unfinished";
/// Age after which an unfinished file belongs to a process that crashed.
const ABANDONED_MS: i64 = 7 * 24 * 3600 * 1000;

/// A folder that contains objects. It must be on a file system with hard links.
#[derive(Clone, Debug)]
pub struct FolderStore {
    root: Arc<PathBuf>,
    /// Held while a piece is written and synced: several at a time would be no faster, and would
    /// hold up the syncs of other programs for longer.
    disk: Arc<Mutex<()>>,
}

impl FolderStore {
    /// Opens a folder, and creates it if needed, with those that contain it.
    ///
    /// # Errors
    /// [`LocalFile`](RepositoryError::LocalFile) if it cannot be created or is a file.
    pub fn open_or_create(root: &FsPath, now_ms: i64) -> RepositoryResult<FolderStore> {
        let failed = |source| RepositoryError::LocalFile { path: root.to_owned(), source };
        write::create_folders(root).map_err(failed)?;
        FolderStore::open(root, now_ms)
    }

    /// Opens a folder, and removes unfinished files that are a week old. `now_ms` is the present
    /// time in milliseconds since 1970.
    ///
    /// # Errors
    /// [`LocalFile`](RepositoryError::LocalFile) if it does not exist or is a file.
    pub fn open(root: &FsPath, now_ms: i64) -> RepositoryResult<FolderStore> {
        let failed = |source| RepositoryError::LocalFile { path: root.to_owned(), source };
        let root = root.canonicalize().map_err(failed)?;
        if !root.is_dir() {
            return Err(failed(io::ErrorKind::NotADirectory.into()));
        }
        write::remove_abandoned(&root.join(UNFINISHED), now_ms - ABANDONED_MS);
        Ok(FolderStore { root: Arc::new(root), disk: Arc::default() })
    }

    fn file(&self, location: &Path) -> PathBuf {
        // A `Path` has no component `..` and does not begin with `/`.
        self.root.join(location.as_ref())
    }

    fn unfinished(&self, location: &Path) -> Result<Unfinished> {
        let target = self.file(location);
        Unfinished::create(&self.root.join(UNFINISHED), target, self.disk.clone())
            .map_err(|error| of_io(location, error))
    }
}

impl std::fmt::Display for FolderStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the folder {}", self.root.display())
    }
}

fn of_io(location: &Path, error: io::Error) -> Error {
    let path = location.to_string();
    match error.kind() {
        io::ErrorKind::NotFound => Error::NotFound { path, source: error.into() },
        io::ErrorKind::AlreadyExists => Error::AlreadyExists { path, source: error.into() },
        _ => Error::Generic { store: "folder", source: error.into() },
    }
}

fn not_implemented(operation: &str, store: &FolderStore) -> Error {
    Error::NotImplemented { operation: operation.into(), implementer: store.to_string() }
}

/// Runs blocking work on the runtime's threads for it.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    tokio::task::spawn_blocking(work).await?
}

#[async_trait]
impl ObjectStore for FolderStore {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        let is_new = match options.mode {
            PutMode::Overwrite => false,
            PutMode::Create => true,
            PutMode::Update(_) => return Err(not_implemented("put with a version", self)),
        };
        let (store, location) = (self.clone(), location.clone());
        blocking(move || {
            let unfinished = store.unfinished(&location)?;
            let written = unfinished.write(0, &payload).and_then(|()| match is_new {
                true => unfinished.publish_new(),
                false => unfinished.publish(),
            });
            written.map_err(|error| of_io(&location, error))?;
            Ok(put_result())
        })
        .await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        _: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        let (store, location) = (self.clone(), location.clone());
        let upload = move || {
            let unfinished = Some(Arc::new(store.unfinished(&location)?));
            Ok(write::Parts { location, unfinished, offset: 0 })
        };
        Ok(Box::new(blocking(upload).await?))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let (file, location) = (self.file(location), location.clone());
        let (file, meta) = blocking(move || {
            let failed = |error| of_io(&location, error);
            let file = File::open(file).map_err(failed)?;
            let metadata = file.metadata().map_err(failed)?;
            if !metadata.is_file() {
                return Err(failed(io::ErrorKind::NotFound.into()));
            }
            let meta = object_meta(location.clone(), &metadata).map_err(failed)?;
            Ok((file, meta))
        })
        .await?;
        options.check_preconditions(&meta)?;
        let range = match &options.range {
            Some(range) => range
                .as_range(meta.size)
                .map_err(|error| Error::Generic { store: "folder", source: error.into() })?,
            None => 0..meta.size,
        };
        let pieces = match options.head {
            true => stream::empty().boxed(),
            false => pieces(file, meta.location.clone(), range.clone()),
        };
        Ok(GetResult {
            payload: GetResultPayload::Stream(pieces),
            meta,
            range,
            attributes: Attributes::default(),
            extensions: Default::default(),
        })
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        let store = self.clone();
        let delete = move |location: Result<Path>| {
            let store = store.clone();
            blocking(move || {
                let location = location?;
                let deleted = write::delete(&store.root, &store.file(&location));
                deleted.map_err(|error| of_io(&location, error))?;
                Ok(location)
            })
        };
        locations.then(delete).boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let (root, prefix) = (self.root.clone(), prefix.cloned().unwrap_or_default());
        let listed =
            blocking(move || list::objects(&root, &prefix).map_err(|error| of_io(&prefix, error)));
        let all = async {
            match listed.await {
                Ok(objects) => objects.into_iter().map(Ok).collect(),
                Err(error) => vec![Err(error)],
            }
        };
        stream::once(all).flat_map(stream::iter).boxed()
    }

    async fn list_with_delimiter(&self, _: Option<&Path>) -> Result<ListResult> {
        Err(not_implemented("a listing of one level", self))
    }

    async fn copy_opts(&self, _: &Path, _: &Path, _: CopyOptions) -> Result<()> {
        Err(not_implemented("a copy", self))
    }
}

fn put_result() -> PutResult {
    PutResult { e_tag: None, version: None, extensions: Default::default() }
}

fn object_meta(location: Path, metadata: &fs::Metadata) -> io::Result<ObjectMeta> {
    let (last_modified, size) = (metadata.modified()?.into(), metadata.len());
    Ok(ObjectMeta { location, last_modified, size, e_tag: None, version: None })
}

/// The bytes of a file in a range, piece by piece. The file may have become shorter.
fn pieces(
    file: File,
    location: Path,
    range: std::ops::Range<u64>,
) -> BoxStream<'static, Result<Bytes>> {
    let file = Arc::new(file);
    let read = move |at: u64| {
        let (file, location) = (file.clone(), location.clone());
        let length = PIECE_BYTES.min(range.end - at);
        let is_end = length == 0;
        async move {
            if is_end {
                return Ok(None);
            }
            let piece = blocking(move || {
                let mut piece = vec![0; length as usize];
                let read = file.read_exact_at(&mut piece, at);
                read.map_err(|error| of_io(&location, error)).map(|()| piece)
            });
            Ok(Some((Bytes::from(piece.await?), at + length)))
        }
    };
    stream::try_unfold(range.start, read).boxed()
}
