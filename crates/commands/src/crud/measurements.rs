//! Writes to a time series: measurements instead of documents. Manual: "Time Series Collections".

use std::sync::Arc;

use mayfly_base::{Error, ErrorCode, Namespace, Result, limits};
use mayfly_buckets::{MeasurementFields, TimeSeries, measurement_time};
use mayfly_query::{
    Budget, DeleteSpec, FindAndModifySpec, FoundAndModified, Hint, Image, ModifyOutcome,
    find_and_modify_raw_bucket,
};
use mayfly_storage::{Collection, WriteUnit, is_empty_timestamp};
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue, new_object_id};

use super::insert::{Prepared, too_large};
use super::update::UpdateStatement;
use super::write::DocumentRules;
use super::write::{check_writable, ends_command, was_dropped};
use crate::context::CommandContext;

/// Measurements per unit: enough to pack a bucket once and not several times.
pub(super) const UNIT_MEASUREMENTS: usize = 2000;

/// The time series of this name.
pub(super) fn series_named(
    ctx: &CommandContext<'_>,
    ns: &Namespace,
) -> Option<(Arc<Collection>, Arc<TimeSeries>)> {
    let store = &ctx.service.store;
    if store.collection(ctx.store.view, ns).is_some() {
        None
    } else {
        store.time_series_named(ctx.store.view, ns)
    }
}

/// The time series whose buckets have this name, into which clients restore buckets.
pub(super) fn buckets_named(ctx: &CommandContext<'_>, ns: &Namespace) -> Option<Arc<Collection>> {
    TimeSeries::name_of(ns)?;
    ctx.store.collection(ns).filter(|buckets| buckets.time_series().is_some())
}

/// Refuses namespaces whose documents clients cannot write. The buckets of a time series accept
/// writes, with `rawData` or by their own name. Transactions cannot write to system collections.
///
/// # Errors
/// 73 InvalidNamespace, 50791 for a system collection in a transaction.
pub(super) fn check_changeable(ctx: &CommandContext<'_>, ns: &Namespace) -> Result<()> {
    if buckets_named(ctx, ns).is_some() {
        return Ok(());
    }
    check_writable(ns)?;
    match ctx.store.in_transaction() && ns.collection().starts_with("system.") {
        true => Err(Error::new(
            ErrorCode(50791),
            format!("Cannot write to system collection {ns} within a transaction."),
        )),
        false => Ok(()),
    }
}

