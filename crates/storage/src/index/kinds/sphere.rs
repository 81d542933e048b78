//! Indexes of the kind `2dsphere`: geometries on the earth, next to ordinary fields (manual,
//! "2dsphere Indexes").
//!
//! A geometry has an entry for each of the cells that cover it. A document without any of the
//! indexed geometry fields has no entry; one with an invalid value in such a field is refused.

use std::ops::ControlFlow;

use std::sync::Arc;

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_geo::{Crs, Geometry, index_cells, is_bad};
use mayfly_value::keys;
use mayfly_value::paths::{Hit, LeafArrays, visit_path_with};
use mayfly_value::shell::{Shell, ShellValue};
use mayfly_value::{RawDoc, RawValue, SortOrder, ValueBuf};
use mayfly_work::current::spend;

use super::{
    FieldKind, IndexKind, KindCount, KindRow, Maintenance, Mark, OptionForm, OtherOptions,
    OverMeasurements, Requested, cannot_create, wrong_type,
};
use crate::index::keygen::{KeySet, MAX_KEYS_PER_DOCUMENT, values_of};
use crate::index::spec::{IndexField, IndexSpec};
use crate::policy::value::as_f64;
use crate::record::Record;

pub(super) const ROW: KindRow = KindRow {
    name: "2dsphere",
    mark: Mark::Value,
    field: FieldKind::Sphere,
    options: &[
        OptionForm::Number.option("2dsphereIndexVersion"),
        OptionForm::Number.option(COARSEST),
        OptionForm::Number.option(FINEST),
    ],
    other_options: OtherOptions::Same,
    over_measurements: OverMeasurements::Anywhere,
    count: KindCount::Any,
    maintenance: Maintenance::Writes,
    request,
    from_catalog: |_, _| Ok(Arc::new(SphereIndex)),
};

/// Options of old versions: the coarsest and the finest level of cells. They have no effect.
const COARSEST: &str = "coarsestIndexedLevel";
const FINEST: &str = "finestIndexedLevel";

/// The version of new definitions.
const VERSION: i32 = 3;

/// A `2dsphere` index; its definition has only fields.
#[derive(Clone, Debug)]
pub struct SphereIndex;

/// Checks a requested definition.
///
/// # Errors
/// 67 for another version and for other special fields.
fn request(raw: RawDoc<'_>, key: RawDoc<'_>) -> Result<Requested> {
    let mixed = |kind| !matches!(kind, Some(FieldKind::Sphere | FieldKind::Ordered));
    if key.iter().any(|element| mixed(FieldKind::of(element.name(), element.value()))) {
        return Err(cannot_create("Can't use more than one index plugin for a single index."));
    }
    let version = match raw.get_element("2dsphereIndexVersion") {
        None => VERSION,
        Some(element) => match as_f64(element.value()) {
            Some(version @ (1.0 | 2.0 | 3.0)) => version as i32,
            None => return Err(wrong_type("2dsphereIndexVersion", element.value(), "a number")),
            _ => {
                return Err(cannot_create(format!(
                    "unsupported geo index version {{ 2dsphereIndexVersion: {} }}, only support versions: [1,2,3]",
                    ShellValue(element.value())
                )));
            }
        },
    };
    let mut requested = Requested::default();
    requested.options.append("2dsphereIndexVersion", version);
    check_levels(raw)?;
    for option in raw.iter().filter(|option| [COARSEST, FINEST].contains(&option.name())) {
        requested.options.append_element(option);
    }
    Ok(requested)
}

/// Checks the levels of cells.
///
/// # Errors
/// 14 TypeMismatch; 16747, 16748 and 16749 for levels that do not exist.
fn check_levels(raw: RawDoc<'_>) -> Result<()> {
    let level = |name: &str, default: f64| match raw.get(name) {
        None => Ok(default),
        Some(value) => as_f64(value).ok_or_else(|| wrong_type(name, value, "a number")),
    };
    let (coarsest, finest) = (level(COARSEST, 0.0)?, level(FINEST, 30.0)?);
    let refuse = |code, text: &str| Err(Error::new(ErrorCode(code), text));
    if coarsest < 0.0 {
        return refuse(16747, "coarsestIndexedLevel must be >= 0");
    }
    if finest > 30.0 {
        return refuse(16748, "finestIndexedLevel must be <= 30");
    }
    if finest < coarsest {
        return refuse(16749, "finestIndexedLevel must be >= coarsestIndexedLevel");
    }
    Ok(())
}

