//! Inserting into a time series: measurements instead of documents. Manual: "Time Series Collections".

use std::sync::Arc;

use mayfly_base::{Error, Namespace, Result, limits};
use mayfly_storage::timeseries::measurement_time;
use mayfly_storage::{Collection, TimeSeries, WriteUnit};
use mayfly_value::{DocBuilder, RawDoc, RawValue};

use super::insert::Prepared;
use super::object_id::new_object_id;
use super::write::was_dropped;
use crate::CommandContext;

/// Measurements in one unit: a bucket's worth is packed once, not several times.
pub(super) const UNIT_MEASUREMENTS: usize = 2000;

/// The time series of this name.
pub(super) fn series_named(
    ctx: &CommandContext<'_>,
    ns: &Namespace,
) -> Option<(Arc<Collection>, Arc<TimeSeries>)> {
    let store = &ctx.service.store;
    if store.collection(ns).is_some() { None } else { store.time_series_named(ns) }
}

/// A measurement as it is stored: with an `_id`, which need not be the only one of its value.
pub(super) fn prepare<'d>(
    measurement: RawDoc<'d>,
    series: &TimeSeries,
    now_ms: i64,
) -> Result<Prepared<'d>> {
    let size = measurement.as_bytes().len();
    if size > limits::MAX_USER_DOCUMENT_BYTES {
        return Err(Error::bad_value(format!(
            "object to insert too large. size in bytes: {size}, max size: {}",
            limits::MAX_USER_DOCUMENT_BYTES
        )));
    }
    measurement_time(measurement, &series.fields)?;
    if measurement.get_element("_id").is_some() {
        return Ok(Prepared::As(measurement));
    }
    let mut out = DocBuilder::in_buffer(Vec::with_capacity(size + 24));
    out.append("_id", RawValue::ObjectId(new_object_id(now_ms))).append_all(measurement);
    Ok(Prepared::Changed(out.finish()))
}

/// Inserts measurements in one unit, together with what `also` does; when the time series is dropped and made anew
/// meanwhile, into the new one.
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
        let Some((buckets, _)) = store.time_series_named(ns) else {
            let text = format!("time series {ns} was dropped");
            return Err(Error::new(mayfly_base::ErrorCode::NamespaceNotFound, text));
        };
        match store.insert_measurements(ctx.op, &buckets, &measurements, &also) {
            Err(error) if tries < 10 && was_dropped(&error, &buckets) => tries += 1,
            other => return other,
        }
    }
}
