//! One record under an update: read again, checked again, changed in the same write unit.

use mayfly_base::limits::MAX_USER_DOCUMENT_BYTES;
use mayfly_base::{Error, ErrorCode, Result};
use mayfly_mql::UpdateContext;
use mayfly_storage::{RecordKey, UpdateStyle, WriteUnit};
use mayfly_value::DocBuf;

use super::record::Images;
use super::shown::Shown;
use super::{ModifyOutcome, UpdateSpec};

pub(super) enum Change {
    /// Deleted, or changed so that it does not match any more.
    Gone,
    /// Matched, but the update changes nothing.
    Same(DocBuf),
    /// Changed.
    Written { before: DocBuf, after: DocBuf },
}

impl Change {
    /// The bytes of its documents.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Change::Gone => 0,
            Change::Same(before) => before.as_bytes().len(),
            Change::Written { before, after } => before.as_bytes().len() + after.as_bytes().len(),
        }
    }
}

pub(super) fn change_one(
    unit: &mut WriteUnit<'_>,
    key: &RecordKey,
    spec: &UpdateSpec,
    shown: Shown<'_>,
    now_ms: i64,
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
    if after.as_bytes().len() > MAX_USER_DOCUMENT_BYTES {
        let text =
            format!("Resulting document after update is larger than {MAX_USER_DOCUMENT_BYTES}");
        return Err(Error::new(ErrorCode::BSONObjectTooLarge, text));
    }
    let style = match update.is_replacement() {
        true => UpdateStyle::Replacement,
        false => UpdateStyle::Operators,
    };
    if spec.bypass_validation {
        unit.bypass_validation();
    }
    let images = Images { before: Some(before.as_doc()), after: Some(after.as_doc()) };
    shown.check(images)?;
    unit.update(key, &before, after.as_doc(), style)?;
    if let Some(repeatable) = &spec.repeatable {
        let outcome = ModifyOutcome { matched: 1, modified: 1, upserted: None };
        repeatable.record(unit, &outcome, images)?;
    }
    Ok(Change::Written { before: before.into_document(), after })
}
