//! Conversion of an engine's errors into server errors.

use mayfly_base::{Error, ErrorCode};
use mayfly_kv::KvError;
use mayfly_work::current;

/// Converts with the reference's codes. Conflicts become 112 WriteConflict, upon which
/// [`crate::Writer::write`] retries. A call that an engine gave up because the operation of the
/// thread has ended fails as the operation does.
pub fn from_kv(error: KvError) -> Error {
    if error == KvError::Timeout
        && let Some(op) = current::current().op
        && let Err(ended) = op.check()
    {
        return ended;
    }
    let code = match &error {
        KvError::Conflict => ErrorCode::WriteConflict,
        KvError::TooOld => ErrorCode::SnapshotTooOld,
        // Definitions are what readers expect to be unchanged.
        KvError::Changed => ErrorCode::QueryPlanKilled,
        KvError::TooLarge(_) => ErrorCode::TransactionTooLarge,
        KvError::Unavailable(text) if text.contains("disk is full") => ErrorCode::OutOfDiskSpace,
        KvError::Unavailable(_) | KvError::CommitUnknown(_) => ErrorCode::HostUnreachable,
        KvError::Timeout | KvError::Busy(_) => ErrorCode::ExceededTimeLimit,
        KvError::Fenced(_) => ErrorCode::NotWritablePrimary,
        KvError::Invalid(_) => ErrorCode::InternalError,
        KvError::Unsupported(_) => ErrorCode::CommandNotSupported,
        KvError::Corrupt(_) => ErrorCode::DataCorruptionDetected,
    };
    Error::new(code, error.to_string())
}

/// The engine's error for one of this crate, for an engine that reads with this crate's functions.
/// [`from_kv`] gives the same code again, as long as engines have an error for it.
pub(crate) fn to_kv(error: &Error) -> KvError {
    let text = error.message().to_owned();
    match error.code() {
        ErrorCode::WriteConflict => KvError::Conflict,
        ErrorCode::SnapshotTooOld => KvError::TooOld,
        ErrorCode::ExceededTimeLimit => KvError::Busy(text),
        ErrorCode::DataCorruptionDetected => KvError::Corrupt(text),
        ErrorCode::InternalError => KvError::Invalid(text),
        // The operation has ended: `from_kv` asks it for the reason.
        _ if current::current().op.is_some_and(|op| op.check().is_err()) => KvError::Timeout,
        _ => KvError::Unavailable(text),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use mayfly_base::SystemClock;
    use mayfly_work::OpCtx;
    use mayfly_work::current::Current;

    use super::*;

    #[test]
    fn a_read_of_a_killed_operation_fails_as_the_operation() {
        assert_eq!(from_kv(KvError::Timeout).code(), ErrorCode::ExceededTimeLimit);
        let op = OpCtx::detached(Arc::new(SystemClock::new()));
        let _entered = current::enter(Current { op: Some(op.clone()) });
        assert_eq!(from_kv(KvError::Timeout).code(), ErrorCode::ExceededTimeLimit);
        op.kill(ErrorCode::Interrupted);
        assert_eq!(from_kv(KvError::Timeout).code(), ErrorCode::Interrupted);
        assert_eq!(from_kv(KvError::Conflict).code(), ErrorCode::WriteConflict);
    }

    #[test]
    fn a_code_survives_the_way_through_an_engine() {
        for code in [
            ErrorCode::WriteConflict,
            ErrorCode::SnapshotTooOld,
            ErrorCode::ExceededTimeLimit,
            ErrorCode::DataCorruptionDetected,
            ErrorCode::InternalError,
            ErrorCode::HostUnreachable,
        ] {
            assert_eq!(from_kv(to_kv(&Error::new(code, "x"))).code(), code);
        }
        let op = OpCtx::detached(Arc::new(SystemClock::new()));
        let _entered = current::enter(Current { op: Some(op.clone()) });
        op.kill(ErrorCode::Interrupted);
        let ended = op.check().unwrap_err();
        assert_eq!(from_kv(to_kv(&ended)).code(), ErrorCode::Interrupted);
    }

    #[test]
    fn a_full_disk_has_a_code_of_its_own() {
        let full = KvError::Unavailable("the disk is full: 1 byte is left".into());
        assert_eq!(from_kv(full).code(), ErrorCode::OutOfDiskSpace);
        let closed = KvError::Unavailable("closed".into());
        assert_eq!(from_kv(closed).code(), ErrorCode::HostUnreachable);
    }
}
