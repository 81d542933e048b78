//! Sending the content of a local file.
//!
//! The name of the content is its checksum, which is known only at the end of the file. A file of
//! up to 48 MiB is read once, kept in memory, and sent. A larger one is read twice: for its
//! checksum, and then piece by piece while it is sent, with the checksum computed again. Content
//! that the repository already has is not sent. The next file may be read while one is sent, so at
//! most 96 MiB are in memory at a time.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use object_store::path::Path as ObjectPath;
use object_store::{ObjectStoreExt, WriteMultipart};
use sha2::{Digest as _, Sha256};

use crate::error::{Error, Result};
use crate::lock::Lock;
use crate::names::Checksum;
use crate::objects::{Objects, content_name};
use crate::transfer::Transfer;

/// Smallest and largest part of an upload in bytes. Parts of one upload have the same size, as some
/// object stores demand, and S3 demands at least 5 MiB.
const MIN_PART_BYTES: u64 = 8 << 20;
const MAX_PART_BYTES: u64 = 32 << 20;
/// Most parts of an upload, a limit of S3.
const MAX_PARTS: u64 = 10_000;
/// Largest file, in bytes: 312 GiB.
const MAX_FILE_BYTES: u64 = MAX_PARTS * MAX_PART_BYTES;
/// Parts that are being sent at a time have at most this many bytes.
const IN_FLIGHT_BYTES: u64 = 32 << 20;
/// Largest file that is kept in memory between reading and sending, in bytes.
const MAX_KEPT_BYTES: u64 = 48 << 20;

/// A local file whose checksum is known.
pub(crate) struct Hashed {
    pub(crate) checksum: Checksum,
    pub(crate) size: u64,
    path: PathBuf,
    /// The content, if the file is small.
    kept: Option<Vec<Bytes>>,
}

impl Hashed {
    /// Content that is in memory. It is kept whole, of whatever size.
    pub(crate) fn of_content(content: Vec<u8>) -> Hashed {
        let (checksum, size) = (Checksum::of(&content), content.len() as u64);
        let mut rest = Bytes::from(content);
        let mut kept = Vec::new();
        while !rest.is_empty() {
            kept.push(rest.split_to(rest.len().min(part_bytes(size) as usize)));
        }
        Hashed { checksum, size, path: PathBuf::new(), kept: Some(kept) }
    }
}

/// Reads a file in pieces of the same size, except for the last.
struct Reader {
    path: Arc<PathBuf>,
    piece_bytes: u64,
    state: Option<(File, Sha256)>,
    size: u64,
    done: u64,
}

/// The size of the parts of an upload.
fn part_bytes(size: u64) -> u64 {
    size.div_ceil(MAX_PARTS).next_multiple_of(1 << 20).max(MIN_PART_BYTES)
}

impl Reader {
    async fn open(path: &Path) -> Result<Reader> {
        let path = Arc::new(path.to_owned());
        let opened = path.clone();
        let (file, size) = blocking(&path, move || {
            let file = File::open(&*opened)?;
            let metadata = file.metadata()?;
            match metadata.is_file() {
                true => Ok((file, metadata.len())),
                false => Err(std::io::Error::other("it is not a regular file")),
            }
        })
        .await?;
        if size > MAX_FILE_BYTES {
            let what = path.display().to_string();
            return Err(Error::TooLarge { what, size, limit: MAX_FILE_BYTES });
        }
        let (piece_bytes, state) = (part_bytes(size), Some((file, Sha256::new())));
        Ok(Reader { path, piece_bytes, state, size, done: 0 })
    }

    /// The next piece; `None` at the end of the file.
    ///
    /// # Errors
    /// [`Error::SourceChanged`] if the file does not have the size that it had when it was opened.
    async fn next(&mut self) -> Result<Option<Bytes>> {
        let Some((mut file, mut hasher)) = self.state.take() else { return Ok(None) };
        let (limit, left) = (self.piece_bytes, self.size - self.done);
        let (piece, state) = blocking(&self.path, move || {
            // Exactly what is left, since a vector that grows may take twice the space.
            let mut piece = Vec::with_capacity(limit.min(left) as usize);
            (&mut file).take(limit).read_to_end(&mut piece)?;
            hasher.update(&piece);
            Ok((Bytes::from(piece), (file, hasher)))
        })
        .await?;
        self.state = Some(state);
        self.done += piece.len() as u64;
        let is_end = piece.is_empty();
        if self.done > self.size || (is_end && self.done < self.size) {
            return Err(Error::SourceChanged { path: self.path.to_path_buf() });
        }
        Ok((!is_end).then_some(piece))
    }

