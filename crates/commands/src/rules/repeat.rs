//! Errors after which a client may retry its command.

use mayfly_base::{Error, ErrorCode, ErrorLabel};
use mayfly_value::RawDoc;

use super::transaction;
use crate::request::Row;
use crate::request::row::InTransaction;

/// Codes after which a client retries a retryable write. Specification "Retryable Writes",
/// "RetryableWriteError".
pub(crate) const TRY_AGAIN: &[ErrorCode] = &[
    ErrorCode::InterruptedAtShutdown,
    ErrorCode::InterruptedDueToReplStateChange,
    ErrorCode::NotWritablePrimary,
    ErrorCode::NotPrimaryNoSecondaryOk,
    ErrorCode::NotPrimaryOrSecondary,
    ErrorCode::PrimarySteppedDown,
    ErrorCode::ShutdownInProgress,
    ErrorCode::ExceededTimeLimit,
    ErrorCode::HostUnreachable,
    ErrorCode::HostNotFound,
    ErrorCode::NetworkTimeout,
    ErrorCode::SocketException,
];

/// Whether a client retries a command after this error code. In a transaction only commit and abort
/// are retried.
pub(crate) fn is_worth_repeating(code: ErrorCode, row: &Row, body: RawDoc<'_>) -> bool {
    let ends = row.in_transaction == InTransaction::Ends;
    TRY_AGAIN.contains(&code)
        && body.get_element("txnNumber").is_some()
        && (body.get_element("autocommit").is_none() || ends)
}

/// Adds the error labels by which clients know whether to retry or to resume.
pub(crate) fn label(error: Error, row: &Row, body: RawDoc<'_>) -> Error {
    let error = match error.code() {
        ErrorCode::ChangeStreamFatalError | ErrorCode::ChangeStreamHistoryLost => {
            error.with_label(ErrorLabel::NonResumableChangeStream)
        }
        _ => error,
    };
    if body.get_element("autocommit").is_some() {
        return transaction::label(error, row);
    }
    match is_worth_repeating(error.code(), row, body) {
        true => error.with_label(ErrorLabel::RetryableWrite),
        false => error,
    }
}
