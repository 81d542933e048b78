//! Time series in `create` and `collMod`. Expiry contract, sections 7.1 and 7.4; manual: "create",
//! "timeseries", "collMod", "timeseries".

use mayfly_base::{Error, ErrorCode, Namespace, Result};
use mayfly_buckets::{MeasurementFields, TimeSeries};
use mayfly_storage::policy::value::expire_after_for_collection;
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue};

use super::options::{Defining, collation, invalid, policy};
use crate::context::CommandContext;
use crate::request::Fields;

/// Options that a time series cannot have.
const INCOMPATIBLE: &[&str] = &[
    "capped",
    "size",
    "max",
    "validator",
    "validationLevel",
    "validationAction",
    "idIndex",
    "autoIndexId",
    "viewOn",
    "pipeline",
    "clusteredIndex",
    "changeStreamPreAndPostImages",
];

/// Creates a time series.
///
/// # Errors
/// 72, 2, 14, 40414, 40415 for its options; 48 NamespaceExists if the name is taken.
pub(super) fn create(
    ctx: &CommandContext<'_>,
    fields: &Fields<'_>,
    given: RawDoc<'_>,
    defining: &Defining<'_>,
) -> Result<()> {
    let ns = defining.ns;
    for name in INCOMPATIBLE.iter().filter(|name| fields.get(name).is_some()) {
        if *name == "clusteredIndex" || fields.get(name) != Some(RawValue::Bool(false)) {
            return Err(invalid(format!("'timeseries' is not allowed with '{name}'")));
        }
    }
    let series = TimeSeries::parse(given, "create.timeseries")?;
    let mut options = DocBuilder::new();
    if let Some(value) = fields.get("expireAfterSeconds") {
        let seconds = expire_after_for_collection(value, defining.now_ms, defining.rules)?;
        options.append("expireAfterSeconds", seconds);
    }
    options.append("timeseries", &series.document());
    policy(fields, &mut options)?;
    collation(fields, &mut options)?;
    if let Some(ttl) = fields.get("ttl") {
        ctx.service.store.check_collection_policy(ttl, true)?;
    }
    let options = options.finish();
    let store = &ctx.service.store;
    let Some(buckets) = TimeSeries::buckets_of(ns) else {
        let text = format!("Fully qualified namespace is too long: '{ns}'");
        return Err(Error::new(ErrorCode::InvalidNamespace, text));
    };
    if let Some((existing, _)) = store.time_series_named(ctx.store.view, ns) {
        return match existing.options() == options {
            true => Ok(()),
            false => Err(exists(ns)),
        };
    }
    if store.collection(ctx.store.view, ns).is_some() || store.view(ctx.store.view, ns)?.is_some() {
        return Err(exists(ns));
    }
    let created = match defining.uuid {
        Some(uuid) => store.create_collection_as(ctx.store.view, &buckets, options, uuid),
        None => store.create_collection(ctx.store.view, &buckets, options),
    };
    match created {
        Err(error) if error.code() == ErrorCode::NamespaceExists => Err(exists(ns)),
        other => other.map(|_| ()),
    }
}

fn exists(ns: &Namespace) -> Error {
    Error::new(ErrorCode::NamespaceExists, format!("Collection {ns} already exists."))
}

/// The options after `collMod: { timeseries: { ... } }`, which can only increase the spans.
///
/// # Errors
/// 72 for smaller spans; errors of the fields.
pub(super) fn changed(old: RawDoc<'_>, series: &TimeSeries, given: RawDoc<'_>) -> Result<DocBuf> {
    let new = series.grown(given)?;
    let mut out = DocBuilder::new();
    for element in old {
        match element.name() {
            "timeseries" => out.append("timeseries", &new.document()),
            _ => out.append_element(element),
        };
    }
    Ok(out.finish())
}

/// Translates the definition of an index on buckets to one on measurements: its `originalSpec`, or
/// a translation of its key.
///
/// # Errors
/// 67 CannotCreateIndex for a key that an index on measurements cannot have, 238 for a filter on
/// buckets.
pub(super) fn on_measurements(spec: RawDoc<'_>, fields: &MeasurementFields) -> Result<DocBuf> {
    if let Some(RawValue::Document(original)) = spec.get("originalSpec") {
        return Ok(original.to_owned());
    }
    if spec.get("partialFilterExpression").is_some() {
        return Err(Error::not_implemented(
            "a partial index on buckets without its 'originalSpec'",
        ));
    }
    let mut out = DocBuilder::new();
    for element in spec {
        match (element.name(), element.value()) {
            ("key", RawValue::Document(key)) => {
                out.start_document("key");
                append_measurement_key(key, fields, &mut out)?;
                out.end();
            }
            _ => {
                out.append_element(element);
            }
        }
    }
    Ok(out.finish())
}

fn append_measurement_key(
    key: RawDoc<'_>,
    fields: &MeasurementFields,
    out: &mut DocBuilder,
) -> Result<()> {
    let refused = |name: &str| {
        let text = format!("The field '{name}' of a bucket has no index of its own");
        Error::new(ErrorCode::CannotCreateIndex, text)
    };
    let bound = |name: &str| {
        let sides = ["control.min.", "control.max."].into_iter();
        sides
            .enumerate()
            .find_map(|(side, prefix)| Some((side, name.strip_prefix(prefix)?.to_owned())))
    };
    let mut parts = key.iter();
    while let Some(part) = parts.next() {
        let name = part.name();
        if let Some((side, field)) = bound(name) {
            // Both bounds of a field are adjacent; the sort order decides which one is first.
            let pair = parts.next().and_then(|next| bound(next.name()));
            if pair != Some((1 - side, field.clone())) {
                return Err(refused(name));
            }
            out.append_renamed(field.as_bytes(), part);
            continue;
        }
        let below = name.strip_prefix("meta").filter(|it| it.is_empty() || it.starts_with('.'));
        let (Some(meta), Some(below)) = (&fields.meta, below) else { return Err(refused(name)) };
        out.append_renamed(format!("{meta}{below}").as_bytes(), part);
    }
    Ok(())
}
