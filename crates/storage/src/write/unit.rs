//! A write unit: documents, their index keys and the oplog entry in one engine transaction.
//!
//! The story of a write:
//! 1. [`super::Writer::write`] takes the collection's state shared and begins a transaction;
//! 2. the body calls [`WriteUnit::insert`], [`WriteUnit::update`] or [`WriteUnit::delete`];
//! 3. each maintains the keys of every index, checks unique ones, and leaves a note for those that are still being built;
//! 4. the commit adds the oplog entry and makes everything visible at once;
//! 5. on a conflict the whole body runs again over a new snapshot.

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_kv::{Guard, Keyspace, Txn};
use mayfly_value::shell::{Shell, ShellValue};
use mayfly_value::{Collation, DocBuf, DocBuilder, RawDoc, RawValue};

use super::archive::{Archives, OpenArchive};
use super::capped::CappedUnit;
use super::pending::{Effects, Pending};
use crate::catalog::{Collection, CollectionState, Core, Index, Policy};
use crate::index::building::Building;
use crate::index::keygen::{KeySet, index_keys};
use crate::index::validation::Validation;
use crate::oplog::{ExpiredBy, LoggedUpdate, Object, RecordInLog, UpdateStyle, delta};
use crate::read::hidden_by;
use crate::record::error::from_kv;
use crate::record::layout::{
    InLog, LOGGED_AT, catalog_key, decode_stored, decode_unique_value, encode_record,
    encode_unique_value, id_key_in, kept_key, prefixed,
};
use crate::record::storable::{check_bytes, check_storable};
use crate::record::{IdKey, Moment, Record, RecordKey, StoredDocument};
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// About what a key needs, and what the log's entry says about a document beside itself.
const KEY_BYTES: usize = 64;

/// What a unit takes from its store.
#[derive(Clone, Copy)]
pub(crate) struct Around<'s> {
    pub(crate) moment: Moment,
    pub(crate) core: &'s Core,
}

/// What a transaction writes to one collection.
///
/// What goes into another collection in the same transaction goes through a unit of its own ([`WriteUnit::beside`]).
pub struct WriteUnit<'s> {
    pub(crate) txn: &'s mut (dyn Txn + 'static),
    pub(crate) collection: &'s Collection,
    pub(crate) state: &'s CollectionState,
    ns: &'s str,
    around: Around<'s>,
    /// What follows from the transaction's writes at its commit.
    pub(crate) pending: &'s mut Pending,
    /// The same for those of this unit alone.
    pub(crate) effects: Effects,
    unvalidated: bool,
    unlogged: bool,
    pub(crate) capped: Option<CappedUnit>,
    pub(crate) archives: Archives<'s>,
    scratch: Scratch,
}

