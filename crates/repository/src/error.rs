//! The errors of a repository. Each text names the object or file and says what to do about it.

use std::path::PathBuf;
use std::{error, fmt, io};

use mayfly_base::ErrorCode;

use crate::names::StoreId;

/// The result of the operations of a repository.
pub type Result<T> = std::result::Result<T, Error>;

/// Why an operation of a repository failed. Objects are named by their paths in the repository.
#[derive(Debug)]
pub enum Error {
    /// The place has objects, but no `repository.json`.
    NotEmpty {
        /// The first object found.
        found: String,
    },
    /// The place has no `repository.json`, and the operation does not create one.
    NoRepository,
    /// The repository contains backups of another store.
    OtherStore {
        /// The store of the repository.
        found: StoreId,
        /// The store of the caller.
        expected: StoreId,
    },
    /// A later version of this program wrote the object.
    NewerFormat {
        /// The name of the object.
        object: String,
        /// Its format.
        format: u64,
    },
    /// The content of an object is not what was written, or is not valid.
    Damaged {
        /// The name of the object.
        object: String,
        /// What is wrong with it.
        why: String,
    },
    /// An object does not exist.
    Missing {
        /// The name of the object.
        object: String,
    },
    /// An object of this name exists with other content.
    Exists {
        /// The name of the object.
        object: String,
    },
    /// A text is not valid as a name.
    InvalidName {
        /// The kind of name.
        what: &'static str,
        /// The text, cut after 80 characters.
        name: String,
        /// What a valid text is.
        rule: &'static str,
    },
    /// The values that a caller passed contradict each other.
    InvalidInput {
        /// The problem, as a sentence without a final dot.
        why: String,
    },
    /// Another operation uses the repository.
    Busy {
        /// The object with its lock.
        lock: String,
        /// The operation, and when it began.
        holder: String,
    },
    /// A lock cannot be read, so that its operation may be running.
    UnreadableLock {
        /// The object with the lock.
        lock: String,
        /// What is wrong with it.
        why: String,
    },
    /// The lock of this operation was removed.
    LockLost {
        /// The object that was the lock.
        lock: String,
    },
    /// The repository changed after a plan for it was made.
    PlanOutdated,
    /// A file was changed while it was being read.
    SourceChanged {
        /// The file.
        path: PathBuf,
    },
    /// A local file or folder cannot be read or written.
    LocalFile {
        /// The file or folder.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// Something exceeds a limit of the format.
    TooLarge {
        /// The name of the object or file.
        what: String,
        /// Its size in bytes.
        size: u64,
        /// The largest allowed size in bytes.
        limit: u64,
    },
    /// The machine's clock is outside of the years 0 to 9999.
    Clock {
        /// The time in milliseconds since 1970.
        now_ms: i64,
    },
    /// The caller's check ended the operation.
    Cancelled,
    /// The object store, or the folder that serves as one, refused an operation.
    Store {
        /// The name of the object or prefix.
        object: String,
        /// The kind of the problem.
        problem: StoreProblem,
        /// The error of the store.
        source: Box<object_store::Error>,
    },
}

/// Kinds of problems of object stores that need different remedies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreProblem {
    /// The credentials are valid, but do not allow the operation.
    AccessDenied,
    /// The credentials are unknown, or do not fit their key.
    CredentialsRejected,
    /// Temporary credentials have expired.
    CredentialsExpired,
    /// The bucket does not exist.
    NoBucket,
    /// The disk or the quota of a local folder is full.
    DiskFull,
    /// The object store has no conditional writes.
    NoConditionalWrites,
    /// Any other problem, after the retries of the client.
    Other,
}

