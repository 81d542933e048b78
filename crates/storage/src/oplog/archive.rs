//! What an archive of the log and a copy of the store read, and how far the log waits for them.
//!
//! The archive consists of entries as BSON documents, one after the other. They are as
//! `local.oplog.rs` shows them, with one further field: the `definition` of a command is the
//! catalog document of the collection after it.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};

use mayfly_base::Result;

use super::Oplog;

/// How far the log is archived, and how long it waits for that.
pub(super) struct ArchiveProgress {
    /// Entries up to this timestamp are in the archive; the greatest number without an archive.
    up_to: AtomicU64,
    /// By how many bytes the log may exceed its limit while it waits for the archive.
    lag_bytes: AtomicU64,
}

impl Default for ArchiveProgress {
    fn default() -> ArchiveProgress {
        ArchiveProgress { up_to: AtomicU64::new(u64::MAX), lag_bytes: AtomicU64::new(0) }
    }
}

impl Oplog {
    /// Sets the timestamp up to which an archive has the log, and by how many bytes the log may
    /// exceed its limit to wait for it. Entries that the archive lacks are not cut before that,
    /// except on a nearly full disk.
    pub fn note_archived(&self, up_to: u64, lag_bytes: u64) {
        self.archive.lag_bytes.store(lag_bytes, Ordering::Relaxed);
        self.archive.up_to.store(up_to, Ordering::Release);
    }

    /// Sets the timestamp up to which a copy of the store has the log; `None` without a copy. The
    /// log waits for it as for an archive, up to twice its size.
    pub fn note_copied(&self, up_to: Option<u64>) {
        let lag_bytes = if up_to.is_some() { self.limits().bytes } else { 0 };
        self.copied.lag_bytes.store(lag_bytes, Ordering::Relaxed);
        self.copied.up_to.store(up_to.unwrap_or(u64::MAX), Ordering::Release);
    }

    /// The timestamp up to which the archive and a copy have the log, unless the log has become too
    /// long for them; the greatest number without either.
    pub(crate) fn awaited_archive(&self) -> u64 {
        let limit = self.limits().bytes;
        let logged = self.logged_bytes();
        let awaited = |progress: &ArchiveProgress| {
            let lag = progress.lag_bytes.load(Ordering::Relaxed);
            match logged > limit.saturating_add(lag) {
                true => u64::MAX,
                false => progress.up_to.load(Ordering::Acquire),
            }
        };
        awaited(&self.archive).min(awaited(&self.copied))
    }

    /// Appends the entries after a timestamp, in order, until about `max_bytes` were appended.
    /// Returns the timestamp up to which they were. Nothing is appended if there is an error.
    ///
    /// # Errors
    /// 286 ChangeStreamHistoryLost when entries after the timestamp were cut; errors of the engine.
    pub fn read_for_archive(&self, after: u64, max_bytes: usize, out: &mut Vec<u8>) -> Result<u64> {
        let begin = out.len();
        let end = begin.saturating_add(max_bytes);
        let read = self.read_changes(after, &mut |entry| {
            out.extend_from_slice(entry.archived()?.as_doc().as_bytes());
            Ok(if out.len() >= end { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        });
        if read.is_err() {
            out.truncate(begin);
        }
        read
    }
}
