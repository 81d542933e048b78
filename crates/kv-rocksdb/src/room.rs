//! A disk reserve for deletions, and for opening the store.
//!
//! A deletion needs room too: in the write-ahead log, and in table files until compaction has
//! removed the deleted entries. RocksDB needs room to open a store, because it writes the replayed
//! log into tables. Therefore a part of the disk is allocated to a file without content (`RESERVE`,
//! [`Reserve`]), which other programs cannot take.
//!
//! ```text
//! the disk:  | used ... | free for inserts | slack | for deletions | for opening |
//!                                                   `------- the reserve file ---'
//! ```
//!
//! 1. While more than the slack is free, all writes are accepted, and the reserve is whole.
//! 2. When less is free, the disk counts as nearly full ([`DiskState::is_short`]): transactions
//!    that put records or index entries are refused. Deletions continue. As deletions, flushes,
//!    compactions or another program use up the slack, the reserve shrinks so that the slack stays
//!    free, down to the part for opening. Storage cuts its operation log meanwhile.
//! 3. When enough is free to make the reserve whole again, and more than the slack remains, all
//!    writes are accepted again.
//! 4. Opening the store releases the whole reserve before RocksDB starts, and allocates it again
//!    afterwards.
//!
//! Before the disk is nearly full, inserts wait for the compaction of level 0 if it would not fit
//! otherwise ([`Room::fits`]): a load makes that compaction larger, and if it fails because the
//! disk is full, RocksDB starts no other one. If one fails, the disk counts as nearly full until
//! the compaction of level 0 fits.
//!
//! The free space is queried every few megabytes of commits, and at each commit while the disk is
//! nearly full. Where a file system cannot preallocate a file, the same amount of free space is
//! kept, which another program may take. Temporary files, and all other files of the server outside
//! the engine, ask [`has_room`] or the engine.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use mayfly_kv::write_buffer::{OwnWrite, WriteBuffer};
use mayfly_kv::{Keyspace, KvError, KvResult, RoomStats};
use parking_lot::Mutex;
use rustix::fs::{FallocateFlags, fallocate};
use tracing::{info, warn};

use crate::options::RocksOptions;

/// The file in the data folder that holds the reserve.
pub const RESERVE_FILE: &str = "RESERVE";

/// Bytes of commits between two queries of the free space.
const QUERY_EVERY_BYTES: u64 = 4 << 20;
/// The reserve is at most 1/8 of its disk.
const DISK_FRACTION: u64 = 8;
/// The fraction of the reserve that only opening the store may use: 1/2.
const OPENING_FRACTION: u64 = 2;
/// The slack: free space apart from the reserve below which the disk counts as nearly full. 1/2 of
/// the reserve.
const SLACK_FRACTION: u64 = 2;

/// The size of the reserve for the disk of this folder.
pub(crate) fn reserve_bytes(folder: &Path, most: u64) -> u64 {
    let total = fs4::total_space(folder).unwrap_or(u64::MAX);
    most.min(total / DISK_FRACTION)
}

/// The state of the disk. It outlives a store that is closed and reopened.
#[derive(Default)]
pub(crate) struct DiskState {
    short: AtomicBool,
    /// Whether a compaction has failed because the disk was full, and that of level 0 still does
    /// not fit.
    compactions_lack_room: AtomicBool,
    times_short: AtomicU64,
}

impl DiskState {
    /// Whether the disk is nearly full.
    pub(crate) fn is_short(&self) -> bool {
        self.short.load(Relaxed)
    }
}

/// The reserve file.
struct Reserve {
    path: PathBuf,
    /// Its current size in bytes.
    held: u64,
}

impl Reserve {
    /// The file in this folder, truncated to zero.
    fn emptied(folder: &Path) -> Reserve {
        let mut reserve = Reserve { path: folder.join(RESERVE_FILE), held: 0 };
        if reserve.path.exists() {
            reserve.shrink(0);
        }
        reserve
    }

