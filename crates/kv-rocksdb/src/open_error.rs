//! Why a folder cannot be opened as a store: typed, because whoever starts a server must tell its operator what to do.

use std::fmt;
use std::io;
use std::path::Path;

use mayfly_kv::KvError;
use rocksdb::ErrorKind;

use crate::format::FORMAT;
use crate::health::is_disk_full;

/// Why a folder cannot be opened. Nothing in it was changed, except that an unfinished new store may be left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpenError {
    /// Another process has it open, or this one.
    InUse,
    /// A newer build has written it, in this format.
    NewerFormat(u32),
    /// An older build has written it, in this format.
    OlderFormat(u32),
    /// Another program has made its files.
    Foreign(String),
    /// Stored bytes are damaged; names the file where it is known.
    Damaged(String),
    /// The file system refuses something.
    Unavailable {
        /// Why; [`io::ErrorKind::Other`] where RocksDB says it in its text only.
        kind: io::ErrorKind,
        /// With the file's name.
        text: String,
    },
}

impl OpenError {
    pub(crate) fn of_file(file: &Path, error: &io::Error) -> OpenError {
        OpenError::Unavailable { kind: error.kind(), text: format!("{}: {error}", file.display()) }
    }

    /// RocksDB's own error.
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
            OpenError::OlderFormat(found) => {
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
            | OpenError::Foreign(_) => KvError::Invalid(text),
            OpenError::Damaged(_) => KvError::Corrupt(text),
            OpenError::Unavailable { .. } => KvError::Unavailable(text),
        }
    }
}

/// RocksDB's error leaves out which log is damaged; its own report in the file LOG names it.
fn reported_damage(folder: &Path) -> Option<String> {
    let report = std::fs::read_to_string(folder.join("LOG")).ok()?;
    let line = report.lines().rev().find(|line| line.contains(".log: dropping "))?;
    let path = line.split_whitespace().find(|word| word.ends_with(".log:"))?;
    Some(format!(", in {}", path.trim_end_matches(':')))
}
