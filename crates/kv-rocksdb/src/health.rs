//! What a failure of RocksDB means, and whether writing may go on.
//!
//! * A full disk refuses the write and nothing was applied: [`KvError::Unavailable`]. RocksDB resumes by itself when
//!   there is room again (it looks every few seconds), so the next attempt is let through to it.
//!   Until then nothing is synced: asking a log that failed to be appended to would be fatal to RocksDB.
//! * RocksDB stops for good although nothing is in doubt: it has no descriptor for a file, or a sync asks in the moment between a
//!   failed append and the call of [`Health::write_failed`], or the disk is full when a sync adds to RocksDB's list of files. The
//!   engine *stalls*: the store is opened again when that can work (`reopen`), and so it is when RocksDB does not resume.
//! * Any other failed write or any failed sync fences the engine: nobody knows what the disk holds. Reads go on.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::Relaxed};

use mayfly_base::clock::{Clock, SystemClock};
use mayfly_kv::{KvError, KvResult};
use rocksdb::{Error, ErrorKind};
use tracing::{error, info};

/// What RocksDB says of a file that failed before.
const SEEN_ERROR: &str = "Writer has previous error";
/// After a full disk RocksDB gets so long to resume by itself.
const RESUMES_WITHIN_MICROS: i64 = 12_000_000;

#[derive(Default)]
pub(crate) struct Health {
    fenced: OnceLock<String>,
    /// Why RocksDB does not write any more, although nothing is in doubt.
    stalled: OnceLock<String>,
    /// Whether the last write failed for lack of room.
    disk_full: AtomicBool,
    /// A deletion failed so, and room was made for it.
    room_was_made: AtomicBool,
    /// Compactions have failed for lack of room.
    compactions_failed: AtomicBool,
    /// When it first did, on a clock that only goes forward; 0 for not.
    full_since_micros: AtomicI64,
    clock: SystemClock,
}

impl Health {
    /// Whether writing is still allowed.
    pub(crate) fn check(&self) -> KvResult<()> {
        match (self.fenced.get(), self.stalled.get()) {
            (None, None) => Ok(()),
            (Some(reason), _) => Err(KvError::Fenced(reason.clone())),
            (None, Some(reason)) => Err(KvError::Unavailable(reason.clone())),
        }
    }

    /// Whether only opening the store again may help, and nothing is in doubt.
    pub(crate) fn wants_reopen(&self) -> bool {
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

    /// Room was made for a deletion that failed for lack of it: the store need not wait for RocksDB to notice.
    pub(crate) fn note_room(&self) {
        self.room_was_made.store(true, Relaxed);
    }

    /// Whether the last write failed for lack of room.
    pub(crate) fn is_disk_full(&self) -> bool {
        self.disk_full.load(Relaxed)
    }

    /// Compactions have failed for lack of room. RocksDB now begins none before twice its inputs is free, even where nothing of them
    /// would be left; a store that was opened again does.
    pub(crate) fn note_failed_compactions(&self) {
        self.compactions_failed.store(true, Relaxed);
    }

    /// To be called after each successful write.
    pub(crate) fn wrote(&self) {
        if self.disk_full.load(Relaxed) {
            self.disk_full.store(false, Relaxed);
            info!("there is room on the disk again");
        }
    }

    /// What a failed write means. Anything but `Unavailable` and `Invalid` may have been applied.
    pub(crate) fn write_failed(&self, error: &Error) -> KvError {
        let text = error.to_string();
        if is_disk_full(&text) {
            if !self.disk_full.swap(true, Relaxed) {
                let now = self.clock.monotonic_micros();
                self.full_since_micros.store(now.max(1), Relaxed);
                error!(text, "the disk is full; writes are refused until there is room");
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

    /// What a failed sync means: what the log holds is unknown, even after a full disk.
    pub(crate) fn sync_failed(&self, error: &Error) -> KvError {
        let text = error.to_string();
        // The disk was not asked: the file has refused because of an append, whose own caller knows what failed.
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
                "the engine cannot write; writes are refused until the store is open again"
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

/// What a failed read means.
pub(crate) fn read_failed(error: &Error) -> KvError {
    match error.kind() {
        ErrorKind::Corruption => KvError::Corrupt(error.to_string()),
        _ => KvError::Unavailable(error.to_string()),
    }
}

fn lacks_descriptors(text: &str) -> bool {
    text.contains("Too many open files")
}

/// Whether there was no room for RocksDB's list of its files, which a sync of the log may add to. No sync has failed then: what was
/// written to the log is still there to be read and synced when the store is opened again.
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
