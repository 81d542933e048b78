//! Records, and keys of records, that a unit has read before their turn, many together and under
//! their locks. A write of the unit removes what it makes outdated.

use std::collections::HashMap;

use mayfly_base::Result;
use mayfly_kv::{FIRST_PAGE, Keyspace, KvError, NamedKey, ScanLimit, next_page};

use super::WriteUnit;
use super::identity::owner_of;
use crate::record::error::from_kv;
use crate::record::layout::{ENTRY_NUMBER, decode_stored, prefixed};
use crate::record::{IdKey, RecordKey, StoredDocument};

/// Approximate limit on the bytes of documents that are read together, by the average size.
const PAGE_BYTES: usize = 1 << 20;

/// The records and keys.
#[derive(Default)]
pub(super) struct ReadAhead {
    records: HashMap<RecordKey, StoredDocument>,
    /// The keys before this index were read, or did not need to be.
    upto: usize,
    /// The number of records that were read together last.
    page: usize,
    /// Keys of records by the key of their `_id`; `None` if there was no record.
    located: HashMap<IdKey, Option<RecordKey>>,
}

impl ReadAhead {
    pub(super) fn take(&mut self, record_key: &[u8]) -> Option<StoredDocument> {
        if self.records.is_empty() { None } else { self.records.remove(record_key) }
    }

    pub(super) fn take_located(&mut self, id_key: &[u8]) -> Option<Option<RecordKey>> {
        if self.located.is_empty() { None } else { self.located.remove(id_key) }
    }
}

impl WriteUnit<'_> {
    /// Reads records that the unit is going to read one after the other, in the order of the keys;
    /// empty ones are unknown. `at` is the index of the next one. The unit may end before it
    /// reaches all of them, so the number that is read together grows.
    ///
    /// # Errors
    /// 301 DataCorruptionDetected, errors of the engine.
    pub fn expect_reads(&mut self, record_keys: &[RecordKey], at: usize) -> Result<()> {
        if at < self.ahead.upto || self.state.time_series.is_some() {
            return Ok(());
        }
        let (documents, bytes) = self.collection.known_size();
        let average = usize::try_from(bytes / documents.max(1)).unwrap_or(0).max(1);
        let page = if self.ahead.page == 0 { FIRST_PAGE } else { next_page(self.ahead.page) };
        self.ahead.page = page.min(PAGE_BYTES / average).max(1);
        let keys = record_keys.get(at..).unwrap_or_default();
        let keys = &keys[..keys.len().min(self.ahead.page)];
        self.ahead.upto = at + keys.len();
        let keys = keys.iter().map(Vec::as_slice).filter(|key| !key.is_empty());
        let keys: Vec<&[u8]> = keys.collect();
        if keys.len() < 2 {
            return Ok(());
        }
        // Another transaction may have locked a record, but the unit may end before that one.
        let found = self.read_many_locked(&keys, ScanLimit::ALL)?.unwrap_or_default();
        let found = keys.iter().map(|key| key.to_vec()).zip(found);
        self.ahead.records.extend(found.filter_map(|(key, stored)| Some((key, stored?))));
        Ok(())
    }

    /// Looks up the records with these `_id`s, which the unit is going to locate before it writes
    /// them. Returns whether it has done so: then there is no record for an `_id` without a
    /// [key](WriteUnit::located).
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn expect_ids<'i>(&mut self, ids: impl Iterator<Item = &'i IdKey>) -> Result<bool> {
        let Some(index) = &self.state.id_index else { return Ok(false) };
        let ids: Vec<&IdKey> = ids.collect();
        if ids.len() < 2 {
            return Ok(false);
        }
        let keys: Vec<Vec<u8>> = ids.iter().map(|id| prefixed(index.id(), id)).collect();
        let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        let located = &mut self.ahead.located;
        located.extend(ids.iter().map(|id| (IdKey::clone(id), None)));
        let looked = self.txn.multi_get_locked(Keyspace::Index, &keys, &mut |at, value| {
            located.insert(ids[at].clone(), Some(owner_of(value).to_vec()));
        });
        match looked {
            Err(KvError::Conflict) => {
                located.clear();
                Ok(false)
            }
            looked => looked.map(|()| true).map_err(from_kv),
        }
    }

    /// As [`WriteUnit::locate`], and reads the record under its lock in the same call of the
    /// engine. The unit's next read of the record returns it.
    ///
    /// # Errors
    /// 301 DataCorruptionDetected, errors of the engine.
    pub fn locate_with_record(&mut self, id_key: &IdKey) -> Result<Option<RecordKey>> {
        let Some(index) = &self.state.id_index else { return Ok(Some(id_key.clone())) };
        if !self.collection.is_numbered() {
            return self.locate(id_key.clone());
        }
        let prefix = self.collection.id().to_be_bytes();
        let named = NamedKey { keyspace: Keyspace::Record, prefix: &prefix, part: ENTRY_NUMBER };
        let (mut located, mut stored) = (None, Ok(None));
        self.txn
            .get_through_locked(
                Keyspace::Index,
                &prefixed(index.id(), id_key),
                &named,
                &mut |value, record| {
                    located = Some(owner_of(value).to_vec());
                    if let Some(record) = record {
                        stored = decode_stored(record).map(|stored| Some(stored.to_stored()));
                    }
                },
            )
            .map_err(from_kv)?;
        if let (Some(key), Some(stored)) = (&located, stored?) {
            self.ahead.records.insert(key.clone(), stored);
        }
        Ok(located)
    }

    /// The key of a record that was looked up before, which stays noted.
    pub fn located(&self, id_key: &[u8]) -> Option<&RecordKey> {
        self.ahead.located.get(id_key)?.as_ref()
    }
}