/// Buffers used again for each document.
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
        around: Around<'s>,
    ) -> WriteUnit<'s> {
        WriteUnit {
            txn,
            collection,
            state,
            ns,
            around,
            pending,
            effects: Effects::default(),
            unvalidated: false,
            unlogged: false,
            capped: None,
            archives: Archives::default(),
            scratch: Scratch::default(),
        }
    }

    /// The wall time that its records carry, in milliseconds since 1970.
    pub(crate) fn now_ms(&self) -> i64 {
        self.around.moment.now_ms
    }

    pub(crate) fn namespace(&self) -> &'s str {
        self.ns
    }

    /// A unit of the same transaction over another collection, for as long as `act` runs. Nothing is validated in it.
    pub(crate) fn beside<T>(
        &mut self,
        open: &OpenArchive<'_>,
        act: impl FnOnce(&mut WriteUnit<'_>) -> Result<T>,
    ) -> Result<T> {
        let mut unit = WriteUnit {
            txn: &mut *self.txn,
            collection: open.collection(),
            state: open.state(),
            ns: open.namespace(),
            around: self.around,
            pending: &mut *self.pending,
            effects: Effects::default(),
            unvalidated: true,
            unlogged: self.unlogged,
            capped: None,
            archives: self.archives,
            scratch: std::mem::take(&mut self.scratch),
        };
        let result = act(&mut unit);
        let WriteUnit { effects, scratch, .. } = unit;
        self.scratch = scratch;
        self.pending.add(open.collection(), effects);
        result
    }

    /// The policy of this id as it is now.
    pub(crate) fn policy(&self, id: u64) -> Option<&Arc<Policy>> {
        self.state.policies().iter().find(|policy| policy.id == id)
    }

    /// From here on documents need not follow the collection's rules.
    pub fn bypass_validation(&mut self) {
        self.unvalidated = true;
    }

    pub(crate) fn is_unvalidated(&self) -> bool {
        self.unvalidated
    }

    pub(crate) fn set_unvalidated(&mut self, unvalidated: bool) {
        self.unvalidated = unvalidated;
    }

    /// The collection's rules, unless they are bypassed.
    fn validation(&self) -> Option<&'s Validation> {
        if self.unvalidated { None } else { self.state.validation.as_deref() }
    }

    /// About so many documents of so many bytes together will be written.
    pub fn reserve(&mut self, documents: usize, bytes: usize) {
        let keys = documents * KEY_BYTES * (2 + self.state.indexes.len());
        self.txn.reserve(bytes + keys);
    }

    /// From here on what is done is left out of the oplog: it concerns this server only.
    pub fn leave_unlogged(&mut self) {
        self.unlogged = true;
    }

    fn object(&self) -> Object<'s> {
        Object { ns: self.ns, uuid: self.collection.uuid() }
    }

    /// How a document that the unit is about to write is to stand in the log. Buckets are never shown as they are stored.
    fn in_log(&self, record_key: &[u8]) -> InLog {
        let apart = self.unlogged
            || self.state.time_series.is_some()
            || self.pending.keeps(self.collection.id(), record_key);
        if apart { InLog::Apart } else { InLog::Refers }
    }

    /// Keeps a version that is about to go from its place, when an entry of the log refers to it that is still kept. The unit has
    /// the record's lock.
    fn keep_version(&mut self, record_key: &[u8], old: Record<'_>) -> Result<()> {
        let Some(timestamp) = old.logged_at else { return Ok(()) };
        let collection = self.collection.id();
        if timestamp == 0 {
            self.pending.keep(collection, record_key, old.document);
            return Ok(());
        }
        if timestamp <= self.around.core.oplog.cut() {
            return Ok(());
        }
        let key = kept_key(timestamp, collection, record_key);
        let bytes = old.document.as_bytes();
        self.txn.put(Keyspace::Kept, &key, bytes, Guard::Derived).map_err(from_kv)
    }

    /// Writes the record in `value`, whose document stands in the log so.
    fn put_record(&mut self, key: &[u8], value: &[u8], in_log: InLog, guard: Guard) -> Result<()> {
        match in_log {
            InLog::Apart => self.txn.put(Keyspace::Record, key, value, guard),
            // The entry's timestamp is known at the commit.
            InLog::Refers => self.txn.put_with_gap(Keyspace::Record, key, value, guard, LOGGED_AT),
        }
        .map_err(from_kv)
    }

    /// Adds a document that has an `_id`.
    ///
    /// # Errors
    /// 11000 DuplicateKey with `keyPattern` and `keyValue`; 112 WriteConflict; 10334 for a document over 16 MiB;
    /// 53 for an `_id` that may not be one; 121 when it breaks the collection's rules; errors of key generation. For a bucket of
    /// a time series those of [`WriteUnit::restore_bucket`].
    pub fn insert(&mut self, document: RawDoc<'_>) -> Result<()> {
        check_bytes(document)?;
        self.insert_checked(document)
    }

    /// As [`WriteUnit::insert`], for a document whose bytes were checked before: as they came from a client, or as they were
    /// stored.
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
            validation.check_insert(self.ns, document)?;
        }
        self.check_capped_size(document)?;
        if self.collection.is_numbered() {
            let (engine, collection) = (self.around.core.engine(), self.collection);
            let number = collection.numbers.take(1, engine, collection.id())?;
            return self.insert_as(&number.to_be_bytes(), document);
        }
        let key = self.collection.id_key(id);
        self.look_up_new(&key, id)?;
        self.insert_as(&key, document)
    }

    /// Refuses to add a record where there is one that may be seen.
    fn look_up_new(&mut self, record_key: &[u8], id: RawValue<'_>) -> Result<()> {
        let key = prefixed(self.collection.id(), record_key);
        let there = self.txn.get_locked(Keyspace::Record, &key, &mut |_| {}).map_err(from_kv)?;
        if there && !self.expire_hidden(record_key)? {
            return Err(self.duplicate_id(id));
        }
        Ok(())
    }

    fn duplicate_id(&self, id: RawValue<'_>) -> Error {
        duplicate(self.ns, "_id_", &id_pattern(), id_value(id), self.collection.collation())
    }

    /// Adds the entry of the index on `_id`, where there is one.
    fn add_id(&mut self, record_key: &[u8], id: RawValue<'_>) -> Result<()> {
        let Some(index) = &self.state.id_index else { return Ok(()) };
        let collation = self.collection.collation().map(|collation| &**collation);
        let (id_key, bits) = id_key_in(id, collation);
        let entry = prefixed(index.id(), &id_key);
        if let Some(owner) = self.other_owner(&entry, record_key)?
            && !self.expire_hidden(&owner)?
        {
            return Err(self.duplicate_id(id));
        }
        encode_unique_value(&mut self.scratch.value, record_key, bits.as_bytes());
        // The look-up holds the lock.
        self.txn.put(Keyspace::Index, &entry, &self.scratch.value, Guard::Derived).map_err(from_kv)
    }

    /// Removes the entry of the index on `_id`, where there is one.
    fn remove_id(&mut self, id: RawValue<'_>) -> Result<()> {
        let Some(index) = &self.state.id_index else { return Ok(()) };
        let entry = prefixed(index.id(), &self.collection.id_key(id));
        self.txn.delete(Keyspace::Index, &entry, Guard::Checked).map_err(from_kv)
    }

    /// The key of the record with the `_id` of this key, as it is in the unit.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn locate(&mut self, id_key: IdKey) -> Result<Option<RecordKey>> {
        let Some(index) = &self.state.id_index else { return Ok(Some(id_key)) };
        self.other_owner(&prefixed(index.id(), &id_key), &[])
    }

    /// Adds a document as the record of this key, which the unit has looked up under its lock.
    pub(crate) fn insert_under(&mut self, record_key: &[u8], document: RawDoc<'_>) -> Result<()> {
        check_bytes(document)?;
        check_storable(document)?;
        self.insert_as(record_key, document)
    }

    /// Adds a document as the record of this key unless there is one.
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

    /// Adds a document as the record of this key, which is new, or which the unit has looked up under its lock.
    fn insert_as(&mut self, record_key: &[u8], document: RawDoc<'_>) -> Result<()> {
        self.add_id(record_key, checked_id(document)?)?;
        let key = prefixed(self.collection.id(), record_key);
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

    /// Replaces a document, as the unit has read it, by another one with the same `_id`.
    ///
    /// # Errors
    /// As [`WriteUnit::insert`].
    pub fn update(
        &mut self,
        record_key: &[u8],
        before: &StoredDocument,
        new: RawDoc<'_>,
        style: UpdateStyle,
    ) -> Result<()> {
        let old = before.as_doc();
        // What is not in the delta is as it was stored.
        let delta = delta(old, new, style);
        check_bytes(delta.as_ref().map_or(new, DocBuf::as_doc))?;
        check_storable(new)?;
        self.check_capped_size(new)?;
        if let Some(validation) = self.validation() {
            validation.check_update(self.ns, old, new)?;
        }
        if self.state.id_index.is_some() && stored_id(old) != stored_id(new) {
            self.remove_id(checked_id(old)?)?;
            self.add_id(record_key, checked_id(new)?)?;
        }
        self.keep_version(record_key, before.record())?;
        let in_log = match &delta {
            Some(_) => InLog::Apart,
            None => self.in_log(record_key),
        };
        let mut scratch = std::mem::take(&mut self.scratch);
        let result = self.update_with(&mut scratch, record_key, before.record(), new, in_log);
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
        Ok(())
    }

    fn update_with(
        &mut self,
        scratch: &mut Scratch,
        record_key: &[u8],
        before: Record<'_>,
        new: RawDoc<'_>,
        in_log: InLog,
    ) -> Result<()> {
        let old = before.document;
        let key = prefixed(self.collection.id(), record_key);
        encode_record(&mut scratch.value, self.now_ms(), in_log, new);
        self.put_record(&key, &scratch.value, in_log, Guard::Checked)?;
        let state = self.state;
        for index in &state.indexes {
            if let Some(building) = index.building() {
                let new = Some(self.written(new));
                self.leave_to_build(index, building, scratch, record_key, before, new)?;
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
                // An array of one value has the key of that value.
                self.note_multikey(index, scratch.new_keys.multikey)?;
                continue;
            }
            let old_keys = std::mem::take(&mut scratch.old_keys);
            let new_keys = std::mem::take(&mut scratch.new_keys);
            // Long arrays are looked up by their hashes.
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

    /// Removes a document, as the unit has read it.
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
        let key = prefixed(self.collection.id(), record_key);
        self.keep_version(record_key, stored)?;
        self.txn.delete(Keyspace::Record, &key, Guard::Checked).map_err(from_kv)?;
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
        Ok(())
    }

    /// A document as this unit writes it.
    fn written<'d>(&self, document: RawDoc<'d>) -> Record<'d> {
        Record { document, modified_ms: self.now_ms(), logged_at: None }
    }

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

    /// Whether some policy holds the document, for whatever reason it is due.
    pub(crate) fn holds(&self, document: RawDoc<'_>) -> bool {
        self.state.holds(document)
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

    /// Removes a document because this policy says that it is due; whoever calls has archived it.
    ///
    /// # Errors
    /// 112 WriteConflict.
    pub(crate) fn expire(
        &mut self,
        record_key: &[u8],
        document: &StoredDocument,
        policy: &Arc<Policy>,
    ) -> Result<()> {
        let expired = ExpiredBy { index: policy.name(), expire_after_secs: policy.listed_secs() };
        self.delete_as(record_key, document.record(), Some(expired))?;
        match self.effects.expired.last_mut() {
            Some((last, count)) if last.id == policy.id => *count += 1,
            _ => self.effects.expired.push((policy.clone(), 1)),
        }
        Ok(())
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

    /// Writes the keys in `scratch.new_keys` that pass the filter.
    fn add_keys(
        &mut self,
        index: &Arc<Index>,
        scratch: &mut Scratch,
        document: RawDoc<'_>,
        record_key: &[u8],
        wanted: impl Fn(&(&[u8], &[u8])) -> bool,
    ) -> Result<()> {
        let keys = std::mem::take(&mut scratch.new_keys);
        self.note_multikey(index, keys.multikey)?;
        for (values, bits) in keys.iter().filter(|entry| wanted(entry)) {
            scratch.key.clear();
            scratch.key.extend_from_slice(&index.id.to_be_bytes());
            scratch.key.extend_from_slice(values);
            if index.spec.unique() {
                self.check_unique(index, &scratch.key, document, record_key)?;
                encode_unique_value(&mut scratch.value, record_key, bits);
                self.txn.put(Keyspace::Index, &scratch.key, &scratch.value, Guard::Checked)
            } else {
                scratch.key.extend_from_slice(record_key);
                self.txn.put(Keyspace::Index, &scratch.key, bits, Guard::Derived)
            }
            .map_err(from_kv)?;
        }
        scratch.new_keys = keys;
        Ok(())
    }

    /// Notes what the build of an index has to do about a change of a record, if its keys change.
    fn leave_to_build(
        &mut self,
        index: &Index,
        building: &Building,
        scratch: &mut Scratch,
        record_key: &[u8],
        old: Record<'_>,
        new: Option<Record<'_>>,
    ) -> Result<()> {
        let Scratch { old_keys, new_keys, .. } = scratch;
        // A document that has no keys ends the build, unless it is gone by then.
        if covered_keys(index, old, old_keys).is_err() {
            old_keys.clear();
        }
        new_keys.clear();
        if let Some(new) = new {
            covered_keys(index, new, new_keys)?;
            if old_keys.multikey == new_keys.multikey && old_keys.iter().eq(new_keys.iter()) {
                return Ok(());
            }
        }
        let notes = &mut self.pending.notes;
        notes.push(building.touched(record_key));
        notes.extend(old_keys.iter().map(|(values, _)| building.had(record_key, values)));
        Ok(())
    }

    fn remove_key(
        &mut self,
        index: &Index,
        scratch: &mut Scratch,
        values: &[u8],
        record_key: &[u8],
    ) -> Result<()> {
        scratch.key.clear();
        scratch.key.extend_from_slice(&index.id.to_be_bytes());
        scratch.key.extend_from_slice(values);
        if index.spec.unique() {
            self.txn.delete(Keyspace::Index, &scratch.key, Guard::Checked)
        } else {
            scratch.key.extend_from_slice(record_key);
            self.txn.delete(Keyspace::Index, &scratch.key, Guard::Derived)
        }
        .map_err(from_kv)
    }

    /// The other document that this key of a unique index stands for; an entry that cannot be read stands for one
    /// without a key.
    fn other_owner(&mut self, key: &[u8], record_key: &[u8]) -> Result<Option<RecordKey>> {
        let mut other = None;
        self.txn
            .get_locked(Keyspace::Index, key, &mut |value| {
                let owner = decode_unique_value(value).map_or(&[][..], |(owner, _)| owner);
                other = (owner != record_key).then(|| owner.to_vec());
            })
            .map_err(from_kv)?;
        Ok(other)
    }

    fn check_unique(
        &mut self,
        index: &Index,
        key: &[u8],
        document: RawDoc<'_>,
        record_key: &[u8],
    ) -> Result<()> {
        let Some(owner) = self.other_owner(key, record_key)? else { return Ok(()) };
        if self.expire_hidden(&owner)? {
            return Ok(());
        }
        Err(duplicate_key(self.ns, index, document))
    }

    /// The first document with an array on an indexed path leaves a mark in the catalog, in its own transaction.
    fn note_multikey(&mut self, index: &Arc<Index>, mask: u32) -> Result<()> {
        let runtime = &index.runtime;
        if mask & !runtime.multikey_stored.load(Ordering::Acquire) == 0 {
            return Ok(());
        }
        // Readers must know before they can see the keys.
        let all = runtime.multikey.fetch_or(mask, Ordering::AcqRel) | mask;
        self.txn
            .put(
                Keyspace::Catalog,
                &catalog_key::multikey(index.id),
                &all.to_le_bytes(),
                Guard::Checked,
            )
            .map_err(from_kv)?;
        self.pending.multikey.push((index.clone(), all));
        Ok(())
    }
}

/// What is said of a document that has a key of another one in a unique index.
pub(crate) fn duplicate_key(ns: &str, index: &Index, document: RawDoc<'_>) -> Error {
    let mut value = DocBuilder::new();
    for field in index.spec.fields() {
        let found = plain_value(document, &field.parts);
        value.append(&field.path, found);
    }
    let pattern = index.spec.key().to_owned();
    let collation = index.spec.collation();
    duplicate(ns, index.spec.name(), &pattern, value.finish(), collation)
}

fn duplicate(
    ns: &str,
    index: &str,
    pattern: &DocBuf,
    value: DocBuf,
    collation: Option<&Arc<Collation>>,
) -> Error {
    let (value, under) = match collation {
        None => (value, String::new()),
        Some(collation) => {
            let under = format!(" collation: {}", Shell(collation.document()));
            (collated_value(&value, collation), under)
        }
    };
    let shown = value
        .as_doc()
        .iter()
        .map(|element| format!("{}: {}", element.name(), ShellValue(element.value())))
        .collect::<Vec<_>>()
        .join(", ");
    let mut extra = DocBuilder::new();
    extra.append("keyPattern", pattern).append("keyValue", &value);
    if let Some(collation) = collation {
        extra.append("collation", collation.document());
    }
    let text = format!(
        "E11000 duplicate key error collection: {ns} index: {index}{under} dup key: {{ {shown} }}"
    );
    Error::new(ErrorCode::DuplicateKey, text).with_extra(extra.finish().into_bytes())
}

/// The keys of a record in an index; none when its filter leaves it out.
pub(crate) fn covered_keys(index: &Index, record: Record<'_>, out: &mut KeySet) -> Result<()> {
    match index.covers(record.document)? {
        true => index_keys(&index.spec, record, out),
        false => {
            out.clear();
            Ok(())
        }
    }
}

/// The keys and type bits of a long array; nothing when comparing them one by one is as good.
fn long(keys: &KeySet) -> Option<HashSet<(&[u8], &[u8])>> {
    (keys.len() > 16).then(|| keys.iter().collect())
}

fn id_pattern() -> DocBuf {
    let mut pattern = DocBuilder::new();
    pattern.append("_id", 1);
    pattern.finish()
}

fn id_value(id: RawValue<'_>) -> DocBuf {
    let mut value = DocBuilder::new();
    value.append("_id", id);
    value.finish()
}

/// The values as an index under a collation has them: of a string its key, in hexadecimal digits.
fn collated_value(value: &DocBuf, collation: &Collation) -> DocBuf {
    let mut out = DocBuilder::new();
    for element in value.as_doc() {
        match element.value() {
            RawValue::String(text) => {
                out.append(element.name(), collation.shown_key(text).as_str());
            }
            _ => {
                out.append_element(element);
            }
        }
    }
    out.finish()
}

fn plain_value<'a>(document: RawDoc<'a>, parts: &[String]) -> RawValue<'a> {
    let mut value = RawValue::Document(document);
    for part in parts {
        match value.as_document().and_then(|inner| inner.get(part)) {
            Some(next) => value = next,
            None => return RawValue::Null,
        }
    }
    value
}

/// The `_id` as it is stored, its type first.
fn stored_id(document: RawDoc<'_>) -> Option<(u8, &[u8])> {
    document.get_element("_id").map(|id| (id.type_byte(), id.data()))
}

/// The `_id` of a document about to be stored.
///
/// # Errors
/// 53 InvalidIdField for an array, regex or undefined; 1 when there is none.
fn checked_id(document: RawDoc<'_>) -> Result<RawValue<'_>> {
    let id = document.get("_id").ok_or_else(|| Error::internal("a document without _id"))?;
    match id {
        RawValue::Array(_) | RawValue::Regex { .. } | RawValue::Undefined => Err(Error::new(
            ErrorCode::InvalidIdField,
            format!("The '_id' value cannot be of type {}", id.type_name()),
        )),
        other => Ok(other),
    }
}
