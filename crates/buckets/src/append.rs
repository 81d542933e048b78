//! Appending to a packed bucket without unpacking it.
//!
//! A column is a sequence of runs, so new values are appended as further runs. Each append costs a
//! few bytes more than packing all values together; after some of them, and when the bucket is
//! full, the bucket is repacked.

use mayfly_base::Result;
use mayfly_value::{DocBuf, DocBuilder, Finder, RawDoc, RawElement, RawValue, compare_values};

use crate::bucket::{Bucket, BucketView, COLUMN, MAX_MEASUREMENTS};
use crate::column::Column;
use crate::fields::MeasurementFields;

/// Appends after which a bucket is repacked.
const MAX_ADDITIONS: usize = 24;

/// The size of a packed bucket that only grows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Packed {
    /// Number of measurements.
    pub rows: usize,
    /// Bytes of their values.
    pub bytes: usize,
    /// Number of appends since it was packed.
    pub additions: usize,
}

impl Packed {
    /// Whether to repack everything instead of appending this many measurements.
    fn needs_repacking(self, added: usize) -> bool {
        self.additions + 1 >= MAX_ADDITIONS
            || added * 2 >= self.rows
            || self.rows + added >= MAX_MEASUREMENTS
    }
}

/// Appends measurements to a bucket's document. Returns the new document and its size.
///
/// # Errors
/// 301 DataCorruptionDetected.
pub fn packed_with(
    old: RawDoc<'_>,
    before: Packed,
    added: &Bucket,
    fields: &MeasurementFields,
) -> Result<(DocBuf, Packed)> {
    let view = BucketView::new(old)?;
    let (rows, bytes) = (before.rows + added.rows(), before.bytes + added.bytes());
    if before.needs_repacking(added.rows()) {
        let mut whole = Bucket::open(view, fields)?;
        whole.extend(added);
        return Ok((whole.document(fields), Packed { rows, bytes, additions: 0 }));
    }
    let packed = Packed { rows, bytes, additions: before.additions + 1 };
    Ok((appended(old, view, added, fields), packed))
}

fn appended(
    old: RawDoc<'_>,
    view: BucketView<'_>,
    added: &Bucket,
    fields: &MeasurementFields,
) -> DocBuf {
    let mut fresh = DocBuilder::new();
    added.append_bounds(&mut fresh, fields);
    let fresh = fresh.finish();
    let mut out = DocBuilder::in_buffer(Vec::with_capacity(old.as_bytes().len() + 256));
    for element in old {
        match element.name() {
            "control" => append_control(&mut out, view, fresh.as_doc(), added, fields),
            "data" => {
                out.start_document("data");
                append_columns(&mut out, view, added);
                out.end();
            }
            _ => {
                out.append_element(element);
            }
        }
    }
    out.finish()
}

fn part<'a>(document: RawDoc<'a>, name: &str) -> RawDoc<'a> {
    document.get(name).and_then(RawValue::as_document).unwrap_or(RawDoc::EMPTY)
}

fn append_control(
    out: &mut DocBuilder,
    view: BucketView<'_>,
    fresh: RawDoc<'_>,
    added: &Bucket,
    fields: &MeasurementFields,
) {
    let control = view.control();
    let latest = view.bounds(&fields.time).map(|(_, latest)| latest);
    let in_order = matches!(
        (latest, added.earliest(fields)),
        (Some(RawValue::Date(latest)), Some(earliest)) if latest <= earliest
    );
    let was = control.get("version");
    let both = in_order && was == Some(RawValue::Int32(2));
    let version = if both && added.is_sorted(fields) { 2 } else { 3 };
    out.start_document("control").append("version", version);
    for (side, largest) in [("min", false), ("max", true)] {
        let (old, new) = (part(control, side), part(fresh, side));
        let (olds, news) = (Finder::new(old), Finder::new(new));
        out.start_document(side);
        for element in old {
            // The start of a bucket never changes.
            let fixed = !largest && element.name() == fields.time;
            let other = news.get_element(new, element.name()).filter(|_| !fixed);
            out.append_element(extreme(element, other, largest));
        }
        for element in new.iter().filter(|new| olds.get_element(old, new.name()).is_none()) {
            out.append_element(element);
        }
        out.end();
    }
    out.append("count", (view.rows() + added.rows()) as i32);
    if let Some(closed) = control.get_element("closed") {
        out.append_element(closed);
    }
    out.end();
}

/// The smaller or the larger of two values.
fn extreme<'a>(old: RawElement<'a>, new: Option<RawElement<'a>>, largest: bool) -> RawElement<'a> {
    let Some(new) = new else { return old };
    let order = compare_values(new.value(), old.value());
    if largest && order.is_gt() || !largest && order.is_lt() { new } else { old }
}

fn append_columns(out: &mut DocBuilder, view: BucketView<'_>, added: &Bucket) {
    let mut put = |name: &str, bytes: &[u8]| {
        out.append(name, RawValue::Binary { subtype: COLUMN, bytes });
    };
    for element in view.data() {
        let RawValue::Binary { bytes, .. } = element.value() else { continue };
        let mut bytes = bytes.to_vec();
        match added.column_named(element.name()) {
            Some(column) => column.encode_runs(&mut bytes),
            None => Column::absent(added.rows()).encode_runs(&mut bytes),
        }
        put(element.name(), &bytes);
    }
    let there = Finder::new(view.data());
    for (name, column) in added.columns() {
        if there.get_element(view.data(), name).is_none() {
            let mut bytes = Column::absent(view.rows()).encode();
            column.encode_runs(&mut bytes);
            put(name, &bytes);
        }
    }
}
