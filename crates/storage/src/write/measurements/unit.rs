//! Write units over buckets: records with keys of their own, and reads within the transaction.

use std::ops::ControlFlow;
use std::sync::Arc;

use mayfly_base::{Error, Result};
use mayfly_buckets::{
    AddedRows, Bucket, BucketView, MeasurementFields, TimeSeries, is_same_bucket, logged, restored,
};
use mayfly_kv::{Direction, KeyRange, Keyspace, ScanLimit};
use mayfly_value::{RawDoc, RawValue};

use super::super::WriteUnit;
use crate::catalog::Index;
use crate::oplog::{UpdateStyle, apply_delta};
use crate::read::{EntryVisitor, entry};
use crate::record::error::from_kv;
use crate::record::layout::{object_subrange, prefixed};
use crate::record::{RecordKey, StoredDocument};

impl WriteUnit<'_> {
    /// The collection's time series at present.
    pub(crate) fn time_series(&self) -> Option<Arc<TimeSeries>> {
        self.state.time_series.clone()
    }

    /// Inserts a bucket that a client restores.
    ///
    /// # Errors
    /// 121 DocumentValidationFailure for an invalid bucket of this time series; 11000 DuplicateKey
    /// for an existing `_id`.
    pub(crate) fn restore_bucket(
        &mut self,
        series: &TimeSeries,
        document: RawDoc<'_>,
    ) -> Result<()> {
        let bucket = restored(document, series)?;
        let packed = bucket.document(&series.fields);
        self.insert_new_under(&bucket.record_key(), packed.as_doc())
    }

    /// Replaces a bucket that the unit has read by one that a client changed.
    ///
    /// # Errors
    /// 121 DocumentValidationFailure for an invalid bucket of this time series; errors of
    /// [`WriteUnit::update`].
    pub fn replace_bucket(
        &mut self,
        record_key: &[u8],
        before: &StoredDocument,
        document: RawDoc<'_>,
    ) -> Result<()> {
        let Some(series) = self.time_series() else {
            return Err(Error::internal("a bucket for a collection without time series"));
        };
        let bucket = restored(document, &series)?;
        let (key, packed) = (bucket.record_key(), bucket.document(&series.fields));
        if key == record_key {
            return self.update(&key, before, packed.as_doc(), UpdateStyle::Replacement);
        }
        // The key contains the start, of which the bucket's `_id` has only the seconds modulo 2^32.
        self.delete(record_key, before)?;
        self.insert_new_under(&key, packed.as_doc())
    }

    /// Replaces the bucket with this `_id`, or inserts it, as an entry of a log says.
    ///
    /// # Errors
    /// 121 DocumentValidationFailure for an invalid bucket of this time series; errors of the
    /// engine.
    pub fn replay_bucket(&mut self, document: RawDoc<'_>) -> Result<()> {
        let Some(series) = self.time_series() else {
            return Err(Error::internal("a bucket for a collection without time series"));
        };
        let bucket = logged(document, &series)?;
        let packed = bucket.document(&series.fields);
        // The exact bytes of the log, so that the replay of a log gives the same store.
        match is_same_bucket(document, packed.as_doc(), &series)? {
            true => self.put_bucket(bucket.record_key(), document),
            false => self.put_bucket(bucket.record_key(), packed.as_doc()),
        }
    }

    /// Writes a valid bucket in the place of one with the same `_id`.
    fn put_bucket(&mut self, key: RecordKey, bucket: RawDoc<'_>) -> Result<()> {
        let id = self.collection.id_key(bucket.get("_id").unwrap_or(RawValue::Null));
        if let Some(present) = self.locate(id)?
            && let Some(old) = self.read(&present)?
        {
            if present == key {
                return match bucket == old.as_doc() {
                    true => Ok(()),
                    false => self.update(&key, &old, bucket, UpdateStyle::Replacement),
                };
            }
            self.delete(&present, &old)?;
        }
        self.insert_new_under(&key, bucket)
    }

    /// Adds to a bucket the measurements in the delta of a log's entry. A missing bucket was
    /// deleted later in the log.
    ///
    /// # Errors
    /// 9 FailedToParse for an invalid delta; errors of [`WriteUnit::replay_bucket`].
    pub fn replay_growth(&mut self, id: RawValue<'_>, delta: RawDoc<'_>) -> Result<()> {
        let Some(series) = self.time_series() else {
            return Err(Error::internal("a bucket for a collection without time series"));
        };
        let added = AddedRows::of(delta)?;
        let id = self.collection.id_key(id);
        let Some(key) = self.locate(id)? else { return Ok(()) };
        let Some(old) = self.read(&key)? else { return Ok(()) };
        let mut bucket = Bucket::open(BucketView::new(old.as_doc())?, &series.fields)?;
        if !added.add_to(&mut bucket) {
            return Ok(());
        }
        let repacked = bucket.document(&series.fields);
        // Over the bucket that the entry was made for, the delta gives its exact bytes.
        if let Ok(exact) = apply_delta(old.as_doc(), delta)
            && is_same_bucket(exact.as_doc(), repacked.as_doc(), &series).unwrap_or(false)
        {
            return self.put_bucket(bucket.record_key(), exact.as_doc());
        }
        self.replay_bucket(repacked.as_doc())
    }

    /// Whether no bucket has this key or this `_id`. Their locks keep the answer true until the
    /// unit ends.
    pub(super) fn is_name_free(&mut self, record_key: &[u8], id: RawValue<'_>) -> Result<bool> {
        let key = prefixed(self.collection.id(), record_key);
        if self.txn.get_locked(Keyspace::Record, &key, &mut |_| {}).map_err(from_kv)? {
            return Ok(false);
        }
        let Some(index) = &self.state.id_index else { return Ok(true) };
        let key = prefixed(index.id(), &self.collection.id_key(id));
        let taken = self.txn.get_locked(Keyspace::Index, &key, &mut |_| {}).map_err(from_kv)?;
        Ok(!taken)
    }

    /// Removes the measurements for which `kept` returns false from a bucket; an empty bucket is
    /// deleted.
    ///
    /// # Errors
    /// 301 DataCorruptionDetected, errors of the engine.
    pub fn retain_measurements(
        &mut self,
        record_key: &[u8],
        document: &StoredDocument,
        fields: &MeasurementFields,
        kept: &dyn Fn(usize) -> bool,
    ) -> Result<()> {
        let mut bucket = Bucket::open(BucketView::new(document.as_doc())?, fields)?;
        bucket.retain(kept);
        if bucket.rows() == 0 {
            return self.delete(record_key, document);
        }
        let left = bucket.document(fields);
        self.update(record_key, document, left.as_doc(), UpdateStyle::Replacement)
    }

    /// The indexes that have entries of all records.
    pub(super) fn usable_indexes(&self) -> impl Iterator<Item = Arc<Index>> {
        let whole = |index: &&Arc<Index>| {
            index.is_ready()
                && !index.is_partial()
                && !index.spec.sparse()
                && index.spec.collation().is_none()
        };
        self.state.indexes.iter().filter(whole).cloned()
    }

    /// Visits the keys of records in a range.
    pub(super) fn scan_records(
        &self,
        range: &KeyRange,
        direction: Direction,
        limit: ScanLimit,
        see: &mut dyn FnMut(&[u8]),
    ) -> Result<()> {
        let range = object_subrange(self.collection.id(), range);
        self.txn
            .scan(Keyspace::Record, &range, direction, limit, &mut |key, _| {
                see(key.get(8..).unwrap_or(&[]));
                ControlFlow::Continue(())
            })
            .map_err(from_kv)?;
        Ok(())
    }

    /// Visits the entries of an index in a range.
    pub(super) fn scan_entries(
        &self,
        index: &Index,
        range: &KeyRange,
        direction: Direction,
        limit: ScanLimit,
        visit: &mut EntryVisitor<'_>,
    ) -> Result<()> {
        let range = object_subrange(index.id(), range);
        let mut failed = None;
        self.txn
            .scan(Keyspace::Index, &range, direction, limit, &mut |key, value| {
                let Some(entry) = key.get(8..).and_then(|key| entry(index, key, value)) else {
                    return ControlFlow::Continue(());
                };
                visit(entry).unwrap_or_else(|error| {
                    failed = Some(error);
                    ControlFlow::Break(())
                })
            })
            .map_err(from_kv)?;
        failed.map_or(Ok(()), Err)
    }
}
