//! The error type of all crates above the byte store: a server error code, a message, and the
//! labels and fields that clients need.
//!
//! Branch on [`Error::code`], never on the text. `kv` and `wire` have small errors of their own,
//! each converted in one file.

use std::fmt;

use crate::ErrorCode;

/// The result of every function whose error can reach a client.
pub type Result<T> = std::result::Result<T, Error>;

/// Labels that drivers act on (`errorLabels` in a reply).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorLabel {
    /// The whole transaction may be tried again.
    TransientTransaction,
    /// The commit may be tried again.
    UnknownTransactionCommitResult,
    /// The write may be tried again with the same transaction number.
    RetryableWrite,
    /// The change stream may be resumed.
    ResumableChangeStream,
    /// The change stream cannot be resumed.
    NonResumableChangeStream,
}

impl ErrorLabel {
    /// The text on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            ErrorLabel::TransientTransaction => "TransientTransactionError",
            ErrorLabel::UnknownTransactionCommitResult => "UnknownTransactionCommitResult",
            ErrorLabel::RetryableWrite => "RetryableWriteError",
            ErrorLabel::ResumableChangeStream => "ResumableChangeStreamError",
            ErrorLabel::NonResumableChangeStream => "NonResumableChangeStreamError",
        }
    }
}

/// An error as the client sees it. One pointer wide, so that results stay small on hot paths.
#[derive(Clone)]
pub struct Error(Box<Inner>);

#[derive(Clone)]
struct Inner {
    code: ErrorCode,
    message: String,
    labels: Vec<ErrorLabel>,
    /// Labels that replace all others.
    only_labels: Option<Vec<String>>,
    /// A BSON document whose fields are appended to the error reply (for example `keyPattern`,
    /// `keyValue`).
    extra: Option<Vec<u8>>,
}

impl Error {
    /// An error with this code and text.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Error {
        Error(Box::new(Inner {
            code,
            message: message.into(),
            labels: Vec::new(),
            only_labels: None,
            extra: None,
        }))
    }

    /// An error with code 2, BadValue: an argument has a value that is not allowed.
    pub fn bad_value(message: impl Into<String>) -> Error {
        Error::new(ErrorCode::BadValue, message)
    }

    /// An error with code 9, FailedToParse: an argument or its structure cannot be parsed.
    pub fn failed_to_parse(message: impl Into<String>) -> Error {
        Error::new(ErrorCode::FailedToParse, message)
    }

    /// 238 NotImplemented: a member that the reference has and this server does not have yet.
    pub fn not_implemented(what: impl fmt::Display) -> Error {
        Error::new(ErrorCode::NotImplemented, format!("{what} is not implemented yet"))
    }

    /// 1 InternalError: an invariant of our own code did not hold for stored or computed data.
    pub fn internal(message: impl Into<String>) -> Error {
        Error::new(ErrorCode::InternalError, message)
    }

    /// The server error code.
    pub fn code(&self) -> ErrorCode {
        self.0.code
    }

    /// The text for the user.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// Labels that drivers act on. See [`Error::label_names`] for the reply.
    pub fn labels(&self) -> &[ErrorLabel] {
        &self.0.labels
    }

    /// The labels for the reply: the replacement set by [`Error::with_only_labels`] if there is
    /// one, else the server's own.
    pub fn label_names(&self) -> Vec<&str> {
        match &self.0.only_labels {
            Some(given) => given.iter().map(String::as_str).collect(),
            None => self.0.labels.iter().map(|label| label.as_str()).collect(),
        }
    }

    /// A BSON document whose fields join the error reply.
    pub fn extra(&self) -> Option<&[u8]> {
        self.0.extra.as_deref()
    }

    /// Adds a label.
    #[must_use]
    pub fn with_label(mut self, label: ErrorLabel) -> Error {
        if !self.0.labels.contains(&label) {
            self.0.labels.push(label);
        }
        self
    }

    /// Replaces all labels, including those added later. Used by fail points.
    #[must_use]
    pub fn with_only_labels(mut self, labels: Vec<String>) -> Error {
        self.0.only_labels = Some(labels);
        self
    }

    /// The same error with another text.
    #[must_use]
    pub fn with_message(mut self, message: impl Into<String>) -> Error {
        self.0.message = message.into();
        self
    }

    /// Sets the BSON document whose fields join the error reply.
    #[must_use]
    pub fn with_extra(mut self, bson: Vec<u8>) -> Error {
        self.0.extra = Some(bson);
        self
    }

    /// Prefixes the text with a context: `context :: caused by :: message`, the reference's own
    /// joiner.
    #[must_use]
    pub fn in_context(mut self, context: impl fmt::Display) -> Error {
        self.0.message = format!("{context} :: caused by :: {}", self.0.message);
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}): {}", self.0.code.name(), self.0.code.0, self.0.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Error {}
