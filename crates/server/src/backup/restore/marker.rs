//! The marker of a folder into which a restore is not complete.
//!
//! ```json
//! {"store": "0192f0c1-...", "backup": "20261127T212149123Z-1a2b3c4d", "until": null, "phase": "files"}
//! ```
//!
//! A server refuses a folder with the marker. A restore replaces it as a whole, and syncs it before
//! the step that it announces.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use rustix::fs::FlockOperation;
use serde_json::{Value, json};

use crate::backup::runner::cluster_time;

/// The name of the marker in the folder.
pub(crate) const MARKER: &str = "RESTORE_UNFINISHED";
/// The name of the marker while it is being written.
const UNWRITTEN: &str = "RESTORE_UNFINISHED.new";

/// The step of a restore that an interruption leaves to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    /// Files are missing.
    Files,
    /// All files are there, and entries of the log are being applied.
    Replay,
    /// All data is there. The store may have been opened, which changes it.
    Store,
    /// The database has all entries. Files of the folder may have been removed.
    Moved,
}

/// A restore that is not complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Marker {
    /// The store of the repository.
    pub(crate) store: String,
    /// The backup.
    pub(crate) backup: String,
    /// The time of the log up to which entries are applied; `None` for the backup alone.
    pub(crate) until: Option<u64>,
    /// What is to be done.
    pub(crate) phase: Phase,
}

impl Phase {
    fn name(self) -> &'static str {
        match self {
            Phase::Files => "files",
            Phase::Replay => "replay",
            Phase::Store => "store",
            Phase::Moved => "moved",
        }
    }
}

impl Marker {
    /// Whether both are of one backup.
    pub(crate) fn is_of(&self, other: &Marker) -> bool {
        let of = |marker: &Marker| (marker.store.clone(), marker.backup.clone(), marker.until);
        of(self) == of(other)
    }

    /// What is being restored, for messages.
    pub(crate) fn describe(&self) -> String {
        let at = self.until.map(|until| format!(" --at {}", cluster_time(until).rfc3339()));
        format!("a restore of --backup {}{}", self.backup, at.unwrap_or_default())
    }

    /// Reads the marker; `None` if there is none.
    ///
    /// # Errors
    /// Errors of the file system, and an invalid text.
    pub(crate) fn read(folder: &Path) -> io::Result<Option<Marker>> {
        let text = match fs::read_to_string(folder.join(MARKER)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            read => read?,
        };
        let marker = serde_json::from_str(&text).ok().and_then(|value| Marker::parse(&value));
        let invalid = || io::Error::other(format!("the file {MARKER} in it cannot be read"));
        marker.map(Some).ok_or_else(invalid)
    }

    fn parse(value: &Value) -> Option<Marker> {
        let text = |name: &str| Some(value.get(name)?.as_str()?.to_owned());
        let phase = match text("phase")?.as_str() {
            "files" => Phase::Files,
            "replay" => Phase::Replay,
            "store" => Phase::Store,
            "moved" => Phase::Moved,
            _ => return None,
        };
        let until = match value.get("until")? {
            Value::Null => None,
            until => Some(until.as_u64()?),
        };
        Some(Marker { store: text("store")?, backup: text("backup")?, until, phase })
    }

    /// Writes the marker; it is durable afterwards.
    ///
    /// # Errors
    /// Errors of the file system.
    pub(crate) fn write(&self, folder: &Path) -> io::Result<()> {
        let Marker { store, backup, until, phase } = self;
        let phase = phase.name();
        let text = json!({ "store": store, "backup": backup, "until": until, "phase": phase });
        let unwritten = folder.join(UNWRITTEN);
        let mut file = File::create(&unwritten)?;
        writeln!(file, "{text}")?;
        file.sync_all()?;
        fs::rename(&unwritten, folder.join(MARKER))?;
        File::open(folder)?.sync_all()
    }

    /// Removes the marker.
    ///
    /// # Errors
    /// Errors of the file system.
    pub(crate) fn remove(folder: &Path) -> io::Result<()> {
        // The folder's files were synced by the engine, their names are synced here.
        File::open(folder)?.sync_all()?;
        fs::remove_file(folder.join(MARKER))?;
        File::open(folder)?.sync_all()
    }
}

/// Whether a file may be in the folder before a restore: the file system's own, or what is left of
/// a restore that was killed while it wrote its first marker.
pub(crate) fn may_be_before(name: &OsStr) -> bool {
    name == UNWRITTEN || name == "lost+found"
}

/// Locks the folder against another restore, until the file is closed.
///
/// # Errors
/// Another restore has it; errors of the file system.
pub(crate) fn lock(folder: &Path) -> io::Result<File> {
    let file = File::open(folder)?;
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(_) => Err(io::Error::other("another restore into it is running")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markers_round_trip_and_others_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(Marker::read(folder.path()).unwrap(), None);
        for (phase, until) in [
            (Phase::Files, None),
            (Phase::Replay, Some(u64::MAX)),
            (Phase::Store, Some(1 << 32)),
            (Phase::Moved, None),
        ] {
            let marker = Marker { store: "s".into(), backup: "b".into(), until, phase };
            marker.write(folder.path()).unwrap();
            assert_eq!(Marker::read(folder.path()).unwrap(), Some(marker));
        }
        for text in ["", "{}", r#"{"store":"s","backup":"b","phase":"x"}"#, "\u{0}"] {
            fs::write(folder.path().join(MARKER), text).unwrap();
            assert!(Marker::read(folder.path()).is_err(), "{text}");
        }
        Marker::remove(folder.path()).unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn one_restore_has_a_folder() {
        let folder = tempfile::tempdir().unwrap();
        let ours = lock(folder.path()).unwrap();
        assert!(lock(folder.path()).is_err());
        drop(ours);
        assert!(lock(folder.path()).is_ok());
    }
}
