//! Several updates that each mean one record, in one write unit.
//!
//! A unit is all or nothing, and what a statement found may have changed before the unit reads it: then nothing is written and
//! whoever asked runs the statements one by one, which also finds the one that fails and keeps what stands before it.

use mayfly_storage::StoreSession;
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use mayfly_base::{Error, Result};
use mayfly_storage::{Collection, IdKey, RecordKey, WriteUnit};
use mayfly_work::OpCtx;

use super::UpdateSpec;
use super::change::{Change, change_one};
use super::shown::Shown;
use super::upsert::inserted_document;
use crate::exec::{Executor, Flow};
use crate::plan::{Plan, plan};

/// Where a statement's record is.
enum Place {
    /// Of this `_id`, whose record was here.
    ById(IdKey, RecordKey),
    /// Here.
    Found(RecordKey),
    /// There was none.
    Nowhere,
}

/// Runs of a unit that others' writes disturb, before its statements are run one by one: those have fewer records to lose.
const MAX_RUNS: u32 = 3;

/// What a unit could not do.
enum Failure {
    /// Something else than what was found, or others changed the records again and again.
    Changed,
    /// No record, where one must be.
    NoMatch,
    /// A statement failed.
    Statement,
}

/// Runs all of them in one unit; false, with nothing written, when they have to run one by one. No two of them may mean the
/// same record.
///
/// # Errors
/// Those of the commit, of looking for records and of the operation's deadline.
pub(crate) fn update_together(
    session: StoreSession<'_>,
    collection: &Arc<Collection>,
    specs: &[&UpdateSpec],
    must_match: bool,
) -> Result<bool> {
    let mut places = Vec::with_capacity(specs.len());
    for spec in specs {
        places.push(place_of(session, collection, spec)?);
    }
    // The engine's own failure must not lead to a second run.
    let failure = Cell::new(None);
    let mut runs = 0;
    let written = session.write(collection, |unit| {
        failure.set(None);
        runs += 1;
        if runs > MAX_RUNS {
            failure.set(Some(Failure::Changed));
            return Err(stopped());
        }
        for (spec, place) in specs.iter().zip(&places) {
            match write_one(unit, session.op, spec, place, must_match) {
                Ok(None) => {}
                Ok(Some(other)) => {
                    failure.set(Some(other));
                    return Err(stopped());
                }
                Err(error) => {
                    failure.set(Some(Failure::Statement));
                    return Err(error);
                }
            }
        }
        Ok(())
    });
    match (written, failure.take()) {
        (Ok(()), _) => Ok(true),
        (Err(_), Some(Failure::Changed | Failure::NoMatch | Failure::Statement)) => Ok(false),
        (Err(error), None) => Err(error),
    }
}

/// Ends a unit; nobody is shown it.
fn stopped() -> Error {
    Error::internal("a unit of updates stopped")
}

fn place_of(
    session: StoreSession<'_>,
    collection: &Arc<Collection>,
    spec: &UpdateSpec,
) -> Result<Place> {
    if let Plan::Id(key) = plan(collection, &spec.query)?.source() {
        session.op.keys_examined.fetch_add(1, Ordering::Relaxed);
        session.op.docs_examined.fetch_add(1, Ordering::Relaxed);
        let found = match session.store.hinted(collection, key) {
            Some(hint) => Some(hint),
            None => session.store.locate_key(session.view, collection, key)?,
        };
        return Ok(found.map_or(Place::Nowhere, |found| Place::ById(key.clone(), found)));
    }
    let mut executor = Executor::new(session.view, collection.clone(), spec.query.clone())?;
    let mut found = Place::Nowhere;
    executor.expect(1);
    executor.run(session, &mut |key, _, _| {
        found = Place::Found(key.to_vec());
        Ok(Flow::Pause)
    })?;
    Ok(found)
}

fn write_one(
    unit: &mut WriteUnit<'_>,
    op: &OpCtx,
    spec: &UpdateSpec,
    place: &Place,
    must_match: bool,
) -> Result<Option<Failure>> {
    let shown = Shown::nothing(&spec.query);
    if let Place::ById(_, key) | Place::Found(key) = place {
        match (change_one(unit, key, spec, shown, op.now_ms())?, place) {
            (Change::Same(_) | Change::Written { .. }, _) => return Ok(None),
            // Somebody may have put another record in its place.
            (Change::Gone, Place::ById(id, key))
                if unit.locate(id.clone())?.is_none_or(|now| now == *key) => {}
            (Change::Gone, _) => return Ok(Some(Failure::Changed)),
        }
    }
    if !spec.upsert {
        return Ok(must_match.then_some(Failure::NoMatch));
    }
    let document = inserted_document(op, spec)?;
    if spec.bypass_validation {
        unit.bypass_validation();
    }
    unit.insert(document.as_doc())?;
    Ok(None)
}
