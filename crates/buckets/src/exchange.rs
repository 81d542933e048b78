//! Buckets in the reference's format, which clients read from and restore to `system.buckets.X`.
//!
//! ```text
//! { _id: ObjectId(start | suffix),
//!   control: { version: 2, min: { <field>: .. }, max: { <field>: .. }, count: n, closed?: true },
//!   meta?: <meta value>,
//!   data: { <field>: BinData(7, BSONColumn) } }              version 1: { <field>: { "0": .., "1": .., "7": .. } }
//! ```
//!
//! A restored bucket is unpacked, checked for consistency, and repacked: only its values are kept.
//! An inconsistent bucket is refused as a whole, with code 121 like a document that violates a
//! validator.

use std::collections::{HashMap, HashSet};

use mayfly_base::{Error, ErrorCode, Result, limits};
use mayfly_value::{DocBuf, DocBuilder, Number, RawDoc, RawElement, RawValue, compare_values, ty};

use crate::bson_column;
use crate::bucket::{Bucket, BucketParts, BucketView, COLUMN};
use crate::column::{Column, FORMAT, MAX_BYTES, MAX_ROWS};
use crate::fields::MeasurementFields;
use crate::options::TimeSeries;

/// Most values of a restored bucket, including absent ones.
const MAX_CELLS: usize = 1 << 22;
/// A bucket whose values and their types take at most this many bytes fits into a document together
/// with their bounds.
const ALWAYS_FITS_BYTES: usize = 4 << 20;

/// Converts a stored bucket to the reference's format.
///
/// # Errors
/// 301 DataCorruptionDetected.
pub fn shown_bucket(document: RawDoc<'_>, fields: &MeasurementFields) -> Result<DocBuf> {
    let view = BucketView::new(document)?;
    let mut columns = Vec::new();
    for element in view.data() {
        columns.push((element.name(), view.column(element)?));
    }
    let mut out = DocBuilder::in_buffer(Vec::with_capacity(2 * document.as_bytes().len()));
    for element in document {
        match element.name() {
            "control" => append_control(&mut out, view.control(), &columns, fields),
            "data" => {
                out.start_document("data");
                for (name, column) in &columns {
                    let bytes = bson_column::encode(column);
                    out.append(name, RawValue::Binary { subtype: COLUMN, bytes: &bytes });
                }
                out.end();
            }
            _ => {
                out.append_element(element);
            }
        }
    }
    Ok(out.finish())
}

fn append_control(
    out: &mut DocBuilder,
    control: RawDoc<'_>,
    columns: &[(&str, Column)],
    fields: &MeasurementFields,
) {
    out.start_document("control");
    for element in control {
        let largest = match element.name() {
            "min" => false,
            "max" => true,
            _ => {
                out.append_element(element);
                continue;
            }
        };
        let stored = element.value().as_document().unwrap_or(RawDoc::EMPTY);
        out.start_document(element.name());
        for (name, column) in columns {
            match stored.get_element(name).filter(|_| *name == fields.time) {
                Some(time) => {
                    out.append_element(time);
                }
                None => {
                    let values = (0..column.len()).filter_map(|row| column.value(row));
                    append_bound(out, name, &values.collect::<Vec<_>>(), largest);
                }
            }
        }
        out.end();
    }
    out.end();
}

