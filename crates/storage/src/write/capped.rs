//! Capped collections: records in the order of their insertion, the oldest going when there are too many.
//!
//! ```text
//! record   | collection id | record number, 8 bytes big-endian |   (elsewhere: the ordered key of _id)
//! ```
//!
//! `_id` has an index of its own, so that it stays unique. Write units on one capped collection run one after the other:
//! a reader that follows the numbers must not see a later one before an earlier one. What has to go goes in the unit that
//! made it too much.

use std::ops::ControlFlow;

use mayfly_base::{Error, Result};
use mayfly_kv::{Direction, Keyspace, ScanLimit};
use mayfly_value::{RawDoc, RawValue};

use super::WriteUnit;
use crate::catalog::{Capped, Collection, Core};
use crate::record::error::from_kv;
use crate::record::layout::{decode_stored, decode_unique_value, object_range, prefixed};
use crate::record::{RecordKey, StoredDocument};

/// A unit's part of it.
pub(crate) struct CappedUnit {
    limits: Capped,
    pub(crate) next: Option<u64>,
}

impl CappedUnit {
    pub(crate) fn new(limits: Capped, next: Option<u64>) -> CappedUnit {
        CappedUnit { limits, next }
    }
}

impl Core {
    /// The key of the record with this `_id`; nothing when there is none in a collection that is not in the order of `_id`.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn locate(&self, collection: &Collection, id: RawValue<'_>) -> Result<Option<RecordKey>> {
        let index = collection.state.read_recursive().id_index.clone();
        let Some(index) = index else { return Ok(Some(collection.record_key(id))) };
        let key = prefixed(index.id(), &collection.record_key(id));
        let mut found = None;
        self.get_one(Keyspace::Index, &key, &mut |value| {
            found = decode_unique_value(value).map(|(record_key, _)| record_key.to_vec());
        })?;
        Ok(found)
    }
}

impl WriteUnit<'_> {
    /// The number that the next record of a capped collection gets; nothing elsewhere.
    pub(crate) fn next_number(&mut self) -> Result<Option<RecordKey>> {
        let Some(next) = self.capped.as_ref().map(|capped| capped.next) else { return Ok(None) };
        let number = match next {
            Some(number) => number,
            None => self.last_number()? + 1,
        };
        if let Some(capped) = &mut self.capped {
            capped.next = Some(number + 1);
        }
        Ok(Some(number.to_be_bytes().to_vec()))
    }

    fn last_number(&self) -> Result<u64> {
        let mut last = 0;
        self.txn
            .scan(
                Keyspace::Record,
                &object_range(self.collection.id()),
                Direction::Backward,
                ScanLimit::rows(1),
                &mut |key, _| {
                    let number = key.get(8..16).and_then(|number| number.try_into().ok());
                    last = number.map_or(0, u64::from_be_bytes);
                    ControlFlow::Break(())
                },
            )
            .map_err(from_kv)?;
        Ok(last)
    }

    /// Refuses a document that the collection could never hold.
    pub(crate) fn check_capped_size(&self, document: RawDoc<'_>) -> Result<()> {
        match &self.capped {
            Some(capped) if document.as_bytes().len() as i64 > capped.limits.size_bytes => {
                Err(Error::bad_value("object to insert exceeds cappedMaxSize"))
            }
            _ => Ok(()),
        }
    }

    /// Removes the oldest documents until the rest is within the limits.
    pub(crate) fn make_room(&mut self) -> Result<()> {
        use std::sync::atomic::Ordering::Acquire;
        let Some(limits) = self.capped.as_ref().map(|capped| capped.limits) else { return Ok(()) };
        let counts = &self.collection.counts;
        let (documents, bytes) = (counts.documents.load(Acquire), counts.bytes.load(Acquire));
        while limits.is_over(documents + self.effects.documents, bytes + self.effects.bytes) {
            let Some((key, document)) = self.oldest()? else { return Ok(()) };
            self.delete(&key, &document)?;
        }
        Ok(())
    }

    fn oldest(&self) -> Result<Option<(RecordKey, StoredDocument)>> {
        let mut oldest = Ok(None);
        self.txn
            .scan(
                Keyspace::Record,
                &object_range(self.collection.id()),
                Direction::Forward,
                ScanLimit::rows(1),
                &mut |key, value| {
                    oldest = decode_stored(value).map(|stored| {
                        Some((key.get(8..).unwrap_or(&[]).to_vec(), stored.to_stored()))
                    });
                    ControlFlow::Break(())
                },
            )
            .map_err(from_kv)?;
        oldest
    }
}
