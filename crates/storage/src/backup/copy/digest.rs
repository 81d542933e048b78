//! What a comparison of two stores compares: the number of documents of each collection, a sum of
//! the hashes of their records, and the definitions and the numbers of entries of the indexes.
//!
//! The sum does not depend on the order: a replay may give two documents that were inserted at the
//! same time the numbers of each other. Buckets of time series are compared as they are stored.

use std::hash::{DefaultHasher, Hasher};
use std::ops::ControlFlow;

use mayfly_base::Result;
use mayfly_kv::{Direction, KeyRange, Keyspace, ScanEnd, ScanLimit, TxnOptions};
use mayfly_work::OpCtx;

use crate::isolation::ReadView;
use crate::read::{ScanResult, whole_range};
use crate::record::error::from_kv;
use crate::{Collection, Store};

/// A collection in a comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CollectionDigest {
    /// The namespace of the collection.
    pub ns: String,
    /// The identity, which a rename does not change.
    pub uuid: [u8; 16],
    /// The number of records.
    pub documents: u64,
    /// The sum of the hashes of all records: their bytes and the times of their last changes.
    pub hash: u128,
    /// The hash of the options.
    pub options: u64,
    /// The indexes that are ready, by name.
    pub indexes: Vec<IndexDigest>,
}

/// An index in a comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexDigest {
    /// The name of the index.
    pub name: String,
    /// The hash of the definition.
    pub definition: u64,
    /// The number of entries.
    pub entries: u64,
}

fn hash(seed: u8, parts: &[&[u8]]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write_u8(seed);
    parts.iter().for_each(|part| hasher.write(part));
    hasher.finish()
}

impl Store {
    /// The digests of all collections, by namespace.
    ///
    /// # Errors
    /// 301 DataCorruptionDetected; errors of the engine and of the operation's deadline.
    pub fn digests(&self, op: &OpCtx) -> Result<Vec<CollectionDigest>> {
        let collections = self.collections(None);
        let lasting = collections.iter().filter(|it| !it.is_temporary());
        let mut all: Vec<_> = lasting.map(|it| self.digest(op, it)).collect::<Result<_>>()?;
        all.sort_by(|a, b| a.ns.cmp(&b.ns));
        Ok(all)
    }

    fn digest(&self, op: &OpCtx, collection: &Collection) -> Result<CollectionDigest> {
        let snapshot = self.snapshot(&ReadView::now())?;
        let (mut documents, mut sum) = (0, 0u128);
        let mut range = whole_range();
        let forward = Direction::Forward;
        loop {
            let see = &mut |_: &[u8], record: crate::record::Record<'_>| {
                op.check()?;
                let parts = [record.document.as_bytes(), &record.modified_ms.to_le_bytes()[..]];
                let hash = u128::from(hash(0, &parts)) << 64 | u128::from(hash(1, &parts));
                (documents, sum) = (documents + 1, sum.wrapping_add(hash));
                Ok(ControlFlow::Continue(()))
            };
            match snapshot.scan_stored(collection, &range, forward, ScanLimit::ALL, see)? {
                ScanResult::Exhausted => break,
                ScanResult::Paused(last) => range = range.after(&last, forward),
            }
        }
        let mut indexes = Vec::new();
        for index in collection.ready_indexes() {
            indexes.push(IndexDigest {
                name: index.spec.name().to_owned(),
                definition: hash(0, &[index.spec.document().as_bytes()]),
                entries: self.count_keys(op, Keyspace::Index, index.id)?,
            });
        }
        indexes.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(CollectionDigest {
            ns: collection.namespace().as_str().to_owned(),
            uuid: collection.uuid(),
            documents,
            hash: sum,
            options: hash(0, &[collection.options().as_bytes()]),
            indexes,
        })
    }

    fn count_keys(&self, op: &OpCtx, keyspace: Keyspace, id: u64) -> Result<u64> {
        let txn = self.engine().begin(TxnOptions::READ_ONLY).map_err(from_kv)?;
        let mut range = KeyRange::prefix(&id.to_be_bytes());
        let mut count = 0;
        loop {
            op.check()?;
            let (found, end) = txn.count(keyspace, &range, 100_000).map_err(from_kv)?;
            count += found as u64;
            match end {
                ScanEnd::Exhausted => return Ok(count),
                ScanEnd::More { last_key } => range = range.after(&last_key, Direction::Forward),
            }
        }
    }
}
