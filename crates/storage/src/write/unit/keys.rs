//! Keys of a unit's documents in indexes other than the one on `_id`.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_kv::{
    Direction, Guard, KeyRange, Keyspace, KvError, ScanEnd, ScanLimit, Txn, prefix_end,
};
use mayfly_value::RawDoc;

use super::duplicate::duplicate_key;
use super::{Pending, Scratch, WriteUnit};
use crate::catalog::{Core, Index};
use crate::index::building::Building;
use crate::index::keygen::{KeySet, index_keys};
use crate::record::Record;
use crate::record::error::from_kv;
use crate::record::layout::{catalog_key, encode_unique_value};
use crate::shared::set_bits;

impl WriteUnit<'_> {
    /// Writes the keys in `scratch.new_keys` that satisfy `filter`.
    pub(super) fn add_keys(
        &mut self,
        index: &Arc<Index>,
        scratch: &mut Scratch,
        document: RawDoc<'_>,
        record_key: &[u8],
        filter: impl Fn(&(&[u8], &[u8])) -> bool,
    ) -> Result<()> {
        let keys = std::mem::take(&mut scratch.new_keys);
        self.note_multikey(index, keys.multikey)?;
        for (values, bits) in keys.iter().filter(|entry| filter(entry)) {
            scratch.key.clear();
            scratch.key.extend_from_slice(&index.id.to_be_bytes());
            scratch.key.extend_from_slice(values);
            if index.spec.unique() {
                encode_unique_value(&mut scratch.value, record_key, bits);
                let name = index.spec.name();
                let added = match self.fresh.take(&scratch.key) {
                    true => self.put_locked(&scratch.key, &scratch.value, name).map(|()| true),
                    false => self.add_unique((&scratch.key, name), &scratch.value, record_key),
                };
                if !added? {
                    return Err(duplicate_key(self.ns, index, document));
                }
                continue;
            }
            if index.spec.prepare_unique() {
                self.check_prepared(index, &scratch.key, document, record_key)?;
            }
            scratch.key.extend_from_slice(record_key);
            self.txn
                .put(Keyspace::Index, &scratch.key, bits, Guard::Derived)
                .map_err(|error| self.key_error(error, index.spec.name(), &scratch.key))?;
        }
        scratch.new_keys = keys;
        Ok(())
    }

    /// Leaves notes for the build of an index if a change of a record changes its keys.
    pub(super) fn leave_to_build(
        &mut self,
        index: &Index,
        building: &Building,
        scratch: &mut Scratch,
        record_key: &[u8],
        old: Record<'_>,
        new: Option<Record<'_>>,
    ) -> Result<()> {
        let Scratch { old_keys, new_keys, .. } = scratch;
        // A document without valid keys ends the build, unless the document is gone by then.
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

    /// [`key_error`] for an index of the unit's collection.
    #[cold]
    pub(super) fn key_error(&self, error: KvError, index: &str, key: &[u8]) -> Error {
        key_error(self.context.core, error, (self.ns, index), key)
    }

    pub(super) fn remove_key(
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

    /// Refuses a key of an index with `prepareUnique` if another record has it. Existing records
    /// with the same key keep it.
    fn check_prepared(
        &mut self,
        index: &Index,
        key: &[u8],
        document: RawDoc<'_>,
        record_key: &[u8],
    ) -> Result<()> {
        // No entry has exactly this key, but units that add the same values conflict on its lock.
        self.txn.lock(Keyspace::Index, key).map_err(from_kv)?;
        let mut range = KeyRange { start: key.to_vec(), end: prefix_end(key) };
        let forward = Direction::Forward;
        loop {
            let mut other = None;
            let see = &mut |entry: &[u8], _: &[u8]| {
                let owner = &entry[key.len()..];
                if owner == record_key {
                    return ControlFlow::Continue(());
                }
                other = Some(owner.to_vec());
                ControlFlow::Break(())
            };
            let all = ScanLimit::NONE;
            let end = self.txn.scan(Keyspace::Index, &range, forward, all, see).map_err(from_kv)?;
            if let Some(other) = other
                && !self.expire_hidden(&other)?
            {
                return Err(duplicate_key(self.ns, index, document));
            }
            match end {
                ScanEnd::Exhausted => return Ok(()),
                ScanEnd::More { last_key } => range = range.after(&last_key, forward),
            }
        }
    }

    pub(super) fn note_multikey(&mut self, index: &Arc<Index>, mask: u32) -> Result<()> {
        note_multikey(self.txn, self.pending, index, mask)
    }
}

/// The error of writing a key of an index, which may be too long for the engine.
#[cold]
pub(crate) fn key_error(
    core: &Core,
    error: KvError,
    (ns, index): (&str, &str),
    key: &[u8],
) -> Error {
    let most = core.engine().caps().max_key_bytes;
    if !matches!(error, KvError::TooLarge(_)) || key.len() <= most {
        return from_kv(error);
    }
    let length = key.len();
    let text = format!(
        "Btree::insert: key too large to index, failing {ns} {index} {length} \
         {{ the storage takes {most} bytes }}"
    );
    Error::new(ErrorCode::OBSOLETE_KeyTooLong, text)
}

/// Marks an index as multikey. The first document with an array on an indexed path writes the mark
/// into the catalog, in its own transaction.
pub(crate) fn note_multikey(
    txn: &mut dyn Txn,
    pending: &mut Pending,
    index: &Arc<Index>,
    mask: u32,
) -> Result<()> {
    let runtime = &index.runtime;
    if mask & !runtime.multikey_stored.load(Ordering::Acquire) == 0 {
        return Ok(());
    }
    let all = set_bits(txn, &catalog_key::multikey(index.id), mask).map_err(from_kv)?;
    // The mark must be set before readers can see the keys.
    runtime.multikey.fetch_or(all, Ordering::AcqRel);
    pending.multikey.push((index.clone(), all));
    Ok(())
}

/// The keys of a record in an index; none if the index's filter excludes the record.
pub(crate) fn covered_keys(index: &Index, record: Record<'_>, out: &mut KeySet) -> Result<()> {
    match index.covers(record.document)? {
        true => index_keys(&index.spec, record, out),
        false => {
            out.clear();
            Ok(())
        }
    }
}

/// The keys and type bits of a long array as a set; `None` if comparing them one by one is as fast.
pub(super) fn long(keys: &KeySet) -> Option<HashSet<(&[u8], &[u8])>> {
    (keys.len() > 16).then(|| keys.iter().collect())
}
