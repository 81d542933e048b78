//! Top-k by a key: `$top`, `$bottom`, `$minN`, `$maxN` and related operators.

use std::collections::BTreeMap;

use mayfly_value::{RawValue, ValueBuf};

/// Approximate memory of an entry without its bytes.
pub(crate) const ENTRY_BYTES: usize = 80;

/// At most `n` values, ordered by the bytes of their keys.
#[derive(Clone, Debug)]
pub(super) struct Ranked {
    n: usize,
    /// Whether the greatest keys are kept.
    last: bool,
    /// By key; equal keys by a sequence number in the order of insertion.
    entries: BTreeMap<(Vec<u8>, u64), ValueBuf>,
    next: u64,
    bytes: usize,
}

impl Ranked {
    /// Keeps the values with the least keys.
    pub(super) fn first(n: usize) -> Ranked {
        Ranked { n, last: false, entries: BTreeMap::new(), next: 0, bytes: 0 }
    }

    /// Keeps the values with the greatest keys.
    pub(super) fn last(n: usize) -> Ranked {
        Ranked { last: true, ..Ranked::first(n) }
    }

    /// Adds a value; of equal keys the earlier ones are kept.
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

    /// The values in key order.
    pub(super) fn values(&self) -> impl DoubleEndedIterator<Item = &ValueBuf> {
        self.entries.values()
    }

    /// Keys and values in key order.
    pub(super) fn entries(&self) -> impl Iterator<Item = (&[u8], &ValueBuf)> {
        self.entries.iter().map(|((key, _), value)| (key.as_slice(), value))
    }
}