    fn checksum(self) -> Checksum {
        let hasher = self.state.map(|(_, hasher)| hasher).unwrap_or_default();
        Checksum::from_bytes(hasher.finalize().into())
    }
}

/// Runs blocking work on a local file.
pub(crate) async fn blocking<T: Send + 'static>(
    path: &Path,
    work: impl FnOnce() -> std::io::Result<T> + Send + 'static,
) -> Result<T> {
    let done = tokio::task::spawn_blocking(work).await;
    let done = done.unwrap_or_else(|ended| Err(std::io::Error::other(ended)));
    done.map_err(|source| Error::LocalFile { path: path.to_owned(), source })
}

/// Computes the checksum of a file.
///
/// # Errors
/// [`Error::LocalFile`], [`Error::SourceChanged`], [`Error::TooLarge`], [`Error::Cancelled`].
pub(crate) async fn hash(path: &Path, transfer: &Transfer, lock: &Lock) -> Result<Hashed> {
    let mut reader = Reader::open(path).await?;
    let size = reader.size;
    let mut kept = (size <= MAX_KEPT_BYTES).then(Vec::new);
    while let Some(piece) = reader.next().await? {
        transfer.pace_reading(piece.len() as u64).await?;
        lock.keep().await?;
        if let Some(kept) = &mut kept {
            kept.push(piece);
        }
    }
    transfer.check()?;
    Ok(Hashed { checksum: reader.checksum(), size, path: path.to_owned(), kept })
}

/// Sends the content of a file that was hashed.
///
/// # Errors
/// Those of [`hash`], and [`Error::Store`]. A failed upload leaves no object.
pub(crate) async fn send(
    objects: &Objects,
    hashed: Hashed,
    transfer: &Transfer,
    lock: &Lock,
) -> Result<()> {
    let name = content_name(&hashed.checksum);
    if hashed.size <= MIN_PART_BYTES
        && let Some(kept) = hashed.kept
    {
        transfer.pace_sending(hashed.size).await?;
        objects.write(&name, kept.into_iter().collect()).await?;
        transfer.advance(hashed.size);
        return Ok(());
    }
    let failed = |error| Error::of_store(&name, error);
    let path = ObjectPath::from(name.as_str());
    let upload = objects.store().put_multipart(&path).await.map_err(failed)?;
    let part_bytes = part_bytes(hashed.size);
    let mut upload = WriteMultipart::new_with_chunk_size(upload, part_bytes as usize);
    match send_parts(&name, &mut upload, hashed, transfer, lock).await {
        Ok(()) => upload.finish().await.map(drop).map_err(failed),
        Err(error) => {
            // The error that ended the upload matters more than one of its end.
            if let Err(error) = upload.abort().await {
                tracing::debug!(%error, object = name, "an upload could not be aborted");
            }
            Err(error)
        }
    }
}

async fn send_parts(
    name: &str,
    upload: &mut WriteMultipart,
    hashed: Hashed,
    transfer: &Transfer,
    lock: &Lock,
) -> Result<()> {
    let in_flight = (IN_FLIGHT_BYTES / part_bytes(hashed.size)).max(1) as usize;
    let mut kept = hashed.kept.map(Vec::into_iter);
    let mut reader = match kept {
        Some(_) => None,
        None => Some(Reader::open(&hashed.path).await?),
    };
    loop {
        let piece = match (&mut kept, &mut reader) {
            (Some(kept), _) => kept.next(),
            (None, Some(reader)) => reader.next().await?,
            (None, None) => None,
        };
        let Some(piece) = piece else { break };
        let bytes = piece.len() as u64;
        transfer.pace_sending(bytes).await?;
        lock.keep().await?;
        let sent = upload.wait_for_capacity(in_flight).await;
        sent.map_err(|error| Error::of_store(name, error))?;
        upload.put(piece);
        transfer.advance(bytes);
    }
    match reader.map(Reader::checksum) {
        Some(checksum) if checksum != hashed.checksum => {
            Err(Error::SourceChanged { path: hashed.path })
        }
        _ => Ok(()),
    }
}
