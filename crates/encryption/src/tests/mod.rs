//! Tests of the whole crate: with payloads that the official client library made, with a model, and
//! with malformed bytes.

mod client;
mod library;
mod model;
mod robustness;
mod writes;

use std::collections::HashMap;

use mayfly_base::Result;
use mayfly_value::{DocBuf, RawDoc, RawValue};

use crate::{EscId, EscReader, EscRecord, StateChange, WritePlan, esc_document};

/// The collection of counts, and what the tests need of it.
#[derive(Default)]
pub(super) struct MemoryState {
    documents: HashMap<EscId, EscRecord>,
    /// How often [`EscReader::read`] was called.
    rounds: usize,
}

impl EscReader for MemoryState {
    fn read(&mut self, ids: &[EscId]) -> Result<Vec<Option<EscRecord>>> {
        self.rounds += 1;
        Ok(ids.iter().map(|id| self.documents.get(id).cloned()).collect())
    }
}

impl MemoryState {
    fn insert(&mut self, document: &DocBuf) {
        let (id, record) = self.record(document);
        assert!(self.documents.insert(id, record).is_none(), "a duplicate key");
    }

    fn record(&self, document: &DocBuf) -> (EscId, EscRecord) {
        let Some(RawValue::Binary { subtype: 0, bytes }) = document.as_doc().get("_id") else {
            panic!("an id that is not binData")
        };
        (bytes.try_into().unwrap(), EscRecord::parse(document.as_doc()).unwrap())
    }

    fn apply_write(&mut self, plan: &WritePlan) {
        for id in &plan.counts {
            self.insert(&esc_document(id));
        }
    }

    fn apply_change(&mut self, change: &StateChange) {
        for document in &change.inserted {
            self.insert(document);
        }
        for document in &change.replaced {
            let (id, record) = self.record(document);
            assert!(self.documents.insert(id, record).is_some(), "nothing to replace");
        }
        let mut deleted = 0;
        for id in change.deleted() {
            assert!(self.documents.remove(&id).is_some(), "a deleted document did not exist");
            deleted += 1;
        }
        assert_eq!(change.deleted_count(), deleted);
    }
}

/// Vectors that count up, so that the output of tests is the same each time.
pub(super) fn vectors() -> impl FnMut() -> [u8; 16] {
    let mut last = 0_u128;
    move || {
        last += 1;
        last.to_be_bytes()
    }
}

/// The tags in `__safeContent__`.
pub(super) fn safe_content(document: RawDoc<'_>) -> Vec<[u8; 32]> {
    let Some(RawValue::Array(tags)) = document.get(crate::SAFE_CONTENT) else { return Vec::new() };
    let tag = |value| match value {
        RawValue::Binary { subtype: 0, bytes } => bytes.try_into().unwrap(),
        other => panic!("not a tag: {other:?}"),
    };
    tags.iter().map(|item| tag(item.value())).collect()
}
