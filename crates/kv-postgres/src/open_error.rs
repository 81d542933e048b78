//! Why a store in PostgreSQL cannot be opened. Typed, because the server's exit code and advice
//! depend on the reason. No text contains the password.

use std::fmt;

use mayfly_kv::KvError;
use tokio_postgres::Error;

use crate::failure::{describe, text_of};
use crate::schema::FORMAT;

/// The reason why a store cannot be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpenError {
    /// The URL or an option is wrong.
    Options(String),
    /// The file with the password cannot be used.
    PasswordFile(String),
    /// The certificates for TLS cannot be used.
    Tls(String),
    /// The server refuses the user or the password.
    Login(String),
    /// The server has no such database.
    NoDatabase(String),
    /// The user has no right that is needed.
    NoRights(String),
    /// The server is older than the oldest version that is supported.
    ServerTooOld(String),
    /// The server speaks PostgreSQL's protocol but is another product.
    NotPostgres(String),
    /// The database has another encoding than UTF-8.
    Encoding(String),
    /// The server is a standby, or its transactions are read-only.
    ReadOnly,
    /// Commits do not wait for the disk (`synchronous_commit` is off).
    Asynchronous,
    /// Another server has the store open; names its connection.
    InUse(String),
    /// A newer build wrote it, in this format.
    NewerFormat(u32),
    /// An older build wrote it, in this format.
    OlderFormat(u32),
    /// The schema has tables that this program has not made.
    Foreign(String),
    /// The server cannot be reached, or does not answer.
    Unavailable(String),
}

impl OpenError {
    /// Classifies an error of connecting, or of a statement during opening.
    pub(crate) fn of(error: &Error) -> OpenError {
        let Some(db) = error.as_db_error() else { return OpenError::Unavailable(text_of(error)) };
        let text = describe(db);
        match db.code().code() {
            "28P01" | "28000" => OpenError::Login(text),
            "3D000" => OpenError::NoDatabase(text),
            "42501" => OpenError::NoRights(text),
            "25006" => OpenError::ReadOnly,
            _ => OpenError::Unavailable(text),
        }
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenError::Options(text)
            | OpenError::PasswordFile(text)
            | OpenError::Foreign(text)
            | OpenError::NotPostgres(text)
            | OpenError::Unavailable(text) => f.write_str(text),
            OpenError::Tls(text) => write!(f, "TLS: {text}"),
            OpenError::Login(text) => write!(f, "PostgreSQL refuses the login: {text}"),
            OpenError::NoDatabase(text) => write!(f, "the database must be made first: {text}"),
            OpenError::NoRights(text) => write!(f, "the user lacks a right: {text}"),
            OpenError::ServerTooOld(found) => {
                write!(f, "the server is PostgreSQL {found}, needed is 15 or newer")
            }
            OpenError::Encoding(found) => {
                write!(f, "the database has the encoding {found}, needed is UTF8")
            }
            OpenError::ReadOnly => {
                f.write_str("the server is a standby or read-only; connect to the primary")
            }
            OpenError::Asynchronous => f.write_str(
                "synchronous_commit is off for this user, so that acknowledged writes could be \
                 lost",
            ),
            OpenError::InUse(by) => write!(f, "another server has the store open: {by}"),
            OpenError::NewerFormat(found) => {
                write!(f, "a newer version wrote it in format {found}, this one reads {FORMAT}")
            }
            OpenError::OlderFormat(found) => {
                write!(f, "an older version wrote it in format {found}, this one reads {FORMAT}")
            }
        }
    }
}

impl std::error::Error for OpenError {}

impl OpenError {
    /// The error of a store that was opened before: a later attempt may succeed.
    pub(crate) fn unavailable(self) -> KvError {
        KvError::Unavailable(self.to_string())
    }
}

impl From<OpenError> for KvError {
    fn from(error: OpenError) -> KvError {
        let text = error.to_string();
        match error {
            OpenError::Unavailable(_) => KvError::Unavailable(text),
            _ => KvError::Invalid(text),
        }
    }
}