    fn open(&self) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        options.open(&self.path)
    }

    /// Releases all bytes beyond this size.
    fn shrink(&mut self, bytes: u64) {
        match self.open().and_then(|file| file.set_len(bytes)) {
            Ok(()) => self.held = self.held.min(bytes),
            Err(error) => {
                warn!(%error, file = %self.path.display(), "the disk reserve cannot be released; deletions may fail when the disk is full")
            }
        }
    }

    /// Allocates this many bytes. Returns false when the disk is full; where the file system cannot
    /// preallocate, returns true and allocates nothing.
    fn grow(&mut self, bytes: u64) -> bool {
        if bytes <= self.held {
            return true;
        }
        let grown = self.open().and_then(|file| {
            fallocate(&file, FallocateFlags::empty(), 0, bytes).map_err(io::Error::from)
        });
        match grown {
            Ok(()) => self.held = bytes,
            Err(error) if error.kind() == io::ErrorKind::StorageFull => {
                self.shrink(self.held);
                return false;
            }
            // The file system does not support preallocation.
            Err(_) => {}
        }
        true
    }
}

/// The size of the reserve while the disk is nearly full: it shrinks by the bytes missing from the
/// slack, down to its part for opening, and that part is restored when there is room for it.
fn while_short(held: u64, free: u64, slack: u64, for_opening: u64) -> u64 {
    if free < slack && held > for_opening {
        held.saturating_sub(slack - free).max(for_opening)
    } else if held < for_opening && free.saturating_sub(slack) >= for_opening - held {
        for_opening
    } else {
        held
    }
}

/// Whether compactions have room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CompactionRoom {
    Enough,
    Lacking,
}

/// When an accepted commit may proceed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    AtOnce,
    /// The commit adds entries, and compactions may need the free room first.
    AfterCompactions,
}

pub(crate) struct Room {
    folder: PathBuf,
    reserve_bytes: u64,
    since_query: AtomicU64,
    reserve: Mutex<Reserve>,
    state: Arc<DiskState>,
}

impl Room {
    /// Truncates the reserve in a folder whose store is about to be opened.
    pub(crate) fn for_opening(folder: &Path, most: u64, state: Arc<DiskState>) -> Room {
        Room {
            folder: folder.to_owned(),
            reserve_bytes: reserve_bytes(folder, most),
            since_query: AtomicU64::new(0),
            reserve: Mutex::new(Reserve::emptied(folder)),
            state,
        }
    }

    fn slack(&self) -> u64 {
        self.reserve_bytes / SLACK_FRACTION
    }

    fn free(&self) -> u64 {
        // Where the free space is unknown there is no reserve; a full disk is still an error of the
        // write.
        fs4::available_space(&self.folder).unwrap_or(u64::MAX)
    }

    /// Whether less is free than reserve and slack together, while the reserve is released.
    pub(crate) fn is_tight(&self) -> bool {
        self.free() < self.reserve_bytes.saturating_add(self.slack())
    }

    /// Queries the free space, updates whether the disk is nearly full given that `bytes` are about
    /// to be written, and adapts the reserve. Also called after the store was opened.
    pub(crate) fn refresh(&self, bytes: u64) -> bool {
        let mut reserve = self.reserve.lock();
        self.since_query.store(0, Relaxed);
        let was_short = self.state.is_short();
        let slack = if was_short { self.slack() / 2 * 3 } else { self.slack() };
        let needed = self.reserve_bytes.saturating_add(slack).saturating_add(bytes);
        let mut short = self.free().saturating_add(reserve.held) < needed;
        short |= self.compactions_lack_room();
        if !short {
            short = !reserve.grow(self.reserve_bytes);
        }
        if short {
            self.top_up(&mut reserve);
        }
        self.note(short);
        short
    }

    /// Adapts the reserve while the disk is nearly full.
    fn top_up(&self, reserve: &mut Reserve) {
        let for_opening = self.reserve_bytes / OPENING_FRACTION;
        let size = while_short(reserve.held, self.free(), self.slack(), for_opening);
        match size < reserve.held {
            true => reserve.shrink(size),
            false => _ = reserve.grow(size),
        }
    }

