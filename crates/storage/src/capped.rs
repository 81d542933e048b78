//! Capped collections: records in the order of their insertion, the oldest going when there are too many.
//!
//! ```text
//! record   | collection id | record number, 8 bytes big-endian |   (elsewhere: the ordered key of _id)
//! ```
//!
//! `_id` has an index of its own, so that it stays unique. Write units on one capped collection run one after the other:
//! a reader that follows the numbers must not see a later one before an earlier one. What has to go goes in the unit that
//! made it too much.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use mayfly_base::{Error, Result};
use mayfly_kv::{Direction, Keyspace, ScanLimit};
use mayfly_value::{Collation, DocBuf, DocBuilder, Number, RawDoc, RawValue};
use parking_lot::Mutex;

use crate::collection::{Collection, Index};
use crate::index::spec::IndexSpec;
use crate::record::RecordKey;
use crate::record::error::from_kv;
use crate::record::layout::{decode_record, decode_unique_value, object_range, prefixed};
use crate::record::signal::Signal;
use crate::{Store, WriteUnit};

/// How much a capped collection holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capped {
    /// Bytes of documents.
    pub size_bytes: i64,
    /// Documents; nothing for no limit but the size.
    pub max_documents: Option<i64>,
}

impl Capped {
    /// What the options of a collection say.
    pub(crate) fn from_options(options: RawDoc<'_>) -> Option<Capped> {
        if options.get("capped") != Some(RawValue::Bool(true)) {
            return None;
        }
        let number = |name: &str| {
            options.get(name).and_then(Number::from_value).and_then(Number::to_i64_exact)
        };
        let max_documents = number("max").filter(|max| *max > 0);
        Some(Capped { size_bytes: number("size").unwrap_or(0), max_documents })
    }

    fn is_over(self, documents: i64, bytes: i64) -> bool {
        bytes > self.size_bytes || self.max_documents.is_some_and(|max| documents > max)
    }
}

/// What writers and followers of a capped collection share.
#[derive(Default)]
pub(crate) struct CappedRuntime {
    /// The next record number once it is known. Held by the unit that writes.
    pub(crate) next: Mutex<Option<u64>>,
    /// Commits that may have added records.
    commits: AtomicU64,
    committed: Signal,
}

/// A unit's part of it.
pub(crate) struct CappedUnit {
    limits: Capped,
    pub(crate) next: Option<u64>,
}

impl CappedUnit {
    pub(crate) fn new(limits: Capped, next: Option<u64>) -> CappedUnit {
        CappedUnit { limits, next }
    }
}

/// The definition of the index on `_id` that records out of its order need.
pub(crate) fn id_index_spec(collation: Option<&Arc<Collation>>) -> Result<IndexSpec> {
    let mut spec = DocBuilder::new();
    spec.append("v", 2).start_document("key").append("_id", 1).end();
    spec.append("name", "_id_").append("unique", true);
    if let Some(collation) = collation {
        spec.append("collation", collation.document());
    }
    IndexSpec::from_catalog(spec.finish())
}

impl Collection {
    /// Its limits, when it is capped.
    pub fn capped(&self) -> Option<Capped> {
        self.state.read_recursive().capped
    }

    /// How many commits followers were told of.
    pub fn commits_seen(&self) -> u64 {
        self.capped.commits.load(Ordering::Acquire)
    }

    /// Waits until there was a commit after so many.
    pub async fn commit_beyond(&self, seen: u64) {
        self.capped.committed.until(|| self.commits_seen() != seen).await;
    }

    pub(crate) fn note_capped_commit(&self) {
        self.capped.commits.fetch_add(1, Ordering::AcqRel);
        self.capped.committed.tell();
    }
}

impl Store {
    /// The key of the record with this `_id`; nothing when there is none in a collection that is not in the order of `_id`.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn locate(&self, collection: &Collection, id: RawValue<'_>) -> Result<Option<RecordKey>> {
        let index = collection.state.read_recursive().id_index.clone();
        let Some(index) = index else { return Ok(Some(collection.record_key(id))) };
        let key = prefixed(index.id(), &collection.record_key(id));
        let mut found = None;
        self.engine()
            .get_once(Keyspace::Index, &key, &mut |value| {
                found = decode_unique_value(value).map(|(record_key, _)| record_key.to_vec());
            })
            .map_err(from_kv)?;
        Ok(found)
    }
}

impl WriteUnit<'_> {
    /// The number that the next record of a capped collection gets; nothing elsewhere.
    pub(crate) fn next_number(&mut self) -> Result<Option<RecordKey>> {
        let Some(next) = self.capped.as_ref().map(|capped| capped.next) else { return Ok(None) };
        let number = match next {
            Some(number) => number,
            None => self.last_number()? + 1,
        };
        if let Some(capped) = &mut self.capped {
            capped.next = Some(number + 1);
        }
        Ok(Some(number.to_be_bytes().to_vec()))
    }

    fn last_number(&self) -> Result<u64> {
        let mut last = 0;
        self.txn
            .scan(
                Keyspace::Record,
                &object_range(self.collection.id()),
                Direction::Backward,
                ScanLimit::rows(1),
                &mut |key, _| {
                    let number = key.get(8..16).and_then(|number| number.try_into().ok());
                    last = number.map_or(0, u64::from_be_bytes);
                    ControlFlow::Break(())
                },
            )
            .map_err(from_kv)?;
        Ok(last)
    }

    /// Refuses a document that the collection could never hold.
    pub(crate) fn check_capped_size(&self, document: RawDoc<'_>) -> Result<()> {
        match &self.capped {
            Some(capped) if document.as_bytes().len() as i64 > capped.limits.size_bytes => {
                Err(Error::bad_value("object to insert exceeds cappedMaxSize"))
            }
            _ => Ok(()),
        }
    }

    /// Removes the oldest documents until the rest is within the limits.
    pub(crate) fn make_room(&mut self) -> Result<()> {
        use std::sync::atomic::Ordering::Acquire;
        let Some(limits) = self.capped.as_ref().map(|capped| capped.limits) else { return Ok(()) };
        let counts = &self.collection.counts;
        let (documents, bytes) = (counts.documents.load(Acquire), counts.bytes.load(Acquire));
        while limits.is_over(documents + self.documents, bytes + self.bytes) {
            let Some((key, document)) = self.oldest()? else { return Ok(()) };
            self.delete(&key, document.as_doc())?;
        }
        Ok(())
    }

    fn oldest(&self) -> Result<Option<(RecordKey, DocBuf)>> {
        let mut oldest = Ok(None);
        self.txn
            .scan(
                Keyspace::Record,
                &object_range(self.collection.id()),
                Direction::Forward,
                ScanLimit::rows(1),
                &mut |key, value| {
                    oldest = decode_record(value).map(|document| {
                        Some((key.get(8..).unwrap_or(&[]).to_vec(), document.to_owned()))
                    });
                    ControlFlow::Break(())
                },
            )
            .map_err(from_kv)?;
        oldest
    }
}

/// All indexes that a unit maintains: that on `_id` first, where there is one.
pub(crate) fn maintained<'s>(
    id_index: Option<&'s std::sync::Arc<Index>>,
    indexes: &'s [std::sync::Arc<Index>],
) -> impl Iterator<Item = &'s std::sync::Arc<Index>> {
    id_index.into_iter().chain(indexes)
}
