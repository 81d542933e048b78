//! The keys of a transaction's writes in indexes that it does not see, because they were published
//! after it began.
//!
//! Its write units skip such indexes: the transaction's snapshot does not have their entries, so
//! that the units could not look keys up in them. The commit writes these keys, with the states of
//! the collections held, so that no index becomes ready meanwhile. For each record that the
//! transaction has written, *before* is the committed version, which cannot change while the
//! transaction holds the record's lock, and *after* is its own:
//!
//! * An index that is being built gets notes: the record, and the keys that it had before.
//! * In an index that is ready, the keys of *before* that are not among those of *after* are
//!   removed, and the keys of *after* are added. If another record has a key of a unique index, the
//!   commit fails with 112: when the client runs the transaction again, it uses the index, and its
//!   statement reports the duplicate.

use std::collections::HashMap;
use std::sync::Arc;

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_kv::{Guard, Keyspace, Txn};
use mayfly_work::current::spend;

use crate::catalog::{Collection, CollectionState, Core, Index};
use crate::index::building::Building;
use crate::index::keygen::KeySet;
use crate::isolation::{LocalCatalog, Pending};
use crate::read::Snapshot;
use crate::record::RecordKey;
use crate::record::error::from_kv;
use crate::record::layout::{
    decode_stored, decode_unique_value, encode_unique_value, object_range, prefixed,
};
use crate::write::unit::{covered_keys, note_multikey};

/// The collection's state for units of the transaction; `None` if it is the present one.
pub(in crate::write) fn as_seen(
    state: &CollectionState,
    local: &LocalCatalog,
) -> Option<CollectionState> {
    if state.indexes.iter().all(|index| local.sees(index)) {
        return None;
    }
    let mut seen = state.clone();
    seen.indexes.retain(|index| local.sees(index));
    Some(seen)
}

/// A transaction that commits, with one collection that it has written.
pub(in crate::write) struct UnseenKeys<'t> {
    pub(in crate::write) core: &'t Core,
    pub(in crate::write) txn: &'t mut dyn Txn,
    pub(in crate::write) pending: &'t mut Pending,
    pub(in crate::write) collection: &'t Collection,
}

/// The keys of a record in an index.
#[derive(Default)]
struct Keys {
    before: KeySet,
    after: KeySet,
}

