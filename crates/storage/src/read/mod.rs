//! Reads: a snapshot of the store, records by key and by range, index entries by range.
//!
//! A snapshot lives for one batch and never across a client's round trip; a cursor continues from
//! its last key in a new one.

use std::ops::ControlFlow;
use std::sync::Arc;

use mayfly_base::Result;
use mayfly_kv::{Direction, KeyRange, Keyspace, ScanEnd, ScanLimit, TxnOptions};
use mayfly_value::keys;
use mayfly_value::{DocBuf, RawDoc};

use crate::catalog::{Collection, Core, Index, Policy};
use crate::index::keygen::KeySet;
use crate::isolation::ReadView;
use crate::policy::watch::ClockWatch;
use crate::record::error::from_kv;
use crate::record::layout::{
    ObjectKey, decode_record, decode_stored, decode_unique_value, object_subrange,
};
use crate::record::{IdKey, Moment, Record, RecordKey};

mod by_id;
mod history;
mod many;
mod reading;
mod sizes;
mod validate;

pub use many::{RangesVisitor, RecordKeys, RecordsVisitor};
use reading::Reading;
pub use sizes::{CollectionSizes, CountLimit, CountResult, position_of};
pub use validate::{EntryFinding, FilesCheck, ValidateOptions, ValidatedIndex, ValidationResult};

/// A consistent view of the store, with the time that decides what is due and hidden.
pub struct Snapshot {
    pub(crate) txn: Reading,
    moment: Moment,
    watch: Arc<ClockWatch>,
}

/// An entry of an index.
#[derive(Clone, Copy)]
pub struct Entry<'a> {
    /// The position to continue after: the stored key without the index's id.
    pub position: &'a [u8],
    /// The ordered keys of the values.
    pub values: &'a [u8],
    /// The key of the entry's record.
    pub record_key: &'a [u8],
    /// The type bits that the ordered keys lose.
    pub type_bits: &'a [u8],
}

/// The end of a scan; positions are relative to the object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScanResult {
    /// The range has been scanned completely.
    Exhausted,
    /// Paused after this position.
    Paused(Vec<u8>),
}

/// Visits records: key and document, both valid during the call.
pub type RecordVisitor<'v> = dyn FnMut(&[u8], RawDoc<'_>) -> Result<ControlFlow<()>> + 'v;

/// Visits all records, including hidden ones.
pub(crate) type StoredVisitor<'v> = dyn FnMut(&[u8], Record<'_>) -> Result<ControlFlow<()>> + 'v;

/// Visits index entries, which are valid during the call.
pub type EntryVisitor<'v> = dyn FnMut(Entry<'_>) -> Result<ControlFlow<()>> + 'v;

impl Core {
    /// A snapshot for reads of this view.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn snapshot(&self, view: &ReadView) -> Result<Snapshot> {
        self.snapshot_with(TxnOptions::READ_ONLY, view)
    }

    /// A snapshot whose first read may fail because the definitions in memory are not those of the
    /// snapshot. The caller then begins again with [`Core::snapshot`], which loads them. On a
    /// secondary this saves a round trip.
    ///
    /// # Errors
    /// 175 QueryPlanKilled as the first read; errors of the engine.
    pub fn snapshot_again(&self, view: &ReadView) -> Result<Snapshot> {
        self.snapshot_with(TxnOptions::READ_AGAIN, view)
    }

    fn snapshot_with(&self, options: TxnOptions, view: &ReadView) -> Result<Snapshot> {
        let Some(txn) = Reading::of(view) else { return self.latest_with(options) };
        Ok(Snapshot { txn, moment: self.moment_of(view), watch: self.watch.clone() })
    }

    /// The time at which documents are due for reads of this view.
    fn moment_of(&self, view: &ReadView) -> Moment {
        view.open().map_or_else(|| self.moment(), |open| open.moment)
    }

    /// A snapshot of the latest commits.
    ///
    /// # Errors
    /// Errors of the engine.
    pub(crate) fn latest(&self) -> Result<Snapshot> {
        self.latest_with(TxnOptions::READ_ONLY)
    }

    fn latest_with(&self, options: TxnOptions) -> Result<Snapshot> {
        let txn = Reading::Own(self.engine().begin(options).map_err(from_kv)?);
        Ok(Snapshot { txn, moment: self.moment(), watch: self.watch.clone() })
    }

    /// Reads one document in this view. A view of the latest commits takes no snapshot for it: this
    /// is the short path of point reads.
    ///
    /// # Errors
    /// 301 DataCorruptionDetected, errors of the engine.
    pub fn read_one<T>(
        &self,
        view: &ReadView,
        collection: &Collection,
        record_key: &[u8],
        see: impl FnOnce(RawDoc<'_>) -> T,
    ) -> Result<Option<T>> {
        let key = ObjectKey::new(collection.id(), record_key);
        let hidden = Hidden::of(collection, &self.watch, || self.moment_of(view));
        let mut see = Some(see);
        let mut seen = Ok(None);
        let show = &mut |value: &[u8]| {
            if let Some(see) = see.take() {
                seen = hidden.visible(value).map(|document| document.map(see));
            }
        };
        match Reading::of(view) {
            Some(reading) => reading.get(Keyspace::Record, &key, show),
            None => self.engine().get_once(Keyspace::Record, &key, show),
        }
        .map_err(from_kv)?;
        seen
    }
}

