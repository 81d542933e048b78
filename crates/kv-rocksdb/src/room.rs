//! Keeping room on the disk for deletions.
//!
//! A delete needs room too: in the log, and in files until compaction has given back what was deleted. So a reserve is kept:
//! once less than that is free, transactions that put records or entries of indexes are refused, and those that delete (with their
//! index entries, oplog entries and what is kept for the oplog) go on. The file system is asked every few megabytes, and at each
//! refusal. Temporary files, and whatever else the server writes beside the engine, ask [`has_room`] or the engine.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use mayfly_kv::write_buffer::{OwnWrite, WriteBuffer};
use mayfly_kv::{Keyspace, KvError, KvResult};
use tracing::{info, warn};

use crate::options::RocksOptions;

/// After this many bytes of commits the file system is asked again.
const ASK_EVERY_BYTES: u64 = 4 << 20;

pub(crate) struct Room {
    reserve_bytes: u64,
    since_asked: AtomicU64,
    short: AtomicBool,
}

impl Room {
    /// Keeps this much, or a twentieth of a small disk.
    pub(crate) fn new(folder: &Path, reserve_bytes: u64) -> Room {
        let total = fs4::total_space(folder).unwrap_or(u64::MAX);
        Room {
            reserve_bytes: reserve_bytes.min(total / 20),
            since_asked: AtomicU64::new(ASK_EVERY_BYTES),
            short: AtomicBool::new(false),
        }
    }

    /// Whether this commit may go on.
    pub(crate) fn admit(&self, folder: &Path, buffer: &WriteBuffer) -> KvResult<()> {
        let bytes = buffer.size().0 as u64;
        let short = self.short.load(Relaxed);
        if !short && self.since_asked.fetch_add(bytes, Relaxed) + bytes < ASK_EVERY_BYTES {
            return Ok(());
        }
        self.since_asked.store(0, Relaxed);
        // Where the question cannot be answered there is no reserve; a full disk is still an error of the write.
        let free = fs4::available_space(folder).unwrap_or(u64::MAX);
        let is_short = free < self.reserve_bytes.saturating_add(bytes);
        if self.short.swap(is_short, Relaxed) != is_short {
            if is_short {
                warn!(free, "the disk is nearly full; only deletions are accepted");
            } else {
                info!(free, "there is room on the disk again");
            }
        }
        if is_short && adds(buffer) {
            return Err(refused(folder, free));
        }
        Ok(())
    }

    /// Whether there is room for files of so many bytes.
    pub(crate) fn admit_files(&self, folder: &Path, bytes: u64) -> KvResult<()> {
        let free = fs4::available_space(folder).unwrap_or(u64::MAX);
        match free < self.reserve_bytes.saturating_add(bytes) {
            true => Err(refused(folder, free)),
            false => Ok(()),
        }
    }
}

/// Whether a file of so many bytes in this folder leaves the reserve of its disk alone.
///
/// # Errors
/// [`KvError::Unavailable`] when it does not.
pub fn has_room(folder: &Path, bytes: u64) -> KvResult<()> {
    Room::new(folder, RocksOptions::default().reserve_bytes).admit_files(folder, bytes)
}

fn refused(folder: &Path, free: u64) -> KvError {
    KvError::Unavailable(format!(
        "the disk is full: {free} bytes are left at {}, which are kept for deletions",
        folder.display()
    ))
}

/// Whether it puts what a deletion never does: records, or entries of indexes, as the build of a small one does.
fn adds(buffer: &WriteBuffer) -> bool {
    buffer.ops().any(|(keyspace, _, write)| {
        matches!(keyspace, Keyspace::Record | Keyspace::Index) && matches!(write, OwnWrite::Put(_))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn below_the_reserve_only_deletions_go_on() {
        let mut room = Room::new(Path::new("/tmp"), 0);
        let (mut put, mut delete) = (WriteBuffer::new(), WriteBuffer::new());
        put.put(Keyspace::Record, b"k", b"v");
        delete.delete(Keyspace::Record, b"k");
        delete.put(Keyspace::Oplog, b"t", b"entry");
        assert_eq!(room.admit(Path::new("/tmp"), &put), Ok(()));
        room = Room { reserve_bytes: u64::MAX, ..Room::new(Path::new("/tmp"), 0) };
        let refused = room.admit(Path::new("/tmp"), &put);
        assert!(matches!(refused, Err(KvError::Unavailable(_))), "{refused:?}");
        assert_eq!(room.admit(Path::new("/tmp"), &delete), Ok(()));
        let mut build = WriteBuffer::new();
        build.put(Keyspace::Index, b"k", b"");
        let refused = room.admit(Path::new("/tmp"), &build);
        assert!(matches!(refused, Err(KvError::Unavailable(_))), "{refused:?}");
        assert!(has_room(Path::new("/tmp"), u64::MAX).is_err());
        room.reserve_bytes = 0;
        assert_eq!(
            room.admit(Path::new("/tmp"), &put),
            Ok(()),
            "it notices that there is room again"
        );
    }
}
