//! What a failure of RocksDB means, and whether writing may go on.
//!
//! * A full disk refuses the write and nothing was applied: [`KvError::Unavailable`]. RocksDB resumes by itself when
//!   there is room again (it looks every few seconds), so the next attempt is let through to it.
//!   Until then nothing is synced: asking a log that failed to be appended to would be fatal to RocksDB.
//! * Any other failed write or any failed sync fences the engine: nobody knows what the disk holds. Reads go on.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use mayfly_kv::{KvError, KvResult};
use rocksdb::{Error, ErrorKind};
use tracing::{error, info};

#[derive(Default)]
pub(crate) struct Health {
    fenced: OnceLock<String>,
    /// Whether the last write failed for lack of room.
    disk_full: AtomicBool,
}

impl Health {
    /// Whether writing is still allowed.
    pub(crate) fn check(&self) -> KvResult<()> {
        match self.fenced.get() {
            None => Ok(()),
            Some(reason) => Err(KvError::Fenced(reason.clone())),
        }
    }

    /// Whether the last write failed for lack of room.
    pub(crate) fn is_disk_full(&self) -> bool {
        self.disk_full.load(Relaxed)
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
                error!(text, "the disk is full; writes are refused until there is room");
            }
            return KvError::Unavailable(format!("the disk is full: {text}"));
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
        self.fence(&text);
        KvError::Fenced(text)
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

pub(crate) fn is_disk_full(text: &str) -> bool {
    ["No space left on device", "Disk quota exceeded", "Space limit reached"]
        .iter()
        .any(|sign| text.contains(sign))
}
