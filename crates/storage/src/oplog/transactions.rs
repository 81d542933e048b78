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

use super::batch::{OplogBatch, Part, end_entry};
use super::gaps::Version;
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
    /// The encoded entries, in order.
    pub(crate) fn finish(self, now_ms: i64) -> impl Iterator<Item = StoredEntry> {
        let (count, operations) = (self.parts.len(), self.operations);
        self.parts.into_iter().enumerate().map(move |(at, part)| {
            let Part { mut entry, excess, packed, definitions } = part;
            entry.end();
            if at + 1 < count {
                entry.append("partialTxn", true);
            } else if count > 1 {
                entry.append("count", operations as i64);
            }
            entry.end();
            let mut gaps = end_entry(&mut entry, at as u64, now_ms);
            entry.start_document("prevOpTime").append("ts", RawValue::Timestamp(0));
            if at > 0 {
                gaps.add_last(&entry, at as u64 - 1);
            }
            entry.append("t", if at == 0 { -1i64 } else { 1 }).end();
            let sealed = StoredEntry::seal(entry, excess, packed, Version::OfCommit, gaps);
            sealed.with_definitions(&definitions)
        })
    }
}
