//! The number of documents and their bytes, and how they survive a restart.
//!
//! ```text
//! catalog  | 'k' | collection id |   documents, bytes, first number: 8 bytes each, little-endian
//! ```
//!
//! A clean close writes the row, and the next start removes it, so that there is none after a
//! crash: the documents are then counted on demand. A capped collection needs the counts at every
//! insert, and its units run one after the other: each of them writes the row in its own
//! transaction, and a start leaves that row. No record of the collection has a lower number than
//! the first one; rows of earlier versions do not have this field.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use parking_lot::Mutex;

/// The number and size of a collection's documents.
#[derive(Default)]
pub(crate) struct Counts {
    pub documents: AtomicI64,
    /// Bytes of BSON.
    pub bytes: AtomicI64,
    /// False after a crash until the documents were counted.
    pub exact: AtomicBool,
    /// Held during a count.
    pub(crate) counting: Mutex<()>,
}

/// The row of a collection in the catalog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CountsRow {
    pub documents: i64,
    pub bytes: i64,
    /// No record has a lower number.
    pub first: u64,
}

impl Counts {
    /// The present counts, if they are exact.
    pub(crate) fn row(&self, first: u64) -> Option<CountsRow> {
        self.exact.load(Ordering::Acquire).then(|| CountsRow {
            documents: self.documents.load(Ordering::Acquire),
            bytes: self.bytes.load(Ordering::Acquire),
            first,
        })
    }

    /// Takes the counts from the catalog. Must be called before the first write.
    pub(crate) fn go_on_from(&self, row: CountsRow) {
        self.documents.store(row.documents, Ordering::Release);
        self.bytes.store(row.bytes, Ordering::Release);
        self.exact.store(true, Ordering::Release);
    }
}

impl CountsRow {
    const BYTES: usize = 24;

    pub(crate) fn encode(self) -> [u8; CountsRow::BYTES] {
        let mut row = [0; CountsRow::BYTES];
        row[..8].copy_from_slice(&self.documents.to_le_bytes());
        row[8..16].copy_from_slice(&self.bytes.to_le_bytes());
        row[16..].copy_from_slice(&self.first.to_le_bytes());
        row
    }

    pub(crate) fn decode(row: &[u8]) -> Option<CountsRow> {
        let part = |from: usize| row.get(from..from + 8)?.try_into().ok();
        Some(CountsRow {
            documents: i64::from_le_bytes(part(0)?),
            bytes: i64::from_le_bytes(part(8)?),
            first: part(16).map_or(0, u64::from_le_bytes),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_round_trip() {
        let row = CountsRow { documents: -1, bytes: 1 << 40, first: 7 };
        assert_eq!(CountsRow::decode(&row.encode()), Some(row));
        assert_eq!(CountsRow::decode(&row.encode()[..16]), Some(CountsRow { first: 0, ..row }));
        assert_eq!(CountsRow::decode(&row.encode()[..15]), None);
    }
}
