//! Looking for the `_id`s of documents that are about to be inserted all at once: a batched read costs an engine a part of what as
//! many look-ups do.
//!
//! What was found out holds for the first insert under a key. Whoever comes to a key again, or to one that is there, looks as ever, so
//! that errors come in the order in which documents are inserted.

use mayfly_base::Result;
use mayfly_kv::{Keyspace, KvError};
use mayfly_value::RawDoc;

use super::WriteUnit;
use super::identity::checked_id;
use crate::record::error::from_kv;
use crate::record::layout::prefixed;

/// Fewer documents are looked up one by one.
const TOGETHER: usize = 8;

/// Keys that were looked for and locked, in the order in which documents will be inserted.
#[derive(Default)]
pub(super) struct FreshKeys {
    /// Keys, and whether there is nothing under them.
    keys: Vec<(Vec<u8>, bool)>,
    /// Those before this one were come to.
    next: usize,
}

impl FreshKeys {
    /// Whether it is known that nothing is under this key. It is not known any longer after this.
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
    /// These documents are about to be inserted, in this order: looks for their `_id`s.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn expect_inserts<'d>(
        &mut self,
        documents: impl ExactSizeIterator<Item = RawDoc<'d>>,
    ) -> Result<()> {
        if documents.len() < TOGETHER || self.state.time_series.is_some() {
            return Ok(());
        }
        let (keyspace, object) = match &self.state.id_index {
            Some(index) => (Keyspace::Index, index.id()),
            None => (Keyspace::Record, self.collection.id()),
        };
        let mut keys = Vec::with_capacity(documents.len());
        for document in documents {
            // What has none that may be stored is refused when it is inserted.
            if let Ok(id) = checked_id(document) {
                keys.push((prefixed(object, &self.collection.id_key(id)), true));
            }
        }
        let mut order: Vec<usize> = (0..keys.len()).collect();
        if !keys.is_sorted() {
            order.sort_unstable_by(|a, b| keys[*a].0.cmp(&keys[*b].0).then(a.cmp(b)));
        }
        let sorted: Vec<&[u8]> = order.iter().map(|at| keys[*at].0.as_slice()).collect();
        let mut known = Vec::new();
        // Only the first document of several with one `_id` finds nothing there.
        known.extend((1..order.len()).filter(|at| sorted[*at] == sorted[*at - 1]));
        let looked =
            self.txn.multi_get_locked(keyspace, &sorted, &mut |position, _| known.push(position));
        match looked {
            Ok(()) => {}
            // Perhaps the unit does not come to that document.
            Err(KvError::Conflict) => return Ok(()),
            Err(error) => return Err(from_kv(error)),
        }
        for position in known {
            keys[order[position]].1 = false;
        }
        self.fresh = FreshKeys { keys, next: 0 };
        Ok(())
    }
}
