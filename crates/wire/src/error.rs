//! What can go wrong with bytes from a client, by what the connection does next.

use std::fmt;

use mayfly_base::Error;

use crate::ReplyTo;

/// An error of the codec.
#[derive(Debug)]
pub enum WireError {
    /// The frame was sound but its content was not: answer with the error and go on.
    Recoverable {
        /// Whom to answer, and how.
        reply_to: ReplyTo,
        /// What to answer.
        error: Error,
    },
    /// The stream cannot be trusted any more: close it. The text is for the log.
    Fatal(String),
    /// Reading or writing failed.
    Io(std::io::Error),
}

/// The result of the codec.
pub type WireResult<T> = std::result::Result<T, WireError>;

impl WireError {
    /// The stream cannot be trusted any more.
    pub(crate) fn fatal(why: impl Into<String>) -> WireError {
        WireError::Fatal(why.into())
    }
}

impl From<std::io::Error> for WireError {
    fn from(error: std::io::Error) -> WireError {
        WireError::Io(error)
    }
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WireError::Recoverable { error, .. } => write!(f, "malformed message: {error}"),
            WireError::Fatal(why) => f.write_str(why),
            WireError::Io(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for WireError {}
