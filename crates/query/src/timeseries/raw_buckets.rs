//! Updates and deletes of buckets as documents (`rawData`).
//!
//! Filter, update, sort and projection apply to a bucket in the reference's format, as a `find`
//! with `rawData` returns it. The changed bucket is checked and packed again like one that a client
//! restores, so an update cannot store an inconsistent bucket: the error has code 121.

use std::sync::Arc;

use mayfly_base::limits::MAX_USER_DOCUMENT_BYTES;
use mayfly_base::{Error, ErrorCode, Result};
use mayfly_buckets::{TimeSeries, shown_bucket};
use mayfly_mql::{Matcher, SortPattern, UpdateContext};
use mayfly_storage::{Collection, RecordKey, StoreSession};
use mayfly_value::DocBuf;

use super::measurements::{check_searchable, for_each_bucket};
use super::show_buckets::on_stored;
use crate::exec::{Executor, Flow};
use crate::language::CanonicalQuery;
use crate::modify::{
    DeleteSpec, FindAndModifySpec, FoundAndModified, Image, Images, MAX_LOST_RACES, ModifyOutcome,
    ReturnedVersion, UpdateSpec, Upserted, Versions, upsert_one,
};

/// Runs an update statement on buckets as documents.
///
/// # Errors
/// Errors of [`crate::update`]; 121 DocumentValidationFailure when the result is no bucket of the
/// time series.
pub fn update_raw_buckets(
    session: StoreSession<'_>,
    buckets: &Arc<Collection>,
    spec: &UpdateSpec,
) -> Result<ModifyOutcome> {
    let shown = ReturnedVersion::nothing(&spec.query);
    RawBuckets::of(session, buckets)?.update(spec, shown, &mut |_| {})
}

/// Runs a delete statement on buckets as documents. Returns the number of deleted buckets.
///
/// # Errors
/// Errors of [`crate::delete`].
pub fn delete_raw_buckets(
    session: StoreSession<'_>,
    buckets: &Arc<Collection>,
    spec: &DeleteSpec,
) -> Result<i64> {
    let mut deleted = 0;
    let shown = ReturnedVersion::nothing(&spec.query);
    RawBuckets::of(session, buckets)?.delete(spec, shown, &mut |_| deleted += 1)?;
    Ok(deleted)
}

/// Finds a bucket and updates or removes it.
///
/// # Errors
/// Errors of [`update_raw_buckets`] and [`delete_raw_buckets`], and those of the projection.
pub fn find_and_modify_raw_bucket(
    session: StoreSession<'_>,
    buckets: &Arc<Collection>,
    spec: &FindAndModifySpec,
    image: Image,
) -> Result<FoundAndModified> {
    let raw = RawBuckets::of(session, buckets)?;
    let mut found = FoundAndModified::default();
    match spec {
        FindAndModifySpec::Remove(spec) => {
            let shown = ReturnedVersion::of(&spec.query, image);
            raw.delete(spec, shown, &mut |gone| found.before = Some(gone))?;
        }
        FindAndModifySpec::Update(spec) => {
            let shown = ReturnedVersion::of(&spec.query, image);
            let outcome = raw.update(spec, shown, &mut |versions| {
                found.before = versions.before;
                found.after = versions.after;
            })?;
            found.upserted = outcome.upserted;
        }
    }
    Ok(found)
}

/// The buckets of a time series.
struct RawBuckets<'s> {
    session: StoreSession<'s>,
    buckets: &'s Arc<Collection>,
    series: Arc<TimeSeries>,
}

/// Acts on a bucket. Returns whether it matched.
type Act<'a> = dyn FnMut(&RecordKey) -> Result<bool> + 'a;

