//! Classifies failures of RocksDB, and decides whether writes may continue.
//!
//! * A full disk fails the write, and nothing was applied: [`KvError::Unavailable`]. RocksDB
//!   resumes by itself when there is room again (it checks every few seconds), so the next write is
//!   passed to it. Until then nothing is synced: syncing a log after a failed append is a fatal
//!   error for RocksDB.
//! * RocksDB can stop for good although no commit is in doubt: it has no file descriptor, or a sync
//!   comes between a failed append and the call of [`Health::write_failed`], or the disk is full
//!   when a sync adds to the manifest. The engine *stalls*: the store is reopened when that can
//!   succeed (`reopen`). It is reopened too when RocksDB does not resume.
//! * Any other failed write, and any other failed sync, fences the engine, because the state of the
//!   disk is unknown. Reads continue.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::Relaxed};

use mayfly_base::clock::{Clock, SystemClock};
use mayfly_kv::{KvError, KvResult};
use rocksdb::{Error, ErrorKind};
use tracing::{error, info};

/// RocksDB's message for a file on which an earlier operation failed.
const SEEN_ERROR: &str = "Writer has previous error";
/// How long RocksDB may take to resume after a full disk.
const RESUMES_WITHIN_MICROS: i64 = 12_000_000;

#[derive(Default)]
pub(crate) struct Health {
    fenced: OnceLock<String>,
    /// Why RocksDB does not write any more, although no commit is in doubt.
    stalled: OnceLock<String>,
    /// Whether the last write failed because the disk was full.
    disk_full: AtomicBool,
    /// Whether a deletion failed because the disk was full, and the reserve was released for it.
    room_was_made: AtomicBool,
    /// Whether compactions have failed because the disk was full.
    compactions_failed: AtomicBool,
    /// Monotonic time of the first failure because of a full disk; 0 for none.
    full_since_micros: AtomicI64,
    clock: SystemClock,
}

impl Health {
    pub(crate) fn clock(&self) -> &SystemClock {
        &self.clock
    }

    /// Whether writes are allowed.
    pub(crate) fn check(&self) -> KvResult<()> {
        match (self.fenced.get(), self.stalled.get()) {
            (None, None) => Ok(()),
            (Some(reason), _) => Err(KvError::Fenced(reason.clone())),
            (None, Some(reason)) => Err(KvError::Unavailable(reason.clone())),
        }
    }

    /// Whether only reopening the store can help, and no commit is in doubt.
    pub(crate) fn needs_reopen(&self) -> bool {
        if self.fenced.get().is_some() {
            return false;
        }
        let since = self.full_since_micros.load(Relaxed);
        let full = self.disk_full.load(Relaxed) && since != 0;
        let waits = || self.clock.monotonic_micros() - since <= RESUMES_WITHIN_MICROS;
        self.stalled.get().is_some()
            || self.compactions_failed.load(Relaxed)
            || full && (self.room_was_made.load(Relaxed) || !waits())
    }

    /// Records that the reserve was released for a failed deletion: the store is reopened without
    /// waiting for RocksDB to resume.
    pub(crate) fn note_room(&self) {
        self.room_was_made.store(true, Relaxed);
    }

    /// Whether the last write failed because the disk was full.
    pub(crate) fn is_disk_full(&self) -> bool {
        self.disk_full.load(Relaxed)
    }

    /// Records that compactions have failed because the disk was full. RocksDB then starts none
    /// unless twice the size of its inputs is free, even if its output would be empty; a reopened
    /// store does.
    pub(crate) fn note_failed_compactions(&self) {
        self.compactions_failed.store(true, Relaxed);
    }

    /// Clears the full-disk state. Called after each successful write.
    pub(crate) fn wrote(&self) {
        if self.disk_full.load(Relaxed) {
            self.disk_full.store(false, Relaxed);
            info!("there is room on the disk again");
        }
    }

    /// Classifies a failed write. The write may have been applied unless the result is
    /// `Unavailable` or `Invalid`.
    pub(crate) fn write_failed(&self, error: &Error) -> KvError {
        let text = error.to_string();
        if is_disk_full(&text) {
            if !self.disk_full.swap(true, Relaxed) {
                let now = self.clock.monotonic_micros();
                self.full_since_micros.store(now.max(1), Relaxed);
                error!(text, "the disk is full; writes are refused until space is freed");
            }
            return KvError::Unavailable(format!("the disk is full: {text}"));
        }
        if lacks_descriptors(&text) || text.contains(SEEN_ERROR) {
            return self.stall(&text);
        }
        match error.kind() {
            ErrorKind::InvalidArgument | ErrorKind::NotSupported => KvError::Invalid(text),
            ErrorKind::ShutdownInProgress | ErrorKind::Incomplete | ErrorKind::Busy => {
                KvError::Unavailable(text)
            }
            _ => {
                self.fence(&text);
                KvError::CommitUnknown(text)
            }
        }
    }

    /// Classifies a failed sync: the state of the log is unknown, even after a full disk.
    pub(crate) fn sync_failed(&self, error: &Error) -> KvError {
        let text = error.to_string();
        // The sync did not reach the disk: the file refuses it because of a failed append, whose
        // caller has classified that failure.
        if text.contains(SEEN_ERROR) || is_manifest_full(&text) {
            return self.stall(&text);
        }
        self.fence(&text);
        KvError::Fenced(text)
    }

    fn stall(&self, reason: &str) -> KvError {
        let full = format!("the disk is full: {reason}");
        let reason = if self.is_disk_full() || is_disk_full(reason) { &full } else { reason };
        if self.stalled.set(reason.to_owned()).is_ok() {
            error!(
                reason,
                "the engine cannot write; writes are refused until the store is reopened"
            );
        }
        KvError::Unavailable(reason.to_owned())
    }

    fn fence(&self, reason: &str) {
        if self.fenced.set(reason.to_owned()).is_ok() {
            error!(reason, "a durable write failed; writes are refused until a restart");
        }
    }
}

/// Classifies a failed read.
pub(crate) fn read_failed(error: &Error) -> KvError {
    match error.kind() {
        ErrorKind::Corruption => KvError::Corrupt(error.to_string()),
        _ => KvError::Unavailable(error.to_string()),
    }
}

fn lacks_descriptors(text: &str) -> bool {
    text.contains("Too many open files")
}

/// Whether the disk was full when RocksDB appended to its manifest, which a sync of the log may do.
/// The log itself was not affected: its records can be read and synced after the store is reopened.
fn is_manifest_full(text: &str) -> bool {
    is_disk_full(text) && text.contains("While appending to file") && text.contains("/MANIFEST-")
}

pub(crate) fn is_disk_full(text: &str) -> bool {
    ["No space left on device", "Disk quota exceeded", "Space limit reached"]
        .iter()
        .any(|sign| text.contains(sign))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_puts_the_list_of_files_in_no_doubt_and_the_log_in_doubt() {
        let full = |file: &str| {
            let appending = "No space left on device: While appending to file";
            format!("IO error: {appending}: /data/{file}: No space left on device")
        };
        assert!(is_manifest_full(&full("MANIFEST-000005")));
        assert!(!is_manifest_full(&full("000012.log")));
        let failed_sync = "IO error: While fsync: /data/MANIFEST-000005: No space left on device";
        assert!(!is_manifest_full(failed_sync));
    }
}
