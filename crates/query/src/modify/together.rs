//! Several single-document writes in one write unit: adjacent statements of a bulk command, or the
//! documents of `$merge`.
//!
//! A record is found by `_id` inside of the unit. A filter on other fields is searched over a
//! snapshot from before the unit, so such writes may share a unit only if none of them changes what
//! another one finds. The caller ensures that.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use mayfly_base::Result;
use mayfly_storage::{Collection, IdKey, RecordKey, StoreSession, WriteUnit};
use mayfly_value::{DocBuf, RawDoc, RawValue};

use super::change::{Change, Deletion, change_one, delete_one};
use super::record::Images;
use super::shown::ReturnedVersion;
use super::units::{Room, UNIT_WRITES, UnitTarget, UnitWrite, in_one_unit};
use super::upsert::inserted_document;
use super::{DeleteSpec, ModifyOutcome, UpdateSpec};
use crate::exec::{Executor, Flow};
use crate::language::CanonicalQuery;
use crate::plan::single_id;

/// A write of at most one document.
pub struct SingleWrite<'w> {
    /// The update or the deletion, with its arguments.
    pub kind: WriteKind<'w>,
    /// The key of the `_id` in its filter ([`single_id`]). Without it the record is searched before
    /// the unit.
    pub id: Option<IdKey>,
}

/// The operation of a write.
pub enum WriteKind<'w> {
    /// An insert.
    Insert {
        /// The document, with its `_id`.
        document: RawDoc<'w>,
        /// Whether the document bypasses validation.
        bypass_validation: bool,
    },
    /// An update of one document, or an insert if the statement is an upsert.
    Update(&'w UpdateSpec),
    /// The deletion of one document.
    Delete(&'w DeleteSpec),
}

/// The effect on a unit of an update without a match and without an upsert.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unmatched {
    /// The unit continues.
    Allowed,
    /// The unit is rolled back, and the caller runs the writes one by one.
    GivesUp,
}

/// How the record of a write is found.
enum RecordLocator {
    /// By its `_id`, inside of the unit.
    ById(IdKey),
    /// By a search before the unit.
    Found(RecordKey),
    /// The search before the unit found none.
    Nowhere,
}

/// Runs leading writes of the list in one unit. Returns the outcomes of those that are committed,
/// at least one; or `None`, with nothing written, if the writes have to be run one by one. No two
/// of the writes may concern the same `_id`. Must not be called in open transactions, nor for
/// updates with encrypted values.
///
/// # Errors
/// Errors of the search for records, of the commit and of the operation's deadline.
pub fn write_together(
    session: StoreSession<'_>,
    collection: &Arc<Collection>,
    writes: &[SingleWrite<'_>],
    unmatched: Unmatched,
) -> Result<Option<Vec<ModifyOutcome>>> {
    let writes = &writes[..writes.len().min(UNIT_WRITES)];
    let place = |write: &SingleWrite<'_>| match (&write.id, &write.kind) {
        (_, WriteKind::Insert { .. }) => Ok(RecordLocator::Nowhere),
        (Some(id), _) => Ok(RecordLocator::ById(id.clone())),
        (None, WriteKind::Update(spec)) => place_of(session, collection, &spec.query),
        (None, WriteKind::Delete(spec)) => place_of(session, collection, &spec.query),
    };
    let places = writes.iter().map(place).collect::<Result<Vec<_>>>()?;
    let by_id =
        places.iter().filter(|place| matches!(place, RecordLocator::ById(_))).count() as u64;
    session.op.keys_examined.fetch_add(by_id, Ordering::Relaxed);
    session.op.docs_examined.fetch_add(by_id, Ordering::Relaxed);
    let hinted = |place: &RecordLocator| match place {
        RecordLocator::ById(id) => session.store.hinted(collection, id),
        RecordLocator::Found(key) => Some(key.clone()),
        RecordLocator::Nowhere => None,
    };
    let hinted: Vec<Option<RecordKey>> = places.iter().map(hinted).collect();
    let known = RefCell::new(Vec::new());
    in_one_unit(session, UnitTarget::only(collection), writes.len(), &|unit, at, room| {
        if at == 0 {
            unit.expect_ids(places.iter().zip(&hinted).filter_map(|(place, hint)| match place {
                RecordLocator::ById(id) if hint.is_none() => Some(id),
                _ => None,
            }))?;
            let key = |(place, hint): (&RecordLocator, &Option<RecordKey>)| match place {
                RecordLocator::ById(id) if hint.is_none() => unit.located(id).cloned(),
                _ => hint.clone(),
            };
            let keys = places.iter().zip(&hinted).map(key).map(Option::unwrap_or_default);
            known.replace(keys.collect());
        }
        unit.expect_reads(&known.borrow(), at)?;
        let unit = &mut Unit { unit, session, collection, room };
        let written = match &writes[at].kind {
            WriteKind::Insert { document, bypass_validation } => {
                unit.insert(*document, *bypass_validation)?
            }
            WriteKind::Update(spec) => unit.update(spec, &places[at])?,
            WriteKind::Delete(spec) => unit.delete(spec, &places[at])?,
        };
        Ok(match (&writes[at].kind, &written) {
            (WriteKind::Update(_), UnitWrite::Done { outcome, .. })
                if unmatched == Unmatched::GivesUp
                    && outcome.matched == 0
                    && outcome.upserted.is_none() =>
            {
                UnitWrite::GiveUp
            }
            _ => written,
        })
    })
}

