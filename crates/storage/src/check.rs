//! A check of a whole store that no server has open, and the repair of what can be derived again.
//!
//! 1. Every entry of every keyspace is read, so that the engine compares the checksum of each
//!    block, also of those that no collection refers to any more.
//! 2. Each collection is validated: records, index entries, their number.
//! 3. Each entry of the log is read with the documents that it refers to.
//!
//! A repair builds indexes again, and cuts a log that cannot be read. It changes no document.

use std::ops::ControlFlow;

use mayfly_base::{Error, ErrorCode, Namespace, Result};
use mayfly_kv::{Direction, KeyRange, Keyspace, ScanEnd, ScanLimit, TxnOptions};
use mayfly_work::OpCtx;

use crate::Store;
use crate::oplog::LogRange;
use crate::read::{ValidateOptions, ValidationResult};
use crate::record::error::from_kv;

/// The part of a store that a fault is in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FaultyPart {
    /// A keyspace of the engine.
    Keyspace(&'static str),
    /// Records of a collection.
    Records(Namespace),
    /// Indexes of a collection.
    Indexes(Namespace),
    /// The operation log.
    Log,
}

/// A fault of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreFault {
    /// Where it is.
    pub part: FaultyPart,
    /// What is wrong.
    pub text: String,
}

/// The result of a check.
#[derive(Debug, Default)]
pub struct CheckedStore {
    /// The entries of all keyspaces.
    pub entries: u64,
    /// Their bytes, as the engine returns them.
    pub bytes: u64,
    /// The number of collections.
    pub collections: u64,
    /// The documents of all collections; a bucket counts as one.
    pub documents: u64,
    /// The number of entries of the log.
    pub log_entries: u64,
    /// What is wrong.
    pub faults: Vec<StoreFault>,
}

impl CheckedStore {
    fn fault(&mut self, part: FaultyPart, text: impl Into<String>) {
        self.faults.push(StoreFault { part, text: text.into() });
    }
}

/// Errors that a check must not take for a fault of the data.
fn is_of_operation(error: &Error) -> bool {
    matches!(
        error.code(),
        ErrorCode::Interrupted | ErrorCode::InterruptedAtShutdown | ErrorCode::MaxTimeMSExpired
    )
}

impl Store {
    /// Checks the store. `report` is called with the name of each part before it is checked.
    ///
    /// # Errors
    /// Errors of the operation's deadline. Damaged data is not an error but a finding.
    pub fn check(&self, op: &OpCtx, report: &mut dyn FnMut(&str)) -> Result<CheckedStore> {
        let mut checked = CheckedStore::default();
        for keyspace in Keyspace::ALL {
            report(keyspace.name());
            if let Err(error) = self.read_keyspace(op, keyspace, &mut checked) {
                if is_of_operation(&error) {
                    return Err(error);
                }
                checked.fault(FaultyPart::Keyspace(keyspace.name()), error.message());
            }
        }
        for collection in self.collections(None) {
            let ns = collection.namespace();
            report(ns.as_str());
            checked.collections += 1;
            match self.validate(op, &collection, ValidateOptions::default()) {
                Ok(found) => judge(&ns, &found, &mut checked),
                Err(error) if is_of_operation(&error) => return Err(error),
                Err(error) => checked.fault(FaultyPart::Records(ns), error.message()),
            }
        }
        report("the operation log");
        let mut entries = 0;
        // Entries that were cut may still be there.
        let whole = LogRange { first: self.oplog.cut().saturating_add(1), last: u64::MAX };
        let read = self.oplog.read(whole, Direction::Forward, &mut |entry| {
            op.check()?;
            let at = (entry.timestamp() >> 32, entry.timestamp() as u32);
            let context = |error: Error| error.in_context(format_args!("entry {}.{}", at.0, at.1));
            entry.whole().map_err(context)?;
            entries += 1;
            Ok(ControlFlow::Continue(()))
        });
        checked.log_entries = entries;
        match read {
            Ok(_) => {}
            Err(error) if is_of_operation(&error) => return Err(error),
            Err(error) => checked.fault(FaultyPart::Log, error.message()),
        }
        Ok(checked)
    }

    fn read_keyspace(
        &self,
        op: &OpCtx,
        keyspace: Keyspace,
        checked: &mut CheckedStore,
    ) -> Result<()> {
        let txn = self.engine().begin(TxnOptions::READ_ONLY).map_err(from_kv)?;
        // No key begins with so many of these bytes: they begin with ids, times or random bytes.
        let mut range = KeyRange { start: Vec::new(), end: vec![0xFF; 32] };
        loop {
            op.check()?;
            let see = &mut |key: &[u8], value: &[u8]| {
                checked.entries += 1;
                checked.bytes += (key.len() + value.len()) as u64;
                ControlFlow::Continue(())
            };
            let limit = ScanLimit::rows(10_000).passing();
            let end = txn.scan_retired(keyspace, &range, limit, see).map_err(from_kv)?;
            match end {
                ScanEnd::Exhausted => return Ok(()),
                ScanEnd::More { last_key } => range = range.after(&last_key, Direction::Forward),
            }
        }
    }