impl<'s> RawBuckets<'s> {
    fn of(session: StoreSession<'s>, buckets: &'s Arc<Collection>) -> Result<RawBuckets<'s>> {
        match buckets.time_series() {
            Some(series) => Ok(RawBuckets { session, buckets, series }),
            None => Err(Error::internal("buckets of a collection without time series")),
        }
    }

    fn update(
        &self,
        spec: &UpdateSpec,
        shown: ReturnedVersion<'_>,
        seen: &mut dyn FnMut(Versions),
    ) -> Result<ModifyOutcome> {
        for lost_races in 0.. {
            let mut outcome = ModifyOutcome::default();
            self.for_each(&spec.query, spec.multi, &mut |key| {
                let Some(versions) = self.update_one(key, spec, shown)? else { return Ok(false) };
                outcome.matched += 1;
                outcome.modified += i64::from(versions.after.is_some());
                seen(versions);
                Ok(true)
            })?;
            if outcome.matched > 0 || !spec.upsert {
                return Ok(outcome);
            }
            match upsert_one(self.session, self.buckets, spec, shown)? {
                Upserted::Inserted { id, document } => {
                    seen(Versions { before: None, after: Some(document) });
                    return Ok(ModifyOutcome { upserted: Some(id), ..ModifyOutcome::default() });
                }
                Upserted::WasThere(error) if lost_races >= MAX_LOST_RACES => return Err(error),
                // Another writer inserted the bucket first: update that one.
                Upserted::WasThere(_) => self.session.op.check()?,
            }
        }
        unreachable!("the races that may be lost are counted")
    }

    /// Updates a bucket; `None` if it was deleted or no longer matches.
    fn update_one(
        &self,
        key: &RecordKey,
        spec: &UpdateSpec,
        returned: ReturnedVersion<'_>,
    ) -> Result<Option<Versions>> {
        let (matcher, update) = (&spec.query.matcher, &spec.update);
        let now_ms = self.session.op.now_ms();
        self.session.write(self.buckets, |unit| {
            let Some(stored) = unit.read(key)? else { return Ok(None) };
            let before = shown_bucket(stored.as_doc(), &self.series.fields)?;
            if !matcher.matches(before.as_doc())? {
                return Ok(None);
            }
            let position = update.position(matcher, before.as_doc())?;
            let context = UpdateContext { now_ms, is_insert: false, position };
            let Some(after) = update.apply(before.as_doc(), &context)? else {
                let same = Some(before.as_doc());
                returned.check(Images { before: same, after: same })?;
                return Ok(Some(Versions { before: Some(before), after: None }));
            };
            if after.as_bytes().len() > MAX_USER_DOCUMENT_BYTES {
                let text = format!(
                    "Resulting document after update is larger than {MAX_USER_DOCUMENT_BYTES}"
                );
                return Err(Error::new(ErrorCode::BSONObjectTooLarge, text));
            }
            let images = Images { before: Some(before.as_doc()), after: Some(after.as_doc()) };
            returned.check(images)?;
            unit.replace_bucket(key, &stored, after.as_doc())?;
            if let Some(repeatable) = &spec.repeatable {
                let outcome = ModifyOutcome { matched: 1, modified: 1, upserted: None };
                repeatable.record(unit, &outcome, images)?;
            }
            Ok(Some(Versions { before: Some(before), after: Some(after) }))
        })
    }

    fn delete(
        &self,
        spec: &DeleteSpec,
        shown: ReturnedVersion<'_>,
        seen: &mut dyn FnMut(DocBuf),
    ) -> Result<()> {
        self.for_each(&spec.query, spec.multi, &mut |key| {
            let deleted = self.delete_one(key, spec, shown)?;
            let matched = deleted.is_some();
            deleted.into_iter().for_each(&mut *seen);
            Ok(matched)
        })
    }

    /// Deletes a bucket and returns it; `None` if it was deleted before or no longer matches.
    fn delete_one(
        &self,
        key: &RecordKey,
        spec: &DeleteSpec,
        returned: ReturnedVersion<'_>,
    ) -> Result<Option<DocBuf>> {
        self.session.write(self.buckets, |unit| {
            let Some(stored) = unit.read(key)? else { return Ok(None) };
            let before = shown_bucket(stored.as_doc(), &self.series.fields)?;
            if !spec.query.matcher.matches(before.as_doc())? {
                return Ok(None);
            }
            let images = Images { before: Some(before.as_doc()), after: None };
            returned.check(images)?;
            unit.delete(key, &stored)?;
            if let Some(repeatable) = &spec.repeatable {
                let outcome = ModifyOutcome { matched: 1, ..ModifyOutcome::default() };
                repeatable.record(unit, &outcome, images)?;
            }
            Ok(Some(before))
        })
    }

    /// Calls `act` for each matching bucket, or for one after the other until `act` returns true.
    fn for_each(&self, query: &CanonicalQuery, multi: bool, act: &mut Act<'_>) -> Result<()> {
        let wide = self.on_stored(query)?;
        match &query.sort {
            Some(sort) if !multi && !sort.is_empty() => {
                // Another writer may change the first bucket before `act` reads it.
                for _ in 0..MAX_LOST_RACES {
                    match self.first(&wide, &query.matcher, sort)? {
                        Some(key) if !act(&key)? => self.session.op.check()?,
                        _ => return Ok(()),
                    }
                }
                Ok(())
            }
            _ => {
                for_each_bucket(
                    self.session,
                    self.buckets,
                    wide,
                    &mut |key| Ok(act(key)? && !multi),
                )
            }
        }
    }

    /// The matching bucket that is first in this order.
    fn first(
        &self,
        wide: &CanonicalQuery,
        matcher: &Matcher,
        sort: &SortPattern,
    ) -> Result<Option<RecordKey>> {
        let mut executor = Executor::new(self.session.view, self.buckets.clone(), wide.clone())?;
        executor.find_for_write();
        let mut first: Option<(Vec<u8>, RecordKey)> = None;
        executor.run(self.session, &mut |key, stored, _| {
            let bucket = shown_bucket(stored, &self.series.fields)?;
            if matcher.matches(bucket.as_doc())? {
                let rank = sort.sort_key(bucket.as_doc());
                if first.as_ref().is_none_or(|(least, _)| rank < *least) {
                    first = Some((rank, key.to_vec()));
                }
            }
            Ok(Flow::More)
        })?;
        Ok(first.map(|(_, key)| key))
    }

    /// The query for buckets that may match, with the conditions on fields that are stored as they
    /// are shown.
    fn on_stored(&self, query: &CanonicalQuery) -> Result<CanonicalQuery> {
        check_searchable(query)?;
        let mut wide = CanonicalQuery::everything(query.hint.clone())?;
        if let Some(filter) = on_stored(query.matcher.root(), &self.series.fields) {
            wide.matcher = Arc::new(Matcher::of(filter)?);
        }
        wide.collation = query.collation.clone();
        Ok(wide)
    }
}
