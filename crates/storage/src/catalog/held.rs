//! A cache of records that policies hold, so that not every pass reads all of them again.
//!
//! ```text
//! a visit                                    a unit that ends a hold
//! 1. looks records up here, with the
//!    state locked
//! 2. reads the unknown ones
//!                                            commits, and reports the ended holds
//! 3. adds those which are held,
//!    unless holds have ended since 1
//! ```
//!
//! Unknown records are read, so the cache only saves time. A record leaves it with its hold: by an
//! update, by its removal, or when a policy changes.

use std::collections::HashSet;

use parking_lot::Mutex;

use crate::record::RecordKey;

/// The most records of one collection in the cache.
const MAX_KNOWN: usize = 1 << 16;

/// The cache of one collection.
#[derive(Default)]
pub(crate) struct HeldRecords(Mutex<HeldCache>);

#[derive(Default)]
struct HeldCache {
    /// The number of times that holds have ended.
    ended: u64,
    records: HashSet<RecordKey>,
}

impl HeldRecords {
    /// Which of these records are held; and the number to pass to [`HeldRecords::add`] with further
    /// ones.
    pub(crate) fn which_are_held<'k>(
        &self,
        records: impl Iterator<Item = &'k RecordKey>,
    ) -> (u64, Vec<bool>) {
        let known = self.0.lock();
        (known.ended, records.map(|record| known.records.contains(record)).collect())
    }

    /// Adds records that were found to be held after the call of [`HeldRecords::which_are_held`]
    /// with this number.
    pub(crate) fn add(&self, looked: u64, records: Vec<RecordKey>) {
        let mut known = self.0.lock();
        if known.ended == looked {
            let room = MAX_KNOWN.saturating_sub(known.records.len());
            known.records.extend(records.into_iter().take(room));
        }
    }

    /// Removes records whose hold has ended, after the commit.
    pub(crate) fn end(&self, records: &[RecordKey]) {
        let mut known = self.0.lock();
        known.ended += 1;
        for record in records {
            known.records.remove(record);
        }
    }

    /// Empties the cache, because policies have changed.
    pub(crate) fn clear(&self) {
        let mut known = self.0.lock();
        *known = HeldCache { ended: known.ended + 1, records: HashSet::new() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_found_before_a_hold_ended_is_not_noted() {
        let (held, records) = (HeldRecords::default(), [vec![1], vec![2]]);
        let look = || held.which_are_held(records.iter());
        let (looked, known) = look();
        assert_eq!(known, [false, false]);
        held.end(&[vec![2]]);
        held.add(looked, records.to_vec());
        assert_eq!(look().1, [false, false]);
        held.add(look().0, records.to_vec());
        assert_eq!(look().1, [true, true]);
        held.end(&[vec![2]]);
        assert_eq!(look().1, [true, false]);
        let (looked, _) = look();
        held.clear();
        held.add(looked, records.to_vec());
        assert_eq!(look().1, [false, false]);
    }
}