    /// Builds the indexes again that have faults, and cuts a log that has. Returns the number of
    /// faults that were repaired; for the others only a backup helps.
    ///
    /// # Errors
    /// Errors of the engine and of the operation's deadline.
    pub fn repair(&self, op: &OpCtx, faults: &[StoreFault]) -> Result<usize> {
        let mut repaired = 0;
        for fault in faults {
            match &fault.part {
                FaultyPart::Indexes(ns) => {
                    let Some(collection) = self.catalog.get(ns) else { continue };
                    self.rebuild_indexes(op, &collection)?;
                }
                FaultyPart::Log => self.cut_log_whole()?,
                FaultyPart::Keyspace(_) | FaultyPart::Records(_) => continue,
            }
            repaired += 1;
        }
        Ok(repaired)
    }
}

/// Notes the findings of a validation.
fn judge(ns: &Namespace, found: &ValidationResult, checked: &mut CheckedStore) {
    checked.documents += found.records.max(0).unsigned_abs();
    let records = || FaultyPart::Records(ns.clone());
    if !found.corrupt.is_empty() {
        checked.fault(records(), format!("{} records cannot be read", found.corrupt.len()));
    }
    if found.unsound_buckets > 0 {
        checked.fault(records(), format!("{} buckets are damaged", found.unsound_buckets));
    }
    for index in found.indexes.iter().filter(|index| !index.is_valid()) {
        let name = index.index.spec.name();
        let mut text = format!("the index '{name}' lacks {} entries", index.missing);
        text += &format!(" and has {} without a document", index.extra);
        index.errors.iter().for_each(|error| text += &format!("; {error}"));
        // The index on `_id` is not built again.
        let part = match name {
            "_id_" => records(),
            _ => FaultyPart::Indexes(ns.clone()),
        };
        checked.fault(part, text);
    }
}

#[cfg(test)]
mod tests {
    use mayfly_kv::Guard;
    use mayfly_value::bson::doc;

    use super::*;
    use crate::testing::{Fixture, fixture};

    fn filled() -> Fixture {
        let f = fixture();
        f.index("d.c", &doc! { "key": { "a": 1 }, "name": "a_1" }).unwrap();
        for id in 0..20 {
            f.insert("d.c", &doc! { "_id": id, "a": id % 3 }).unwrap();
        }
        f.insert("d.e", &doc! { "_id": 1 }).unwrap();
        f
    }

    fn checked(f: &Fixture) -> CheckedStore {
        f.store.check(&f.op, &mut |_| ()).unwrap()
    }

    /// Changes the store without its knowledge.
    fn tamper(
        f: &Fixture,
        keyspace: Keyspace,
        id: u64,
        change: impl Fn(&mut dyn mayfly_kv::Txn, &[u8]),
    ) {
        let mut keys = Vec::new();
        let mut txn = f.engine.begin(TxnOptions::default()).unwrap();
        let range = KeyRange::prefix(&id.to_be_bytes());
        let forward = Direction::Forward;
        txn.scan(keyspace, &range, forward, ScanLimit::ALL, &mut |key, _| {
            keys.push(key.to_vec());
            ControlFlow::Continue(())
        })
        .unwrap();
        change(&mut *txn, &keys[3]);
        txn.commit().unwrap();
    }

    #[test]
    fn a_whole_store_has_no_faults() {
        let f = filled();
        let found = checked(&f);
        assert!(found.faults.is_empty(), "{:?}", found.faults);
        assert_eq!((found.collections, found.documents), (2, 21));
        assert!(found.entries > 60 && found.bytes > 1000 && found.log_entries > 20);
    }

    #[test]
    fn a_missing_index_entry_is_found_and_repaired() {
        let f = filled();
        let collection = f.store.collection(&crate::ReadView::now(), &crate::testing::ns("d.c"));
        let index = collection.unwrap().indexes()[0].id;
        tamper(&f, Keyspace::Index, index, |txn, key| {
            txn.delete(Keyspace::Index, key, Guard::Checked).unwrap();
        });
        let found = checked(&f).faults;
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].part, FaultyPart::Indexes(crate::testing::ns("d.c")));
        assert_eq!(f.store.repair(&f.op, &found).unwrap(), 1);
        assert!(checked(&f).faults.is_empty());
    }

    #[test]
    fn a_lost_record_is_found_and_documents_are_not_touched() {
        let f = filled();
        let collection = f.store.collection(&crate::ReadView::now(), &crate::testing::ns("d.c"));
        tamper(&f, Keyspace::Record, collection.unwrap().id(), |txn, key| {
            txn.delete(Keyspace::Record, key, Guard::Checked).unwrap();
        });
        let parts: Vec<FaultyPart> = checked(&f).faults.into_iter().map(|it| it.part).collect();
        // The entries of the indexes, and the entry of the log that refers to it.
        let ns = crate::testing::ns("d.c");
        let expected = [FaultyPart::Records(ns.clone()), FaultyPart::Indexes(ns), FaultyPart::Log];
        assert_eq!(parts, expected);
        let faults = checked(&f).faults;
        assert_eq!(f.store.repair(&f.op, &faults).unwrap(), 2);
        let left: Vec<FaultyPart> = checked(&f).faults.into_iter().map(|it| it.part).collect();
        assert_eq!(left, expected[..1]);
    }
}
