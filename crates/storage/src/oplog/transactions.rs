//! Log entries of a transaction of several statements: one `applyOps`, or several of less than 16
//! MiB that belong together.
//!
//! ```text
//! { lsid, txnNumber, op: "c", ns: "admin.$cmd", o: { applyOps: [ ... ], partialTxn: true }, ts, t, v, wall, prevOpTime }    all but the last
//! { lsid, txnNumber, op: "c", ns: "admin.$cmd", o: { applyOps: [ ... ], count: n }, ts, t, v, wall, prevOpTime }            the last; count of several only
//! ```
//!
//! The entries have consecutive timestamps and become visible together; the commit's time is that
//! of the last one. `prevOpTime` of each refers to the one before it.

use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue};

use super::batch::{OplogBatch, Part};
use super::{StoredEntry, stored};

/// A transaction's entries before its commit.
pub(super) struct Parts {
    /// The encoded first fields of each entry.
    front: DocBuf,
    /// The full entries.
    pub(super) full: Vec<Part>,
}

impl Parts {
    pub(super) fn new(lsid: RawDoc<'_>, txn_number: i64) -> Parts {
        let mut front = DocBuilder::new();
        front.append("lsid", lsid).append("txnNumber", txn_number);
        front.append("op", "c").append("ns", "admin.$cmd");
        Parts { front: front.finish(), full: Vec::new() }
    }

    /// Begins an entry up to its array of operations.
    pub(super) fn begin(&self, room: usize) -> DocBuilder {
        let mut entry = stored::begin(room + 512, true);
        entry.append_all(self.front.as_doc());
        entry.start_document("o").start_array("applyOps");
        entry
    }
}

/// The complete list of a transaction's entries, without timestamps.
pub(crate) struct TransactionParts {
    parts: Vec<Part>,
    operations: usize,
}

impl OplogBatch {
    /// Ends the transaction's entries.
    pub(crate) fn into_parts(mut self) -> TransactionParts {
        self.end_run();
        let last = self.take_part();
        let mut parts = self.transaction.map_or_else(Vec::new, |parts| parts.full);
        parts.extend(last);
        TransactionParts { parts, operations: self.count }
    }
}

impl TransactionParts {
    /// The number of entries.
    pub(crate) fn len(&self) -> usize {
        self.parts.len()
    }

    /// The encoded entries with consecutive timestamps, of which `first` is the first.
    pub(crate) fn finish(
        self,
        first: u64,
        now_ms: i64,
    ) -> impl Iterator<Item = (u64, StoredEntry)> {
        let (count, operations) = (self.parts.len(), self.operations);
        let commit = first + count.saturating_sub(1) as u64;
        self.parts.into_iter().enumerate().map(move |(at, part)| {
            let Part { mut entry, excess, packed, definitions } = part;
            entry.end();
            if at + 1 < count {
                entry.append("partialTxn", true);
            } else if count > 1 {
                entry.append("count", operations as i64);
            }
            entry.end();
            let timestamp = first + at as u64;
            entry.append("ts", RawValue::Timestamp(timestamp)).append("t", 1i64).append("v", 2i64);
            entry.append("wall", RawValue::Date(now_ms));
            let (before, term) = if at == 0 { (0, -1i64) } else { (timestamp - 1, 1) };
            entry.start_document("prevOpTime");
            entry.append("ts", RawValue::Timestamp(before)).append("t", term).end();
            let sealed = StoredEntry::seal(entry, excess, packed, Some(commit));
            (timestamp, sealed.with_definitions(&definitions))
        })
    }
}
