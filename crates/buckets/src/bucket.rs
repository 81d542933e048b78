//! A bucket: measurements of one meta value within a time span, as one document.
//!
//! ```text
//! { _id: ObjectId(start in seconds | 8 bytes of a counter that begins anywhere),
//!   control: { version: 2, min: { <field>: smallest ... }, max: { ... }, count: n, closed?: true
//!   },
//!   meta?: <meta value>,
//!   data: { <field>: BinData(7, column) ... } }
//! ```
//!
//! `control.min` of the time field is the bucket's start, rounded down; it never changes, and the
//! record's key begins with it:
//!
//! ```text
//! record    | collection id | ordered key of Date(start) | the last 8 bytes of _id |
//! ```
//!
//! Records are thereby ordered by 64-bit times, which the seconds in an ObjectId cannot represent.
//! `version` is 3 when the measurements are not ordered by time. [`crate::column`] describes the
//! columns.

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_value::keys::{self, TypeBits};
use mayfly_value::{
    DocBuf, DocBuilder, Names, Number, RawDoc, RawElement, RawValue, SortOrder, ValueBuf, ty,
};

use crate::column::{Column, MAX_ROWS};
use crate::fields::MeasurementFields;

/// Limits of a bucket: measurements, and approximate bytes of them.
pub const MAX_MEASUREMENTS: usize = 1000;
pub(crate) const MAX_BYTES: usize = 128_000;
/// Large measurements share a bucket up to this number of them, or of bytes.
const MIN_MEASUREMENTS: usize = 10;
const MAX_LARGE_BYTES: usize = 12 << 20;
/// BSON's binary subtype for columns.
pub(crate) const COLUMN: u8 = 7;

/// A stored bucket, read in place.
#[derive(Clone, Copy)]
pub struct BucketView<'a> {
    document: RawDoc<'a>,
    control: RawDoc<'a>,
    data: RawDoc<'a>,
    rows: usize,
}

fn damaged() -> Error {
    Error::new(ErrorCode::DataCorruptionDetected, "a time-series bucket cannot be read")
}

impl<'a> BucketView<'a> {
    /// Reads the sections of a bucket's document.
    ///
    /// # Errors
    /// 301 DataCorruptionDetected.
    pub fn new(document: RawDoc<'a>) -> Result<BucketView<'a>> {
        let part = |name| document.get(name).and_then(RawValue::as_document).ok_or_else(damaged);
        let (control, data) = (part("control")?, part("data")?);
        let rows = control.get("count").and_then(Number::from_value);
        let rows = rows.and_then(Number::to_i64_exact).and_then(|rows| usize::try_from(rows).ok());
        let rows = rows.filter(|rows| *rows <= MAX_ROWS).ok_or_else(damaged)?;
        Ok(BucketView { document, control, data, rows })
    }

    /// The number of measurements.
    pub fn rows(self) -> usize {
        self.rows
    }

    /// Whether the bucket is closed: no measurement may be added.
    pub fn is_closed(self) -> bool {
        self.control.get("closed") == Some(RawValue::Bool(true))
    }

    /// The meta value of the measurements.
    pub fn meta(self) -> Option<RawElement<'a>> {
        self.document.get_element("meta")
    }

    /// The smallest and the largest value of a field; `None` when no measurement has it.
    pub fn bounds(self, field: &str) -> Option<(RawValue<'a>, RawValue<'a>)> {
        let side = |name| self.control.get(name)?.as_document()?.get(field);
        Some((side("min")?, side("max")?))
    }