impl StoreProblem {
    fn of(error: &object_store::Error) -> StoreProblem {
        if let Some(problem) = io_error(error).and_then(StoreProblem::of_io) {
            return problem;
        }
        if let object_store::Error::NotImplemented { .. } = error {
            return StoreProblem::NoConditionalWrites;
        }
        // Replies of S3 contain its code in XML, and `object_store` has no variants for them.
        let text = error.to_string();
        let has = |codes: &[&str]| codes.iter().any(|code| text.contains(code));
        if has(&["ExpiredToken", "TokenRefreshRequired", "RequestExpired"]) {
            StoreProblem::CredentialsExpired
        } else if has(&["InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidToken"]) {
            StoreProblem::CredentialsRejected
        } else if has(&["NoSuchBucket"]) {
            StoreProblem::NoBucket
        } else {
            match error {
                object_store::Error::PermissionDenied { .. } => StoreProblem::AccessDenied,
                object_store::Error::Unauthenticated { .. } => StoreProblem::CredentialsRejected,
                _ => StoreProblem::Other,
            }
        }
    }

    fn of_io(error: &io::Error) -> Option<StoreProblem> {
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                Some(StoreProblem::DiskFull)
            }
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                Some(StoreProblem::AccessDenied)
            }
            _ => None,
        }
    }

    fn advice(self) -> &'static str {
        match self {
            StoreProblem::AccessDenied => {
                "access is denied; allow these credentials, or this user, to list, read, write and \
                 delete objects there"
            }
            StoreProblem::CredentialsRejected => {
                "the credentials are rejected; check the access key and its secret in the \
                 environment"
            }
            StoreProblem::CredentialsExpired => {
                "the credentials have expired; renew them and start the operation again"
            }
            StoreProblem::NoBucket => {
                "the bucket does not exist; create it, or correct its name, region and endpoint"
            }
            StoreProblem::DiskFull => {
                "the disk or its quota is full; free space, or prune old backups, and start the \
                 operation again"
            }
            StoreProblem::NoConditionalWrites => {
                "the store cannot write an object only if it does not exist; use a store with \
                 conditional writes, and do not switch them off"
            }
            StoreProblem::Other => {
                "the object store failed, also when the request was repeated; check the network \
                 and the endpoint, and start the operation again"
            }
        }
    }
}

/// The error of the operating system that caused this error.
fn io_error(error: &object_store::Error) -> Option<&io::Error> {
    let mut cause: Option<&(dyn error::Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<io::Error>() {
            return Some(error);
        }
        cause = error.source();
    }
    None
}

impl Error {
    /// The error of an operation on this object.
    pub(crate) fn of_store(object: &str, error: object_store::Error) -> Error {
        let problem = StoreProblem::of(&error);
        let object = object.to_owned();
        match error {
            // A request to a bucket that does not exist is answered with 404, too.
            object_store::Error::NotFound { .. } if problem != StoreProblem::NoBucket => {
                Error::Missing { object }
            }
            object_store::Error::AlreadyExists { .. } => Error::Exists { object },
            error => Error::Store { object, problem, source: Box::new(error) },
        }
    }

    pub(crate) fn damaged(object: &str, why: impl fmt::Display) -> Error {
        Error::Damaged { object: object.to_owned(), why: why.to_string() }
    }

    /// The code for clients of the server.
    pub fn code(&self) -> ErrorCode {
        match self {
            Error::NotEmpty { .. }
            | Error::NoRepository
            | Error::OtherStore { .. }
            | Error::InvalidInput { .. }
            | Error::TooLarge { .. }
            | Error::Clock { .. } => ErrorCode::InvalidOptions,
            Error::InvalidName { .. } => ErrorCode::BadValue,
            Error::NewerFormat { .. } => ErrorCode::UnsupportedFormat,
            Error::Damaged { .. } => ErrorCode::DataCorruptionDetected,
            Error::Missing { .. } => ErrorCode::NoSuchKey,
            Error::Exists { .. } | Error::PlanOutdated => ErrorCode::ConflictingOperationInProgress,
            Error::Busy { .. } | Error::UnreadableLock { .. } | Error::LockLost { .. } => {
                ErrorCode::LockBusy
            }
            Error::SourceChanged { .. } => ErrorCode::OperationFailed,
            Error::Cancelled => ErrorCode::Interrupted,
            Error::LocalFile { source, .. } => match StoreProblem::of_io(source) {
                Some(StoreProblem::DiskFull) => ErrorCode::OutOfDiskSpace,
                _ => ErrorCode::FileStreamFailed,
            },
            Error::Store { problem, .. } => match problem {
                StoreProblem::DiskFull => ErrorCode::OutOfDiskSpace,
                StoreProblem::NoConditionalWrites => ErrorCode::CommandNotSupported,
                // The codes of failed logins are about the client's user, not about the server's.
                StoreProblem::AccessDenied
                | StoreProblem::CredentialsRejected
                | StoreProblem::CredentialsExpired
                | StoreProblem::NoBucket
                | StoreProblem::Other => ErrorCode::OperationFailed,
            },
        }
    }
}