/// The policies that hide records of a collection. Most collections hide none, and then no check is
/// made.
pub(crate) struct Hidden(Option<(Vec<Arc<Policy>>, Moment)>);

impl Hidden {
    pub(crate) fn of(
        collection: &Collection,
        watch: &ClockWatch,
        moment: impl FnOnce() -> Moment,
    ) -> Hidden {
        let policies = collection.hiding();
        Hidden((!policies.is_empty() && watch.is_trusted()).then(|| (policies, moment())))
    }

    /// Whether the record is due by a policy and therefore hidden.
    pub(crate) fn hides(&self, record: Record<'_>) -> Result<bool> {
        let Some((policies, moment)) = &self.0 else { return Ok(false) };
        Ok(hidden_by(policies, record, *moment)?.is_some())
    }

    /// The document of a record's value, unless it is hidden.
    fn visible<'v>(&self, value: &'v [u8]) -> Result<Option<RawDoc<'v>>> {
        let Some((policies, moment)) = &self.0 else { return decode_record(value).map(Some) };
        let record = decode_stored(value)?;
        let due = hidden_by(policies, record, *moment)?;
        Ok(due.is_none().then_some(record.document))
    }
}

/// The first policy that hides the record; none if a policy holds it.
pub(crate) fn hidden_by<'p>(
    policies: impl IntoIterator<Item = &'p Arc<Policy>, IntoIter: Clone>,
    record: Record<'_>,
    moment: Moment,
) -> Result<Option<&'p Arc<Policy>>> {
    let mut policies = policies.into_iter();
    if policies.clone().any(|policy| policy.holds(record.document)) {
        return Ok(None);
    }
    let mut keys = KeySet::default();
    while let Some(policy) = policies.find(|policy| policy.hides() && policy.is_ready()) {
        if policy.is_due(record, moment, &mut keys)? {
            return Ok(Some(policy));
        }
    }
    Ok(None)
}

impl Snapshot {
    /// Reads one document; returns false if there is none or it is hidden.
    ///
    /// # Errors
    /// 301 DataCorruptionDetected, errors of the engine.
    pub fn record(
        &self,
        collection: &Collection,
        record_key: &[u8],
        see: &mut dyn FnMut(RawDoc<'_>) -> Result<()>,
    ) -> Result<bool> {
        let key = ObjectKey::new(collection.id(), record_key);
        let hidden = Hidden::of(collection, &self.watch, || self.moment);
        let mut seen = Ok(false);
        self.txn
            .get(Keyspace::Record, &key, &mut |value| {
                seen = hidden.visible(value).and_then(|document| match document {
                    Some(document) => see(document).map(|()| true),
                    None => Ok(false),
                });
            })
            .map_err(from_kv)?;
        seen
    }

    /// Reads one record, hidden or not; returns false if there is none.
    ///
    /// # Errors
    /// As [`Snapshot::record`].
    pub(crate) fn stored_record(
        &self,
        collection: &Collection,
        record_key: &[u8],
        see: &mut dyn FnMut(Record<'_>) -> Result<()>,
    ) -> Result<bool> {
        let key = ObjectKey::new(collection.id(), record_key);
        let mut seen = Ok(());
        let found = self
            .txn
            .get(Keyspace::Record, &key, &mut |value| {
                seen = decode_stored(value).and_then(&mut *see);
            })
            .map_err(from_kv)?;
        seen.map(|()| found)
    }

    /// The key of the record whose `_id` has this ordered key, hidden or not; `None` if there is no
    /// such record. If records are clustered by `_id`, the record need not exist.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn locate_stored(
        &self,
        collection: &Collection,
        id_key: &IdKey,
    ) -> Result<Option<RecordKey>> {
        let Some(id_index) = collection.id_index_id() else { return Ok(Some(id_key.clone())) };
        let mut found = None;
        let see = &mut |value: &[u8]| {
            found = decode_unique_value(value).map(|(record_key, _)| record_key.to_vec());
        };
        self.txn.get(Keyspace::Index, &ObjectKey::new(id_index, id_key), see).map_err(from_kv)?;
        Ok(found)
    }

    /// Whether there is a record with this key, hidden or not.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn has_record(&self, collection: &Collection, record_key: &[u8]) -> Result<bool> {
        let key = ObjectKey::new(collection.id(), record_key);
        self.txn.get(Keyspace::Record, &key, &mut |_| {}).map_err(from_kv)
    }

