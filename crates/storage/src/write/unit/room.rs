//! Memory that a unit reserves for its writes, so that the engine allocates once.

use mayfly_value::{DocBuf, RawDoc};

use super::WriteUnit;
use crate::record::Record;
use crate::record::layout::RECORD_HEADER;

/// The approximate size of a key, and of a document's part of the log entry.
const KEY_BYTES: usize = 64;

impl WriteUnit<'_> {
    /// Reserves memory for about this many documents, whose sizes add up to `bytes`.
    pub fn reserve(&mut self, documents: usize, bytes: usize) {
        let keys = documents * KEY_BYTES * (2 + self.state.indexes.len());
        self.txn.reserve(bytes + keys);
    }

    /// Reserves memory for an update: the new version, the log's entry, and a copy of the old
    /// version if the log refers to it.
    pub(super) fn reserve_update(
        &mut self,
        before: Record<'_>,
        new: RawDoc<'_>,
        delta: Option<&DocBuf>,
    ) {
        let kept = before.logged_at.map_or(0, |_| KEY_BYTES + before.document.as_bytes().len());
        let logged = 4 * KEY_BYTES + delta.map_or(0, |delta| delta.as_bytes().len());
        let keys = 2 * KEY_BYTES * self.state.indexes.len();
        let record = KEY_BYTES + RECORD_HEADER + new.as_bytes().len();
        self.txn.reserve(record + kept + logged + keys);
    }
}
