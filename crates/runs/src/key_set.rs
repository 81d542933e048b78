//! A set of keys that can exceed memory: the latest keys are in memory, the others in a few
//! [`Table`]s.

use std::path::Path;

use foldhash::HashSet;
use mayfly_base::Result;

use crate::{Check, Run, Sorter, Spilled, Table};

/// Approximate memory of a key without its bytes: the slot in the hash table and the overhead of
/// the allocation.
const KEY_BYTES: usize = 32;
/// From this many tables on they are merged into one.
const MAX_TABLES: usize = 4;

/// A set of keys, for detecting duplicates.
#[derive(Debug, Default)]
pub struct KeySet {
    keys: HashSet<Box<[u8]>>,
    bytes: usize,
    tables: Vec<Table>,
    spilled: Spilled,
}

impl KeySet {
    /// An empty set.
    pub fn new() -> KeySet {
        KeySet::default()
    }

    /// Adds a key; returns false when it is present already.
    ///
    /// # Errors
    /// 39 FileStreamFailed.
    pub fn insert(&mut self, key: &[u8]) -> Result<bool> {
        if self.contains(key)? {
            return Ok(false);
        }
        self.bytes += key.len() + KEY_BYTES;
        self.keys.insert(key.into());
        Ok(true)
    }

    /// Whether a key is present.
    ///
    /// # Errors
    /// 39 FileStreamFailed.
    pub fn contains(&mut self, key: &[u8]) -> Result<bool> {
        if self.keys.contains(key) {
            return Ok(true);
        }
        for table in self.tables.iter_mut().rev() {
            if table.contains(key)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Memory of the keys that are not in a file, in bytes. The others take slightly more than one
    /// byte each.
    pub fn memory_bytes(&self) -> usize {
        self.bytes
    }

    /// The amount written to files.
    pub fn spilled(&self) -> Spilled {
        self.spilled
    }

    /// Writes the keys in memory to a file in this folder.
    ///
    /// # Errors
    /// 14031 OutOfDiskSpace, 39 FileStreamFailed, errors of the check.
    pub fn spill(&mut self, folder: &Path, check: &Check<'_>) -> Result<()> {
        let mut keys: Vec<_> = std::mem::take(&mut self.keys).into_iter().collect();
        self.bytes = 0;
        keys.sort_unstable();
        let (mut sorter, mut run) = (Sorter::new(), Run::new(folder)?);
        for key in keys {
            run.push(&key, &[], check)?;
        }
        sorter.push_run(run, folder, check)?;
        let count = sorter.len();
        let table = Table::of(sorter.merge(check)?, count, folder, check)?;
        self.spilled.add(table.spilled());
        self.tables.push(table);
        if self.tables.len() == MAX_TABLES {
            let tables = std::mem::take(&mut self.tables);
            self.tables.push(Table::merged(tables, folder, check)?);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_key_is_new_once(
            keys in prop::collection::vec(prop::collection::vec(0..4u8, 0..4), 0..400),
            budget in 1..10_000usize,
        ) {
            let folder = std::env::temp_dir();
            let (mut set, mut expected) = (KeySet::new(), std::collections::HashSet::new());
            for key in keys {
                prop_assert_eq!(set.contains(&key).unwrap(), expected.contains(&key));
                prop_assert_eq!(set.insert(&key).unwrap(), expected.insert(key));
                if set.memory_bytes() > budget {
                    set.spill(&folder, &|| Ok(())).unwrap();
                    prop_assert_eq!(set.memory_bytes(), 0);
                }
            }
        }
    }
}
