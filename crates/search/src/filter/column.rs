//! The values of one field in a segment: each distinct key once, in order, with its documents.
//!
//! ```text
//!  key offsets      u32 each, one more than there are keys
//!  keys             the bytes of all keys
//!  list offsets     u32 each, one more than there are keys
//!  lists            the ordinals of the documents with the key, u32 each
//! ```

use std::ops::Range;

use mayfly_base::Result;

use super::{BitSet, Check};

/// Keys between two calls of the check.
const BLOCK: usize = 16_384;

/// The sections of a field.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Column<'a> {
    pub(crate) key_offsets: &'a [u8],
    pub(crate) keys: &'a [u8],
    pub(crate) list_offsets: &'a [u8],
    pub(crate) lists: &'a [u8],
}

/// A number of an array of 32-bit numbers.
#[inline]
pub(crate) fn number_at(numbers: &[u8], at: usize) -> Option<u32> {
    numbers.as_chunks::<4>().0.get(at).map(|bytes| u32::from_le_bytes(*bytes))
}

/// The bytes between two neighbouring offsets.
#[inline]
pub(crate) fn bytes_at<'a>(offsets: &[u8], bytes: &'a [u8], at: usize) -> Option<&'a [u8]> {
    bytes.get(number_at(offsets, at)? as usize..number_at(offsets, at + 1)? as usize)
}

impl<'a> Column<'a> {
    /// The number of distinct keys.
    pub(crate) fn len(&self) -> usize {
        (self.key_offsets.len() / 4).saturating_sub(1)
    }

    pub(crate) fn key(&self, at: usize) -> &'a [u8] {
        bytes_at(self.key_offsets, self.keys, at).unwrap_or(&[])
    }

    /// The ordinals of the documents with a key.
    pub(crate) fn list(&self, at: usize) -> impl Iterator<Item = u32> + use<'a> {
        let from = number_at(self.list_offsets, at).unwrap_or(0) as usize;
        let to = number_at(self.list_offsets, at + 1).unwrap_or(0) as usize;
        let numbers = self.lists.as_chunks::<4>().0.get(from..to).unwrap_or(&[]);
        numbers.iter().map(|bytes| u32::from_le_bytes(*bytes))
    }

    /// The place of the first key that is not less.
    fn lower_bound(&self, key: &[u8]) -> usize {
        self.partition_point(|other| other < key)
    }

    /// The number of keys at the beginning that pass a test, which no later key passes.
    pub(crate) fn partition_point(&self, mut passes: impl FnMut(&[u8]) -> bool) -> usize {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low + (high - low) / 2;
            if passes(self.key(middle)) { low = middle + 1 } else { high = middle }
        }
        low
    }

    /// Adds the documents with this key.
    pub(crate) fn select_key(&self, key: &[u8], selected: &mut BitSet) {
        self.each(key, |ordinal| selected.insert(ordinal as usize));
    }

    /// Visits the documents with this key.
    pub(crate) fn each(&self, key: &[u8], visit: impl FnMut(u32)) {
        let at = self.lower_bound(key);
        if at < self.len() && self.key(at) == key {
            self.list(at).for_each(visit);
        }
    }

    /// Adds the documents with a key in this range.
    ///
    /// # Errors
    /// Errors of the check, which is called between blocks of keys.
    pub(crate) fn select_range(
        &self,
        range: &Range<Vec<u8>>,
        selected: &mut BitSet,
        check: Check<'_>,
    ) -> Result<()> {
        for at in self.lower_bound(&range.start)..self.lower_bound(&range.end) {
            if at % BLOCK == 0 {
                check()?;
            }
            self.list(at).for_each(|ordinal| selected.insert(ordinal as usize));
        }
        Ok(())
    }
}
