//! Sorts the keys of an index and the notes of a build: a [`mayfly_runs::Sorter`] with a memory
//! budget and the engine's folder for temporary files. Without such a folder everything stays in
//! memory.

use std::path::PathBuf;
use std::sync::Arc;

use mayfly_base::Result;
use mayfly_runs::{Check, Merge};
use mayfly_work::memory;

/// Returns the folder with room for this many bytes of temporary files; `None` when they stay in
/// memory.
pub(crate) type Scratch = dyn Fn(u64) -> Result<Option<PathBuf>> + Send + Sync;

/// A sorter with less than this stays in memory even if the process is short of it.
const LEAST_BYTES: usize = 1 << 20;

/// Sorts entries that are added in any order.
pub(crate) struct Sorter {
    budget: usize,
    scratch: Arc<Scratch>,
    entries: mayfly_runs::Sorter,
}

impl Sorter {
    /// An empty sorter that takes about `budget` bytes of memory.
    pub(crate) fn new(budget: usize, scratch: Arc<Scratch>) -> Sorter {
        Sorter { budget, scratch, entries: mayfly_runs::Sorter::of_server() }
    }

    /// The number of entries.
    pub(crate) fn len(&self) -> u64 {
        self.entries.len()
    }

    /// The memory that it takes; `None` once entries are in files.
    pub(crate) fn bytes_in_memory(&self) -> Option<usize> {
        (!self.entries.is_in_files()).then(|| self.entries.memory_bytes())
    }

    /// Adds an entry.
    ///
    /// # Errors
    /// 14031 OutOfDiskSpace, 39 FileStreamFailed, and errors of the check.
    pub(crate) fn push(&mut self, key: &[u8], value: &[u8], check: &Check<'_>) -> Result<()> {
        self.entries.push(key, value);
        let bytes = self.entries.memory_bytes();
        let is_small = bytes < LEAST_BYTES || !memory::is_short();
        if bytes < self.budget && is_small {
            return Ok(());
        }
        match (self.scratch)(bytes as u64)? {
            Some(folder) => self.entries.spill(&folder, check),
            None => Ok(()),
        }
    }

    /// All entries in order; entries with equal keys keep the order in which they were added.
    ///
    /// # Errors
    /// As [`Sorter::push`].
    pub(crate) fn merge(self, check: &Check<'_>) -> Result<Merge> {
        self.entries.merge(check)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mayfly_base::{Error, ErrorCode};

    fn sorted(folder: Option<PathBuf>) -> Vec<u8> {
        let mut sorter = Sorter::new(100, Arc::new(move |_| Ok(folder.clone())));
        for key in (0..100u8).rev() {
            sorter.push(&[key], &[], &|| Ok(())).unwrap();
        }
        assert_eq!(sorter.len(), 100);
        let mut merge = sorter.merge(&|| Ok(())).unwrap();
        let mut keys = Vec::new();
        while let Some((key, _)) = merge.next().unwrap() {
            keys.extend_from_slice(key);
        }
        keys
    }

    #[test]
    fn files_are_used_where_there_is_a_folder() {
        let expected: Vec<u8> = (0..100).collect();
        assert_eq!(sorted(Some(std::env::temp_dir())), expected);
        assert_eq!(sorted(None), expected);
    }

    #[test]
    fn a_disk_that_is_full_says_so() {
        let full = |_| Err(Error::new(ErrorCode::OutOfDiskSpace, "the disk is full"));
        let mut sorter = Sorter::new(10, Arc::new(full));
        let error = sorter.push(b"key", b"value", &|| Ok(())).unwrap_err();
        assert_eq!(error.code(), ErrorCode::OutOfDiskSpace);
    }
}
