//! Writes the sorted entries of an index.
//!
//! The index's range is empty before, and only the build writes to it. Many entries are therefore
//! loaded in bulk; few go through transactions, for which an embedded engine creates no file.

use mayfly_base::{Error, Result};
use mayfly_kv::{Guard, Ingest, Keyspace, KvError};

use super::{Build, Dispute, Writers};
use crate::index::sorter::Sorter;
use crate::record::error::from_kv;
use crate::record::layout::decode_unique_value;
use crate::write::key_error;

/// The size in memory up to which entries go through transactions.
const FEW_BYTES: usize = if cfg!(test) { 500 } else { 8 << 20 };
/// The size of one transaction.
const UNIT_BYTES: usize = 1 << 20;
/// The number of entries between two checks whether the build should continue.
const CHECK_EVERY: u64 = if cfg!(test) { 16 } else { 4096 };

/// The destination of entries.
enum EntryTarget {
    Ingest(Box<dyn Ingest>),
    /// The entries of the next transaction, and their size.
    Transactions(Vec<(Vec<u8>, Vec<u8>)>, usize),
}

impl Build<'_> {
    /// Writes the entries of one index.
    pub(super) fn load(&mut self, number: usize, sorter: Sorter) -> Result<()> {
        let index = &self.indexes[number];
        let total = sorter.len();
        let few = sorter.bytes_in_memory().is_some_and(|bytes| bytes <= FEW_BYTES);
        let beside = match few {
            true => None,
            false => self.store.engine().begin_ingest(Keyspace::Index).map_err(from_kv)?,
        };
        let mut place =
            beside.map_or_else(|| EntryTarget::Transactions(Vec::new(), 0), EntryTarget::Ingest);
        let unique = index.spec.unique();
        let (mut key, mut owner) = (index.id.to_be_bytes().to_vec(), Vec::new());
        let mut merge = sorter.merge(&|| self.check())?;
        let mut done = 0;
        while let Some((values, value)) = merge.next()? {
            if done % CHECK_EVERY == 0 {
                self.check()?;
                self.step("load");
                self.show_progress(LOADING, done, total);
            }
            done += 1;
            // The value was encoded by the walk.
            let (record_key, bits) = decode_unique_value(value).unwrap_or_default();
            if unique {
                if done > 1 && &key[8..] == values {
                    let (values, record_key) = (values.to_vec(), record_key.to_vec());
                    let owner = owner.clone();
                    self.settle_one(&Dispute { number, values, record_key, owner })?;
                    continue;
                }
                owner.clear();
                owner.extend_from_slice(record_key);
            }
            key.truncate(8);
            key.extend_from_slice(values);
            match unique {
                true => self.put(number, &mut place, &key, value)?,
                false => {
                    key.extend_from_slice(record_key);
                    self.put(number, &mut place, &key, bits)?;
                }
            }
        }
        self.step("loaded");
        match place {
            EntryTarget::Ingest(ingest) => {
                let _state = self.collection.read_state()?;
                self.check()?;
                if !index.is_dropped() {
                    ingest.finish().map_err(from_kv)?;
                    self.store.note_commit();
                }
                Ok(())
            }
            EntryTarget::Transactions(entries, _) => self.put_all(number, &entries),
        }
    }

    fn put(&self, number: usize, place: &mut EntryTarget, key: &[u8], value: &[u8]) -> Result<()> {
        match place {
            EntryTarget::Ingest(ingest) => {
                ingest.add(key, value).map_err(|error| self.error_of_key(number, error, key))
            }
            EntryTarget::Transactions(entries, bytes) => {
                entries.push((key.to_vec(), value.to_vec()));
                *bytes += key.len() + value.len();
                if *bytes >= UNIT_BYTES {
                    self.put_all(number, entries)?;
                    entries.clear();
                    *bytes = 0;
                }
                Ok(())
            }
        }
    }

    fn error_of_key(&self, number: usize, error: KvError, key: &[u8]) -> Error {
        let (namespace, index) = (self.collection.namespace(), &self.indexes[number]);
        key_error(self.store, error, (namespace.as_str(), index.spec.name()), key)
    }

    fn put_all(&self, number: usize, entries: &[(Vec<u8>, Vec<u8>)]) -> Result<()> {
        if entries.is_empty() {
            return Ok(());
        }
        let index = &self.indexes[number];
        self.transact(Writers::Run, |txn| {
            if index.is_dropped() {
                return Ok(());
            }
            entries.iter().try_for_each(|(key, value)| {
                let put = txn.put(Keyspace::Index, key, value, Guard::Derived);
                put.map_err(|error| self.error_of_key(number, error, key))
            })
        })
    }
}

const LOADING: &str = "Index Build: inserting keys from external sorter into index";
