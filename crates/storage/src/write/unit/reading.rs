//! What a unit reads of records that it means to change, and the removal of those that are hidden.

impl WriteUnit<'_> {
    /// Reads a document that the unit means to change: it conflicts with other writers as a change would. A document
    /// that is due and hidden is none.
    ///
    /// # Errors
    /// 301 DataCorruptionDetected.
    pub fn read(&mut self, record_key: &[u8]) -> Result<Option<StoredDocument>> {
        let Some(stored) = self.read_stored(record_key)? else { return Ok(None) };
        let hidden = self.hides()
            && hidden_by(self.state.hiding(), stored.record(), self.around.moment)?.is_some();
        Ok((!hidden).then_some(stored))
    }

    /// Whether documents of the collection may be hidden now.
    fn hides(&self) -> bool {
        self.collection.hides_expired() && self.around.core.watch.look()
    }

    /// The same whether hidden or not.
    pub(crate) fn read_stored(&mut self, record_key: &[u8]) -> Result<Option<StoredDocument>> {
        let key = prefixed(self.collection.id(), record_key);
        let mut found = Ok(None);
        self.txn
            .get_locked(Keyspace::Record, &key, &mut |value| {
                found = decode_stored(value).map(|stored| Some(stored.to_stored()));
            })
            .map_err(from_kv)?;
        found
    }

    /// The same for several documents at once, in the order of the keys; nothing where there is none.
    ///
    /// # Errors
    /// As [`WriteUnit::read`].
    pub(crate) fn read_many(
        &mut self,
        record_keys: &[&[u8]],
    ) -> Result<Vec<Option<StoredDocument>>> {
        let id = self.collection.id();
        let keys: Vec<_> = record_keys.iter().map(|record_key| prefixed(id, record_key)).collect();
        let keys: Vec<_> = keys.iter().map(Vec::as_slice).collect();
        let mut found = vec![None; keys.len()];
        let mut damaged = None;
        self.txn
            .multi_get_locked(
                Keyspace::Record,
                &keys,
                &mut |at, value| match decode_stored(value) {
                    Ok(stored) => found[at] = Some(stored.to_stored()),
                    Err(error) => damaged = Some(error),
                },
            )
            .map_err(from_kv)?;
        damaged.map_or(Ok(found), Err)
    }

    /// Removes the record if it is hidden: what nobody sees is in nobody's way. True when it is gone.
    pub(crate) fn expire_hidden(&mut self, record_key: &[u8]) -> Result<bool> {
        if !self.hides() {
            return Ok(false);
        }
        let Some(stored) = self.read_stored(record_key)? else { return Ok(false) };
        let due = hidden_by(self.state.hiding(), stored.record(), self.around.moment)?.cloned();
        let Some(policy) = due else { return Ok(false) };
        self.archive(&policy, &[stored.as_doc()])?;
        self.expire(record_key, &stored, &policy)?;
        Ok(true)
    }
}

use mayfly_base::Result;
use mayfly_kv::Keyspace;

use super::WriteUnit;
use crate::read::hidden_by;
use crate::record::StoredDocument;
use crate::record::error::from_kv;
use crate::record::layout::{decode_stored, prefixed};
