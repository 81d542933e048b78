//! Files of a backup that contain entries: runs of [`mayfly_storage::EntriesReader`], compressed.

use std::sync::Arc;

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_kv::{Engine, HeldSnapshot};
use mayfly_repository::{AddedFile, Backup, FileEntry, FilePath, Transfer};
use mayfly_storage::{EntriesReader, EntriesWriter, MAX_RUN_BYTES};

/// The level of zstd.
const LEVEL: i32 = 3;

/// A run that was read.
struct PackedRun {
    path: FilePath,
    /// The bytes of its entries.
    bytes: u64,
    packed: Vec<u8>,
}

/// Reads runs and compresses them.
struct Packer {
    reader: EntriesReader,
    number: u64,
}

impl Packer {
    fn next(&mut self) -> Result<Option<PackedRun>> {
        let Some((keyspace, run)) = self.reader.next_run()? else { return Ok(None) };
        self.number += 1;
        let path = format!("{}-{:08}.run.zst", keyspace.name(), self.number).parse()?;
        let packed = zstd::bulk::compress(&run, LEVEL).map_err(|error| failed(&error))?;
        Ok(Some(PackedRun { path, bytes: run.len() as u64, packed }))
    }
}

/// Adds all entries of a snapshot to a backup. `total` is the expected number of their bytes.
/// Returns the number of bytes that were sent.
///
/// # Errors
/// Errors of the engine and of the repository.
pub(super) async fn add(
    snapshot: Arc<dyn HeldSnapshot>,
    backup: &mut Backup,
    total: u64,
    transfer: &Transfer,
) -> Result<u64> {
    let mut packer = Packer { reader: EntriesReader::new(snapshot), number: 0 };
    let (mut read, mut packed, mut sent) = (0u64, 0u64, 0);
    loop {
        // An engine across a network waits for its replies.
        let next = tokio::task::spawn_blocking(move || (packer.next(), packer)).await;
        let (run, rest) = next.map_err(|error| failed(&error))?;
        packer = rest;
        let Some(run) = run? else { return Ok(sent) };
        let size = run.packed.len() as u64;
        (read, packed) = (read + run.bytes, packed + size);
        // The rest is probably as compressible.
        let rest = total.saturating_sub(read) as f64 * packed as f64 / read as f64;
        transfer.set_total(packed + rest as u64);
        if backup.add_content(run.path, run.packed, transfer).await? == AddedFile::Sent {
            sent += size;
        }
    }
}

/// The run in a file of a backup.
///
/// # Errors
/// 301 DataCorruptionDetected.
pub(super) fn unpack(file: &FileEntry, content: &[u8]) -> Result<Vec<u8>> {
    zstd::bulk::decompress(content, MAX_RUN_BYTES).map_err(|error| {
        let text = format!("the file '{}' of the backup is damaged: {error}", file.path);
        Error::new(ErrorCode::DataCorruptionDetected, text)
    })
}

/// Copies all entries of a store into an engine that contains nothing, or an unfinished restore.
/// [`EntriesWriter::release`] is still to be called.
///
/// # Errors
/// Errors of both engines.
pub(super) fn copy(from: &dyn Engine, to: Arc<dyn Engine>, report: &dyn Fn(u64)) -> Result<u64> {
    let mut reader = EntriesReader::of_engine(from)?;
    let mut writer = EntriesWriter::begin(to)?;
    while let Some((_, run)) = reader.next_run()? {
        writer.write_run(&run)?;
        report(run.len() as u64);
    }
    writer.sync()
}

fn failed(error: &dyn std::fmt::Display) -> Error {
    Error::new(ErrorCode::OperationFailed, format!("cannot read a run of entries: {error}"))
}
