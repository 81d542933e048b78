//! A write unit: documents, their index keys and the oplog entry in one engine transaction.
//!
//! 1. [`super::Writer::write`] locks the collection's state shared and begins a transaction.
//! 2. The body calls [`WriteUnit::insert`], [`WriteUnit::update`] or [`WriteUnit::delete`].
//! 3. Each of them maintains the keys of every index, checks unique ones, and leaves notes for
//!    indexes that are being built.
//! 4. The commit adds the oplog entry and makes everything visible at once.
//! 5. After a conflict the whole body runs again over a new snapshot.

use std::collections::HashSet;
use std::sync::Arc;

use mayfly_base::Result;
use mayfly_kv::{Guard, Txn};
use mayfly_value::{ChangedPath, DocBuf, RawDoc, RawValue};

use super::archive::ArchiveSink;
use super::capped::CappedUnit;
use super::others::{OpenCollection, OpenCollections};
use crate::catalog::{Collection, CollectionState, Core, Policy};
use crate::index::keygen::{KeySet, index_keys};
use crate::index::validation::{SafeContent, Validation, WriteTime};
use crate::isolation::{Effects, Pending, ReadView};
use crate::oplog::{ExpiredBy, LoggedObject, LoggedUpdate, RecordInLog, UpdateStyle, delta};
use crate::record::layout::{InLog, ObjectKey, RECORD_HEADER, encode_record};
use crate::record::storable::{
    MAX_CLUSTERED_KEY_BYTES, check_bytes, check_clustered_key, check_storable,
};
use crate::record::{Moment, Record, StoredDocument};
use ahead::ReadAhead;
use fresh::FreshKeys;
use identity::{checked_id, stored_id};
use keys::long;

mod ahead;
mod duplicate;
mod expiry;
mod fresh;
mod identity;
mod in_log;
mod keys;
mod reading;
mod room;
mod tags;

pub(crate) use duplicate::duplicate_key;
pub(crate) use identity::Inserts;
pub(crate) use keys::{covered_keys, key_error, note_multikey};

/// The context that a unit gets from its writer.
#[derive(Clone, Copy)]
pub(crate) struct UnitContext<'s> {
    pub(crate) moment: Moment,
    pub(crate) core: &'s Core,
    /// The view of the operation that runs the unit.
    pub(crate) view: &'s ReadView,
}

/// The writes of a transaction to one collection.
///
/// Writes to another collection in the same transaction go through a unit of their own
/// ([`WriteUnit::on_collection`]).
pub struct WriteUnit<'s> {
    pub(crate) txn: &'s mut (dyn Txn + 'static),
    pub(crate) collection: &'s Collection,
    pub(crate) state: &'s CollectionState,
    ns: &'s str,
    pub(super) context: UnitContext<'s>,
    /// The work that the transaction's writes leave to its commit.
    pub(crate) pending: &'s mut Pending,
    /// The effects of this unit alone.
    pub(crate) effects: Effects,
    unvalidated: bool,
    tags: SafeContent,
    unlogged: bool,
    pub(crate) capped: Option<CappedUnit>,
    /// The other collections that the unit may write to.
    pub(crate) others: Option<&'s OpenCollections<'s>>,
    pub(crate) archive_sink: Option<&'s dyn ArchiveSink>,
    scratch: Scratch,
    fresh: FreshKeys,
    ahead: ReadAhead,
    pub(super) inserts: Inserts,
}

/// Buffers that are reused for each document.
#[derive(Default)]
pub(crate) struct Scratch {
    value: Vec<u8>,
    key: Vec<u8>,
    old_keys: KeySet,
    new_keys: KeySet,
}