fn place_of(
    session: StoreSession<'_>,
    collection: &Arc<Collection>,
    query: &CanonicalQuery,
) -> Result<RecordLocator> {
    if let Some(key) = single_id(collection, query) {
        return Ok(RecordLocator::ById(key));
    }
    let mut executor = Executor::new(session.view, collection.clone(), query.clone())?;
    let mut found = RecordLocator::Nowhere;
    executor.find_keys_for_write();
    executor.expect(1);
    executor.run(session, &mut |key, document, _| {
        let unread = u64::from(document.get("_id").is_none());
        session.op.docs_examined.fetch_add(unread, Ordering::Relaxed);
        found = RecordLocator::Found(key.to_vec());
        Ok(Flow::Pause)
    })?;
    Ok(found)
}

/// A write unit with its remaining size.
struct Unit<'u, 't, 's> {
    unit: &'u mut WriteUnit<'t>,
    session: StoreSession<'s>,
    collection: &'s Arc<Collection>,
    room: Room,
}

impl Unit<'_, '_, '_> {
    fn insert(
        &mut self,
        document: RawDoc<'_>,
        bypass_validation: bool,
    ) -> Result<UnitWrite<ModifyOutcome>> {
        let bytes = document.as_bytes().len();
        if !self.room.takes(bytes) {
            return Ok(UnitWrite::NoRoom);
        }
        if bypass_validation {
            self.unit.bypass_validation();
        }
        self.unit.insert(document)?;
        Ok(UnitWrite::Done { outcome: ModifyOutcome::default(), bytes })
    }

    fn update(
        &mut self,
        spec: &UpdateSpec,
        place: &RecordLocator,
    ) -> Result<UnitWrite<ModifyOutcome>> {
        let shown = ReturnedVersion::nothing(&spec.query);
        let (now_ms, room) = (self.session.op.now_ms(), self.room);
        let changed = self.on_record(place, |unit, key| {
            Ok(match change_one(unit, key, spec, shown, now_ms, room)? {
                Change::Gone => None,
                change => Some(change),
            })
        })?;
        match changed {
            OnRecord::Done(change) => {
                let modified = i64::from(matches!(change, Change::Written { .. }));
                let outcome = ModifyOutcome { matched: 1, modified, upserted: None };
                Ok(UnitWrite::from(change).map(|_| outcome))
            }
            OnRecord::Lost => Ok(UnitWrite::GiveUp),
            OnRecord::None if spec.upsert => {
                self.upsert(spec, &inserted_document(self.session.op, spec)?)
            }
            OnRecord::None => Ok(UnitWrite::Done { outcome: ModifyOutcome::default(), bytes: 0 }),
        }
    }

    fn upsert(&mut self, spec: &UpdateSpec, document: &DocBuf) -> Result<UnitWrite<ModifyOutcome>> {
        let id = document.as_doc().get("_id").unwrap_or(RawValue::Null).to_owned();
        let outcome = ModifyOutcome { upserted: Some(id), ..ModifyOutcome::default() };
        let written = self.insert(document.as_doc(), spec.bypass_validation)?;
        let UnitWrite::Done { bytes, .. } = written else { return Ok(written) };
        if let Some(repeatable) = &spec.repeatable {
            let images = Images { before: None, after: Some(document.as_doc()) };
            repeatable.record(self.unit, &outcome, images)?;
        }
        Ok(UnitWrite::Done { outcome, bytes })
    }

    fn delete(
        &mut self,
        spec: &DeleteSpec,
        place: &RecordLocator,
    ) -> Result<UnitWrite<ModifyOutcome>> {
        let (shown, room) = (ReturnedVersion::nothing(&spec.query), self.room);
        let deleted = self.on_record(place, |unit, key| {
            Ok(match delete_one(unit, key, spec, shown, room)? {
                Deletion::Gone => None,
                deletion => Some(deletion),
            })
        })?;
        Ok(match deleted {
            OnRecord::Done(deletion) => UnitWrite::from(deletion)
                .map(|_| ModifyOutcome { matched: 1, ..ModifyOutcome::default() }),
            OnRecord::Lost => UnitWrite::GiveUp,
            OnRecord::None => UnitWrite::Done { outcome: ModifyOutcome::default(), bytes: 0 },
        })
    }

    /// Acts on the record of a write. `act` returns `None` if the record was deleted or does not
    /// match.
    fn on_record<T>(
        &mut self,
        place: &RecordLocator,
        mut act: impl FnMut(&mut WriteUnit<'_>, &RecordKey) -> Result<Option<T>>,
    ) -> Result<OnRecord<T>> {
        let id = match place {
            RecordLocator::Nowhere => return Ok(OnRecord::None),
            RecordLocator::Found(key) => {
                return Ok(act(self.unit, key)?.map_or(OnRecord::Lost, OnRecord::Done));
            }
            RecordLocator::ById(id) => id,
        };
        let hint = self.session.store.hinted(self.collection, id);
        if let Some(key) = &hint
            && let Some(done) = act(self.unit, key)?
        {
            return Ok(OnRecord::Done(done));
        }
        // A new record with the same `_id` may have replaced the one that the hint points to.
        match self.unit.locate(id.clone())? {
            Some(key) if hint.as_ref() != Some(&key) => {
                Ok(act(self.unit, &key)?.map_or(OnRecord::None, OnRecord::Done))
            }
            _ => Ok(OnRecord::None),
        }
    }
}

/// The outcome for the record of a write.
enum OnRecord<T> {
    Done(T),
    /// No record matches.
    None,
    /// The record that was found before the unit has changed since.
    Lost,
}