    fn note(&self, short: bool) {
        if self.state.short.swap(short, Relaxed) == short {
            return;
        }
        let free = self.free();
        if short {
            self.state.times_short.fetch_add(1, Relaxed);
            warn!(
                free,
                "the disk is nearly full; only deletions are accepted, and the operation log is cut"
            );
        } else {
            info!(free, "there is room on the disk again");
        }
    }

    pub(crate) fn is_short(&self) -> bool {
        self.state.is_short()
    }

    /// Whether a compaction has failed because the disk was full, and no later one had room.
    pub(crate) fn compactions_lack_room(&self) -> bool {
        self.state.compactions_lack_room.load(Relaxed)
    }

    /// Notes whether compactions have room. While they lack it, the disk counts as nearly full.
    pub(crate) fn note_compactions(&self, room: CompactionRoom) {
        self.state.compactions_lack_room.store(room == CompactionRoom::Lacking, Relaxed);
        self.refresh(0);
    }

    /// The error for a commit that adds entries, because a compaction has failed for lack of room.
    pub(crate) fn refuse_for_compactions(&self) -> KvError {
        self.note_compactions(CompactionRoom::Lacking);
        refused(&self.folder, self.free())
    }

    /// Whether a compaction that writes this many bytes has room without the reserve.
    pub(crate) fn fits(&self, bytes: u64) -> bool {
        let held = self.reserve.lock().held;
        self.free().saturating_add(held) >= self.reserve_bytes.saturating_add(bytes)
    }

    /// Whether this commit is accepted, and whether it should wait for compactions that need room.
    pub(crate) fn admit(&self, buffer: &WriteBuffer) -> KvResult<Admission> {
        let bytes = buffer.size().0 as u64;
        let due = self.since_query.fetch_add(bytes, Relaxed) + bytes >= QUERY_EVERY_BYTES;
        if !due && !self.state.is_short() {
            return Ok(Admission::AtOnce);
        }
        let adds = adds(buffer);
        match self.refresh(bytes) {
            true if adds => Err(refused(&self.folder, self.free())),
            false if adds => Ok(Admission::AfterCompactions),
            true | false => Ok(Admission::AtOnce),
        }
    }

    /// Checks that files of this many bytes leave the reserve and the slack free.
    pub(crate) fn admit_files(&self, bytes: u64) -> KvResult<()> {
        let (free, held) = (self.free(), self.reserve.lock().held);
        let needed = self.reserve_bytes.saturating_add(self.slack()).saturating_add(bytes);
        match free.saturating_add(held) < needed {
            true => Err(refused(&self.folder, free)),
            false => Ok(()),
        }
    }

    /// Releases the whole reserve, because the store is about to be reopened.
    pub(crate) fn give_up(&self) {
        self.reserve.lock().shrink(0);
    }

    pub(crate) fn stats(&self) -> RoomStats {
        RoomStats {
            total_bytes: fs4::total_space(&self.folder).unwrap_or(0),
            free_bytes: self.free(),
            reserve_bytes: self.reserve.lock().held,
            nearly_full: self.state.is_short(),
            times_nearly_full: self.state.times_short.load(Relaxed),
        }
    }
}

/// Checks that a file of this many bytes in this folder leaves its disk the room for deletions.
///
/// # Errors
/// [`KvError::Unavailable`] when it does not.
pub fn has_room(folder: &Path, bytes: u64) -> KvResult<()> {
    let slack = reserve_bytes(folder, RocksOptions::default().reserve_bytes) / SLACK_FRACTION;
    let free = fs4::available_space(folder).unwrap_or(u64::MAX);
    match free < slack.saturating_add(bytes) {
        true => Err(refused(folder, free)),
        false => Ok(()),
    }
}

fn refused(folder: &Path, free: u64) -> KvError {
    KvError::Unavailable(format!(
        "the disk is full: {free} bytes are left at {}, which are kept for deletions",
        folder.display()
    ))
}

