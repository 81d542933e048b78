//! The end of the process after an error: one sentence for the operator, and an exit code.
//!
//! An error is an [`anyhow::Error`] whose outermost context is a [`Failure`]: the action that
//! failed, the kind of failure, and what the operator can do. The causes are in the chain below.
//! `docs/exit-codes.md` lists the codes.

use std::fmt;

/// Kinds of failures. Their numbers are exit codes, the same as the reference's where it has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum FailureKind {
    /// Any other failure; also that of `--healthcheck`.
    General = 1,
    /// The command line, the environment or the configuration file is invalid.
    Options = 2,
    /// The data is damaged, or was not closed.
    Damage = 14,
    /// An address cannot be listened on.
    Listen = 48,
    /// The data belongs to another program or to another version.
    Incompatible = 62,
    /// A folder or a database cannot be used: missing rights, a full disk, not reachable, or in use
    /// by another process.
    Folder = 100,
}

impl FailureKind {
    /// The exit code of the process.
    pub fn exit_code(self) -> u8 {
        self as u8
    }

    /// The kind of an error; [`FailureKind::General`] without a [`Failure`].
    pub fn of(error: &anyhow::Error) -> FailureKind {
        error.downcast_ref::<Failure>().map_or(FailureKind::General, |failure| failure.kind)
    }
}

/// The action that failed; the outermost context of an error.
#[derive(Clone, Debug)]
pub struct Failure {
    kind: FailureKind,
    tried: String,
    advice: String,
}

impl Failure {
    /// `tried` and `advice` are parts of a sentence: `cannot open the log file x`, `choose another
    /// with --logpath`.
    pub fn new(kind: FailureKind, tried: impl Into<String>, advice: impl Into<String>) -> Failure {
        Failure { kind, tried: tried.into(), advice: advice.into() }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.tried)
    }
}

/// One line: the action, the cause, and what the operator can do.
pub fn sentence(error: &anyhow::Error) -> String {
    let mut text = format!("{error:#}");
    if let Some(failure) = error.downcast_ref::<Failure>() {
        text = format!("{}; {}", text.trim_end_matches(['.', '\n']), failure.advice);
    }
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use anyhow::{Context, anyhow};

    use super::*;

    #[test]
    fn every_code_is_documented() {
        let page = include_str!("../../../docs/exit-codes.md");
        let kinds = [
            FailureKind::General,
            FailureKind::Options,
            FailureKind::Damage,
            FailureKind::Listen,
            FailureKind::Incompatible,
            FailureKind::Folder,
        ];
        for kind in kinds {
            let row = format!("\n| {} |", kind.exit_code());
            assert!(page.contains(&row), "{kind:?}");
        }
    }

    #[test]
    fn a_failure_is_one_sentence_with_a_code() {
        let error = Err::<(), _>(std::io::Error::other("no such\n thing.")).with_context(|| {
            Failure::new(FailureKind::Folder, "cannot open the box", "try another box")
        });
        let error = error.unwrap_err();
        assert_eq!(sentence(&error), "cannot open the box: no such thing; try another box");
        assert_eq!(FailureKind::of(&error).exit_code(), 100);
        let plain = anyhow!("nothing works");
        assert_eq!(sentence(&plain), "nothing works");
        assert_eq!(FailureKind::of(&plain).exit_code(), 1);
    }
}
