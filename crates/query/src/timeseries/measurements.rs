//! Deletes and updates of measurements, which change buckets.
//!
//! A delete unpacks buckets, removes the matching measurements and packs the rest again; an empty
//! bucket is deleted. An update changes the meta value of whole buckets. Manual: "Time Series
//! Collection Limitations", "Updates and Deletes".

use mayfly_storage::StoreSession;
use std::ops::ControlFlow;
use std::sync::Arc;

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_buckets::{BucketView, MeasurementFields, TimeSeries};
use mayfly_mql::Matcher;
use mayfly_storage::{Collection, RecordKey};
use mayfly_value::DocBuf;

use super::OnBuckets;
use crate::exec::{Executor, Flow};
use crate::language::CanonicalQuery;
use crate::modify::{
    DeleteSpec, Image, Images, ModifyOutcome, ReturnedVersion, UpdateSpec, Versions, update_with,
};

/// Buckets that are found before they are changed.
const BATCH_BUCKETS: usize = 64;

/// Deletes measurements. Returns their number.
///
/// # Errors
/// Errors of the filter, of storage, and of the operation's deadline.
pub fn delete_measurements(
    session: StoreSession<'_>,
    buckets: &Arc<Collection>,
    series: &TimeSeries,
    spec: &DeleteSpec,
) -> Result<i64> {
    let shown = ReturnedVersion::nothing(&spec.query);
    let mut deleted = 0;
    go_through(session, (buckets, series), spec, &mut |key| {
        deleted += delete_from(session, buckets, &series.fields, (spec, shown), key)?.0;
        Ok(deleted > 0 && !spec.multi)
    })?;
    Ok(deleted)
}

/// Deletes the first measurement of a query and returns it. The projection is applied before the
/// commit.
///
/// # Errors
/// Errors of [`delete_measurements`], and those of the projection.
pub fn find_and_remove_measurement(
    session: StoreSession<'_>,
    buckets: &Arc<Collection>,
    series: &TimeSeries,
    spec: &DeleteSpec,
) -> Result<Option<DocBuf>> {
    let shown = ReturnedVersion::of(&spec.query, Image::Before);
    let mut found = None;
    go_through(session, (buckets, series), spec, &mut |key| {
        found = delete_from(session, buckets, &series.fields, (spec, shown), key)?.1;
        Ok(found.is_some())
    })?;
    Ok(found)
}

/// Visits the buckets that may contain matching measurements, until the visitor stops.
fn go_through(
    session: StoreSession<'_>,
    (buckets, series): (&Arc<Collection>, &TimeSeries),
    spec: &DeleteSpec,
    see: &mut dyn FnMut(&RecordKey) -> Result<bool>,
) -> Result<()> {
    for_each_bucket(session, buckets, on_buckets(series, &spec.query)?, see)
}

/// Visits the buckets that a query finds, until the visitor stops.
pub(super) fn for_each_bucket(
    session: StoreSession<'_>,
    buckets: &Arc<Collection>,
    query: CanonicalQuery,
    see: &mut dyn FnMut(&RecordKey) -> Result<bool>,
) -> Result<()> {
    let mut executor = Executor::new(session.view, buckets.clone(), query)?;
    executor.find_for_write();
    session.op.update_info(|info| info.plan_summary = executor.plan().summary());
    while !executor.is_done() {
        let mut found: Vec<RecordKey> = Vec::new();
        executor.run(session, &mut |key, _, _| {
            found.push(key.to_vec());
            Ok(if found.len() >= BATCH_BUCKETS { Flow::Pause } else { Flow::More })
        })?;
        for key in found {
            session.op.check()?;
            if see(&key)? {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// Refuses the searches that only an index can answer: a write to a time series compares each
/// document with its filter.
///
/// # Errors
/// 291 NoQueryExecutionPlans.
pub(super) fn check_searchable(query: &CanonicalQuery) -> Result<()> {
    let name = match query.matcher.seeks_by_distance() {
        true => "$geoNear",
        false if query.matcher.text().is_some() => "$text",
        false => return Ok(()),
    };
    let text = format!(
        "error processing query: planner returned error :: caused by :: \
         unable to find index for {name} query"
    );
    Err(Error::new(ErrorCode::NoQueryExecutionPlans, text))
}

/// The query for buckets that may contain matching measurements.
fn on_buckets(series: &TimeSeries, query: &CanonicalQuery) -> Result<CanonicalQuery> {
    check_searchable(query)?;
    let asked = OnBuckets::of(query.matcher.root(), &series.fields, series.max_span_secs * 1000);
    let mut wide = CanonicalQuery::everything(query.hint.clone())?;
    if let Some(filter) = asked.filter() {
        wide.matcher = Arc::new(Matcher::of(filter)?);
    }
    wide.collation = query.collation.clone();
    Ok(wide)
}

/// Deletes the matching measurements of one bucket, or the first of them. Returns their number, and
/// the first.
fn delete_from(
    session: StoreSession<'_>,
    buckets: &Collection,
    fields: &MeasurementFields,
    (spec, shown): (&DeleteSpec, ReturnedVersion<'_>),
    key: &RecordKey,
) -> Result<(i64, Option<DocBuf>)> {
    session.write(buckets, |unit| {
        let Some(document) = unit.read(key)? else { return Ok((0, None)) };
        let view = BucketView::new(document.as_doc())?;
        let mut kept = vec![true; view.rows()];
        let (mut gone, mut only) = (0, None);
        view.measurements(fields, &|_| true, &mut |row, measurement| {
            if spec.query.matcher.matches(measurement)? {
                kept[row] = false;
                gone += 1;
                if !spec.multi {
                    only = Some(measurement.to_owned());
                    return Ok(ControlFlow::Break(()));
                }
            }
            Ok(ControlFlow::Continue(()))
        })?;
        if gone == 0 {
            return Ok((0, None));
        }
        let images = Images { before: only.as_ref().map(DocBuf::as_doc), after: None };
        shown.check(images)?;
        unit.retain_measurements(key, &document, fields, &|row| kept[row])?;
        if let Some(repeatable) = &spec.repeatable {
            let outcome = ModifyOutcome { matched: gone, ..ModifyOutcome::default() };
            repeatable.record(unit, &outcome, images)?;
        }
        Ok((gone, only))
    })
}

/// Runs an update on buckets. The outcome counts their measurements.
///
/// # Errors
/// Errors of [`crate::update`].
pub fn update_buckets(
    session: StoreSession<'_>,
    buckets: &Arc<Collection>,
    spec: &UpdateSpec,
) -> Result<ModifyOutcome> {
    let mut counted = ModifyOutcome::default();
    let shown = ReturnedVersion::nothing(&spec.query);
    update_with(session, buckets, spec, shown, &mut |versions: Versions| {
        let rows = versions.before.as_ref().and_then(|before| {
            BucketView::new(before.as_doc()).ok().map(|view| view.rows() as i64)
        });
        counted.matched += rows.unwrap_or(0);
        if versions.after.is_some() {
            counted.modified += rows.unwrap_or(0);
        }
    })?;
    Ok(counted)
}