    /// Copies one document; see [`Snapshot::record`].
    ///
    /// # Errors
    /// As [`Snapshot::record`].
    pub fn record_owned(
        &self,
        collection: &Collection,
        record_key: &[u8],
    ) -> Result<Option<DocBuf>> {
        let mut found = None;
        self.record(collection, record_key, &mut |document| {
            found = Some(document.to_owned());
            Ok(())
        })?;
        Ok(found)
    }

    /// Visits the records that are not hidden, in the order of their keys. The range is in record
    /// keys; an empty end means no upper bound. The limit also counts hidden records.
    ///
    /// # Errors
    /// Errors of the visitor, 301 DataCorruptionDetected, errors of the engine.
    pub fn scan_records(
        &self,
        collection: &Collection,
        range: &KeyRange,
        direction: Direction,
        limit: ScanLimit,
        visit: &mut RecordVisitor<'_>,
    ) -> Result<ScanResult> {
        let hidden = Hidden::of(collection, &self.watch, || self.moment);
        let object = (Keyspace::Record, collection.id());
        self.scan_object(object, range, direction, limit, |key, value| {
            match hidden.visible(value)? {
                Some(document) => visit(key, document),
                None => Ok(ControlFlow::Continue(())),
            }
        })
    }

    /// Visits all records in the order of their keys, including hidden ones.
    ///
    /// # Errors
    /// As [`Snapshot::scan_records`].
    pub(crate) fn scan_stored(
        &self,
        collection: &Collection,
        range: &KeyRange,
        direction: Direction,
        limit: ScanLimit,
        visit: &mut StoredVisitor<'_>,
    ) -> Result<ScanResult> {
        let object = (Keyspace::Record, collection.id());
        self.scan_object(object, range, direction, limit, |key, value| {
            visit(key, decode_stored(value)?)
        })
    }

    /// Visits the keys of an object, without its id, with their values.
    fn scan_object(
        &self,
        (keyspace, id): (Keyspace, u64),
        range: &KeyRange,
        direction: Direction,
        limit: ScanLimit,
        mut visit: impl FnMut(&[u8], &[u8]) -> Result<ControlFlow<()>>,
    ) -> Result<ScanResult> {
        let range = object_subrange(id, range);
        let mut failed = None;
        let end = self
            .txn
            .scan(keyspace, &range, direction, limit, &mut |key, value| {
                visit(&key[8..], value).unwrap_or_else(|error| {
                    failed = Some(error);
                    ControlFlow::Break(())
                })
            })
            .map_err(from_kv)?;
        match failed {
            Some(error) => Err(error),
            None => Ok(relative(end)),
        }
    }

    /// Visits index entries in order. The range is in positions; an empty end means no upper bound.
    ///
    /// # Errors
    /// Errors of the visitor, errors of the engine.
    pub fn scan_index(
        &self,
        index: &Index,
        range: &KeyRange,
        direction: Direction,
        limit: ScanLimit,
        visit: &mut EntryVisitor<'_>,
    ) -> Result<ScanResult> {
        let object = (Keyspace::Index, index.id());
        self.scan_object(object, range, direction, limit, |position, value| {
            match entry(index, position, value) {
                Some(entry) => visit(entry),
                None => Ok(ControlFlow::Continue(())),
            }
        })
    }
}

impl Snapshot {
    /// Counts the entries in a range of positions, up to `max`.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn count_entries(
        &self,
        index: &Index,
        range: &KeyRange,
        max: usize,
    ) -> Result<(u64, ScanResult)> {
        let range = object_subrange(index.id(), range);
        let (entries, end) = self.txn.count(Keyspace::Index, &range, max).map_err(from_kv)?;
        Ok((entries as u64, relative(end)))
    }
}

fn relative(end: ScanEnd) -> ScanResult {
    match end {
        ScanEnd::Exhausted => ScanResult::Exhausted,
        ScanEnd::More { last_key } => ScanResult::Paused(last_key.get(8..).unwrap_or(&[]).to_vec()),
    }
}

/// Decodes an entry. An unreadable one is skipped; `validate` reports it.
pub(crate) fn entry<'a>(index: &Index, position: &'a [u8], value: &'a [u8]) -> Option<Entry<'a>> {
    if index.spec.unique() {
        let (record_key, type_bits) = decode_unique_value(value)?;
        return Some(Entry { position, values: position, record_key, type_bits });
    }
    let mut at = 0;
    for field in index.spec.fields() {
        at += keys::skip_value(position.get(at..)?, field.order)?;
    }
    let (values, record_key) = position.split_at_checked(at)?;
    Some(Entry { position, values, record_key, type_bits: value })
}

/// The range of a whole object.
pub fn whole_range() -> KeyRange {
    KeyRange { start: Vec::new(), end: Vec::new() }
}
