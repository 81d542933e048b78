//! Numbers that are used once, whichever store takes them.
//!
//! ```text
//! catalog  | key of the sequence |   the first number that is not reserved, 8 bytes big-endian
//! ```
//!
//! A store reserves a range by adding its length to the row, in a transaction of its own, before it
//! uses the first number of the range. Two stores that add at once conflict, and one of them adds
//! again. A crash loses the rest of a range; [`Sequence::give_back`] returns it.

use std::ops::Range;

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_kv::{Engine, Guard, Keyspace, KvError, KvResult, Txn, TxnOptions};
use mayfly_work::current;
use parking_lot::Mutex;

use super::back_off::back_off;
use crate::record::error::from_kv;

/// The first number of a sequence without a row.
const FIRST: u64 = 1;
/// The greatest number: clients see numbers as signed integers.
const LAST: u64 = i64::MAX as u64;
/// How often a reservation is tried again after a conflict, or when the result of its commit is
/// unknown.
const MAX_TRIES: u32 = 100;

/// A sequence, and the range of its numbers that this store has reserved.
pub(crate) struct Sequence {
    /// The key of its row in the catalog.
    key: Vec<u8>,
    /// How many numbers a reservation includes beyond those that are needed, from the number at
    /// which it begins.
    further: fn(u64) -> u64,
    reserved: Mutex<Range<u64>>,
    /// Held by the thread that reserves a range.
    reserving: Mutex<()>,
}

impl Sequence {
    /// The sequence with this key, and what a reservation includes beyond the numbers that are
    /// needed, from the number at which it begins.
    pub(crate) fn new(key: Vec<u8>, further: fn(u64) -> u64) -> Sequence {
        let (reserved, reserving) = (Mutex::new(FIRST..FIRST), Mutex::default());
        Sequence { key, further, reserved, reserving }
    }

    /// Takes `count` consecutive numbers, and returns the first of them.
    ///
    /// # Errors
    /// 15 Overflow when there are no more; errors of the engine and of the operation's deadline.
    #[inline]
    pub(crate) fn take(&self, count: u64, engine: &dyn Engine) -> Result<u64> {
        match self.take_reserved(count) {
            Some(first) => Ok(first),
            None => self.take_slowly(count, engine),
        }
    }

    #[inline]
    fn take_reserved(&self, count: u64) -> Option<u64> {
        let mut reserved = self.reserved.lock();
        let first = reserved.start;
        let after = first.checked_add(count).filter(|after| *after <= reserved.end)?;
        reserved.start = after;
        Some(first)
    }

    #[cold]
    fn take_slowly(&self, count: u64, engine: &dyn Engine) -> Result<u64> {
        let _one_reserves = current::acquire(|longest| self.reserving.try_lock_for(longest))?;
        if let Some(first) = self.take_reserved(count) {
            return Ok(first);
        }
        let range = self.reserve(count, engine)?;
        let mut reserved = self.reserved.lock();
        // The rest of the former range can be used if no other store has reserved meanwhile.
        if reserved.end != range.start {
            reserved.start = range.start;
        }
        reserved.end = range.end;
        let first = reserved.start;
        if range.end - first < count {
            return Err(exhausted());
        }
        reserved.start = first + count;
        Ok(first)
    }

    /// Reserves a range of at least `count` numbers, unless the sequence ends before.
    fn reserve(&self, count: u64, engine: &dyn Engine) -> Result<Range<u64>> {
        let added = || -> KvResult<Range<u64>> {
            let mut txn = engine.begin(TxnOptions::default())?;
            let first = locked(&mut *txn, &self.key)?.unwrap_or(FIRST);
            let length = count.saturating_add((self.further)(first));
            let end = first.saturating_add(length).min(LAST);
            txn.put(Keyspace::Catalog, &self.key, &end.to_be_bytes(), Guard::Derived)?;
            txn.commit()?;
            Ok(first..end)
        };
        let mut result = added();
        for tries in 1..=MAX_TRIES {
            if !matches!(result, Err(KvError::CommitUnknown(_) | KvError::Conflict)) {
                break;
            }
            // Another thread, which has to end its commit, may need the processor.
            back_off(tries);
            result = added();
        }
        let range = result.map_err(from_kv)?;
        if range.is_empty() { Err(exhausted()) } else { Ok(range) }
    }

