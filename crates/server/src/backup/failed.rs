//! Errors of repositories as failures of the process: the exit code and the advice.

use anyhow::anyhow;
use mayfly_repository::{Error, StoreProblem};

use crate::failure::{Failure, FailureKind};

/// The failure of a task that used a repository. The texts of the errors contain the advice.
pub(crate) fn repository(tried: impl Into<String>, error: Error) -> anyhow::Error {
    let (kind, advice) = match &error {
        Error::InvalidInput { .. } | Error::InvalidName { .. } => {
            (FailureKind::Options, "mayflydb backup --help lists the flags")
        }
        Error::NewerFormat { .. } | Error::OtherStore { .. } | Error::NotEmpty { .. } => {
            (FailureKind::Incompatible, "nothing was changed")
        }
        Error::Damaged { .. } | Error::Missing { .. } => {
            (FailureKind::Damage, "'mayflydb backup verify' lists all damage of the repository")
        }
        Error::Store { problem: StoreProblem::NoBucket, .. }
        | Error::NoRepository
        | Error::LocalFile { .. }
        | Error::Store { .. }
        | Error::Busy { .. }
        | Error::UnreadableLock { .. } => {
            (FailureKind::Folder, "the same command can be run again")
        }
        _ => (FailureKind::General, "the same command can be run again"),
    };
    anyhow!("{error}").context(Failure::new(kind, tried, advice))
}

/// A mistake on the command line.
pub(crate) fn options(
    tried: impl Into<String>,
    text: impl Into<String>,
    advice: impl Into<String>,
) -> anyhow::Error {
    let text: String = text.into();
    anyhow!(text).context(Failure::new(FailureKind::Options, tried, advice))
}
