//! Bulk loading: entries are written to table files, which are moved into the database without
//! write-ahead log, memtable or compaction, because nothing else is in their range.
//!
//! Entries are buffered until they fill a file. The files are created in the scratch folder, which
//! is on the disk of the database, so that moving them is a rename. Files that are not moved are
//! removed when the ingest is dropped or, after a crash, when the database is opened.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use mayfly_kv::{Ingest, Keyspace, KvError, KvResult};
use rocksdb::{Error, IngestExternalFileOptions, Options, SstFileWriter};

use crate::health::is_disk_full;
use crate::options;
use crate::store::Store;
use crate::txn::CAPS;

/// The folder for temporary files in the data folder.
pub const SCRATCH_FOLDER: &str = "_tmp";

/// Bytes of keys and values in a file. Small, because the space of a dropped range is reclaimed by
/// whole files.
const FILE_BYTES: usize = 32 << 20;

/// Removes temporary files that a crash has left.
pub(crate) fn clear_scratch(folder: &Path) {
    let scratch = folder.join(SCRATCH_FOLDER);
    if let Err(error) = fs::remove_dir_all(&scratch)
        && error.kind() != std::io::ErrorKind::NotFound
    {
        tracing::warn!(%error, folder = %scratch.display(), "temporary files of an earlier run cannot be removed");
    }
}

pub(crate) struct RocksIngest {
    store: Arc<Store>,
    keyspace: Keyspace,
    options: Options,
    /// Keys and values of the next file, concatenated.
    bytes: Vec<u8>,
    /// The offsets at which each key and each value ends.
    ends: Vec<(u32, u32)>,
    files: Vec<PathBuf>,
    last: Vec<u8>,
}

impl RocksIngest {
    pub(crate) fn new(store: Arc<Store>, keyspace: Keyspace) -> RocksIngest {
        let options = options::column_family(keyspace, &store.shared);
        let (bytes, last) = (Vec::new(), Vec::new());
        RocksIngest { store, keyspace, options, bytes, ends: Vec::new(), files: Vec::new(), last }
    }

    fn write_file(&mut self) -> KvResult<()> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        if self.ends.is_empty() {
            return Ok(());
        }
        self.store.health.check()?;
        let folder = self.store.scratch(self.bytes.len() as u64)?;
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = folder.join(format!("ingest-{number}.sst"));
        self.files.push(path.clone());
        self.write_entries(&path).map_err(|error| failed(&error))?;
        self.bytes.clear();
        self.ends.clear();
        Ok(())
    }

    fn write_entries(&self, path: &Path) -> Result<(), Error> {
        let mut writer = SstFileWriter::create(&self.options);
        writer.open(path)?;
        let mut start = 0;
        for (key_end, value_end) in &self.ends {
            let (key_end, value_end) = (*key_end as usize, *value_end as usize);
            writer.put(&self.bytes[start..key_end], &self.bytes[key_end..value_end])?;
            start = value_end;
        }
        writer.finish()
    }
}

impl Ingest for RocksIngest {
    fn add(&mut self, key: &[u8], value: &[u8]) -> KvResult<()> {
        CAPS.check_write(key, value, (0, 0))?;
        let begun = !self.ends.is_empty() || !self.files.is_empty();
        CAPS.check_ascending(begun.then_some(&self.last[..]), key)?;
        self.bytes.extend_from_slice(key);
        // Far less than 4 GB: the content of a file plus one entry.
        let key_end = self.bytes.len() as u32;
        self.bytes.extend_from_slice(value);
        self.ends.push((key_end, self.bytes.len() as u32));
        self.last.clear();
        self.last.extend_from_slice(key);
        if self.bytes.len() >= FILE_BYTES { self.write_file() } else { Ok(()) }
    }

    fn finish(mut self: Box<Self>) -> KvResult<()> {
        self.write_file()?;
        if self.files.is_empty() {
            return Ok(());
        }
        self.store.health.check()?;
        let mut options = IngestExternalFileOptions::default();
        options.set_move_files(true);
        let family = self.store.family(self.keyspace);
        let moved =
            self.store.db.ingest_external_file_cf_opts(&family, &options, self.files.clone());
        moved.map_err(|error| failed(&error))?;
        self.store.wrote();
        Ok(())
    }
}

impl Drop for RocksIngest {
    fn drop(&mut self) {
        for file in &self.files {
            // Files that were moved do not exist any more.
            let _ = fs::remove_file(file);
        }
    }
}

/// A failure concerns this ingest alone, because its entries are not visible yet. If it concerns
/// the database as well, the next commit fails.
fn failed(error: &Error) -> KvError {
    let text = error.to_string();
    KvError::Unavailable(match is_disk_full(&text) {
        true => format!("the disk is full: {text}"),
        false => text,
    })
}
