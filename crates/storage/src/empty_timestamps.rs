//! Empty timestamps: `Timestamp(0, 0)` in a top-level field of a new document stands for the log's
//! time. Manual: "BSON Types", "Timestamps".
//!
//! Documents are filled in before a write unit sees them, so that validators, index keys, the log
//! and the record of a statement have the same value. Updates by operators and by pipelines keep
//! what they are given.

use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawElement, RawValue, ty};

use crate::Store;

/// Whether a field holds an empty timestamp.
#[inline]
pub fn is_empty_timestamp(field: RawElement<'_>) -> bool {
    field.type_byte() == ty::TIMESTAMP && field.data().iter().all(|byte| *byte == 0)
}

impl Store {
    /// A timestamp that belongs to no entry of the log and to no other caller.
    pub fn new_timestamp(&self) -> u64 {
        self.oplog.clock.take_unused(self.clock.now_ms())
    }

    /// The document with its empty timestamps filled in, except `_id`; `None` when it has none.
    pub fn fill_empty_timestamps(&self, document: RawDoc<'_>) -> Option<DocBuf> {
        let is_empty =
            |field: RawElement<'_>| is_empty_timestamp(field) && field.name_bytes() != b"_id";
        if !document.iter().any(is_empty) {
            return None;
        }
        let mut filled = DocBuilder::in_buffer(Vec::with_capacity(document.as_bytes().len()));
        for field in document {
            match is_empty(field) {
                true => filled.append(field.name(), RawValue::Timestamp(self.new_timestamp())),
                false => filled.append_element(field),
            };
        }
        Some(filled.finish())
    }
}