/// Inserts whole buckets in one unit.
pub(super) fn restore_all(
    ctx: &CommandContext<'_>,
    ns: &Namespace,
    write: impl Fn(&mut WriteUnit<'_>) -> Result<()>,
) -> Result<()> {
    let mut tries = 0;
    loop {
        // An insert must not create the collection: it would not be a time series.
        let Some(buckets) = buckets_named(ctx, ns) else {
            let text = format!("time series {ns} was dropped");
            return Err(Error::new(ErrorCode::NamespaceNotFound, text));
        };
        match ctx.store.write(&buckets, &write) {
            Err(error) if tries < 10 && was_dropped(ctx.store, &error, &buckets) => tries += 1,
            other => return other,
        }
    }
}

/// Runs a write on buckets as documents. If the time series is dropped concurrently, nothing is
/// found.
pub(super) fn on_raw_buckets<T: Default>(
    ctx: &CommandContext<'_>,
    buckets: &Arc<Collection>,
    write: impl FnOnce() -> Result<T>,
) -> Result<T> {
    match write() {
        Err(error) if was_dropped(ctx.store, &error, buckets) => Ok(T::default()),
        other => other,
    }
}

/// Finds a bucket and updates or removes it.
///
/// # Errors
/// Errors of [`find_and_modify_raw_bucket`].
pub(super) fn find_and_modify_bucket(
    ctx: &CommandContext<'_>,
    buckets: &Arc<Collection>,
    spec: &FindAndModifySpec,
    image: Image,
) -> Result<FoundAndModified> {
    let found = on_raw_buckets(ctx, buckets, || {
        find_and_modify_raw_bucket(ctx.store, buckets, spec, image)
    });
    found.map_err(|error| match ends_command(ctx, &error) {
        true => error,
        false => error.in_context("Plan executor error during findAndModify"),
    })
}

/// Deletes measurements; returns their number.
///
/// # Errors
/// Errors of [`mayfly_query::delete_measurements`].
pub(super) fn delete(
    ctx: &CommandContext<'_>,
    (buckets, series): &(Arc<Collection>, Arc<TimeSeries>),
    mut spec: DeleteSpec,
) -> Result<i64> {
    if let Some(Hint::Key(key)) = &spec.query.hint {
        spec.query.hint = Some(Hint::Key(series.fields.key_on_buckets(key.as_doc())));
    }
    let _store = &ctx.service.store;
    match mayfly_query::delete_measurements(ctx.store, buckets, series, &spec) {
        Err(error) if was_dropped(ctx.store, &error, buckets) => Ok(0),
        other => other,
    }
}

/// Finds a measurement and removes it; single measurements support no other change.
///
/// # Errors
/// 72 for a sort and for updates; errors of [`mayfly_query::find_and_remove_measurement`].
pub(super) fn find_and_modify(
    ctx: &CommandContext<'_>,
    (buckets, series): &(Arc<Collection>, Arc<TimeSeries>),
    spec: &FindAndModifySpec,
) -> Result<FoundAndModified> {
    let invalid = |text: &str| Err(Error::new(ErrorCode::InvalidOptions, text));
    let query = match spec {
        FindAndModifySpec::Remove(spec) => &spec.query,
        FindAndModifySpec::Update(spec) => &spec.query,
    };
    if query.sort.is_some() {
        return invalid("Cannot perform findAndModify with sort on a timeseries collection");
    }
    let FindAndModifySpec::Remove(spec) = spec else {
        return invalid("Cannot perform a non-multi update on a time-series collection");
    };
    let mut query = query.clone();
    if let Some(Hint::Key(key)) = &query.hint {
        query.hint = Some(Hint::Key(series.fields.key_on_buckets(key.as_doc())));
    }
    let (repeatable, budget) = (spec.repeatable, Budget::default());
    let spec = DeleteSpec { query, multi: false, repeatable, budget };
    let _store = &ctx.service.store;
    let found = mayfly_query::find_and_remove_measurement(ctx.store, buckets, series, &spec);
    match found {
        Err(error) if was_dropped(ctx.store, &error, buckets) => Ok(FoundAndModified::default()),
        other => other.map(|before| FoundAndModified { before, ..FoundAndModified::default() }),
    }
}

/// Updates the meta value of all measurements that match a filter on it.
///
/// # Errors
/// 72 for features that a time series does not support.
pub(super) fn update(
    ctx: &CommandContext<'_>,
    (buckets, series): &(Arc<Collection>, Arc<TimeSeries>),
    statement: &UpdateStatement<'_>,
) -> Result<ModifyOutcome> {
    let invalid = |text: &str| Err(Error::new(ErrorCode::InvalidOptions, text));
    if !statement.multi {
        return invalid("Cannot perform a non-multi update on a time-series collection");
    }
    if statement.upsert {
        return invalid("Cannot perform an upsert on a time-series collection");
    }
    let Some(meta) = &series.fields.meta else {
        return invalid(
            "Cannot perform an update on a time-series collection that does not have a metaField",
        );
    };
    let operators = match statement.update {
        RawValue::Document(update)
            if !update.is_empty() && update.iter().all(|field| field.name().starts_with('$')) =>
        {
            update
        }
        RawValue::Document(_) => {
            return invalid(
                "Cannot perform an update on a time-series collection using a replacement document",
            );
        }
        _ => {
            return invalid(
                "Cannot perform an update on a time-series collection using a pipeline update",
            );
        }
    };
    if !only_meta(statement.filter, &series.fields, 0) {
        return invalid(&format!(
            "Cannot perform an update on a time-series collection when querying on a field that is not the metaField '{meta}'"
        ));
    }
    let filter = series.fields.filter_on_bucket_meta(statement.filter);
    let Some(update) = update_on_meta(operators, &series.fields) else {
        return invalid(&format!(
            "Cannot perform an update on a time-series collection which updates a field that is not the metaField '{meta}'"
        ));
    };
    let hint = match &statement.hint {
        Some(Hint::Key(key)) => Some(Hint::Key(series.fields.key_on_buckets(key.as_doc()))),
        other => other.clone(),
    };
    let on_buckets = UpdateStatement {
        encrypted: None,
        filter: filter.as_doc(),
        update: RawValue::Document(update.as_doc()),
        array_filters: statement.array_filters.clone(),
        hint,
        collation: statement.collation.clone(),
        ..*statement
    };
    let spec = on_buckets.spec(ctx, &buckets.namespace(), None)?;
    mayfly_query::update_buckets(ctx.store, buckets, &spec)
}

/// Whether a filter only uses the meta field.
fn only_meta(filter: RawDoc<'_>, fields: &MeasurementFields, depth: usize) -> bool {
    depth < limits::MAX_FILTER_DEPTH
        && filter.iter().all(|element| match (element.name(), element.value()) {
            ("$and" | "$or" | "$nor", RawValue::Array(parts)) => parts.iter().all(|part| {
                part.value().as_document().is_some_and(|part| only_meta(part, fields, depth + 1))
            }),
            ("$comment", _) => true,
            ("$jsonSchema", RawValue::Document(schema)) => {
                fields.schema_on_bucket_meta(schema).is_some()
            }
            (name, _) => fields.on_bucket_meta(name).is_some(),
        })
}

/// Translates an update of the meta field to buckets; `None` if it changes other fields.
fn update_on_meta(update: RawDoc<'_>, fields: &MeasurementFields) -> Option<DocBuf> {
    let mut out = DocBuilder::new();
    for operator in update {
        let RawValue::Document(changes) = operator.value() else {
            // The update parser reports the error.
            out.append_element(operator);
            continue;
        };
        out.start_document(operator.name());
        for change in changes {
            let path = fields.on_bucket_meta(change.name())?;
            match change.value() {
                RawValue::String(to) if operator.name() == "$rename" => {
                    out.append(&path, fields.on_bucket_meta(to)?.as_str());
                }
                _ => {
                    out.append_renamed(path.as_bytes(), change);
                }
            }
        }
        out.end();
    }
    Some(out.finish())
}

/// A measurement in its stored form: with an `_id`, which need not be unique.
pub(super) fn prepare<'d>(
    ctx: &CommandContext<'_>,
    measurement: RawDoc<'d>,
    series: &TimeSeries,
    rules: DocumentRules,
) -> Result<Prepared<'d>> {
    let size = measurement.as_bytes().len();
    if size > limits::MAX_USER_DOCUMENT_BYTES {
        return Err(too_large(size));
    }
    measurement_time(measurement, &series.fields)?;
    let (mut has_id, mut has_empty_timestamp) = (false, false);
    for field in measurement {
        has_id |= field.name_bytes() == b"_id";
        has_empty_timestamp |= is_empty_timestamp(field);
    }
    let filled = match has_empty_timestamp && !rules.keep_empty_timestamps {
        true => ctx.service.store.fill_empty_timestamps(measurement),
        false => None,
    };
    if has_id {
        return Ok(filled.map_or(Prepared::As(measurement), Prepared::Changed));
    }
    let mut out = DocBuilder::in_buffer(Vec::with_capacity(size + 24));
    out.append("_id", RawValue::ObjectId(new_object_id(ctx.op.now_ms())));
    out.append_all(filled.as_ref().map_or(measurement, DocBuf::as_doc));
    Ok(Prepared::Changed(out.finish()))
}

/// Inserts measurements in one unit, together with the writes of `also`. If the time series is
/// dropped and created again concurrently, they go into the new one.
pub(super) fn insert_all(
    ctx: &CommandContext<'_>,
    ns: &Namespace,
    documents: &[Prepared<'_>],
    also: impl Fn(&mut WriteUnit<'_>) -> Result<()>,
) -> Result<()> {
    let measurements: Vec<RawDoc<'_>> = documents.iter().map(Prepared::doc).collect();
    let store = &ctx.service.store;
    let mut tries = 0;
    loop {
        let Some((buckets, _)) = store.time_series_named(ctx.store.view, ns) else {
            let text = format!("time series {ns} was dropped");
            return Err(Error::new(ErrorCode::NamespaceNotFound, text));
        };
        match store.insert_measurements((ctx.op, ctx.store.view), &buckets, &measurements, &also) {
            Err(error) if tries < 10 && was_dropped(ctx.store, &error, &buckets) => tries += 1,
            other => return other,
        }
    }
}