/// What helps against damage: without a parent, a backup sends content again that is missing.
const REPAIR: &str = "restore the object from a copy of the repository, or delete it and make a new \
                      backup without a parent";

const NO_REPOSITORY: &str = "the place has no repository.json; check the path or the URL";

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::NotEmpty { found } => write!(
                f,
                "the place has '{found}', but no repository.json; choose an empty folder or prefix \
                 for the repository"
            ),
            Error::NoRepository => f.write_str(NO_REPOSITORY),
            Error::OtherStore { found, expected } => write!(
                f,
                "the repository contains backups of the store {found}, not of {expected}; choose \
                 another folder or prefix for this store"
            ),
            Error::NewerFormat { object, format } => write!(
                f,
                "'{object}' has format {format}, which this version does not know; use the version \
                 that wrote it, or a later one"
            ),
            Error::Damaged { object, why } => {
                write!(f, "'{object}' is damaged: {why}; {REPAIR}")
            }
            Error::Missing { object } => write!(f, "'{object}' does not exist; {REPAIR}"),
            Error::Exists { object } => {
                write!(f, "'{object}' exists with other content; start the operation again")
            }
            Error::InvalidName { what, name, rule } => {
                write!(f, "{what} is '{name}', but must be {rule}")
            }
            Error::InvalidInput { why } => f.write_str(why),
            Error::Busy { lock, holder } => write!(
                f,
                "the repository is in use by {holder} ('{lock}'); wait until it ends, or until its \
                 lock expires"
            ),
            Error::UnreadableLock { lock, why } => write!(
                f,
                "a lock cannot be read; delete '{lock}' if no backup and no prune is running: {why}"
            ),
            Error::LockLost { lock } => write!(
                f,
                "the lock '{lock}' of this operation expired and was removed, so its objects may \
                 be gone; start the operation again"
            ),
            Error::PlanOutdated => {
                f.write_str("the repository changed after the plan was made; make a new plan")
            }
            Error::SourceChanged { path } => write!(
                f,
                "the file {} changed while it was being read; back up a checkpoint, whose files do \
                 not change",
                path.display()
            ),
            Error::LocalFile { path, source } => {
                write!(f, "cannot use the local file {}: {source}", path.display())
            }
            Error::TooLarge { what, size, limit } => {
                write!(f, "'{what}' has {size} bytes, more than the {limit} that are allowed")
            }
            Error::Clock { now_ms } => write!(
                f,
                "the machine's clock is {now_ms} ms after 1970, which is no usable date; set the \
                 clock"
            ),
            Error::Cancelled => f.write_str("the operation was cancelled"),
            Error::Store { object, problem, source } => {
                let what = if object.is_empty() { "the repository" } else { object };
                write!(f, "cannot access '{what}': {}: {source}", problem.advice())
            }
        }
    }
}

impl error::Error for Error {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        match self {
            Error::LocalFile { source, .. } => Some(source),
            Error::Store { source, .. } => Some(source),
            _ => None,
        }
    }
}

impl From<Error> for mayfly_base::Error {
    fn from(error: Error) -> mayfly_base::Error {
        mayfly_base::Error::new(error.code(), error.to_string())
    }
}