impl UnseenKeys<'_> {
    /// Writes the keys in the indexes that the transaction does not see.
    ///
    /// # Errors
    /// 112 WriteConflict when an index does not accept the writes of the transaction; errors of the
    /// engine.
    pub(in crate::write) fn write(
        &mut self,
        state: &CollectionState,
        local: &LocalCatalog,
    ) -> Result<()> {
        let unseen = |index: &&Arc<Index>| !local.sees(index) && !index.is_dropped();
        let unseen: Vec<_> = state.indexes.iter().filter(unseen).collect();
        if unseen.is_empty() {
            return Ok(());
        }
        let now = self.core.latest()?;
        let own = object_range(self.collection.id());
        let records: Vec<RecordKey> = self.txn.written_keys(Keyspace::Record, &own);
        let records: Vec<_> = records.iter().map(|key| &key[8..]).collect();
        for index in unseen {
            match index.building() {
                Some(building) => self.leave_notes(index, building, &now, &records)?,
                None => self.write_keys(index, &now, &records)?,
            }
        }
        Ok(())
    }

    fn leave_notes(
        &mut self,
        index: &Index,
        building: &Building,
        now: &Snapshot,
        records: &[&[u8]],
    ) -> Result<()> {
        for record_key in records {
            spend(1)?;
            // A document without valid keys ends the build when it applies its notes, unless the
            // document is gone by then.
            let mut before = KeySet::default();
            now.stored_record(self.collection, record_key, &mut |record| {
                if covered_keys(index, record, &mut before).is_err() {
                    before.clear();
                }
                Ok(())
            })?;
            self.pending.notes.push(building.touched(record_key));
            let had = before.iter().map(|(values, _)| building.had(record_key, values));
            self.pending.notes.extend(had);
        }
        Ok(())
    }

    fn write_keys(&mut self, index: &Arc<Index>, now: &Snapshot, records: &[&[u8]]) -> Result<()> {
        // For a unique index: the records of the keys that the transaction has removed or added.
        let mut owners: HashMap<Vec<u8>, Option<RecordKey>> = HashMap::new();
        let mut keys = Keys::default();
        for record_key in records {
            spend(1)?;
            self.keys_of(index, now, record_key, &mut keys)?;
            for (values, _) in keys.before.iter() {
                if !keys.after.iter().any(|(kept, _)| kept == values) {
                    self.remove(index, values, record_key)?;
                    owners.insert(values.to_vec(), None);
                }
            }
        }
        for record_key in records {
            spend(1)?;
            self.keys_of(index, now, record_key, &mut keys)?;
            note_multikey(self.txn, self.pending, index, keys.after.multikey)?;
            for (values, bits) in keys.after.iter() {
                if keys.before.iter().any(|entry| entry == (values, bits)) {
                    continue;
                }
                if index.spec.unique() {
                    let owner = match owners.get(values) {
                        Some(owner) => owner.clone(),
                        None => owner_of(now, index, values)?,
                    };
                    if owner.is_some_and(|owner| owner != *record_key) {
                        return Err(does_not_fit(index, "another document has its key"));
                    }
                    owners.insert(values.to_vec(), Some(record_key.to_vec()));
                }
                self.add(index, (values, bits), record_key)?;
            }
        }
        Ok(())
    }

    /// The keys of a record before and after the transaction.
    fn keys_of(
        &self,
        index: &Index,
        now: &Snapshot,
        record_key: &[u8],
        out: &mut Keys,
    ) -> Result<()> {
        out.before.clear();
        out.after.clear();
        now.stored_record(self.collection, record_key, &mut |record| {
            covered_keys(index, record, &mut out.before)
        })?;
        let mut made = Ok(());
        let key = prefixed(self.collection.id(), record_key);
        self.txn
            .get(Keyspace::Record, &key, &mut |value| {
                made = decode_stored(value)
                    .and_then(|record| covered_keys(index, record, &mut out.after));
            })
            .map_err(from_kv)?;
        made.map_err(|why| does_not_fit(index, why.message()))
    }

    fn remove(&mut self, index: &Index, values: &[u8], record_key: &[u8]) -> Result<()> {
        let mut key = prefixed(index.id(), values);
        let guard = match index.spec.unique() {
            true => Guard::Checked,
            false => Guard::Derived,
        };
        if !index.spec.unique() {
            key.extend_from_slice(record_key);
        }
        self.txn.delete(Keyspace::Index, &key, guard).map_err(from_kv)
    }

    fn add(
        &mut self,
        index: &Index,
        (values, bits): (&[u8], &[u8]),
        record_key: &[u8],
    ) -> Result<()> {
        let mut key = prefixed(index.id(), values);
        if index.spec.unique() {
            let mut value = Vec::new();
            encode_unique_value(&mut value, record_key, bits);
            return self.txn.put(Keyspace::Index, &key, &value, Guard::Checked).map_err(from_kv);
        }
        key.extend_from_slice(record_key);
        self.txn.put(Keyspace::Index, &key, bits, Guard::Derived).map_err(from_kv)
    }
}

/// The record that has this key of a unique index.
fn owner_of(now: &Snapshot, index: &Index, values: &[u8]) -> Result<Option<RecordKey>> {
    let mut owner = None;
    now.txn
        .get(Keyspace::Index, &prefixed(index.id(), values), &mut |value| {
            owner = decode_unique_value(value).map(|(owner, _)| owner.to_vec());
        })
        .map_err(from_kv)?;
    Ok(owner)
}

fn does_not_fit(index: &Index, why: &str) -> Error {
    let name = index.spec.name();
    let text = format!(
        "the writes of the transaction do not fit index '{name}', which was created meanwhile: {why}"
    );
    Error::new(ErrorCode::WriteConflict, text)
}
