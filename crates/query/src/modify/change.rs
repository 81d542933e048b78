//! The update or deletion of one record. The write unit reads the record again and checks the
//! filter before it changes it.

use mayfly_base::limits::MAX_USER_DOCUMENT_BYTES;
use mayfly_base::{Error, ErrorCode, Result};
use mayfly_mql::UpdateContext;
use mayfly_storage::{RecordKey, UpdateStyle, WriteUnit};
use mayfly_value::DocBuf;

use super::record::Images;
use super::shown::ReturnedVersion;
use super::units::{Room, UnitWrite};
use super::{DeleteSpec, ModifyOutcome, UpdateSpec};

pub(super) enum Change {
    /// The record was deleted, or no longer matches.
    Gone,
    /// The document's versions exceed the remaining size of the unit.
    NoRoom,
    /// The record matches, but the update does not change it.
    Same(DocBuf),
    /// The record was changed.
    Written { before: DocBuf, after: DocBuf },
}

impl From<Change> for UnitWrite<Change> {
    fn from(change: Change) -> UnitWrite<Change> {
        let bytes = match &change {
            Change::NoRoom => return UnitWrite::NoRoom,
            Change::Gone => 0,
            Change::Same(before) => before.as_bytes().len(),
            Change::Written { before, after } => before.as_bytes().len() + after.as_bytes().len(),
        };
        UnitWrite::Done { outcome: change, bytes }
    }
}

pub(super) fn change_one(
    unit: &mut WriteUnit<'_>,
    key: &RecordKey,
    spec: &UpdateSpec,
    shown: ReturnedVersion<'_>,
    now_ms: i64,
    room: Room,
) -> Result<Change> {
    let (matcher, update) = (&spec.query.matcher, &spec.update);
    let Some(before) = unit.read(key)? else { return Ok(Change::Gone) };
    if !matcher.matches(before.as_doc())? {
        return Ok(Change::Gone);
    }
    let position = update.position(matcher, before.as_doc())?;
    let context = UpdateContext { now_ms, is_insert: false, position };
    let Some(after) = update.apply(before.as_doc(), &context)? else {
        let same = Some(before.as_doc());
        shown.check(Images { before: same, after: same })?;
        return Ok(Change::Same(before.into_document()));
    };
    let after = match &spec.encrypted {
        // The tags change, too, which are not among the paths of the update.
        Some(encrypted) => encrypted.planned(unit, Some(before.as_doc()), after.as_doc())?,
        None => after,
    };
    if after.as_bytes().len() > MAX_USER_DOCUMENT_BYTES {
        let text =
            format!("Resulting document after update is larger than {MAX_USER_DOCUMENT_BYTES}");
        return Err(Error::new(ErrorCode::BSONObjectTooLarge, text));
    }
    if !room.takes(before.as_doc().as_bytes().len() + after.as_bytes().len()) {
        return Ok(Change::NoRoom);
    }
    if spec.bypass_validation {
        unit.bypass_validation();
    }
    let images = Images { before: Some(before.as_doc()), after: Some(after.as_doc()) };
    shown.check(images)?;
    update.with_paths(before.as_doc(), &context, |paths| {
        let style = match paths {
            Some(paths) if spec.encrypted.is_none() => UpdateStyle::Operators(paths),
            Some(_) => UpdateStyle::Parts,
            None if update.is_replacement() => UpdateStyle::Replacement,
            None => UpdateStyle::Computed,
        };
        unit.update(key, &before, after.as_doc(), style)
    })??;
    if let Some(repeatable) = &spec.repeatable {
        let outcome = ModifyOutcome { matched: 1, modified: 1, upserted: None };
        repeatable.record(unit, &outcome, images)?;
    }
    Ok(Change::Written { before: before.into_document(), after })
}

pub(super) enum Deletion {
    /// The record was deleted, or does not match.
    Gone,
    /// The document exceeds the remaining size of the unit.
    NoRoom,
    /// The deleted document.
    Done(DocBuf),
}

impl From<Deletion> for UnitWrite<Deletion> {
    fn from(deletion: Deletion) -> UnitWrite<Deletion> {
        let bytes = match &deletion {
            Deletion::NoRoom => return UnitWrite::NoRoom,
            Deletion::Gone => 0,
            Deletion::Done(document) => document.as_bytes().len(),
        };
        UnitWrite::Done { outcome: deletion, bytes }
    }
}

pub(super) fn delete_one(
    unit: &mut WriteUnit<'_>,
    key: &RecordKey,
    spec: &DeleteSpec,
    shown: ReturnedVersion<'_>,
    room: Room,
) -> Result<Deletion> {
    let Some(document) = unit.read(key)? else { return Ok(Deletion::Gone) };
    if !spec.query.matcher.matches(document.as_doc())? {
        return Ok(Deletion::Gone);
    }
    if !room.takes(document.as_doc().as_bytes().len()) {
        return Ok(Deletion::NoRoom);
    }
    shown.check(Images { before: Some(document.as_doc()), after: None })?;
    unit.delete(key, &document)?;
    if let Some(repeatable) = &spec.repeatable {
        let outcome = ModifyOutcome { matched: 1, ..ModifyOutcome::default() };
        let before = Some(document.as_doc());
        repeatable.record(unit, &outcome, Images { before, after: None })?;
    }
    Ok(Deletion::Done(document.into_document()))
}
