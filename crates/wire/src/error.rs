//! Errors of the codec, by the reaction of the connection.

use std::fmt;

use mayfly_base::Error;

use crate::ReplyTo;

/// An error of the codec.
#[derive(Debug)]
pub enum WireError {
    /// The frame is valid but its content is not: the connection replies with the error and
    /// continues.
    Recoverable {
        /// How to send the reply.
        reply_to: ReplyTo,
        /// The error to send.
        error: Error,
    },
    /// The position in the stream is lost: the connection closes. The text is for the log.
    Fatal(String),
    /// Reading or writing failed.
    Io(std::io::Error),
}

/// The result of the codec.
pub type WireResult<T> = std::result::Result<T, WireError>;

impl WireError {
    /// An error that closes the connection.
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
