//! Why a statement failed, and the error of the contract that it becomes.

use mayfly_kv::KvError;
use tokio_postgres::Error;
use tokio_postgres::error::{DbError, Severity};

use crate::wait::Abandoned;

/// Why a statement has no result.
#[derive(Clone, Debug)]
pub(crate) enum Failure {
    /// The server refused the statement and rolls the transaction back. The session goes on.
    Refused(KvError),
    /// The connection was lost: the statement may have been executed.
    Lost(String),
    /// The wait was abandoned: the statement may still be running.
    Abandoned(Abandoned),
}

impl Failure {
    /// Classifies an error of a statement.
    pub(crate) fn of(error: &Error) -> Failure {
        match error.as_db_error() {
            Some(db) if is_fatal(db) || is_in_failed_transaction(db) => Failure::Lost(describe(db)),
            Some(db) => Failure::Refused(refusal(db)),
            None if error.to_string().starts_with("error serializing") => {
                Failure::Refused(KvError::Invalid(text_of(error)))
            }
            None => Failure::Lost(text_of(error)),
        }
    }

    /// The error of a call that changed nothing.
    pub(crate) fn into_kv(self) -> KvError {
        match self {
            Failure::Refused(error) => error,
            Failure::Lost(text) => {
                KvError::Unavailable(format!("the connection to PostgreSQL was lost: {text}"))
            }
            Failure::Abandoned(Abandoned::Deadline) => {
                KvError::Unavailable("PostgreSQL has not answered in time".into())
            }
            Failure::Abandoned(Abandoned::OperationEnded) => KvError::Timeout,
        }
    }
}

impl From<Abandoned> for Failure {
    fn from(abandoned: Abandoned) -> Failure {
        Failure::Abandoned(abandoned)
    }
}

/// The text of an error with its causes. Errors of the driver do not contain the password.
pub(crate) fn text_of(error: &Error) -> String {
    let (mut text, mut cause) = (error.to_string(), std::error::Error::source(error));
    while let Some(inner) = cause {
        let inner_text = inner.to_string();
        if !text.contains(&inner_text) {
            text = format!("{text}: {inner_text}");
        }
        cause = inner.source();
    }
    text
}

/// Whether the server closes the connection after this error.
fn is_fatal(error: &DbError) -> bool {
    matches!(error.parsed_severity(), Some(Severity::Fatal | Severity::Panic))
}

/// Whether the session is in a transaction that has failed, which an operator's cancellation has
/// kept from being rolled back: it cannot be used any more.
fn is_in_failed_transaction(error: &DbError) -> bool {
    error.code().code() == "25P02"
}

pub(crate) fn describe(error: &DbError) -> String {
    format!("{} ({})", error.message(), error.code().code())
}

/// The error for a refused statement, by its SQLSTATE.
fn refusal(error: &DbError) -> KvError {
    let text = describe(error);
    match error.code().code() {
        // Serialization failure, deadlock, lock not available, unique violation.
        "40001" | "40P01" | "55P03" | "23505" => KvError::Conflict,
        "72000" => KvError::TooOld,
        "57014" => KvError::Timeout,
        "53100" => KvError::Unavailable(format!("the disk is full: {text}")),
        "54000" => KvError::TooLarge(text),
        "XX001" | "XX002" => KvError::Corrupt(text),
        _ => KvError::Unavailable(text),
    }
}
