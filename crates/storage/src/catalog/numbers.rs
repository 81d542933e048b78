//! Record numbers of a collection: they ascend, and none is ever reused.
//!
//! ```text
//! catalog  | 'r' | collection id |   the first number that was not handed out, 8 bytes big-endian
//! ```
//!
//! Numbers come from a range whose end is in the catalog before the first of them is used. A crash
//! loses the rest of the range; a clean close writes how far it was used.

use std::sync::atomic::{AtomicU64, Ordering};

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_kv::{Engine, Guard, Keyspace, KvError, KvResult, TxnOptions};
use parking_lot::Mutex;

use crate::record::error::from_kv;
use crate::record::layout::catalog_key;

/// The size of a reservation: the first, and the largest.
const RESERVED_FIRST: u64 = 1024;
const RESERVED_MAX: u64 = 1 << 16;
/// How often a reservation is written again when the result of its commit is unknown.
const UNKNOWN_TRIES: usize = 8;
/// The greatest record number: clients see numbers as signed integers.
const LAST: u64 = i64::MAX as u64;

/// The source of the numbers of one collection.
pub(crate) struct Numbers {
    next: AtomicU64,
    /// Numbers below this one may be used.
    reserved: AtomicU64,
    reserving: Mutex<()>,
}

impl Default for Numbers {
    fn default() -> Numbers {
        Numbers {
            next: AtomicU64::new(1),
            reserved: AtomicU64::new(1),
            reserving: Mutex::default(),
        }
    }
}

impl Numbers {
    /// Continues at the number in the catalog. Must be called before the first number is taken.
    pub(crate) fn go_on_at(&self, next: u64) {
        self.next.store(next, Ordering::Release);
        self.reserved.store(next, Ordering::Release);
    }

    /// The first unused number, if more are reserved. Called when no more are taken.
    pub(crate) fn unused(&self) -> Option<u64> {
        let next = self.next.load(Ordering::Acquire);
        (next < self.reserved.load(Ordering::Acquire)).then_some(next)
    }

    /// Takes `count` consecutive numbers, and returns the first of them.
    ///
    /// # Errors
    /// 15 Overflow when there are no more; errors of the engine.
    #[inline]
    pub(crate) fn take(&self, count: u64, engine: &dyn Engine, collection: u64) -> Result<u64> {
        let first = self.next.fetch_add(count, Ordering::AcqRel);
        let end = first + count;
        if end > self.reserved.load(Ordering::Acquire) {
            self.reserve(end, engine, collection)?;
        }
        Ok(first)
    }

    #[cold]
    fn reserve(&self, end: u64, engine: &dyn Engine, collection: u64) -> Result<()> {
        let _one_reserves = self.reserving.lock();
        if end <= self.reserved.load(Ordering::Acquire) {
            return Ok(());
        }
        if end > LAST {
            // The counter is set back as far as possible, so that the next call fails as well.
            self.next.store(LAST, Ordering::Release);
            let text = "the collection has no record numbers left; copy it into a new one";
            return Err(Error::new(ErrorCode::Overflow, text));
        }
        let reserved = (end + (end / 4).clamp(RESERVED_FIRST, RESERVED_MAX)).min(LAST);
        let key = catalog_key::numbers(collection);
        let written = || -> KvResult<()> {
            let mut txn = engine.begin(TxnOptions::default())?;
            txn.put(Keyspace::Catalog, &key, &reserved.to_be_bytes(), Guard::Derived)?;
            txn.commit()
        };
        let mut result = written();
        for _ in 0..UNKNOWN_TRIES {
            if !matches!(result, Err(KvError::CommitUnknown(_) | KvError::Conflict)) {
                break;
            }
            result = written();
        }
        result.map_err(from_kv)?;
        self.reserved.store(reserved, Ordering::Release);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mayfly_kv::MemoryEngine;

    /// The first unreserved number in the catalog.
    fn stored(engine: &MemoryEngine) -> u64 {
        let mut stored = 0;
        let see = &mut |value: &[u8]| stored = u64::from_be_bytes(value.try_into().unwrap());
        engine.get_once(Keyspace::Catalog, &catalog_key::numbers(5), see).unwrap();
        stored
    }

    #[test]
    fn what_was_used_is_reserved_before() {
        let (engine, numbers) = (MemoryEngine::new(), Numbers::default());
        let mut last = 0;
        for count in [1, 1, 300, 5000, 1, 200_000] {
            let first = numbers.take(count, &engine, 5).unwrap();
            assert_eq!(first, last + 1, "dense");
            last = first + count - 1;
            assert!(stored(&engine) > last);
        }
        // After a crash the numbers continue after all of them.
        let again = Numbers::default();
        again.go_on_at(stored(&engine));
        assert!(again.take(1, &engine, 5).unwrap() > last);
        assert_eq!(numbers.unused(), Some(last + 1));
    }

    #[test]
    fn there_is_an_end() {
        let (engine, numbers) = (MemoryEngine::new(), Numbers::default());
        numbers.go_on_at(LAST - 2);
        assert_eq!(numbers.take(2, &engine, 5).unwrap(), LAST - 2);
        for _ in 0..3 {
            let refused = numbers.take(1, &engine, 5).unwrap_err();
            assert_eq!(refused.code(), ErrorCode::Overflow);
        }
        assert_eq!(stored(&engine), LAST);
    }
}
