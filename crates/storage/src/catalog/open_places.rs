//! How many transactions of clients may be open at the same time: each may own a connection of an
//! engine across a network.

use std::sync::Arc;
use std::time::Duration;

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_work::current;
use parking_lot::{Condvar, Mutex};

/// How long the begin of a transaction waits for the end of another one.
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// The number of open transactions.
#[derive(Clone, Default)]
pub(crate) struct OpenPlaces(Arc<Places>);

#[derive(Default)]
struct Places {
    taken: Mutex<usize>,
    freed: Condvar,
}

/// The place of an open transaction.
pub(crate) struct OpenPlace(Arc<Places>);

impl OpenPlaces {
    /// Takes a place if fewer than `most` are taken, and otherwise waits for one.
    ///
    /// # Errors
    /// 112 WriteConflict when all stay taken: the client begins the transaction again.
    pub(crate) fn take(&self, most: usize) -> Result<OpenPlace> {
        let (mut taken, mut has_waited) = (self.0.taken.lock(), false);
        while *taken >= most {
            if has_waited {
                let text = format!(
                    "{most} transactions are open, as many as the connections to the storage allow"
                );
                return Err(Error::new(ErrorCode::WriteConflict, text));
            }
            // The guard is moved into the wait and back.
            let mut guard = taken;
            (taken, has_waited) = current::wait(move || {
                let ended = self.0.freed.wait_for(&mut guard, LONGEST_WAIT);
                (guard, ended.timed_out())
            });
        }
        *taken += 1;
        Ok(OpenPlace(self.0.clone()))
    }
}

impl Drop for OpenPlace {
    fn drop(&mut self) {
        *self.0.taken.lock() -= 1;
        self.0.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_limited_and_freed() {
        let places = OpenPlaces::default();
        let (first, _second) = (places.take(2).unwrap(), places.take(2).unwrap());
        let refused = places.take(2).err().unwrap();
        assert_eq!(refused.code(), ErrorCode::WriteConflict);
        drop(first);
        assert!(places.take(2).is_ok());
    }
}
