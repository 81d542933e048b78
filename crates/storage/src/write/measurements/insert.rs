//! Inserts measurements: groups them, finds their buckets, and adds them.

use crate::isolation::ReadView;
use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use mayfly_base::{Error, Result};
use mayfly_buckets::{
    Bucket, BucketView, MeasurementFields, Packed, TimeSeries, has_room, measurement_time,
    packed_with, start_key,
};
use mayfly_kv::{Direction, KeyRange, ScanLimit, prefix_end};
use mayfly_value::keys::{self, TypeBits};
use mayfly_value::{RawDoc, RawElement, RawValue, SortOrder};
use mayfly_work::OpCtx;

use super::super::{WriteUnit, Writer};
use crate::catalog::{Collection, Index};
use crate::oplog::UpdateStyle;
use crate::record::{RecordKey, StoredDocument};
use crate::timeseries::open::{OpenBucket, Stripe, Suffixes, remember};

/// The most buckets that are read from the store when the cache has none.
const MAX_CANDIDATES: usize = 4;
/// The most names that are tried for a new bucket. From the second one on they are practically
/// random.
const MAX_NAMES: usize = 100;

/// Measurements of one meta value.
struct Group<'d> {
    meta: Vec<u8>,
    value: Option<RawValue<'d>>,
    rows: Vec<(i64, RawDoc<'d>)>,
}

/// A bucket that the unit adds to.
struct Working {
    key: RecordKey,
    /// The present record; `None` for a new bucket.
    old: Option<StoredDocument>,
    /// The content of that record.
    packed: Packed,
    /// The measurements that are added.
    added: Bucket,
}

impl Working {
    fn has_room(&self, more: usize) -> bool {
        let (rows, bytes) = (self.added.rows(), self.added.bytes());
        has_room(self.packed.rows + rows, self.packed.bytes + bytes, more)
    }
}

impl Writer {
    /// Adds measurements to their buckets in one unit, in which `also` runs too.
    ///
    /// # Errors
    /// 2 BadValue for a measurement without a time; errors of [`Writer::write`].
    pub fn insert_measurements(
        &self,
        (op, view): (&OpCtx, &ReadView),
        collection: &Collection,
        measurements: &[RawDoc<'_>],
        also: impl Fn(&mut WriteUnit<'_>) -> Result<()>,
    ) -> Result<()> {
        let (Some(series), Some(open)) = (collection.time_series(), &collection.open_buckets)
        else {
            return Err(Error::internal("measurements for a collection without time series"));
        };
        let groups = grouped(measurements, &series.fields)?;
        let stripe_of: Vec<usize> = groups.iter().map(|group| open.stripe(&group.meta)).collect();
        // Held until the commit: two writers of one bucket would only conflict with each other.
        let mut stripes = open.lock(stripe_of.iter().copied());
        let placed = self.write(op, view, collection, |unit| {
            let mut placed = Vec::with_capacity(groups.len());
            for (group, stripe) in groups.iter().zip(&stripe_of) {
                let known = stripes.get(stripe).and_then(|stripe| stripe.get(&group.meta));
                let known = known.map_or(&[][..], Vec::as_slice);
                placed.push(Placing::new(unit, known, &open.suffixes)?.place(group)?);
            }
            also(unit)?;
            Ok(placed)
        })?;
        for ((group, stripe), open) in groups.into_iter().zip(stripe_of).zip(placed) {
            if let Some(stripe) = stripes.get_mut(&stripe) {
                let stripe: &mut Stripe = stripe;
                remember(stripe, group.meta, open);
            }
        }
        Ok(())
    }
}

/// The bytes that identify a meta value: its type and its data; empty without one.
fn meta_bytes(meta: Option<RawElement<'_>>) -> Vec<u8> {
    meta.map_or_else(Vec::new, |meta| {
        let mut bytes = Vec::with_capacity(1 + meta.data().len());
        bytes.push(meta.type_byte());
        bytes.extend_from_slice(meta.data());
        bytes
    })
}

fn grouped<'d>(measurements: &[RawDoc<'d>], fields: &MeasurementFields) -> Result<Vec<Group<'d>>> {
    let mut groups: Vec<Group<'d>> = Vec::new();
    let mut known: HashMap<Vec<u8>, usize> = HashMap::new();
    for measurement in measurements {
        let time = measurement_time(*measurement, fields)?;
        let meta = fields.meta.as_deref().and_then(|meta| measurement.get_element(meta));
        let bytes = meta_bytes(meta);
        let at = *known.entry(bytes).or_insert_with_key(|bytes| {
            let value = meta.map(RawElement::value);
            groups.push(Group { meta: bytes.clone(), value, rows: Vec::new() });
            groups.len() - 1
        });
        groups[at].rows.push((time, *measurement));
    }
    Ok(groups)
}

