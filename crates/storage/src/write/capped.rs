//! Capped collections: records in the order of insertion, of which the oldest are removed at the
//! limits.
//!
//! Write units on one capped collection run one after the other: a reader that follows the numbers
//! must not see a later one before an earlier one. A unit that exceeds the limits removes the
//! oldest records itself. The state for the next unit is kept in memory and written by each unit:
//! the size, and the number from which the oldest record is searched (the removed records left
//! tombstones, which a scan from the beginning would read each time).

use std::ops::ControlFlow;
use std::sync::atomic::Ordering::Acquire;

use mayfly_base::Result;
use mayfly_kv::{Direction, Guard, KeyRange, Keyspace, ScanLimit};

use super::WriteUnit;
use crate::catalog::counts::CountsRow;
use crate::catalog::{Capped, Collection};
use crate::record::error::from_kv;
use crate::record::kept::RetiredTally;
use crate::record::layout::{catalog_key, decode_stored, object_subrange};
use crate::record::{RecordKey, StoredDocument};

/// The most records, and about the most bytes, that are read and then removed together.
const TOGETHER: usize = 256;
const TOGETHER_BYTES: usize = 1 << 20;

/// The capped collection's part of a unit.
#[derive(Clone, Copy)]
pub(crate) struct CappedUnit {
    limits: Capped,
    /// The commit of the unit leaves no record with a lower number.
    first: u64,
}

impl CappedUnit {
    pub(crate) fn new(limits: Capped, collection: &Collection) -> CappedUnit {
        CappedUnit { limits, first: collection.capped.first() }
    }

    /// Called after the commit.
    pub(crate) fn note_commit(&self, collection: &Collection) {
        collection.capped.raise_first(self.first);
        collection.note_capped_commit();
    }
}

/// Whether the oldest document must be removed. The newest one stays, even if it alone is larger
/// than the collection, as in the reference.
fn is_over(limits: Capped, documents: i64, bytes: i64) -> bool {
    documents > 1 && limits.is_over(documents, bytes)
}

impl WriteUnit<'_> {
    /// Removes the oldest documents until the rest is within the limits, and writes the counts.
    /// Called at the end of the unit.
    pub(crate) fn keep_limits(&mut self) -> Result<()> {
        let Some(mut capped) = self.capped else { return Ok(()) };
        self.make_room(&mut capped)?;
        self.capped = Some(capped);
        self.write_counts(capped.first)
    }

    /// Documents and bytes after the unit's commit.
    fn counts_now(&self) -> (i64, i64) {
        let counts = &self.collection.counts;
        let (documents, bytes) = (counts.documents.load(Acquire), counts.bytes.load(Acquire));
        (documents + self.effects.documents, bytes + self.effects.bytes)
    }

    fn make_room(&mut self, capped: &mut CappedUnit) -> Result<()> {
        loop {
            let (documents, bytes) = self.counts_now();
            if !is_over(capped.limits, documents, bytes) {
                return Ok(());
            }
            let oldest = self.oldest(*capped, (documents, bytes))?;
            if oldest.is_empty() {
                return Ok(());
            }
            for (key, document) in &oldest {
                self.delete(key, document)?;
                let number = key.as_slice().try_into().map_or(0, u64::from_be_bytes);
                capped.first = capped.first.max(number.saturating_add(1));
            }
        }
    }

    /// The oldest records: as many as must be removed for this size, or as are read together.
    fn oldest(
        &self,
        capped: CappedUnit,
        (mut documents, mut bytes): (i64, i64),
    ) -> Result<Vec<(RecordKey, StoredDocument)>> {
        let after = KeyRange { start: capped.first.to_be_bytes().to_vec(), end: Vec::new() };
        let range = object_subrange(self.collection.id(), &after);
        let limit = ScanLimit::rows(TOGETHER).bytes(TOGETHER_BYTES);
        let (mut oldest, mut decoded) = (Vec::new(), Ok(()));
        let see = &mut |key: &[u8], value: &[u8]| {
            let stored = match decode_stored(value) {
                Ok(stored) => stored,
                Err(error) => {
                    decoded = Err(error);
                    return ControlFlow::Break(());
                }
            };
            documents -= 1;
            bytes -= stored.document.as_bytes().len() as i64;
            oldest.push((key.get(8..).unwrap_or(&[]).to_vec(), stored.to_stored()));
            match is_over(capped.limits, documents, bytes) {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            }
        };
        self.txn.scan(Keyspace::Record, &range, Direction::Forward, limit, see).map_err(from_kv)?;
        decoded.map(|()| oldest)
    }

    /// Writes the counts. Only units write this row, and those of one capped collection run one
    /// after the other.
    fn write_counts(&mut self, first: u64) -> Result<()> {
        let exact = self.collection.counts.exact.load(Acquire);
        if !exact || self.txn.size().1 == 0 {
            return Ok(());
        }
        let (documents, bytes) = self.counts_now();
        // Records of capped collections are removed at once.
        let retired = Some(RetiredTally::default());
        let row = CountsRow { documents, bytes, first, retired }.encode();
        let key = catalog_key::counts(self.collection.id());
        self.txn.put(Keyspace::Catalog, &key, &row, Guard::Derived).map_err(from_kv)
    }
}
