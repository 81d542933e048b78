//! The one place where an engine's error becomes a server error.

use mayfly_base::{Error, ErrorCode};
use mayfly_kv::KvError;

/// Converts with the reference's codes. Conflicts become 112 WriteConflict, which the retry loop of
/// [`crate::Store::write`] takes up.
pub(crate) fn from_kv(error: KvError) -> Error {
    let code = match &error {
        KvError::Conflict => ErrorCode::WriteConflict,
        KvError::TooOld => ErrorCode::SnapshotTooOld,
        KvError::TooLarge(_) => ErrorCode::TransactionTooLarge,
        KvError::Unavailable(text) if text.contains("space") => ErrorCode::OutOfDiskSpace,
        KvError::Unavailable(_) | KvError::CommitUnknown(_) => ErrorCode::HostUnreachable,
        KvError::Timeout => ErrorCode::ExceededTimeLimit,
        KvError::Fenced(_) => ErrorCode::NotWritablePrimary,
        KvError::Invalid(_) => ErrorCode::InternalError,
        KvError::Corrupt(_) => ErrorCode::DataCorruptionDetected,
    };
    Error::new(code, error.to_string())
}
