//! The first or last values by a key: `$top`, `$bottom`, `$minN`, `$maxN` and their kin.

use std::collections::BTreeMap;

use mayfly_value::{RawValue, ValueBuf};

/// Memory of an entry beside its bytes, roughly.
const ENTRY_BYTES: usize = 80;

/// At most so many values, by keys whose bytes are in order.
#[derive(Clone, Debug)]
pub(super) struct Ranked {
    n: usize,
    /// Whether the greatest keys stay.
    last: bool,
    /// By key; equal keys by their number, in the order in which they came.
    entries: BTreeMap<(Vec<u8>, u64), ValueBuf>,
    next: u64,
    bytes: usize,
}

impl Ranked {
    pub(super) fn new(n: usize, last: bool) -> Ranked {
        Ranked { n, last, entries: BTreeMap::new(), next: 0, bytes: 0 }
    }

    /// Takes a value; of equal keys the earlier ones stay.
    pub(super) fn put(&mut self, key: Vec<u8>, value: RawValue<'_>) {
        let full = self.entries.len() >= self.n;
        if full {
            let worse = match self.last {
                true => self.entries.first_key_value().is_none_or(|(first, _)| key <= first.0),
                false => self.entries.last_key_value().is_none_or(|(last, _)| key >= last.0),
            };
            if worse {
                return;
            }
        }
        let value = value.to_owned();
        self.bytes += key.len() + value.data().len() + ENTRY_BYTES;
        self.entries.insert((key, self.next), value);
        self.next += 1;
        if full {
            let gone = if self.last { self.entries.pop_first() } else { self.entries.pop_last() };
            if let Some(((key, _), value)) = gone {
                self.bytes -= key.len() + value.data().len() + ENTRY_BYTES;
            }
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The values in the order of their keys.
    pub(super) fn values(&self) -> impl DoubleEndedIterator<Item = &ValueBuf> {
        self.entries.values()
    }

    /// Keys and values in the order of the keys.
    pub(super) fn entries(&self) -> impl Iterator<Item = (&[u8], &ValueBuf)> {
        self.entries.iter().map(|((key, _), value)| (key.as_slice(), value))
    }
}
