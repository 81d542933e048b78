//! Checkpoints: consistent copies of the store that share its table files by hard links.
//!
//! The copy contains every commit before the call. Commits whose memtables are not flushed are in
//! its write-ahead log, so a flush shortly before keeps the copied part short. Tables never change,
//! and RocksDB does not give their numbers again: all other files are copied.

use std::fs;
use std::path::Path;

use mayfly_kv::{CheckpointFile, Keyspace, KvError, KvResult};
use rocksdb::FlushOptions;
use rocksdb::checkpoint::Checkpoint;

use crate::format;
use crate::store::Store;

/// A size of the write-ahead log that is never reached, so that RocksDB flushes nothing.
const NO_FLUSH: u64 = u64::MAX;

/// Flushes the memtables of all keyspaces, and syncs.
pub(crate) fn flush(store: &Store) -> KvResult<()> {
    let families: Vec<_> = Keyspace::ALL.map(|keyspace| store.family(keyspace)).to_vec();
    let families: Vec<_> = families.iter().collect();
    let flushed = store.db.flush_cfs_opt(&families, &FlushOptions::default());
    flushed.map_err(|error| KvError::Unavailable(format!("cannot flush: {error}")))?;
    store.sync()
}

/// Writes a checkpoint into a new folder.
pub(crate) fn write(store: &Store, folder: &Path) -> KvResult<Vec<CheckpointFile>> {
    if folder.exists() {
        return Err(KvError::Invalid(format!("{} exists already", folder.display())));
    }
    store.sync()?;
    let failed = |error: &dyn std::fmt::Display| {
        KvError::Unavailable(format!("{}: {error}", folder.display()))
    };
    Checkpoint::new(&*store.db)
        .and_then(|checkpoint| checkpoint.create_checkpoint_with_log_size(folder, NO_FLUSH))
        .map_err(|error| failed(&error))?;
    format::mark(folder)?;
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).map_err(|error| failed(&error))? {
        let name = entry.map_err(|error| failed(&error))?.file_name();
        let name = name.to_string_lossy().into_owned();
        files.push(CheckpointFile { number: table_number(&name), name });
    }
    files.sort();
    Ok(files)
}

/// The number of a table, whose file is named like `000012.sst`.
fn table_number(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(".sst")?;
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_tables_have_numbers() {
        assert_eq!(table_number("000012.sst"), Some(12));
        for other in ["000012.log", "CURRENT", "MANIFEST-000005", ".sst", "+12.sst"] {
            assert_eq!(table_number(other), None, "{other}");
        }
    }
}