/// The search for buckets of one group.
struct Placing<'u, 's> {
    unit: &'u mut WriteUnit<'s>,
    series: Arc<TimeSeries>,
    /// The open buckets of the cache, the latest last.
    known: Vec<OpenBucket>,
    working: Vec<Working>,
    suffixes: &'u Suffixes,
}

impl<'u, 's> Placing<'u, 's> {
    fn new(
        unit: &'u mut WriteUnit<'s>,
        known: &[OpenBucket],
        suffixes: &'u Suffixes,
    ) -> Result<Placing<'u, 's>> {
        // The series as it is while the unit runs.
        let Some(series) = unit.time_series() else {
            return Err(Error::internal("measurements for a collection without time series"));
        };
        Ok(Placing { unit, series, known: known.to_vec(), working: Vec::new(), suffixes })
    }

    /// Adds all measurements of the group; returns the open buckets for the cache.
    fn place(mut self, group: &Group<'_>) -> Result<Vec<OpenBucket>> {
        for (time, measurement) in &group.rows {
            let bytes = measurement.as_bytes().len();
            let at = match self.fitting(*time, bytes) {
                Some(at) => at,
                None => self.open(*time, bytes, group)?,
            };
            self.working[at].added.push(*measurement, self.series.fields.meta.as_deref());
        }
        let fields = &self.series.fields;
        for working in self.working.iter_mut().filter(|working| working.added.rows() > 0) {
            let added = &working.added;
            match &working.old {
                None => {
                    self.unit.insert_under(&working.key, added.document(fields).as_doc())?;
                    let (rows, bytes) = (added.rows(), added.bytes());
                    working.packed = Packed { rows, bytes, additions: 0 };
                }
                Some(old) => {
                    let (new, packed) = packed_with(old.as_doc(), working.packed, added, fields)?;
                    // A repacked bucket has nothing in common with its old bytes.
                    let style = match packed.additions {
                        0 => UpdateStyle::Replacement,
                        _ => UpdateStyle::Growth,
                    };
                    self.unit.update(&working.key, old, new.as_doc(), style)?;
                    working.packed = packed;
                }
            }
        }
        let working = self.working.iter().map(|working| OpenBucket {
            start_ms: working.added.start_ms,
            key: working.key.clone(),
            packed: working.packed,
        });
        self.known.retain(|open| !self.working.iter().any(|working| working.key == open.key));
        self.known.extend(working);
        Ok(self.known)
    }

    fn fitting(&self, time: i64, bytes: usize) -> Option<usize> {
        self.working.iter().rposition(|working| {
            self.series.spans(working.added.start_ms, time) && working.has_room(bytes)
        })
    }

    /// A bucket for a measurement that fits no current one: from the cache, from the store, or a
    /// new one.
    fn open(&mut self, time: i64, bytes: usize, group: &Group<'_>) -> Result<usize> {
        let known: Vec<OpenBucket> = self
            .known
            .iter()
            .rev()
            .filter(|open| {
                has_room(open.packed.rows, open.packed.bytes, bytes)
                    && self.series.spans(open.start_ms, time)
            })
            .cloned()
            .collect();
        for open in known {
            if let Some(at) = self.load(&open.key, Some(open.packed), bytes, group)? {
                return Ok(at);
            }
        }
        // The store has no later buckets than the cache, because time advances.
        let starts = self.known.iter().map(|open| open.start_ms);
        let starts = starts.chain(self.working.iter().map(|working| working.added.start_ms));
        if starts.max().is_none_or(|latest| time < latest) {
            for key in self.candidates(time, group)? {
                if let Some(at) = self.load(&key, None, bytes, group)? {
                    return Ok(at);
                }
            }
        }
        let added = self.new_bucket(time, group)?;
        let (key, packed) = (added.record_key(), Packed::default());
        self.working.push(Working { key, old: None, packed, added });
        Ok(self.working.len() - 1)
    }

