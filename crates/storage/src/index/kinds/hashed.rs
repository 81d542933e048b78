//! Hashed indexes: entries are hashes of one field's values, next to ordinary fields (manual,
//! "Hashed Indexes").
//!
//! Equal values of different numeric types have the same hash, so a scan for one finds the others;
//! the filter decides.

use std::sync::Arc;

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_value::keys::{self, TypeBits};
use mayfly_value::{Collation, RawDoc, RawValue, SortOrder, hashed_key};

use super::{
    FieldKind, IndexKind, KindCount, KindRow, Maintenance, Mark, OtherOptions, OverMeasurements,
    Requested,
};
use crate::index::keygen::KeySet;
use crate::index::spec::{IndexField, IndexSpec};
use crate::record::Record;

pub(super) const ROW: KindRow = KindRow {
    name: "hashed",
    mark: Mark::Value,
    field: FieldKind::Hashed,
    options: &[],
    other_options: OtherOptions::Same,
    over_measurements: OverMeasurements::OnMeta(ErrorCode::CannotCreateIndex),
    count: KindCount::Any,
    maintenance: Maintenance::Writes,
    request,
    from_catalog: |_, _| Ok(Arc::new(HashedIndex)),
};

/// A hashed index; its definition has no options of its own.
#[derive(Clone, Copy, Debug)]
pub struct HashedIndex;

impl IndexKind for HashedIndex {
    fn row(&self) -> &'static KindRow {
        &ROW
    }

    fn keys(&self, spec: &IndexSpec, record: Record<'_>, out: &mut KeySet) -> Result<()> {
        keys(spec, record.document, out)
    }
}

/// Checks a requested definition.
///
/// # Errors
/// 16764 for a unique one, 31303 for several hashed fields, 67 for a key that mixes kinds.
fn request(raw: RawDoc<'_>, key: RawDoc<'_>) -> Result<Requested> {
    let kinds = || key.iter().map(|element| FieldKind::of(element.name(), element.value()));
    let hashed = kinds().filter(|kind| *kind == Some(FieldKind::Hashed)).count();
    if hashed > 1 {
        return Err(Error::new(
            ErrorCode(31303),
            format!(
                "A maximum of one index field is allowed to be hashed but found {hashed} for 'key' {}",
                mayfly_value::shell::Shell(key)
            ),
        ));
    }
    if let Some(RawValue::Bool(true)) = raw.get("unique") {
        return Err(Error::new(
            ErrorCode(16764),
            "Currently hashed indexes cannot guarantee uniqueness. Use a regular index.",
        ));
    }
    let mixed = |kind| !matches!(kind, Some(FieldKind::Hashed | FieldKind::Ordered));
    if kinds().any(mixed) {
        return Err(super::cannot_create(
            "Can't use more than one index plugin for a single index.",
        ));
    }
    Ok(Requested::default())
}

/// The hash of a value under the index's collation.
pub fn hash_in(value: RawValue<'_>, collation: Option<&Collation>) -> i64 {
    match collation {
        Some(_) if Collation::concerns(value) => {
            let mut key = Vec::with_capacity(32);
            keys::append_value_in(
                &mut key,
                &mut TypeBits::default(),
                value,
                SortOrder::Ascending,
                collation,
            );
            hashed_key(RawValue::Binary { subtype: 0, bytes: &key })
        }
        _ => hashed_key(value),
    }
}

/// The key of a document. None of its fields may be an array or lie in one.
fn keys(spec: &IndexSpec, document: RawDoc<'_>, out: &mut KeySet) -> Result<()> {
    let mut values = Vec::with_capacity(spec.fields().len());
    for field in spec.fields() {
        values.push(value_at(document, field)?);
    }
    if spec.sparse() && values.iter().all(Option::is_none) {
        return Ok(());
    }
    let collation = spec.collation().map(|collation| &**collation);
    out.push(|key, bits| {
        for (field, value) in spec.fields().iter().zip(values) {
            let value = value.unwrap_or(RawValue::Null);
            match field.kind {
                FieldKind::Hashed => {
                    let hash = RawValue::Int64(hash_in(value, collation));
                    keys::append_value(key, bits, hash, field.order);
                }
                _ => keys::append_value_in(key, bits, value, field.order, collation),
            }
        }
    });
    Ok(())
}

fn value_at<'a>(document: RawDoc<'a>, field: &IndexField) -> Result<Option<RawValue<'a>>> {
    let mut value = RawValue::Document(document);
    for part in &field.parts {
        value = match value {
            RawValue::Document(inner) => match inner.get(part) {
                Some(next) => next,
                None => return Ok(None),
            },
            RawValue::Array(_) => break,
            _ => return Ok(None),
        };
    }
    match value {
        RawValue::Array(_) => Err(Error::new(
            ErrorCode(16766),
            format!(
                "hashed indexes do not currently support array values. Found array for path: {}",
                field.path
            ),
        )),
        value => Ok(Some(value)),
    }
}