    /// Returns the numbers that were reserved and not taken, in this transaction, unless another
    /// store has reserved numbers after them. No numbers may be taken from then on.
    ///
    /// # Errors
    /// Errors of the engine.
    pub(crate) fn give_back(&self, txn: &mut dyn Txn) -> Result<()> {
        let reserved = self.reserved.lock().clone();
        if reserved.is_empty() || locked(txn, &self.key).map_err(from_kv)? != Some(reserved.end) {
            return Ok(());
        }
        let next = reserved.start.to_be_bytes();
        txn.put(Keyspace::Catalog, &self.key, &next, Guard::Derived).map_err(from_kv)
    }
}

/// The number in the row of a sequence, which is locked.
fn locked(txn: &mut dyn Txn, key: &[u8]) -> KvResult<Option<u64>> {
    let mut number = Ok(None);
    txn.get_locked(Keyspace::Catalog, key, &mut |value| {
        number = match value.try_into().map(u64::from_be_bytes) {
            Ok(found @ FIRST..=LAST) => Ok(Some(found)),
            _ => Err(KvError::Corrupt("the row of a sequence of numbers cannot be read".into())),
        };
    })?;
    number
}

fn exhausted() -> Error {
    let text = "the collection has no record numbers left; copy it into a new one";
    Error::new(ErrorCode::Overflow, text)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use mayfly_kv::MemoryEngine;

    use super::*;

    const KEY: &[u8] = b"s";

    fn new() -> Sequence {
        Sequence::new(KEY.to_vec(), |_| 100)
    }

    /// The number in the row.
    fn stored(engine: &MemoryEngine) -> Option<u64> {
        let mut stored = None;
        let see = &mut |value: &[u8]| stored = Some(u64::from_be_bytes(value.try_into().unwrap()));
        engine.get_once(Keyspace::Catalog, KEY, see).unwrap();
        stored
    }

    fn give_back(sequence: &Sequence, engine: &MemoryEngine) {
        let mut txn = engine.begin(TxnOptions::default()).unwrap();
        sequence.give_back(&mut *txn).unwrap();
        txn.commit().unwrap();
    }

    #[test]
    fn what_is_used_was_reserved_before() {
        let (engine, sequence) = (MemoryEngine::new(), new());
        let mut last = 0;
        for count in [1, 1, 60, 5000, 1, 200_000] {
            let first = sequence.take(count, &engine).unwrap();
            assert_eq!(first, last + 1, "dense");
            last = first + count - 1;
            assert!(stored(&engine).unwrap() > last);
        }
        // After a crash the numbers continue after all of them.
        let again = new();
        assert!(again.take(1, &engine).unwrap() > last);
        // The first one would return numbers before those of the other.
        let before = stored(&engine);
        give_back(&sequence, &engine);
        assert_eq!(stored(&engine), before);
        give_back(&again, &engine);
        assert_eq!(stored(&engine), Some(before.unwrap() - 100));
    }

    #[test]
    fn two_stores_take_different_numbers() {
        let (engine, stores) = (MemoryEngine::new(), [new(), new()]);
        let taken = Mutex::new(HashSet::new());
        std::thread::scope(|scope| {
            for store in stores.iter().cycle().take(4) {
                scope.spawn(|| {
                    for count in (1..=50).cycle().take(500) {
                        let first = store.take(count, &engine).unwrap();
                        let mut taken = taken.lock();
                        assert!((first..first + count).all(|number| taken.insert(number)));
                    }
                });
            }
        });
        assert_eq!(taken.into_inner().len(), 4 * 25 * 51 * 10);
    }

    #[test]
    fn there_is_an_end() {
        let (engine, sequence) = (MemoryEngine::new(), new());
        let mut txn = engine.begin(TxnOptions::default()).unwrap();
        let late = (LAST - 2).to_be_bytes();
        txn.put(Keyspace::Catalog, KEY, &late, Guard::Checked).unwrap();
        txn.commit().unwrap();
        assert_eq!(sequence.take(2, &engine).unwrap(), LAST - 2);
        for _ in 0..3 {
            let refused = sequence.take(1, &engine).unwrap_err();
            assert_eq!(refused.code(), ErrorCode::Overflow);
        }
        assert_eq!(stored(&engine), Some(LAST));
    }

    #[test]
    fn a_damaged_row_is_an_error() {
        let (engine, sequence) = (MemoryEngine::new(), new());
        let mut txn = engine.begin(TxnOptions::default()).unwrap();
        txn.put(Keyspace::Catalog, KEY, b"seven", Guard::Checked).unwrap();
        txn.commit().unwrap();
        let error = sequence.take(1, &engine).unwrap_err();
        assert_eq!(error.code(), ErrorCode::DataCorruptionDetected);
    }
}
