//! Records that policies are known to hold, so that not each pass reads all of them again.
//!
//! ```text
//! a visit                                    a unit that ends a hold
//! 1. looks here, under the state's lock
//! 2. reads what is not known
//!                                            commits, and says which holds it has ended
//! 3. notes which of it is held,
//!    unless holds have ended since 1
//! ```
//!
//! It is for speed only, and what is not known is read. What is known ends with the hold of a document: by an update, with the
//! document, or when a policy changes.

use std::collections::HashSet;

use parking_lot::Mutex;

use crate::record::RecordKey;

/// Most records of one collection that are remembered.
const MAX_KNOWN: usize = 1 << 16;

/// Those of one collection.
#[derive(Default)]
pub(crate) struct HeldRecords(Mutex<Known>);

#[derive(Default)]
struct Known {
    /// How often holds have ended.
    ended: u64,
    records: HashSet<RecordKey>,
}

impl HeldRecords {
    /// Which of these are known to be held; and what to give to [`HeldRecords::add`] when others are found to be.
    pub(crate) fn look<'k>(
        &self,
        records: impl Iterator<Item = &'k RecordKey>,
    ) -> (u64, Vec<bool>) {
        let known = self.0.lock();
        (known.ended, records.map(|record| known.records.contains(record)).collect())
    }

    /// These were found to be held after that look.
    pub(crate) fn add(&self, looked: u64, records: Vec<RecordKey>) {
        let mut known = self.0.lock();
        if known.ended == looked {
            let room = MAX_KNOWN.saturating_sub(known.records.len());
            known.records.extend(records.into_iter().take(room));
        }
    }

    /// These are held no more, and that is committed.
    pub(crate) fn end(&self, records: &[RecordKey]) {
        let mut known = self.0.lock();
        known.ended += 1;
        for record in records {
            known.records.remove(record);
        }
    }

    /// Policies change.
    pub(crate) fn clear(&self) {
        let mut known = self.0.lock();
        *known = Known { ended: known.ended + 1, records: HashSet::new() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_found_before_a_hold_ended_is_not_noted() {
        let (held, records) = (HeldRecords::default(), [vec![1], vec![2]]);
        let look = || held.look(records.iter());
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