    pub(crate) fn control(self) -> RawDoc<'a> {
        self.control
    }

    pub(crate) fn data(self) -> RawDoc<'a> {
        self.data
    }

    pub(crate) fn column(self, element: RawElement<'a>) -> Result<Column> {
        match element.value() {
            RawValue::Binary { subtype: COLUMN, bytes } => {
                Column::decode(bytes, self.rows).ok_or_else(damaged)
            }
            _ => Err(damaged()),
        }
    }

    /// Passes its measurements to `see`, with the fields whose names `select` accepts: time, meta,
    /// then the others in the order of their first occurrence. Stops when `see` breaks off.
    ///
    /// # Errors
    /// 301 DataCorruptionDetected, errors of `see`.
    pub fn measurements(
        self,
        fields: &MeasurementFields,
        select: &dyn Fn(&str) -> bool,
        see: &mut dyn FnMut(usize, RawDoc<'_>) -> Result<std::ops::ControlFlow<()>>,
    ) -> Result<()> {
        let mut columns: Vec<(RawElement<'_>, Column)> = Vec::new();
        for element in self.data.iter().filter(|element| select(element.name())) {
            let place = if element.name() == fields.time { 0 } else { columns.len() };
            columns.insert(place, (element, self.column(element)?));
        }
        let meta_name = fields.meta.as_deref().filter(|name| select(name));
        let meta = meta_name.and_then(|name| Some((name, self.meta()?)));
        let time_first = columns.first().is_some_and(|(field, _)| field.name() == fields.time);
        let (first, others) = columns.split_at(usize::from(time_first));
        let mut buffer = Vec::new();
        for row in 0..self.rows {
            buffer.clear();
            let mut out = DocBuilder::in_buffer(buffer);
            append_row(&mut out, first, row);
            if let Some((name, meta)) = meta {
                out.append_renamed(name.as_bytes(), meta);
            }
            append_row(&mut out, others, row);
            let document = out.finish();
            if see(row, document.as_doc())?.is_break() {
                return Ok(());
            }
            buffer = document.into_bytes();
        }
        Ok(())
    }
}

fn append_row(out: &mut DocBuilder, columns: &[(RawElement<'_>, Column)], row: usize) {
    for (field, column) in columns {
        if let Some((type_byte, data)) = column.get(row) {
            out.append_element(RawElement::from_parts(type_byte, field.name_bytes(), data));
        }
    }
}

/// Whether a bucket with this many measurements and bytes has room for `more` bytes.
pub fn has_room(rows: usize, bytes: usize, more: usize) -> bool {
    let after = bytes + more;
    rows == 0
        || rows < MAX_MEASUREMENTS && after <= MAX_BYTES
        || rows < MIN_MEASUREMENTS && after <= MAX_LARGE_BYTES
}

/// A bucket that is being filled or changed.
pub struct Bucket {
    id: [u8; 12],
    /// The start, rounded down, in milliseconds since 1970.
    pub start_ms: i64,
    meta: Option<ValueBuf>,
    columns: Names<Column>,
    rows: usize,
    bytes: usize,
    /// No measurement may be added.
    closed: bool,
}

/// The components of a bucket; all columns have the same length.
pub(crate) struct BucketParts<'m> {
    pub(crate) id: [u8; 12],
    pub(crate) start_ms: i64,
    pub(crate) meta: Option<RawValue<'m>>,
    pub(crate) columns: Names<Column>,
    pub(crate) rows: usize,
    pub(crate) closed: bool,
}

impl Bucket {
    /// Assembles a bucket from its components.
    pub(crate) fn from_parts(parts: BucketParts<'_>) -> Bucket {
        let BucketParts { id, start_ms, meta, columns, rows, closed } = parts;
        let bytes = columns.as_slice().iter().map(|(_, column)| column.bytes()).sum();
        let meta = meta.map(RawValue::to_owned);
        Bucket { id, start_ms, meta, columns, rows, bytes, closed }
    }

    /// An empty bucket. `suffix` is the counter in its `_id`.
    pub fn new(start_ms: i64, suffix: u64, meta: Option<RawValue<'_>>) -> Bucket {
        let mut id = [0; 12];
        // Times before 1970 and after 2106 wrap around, as in the reference; no code depends on
        // them.
        id[..4].copy_from_slice(&(start_ms.div_euclid(1000) as u32).to_be_bytes());
        id[4..].copy_from_slice(&suffix.to_be_bytes());
        let meta = meta.map(RawValue::to_owned);
        Bucket { id, start_ms, meta, columns: Names::default(), rows: 0, bytes: 0, closed: false }
    }

    /// Unpacks a stored bucket.
    ///
    /// # Errors
    /// 301 DataCorruptionDetected.
    pub fn open(view: BucketView<'_>, fields: &MeasurementFields) -> Result<Bucket> {
        let Some(RawValue::ObjectId(id)) = view.document.get("_id") else { return Err(damaged()) };
        let Some((RawValue::Date(start_ms), _)) = view.bounds(&fields.time) else {
            return Err(damaged());
        };
        let mut columns = Names::default();
        for element in view.data {
            columns.push(element.name(), view.column(element)?);
        }
        let (meta, rows) = (view.meta().map(RawElement::value), view.rows);
        let closed = view.is_closed();
        Ok(Bucket::from_parts(BucketParts { id, start_ms, meta, columns, rows, closed }))
    }

    /// The `_id` of the bucket's document: an ObjectId whose first four bytes are the bucket's
    /// start.
    pub fn id(&self) -> RawValue<'_> {
        RawValue::ObjectId(self.id)
    }

    /// The key of its record.
    pub fn record_key(&self) -> Vec<u8> {
        let mut key = start_key(self.start_ms);
        key.extend_from_slice(&self.id[4..]);
        key
    }

    /// The number of measurements.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Bytes of its values.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn columns(&self) -> &[(Box<str>, Column)] {
        self.columns.as_slice()
    }

    pub(crate) fn column_named(&self, name: &str) -> Option<&Column> {
        self.columns.find(name.as_bytes())
    }

    /// An empty bucket with the same identity, to collect measurements to append.
    pub fn addition_to(view: BucketView<'_>, fields: &MeasurementFields) -> Result<Bucket> {
        let Some(RawValue::ObjectId(id)) = view.document.get("_id") else { return Err(damaged()) };
        let Some((RawValue::Date(start_ms), _)) = view.bounds(&fields.time) else {
            return Err(damaged());
        };
        let columns = Names::default();
        Ok(Bucket { id, start_ms, meta: None, columns, rows: 0, bytes: 0, closed: false })
    }

    /// Appends the measurements of another bucket.
    pub(crate) fn extend(&mut self, other: &Bucket) {
        for (name, column) in other.columns.as_slice() {
            let at = self.columns.position(name);
            let at = at.unwrap_or_else(|| self.columns.push(name, Column::absent(self.rows)));
            self.columns.value_mut(at).extend(column);
        }
        self.rows += other.rows;
        self.bytes += other.bytes;
        for column in self.columns.iter_mut() {
            if column.len() < self.rows {
                column.extend(&Column::absent(self.rows - column.len()));
            }
        }
    }

    /// Appends rows given as columns; fields without a column are absent in them.
    pub(crate) fn extend_by(
        &mut self,
        rows: usize,
        columns: impl Iterator<Item = (Box<str>, Column)>,
    ) {
        let start_ms = self.start_ms;
        let parts = BucketParts {
            id: self.id,
            start_ms,
            meta: None,
            columns: columns.collect(),
            rows,
            closed: false,
        };
        self.extend(&Bucket::from_parts(parts));
    }

    /// The earliest time of a measurement.
    pub(crate) fn earliest(&self, fields: &MeasurementFields) -> Option<i64> {
        let times = self.column_named(&fields.time)?;
        match times.value(times.bounds()?.0) {
            Some(RawValue::Date(date)) => Some(date),
            _ => None,
        }
    }

    /// Adds a measurement.
    pub fn push(&mut self, measurement: RawDoc<'_>, meta_field: Option<&str>) {
        let mut at = 0;
        for element in measurement {
            let name = element.name();
            if Some(name) == meta_field {
                continue;
            }
            // Most measurements have the same fields in the same order.
            if self.columns.as_slice().get(at).is_none_or(|(known, _)| **known != *name) {
                let known = self.columns.position(name);
                at = known.unwrap_or_else(|| self.columns.push(name, Column::absent(self.rows)));
            }
            let column = self.columns.value_mut(at);
            // Of duplicate names the first one counts.
            if column.len() == self.rows {
                column.push(element.type_byte(), element.data());
                self.bytes += element.data().len();
            }
            at += 1;
        }
        self.rows += 1;
        for column in self.columns.iter_mut() {
            if column.len() < self.rows {
                column.push_none();
            }
        }
    }

    /// Keeps the measurements for which `kept` returns true. Columns that become empty are removed.
    pub fn retain(&mut self, kept: &dyn Fn(usize) -> bool) {
        for column in self.columns.iter_mut() {
            let mut left = Column::default();
            for row in (0..self.rows).filter(|row| kept(*row)) {
                match column.get(row) {
                    Some((type_byte, data)) => left.push(type_byte, data),
                    None => left.push_none(),
                }
            }
            *column = left;
        }
        let columns = std::mem::take(&mut self.columns);
        self.columns = columns.into_iter().filter(|(_, left)| left.bounds().is_some()).collect();
        self.rows = (0..self.rows).filter(|row| kept(*row)).count();
        self.bytes = self.columns().iter().map(|(_, column)| column.bytes()).sum();
    }

    /// Packs the bucket into its document.
    pub fn document(&self, fields: &MeasurementFields) -> DocBuf {
        let mut out = DocBuilder::in_buffer(Vec::with_capacity(1024));
        out.append("_id", RawValue::ObjectId(self.id)).start_document("control");
        out.append("version", if self.is_sorted(fields) { 2 } else { 3 });
        self.append_bounds(&mut out, fields);
        out.append("count", self.rows as i32);
        if self.closed {
            out.append("closed", true);
        }
        out.end();
        if let Some(meta) = &self.meta {
            out.append("meta", meta.as_raw());
        }
        out.start_document("data");
        for (name, column) in self.columns() {
            let bytes = column.encode();
            out.append(name, RawValue::Binary { subtype: COLUMN, bytes: &bytes });
        }
        out.end();
        out.finish()
    }

    /// Appends `min` and `max` of the control. An index finds items of an array individually, and
    /// they may have any value: if there is an array among the values, the bounds are those of all
    /// values, so that an index on them misses nothing.
    pub(crate) fn append_bounds(&self, out: &mut DocBuilder, fields: &MeasurementFields) {
        let bounds: Vec<_> = self.columns().iter().map(|(_, column)| column.bounds()).collect();
        for (side, largest) in [("min", false), ("max", true)] {
            out.start_document(side);
            for ((name, column), bounds) in self.columns().iter().zip(&bounds) {
                let Some((least, most)) = *bounds else { continue };
                if !largest && **name == *fields.time {
                    out.append(name, RawValue::Date(self.start_ms));
                    continue;
                }
                if column.has_arrays() {
                    let type_byte = if largest { ty::MAX_KEY } else { ty::MIN_KEY };
                    out.append_element(RawElement::from_parts(type_byte, name.as_bytes(), &[]));
                    continue;
                }
                if let Some((type_byte, data)) = column.get(if largest { most } else { least }) {
                    out.append_element(RawElement::from_parts(type_byte, name.as_bytes(), data));
                }
            }
            out.end();
        }
    }

    pub(crate) fn is_sorted(&self, fields: &MeasurementFields) -> bool {
        let times = self.column_named(&fields.time);
        times.is_none_or(|times| {
            let dates = (0..times.len()).map(|row| match times.value(row) {
                Some(RawValue::Date(date)) => date,
                _ => i64::MIN,
            });
            dates.is_sorted()
        })
    }
}

/// The prefix of the record keys of buckets that begin at this time.
pub fn start_key(start_ms: i64) -> Vec<u8> {
    let mut key = Vec::with_capacity(24);
    keys::append_value(
        &mut key,
        &mut TypeBits::default(),
        RawValue::Date(start_ms),
        SortOrder::Ascending,
    );
    key
}