    /// An empty bucket with a name that is free and stays free until the unit ends.
    fn new_bucket(&mut self, time: i64, group: &Group<'_>) -> Result<Bucket> {
        for _ in 0..MAX_NAMES {
            let bucket = Bucket::new(self.series.start_of(time), self.suffixes.next(), group.value);
            let key = bucket.record_key();
            let placed = self.working.iter().any(|working| working.key == key);
            if !placed && self.unit.is_name_free(&key, bucket.id())? {
                return Ok(bucket);
            }
            self.suffixes.jump();
        }
        Err(Error::internal("no name was free for a new bucket"))
    }

    /// Reads a bucket under the lock of its record, and takes it if it belongs to this group and
    /// has room.
    fn load(
        &mut self,
        key: &RecordKey,
        known: Option<Packed>,
        bytes: usize,
        group: &Group<'_>,
    ) -> Result<Option<usize>> {
        if self.working.iter().any(|working| working.key == *key) {
            return Ok(None);
        }
        let Some(document) = self.unit.read(key)? else { return Ok(None) };
        let view = BucketView::new(document.as_doc())?;
        let full = view.is_closed() || view.rows() >= mayfly_buckets::MAX_MEASUREMENTS;
        if full || meta_bytes(view.meta()) != group.meta {
            return Ok(None);
        }
        let fields = &self.series.fields;
        // Some of its measurements may have been deleted.
        let packed = match known.filter(|known| known.rows == view.rows()) {
            Some(packed) => packed,
            None => {
                let bytes = Bucket::open(view, fields)?.bytes();
                // The number of earlier additions is unknown, so the bucket will be repacked.
                Packed { rows: view.rows(), bytes, additions: usize::MAX / 2 }
            }
        };
        if !has_room(packed.rows, packed.bytes, bytes) {
            return Ok(None);
        }
        let added = Bucket::addition_to(view, fields)?;
        self.working.push(Working { key: key.clone(), old: Some(document), packed, added });
        Ok(Some(self.working.len() - 1))
    }

    /// Buckets in the store whose span may contain the time, the latest first.
    fn candidates(&self, time: i64, group: &Group<'_>) -> Result<Vec<RecordKey>> {
        let earliest = time.saturating_sub(self.series.max_span_secs * 1000 - 1);
        let mut found = Vec::new();
        let limit = ScanLimit::rows(MAX_CANDIDATES);
        if self.series.fields.meta.is_none() {
            let range = KeyRange { start: start_key(earliest), end: prefix_end(&start_key(time)) };
            self.unit.scan_records(&range, Direction::Backward, limit, &mut |key| {
                found.push(key.to_vec());
            })?;
            return Ok(found);
        }
        let Some(index) = self.index_by_meta() else { return Ok(found) };
        let mut front = Vec::new();
        let meta = group.value.unwrap_or(RawValue::Null);
        if matches!(meta, RawValue::Array(_)) {
            return Ok(found);
        }
        keys::append_value(&mut front, &mut TypeBits::default(), meta, SortOrder::Ascending);
        let with = |time: i64| [front.as_slice(), &start_key(time)].concat();
        let range = KeyRange { start: with(earliest), end: prefix_end(&with(time)) };
        self.unit.scan_entries(&index, &range, Direction::Backward, limit, &mut |entry| {
            found.push(entry.record_key.to_vec());
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(found)
    }

    /// An index with the meta value as first field and the start as second.
    fn index_by_meta(&self) -> Option<Arc<Index>> {
        let start = format!("control.min.{}", self.series.fields.time);
        self.unit.usable_indexes().find(|index| match index.spec.fields() {
            [meta, min, ..] if index.spec.kind().is_ordered() => {
                meta.path == "meta"
                    && min.path == start
                    && meta.order == min.order
                    && meta.order == SortOrder::Ascending
            }
            _ => false,
        })
    }
}
