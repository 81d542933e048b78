//! Indexes of a time series: the definition over measurements, which clients see, and the one over
//! buckets. The latter has the paths of [`MeasurementFields`], and contains the former as
//! `originalSpec`.

use mayfly_base::{Error, ErrorCode, Result, limits::MAX_FILTER_DEPTH};
use mayfly_buckets::MeasurementFields;
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue};

use crate::index::FilterCompiler;
use crate::index::kinds::{FieldKind, OverMeasurements};
use crate::index::spec::IndexSpec;
use crate::policy::TtlOptions;

/// The default index of a time series with a meta field.
pub(crate) fn default_index(fields: &MeasurementFields) -> Result<Option<IndexSpec>> {
    let Some(meta) = &fields.meta else { return Ok(None) };
    let mut asked = DocBuilder::new();
    asked.append("v", 2).start_document("key").append(meta, 1).append(&fields.time, 1).end();
    asked.append("name", format!("{meta}_1_{}_1", fields.time).as_str());
    let spec = IndexSpec::from_catalog(on_buckets(asked.finish().as_doc(), fields))?;
    Ok(Some(spec.without_own_collation()))
}

/// The definition over buckets for a checked definition over measurements.
pub(crate) fn on_buckets(asked: RawDoc<'_>, fields: &MeasurementFields) -> DocBuf {
    let mut out = DocBuilder::new();
    for element in asked {
        match (element.name(), element.value()) {
            ("key", RawValue::Document(key)) => {
                out.start_document("key");
                for field in key {
                    fields.append_key_on_buckets(&mut out, field.name(), field.value());
                }
                out.end();
            }
            ("partialFilterExpression", RawValue::Document(filter)) => {
                // An index by other fields contains all buckets, and thus those that may have
                // matching measurements.
                if only_meta(filter, fields, 0) {
                    let renamed = fields.filter_on_bucket_meta(filter);
                    out.append("partialFilterExpression", &renamed);
                }
            }
            _ => {
                out.append_element(element);
            }
        }
    }
    out.append("originalSpec", asked);
    out.finish()
}

/// Checks a requested definition, and returns the one over buckets. Expiry contract, section 1.5.
///
/// # Errors
/// 72, 67, 85, 5916301 and 7246201 for kinds, policies and filters that a time series cannot have.
pub(crate) fn checked_on_buckets(
    asked: &IndexSpec,
    fields: &MeasurementFields,
    filters: &dyn FilterCompiler,
) -> Result<IndexSpec> {
    let invalid = |text: &str| Err(Error::new(ErrorCode::InvalidOptions, text));
    check_policy(asked.ttl_options())?;
    if asked.unique() {
        return invalid("Unique indexes are not supported on time-series collections");
    }
    let mut paths = asked.document().get("sparse").into_iter().flat_map(|_| asked.fields());
    if paths.any(|field| field.path != fields.time && fields.on_bucket_meta(&field.path).is_none())
    {
        return invalid("Sparse indexes are not supported on time-series measurements");
    }
    check_kind(asked, fields)?;
    let filter = asked.partial_filter();
    let collated = !asked.inherits();
    if let Some(filter) = filter.filter(|_| !collated) {
        filters.check_over_measurements(filter, fields)?;
    }
    let on_meta = filter.is_some_and(|filter| only_meta(filter, fields, 0));
    if asked.expire_after().is_some() {
        let by_time = matches!(asked.fields(), [field] if field.path == fields.time);
        if !by_time {
            return invalid(
                "TTL indexes on non-time fields are not supported on time-series collections",
            );
        }
        if !on_meta {
            return invalid(
                "TTL indexes on time-series collections require a partialFilterExpression on the metaField",
            );
        }
    }
    if filter.is_some() && collated {
        return Err(Error::new(
            ErrorCode::IndexOptionsConflict,
            "On a time-series collection, partialFilterExpression and collation arguments are incompatible",
        ));
    }
    let spec = IndexSpec::from_catalog(on_buckets(asked.document(), fields))?;
    Ok(if asked.inherits() { spec.without_own_collation() } else { spec })
}

/// Buckets contain the meta field unchanged, so any kind of index may be on it unless the reference
/// refuses the kind.
fn check_kind(asked: &IndexSpec, fields: &MeasurementFields) -> Result<()> {
    let Some(row) = asked.kind().row() else { return Ok(()) };
    let mut special = asked
        .fields()
        .iter()
        .filter(|field| !matches!(field.kind, FieldKind::Ordered | FieldKind::Path));
    let code = match row.over_measurements {
        OverMeasurements::Anywhere if special.any(|field| field.path == fields.time) => {
            let text = "Indexes on the time field must be ascending or descending (numbers only)";
            return Err(Error::new(ErrorCode::CannotCreateIndex, text));
        }
        OverMeasurements::Anywhere => return Ok(()),
        OverMeasurements::OnMeta(code) => code,
        OverMeasurements::Never(indexes) => {
            let text = format!("{indexes} are not supported on time-series collections");
            return Err(Error::new(ErrorCode::InvalidOptions, text));
        }
    };
    match special.all(|field| fields.on_bucket_meta(&field.path).is_some()) {
        true => Ok(()),
        false => {
            let text =
                format!("{} indexes of a time series can only be on its meta field", row.name);
            Err(Error::new(code, text))
        }
    }
}

/// Checks a policy of a time series. It deletes whole buckets: it may have a pace, but not options
/// that need single measurements.
///
/// # Errors
/// 72 InvalidOptions.
pub(crate) fn check_policy(ttl: &TtlOptions) -> Result<()> {
    match ttl.needs_documents() {
        false => Ok(()),
        true => Err(Error::new(
            ErrorCode::InvalidOptions,
            "'ttl.hideExpired', 'ttl.archive' and 'ttl.holdField' are not supported on time-series collections",
        )),
    }
}

/// Whether a filter uses the meta field only.
fn only_meta(filter: RawDoc<'_>, fields: &MeasurementFields, depth: usize) -> bool {
    depth < MAX_FILTER_DEPTH
        && !filter.is_empty()
        && filter.iter().all(|element| match (element.name(), element.value()) {
            ("$and" | "$or", RawValue::Array(parts)) => parts.iter().all(|part| {
                part.value().as_document().is_some_and(|part| only_meta(part, fields, depth + 1))
            }),
            (name, _) => fields.on_bucket_meta(name).is_some(),
        })
}

/// A definition over buckets as clients of the measurements see it.
pub fn listed_for_clients(spec: &IndexSpec) -> Option<DocBuf> {
    let asked = spec.document().get("originalSpec")?.as_document()?;
    let mut out = DocBuilder::new();
    for element in asked.iter().filter(|element| element.name() != "hidden") {
        out.append_element(element);
    }
    if spec.hidden() {
        out.append("hidden", true);
    }
    if let (Some(collation), None) = (spec.collation(), asked.get("collation")) {
        out.append("collation", collation.document());
    }
    Some(out.finish())
}
