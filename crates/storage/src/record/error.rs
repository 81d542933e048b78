//! Conversion of an engine's errors into server errors.

use mayfly_base::{Error, ErrorCode};
use mayfly_kv::KvError;
use mayfly_work::current;

/// Converts with the reference's codes. Conflicts become 112 WriteConflict, upon which
/// [`crate::Writer::write`] retries.
pub(crate) fn from_kv(error: KvError) -> Error {
    // An engine that waits gives up when the operation has ended.
    if error == KvError::Timeout
        && let Some(Err(ended)) = current::current().op.map(|op| op.check())
    {
        return ended;
    }
    let code = match &error {
        KvError::Conflict => ErrorCode::WriteConflict,
        KvError::TooOld => ErrorCode::SnapshotTooOld,
        KvError::TooLarge(_) => ErrorCode::TransactionTooLarge,
        KvError::Unavailable(text) if text.contains("disk is full") => ErrorCode::OutOfDiskSpace,
        KvError::Unavailable(_) | KvError::CommitUnknown(_) => ErrorCode::HostUnreachable,
        KvError::Timeout => ErrorCode::ExceededTimeLimit,
        KvError::Fenced(_) => ErrorCode::NotWritablePrimary,
        KvError::Invalid(_) => ErrorCode::InternalError,
        KvError::Corrupt(_) => ErrorCode::DataCorruptionDetected,
    };
    Error::new(code, error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_has_a_code_of_its_own() {
        let full = KvError::Unavailable("the disk is full: 1 byte is left".into());
        assert_eq!(from_kv(full).code(), ErrorCode::OutOfDiskSpace);
        let closed = KvError::Unavailable("closed".into());
        assert_eq!(from_kv(closed).code(), ErrorCode::HostUnreachable);
    }
}
