//! Capped collections: records in the order of their insertion, the oldest going when there are too many.
//!
//! Write units on one capped collection run one after the other:
//! a reader that follows the numbers must not see a later one before an earlier one. What has to go goes in the unit that
//! made it too much.

use std::ops::ControlFlow;

use mayfly_base::{Error, Result};
use mayfly_kv::{Direction, Keyspace, ScanLimit};
use mayfly_value::RawDoc;

use super::WriteUnit;
use crate::catalog::Capped;
use crate::record::error::from_kv;
use crate::record::layout::{decode_stored, object_range};
use crate::record::{RecordKey, StoredDocument};

/// A unit's part of it.
pub(crate) struct CappedUnit {
    pub(crate) limits: Capped,
}

impl WriteUnit<'_> {
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
