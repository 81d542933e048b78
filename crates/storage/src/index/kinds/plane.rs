//! Indexes of the kind `2d`: legacy coordinate pairs on a plane, followed by ordinary fields
//! (manual, "2d Indexes").
//!
//! An entry contains the number of the pair's cell in a grid. A document without pairs has no
//! entry.

use mayfly_value::arguments::error::mistyped;
use std::sync::Arc;

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_geo::{Grid, legacy_pair};
use mayfly_value::shell::Shell;
use mayfly_value::{Collation, RawDoc, RawValue, ValueBuf};

use super::sphere::{combined, ordinary_values, places};
use super::{
    FieldKind, IndexKind, KindCount, KindRow, Maintenance, Mark, OptionForm, OtherOptions,
    OverMeasurements, Requested,
};
use crate::index::keygen::KeySet;
use crate::index::spec::{IndexField, IndexSpec};
use crate::policy::value::as_f64;
use crate::record::Record;

pub(super) const ROW: KindRow = KindRow {
    name: "2d",
    mark: Mark::Value,
    field: FieldKind::Plane,
    options: &[
        OptionForm::Number.option("bits"),
        OptionForm::Number.option("min"),
        OptionForm::Number.option("max"),
    ],
    other_options: OtherOptions::Same,
    over_measurements: OverMeasurements::OnMeta(ErrorCode::CannotCreateIndex),
    count: KindCount::Any,
    maintenance: Maintenance::Writes,
    request,
    from_catalog: |spec, _| Ok(Arc::new(PlaneIndex::from_catalog(spec)?)),
};

/// The compiled definition of a `2d` index.
#[derive(Clone, Copy, Debug)]
pub struct PlaneIndex {
    /// The grid whose cells are indexed.
    pub grid: Grid,
}

/// Checks a requested definition.
///
/// # Errors
/// 16800 and 16801 for a field at a wrong position, 72 for an invalid grid.
fn request(raw: RawDoc<'_>, key: RawDoc<'_>) -> Result<Requested> {
    let kinds = || key.iter().map(|element| FieldKind::of(element.name(), element.value()));
    if kinds().filter(|kind| *kind == Some(FieldKind::Plane)).count() > 1 {
        return Err(Error::new(ErrorCode(16800), "can't have 2 geo fields"));
    }
    if kinds().any(|kind| !matches!(kind, Some(FieldKind::Plane | FieldKind::Ordered))) {
        return Err(super::cannot_create(
            "Can't use more than one index plugin for a single index.",
        ));
    }
    if kinds().next() != Some(Some(FieldKind::Plane)) {
        return Err(Error::new(ErrorCode(16801), "2d has to be first in index"));
    }
    if let Some(RawValue::Document(collation)) = raw.get("collation") {
        check_collation(Collation::parse(collation, "collation")?.as_deref())?;
    }
    grid(raw)?;
    let mut requested = Requested::default();
    for element in raw.iter().filter(|element| ROW.option(element.name()).is_some()) {
        requested.options.append_element(element);
    }
    Ok(requested)
}

/// Only the simple collation is supported (manual, "2d Indexes").
///
/// # Errors
/// 67 CannotCreateIndex for another one.
fn check_collation(collation: Option<&Collation>) -> Result<()> {
    match collation {
        None => Ok(()),
        Some(other) => Err(super::cannot_create(format!(
            "Index type '2d' does not support collation: {}",
            Shell(other.document())
        ))),
    }
}

fn grid(raw: RawDoc<'_>) -> Result<Grid> {
    let fault = |text: String| Err(Error::new(ErrorCode::InvalidOptions, text));
    let option = |name: &str, default: f64| match raw.get(name) {
        None => Ok(default),
        Some(value) => as_f64(value).ok_or_else(|| {
            let kind = value.type_name();
            mistyped(format!("The field '{name}' must be a number, but got {kind}"))
        }),
    };
    let (bits, min, max) = (option("bits", 26.0)?, option("min", -180.0)?, option("max", 180.0)?);
    if !(1.0..=32.0).contains(&bits) {
        let bits = bits.trunc();
        return fault(format!(
            "bits for hash must be > 0 and <= 32, but {bits} bits were specified"
        ));
    }
    let extent = max - min;
    if extent.is_nan() || extent <= 0.0 || extent.is_infinite() {
        return fault(format!(
            "region for hash must be valid and have positive area, but [{min}, {max}] was specified"
        ));
    }
    Ok(Grid { bits: bits as u32, min, max })
}

impl IndexKind for PlaneIndex {
    fn row(&self) -> &'static KindRow {
        &ROW
    }

    fn check_in_collection(&self, spec: &IndexSpec) -> Result<()> {
        check_collation(spec.collation().map(|collation| &**collation))
    }

    fn keys(&self, spec: &IndexSpec, record: Record<'_>, out: &mut KeySet) -> Result<()> {
        let document = record.document;
        let Some((first, others)) = spec.fields().split_first() else { return Ok(()) };
        let squares = self.squares(first, document)?;
        if squares.is_empty() {
            return Ok(());
        }
        let mut columns = vec![squares];
        for (at, field) in others.iter().enumerate() {
            columns.push(ordinary_values(at + 1, field, document, out));
        }
        combined(spec, &columns, out)
    }
}

impl PlaneIndex {
    /// Reads the definition in the catalog.
    fn from_catalog(spec: RawDoc<'_>) -> Result<PlaneIndex> {
        Ok(PlaneIndex { grid: grid(spec)? })
    }

    /// The cells of a field's pairs; the field is a pair or an array of pairs.
    fn squares(&self, field: &IndexField, document: RawDoc<'_>) -> Result<Vec<ValueBuf>> {
        let mut numbers = Vec::new();
        for value in places(document, &field.parts) {
            let (RawValue::Array(inner) | RawValue::Document(inner)) = value else { continue };
            if inner.is_empty() {
                continue;
            }
            if inner.iter().next().is_some_and(|item| item.value().is_number()) {
                numbers.push(self.square(value)?);
                continue;
            }
            for item in inner {
                match item.value() {
                    RawValue::Array(pair) | RawValue::Document(pair) if pair.is_empty() => {}
                    pair @ (RawValue::Array(_) | RawValue::Document(_)) => {
                        numbers.push(self.square(pair)?);
                    }
                    _ => {
                        return Err(Error::new(
                            ErrorCode(16804),
                            "location object expected, location array not in correct format",
                        ));
                    }
                }
            }
        }
        numbers.sort_unstable();
        numbers.dedup();
        Ok(numbers.into_iter().map(|number| square_value(number).to_owned()).collect())
    }

    fn square(&self, value: RawValue<'_>) -> Result<u64> {
        let (RawValue::Array(items) | RawValue::Document(items)) = value else { return Ok(0) };
        if items.iter().count() < 2 {
            return Err(Error::new(ErrorCode(13068), "geo field only has 1 element"));
        }
        if items.iter().take(2).any(|item| !item.value().is_number()) {
            return Err(Error::new(
                ErrorCode(13026),
                "geo values must be 'legacy coordinate pairs' for 2d indexes",
            ));
        }
        match legacy_pair(value) {
            Ok(pair) => self.grid.number(pair),
            // An infinite coordinate is in no interval.
            Err(_) => Err(Error::new(
                ErrorCode(13027),
                format!("point not in interval of [ {}, {} ]", self.grid.min, self.grid.max),
            )),
        }
    }
}

/// The value of an entry for the cell of this number. Values have the order of the numbers.
pub fn square_value(number: u64) -> RawValue<'static> {
    RawValue::Int64((number ^ (1 << 63)) as i64)
}
