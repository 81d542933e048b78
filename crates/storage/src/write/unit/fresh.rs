//! Looks up the `_id`s of documents that are about to be inserted together, and over a network
//! their keys in all unique indexes: one batched read costs an engine a fraction of single
//! look-ups.
//!
//! A result applies to the first insert of a key. A second insert of a key, or the insert of an
//! existing one, does a look-up of its own, so that errors come in the order of the documents.

use mayfly_base::Result;
use mayfly_kv::{Keyspace, KvError};
use mayfly_value::RawDoc;

use super::WriteUnit;
use super::identity::checked_id;
use super::keys::covered_keys;
use crate::record::error::from_kv;
use crate::record::layout::prefixed;

/// Fewer documents are looked up one by one, unless each look-up is a round trip.
const TOGETHER: usize = 8;

/// Keys that were looked up and locked, in the order in which documents will be inserted.
#[derive(Default)]
pub(super) struct FreshKeys {
    /// Keys, each with whether it was free.
    keys: Vec<(Vec<u8>, bool)>,
    /// The keys before this one have been used.
    next: usize,
}

impl FreshKeys {
    /// Whether this key was found to be free. The result is used up by this call.
    #[inline]
    pub(super) fn take(&mut self, key: &[u8]) -> bool {
        match self.keys.get(self.next) {
            Some((next, fresh)) if next == key => {
                self.next += 1;
                *fresh
            }
            _ => false,
        }
    }
}

impl WriteUnit<'_> {
    /// Looks up the `_id`s of documents that are about to be inserted in this order.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn expect_inserts<'d>(
        &mut self,
        documents: impl ExactSizeIterator<Item = RawDoc<'d>>,
    ) -> Result<()> {
        let is_remote = self.context.core.is_remote();
        let few = if is_remote { 1 } else { TOGETHER };
        if documents.len() < few || self.state.time_series.is_some() {
            return Ok(());
        }
        // The commit finds keys that are taken.
        if self.inserts.are_late && self.collection.is_numbered() {
            return Ok(());
        }
        let (keyspace, object) = match &self.state.id_index {
            Some(index) => (Keyspace::Index, index.id()),
            None => (Keyspace::Record, self.collection.id()),
        };
        let mut keys = Vec::with_capacity(documents.len());
        for document in documents {
            // A document without a valid `_id` is refused when it is inserted.
            if let Ok(id) = checked_id(document) {
                keys.push((prefixed(object, &self.collection.id_key(id)), true));
            }
            if is_remote && keyspace == Keyspace::Index {
                self.add_unique_keys(document, &mut keys);
            }
        }
        let mut order: Vec<usize> = (0..keys.len()).collect();
        if !keys.is_sorted() {
            order.sort_unstable_by(|a, b| keys[*a].0.cmp(&keys[*b].0).then(a.cmp(b)));
        }
        let sorted: Vec<&[u8]> = order.iter().map(|at| keys[*at].0.as_slice()).collect();
        let mut known = Vec::new();
        // Of several documents with one `_id`, the key is free only for the first.
        known.extend((1..order.len()).filter(|at| sorted[*at] == sorted[*at - 1]));
        let looked =
            self.txn.multi_get_locked(keyspace, &sorted, &mut |position, _| known.push(position));
        match looked {
            Ok(()) => {}
            // The unit may end before that document.
            Err(KvError::Conflict) => return Ok(()),
            Err(error) => return Err(from_kv(error)),
        }
        for position in known {
            keys[order[position]].1 = false;
        }
        self.fresh = FreshKeys { keys, next: 0 };
        Ok(())
    }

    /// Adds the keys of a document in unique indexes, so that they are looked up in the same round
    /// trip. A document without valid keys is refused when it is inserted.
    fn add_unique_keys(&mut self, document: RawDoc<'_>, keys: &mut Vec<(Vec<u8>, bool)>) {
        let state = self.state;
        let unique = state.indexes.iter().filter(|index| index.spec.unique());
        for index in unique.filter(|index| index.building().is_none()) {
            let record = self.written(document);
            if covered_keys(index, record, &mut self.scratch.new_keys).is_ok() {
                let values = self.scratch.new_keys.iter().map(|(values, _)| values);
                keys.extend(values.map(|values| (prefixed(index.id, values), true)));
            }
        }
    }
}
