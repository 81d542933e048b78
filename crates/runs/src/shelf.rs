//! Entries in a file, read by their offsets, or removed once.

use std::path::Path;

use mayfly_base::Result;

use crate::Spilled;
use crate::file::{ScratchFile, failed, open};

/// A file of entries.
#[derive(Debug)]
pub struct Shelf {
    file: ScratchFile,
    end: u64,
    /// Number of entries not removed yet.
    left: usize,
    spilled: Spilled,
}

/// The location of an entry.
#[derive(Clone, Copy, Debug)]
pub struct Placed {
    start: u64,
    bytes: usize,
}

impl Placed {
    /// The location as bytes, whose order is the order of insertion.
    pub fn to_bytes(self) -> [u8; 12] {
        let mut bytes = [0; 12];
        bytes[..8].copy_from_slice(&self.start.to_be_bytes());
        bytes[8..].copy_from_slice(&(self.bytes as u32).to_be_bytes());
        bytes
    }

    /// Decodes a location.
    pub fn from_bytes(bytes: [u8; 12]) -> Placed {
        let [a, b, c, d, e, f, g, h, i, j, k, l] = bytes;
        let start = u64::from_be_bytes([a, b, c, d, e, f, g, h]);
        Placed { start, bytes: u32::from_be_bytes([i, j, k, l]) as usize }
    }
}

impl Shelf {
    /// An empty shelf, in a file without a name in this folder.
    ///
    /// # Errors
    /// 14031 OutOfDiskSpace, 39 FileStreamFailed.
    pub fn new(folder: &Path) -> Result<Shelf> {
        let spilled = Spilled { spills: 1, ..Spilled::default() };
        Ok(Shelf { file: open(folder)?, end: 0, left: 0, spilled })
    }

    /// Appends an entry.
    ///
    /// # Errors
    /// 14031 OutOfDiskSpace, 39 FileStreamFailed.
    pub fn put(&mut self, entry: &[u8]) -> Result<Placed> {
        let placed = Placed { start: self.end, bytes: entry.len() };
        let written = self.file.write_all_at(entry, placed.start);
        written.map_err(|error| failed("write", &error))?;
        self.end += placed.bytes as u64;
        self.left += 1;
        self.spilled.records += 1;
        self.spilled.bytes += placed.bytes as u64;
        self.spilled.file_bytes += placed.bytes as u64;
        Ok(placed)
    }

    /// Reads an entry.
    ///
    /// # Errors
    /// 39 FileStreamFailed.
    pub fn read(&self, placed: Placed) -> Result<Vec<u8>> {
        let mut bytes = vec![0; placed.bytes];
        let read = self.file.read_exact_at(&mut bytes, placed.start);
        read.map_err(|error| failed("read", &error))?;
        Ok(bytes)
    }

    /// Removes and returns an entry. When the last one is removed, the file is reused from its
    /// beginning.
    ///
    /// # Errors
    /// 39 FileStreamFailed.
    pub fn take(&mut self, placed: Placed) -> Result<Vec<u8>> {
        let bytes = self.read(placed)?;
        self.left = self.left.saturating_sub(1);
        if self.left == 0 {
            self.end = 0;
        }
        Ok(bytes)
    }

    /// The amount written so far.
    pub fn spilled(&self) -> Spilled {
        self.spilled
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn each_entry_is_removed_unchanged(
            // Either the length of an entry to append, or the index of the one to remove.
            steps in prop::collection::vec((any::<bool>(), 0..2000usize), 0..200),
        ) {
            let mut shelf = Shelf::new(&std::env::temp_dir()).unwrap();
            let mut there = Vec::new();
            for (number, (put, at)) in steps.into_iter().enumerate() {
                if put || there.is_empty() {
                    let entry = vec![number as u8; at];
                    there.push((shelf.put(&entry).unwrap(), entry));
                } else {
                    let (placed, entry): (Placed, _) = there.swap_remove(at % there.len());
                    prop_assert_eq!(&shelf.read(Placed::from_bytes(placed.to_bytes())).unwrap(), &entry);
                    prop_assert_eq!(shelf.take(placed).unwrap(), entry);
                }
            }
        }
    }
}