impl IndexKind for SphereIndex {
    fn row(&self) -> &'static KindRow {
        &ROW
    }

    fn keys(&self, spec: &IndexSpec, record: Record<'_>, out: &mut KeySet) -> Result<()> {
        let document = record.document;
        let mut columns = Vec::with_capacity(spec.fields().len());
        let mut has_place = false;
        for (at, field) in spec.fields().iter().enumerate() {
            columns.push(match field.kind {
                FieldKind::Sphere => {
                    let cells = cells(field, document)?;
                    has_place |= cells.is_some();
                    cells.unwrap_or_else(|| vec![RawValue::Null.to_owned()])
                }
                _ => ordinary_values(at, field, document, out),
            });
        }
        if has_place { combined(spec, &columns, out) } else { Ok(()) }
    }
}

/// The cells of a field's geometries; `None` when it has none.
fn cells(field: &IndexField, document: RawDoc<'_>) -> Result<Option<Vec<ValueBuf>>> {
    let values = places(document, &field.parts);
    let is_none = |value: RawValue<'_>| match value {
        RawValue::Null | RawValue::Undefined => true,
        RawValue::Array(inner) | RawValue::Document(inner) => inner.is_empty(),
        _ => false,
    };
    if values.is_empty() || values.len() == 1 && is_none(values[0]) {
        return Ok(None);
    }
    let name = field.parts.last().map_or("", String::as_str);
    let mut cells = Vec::new();
    for value in values {
        let cells_of = |geometry: Geometry| match (geometry.crs(), geometry.shape()) {
            (Crs::StrictSphere, _) => {
                Err(Error::bad_value("can't index geometry with strict winding order"))
            }
            (_, Some(shape)) => Ok(index_cells(shape)),
            (_, None) => {
                let (x, y) = geometry.pair().map_or((0.0, 0.0), |pair| (pair.x, pair.y));
                let text = format!("Longitude/latitude is out of bounds, lng: {x} lat: {y}");
                Err(Error::bad_value(text))
            }
        };
        let found = Geometry::parse_named(name, value).and_then(cells_of);
        if found.is_err() {
            // The operation's limits may be the cause.
            spend(usize::MAX)?;
        }
        let found = found.map_err(|error| {
            if !is_bad(&error) {
                return error;
            }
            let text = format!("Can't extract geo keys: {}  {}", Shell(document), error.message());
            Error::new(ErrorCode(16755), text)
        })?;
        cells.extend(found);
    }
    cells.sort_unstable();
    cells.dedup();
    Ok(Some(cells.into_iter().map(|cell| RawValue::Int64(cell).to_owned()).collect()))
}

/// The values at a path. Arrays on the way are expanded; an array at the end is kept, because it
/// may be a pair.
pub(super) fn places<'a>(document: RawDoc<'a>, parts: &[String]) -> Vec<RawValue<'a>> {
    let mut values = Vec::new();
    let _ = visit_path_with(document, parts, LeafArrays::Keep, &mut |hit| {
        if let Hit::Value(value, _) = hit {
            values.push(value);
        }
        ControlFlow::Continue(())
    });
    values
}

/// The values of the ordinary field at this position of the key.
pub(super) fn ordinary_values(
    at: usize,
    field: &IndexField,
    document: RawDoc<'_>,
    out: &mut KeySet,
) -> Vec<ValueBuf> {
    let (values, arrays) = values_of(document, field);
    out.multikey |= u32::from(arrays) << at;
    values.into_iter().map(RawValue::to_owned).collect()
}

/// Adds an entry for each combination of values.
pub(super) fn combined(
    spec: &IndexSpec,
    columns: &[Vec<ValueBuf>],
    out: &mut KeySet,
) -> Result<()> {
    let count = columns.iter().map(Vec::len).try_fold(1usize, usize::checked_mul);
    let count = count.filter(|count| *count <= MAX_KEYS_PER_DOCUMENT).ok_or_else(|| {
        let most = MAX_KEYS_PER_DOCUMENT;
        let text = format!("a document may have at most {most} keys in one index");
        Error::new(ErrorCode::TransactionTooLarge, text)
    })?;
    let collation = spec.collation().map(|collation| &**collation);
    for (at, _) in columns.iter().enumerate().filter(|(_, column)| column.len() > 1) {
        out.multikey |= 1 << at;
    }
    for row in 0..count {
        let mut rest = row;
        out.push(|key, bits| {
            for (field, column) in spec.fields().iter().zip(columns) {
                let value = column[rest % column.len()].as_raw();
                rest /= column.len();
                match field.kind {
                    FieldKind::Ordered => {
                        keys::append_value_in(key, bits, value, field.order, collation);
                    }
                    _ => keys::append_value(key, bits, value, SortOrder::Ascending),
                }
            }
        });
    }
    Ok(())
}
