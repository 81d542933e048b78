//! An object store that loses its connection at one of its writes.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};

/// Executes this many writes and deletions and refuses all others.
#[derive(Debug)]
pub(super) struct FaultyStore {
    pub(super) inner: Arc<InMemory>,
    pub(super) left: Arc<AtomicI64>,
}

impl std::fmt::Display for FaultyStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a faulty store")
    }
}

fn step(left: &AtomicI64) -> Result<()> {
    match left.fetch_sub(1, Ordering::SeqCst) > 0 {
        true => Ok(()),
        false => Err(Error::Generic { store: "faulty", source: "the connection is lost".into() }),
    }
}

#[async_trait]
impl ObjectStore for FaultyStore {
    async fn put_opts(&self, at: &Path, content: PutPayload, how: PutOptions) -> Result<PutResult> {
        step(&self.left)?;
        self.inner.put_opts(at, content, how).await
    }

    async fn put_multipart_opts(
        &self,
        at: &Path,
        how: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        step(&self.left)?;
        self.inner.put_multipart_opts(at, how).await
    }

    async fn get_opts(&self, at: &Path, how: GetOptions) -> Result<GetResult> {
        self.inner.get_opts(at, how).await
    }

    fn delete_stream(
        &self,
        paths: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        use futures_util::{StreamExt, TryStreamExt};
        let left = self.left.clone();
        let paths = paths.and_then(move |path| std::future::ready(step(&left).map(|()| path)));
        self.inner.delete_stream(paths.boxed())
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, how: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, how).await
    }
}
