//! Hints where the record of an `_id` was last found: one look-up instead of two.
//!
//! A hint may be wrong in any way (the record is gone, has another number, or two ids share a
//! slot), so the reader checks that the record it finds has the `_id`. That check suffices, because
//! a number is never reused and a record keeps its `_id`. Removals therefore need not update hints,
//! and no snapshot shows another's record.

use std::hash::{BuildHasher, Hasher};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use foldhash::fast::FixedState;

/// The bits of a number in a hint. Greater numbers have no hint.
const NUMBER_BITS: u32 = 44;
const NUMBERS: u64 = (1 << NUMBER_BITS) - 1;

/// Hints for all collections of a store, eight bytes each. A new hint replaces an older one in its
/// slot.
pub(crate) struct IdHints {
    pages: Box<[OnceLock<Page>]>,
}

/// Slots, allocated when the first of them is used: the upper bits of the hash, and the number; 0
/// for none.
type Page = Box<[AtomicU64; PAGE_PLACES]>;
const PAGE_PLACES: usize = 512;

impl IdHints {
    /// Hints in about this many bytes, which are allocated as they are used.
    pub(crate) fn new(bytes: usize) -> IdHints {
        let pages = (bytes / size_of::<u64>() / PAGE_PLACES).next_power_of_two();
        IdHints { pages: (0..pages).map(|_| OnceLock::new()).collect() }
    }

    /// The page of an `_id`, its slot in the page, and the upper bits of its hash.
    fn place(&self, index: u64, id_key: &[u8]) -> (&OnceLock<Page>, usize, u64) {
        let mut hasher = FixedState::with_seed(index).build_hasher();
        hasher.write(id_key);
        let hash = hasher.finish();
        let at = hash as usize;
        let page = &self.pages[(at / PAGE_PLACES) & (self.pages.len() - 1)];
        (page, at % PAGE_PLACES, hash & !NUMBERS)
    }

    /// The probable number of the record with this `_id`, in the collection with this index on
    /// `_id`.
    #[inline]
    pub(crate) fn get(&self, index: u64, id_key: &[u8]) -> Option<u64> {
        let (page, at, mark) = self.place(index, id_key);
        let hint = page.get()?[at].load(Ordering::Relaxed);
        (hint & !NUMBERS == mark && hint & NUMBERS != 0).then_some(hint & NUMBERS)
    }

    /// Notes that the record with this `_id` has this number.
    #[inline]
    pub(crate) fn note(&self, index: u64, id_key: &[u8], number: u64) {
        if number <= NUMBERS {
            let (page, at, mark) = self.place(index, id_key);
            let page = page.get_or_init(|| Box::new([const { AtomicU64::new(0) }; PAGE_PLACES]));
            page[at].store(mark | number, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hint_is_of_one_id_of_one_collection() {
        let hints = IdHints::new(4 << 10);
        hints.note(1, b"a", 7);
        assert_eq!(hints.get(1, b"a"), Some(7));
        assert_eq!((hints.get(2, b"a"), hints.get(1, b"b")), (None, None));
        hints.note(1, b"a", NUMBERS + 1);
        assert_eq!(hints.get(1, b"a"), Some(7), "it does not fit");
        for n in 0..10_000_u32 {
            hints.note(1, &n.to_be_bytes(), u64::from(n) + 1);
        }
        let known = (0..10_000_u32).filter(|n| hints.get(1, &n.to_be_bytes()).is_some()).count();
        assert!((450..=512).contains(&known), "{known} of 512 places");
    }
}
