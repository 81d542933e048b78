//! The errors of engines.

use std::fmt;

/// An error, by the reaction that it requires of the caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KvError {
    /// Another transaction wrote the same key; run the body again.
    Conflict,
    /// The snapshot is no longer available; run the body again.
    TooOld,
    /// A key has another value than [`Engine::begin_if`](crate::Engine::begin_if) expects; nothing
    /// was read.
    Changed,
    /// A key, value or transaction exceeds [`Caps`](crate::Caps).
    TooLarge(String),
    /// Nothing was applied; a retry may succeed later (disk full, connection lost).
    Unavailable(String),
    /// The commit may or may not have been applied.
    CommitUnknown(String),
    /// The deadline passed; nothing was applied.
    Timeout,
    /// The engine had no place for the operation in time; nothing was applied.
    Busy(String),
    /// An earlier durable write failed, or another owner took over; writing is refused until a
    /// restart.
    Fenced(String),
    /// The call violates the contract.
    Invalid(String),
    /// The engine cannot do this.
    Unsupported(String),
    /// The stored bytes are damaged; names the file where known.
    Corrupt(String),
}

impl fmt::Display for KvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KvError::Conflict => f.write_str("write conflict"),
            KvError::TooOld => f.write_str("snapshot too old"),
            KvError::Changed => f.write_str("an expected value has changed"),
            KvError::Timeout => f.write_str("deadline passed in the byte store"),
            KvError::Busy(text) => write!(f, "busy: {text}"),
            KvError::TooLarge(text) => write!(f, "too large: {text}"),
            KvError::Unavailable(text) => write!(f, "unavailable: {text}"),
            KvError::CommitUnknown(text) => write!(f, "commit outcome unknown: {text}"),
            KvError::Fenced(text) => write!(f, "writes are refused: {text}"),
            KvError::Invalid(text) => write!(f, "invalid use: {text}"),
            KvError::Unsupported(text) => f.write_str(text),
            KvError::Corrupt(text) => write!(f, "corrupt: {text}"),
        }
    }
}

impl std::error::Error for KvError {}

/// The result of every call into an engine.
pub type KvResult<T> = Result<T, KvError>;