impl<'s> WriteUnit<'s> {
    pub(crate) fn new(
        txn: &'s mut (dyn Txn + 'static),
        pending: &'s mut Pending,
        collection: &'s Collection,
        state: &'s CollectionState,
        ns: &'s str,
        context: UnitContext<'s>,
    ) -> WriteUnit<'s> {
        WriteUnit {
            txn,
            collection,
            state,
            ns,
            context,
            pending,
            effects: Effects::default(),
            unvalidated: false,
            tags: SafeContent::Kept,
            unlogged: false,
            capped: None,
            others: None,
            archive_sink: None,
            scratch: Scratch::default(),
            fresh: FreshKeys::default(),
            ahead: ReadAhead::default(),
            inserts: Inserts::default(),
        }
    }

    /// The wall time of its records, in milliseconds since 1970.
    pub(crate) fn now_ms(&self) -> i64 {
        self.context.moment.now_ms
    }

    /// Sets the wall time of its next records: a replay writes records of several times.
    pub(crate) fn set_wall_ms(&mut self, now_ms: i64) {
        self.context.moment.now_ms = now_ms;
    }

    pub(crate) fn namespace(&self) -> &'s str {
        self.ns
    }

    /// Runs `act` with a unit of the same transaction over another collection, without validation.
    pub(crate) fn on_collection<T>(
        &mut self,
        open: &OpenCollection<'_>,
        act: impl FnOnce(&mut WriteUnit<'_>) -> Result<T>,
    ) -> Result<T> {
        let mut unit = WriteUnit {
            txn: &mut *self.txn,
            collection: open.collection(),
            state: open.state(),
            ns: open.namespace(),
            context: self.context,
            pending: &mut *self.pending,
            effects: Effects::default(),
            unvalidated: true,
            tags: SafeContent::Kept,
            unlogged: self.unlogged,
            capped: None,
            others: self.others,
            archive_sink: self.archive_sink,
            scratch: std::mem::take(&mut self.scratch),
            fresh: FreshKeys::default(),
            ahead: ReadAhead::default(),
            inserts: self.inserts,
        };
        let result = act(&mut unit);
        let WriteUnit { effects, scratch, .. } = unit;
        self.scratch = scratch;
        self.pending.add(open.collection(), effects);
        result
    }

    /// The present policy with this id.
    pub(crate) fn policy(&self, id: u64) -> Option<&Arc<Policy>> {
        self.state.policies().iter().find(|policy| policy.id == id)
    }

    /// Turns document validation off for the rest of the unit.
    pub fn bypass_validation(&mut self) {
        self.unvalidated = true;
    }

    pub(crate) fn is_unvalidated(&self) -> bool {
        self.unvalidated
    }

    pub(crate) fn set_unvalidated(&mut self, unvalidated: bool) {
        self.unvalidated = unvalidated;
    }

    /// The time of the unit's writes, for validators that depend on it.
    fn write_time(&self) -> impl Fn() -> WriteTime + use<'s> {
        let (core, now_ms) = (self.context.core, self.context.moment.now_ms);
        move || WriteTime { now_ms, cluster: core.oplog().clock.now(now_ms) }
    }

    /// The collection's validation rules, unless they are bypassed.
    fn validation(&self) -> Option<&'s Validation> {
        if self.unvalidated { None } else { self.state.validation.as_deref() }
    }

    /// Leaves the rest of the unit out of the oplog, because it concerns this server only.
    pub fn leave_unlogged(&mut self) {
        self.unlogged = true;
    }

    fn object(&self) -> LoggedObject<'s> {
        LoggedObject { ns: self.ns, uuid: self.collection.uuid() }
    }

    /// Inserts a document that has an `_id`.
    ///
    /// # Errors
    /// 11000 DuplicateKey with `keyPattern` and `keyValue`; 112 WriteConflict; 10334 for a document
    /// over 16 MiB; 53 for an invalid type of `_id`; 121 when it violates the validation rules;
    /// errors of key generation. For a bucket of a time series see [`WriteUnit::restore_bucket`].
    pub fn insert(&mut self, document: RawDoc<'_>) -> Result<()> {
        check_bytes(document)?;
        self.insert_checked(document)
    }

    /// As [`WriteUnit::insert`], for a document whose bytes were checked before: it came from a
    /// client or was stored.
    ///
    /// # Errors
    /// As [`WriteUnit::insert`].
    pub fn insert_checked(&mut self, document: RawDoc<'_>) -> Result<()> {
        let state = self.state;
        if let Some(series) = &state.time_series {
            return self.restore_bucket(series, document);
        }
        let id = checked_id(document)?;
        check_storable(document)?;
        if let Some(validation) = self.validation() {
            validation.check_insert(self.ns, document, self.tags, &self.write_time())?;
        }
        if self.collection.is_numbered() {
            let number = self.collection.numbers.take(1, self.context.core.engine())?;
            return self.insert_as(&number.to_be_bytes(), id, document);
        }
        let key = self.collection.id_key(id);
        if key.len() > MAX_CLUSTERED_KEY_BYTES {
            check_clustered_key(&state.options, &key)?;
        }
        self.look_up_new(&key, id)?;
        self.insert_as(&key, id, document)
    }

    /// Inserts a document under this record key, which the unit has looked up under its lock.
    pub(crate) fn insert_under(&mut self, record_key: &[u8], document: RawDoc<'_>) -> Result<()> {
        check_bytes(document)?;
        check_storable(document)?;
        self.insert_as(record_key, checked_id(document)?, document)
    }

    /// Inserts a document under this record key, unless there is a record.
    ///
    /// # Errors
    /// 11000 DuplicateKey, as [`WriteUnit::insert`].
    pub(crate) fn insert_new_under(
        &mut self,
        record_key: &[u8],
        document: RawDoc<'_>,
    ) -> Result<()> {
        self.look_up_new(record_key, checked_id(document)?)?;
        self.insert_under(record_key, document)
    }

    /// Inserts a document with this `_id` under this record key, which is new, or which the unit
    /// has looked up under its lock.
    fn insert_as(
        &mut self,
        record_key: &[u8],
        id: RawValue<'_>,
        document: RawDoc<'_>,
    ) -> Result<()> {
        // The longest value that the insert writes.
        self.scratch.value.reserve(RECORD_HEADER + 8 + document.as_bytes().len());
        self.add_id(record_key, id)?;
        let key = ObjectKey::new(self.collection.id(), record_key);
        let mut scratch = std::mem::take(&mut self.scratch);
        let in_log = self.in_log(record_key);
        let result = self.insert_with(&mut scratch, document, &key, record_key, in_log);
        self.scratch = scratch;
        result?;
        let bytes = document.as_bytes().len();
        let object = self.object();
        match in_log {
            _ if self.unlogged => {}
            InLog::Apart => self.pending.oplog.insert(object, document),
            InLog::Refers => {
                let record = RecordInLog { collection: self.collection.id(), key: record_key };
                self.pending.oplog.insert_record(object, record, bytes);
            }
        }
        self.effects.documents += 1;
        self.effects.bytes += bytes as i64;
        Ok(())
    }

    fn insert_with(
        &mut self,
        scratch: &mut Scratch,
        document: RawDoc<'_>,
        key: &[u8],
        record_key: &[u8],
        in_log: InLog,
    ) -> Result<()> {
        encode_record(&mut scratch.value, self.now_ms(), in_log, document);
        self.put_record(key, &scratch.value, in_log, Guard::Derived)?;
        let state = self.state;
        for index in &state.indexes {
            if index.covers(document)? {
                index_keys(&index.spec, self.written(document), &mut scratch.new_keys)?;
                match index.building() {
                    None => self.add_keys(index, scratch, document, record_key, |_| true)?,
                    Some(building) => self.pending.notes.push(building.touched(record_key)),
                }
            }
        }
        Ok(())
    }

    /// Replaces a document that the unit has read by another one with the same `_id`.
    ///
    /// # Errors
    /// As [`WriteUnit::insert`].
    pub fn update(
        &mut self,
        record_key: &[u8],
        before: &StoredDocument,
        new: RawDoc<'_>,
        style: UpdateStyle<'_>,
    ) -> Result<()> {
        let old = before.as_doc();
        // Parts that are not in the delta are unchanged, and were checked when they were stored.
        let delta = delta(old, new, style);
        check_bytes(delta.as_ref().map_or(new, DocBuf::as_doc))?;
        check_storable(new)?;
        if let Some(validation) = self.validation() {
            validation.check_update(self.ns, (old, new), self.tags, &self.write_time())?;
        }
        if self.state.id_index.is_some() && stored_id(old) != stored_id(new) {
            // The rules for names in `_id` may be newer than the stored document.
            self.remove_id(old.get("_id").unwrap_or(RawValue::Null))?;
            self.add_id(record_key, checked_id(new)?)?;
        }
        self.reserve_update(before.record(), new, delta.as_ref());
        self.keep_version(record_key, before.record())?;
        let in_log = match &delta {
            Some(_) => InLog::Apart,
            None => self.in_log(record_key),
        };
        let changed = match style {
            UpdateStyle::Operators(paths) => Some(paths),
            UpdateStyle::Replacement
            | UpdateStyle::Computed
            | UpdateStyle::Parts
            | UpdateStyle::Growth => None,
        };
        let mut scratch = std::mem::take(&mut self.scratch);
        let documents = (before.record(), new);
        let result = self.update_with(&mut scratch, record_key, documents, changed, in_log);
        self.scratch = scratch;
        result?;
        if !self.unlogged {
            let record = RecordInLog { collection: self.collection.id(), key: record_key };
            let update = LoggedUpdate {
                old,
                new,
                delta: delta.as_ref(),
                record: (in_log == InLog::Refers).then_some(record),
                images: self.state.keeps_images,
            };
            self.pending.oplog.update(self.object(), &update);
        }
        self.effects.bytes += new.as_bytes().len() as i64 - old.as_bytes().len() as i64;
        if self.holds(old) && !self.holds(new) {
            self.effects.released.push(record_key.to_vec());
        }
        Ok(())
    }

    fn update_with(
        &mut self,
        scratch: &mut Scratch,
        record_key: &[u8],
        (before, new): (Record<'_>, RawDoc<'_>),
        changed: Option<&[ChangedPath<'_>]>,
        in_log: InLog,
    ) -> Result<()> {
        let old = before.document;
        let key = ObjectKey::new(self.collection.id(), record_key);
        encode_record(&mut scratch.value, self.now_ms(), in_log, new);
        self.put_record(&key, &scratch.value, in_log, Guard::Checked)?;
        let state = self.state;
        for index in &state.indexes {
            if let Some(building) = index.building() {
                let new = Some(self.written(new));
                self.leave_to_build(index, building, scratch, record_key, before, new)?;
                continue;
            }
            if changed.is_some_and(|paths| !index.is_concerned(paths)) {
                continue;
            }
            scratch.old_keys.clear();
            scratch.new_keys.clear();
            if index.covers(old)? {
                index_keys(&index.spec, before, &mut scratch.old_keys)?;
            }
            if index.covers(new)? {
                index_keys(&index.spec, self.written(new), &mut scratch.new_keys)?;
            }
            let same = scratch.old_keys.len() == scratch.new_keys.len()
                && scratch.old_keys.iter().zip(scratch.new_keys.iter()).all(|(a, b)| a == b);
            if same {
                // An array of one value has the same key as that value.
                self.note_multikey(index, scratch.new_keys.multikey)?;
                continue;
            }
            let old_keys = std::mem::take(&mut scratch.old_keys);
            let new_keys = std::mem::take(&mut scratch.new_keys);
            // Keys of long arrays are compared by their hashes.
            let (old, new_values) = (long(&old_keys), long(&new_keys));
            let new_values: Option<HashSet<&[u8]>> =
                new_values.map(|entries| entries.into_iter().map(|(key, _)| key).collect());
            let gone = |values: &[u8]| match &new_values {
                Some(kept) => !kept.contains(values),
                None => !new_keys.iter().any(|(key, _)| key == values),
            };
            for (values, _) in old_keys.iter().filter(|(key, _)| gone(key)) {
                self.remove_key(index, scratch, values, record_key)?;
            }
            scratch.new_keys = new_keys;
            self.add_keys(index, scratch, new, record_key, |entry| match &old {
                Some(old) => !old.contains(entry),
                None => !old_keys.iter().any(|before| before == *entry),
            })?;
            scratch.old_keys = old_keys;
        }
        Ok(())
    }

    /// Deletes a document that the unit has read.
    ///
    /// # Errors
    /// 112 WriteConflict.
    pub fn delete(&mut self, record_key: &[u8], document: &StoredDocument) -> Result<()> {
        self.delete_as(record_key, document.record(), None)
    }

    pub(crate) fn delete_as(
        &mut self,
        record_key: &[u8],
        stored: Record<'_>,
        expired: Option<ExpiredBy<'_>>,
    ) -> Result<()> {
        let document = stored.document;
        let key = ObjectKey::new(self.collection.id(), record_key);
        self.remove_record(record_key, &key, stored)?;
        let id = document.get("_id").unwrap_or(RawValue::Null);
        self.remove_id(id)?;
        let mut scratch = std::mem::take(&mut self.scratch);
        let state = self.state;
        for index in &state.indexes {
            if let Some(building) = index.building() {
                self.leave_to_build(index, building, &mut scratch, record_key, stored, None)?;
                self.effects.keys_deleted += scratch.old_keys.len() as i64;
                continue;
            }
            if index.covers(document)? {
                let mut keys = std::mem::take(&mut scratch.old_keys);
                index_keys(&index.spec, stored, &mut keys)?;
                for (values, _) in keys.iter() {
                    self.remove_key(index, &mut scratch, values, record_key)?;
                }
                self.effects.keys_deleted += keys.len() as i64;
                scratch.old_keys = keys;
            }
        }
        self.scratch = scratch;
        let image = self.state.keeps_images.then_some(document);
        if !self.unlogged {
            self.pending.oplog.delete(self.object(), id, expired, image);
        }
        self.effects.documents -= 1;
        self.effects.bytes -= document.as_bytes().len() as i64;
        if self.holds(document) {
            self.effects.released.push(record_key.to_vec());
        }
        Ok(())
    }

    /// A document as a record of this unit.
    fn written<'d>(&self, document: RawDoc<'d>) -> Record<'d> {
        Record { document, modified_ms: self.now_ms(), logged_at: None }
    }
}

#[cfg(test)]
mod tests;
