//! Checks where stages are allowed: after `$changeStream`, in a transaction, at the end of a change
//! stream.

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_value::{RawDoc, RawElement};

use super::row::StageRow;
use super::rows::{SPLIT_LARGE_EVENT, is_outside_transactions};
use crate::change::ChangeOptions;
use crate::stage::Step;
use crate::stage::split_event::SplitLargeEvent;

/// Rejects stages that are not allowed after `$changeStream`.
///
/// # Errors
/// 20 IllegalOperation.
pub(super) fn check_after_changes(pipeline: RawDoc<'_>) -> Result<()> {
    let stages = pipeline.iter().skip(1).filter_map(|stage| stage.value().as_document());
    let names = stages.filter_map(|stage| stage.iter().next());
    let may_follow = |field: &RawElement<'_>| {
        StageRow::find(field.name()).is_some_and(|row| row.may_follow_changes(field.value()))
    };
    match names.into_iter().find(|field| !may_follow(field)).map(|field| field.name()) {
        None => Ok(()),
        Some(name) => Err(Error::new(
            ErrorCode::IllegalOperation,
            format!("{name} is not permitted in a $changeStream pipeline"),
        )),
    }
}

/// Rejects stages that are not allowed in transactions.
///
/// # Errors
/// 263 OperationNotSupportedInTransaction.
#[cold]
pub(super) fn check_in_transaction(spec: RawDoc<'_>) -> Result<()> {
    let name = spec.iter().next().map_or("", |field| field.name());
    match is_outside_transactions(name) {
        true => Err(Error::new(
            ErrorCode::OperationNotSupportedInTransaction,
            format!("Stage not supported inside of a multi-document transaction: {name}"),
        )),
        false => Ok(()),
    }
}

/// Checks the position of the stage that splits events, and passes it the fragments that the client
/// has received.
///
/// # Errors
/// 20 IllegalOperation, 7182802, 280 ChangeStreamFatalError.
pub(super) fn check_split(changes: Option<&ChangeOptions>, steps: &mut [Step]) -> Result<()> {
    let resumed = changes.map(ChangeOptions::resumed);
    let count = steps.len();
    let split = steps
        .iter_mut()
        .enumerate()
        .find_map(|(at, step)| step.get_mut::<SplitLargeEvent>().map(|split| (at, &mut split.0)));
    match (resumed, split) {
        (None, Some(_)) => Err(Error::new(
            ErrorCode::IllegalOperation,
            format!("{SPLIT_LARGE_EVENT} can only be used in a $changeStream pipeline"),
        )),
        (Some(_), Some((at, _))) if at + 1 < count => Err(Error::new(
            ErrorCode(7182802),
            format!("{SPLIT_LARGE_EVENT} must be the last stage in the pipeline"),
        )),
        (Some(Some(_)), None) => Err(Error::new(
            ErrorCode::ChangeStreamFatalError,
            format!(
                "To resume from a split event, the $changeStream pipeline must include a {SPLIT_LARGE_EVENT} stage"
            ),
        )),
        (Some(resumed), Some((_, seen))) => {
            *seen = resumed;
            Ok(())
        }
        (_, None) => Ok(()),
    }
}
