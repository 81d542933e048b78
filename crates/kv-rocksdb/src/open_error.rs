//! Why a folder cannot be opened as a store. Typed, because the server's exit code and advice
//! depend on the reason.

use std::fmt;
use std::io;
use std::path::Path;

use mayfly_kv::KvError;
use rocksdb::ErrorKind;

use crate::format::FORMAT;
use crate::health::is_disk_full;

/// The reason why a folder cannot be opened. The folder is unchanged, except that an unfinished new
/// store may be left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpenError {
    /// This or another process has it open.
    InUse,
    /// A newer build wrote it, in this format.
    NewerFormat(u32),
    /// An older build wrote it, in this format, which is not read any more.
    OlderFormat(u32),
    /// An older build wrote it, in this format, and it was not to be converted.
    NotUpgraded(u32),
    /// Another program created its files.
    Foreign(String),
    /// Stored bytes are damaged; names the file if known.
    Damaged(String),
    /// The file system reported an error.
    Unavailable {
        /// The kind; [`io::ErrorKind::Other`] where RocksDB gives only a text.
        kind: io::ErrorKind,
        /// The message, with the name of the file.
        text: String,
    },
}

impl OpenError {
    pub(crate) fn of_file(file: &Path, error: &io::Error) -> OpenError {
        OpenError::Unavailable { kind: error.kind(), text: format!("{}: {error}", file.display()) }
    }

    /// Classifies an error of RocksDB.
    pub(crate) fn of_rocksdb(folder: &Path, error: &rocksdb::Error) -> OpenError {
        let text = error.to_string();
        if text.contains("LOCK") && (text.contains("lock file") || text.contains("lock hold")) {
            return OpenError::InUse;
        }
        match error.kind() {
            ErrorKind::Corruption => {
                let file = reported_damage(folder).unwrap_or_default();
                OpenError::Damaged(format!("{text}{file}"))
            }
            _ if is_disk_full(&text) => {
                OpenError::Unavailable { kind: io::ErrorKind::StorageFull, text }
            }
            _ => OpenError::Unavailable { kind: io::ErrorKind::Other, text },
        }
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenError::InUse => f.write_str("another process has it open"),
            OpenError::NewerFormat(found) => {
                write!(f, "a newer version wrote it in format {found}, this one reads {FORMAT}")
            }
            OpenError::OlderFormat(found) | OpenError::NotUpgraded(found) => {
                write!(f, "an older version wrote it in format {found}, this one reads {FORMAT}")
            }
            OpenError::Foreign(text) | OpenError::Unavailable { text, .. } => f.write_str(text),
            OpenError::Damaged(text) => write!(f, "it is damaged: {text}"),
        }
    }
}

impl std::error::Error for OpenError {}

impl From<OpenError> for KvError {
    fn from(error: OpenError) -> KvError {
        let text = error.to_string();
        match error {
            OpenError::InUse
            | OpenError::NewerFormat(_)
            | OpenError::OlderFormat(_)
            | OpenError::NotUpgraded(_)
            | OpenError::Foreign(_) => KvError::Invalid(text),
            OpenError::Damaged(_) => KvError::Corrupt(text),
            OpenError::Unavailable { .. } => KvError::Unavailable(text),
        }
    }
}

/// RocksDB's error does not name the damaged log; its own report in the file LOG does.
fn reported_damage(folder: &Path) -> Option<String> {
    let report = std::fs::read_to_string(folder.join("LOG")).ok()?;
    let line = report.lines().rev().find(|line| line.contains(".log: dropping "))?;
    let path = line.split_whitespace().find(|word| word.ends_with(".log:"))?;
    Some(format!(", in {}", path.trim_end_matches(':')))
}
