//! Reads of one record by its `_id`: the entry of the index on `_id`, and the record that it names.

use mayfly_base::Result;
use mayfly_kv::{Keyspace, NamedKey, ThroughVisitor};
use mayfly_value::{RawDoc, RawValue};

use super::Hidden;
use super::reading::Reading;
use crate::catalog::{Collection, Core};
use crate::isolation::ReadView;
use crate::record::RecordKey;
use crate::record::error::from_kv;
use crate::record::layout::{ENTRY_NUMBER, ObjectKey, decode_unique_value};

impl Core {
    /// The key of the record with this `_id`; `None` if there is no such record. If records are
    /// clustered by `_id`, the key is derived and the record need not exist.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn locate(
        &self,
        view: &ReadView,
        collection: &Collection,
        id: RawValue<'_>,
    ) -> Result<Option<RecordKey>> {
        self.locate_key(view, collection, &collection.id_key(id))
    }

    /// The key of the record whose `_id` has this ordered key; see [`Core::locate`].
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn locate_key(
        &self,
        view: &ReadView,
        collection: &Collection,
        id_key: &[u8],
    ) -> Result<Option<RecordKey>> {
        let Some(index) = collection.id_index_id() else { return Ok(Some(id_key.to_vec())) };
        let mut found = None;
        self.get_one(view, Keyspace::Index, &ObjectKey::new(index, id_key), &mut |value| {
            found = decode_unique_value(value).map(|(record_key, _)| record_key.to_vec());
        })?;
        if let Some(number) = found.as_ref().and_then(|key| key.as_slice().try_into().ok()) {
            self.id_hints.note(index, id_key, u64::from_be_bytes(number));
        }
        Ok(found)
    }

    /// The key that the record with this `_id` probably has, found without reading the store. The
    /// caller must compare the record's `_id`.
    pub fn hinted(&self, collection: &Collection, id_key: &[u8]) -> Option<RecordKey> {
        let number = self.id_hints.get(collection.id_index_id()?, id_key)?;
        Some(number.to_be_bytes().to_vec())
    }

    /// Reads the record whose `_id` has this ordered key in this view: its key and its document.
    ///
    /// # Errors
    /// As [`Core::read_one`].
    pub fn read_by_id<T>(
        &self,
        view: &ReadView,
        collection: &Collection,
        id_key: &[u8],
        see: impl FnOnce(&[u8], RawDoc<'_>) -> T,
    ) -> Result<Option<T>> {
        let Some(index) = collection.id_index_id() else {
            return self.read_one(view, collection, id_key, |document| see(id_key, document));
        };
        let (mut see, mut before) = (Some(see), None::<Vec<u8>>);
        if let Some(number) = self.id_hints.get(index, id_key) {
            let key = number.to_be_bytes();
            let seen = self.read_one(view, collection, &key, |document| {
                let id = document.get("_id").filter(|id| collection.id_key(*id) == id_key);
                id.and_then(|_| see.take()).map(|see| see(&key, document))
            })?;
            if let Some(Some(seen)) = seen {
                return Ok(Some(seen));
            }
        }
        let entry = ObjectKey::new(index, id_key);
        let hidden = Hidden::of(collection, &self.watch, || self.moment_of(view));
        loop {
            let (mut key, mut seen) = (None, Ok(None));
            let show = &mut |value: &[u8], record: Option<&[u8]>| {
                let Some((record_key, _)) = decode_unique_value(value) else { return };
                if let Ok(number) = record_key.try_into() {
                    self.id_hints.note(index, id_key, u64::from_be_bytes(number));
                }
                key = Some(record_key.to_vec());
                if let Some(record) = record {
                    let document = hidden.visible(record);
                    seen = document.map(|document| Some(see.take()?(record_key, document?)));
                }
            };
            self.get_through(view, collection, &entry, show)?;
            if let Some(seen) = seen? {
                return Ok(Some(seen));
            }
            // The two reads need not be in one snapshot. The record may have been replaced by
            // another one between them.
            match key {
                Some(key) if before.as_ref() != Some(&key) => before = Some(key),
                _ => return Ok(None),
            }
        }
    }

    /// Reads an entry of the index on `_id` in this view, and the record that it names.
    fn get_through(
        &self,
        view: &ReadView,
        collection: &Collection,
        entry: &[u8],
        see: &mut ThroughVisitor<'_>,
    ) -> Result<()> {
        let prefix = collection.id().to_be_bytes();
        if collection.is_numbered() {
            let named =
                NamedKey { keyspace: Keyspace::Record, prefix: &prefix, part: ENTRY_NUMBER };
            return match Reading::of(view) {
                Some(reading) => reading.get_through(Keyspace::Index, entry, &named, see),
                None => self.engine().get_through_once(Keyspace::Index, entry, &named, see),
            }
            .map(|_| ())
            .map_err(from_kv);
        }
        let mut first = None;
        self.get_one(view, Keyspace::Index, entry, &mut |value| first = Some(value.to_vec()))?;
        let Some(first) = first else { return Ok(()) };
        let found = match decode_unique_value(&first) {
            Some((record_key, _)) => {
                let key = ObjectKey::new(collection.id(), record_key);
                self.get_one(view, Keyspace::Record, &key, &mut |record| {
                    see(&first, Some(record));
                })?
            }
            None => false,
        };
        if !found {
            see(&first, None);
        }
        Ok(())
    }

    /// Reads the value of one key in this view.
    ///
    /// # Errors
    /// Errors of the engine.
    pub(crate) fn get_one(
        &self,
        view: &ReadView,
        keyspace: Keyspace,
        key: &[u8],
        see: &mut dyn FnMut(&[u8]),
    ) -> Result<bool> {
        match Reading::of(view) {
            Some(reading) => reading.get(keyspace, key, see),
            None => self.engine().get_once(keyspace, key, see),
        }
        .map_err(from_kv)
    }
}
