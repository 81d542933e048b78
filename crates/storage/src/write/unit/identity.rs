//! The `_id` of a document: its entry in the index on `_id`, and the check for duplicates.

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_kv::{Guard, InsertCheck, Keyspace};
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue};

use super::WriteUnit;
use super::duplicate::duplicate;
use crate::record::error::from_kv;
use crate::record::layout::{ObjectKey, decode_unique_value, encode_unique_value, id_key_in};
use crate::record::{IdKey, RecordKey};

/// The name of the index on `_id`.
const ID_INDEX: &str = "_id_";

/// How a unit adds entries to unique indexes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Inserts {
    /// Whether the commit may find out that a key was taken. The engine must allow it, and the unit
    /// must be run again after a conflict.
    pub(crate) are_late: bool,
}

impl Inserts {
    fn check(self) -> InsertCheck {
        if self.are_late { InsertCheck::AtCommit } else { InsertCheck::AtOnce }
    }
}

impl WriteUnit<'_> {
    /// Refuses a record key that has a visible record.
    pub(super) fn look_up_new(&mut self, record_key: &[u8], id: RawValue<'_>) -> Result<()> {
        let key = ObjectKey::new(self.collection.id(), record_key);
        if self.fresh.take(&key) {
            return Ok(());
        }
        let there = self.txn.get_locked(Keyspace::Record, &key, &mut |_| {}).map_err(from_kv)?;
        if there && !self.expire_hidden(record_key)? {
            return Err(self.duplicate_id(id));
        }
        Ok(())
    }

    fn duplicate_id(&self, id: RawValue<'_>) -> Error {
        duplicate(self.ns, "_id_", &id_pattern(), id_value(id), self.collection.collation())
    }

    /// Adds the entry of the index on `_id`, if there is one.
    pub(super) fn add_id(&mut self, record_key: &[u8], id: RawValue<'_>) -> Result<()> {
        let Some(index) = &self.state.id_index else { return Ok(()) };
        let collation = self.collection.collation().map(|collation| &**collation);
        let (id_key, bits) = id_key_in(id, collation);
        self.ahead.take_located(&id_key);
        let entry = ObjectKey::new(index.id(), &id_key);
        let mut value = std::mem::take(&mut self.scratch.value);
        encode_unique_value(&mut value, record_key, bits.as_bytes());
        let added = match self.fresh.take(&entry) {
            // The look-up holds the lock.
            true => self.put_locked(&entry, &value, ID_INDEX).map(|()| true),
            false => self.add_unique((&entry, ID_INDEX), &value, record_key),
        };
        self.scratch.value = value;
        match added? {
            true => Ok(()),
            false => Err(self.duplicate_id(id)),
        }
    }

    /// Adds an entry of a unique index. Returns false if the key belongs to another record, which
    /// is not hidden.
    pub(super) fn add_unique(
        &mut self,
        (key, index): (&[u8], &str),
        value: &[u8],
        record_key: &[u8],
    ) -> Result<bool> {
        let mut owner = None;
        let see = &mut |value: &[u8]| owner = Some(owner_of(value).to_vec());
        let check = self.inserts.check();
        let added = self.txn.insert(Keyspace::Index, key, value, check, see);
        if added.map_err(|error| self.key_error(error, index, key))? {
            return Ok(true);
        }
        if let Some(owner) = owner.filter(|owner| owner != record_key)
            && !self.expire_hidden(&owner)?
        {
            return Ok(false);
        }
        self.put_locked(key, value, index).map(|()| true)
    }

    /// Writes an entry of this index, whose lock the unit holds.
    pub(super) fn put_locked(&mut self, key: &[u8], value: &[u8], index: &str) -> Result<()> {
        self.txn
            .put(Keyspace::Index, key, value, Guard::Derived)
            .map_err(|error| self.key_error(error, index, key))
    }

    /// Removes the entry of the index on `_id`, if there is one.
    pub(super) fn remove_id(&mut self, id: RawValue<'_>) -> Result<()> {
        let Some(index) = &self.state.id_index else { return Ok(()) };
        let id_key = self.collection.id_key(id);
        self.ahead.take_located(&id_key);
        let entry = ObjectKey::new(index.id(), &id_key);
        self.txn.delete(Keyspace::Index, &entry, Guard::Checked).map_err(from_kv)
    }

    /// The key of the record whose `_id` has this ordered key, in the unit's transaction.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn locate(&mut self, id_key: IdKey) -> Result<Option<RecordKey>> {
        let Some(index) = &self.state.id_index else { return Ok(Some(id_key)) };
        if let Some(located) = self.ahead.take_located(&id_key) {
            return Ok(located);
        }
        self.other_owner(&ObjectKey::new(index.id(), &id_key), &[])
    }

    /// The other record that has this key of a unique index. For an unreadable entry the record key
    /// is empty.
    pub(super) fn other_owner(
        &mut self,
        key: &[u8],
        record_key: &[u8],
    ) -> Result<Option<RecordKey>> {
        let mut other = None;
        self.txn
            .get_locked(Keyspace::Index, key, &mut |value| {
                let owner = owner_of(value);
                other = (owner != record_key).then(|| owner.to_vec());
            })
            .map_err(from_kv)?;
        Ok(other)
    }
}

/// The record key in an entry of a unique index; empty for an unreadable entry.
pub(super) fn owner_of(value: &[u8]) -> &[u8] {
    decode_unique_value(value).map_or(&[][..], |(owner, _)| owner)
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

/// The stored `_id`: type and bytes.
pub(super) fn stored_id(document: RawDoc<'_>) -> Option<(u8, &[u8])> {
    document.get_element("_id").map(|id| (id.type_byte(), id.data()))
}

/// The `_id` of a document that is to be stored.
///
/// # Errors
/// 53 InvalidIdField for an array, regex or undefined; 52 DollarPrefixedFieldName for a document
/// with such a name at its first level; 1 when there is none.
pub(super) fn checked_id(document: RawDoc<'_>) -> Result<RawValue<'_>> {
    let id = document.get("_id").ok_or_else(|| Error::internal("a document without _id"))?;
    match id {
        RawValue::Array(_) | RawValue::Regex { .. } | RawValue::Undefined => Err(Error::new(
            ErrorCode::InvalidIdField,
            format!("The '_id' value cannot be of type {}", id.type_name()),
        )),
        RawValue::Document(fields) => {
            match fields.iter().find(|field| field.name_bytes().first() == Some(&b'$')) {
                Some(field) if !is_reference(fields) => Err(Error::new(
                    ErrorCode::DollarPrefixedFieldName,
                    format!(
                        "_id fields may not contain '$'-prefixed fields: {} is not valid for storage.",
                        field.name()
                    ),
                )),
                _ => Ok(id),
            }
        }
        other => Ok(other),
    }
}

/// Whether a document is a DBRef, whose names begin with a dollar sign.
fn is_reference(document: RawDoc<'_>) -> bool {
    document.iter().all(|field| {
        let name = field.name_bytes();
        name.first() != Some(&b'$') || matches!(name, b"$ref" | b"$id" | b"$db")
    })
}
