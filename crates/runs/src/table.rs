//! Sorted entries in a file, with look-up by key.
//!
//! The file is a run. The first key of each block of about 4 KiB is in memory, so that a look-up
//! reads one block, and further ones only for equal keys. A Bloom filter rejects most absent keys.

use std::path::Path;

use mayfly_base::{Error, Result};
use mayfly_work::scratch::FileOwner;

use crate::arena::{Arena, HEADER};
use crate::bloom::Bloom;
use crate::file::{ScratchFile, failed, finish, write_entry, writer};
use crate::{Check, Merge, Spilled};

const BLOCK_BYTES: u64 = 4 << 10;
/// Entries between two calls of the check.
const CHECK_EVERY: u64 = 4096;

/// Sorted entries in a file.
#[derive(Debug)]
pub struct Table {
    file: ScratchFile,
    /// The first key of each block, and the block's offset.
    blocks: Vec<(Vec<u8>, u64)>,
    end: u64,
    filter: Bloom,
    /// The block in `bytes`.
    block: Option<usize>,
    bytes: Vec<u8>,
    spilled: Spilled,
}

impl Table {
    /// Writes all entries of a merge, about `count`, to a file in this folder.
    ///
    /// # Errors
    /// 14031 OutOfDiskSpace, 39 FileStreamFailed, errors of the check.
    pub fn of(mut merge: Merge, count: u64, folder: &Path, check: &Check<'_>) -> Result<Table> {
        let mut filter = Bloom::new(count);
        let (mut out, mut blocks, mut end) =
            (writer(FileOwner::Operation, folder)?, Vec::new(), 0u64);
        let mut spilled = Spilled { spills: 1, ..Spilled::default() };
        let mut full_at = 0;
        while let Some((key, value)) = merge.next()? {
            if spilled.records.is_multiple_of(CHECK_EVERY) {
                check()?;
            }
            if end >= full_at {
                blocks.push((key.to_vec(), end));
                full_at = end + BLOCK_BYTES;
            }
            filter.add(key);
            write_entry(&mut out, key, value)?;
            end += (HEADER + key.len() + value.len()) as u64;
            spilled.records += 1;
            spilled.bytes += (key.len() + value.len()) as u64;
        }
        spilled.file_bytes = end;
        let (file, bytes) = (finish(out)?, Vec::new());
        Ok(Table { file, blocks, end, filter, block: None, bytes, spilled })
    }

    /// The amount written.
    pub fn spilled(&self) -> Spilled {
        self.spilled
    }

    /// Memory of the table in bytes.
    pub fn memory_bytes(&self) -> usize {
        let block = |(key, _): &(Vec<u8>, u64)| key.len() + size_of::<(Vec<u8>, u64)>();
        let blocks: usize = self.blocks.iter().map(block).sum();
        blocks + self.bytes.capacity() + self.filter.memory_bytes()
    }

    /// Passes the values of a key to the visitor in their order.
    ///
    /// # Errors
    /// 39 FileStreamFailed, errors of the visitor.
    pub fn find(&mut self, key: &[u8], see: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        if !self.filter.may_have(key) {
            return Ok(());
        }
        // Equal keys may begin in the block before the first one that begins with the key.
        let after = self.blocks.partition_point(|(first, _)| first.as_slice() < key);
        for block in after.saturating_sub(1)..self.blocks.len() {
            if self.blocks[block].0.as_slice() > key {
                break;
            }
            self.read(block)?;
            let mut rest = self.bytes.as_slice();
            while !rest.is_empty() {
                let (found, value, after) = split(rest)?;
                match found.cmp(key) {
                    std::cmp::Ordering::Less => {}
                    std::cmp::Ordering::Equal => see(value)?,
                    std::cmp::Ordering::Greater => return Ok(()),
                }
                rest = after;
            }
        }
        Ok(())
    }

    /// Whether the key is present.
    ///
    /// # Errors
    /// 39 FileStreamFailed.
    pub fn contains(&mut self, key: &[u8]) -> Result<bool> {
        let mut found = false;
        self.find(key, &mut |_| {
            found = true;
            Ok(())
        })?;
        Ok(found)
    }

    fn read(&mut self, block: usize) -> Result<()> {
        if self.block == Some(block) {
            return Ok(());
        }
        let start = self.blocks[block].1;
        let end = self.blocks.get(block + 1).map_or(self.end, |(_, start)| *start);
        self.block = None;
        self.bytes.resize((end - start) as usize, 0);
        let read = self.file.read_exact_at(&mut self.bytes, start);
        read.map_err(|error| failed("read", &error))?;
        self.block = Some(block);
        Ok(())
    }

    /// Merges several tables.
    ///
    /// # Errors
    /// Errors of [`Table::of`].
    pub(crate) fn merged(tables: Vec<Table>, folder: &Path, check: &Check<'_>) -> Result<Table> {
        let count = tables.iter().map(|table| table.spilled.records).sum();
        let files = tables.into_iter().map(|table| table.file).collect();
        Table::of(Merge::of(files, Arena::default())?, count, folder, check)
    }
}

/// Splits off the first entry: key, value, rest.
fn split(bytes: &[u8]) -> Result<(&[u8], &[u8], &[u8])> {
    let damaged = || Error::internal("a temporary file holds data that is not an entry");
    let number = |at: usize| {
        let bytes = bytes.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
        bytes.map(|bytes| u32::from_le_bytes(bytes) as usize).ok_or_else(damaged)
    };
    let (key, value) = (number(0)?, number(4)?);
    let entry = bytes.get(HEADER..HEADER + key + value).ok_or_else(damaged)?;
    let (key, value) = entry.split_at(key);
    Ok((key, value, &bytes[HEADER + key.len() + value.len()..]))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::Sorter;

    proptest! {
        #[test]
        fn every_value_is_found_under_its_key(
            keys in prop::collection::vec(prop::collection::vec(0..4u8, 0..4), 0..400),
            size in 0..2000usize,
        ) {
            let (mut sorter, mut expected) = (Sorter::new(), BTreeMap::<_, Vec<u32>>::new());
            for (number, key) in keys.iter().enumerate() {
                let mut value = (number as u32).to_le_bytes().to_vec();
                value.resize(4 + size, 7);
                sorter.push(key, &value);
                expected.entry(key.clone()).or_default().push(number as u32);
            }
            let folder = std::env::temp_dir();
            let merge = sorter.merge(&|| Ok(())).unwrap();
            let mut table = Table::of(merge, keys.len() as u64, &folder, &|| Ok(())).unwrap();
            prop_assert_eq!(table.spilled().records, keys.len() as u64);
            for key in keys.into_iter().chain([vec![9], vec![1, 1, 1, 1, 1]]) {
                let mut found = Vec::new();
                table.find(&key, &mut |value| {
                    assert_eq!(value.len(), 4 + size);
                    found.push(u32::from_le_bytes(value[..4].try_into().unwrap()));
                    Ok(())
                }).unwrap();
                prop_assert_eq!(found, expected.get(&key).cloned().unwrap_or_default());
            }
        }
    }
}
