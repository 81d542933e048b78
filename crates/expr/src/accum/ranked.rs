//! The first or last values by a key: `$top`, `$bottom`, `$minN`, `$maxN` and their kin.

use mayfly_value::{RawValue, ValueBuf};

/// Memory of an entry beside its bytes, roughly.
const ENTRY_BYTES: usize = 64;

/// At most so many values, by keys whose bytes are in order.
#[derive(Clone, Debug)]
pub(super) struct Ranked {
    n: usize,
    /// Whether the greatest keys stay.
    last: bool,
    /// Ascending by key; equal keys in the order in which they came.
    entries: Vec<(Vec<u8>, ValueBuf)>,
    bytes: usize,
}

impl Ranked {
    pub(super) fn new(n: usize, last: bool) -> Ranked {
        Ranked { n, last, entries: Vec::new(), bytes: 0 }
    }

    /// Takes a value; of equal keys the earlier ones stay.
    pub(super) fn put(&mut self, key: Vec<u8>, value: RawValue<'_>) {
        let full = self.entries.len() >= self.n;
        if full {
            let worse = match (self.last, self.entries.first(), self.entries.last()) {
                (true, Some(first), _) => key <= first.0,
                (false, _, Some(last)) => key >= last.0,
                _ => true,
            };
            if worse {
                return;
            }
        }
        let at = self.entries.partition_point(|entry| entry.0 <= key);
        let value = value.to_owned();
        self.bytes += key.len() + value.data().len() + ENTRY_BYTES;
        self.entries.insert(at, (key, value));
        if full {
            let gone = if self.last { self.entries.remove(0) } else { self.entries.remove(self.n) };
            self.bytes -= gone.0.len() + gone.1.data().len() + ENTRY_BYTES;
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The values in the order of their keys.
    pub(super) fn values(&self) -> impl DoubleEndedIterator<Item = &ValueBuf> {
        self.entries.iter().map(|entry| &entry.1)
    }

    /// Keys and values in the order of the keys.
    pub(super) fn entries(&self) -> impl Iterator<Item = (&[u8], &ValueBuf)> {
        self.entries.iter().map(|entry| (entry.0.as_slice(), &entry.1))
    }
}
