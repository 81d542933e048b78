//! The entries of a transaction of several statements: one `applyOps`, or several below 16 MiB that belong together.
//!
//! ```text
//! { lsid, txnNumber, op: "c", ns: "admin.$cmd", o: { applyOps: [ ... ], partialTxn: true }, ts, t, v, wall, prevOpTime }    all but the last
//! { lsid, txnNumber, op: "c", ns: "admin.$cmd", o: { applyOps: [ ... ], count: n }, ts, t, v, wall, prevOpTime }            the last; count of several only
//! ```
//!
//! They have consecutive timestamps, and become visible together; the time of the commit is that of the last. `prevOpTime` leads from
//! each to the one before it.

use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue};

use super::{OplogBatch, Part, StoredEntry, stored};

/// A transaction's entries before it commits.
pub(super) struct Parts {
    /// How each of them begins.
    front: DocBuf,
    /// Those that are full.
    pub(super) full: Vec<Part>,
}

impl Parts {
    pub(super) fn new(lsid: RawDoc<'_>, txn_number: i64) -> Parts {
        let mut front = DocBuilder::new();
        front.append("lsid", lsid).append("txnNumber", txn_number);
        front.append("op", "c").append("ns", "admin.$cmd");
        Parts { front: front.finish(), full: Vec::new() }
    }

    /// An entry as far as its array, into which the operations are to be put.
    pub(super) fn begin(&self, room: usize) -> DocBuilder {
        let mut entry = stored::begin(room + 512, true);
        entry.append_all(self.front.as_doc());
        entry.start_document("o").start_array("applyOps");
        entry
    }
}

/// What a transaction did, an entry each.
pub(crate) struct TransactionParts {
    parts: Vec<Part>,
    operations: usize,
}

impl OplogBatch {
    /// What the transaction did.
    pub(crate) fn into_parts(mut self) -> TransactionParts {
        self.end_run();
        let last = self.take_part();
        let mut parts = self.transaction.map_or_else(Vec::new, |parts| parts.full);
        parts.extend(last);
        TransactionParts { parts, operations: self.count }
    }
}

impl TransactionParts {
    /// How many entries.
    pub(crate) fn len(&self) -> usize {
        self.parts.len()
    }

    /// The entries under timestamps from this one on.
    pub(crate) fn finish(
        self,
        first: u64,
        now_ms: i64,
    ) -> impl Iterator<Item = (u64, StoredEntry)> {
        let (count, operations) = (self.parts.len(), self.operations);
        let commit = first + count.saturating_sub(1) as u64;
        self.parts.into_iter().enumerate().map(move |(at, part)| {
            let Part { mut entry, excess, refers } = part;
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
            (timestamp, StoredEntry::seal(entry, excess, refers, Some(commit)))
        })
    }
}