/// Appends the smallest or the largest of some values, embedded documents field by field and arrays
/// item by item.
fn append_bound(out: &mut DocBuilder, name: &str, values: &[RawValue<'_>], largest: bool) {
    let order = |a: &&RawValue<'_>, b: &&RawValue<'_>| compare_values(**a, **b);
    let bound = match largest {
        true => values.iter().max_by(order),
        false => values.iter().min_by(order),
    };
    match bound {
        None => {}
        Some(RawValue::Document(_)) => {
            out.start_document(name);
            let inner: Vec<_> = values.iter().filter_map(|value| value.as_document()).collect();
            append_inner(out, &inner, largest);
            out.end();
        }
        Some(RawValue::Array(_)) => {
            out.start_array(name);
            let inner: Vec<_> = values.iter().filter_map(|value| value.as_array()).collect();
            append_inner(out, &inner, largest);
            out.end();
        }
        Some(value) => {
            out.append(name, *value);
        }
    }
}

/// Appends the bounds of each name, in the order of first occurrence.
fn append_inner(out: &mut DocBuilder, documents: &[RawDoc<'_>], largest: bool) {
    let mut named: Vec<(&str, Vec<RawValue<'_>>)> = Vec::new();
    let mut places = HashMap::new();
    for element in documents.iter().flat_map(|document| document.iter()) {
        let at = *places.entry(element.name()).or_insert_with(|| {
            named.push((element.name(), Vec::new()));
            named.len() - 1
        });
        named[at].1.push(element.value());
    }
    for (name, values) in &named {
        append_bound(out, name, values, largest);
    }
}

/// Parses a bucket that a client restores.
///
/// # Errors
/// 121 DocumentValidationFailure for a document that is not a bucket of this time series.
pub fn restored(document: RawDoc<'_>, series: &TimeSeries) -> Result<Bucket> {
    RestoredBucketParser { document, series }.bucket()
}

/// Parses a bucket of a log entry: packed as this server stores it, or in the reference's format.
///
/// # Errors
/// Errors of [`restored`].
pub fn logged(document: RawDoc<'_>, series: &TimeSeries) -> Result<Bucket> {
    if !is_packed(document) {
        return restored(document, series);
    }
    // A bucket in a client's entry is checked like a restored one.
    let given = RestoredBucketParser { document, series };
    let shown =
        shown_bucket(document, &series.fields).map_err(|why| given.refused(why.message()))?;
    restored(shown.as_doc(), series)
}

/// Whether the columns are packed as this server stores them.
pub(crate) fn is_packed(document: RawDoc<'_>) -> bool {
    let data = document.get("data").and_then(RawValue::as_document).unwrap_or(RawDoc::EMPTY);
    data.iter().any(|column| match column.value() {
        RawValue::Binary { subtype: COLUMN, bytes } => bytes.first() == Some(&FORMAT),
        _ => false,
    })
}

/// Parses a bucket sent by a client.
struct RestoredBucketParser<'a> {
    document: RawDoc<'a>,
    series: &'a TimeSeries,
}

impl<'a> RestoredBucketParser<'a> {
    fn refused(&self, why: &str) -> Error {
        let mut extra = DocBuilder::new();
        extra.start_document("errInfo");
        let id = self.document.get("_id").unwrap_or(RawValue::Null);
        extra.append("failingDocumentId", id).start_document("details");
        extra.append("reason", why).end().end();
        let text = format!("Document failed validation: {why}");
        Error::new(ErrorCode::DocumentValidationFailure, text)
            .with_extra(extra.finish().into_bytes())
    }

    /// Checks that a document has only these fields, each at most once.
    fn members(&self, document: RawDoc<'_>, known: &[&str], place: &str) -> Result<()> {
        for (at, element) in document.iter().enumerate() {
            let name = element.name();
            if !known.contains(&name) {
                return Err(self.refused(&format!("{place} has an unknown field '{name}'")));
            }
            if document.iter().take(at).any(|earlier| earlier.name() == name) {
                return Err(self.refused(&format!("{place} has the field '{name}' twice")));
            }
        }
        Ok(())
    }

    fn part(&self, document: RawDoc<'a>, name: &str) -> Result<RawDoc<'a>> {
        let part = document.get(name).and_then(RawValue::as_document);
        part.ok_or_else(|| self.refused(&format!("'{name}' must be an object")))
    }

    fn bucket(&self) -> Result<Bucket> {
        self.members(self.document, &["_id", "control", "meta", "data"], "a bucket")?;
        let Some(RawValue::ObjectId(id)) = self.document.get("_id") else {
            return Err(self.refused("'_id' must be an objectId"));
        };
        let (control, data) =
            (self.part(self.document, "control")?, self.part(self.document, "data")?);
        let known = ["version", "min", "max", "count", "closed"];
        self.members(control, &known, "'control'")?;
        let (min, max) = (self.part(control, "min")?, self.part(control, "max")?);
        let meta = self.document.get("meta");
        if meta.is_some() && self.series.fields.meta.is_none() {
            return Err(self.refused("'meta' is given and the time series has no metaField"));
        }
        let closed = match control.get("closed") {
            None | Some(RawValue::Bool(false)) => false,
            Some(RawValue::Bool(true)) => true,
            Some(_) => return Err(self.refused("'control.closed' must be a bool")),
        };
        let (columns, rows) = self.columns(control, data)?;
        let start_ms = self.start(&id, min)?;
        self.check_times(&columns, rows, start_ms, max)?;
        self.check_bounds(&columns, min, max)?;
        let cells = columns.len() * rows;
        let columns = columns.into_iter().collect();
        let bucket = Bucket::from_parts(BucketParts { id, start_ms, meta, columns, rows, closed });
        // The bucket must fit into a document when clients read it.
        if bucket.bytes() + 2 * cells > ALWAYS_FITS_BYTES {
            let shown =
                shown_bucket(bucket.document(&self.series.fields).as_doc(), &self.series.fields)?;
            if shown.as_bytes().len() > limits::MAX_USER_DOCUMENT_BYTES {
                return Err(self.refused("the measurements are too large for a bucket"));
            }
        }
        Ok(bucket)
    }

    fn whole(&self, control: RawDoc<'_>, name: &str) -> Result<Option<i64>> {
        let Some(value) = control.get(name) else { return Ok(None) };
        match Number::from_value(value).and_then(Number::to_i64_exact) {
            Some(number) => Ok(Some(number)),
            None => Err(self.refused(&format!("'control.{name}' must be a whole number"))),
        }
    }

    /// The columns, and their number of rows.
    fn columns(
        &self,
        control: RawDoc<'_>,
        data: RawDoc<'_>,
    ) -> Result<(Vec<(String, Column)>, usize)> {
        let version = self.whole(control, "version")?;
        let count = self.whole(control, "count")?;
        let unpacked = match version {
            Some(1) => true,
            Some(2 | 3) if count.is_some() => false,
            Some(2 | 3) => return Err(self.refused("'control.count' is missing")),
            _ => return Err(self.refused("'control.version' must be 1, 2 or 3")),
        };
        let fields = &self.series.fields;
        let mut columns: Vec<(String, Column)> = Vec::new();
        let mut names = HashSet::new();
        let (mut bytes, mut cells) = (0, 0);
        for element in data {
            let name = element.name();
            if Some(name) == fields.meta.as_deref() {
                return Err(self.refused("'data' holds the metaField"));
            }
            if !names.insert(name) {
                return Err(self.refused(&format!("'data' has the field '{name}' twice")));
            }
            let column = match unpacked {
                true => self.unpacked_column(element)?,
                false => self.packed_column(element, count)?,
            };
            bytes += column.bytes();
            cells += column.len();
            if bytes > MAX_BYTES || cells > MAX_CELLS {
                return Err(self.refused("the measurements are too large for a bucket"));
            }
            columns.push((name.to_owned(), column));
        }
        let times = columns.iter().find(|(name, _)| *name == fields.time);
        let rows = times.map_or(0, |(_, times)| times.len());
        if rows == 0 {
            return Err(self.refused(&format!("'data.{}' holds no measurement", fields.time)));
        }
        if count.is_some_and(|count| count != rows as i64) {
            let text = format!("'control.count' is not the number of measurements, {rows}");
            return Err(self.refused(&text));
        }
        if columns.len().saturating_mul(rows) > MAX_CELLS {
            return Err(self.refused("the measurements have too many fields for a bucket"));
        }
        for (name, column) in &mut columns {
            if column.len() > rows {
                let text = format!("'data.{name}' has more values than there are measurements");
                return Err(self.refused(&text));
            }
            if column.bounds().is_none() {
                return Err(self.refused(&format!("'data.{name}' holds no value")));
            }
            column.extend(&Column::absent(rows - column.len()));
        }
        Ok((columns, rows))
    }

    /// A column of version 1: values with the numbers of their rows as names.
    fn unpacked_column(&self, element: RawElement<'_>) -> Result<Column> {
        let name = element.name();
        let Some(values) = element.value().as_document() else {
            return Err(self.refused(&format!("'data.{name}' must be an object")));
        };
        let mut column = Column::default();
        for value in values {
            let row = value.name();
            let number = row.parse().ok().filter(|number: &usize| {
                *number >= column.len() && *number < MAX_ROWS && number.to_string() == row
            });
            let Some(number) = number else {
                let text = format!("'data.{name}' has the key '{row}', which is no next row");
                return Err(self.refused(&text));
            };
            column.extend(&Column::absent(number - column.len()));
            column.push(value.type_byte(), value.data());
        }
        Ok(column)
    }

    fn packed_column(&self, element: RawElement<'_>, count: Option<i64>) -> Result<Column> {
        let name = element.name();
        let RawValue::Binary { subtype: COLUMN, bytes } = element.value() else {
            return Err(self.refused(&format!("'data.{name}' must be binData of subtype 7")));
        };
        let rows = count.and_then(|count| usize::try_from(count).ok());
        let rows = rows.filter(|rows| *rows <= MAX_ROWS).unwrap_or(0);
        // The oplog contains buckets as the store packs them.
        if let Some(column) = Column::decode(bytes, rows) {
            return Ok(column);
        }
        bson_column::decode(bytes, rows)
            .ok_or_else(|| self.refused(&format!("'data.{name}' cannot be unpacked")))
    }

    /// The start, which must be the same in `_id` and `control.min`.
    fn start(&self, id: &[u8; 12], min: RawDoc<'_>) -> Result<i64> {
        let time = &self.series.fields.time;
        let Some(RawValue::Date(start_ms)) = min.get(time) else {
            return Err(self.refused(&format!("'control.min.{time}' must be a date")));
        };
        let seconds = (start_ms.div_euclid(1000) as u32).to_be_bytes();
        if start_ms.rem_euclid(1000) != 0 || id[..4] != seconds {
            let text = format!("'_id' and 'control.min.{time}' are not of the same second");
            return Err(self.refused(&text));
        }
        Ok(start_ms)
    }

    /// Checks that every measurement has a time in the span of the bucket.
    fn check_times(
        &self,
        columns: &[(String, Column)],
        rows: usize,
        start_ms: i64,
        max: RawDoc<'_>,
    ) -> Result<()> {
        let time = &self.series.fields.time;
        let times = columns.iter().find(|(name, _)| name == time).map(|(_, times)| times);
        for row in 0..rows {
            match times.and_then(|times| times.value(row)) {
                Some(RawValue::Date(at)) if self.series.spans(start_ms, at) => {}
                Some(RawValue::Date(_)) => {
                    let text = format!(
                        "'data.{time}' has a value outside of the bucket's span, which begins with 'control.min.{time}' \
                         and is no longer than bucketMaxSpanSeconds"
                    );
                    return Err(self.refused(&text));
                }
                _ => return Err(self.refused(&format!("'data.{time}' must hold dates"))),
            }
        }
        match max.get(time) {
            Some(RawValue::Date(_)) => Ok(()),
            _ => Err(self.refused(&format!("'control.max.{time}' must be a date"))),
        }
    }

    /// Checks that `control.min` and `control.max` contain exactly the fields present, and bound
    /// their values.
    fn check_bounds(
        &self,
        columns: &[(String, Column)],
        min: RawDoc<'_>,
        max: RawDoc<'_>,
    ) -> Result<()> {
        for (side, bounds) in [("min", min), ("max", max)] {
            let mut stated = HashMap::new();
            for bound in bounds {
                if stated.insert(bound.name(), bound.value()).is_some() {
                    let text = format!("'control.{side}' has the field '{}' twice", bound.name());
                    return Err(self.refused(&text));
                }
            }
            for (name, column) in columns {
                let Some(stated) = stated.remove(name.as_str()) else {
                    return Err(self.refused(&format!("'control.{side}.{name}' is missing")));
                };
                let Some((least, most)) = column.bounds() else { continue };
                let value = column.value(if side == "min" { least } else { most });
                let start = side == "min" && *name == self.series.fields.time;
                if !start && value.is_some_and(|value| !bounds_agree(stated, value, column)) {
                    let text = format!("'control.{side}.{name}' is not the {side} of the values");
                    return Err(self.refused(&text));
                }
            }
            if let Some(name) = stated.keys().next() {
                return Err(self.refused(&format!("'control.{side}.{name}' bounds no field")));
            }
        }
        Ok(())
    }
}

/// Whether a stated bound is consistent with the actual smallest or largest value. Bounds of
/// documents and arrays are stated for their parts, so they cannot be compared.
fn bounds_agree(stated: RawValue<'_>, value: RawValue<'_>, column: &Column) -> bool {
    let in_parts = |value: RawValue<'_>| matches!(value.type_byte(), ty::DOCUMENT | ty::ARRAY);
    in_parts(stated)
        || in_parts(value)
        || column.has_arrays()
        || compare_values(stated, value).is_eq()
}

#[cfg(test)]
mod tests {
    use mayfly_value::arbitrary::any_document;
    use mayfly_value::validate;
    use proptest::prelude::*;

    use super::*;

    fn series() -> TimeSeries {
        let mut options = DocBuilder::new();
        options.start_document("timeseries").append("timeField", "t").append("metaField", "m");
        options.end();
        TimeSeries::from_options(options.finish().as_doc()).unwrap()
    }

    /// A bucket of these measurements at intervals of a second.
    fn bucket(measurements: &[DocBuf]) -> Bucket {
        let mut bucket = Bucket::new(1_800_000_000_000, 7, Some(RawValue::Int32(1)));
        for (at, fields) in (0..).zip(measurements) {
            let mut measurement = DocBuilder::new();
            measurement.append("t", RawValue::Date(1_800_000_000_000 + 1000 * at));
            let mut known = HashSet::from(["t", "m"]);
            for element in fields.as_doc().iter().filter(|element| known.insert(element.name())) {
                measurement.append_element(element);
            }
            bucket.push(measurement.finish().as_doc(), Some("m"));
        }
        bucket
    }

    /// The bucket with its columns in the format of version 1.
    fn unpacked(bucket: &Bucket) -> DocBuf {
        let stored = bucket.document(&series().fields);
        let shown = shown_bucket(stored.as_doc(), &series().fields).unwrap();
        let mut out = DocBuilder::new();
        for element in shown.as_doc() {
            match element.name() {
                "control" => {
                    out.start_document("control").append("version", 1);
                    let control = element.value().as_document().unwrap();
                    for bound in ["min", "max"] {
                        out.append_element(control.get_element(bound).unwrap());
                    }
                    out.end();
                }
                "data" => {
                    out.start_document("data");
                    for (name, column) in bucket.columns() {
                        out.start_document(name);
                        for row in 0..column.len() {
                            if let Some(value) = column.value(row) {
                                out.append(&row.to_string(), value);
                            }
                        }
                        out.end();
                    }
                    out.end();
                }
                _ => {
                    out.append_element(element);
                }
            }
        }
        out.finish()
    }

    fn restored(document: RawDoc<'_>) -> Result<DocBuf> {
        let series = series();
        let bucket = RestoredBucketParser { document, series: &series }.bucket()?;
        Ok(bucket.document(&series.fields))
    }

    proptest! {
        #[test]
        fn exported_buckets_are_restored(fields in prop::collection::vec(any_document(), 1..8)) {
            let bucket = bucket(&fields);
            let stored = bucket.document(&series().fields);
            let shown = shown_bucket(stored.as_doc(), &series().fields).unwrap();
            for form in [&shown, &unpacked(&bucket), &stored] {
                prop_assert_eq!(&restored(form.as_doc()).unwrap(), &stored);
            }
        }

        #[test]
        fn a_damaged_bucket_is_refused_or_holds_as_many_measurements(
            fields in prop::collection::vec(any_document(), 1..5),
            place in any::<prop::sample::Index>(),
            byte in any::<u8>(),
        ) {
            let bucket = bucket(&fields);
            let stored = bucket.document(&series().fields);
            let shown = shown_bucket(stored.as_doc(), &series().fields).unwrap();
            for form in [shown, unpacked(&bucket)] {
                let mut bytes = form.into_bytes();
                let at = place.index(bytes.len());
                bytes[at] = byte;
                let Ok(document) = validate(&bytes, 100) else { continue };
                if let Ok(restored) = restored(document) {
                    let rows = BucketView::new(restored.as_doc()).unwrap().rows();
                    prop_assert_eq!(rows, fields.len());
                }
            }
        }
    }
}
