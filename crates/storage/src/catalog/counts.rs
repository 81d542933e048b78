//! The number of documents and their bytes, and how they survive a restart.
//!
//! ```text
//! catalog  | 'k' | collection id |   documents, bytes, first number, retired documents, retired bytes
//! ```
//!
//! Each number has 8 bytes, little-endian.
//!
//! A clean close writes the row, and the next start removes it, so that there is none after a
//! crash: the documents are then counted on demand. A capped collection needs the counts at every
//! insert, and its units run one after the other: each of them writes the row in its own
//! transaction, and a start leaves that row. No record of the collection has a lower number than
//! the first one.
//!
//! Retired documents are removed ones that stay until the log is cut. After a crash those that were
//! retired before the start are not counted; as soon as the log is cut up to the time of the start
//! there are none of them left. Rows have -1 if the number is not known, and rows of earlier
//! versions end before these fields.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::record::kept::RetiredTally;

/// The number and size of a collection's documents.
#[derive(Default)]
pub(crate) struct Counts {
    pub documents: AtomicI64,
    /// Bytes of BSON.
    pub bytes: AtomicI64,
    /// Removed documents that stay until the log is cut, and their bytes of BSON.
    retired_documents: AtomicI64,
    retired_bytes: AtomicI64,
    /// Documents that were retired with an entry of the log up to this timestamp are not counted.
    retired_since: AtomicU64,
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
    pub retired: Option<RetiredTally>,
}

/// The size of a collection that secondaries show ([`crate::secondary`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ShownSize {
    pub documents: i64,
    pub bytes: i64,
    /// The term of the owner that wrote it.
    pub term: i64,
}

impl ShownSize {
    pub(crate) fn encode(self) -> [u8; 24] {
        let mut row = [0; 24];
        for (part, number) in row.chunks_mut(8).zip([self.documents, self.bytes, self.term]) {
            part.copy_from_slice(&number.to_le_bytes());
        }
        row
    }

    pub(crate) fn decode(row: &[u8]) -> Option<ShownSize> {
        let number =
            |from: usize| Some(i64::from_le_bytes(row.get(from..from + 8)?.try_into().ok()?));
        Some(ShownSize { documents: number(0)?, bytes: number(8)?, term: number(16)? })
    }
}

impl Counts {
    /// The present counts, if they are exact, while the log is cut up to this timestamp.
    pub(crate) fn row(&self, first: u64, cut: u64) -> Option<CountsRow> {
        self.exact.load(Ordering::Acquire).then(|| CountsRow {
            documents: self.documents.load(Ordering::Acquire),
            bytes: self.bytes.load(Ordering::Acquire),
            first,
            retired: self.retired(cut),
        })
    }

    /// Notes at a start that what was retired up to this timestamp is not known.
    pub(crate) fn retired_unknown(&self, timestamp: u64) {
        self.retired_since.store(timestamp, Ordering::Release);
    }

    /// Counts documents that were retired.
    pub(crate) fn add_retired(&self, more: RetiredTally) {
        self.retired_documents.fetch_add(more.documents, Ordering::AcqRel);
        self.retired_bytes.fetch_add(more.bytes, Ordering::AcqRel);
    }

    /// Counts retired documents that are gone, since the log was cut; their entry has this
    /// timestamp.
    pub(crate) fn subtract_retired(&self, timestamp: u64, gone: RetiredTally) {
        if timestamp > self.retired_since.load(Ordering::Acquire) {
            self.retired_documents.fetch_sub(gone.documents, Ordering::AcqRel);
            self.retired_bytes.fetch_sub(gone.bytes, Ordering::AcqRel);
        }
    }

    /// The retired documents, if their number is known while the log is cut up to this timestamp.
    pub(crate) fn retired(&self, cut: u64) -> Option<RetiredTally> {
        let known = self.retired_since.load(Ordering::Acquire) <= cut;
        known.then(|| RetiredTally {
            documents: self.retired_documents.load(Ordering::Acquire).max(0),
            bytes: self.retired_bytes.load(Ordering::Acquire).max(0),
        })
    }

    /// Takes the counts from the catalog. Must be called before the first write.
    pub(crate) fn go_on_from(&self, row: CountsRow) {
        if let Some(retired) = row.retired {
            self.add_retired(retired);
            self.retired_since.store(0, Ordering::Release);
        }
        self.documents.store(row.documents, Ordering::Release);
        self.bytes.store(row.bytes, Ordering::Release);
        self.exact.store(true, Ordering::Release);
    }
}

impl CountsRow {
    const BYTES: usize = 40;

    pub(crate) fn encode(self) -> [u8; CountsRow::BYTES] {
        let mut row = [0; CountsRow::BYTES];
        row[..8].copy_from_slice(&self.documents.to_le_bytes());
        row[8..16].copy_from_slice(&self.bytes.to_le_bytes());
        row[16..24].copy_from_slice(&self.first.to_le_bytes());
        let retired = self.retired.unwrap_or(RetiredTally { documents: -1, bytes: -1 });
        row[24..32].copy_from_slice(&retired.documents.to_le_bytes());
        row[32..].copy_from_slice(&retired.bytes.to_le_bytes());
        row
    }

    pub(crate) fn decode(row: &[u8]) -> Option<CountsRow> {
        let part = |from: usize| row.get(from..from + 8)?.try_into().ok();
        let number = |from: usize| part(from).map(i64::from_le_bytes);
        let retired = number(24).zip(number(32)).filter(|(documents, _)| *documents >= 0);
        Some(CountsRow {
            documents: number(0)?,
            bytes: number(8)?,
            first: part(16).map_or(0, u64::from_le_bytes),
            retired: retired.map(|(documents, bytes)| RetiredTally { documents, bytes }),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_round_trip() {
        let retired = Some(RetiredTally { documents: 2, bytes: 1 << 33 });
        let row = CountsRow { documents: -1, bytes: 1 << 40, first: 7, retired };
        let unknown = CountsRow { retired: None, ..row };
        assert_eq!(CountsRow::decode(&row.encode()), Some(row));
        assert_eq!(CountsRow::decode(&unknown.encode()), Some(unknown));
        assert_eq!(CountsRow::decode(&row.encode()[..24]), Some(unknown));
        assert_eq!(CountsRow::decode(&row.encode()[..16]), Some(CountsRow { first: 0, ..unknown }));
        assert_eq!(CountsRow::decode(&row.encode()[..15]), None);
        let shown = ShownSize { documents: 1 << 40, bytes: -1, term: 7 };
        assert_eq!(ShownSize::decode(&shown.encode()), Some(shown));
        assert_eq!(ShownSize::decode(&shown.encode()[..23]), None);
    }
}