/// Whether the transaction puts records or index entries, which deletions never do. The build of a
/// small index does.
pub(crate) fn adds(buffer: &WriteBuffer) -> bool {
    buffer.ops().any(|(keyspace, _, write)| {
        matches!(keyspace, Keyspace::Record | Keyspace::Index) && matches!(write, OwnWrite::Put(_))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn room(folder: &Path, reserve_bytes: u64) -> Room {
        Room { reserve_bytes, ..Room::for_opening(folder, 0, Arc::default()) }
    }

    #[test]
    fn while_compactions_lack_room_only_deletions_go_on() {
        let folder = tempfile::tempdir().unwrap();
        let room = room(folder.path(), 0);
        let (mut put, mut delete) = (WriteBuffer::new(), WriteBuffer::new());
        put.put(Keyspace::Record, b"k", b"v");
        delete.delete(Keyspace::Record, b"k");
        assert_eq!(room.admit(&put), Ok(Admission::AtOnce));
        assert!(matches!(room.refuse_for_compactions(), KvError::Unavailable(_)));
        assert!(room.compactions_lack_room() && room.is_short());
        assert!(room.admit(&put).is_err());
        assert_eq!(room.admit(&delete), Ok(Admission::AtOnce));
        room.note_compactions(CompactionRoom::Enough);
        assert!(!room.is_short());
        assert_eq!(room.admit(&put), Ok(Admission::AtOnce));
    }

    #[test]
    fn below_the_reserve_only_deletions_go_on() {
        let folder = tempfile::tempdir().unwrap();
        let mut room = room(folder.path(), 0);
        let (mut put, mut delete) = (WriteBuffer::new(), WriteBuffer::new());
        put.put(Keyspace::Record, b"k", b"v");
        delete.delete(Keyspace::Record, b"k");
        delete.put(Keyspace::Oplog, b"t", b"entry");
        assert!(room.admit(&put).is_ok());
        room.reserve_bytes = u64::MAX / 2;
        assert!(room.refresh(0) && room.state.is_short());
        let refused = room.admit(&put);
        assert!(matches!(refused, Err(KvError::Unavailable(_))), "{refused:?}");
        assert_eq!(room.admit(&delete), Ok(Admission::AtOnce));
        let mut build = WriteBuffer::new();
        build.put(Keyspace::Index, b"k", b"");
        let refused = room.admit(&build);
        assert!(matches!(refused, Err(KvError::Unavailable(_))), "{refused:?}");
        assert!(has_room(folder.path(), u64::MAX / 2).is_err());
        room.reserve_bytes = 0;
        let admitted = room.admit(&put);
        assert_eq!(admitted, Ok(Admission::AfterCompactions), "there is room again");
        assert_eq!(room.stats().times_nearly_full, 1);
    }

    #[test]
    fn the_slack_stays_free_down_to_the_part_for_opening() {
        let size = |held, free| while_short(held, free, 100, 60);
        assert_eq!(size(120, 100), 120);
        assert_eq!(size(120, 90), 110);
        assert_eq!(size(120, 0), 60);
        assert_eq!((size(60, 0), size(30, 0), size(30, 129)), (60, 30, 30));
        assert_eq!(size(30, 130), 60);
    }

    #[test]
    fn the_reserve_is_on_the_disk_until_it_is_needed() {
        const BYTES: u64 = 8 << 20;
        let folder = tempfile::tempdir().unwrap();
        let length = || std::fs::metadata(folder.path().join(RESERVE_FILE)).unwrap().len();
        let mut room = room(folder.path(), BYTES);
        assert!(!room.refresh(0));
        assert_eq!((room.stats().reserve_bytes, length()), (BYTES, BYTES));
        // As many bytes are about to be written as the disk has: while the slack is free, the
        // reserve stays.
        assert!(room.refresh(u64::MAX / 2));
        assert_eq!(length(), BYTES);
        assert!(!room.refresh(0));
        room.give_up();
        assert_eq!((room.stats().reserve_bytes, length()), (0, 0));
        room.refresh(0);
        drop(room);
        // The state after a crash.
        room = self::room(folder.path(), BYTES);
        assert_eq!((room.stats().reserve_bytes, length()), (0, 0));
    }
}
