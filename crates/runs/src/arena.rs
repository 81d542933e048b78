//! A buffer of entries in memory.
//!
//! ```text
//! slots, 24 bytes each: first 16 bytes of the key | length of the key up to 255, offset in the arena
//! arena: length of the key (u32), of the value (u32), key, value; in the order of insertion
//! ```
//!
//! Most comparisons need only the slots, not the arena.

use std::cmp::Ordering;

/// Bytes before the key of an entry in the arena.
pub(crate) const HEADER: usize = 8;
const SLOT_BYTES: usize = size_of::<Slot>();
/// Bytes of the key in its slot.
const PREFIX: usize = 16;
const PLACE_BITS: u32 = 56;
/// Bytes of removed entries that the arena may keep, however many are in use.
const FEW_BYTES: usize = 64 << 10;

/// Entries in memory.
#[derive(Debug, Default)]
pub(crate) struct Arena {
    slots: Vec<Slot>,
    bytes: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    prefix: [u64; 2],
    place: u64,
}

impl Slot {
    fn at(self) -> usize {
        (self.place & ((1 << PLACE_BITS) - 1)) as usize
    }

    /// Whether the whole key is in the slot.
    fn is_short(self) -> bool {
        (self.place >> PLACE_BITS) as usize <= PREFIX
    }
}

impl Arena {
    /// Memory of the entries in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.bytes.len() + self.slots.len() * SLOT_BYTES
    }

    /// Number of entries.
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(crate) fn push(&mut self, key: &[u8], value: &[&[u8]]) {
        let mut prefix = [0; PREFIX];
        let len = key.len().min(PREFIX);
        prefix[..len].copy_from_slice(&key[..len]);
        let [high, low] =
            [&prefix[..8], &prefix[8..]].map(|half| half.try_into().map_or(0, u64::from_be_bytes));
        let place = self.bytes.len() as u64 | (key.len().min(255) as u64) << PLACE_BITS;
        self.slots.push(Slot { prefix: [high, low], place });
        let value_len: usize = value.iter().map(|part| part.len()).sum();
        self.bytes.extend_from_slice(&(key.len() as u32).to_le_bytes());
        self.bytes.extend_from_slice(&(value_len as u32).to_le_bytes());
        self.bytes.extend_from_slice(key);
        value.iter().for_each(|part| self.bytes.extend_from_slice(part));
    }

    /// Sorts the entries; equal keys stay in the order of insertion.
    pub(crate) fn sort(&mut self) {
        let bytes = &self.bytes;
        self.slots.sort_unstable_by(|a, b| compare(bytes, *a, *b));
    }

    /// Keeps the `keep` smallest entries, unordered, and returns the last key of them. Up to this
    /// share of the arena may stay unused.
    pub(crate) fn cut(&mut self, keep: usize, unused: usize) -> Option<&[u8]> {
        let last = keep.checked_sub(1)?;
        let enough = last < self.slots.len();
        if enough {
            let bytes = &self.bytes;
            self.slots.select_nth_unstable_by(last, |a, b| compare(bytes, *a, *b));
            self.slots.truncate(keep);
        }
        let size = |slot: &Slot| {
            let (key, value) = entry_at(&self.bytes, slot.at());
            HEADER + key.len() + value.len()
        };
        let live: usize = self.slots.iter().map(size).sum();
        if self.bytes.len() > live + unused.min(live + FEW_BYTES) {
            self.compact(live);
        }
        enough.then(|| entry_at(&self.bytes, self.slots[last].at()).0)
    }

    /// Removes unused bytes. Entries keep the order of their offsets, which equal keys are sorted
    /// by, and each slot keeps its number.
    fn compact(&mut self, live: usize) {
        let mut order: Vec<usize> = (0..self.slots.len()).collect();
        order.sort_unstable_by_key(|at| self.slots[*at].at());
        let mut bytes = Vec::with_capacity(live);
        for slot in order {
            let slot = &mut self.slots[slot];
            let (key, value) = entry_at(&self.bytes, slot.at());
            let (from, len) = (slot.at(), HEADER + key.len() + value.len());
            slot.place = slot.place >> PLACE_BITS << PLACE_BITS | bytes.len() as u64;
            bytes.extend_from_slice(&self.bytes[from..from + len]);
        }
        self.bytes = bytes;
    }

    /// Key and value of the entry with this number.
    pub(crate) fn entry(&self, number: usize) -> Option<(&[u8], &[u8])> {
        self.slots.get(number).map(|slot| entry_at(&self.bytes, slot.at()))
    }

    pub(crate) fn entries(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.slots.iter().map(|slot| entry_at(&self.bytes, slot.at()))
    }

    pub(crate) fn clear(&mut self) {
        self.slots.clear();
        self.bytes.clear();
    }
}

fn compare(bytes: &[u8], a: Slot, b: Slot) -> Ordering {
    let by_prefix = a.prefix.cmp(&b.prefix);
    by_prefix
        .then_with(|| match a.is_short() && b.is_short() {
            // Of two equal prefixes one may be a shorter key followed by zeros.
            true => (a.place >> PLACE_BITS).cmp(&(b.place >> PLACE_BITS)),
            false => entry_at(bytes, a.at()).0.cmp(entry_at(bytes, b.at()).0),
        })
        .then_with(|| a.at().cmp(&b.at()))
}

/// Key and value at an offset in an arena.
fn entry_at(bytes: &[u8], at: usize) -> (&[u8], &[u8]) {
    let number = |at: usize| {
        let bytes = bytes.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
        bytes.map_or(0, u32::from_le_bytes) as usize
    };
    let (key, value) = (number(at), number(at + 4));
    bytes[at + HEADER..at + HEADER + key + value].split_at(key)
}
