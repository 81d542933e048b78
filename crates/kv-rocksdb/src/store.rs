//! The open database, its column families by keyspace, and snapshots that keep it open.
//!
//! All unsafe code of this crate is here: it extends two lifetimes that borrow from the database,
//! which the same struct owns in an [`Arc`] or [`Box`].

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use mayfly_kv::write_buffer::WriteBuffer;
use mayfly_kv::{Keyspace, KvError, KvResult};
use parking_lot::Mutex;
use rocksdb::{
    ColumnFamily, ColumnFamilyDescriptor, DB, FlushOptions, ReadOptions, Snapshot, WriteBatch,
    WriteOptions, properties,
};

use rustix::fs::{FlockOperation, fcntl_lock};

use crate::compactions::CompactionWatch;
use crate::counts::Counts;
use crate::format::{self, Marker};
use crate::group_sync::GroupSync;
use crate::health::Health;
use crate::held_files::HeldFiles;
use crate::ingest::{SCRATCH_FOLDER, clear_scratch};
use crate::log_tail;
use crate::open_error::OpenError;
use crate::options::{self, RocksOptions, SharedResources};
use crate::record_cache::{AsOf, RecordCache};
use crate::retired::RetiredRuns;
use crate::room::{self, Admission, DiskState, Room};
use crate::upgrade;

pub(crate) struct Store {
    families: [&'static ColumnFamily; Keyspace::ALL.len()],
    /// Declared after `families`, which points into it, and never moved out.
    pub(crate) db: Box<DB>,
    pub(crate) shared: SharedResources,
    pub(crate) folder: PathBuf,
    pub(crate) health: Health,
    pub(crate) group_sync: GroupSync,
    marks: Marks,
    pub(crate) room: Room,
    pub(crate) records: RecordCache,
    pub(crate) retired: RetiredRuns,
    /// Record keys and index keys deleted since their memtables were last flushed for that.
    pub(crate) deleted: [AtomicU64; 2],
    /// How many more calls flush even few deletions, because they are the end of a mass deletion.
    pub(crate) eager: [AtomicU8; 2],
    pub(crate) counts: Arc<Counts>,
    pub(crate) compactions: CompactionWatch,
    pub(crate) held: HeldFiles,
    /// Options for reads of the latest state.
    pub(crate) read_options: ReadOptions,
    pub(crate) write_options: WriteOptions,
    /// Options for commits, which do not wait inside RocksDB: one that waited for a compaction
    /// without room would keep the store from being reopened.
    pub(crate) commit_options: WriteOptions,
    _open: OpenFolder,
}

/// Files and bytes that must be creatable before the store is closed for reopening.
const PROBE_FILES: usize = 16;
const PROBE_BYTES: usize = 4 << 20;

/// Smallest size of memtables that are flushed to free the log.
const WORTH_A_FLUSH: u64 = 2 << 20;

/// The state of the marks in the log: see `log_tail`.
struct Marks {
    /// The sequence number at which this run began.
    opened_at: u64,
    /// The last sequence number that is durable.
    synced: AtomicU64,
    /// The last sequence number that a mark in the log covers.
    marked: AtomicU64,
}

/// The folders that this process has open. RocksDB's lock is a POSIX lock of the process: opening
/// and closing its file a second time would release it.
static OPEN: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

struct OpenFolder(PathBuf);

impl OpenFolder {
    fn new(folder: &Path) -> Result<OpenFolder, OpenError> {
        let folder = folder.canonicalize().map_err(|error| OpenError::of_file(folder, &error))?;
        match OPEN.lock().insert(folder.clone()) {
            true => Ok(OpenFolder(folder)),
            false => Err(OpenError::InUse),
        }
    }
}

impl Drop for OpenFolder {
    fn drop(&mut self) {
        OPEN.lock().remove(&self.0);
    }
}

/// Takes the lock that RocksDB takes when it opens the folder.
pub(crate) fn lock(folder: &Path) -> Result<File, OpenError> {
    let path = folder.join("LOCK");
    let file = File::options().write(true).create(true).truncate(false).open(&path);
    let file = file.map_err(|error| OpenError::of_file(&path, &error))?;
    match fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(_) => Err(OpenError::InUse),
    }
}

impl Store {
    pub(crate) fn open(
        folder: &Path,
        options: &RocksOptions,
        state: Arc<DiskState>,
        counts: Arc<Counts>,
    ) -> Result<Store, OpenError> {
        std::fs::create_dir_all(folder).map_err(|error| OpenError::of_file(folder, &error))?;
        let marker = format::check(folder)?;
        let open = OpenFolder::new(folder)?;
        if let Marker::Older(found) = marker {
            upgrade::prepare(folder, found, options.older_format, || lock(folder))?;
        }
        match marker {
            Marker::Current | Marker::Older(_) => log_tail::cut(folder, || lock(folder))?,
            Marker::Absent => format::claim(folder)?,
        }
        let room = {
            let _ours = lock(folder)?;
            // Temporary files of a crash, and the reserve, may occupy all of the free space.
            clear_scratch(folder);
            Room::for_opening(folder, options.reserve_bytes, state)
        };
        let shared = SharedResources::new(folder, options);
        let families = Keyspace::ALL.map(|keyspace| {
            let cf = options::column_family(keyspace, &shared);
            ColumnFamilyDescriptor::new(keyspace.name(), cf)
        });
        let database = options::database(options, &shared, room.is_tight());
        let db = DB::open_cf_descriptors(&database, folder, families)
            .map_err(|error| OpenError::of_rocksdb(folder, &error))?;
        if marker != Marker::Current {
            format::mark(folder)?;
        }
        if let Marker::Older(from) = marker {
            upgrade::report(from, options.older_format);
        }
        room.refresh(0);
        let db = Box::new(db);
        let families = Keyspace::ALL.map(|keyspace| {
            let family = db.cf_handle(keyspace.name()).expect("opening opened every keyspace");
            lasting(family)
        });
        let mut write_options = WriteOptions::default();
        write_options.set_sync(options.sync_commits);
        let mut commit_options = WriteOptions::default();
        commit_options.set_sync(options.sync_commits);
        commit_options.set_no_slowdown(true);
        let opened_at = db.latest_sequence_number();
        Ok(Store {
            families,
            db,
            marks: Marks { opened_at, synced: opened_at.into(), marked: opened_at.into() },
            _open: open,
            shared,
            folder: folder.to_owned(),
            health: Health::default(),
            group_sync: GroupSync::default(),
            room,
            deleted: Default::default(),
            eager: Default::default(),
            counts,
            compactions: CompactionWatch::default(),
            held: HeldFiles::default(),
            records: RecordCache::new(options::record_bytes(options)),
            retired: RetiredRuns::default(),
            read_options: ReadOptions::default(),
            write_options,
            commit_options,
        })
    }

    pub(crate) fn family(&self, keyspace: Keyspace) -> &ColumnFamily {
        self.families[keyspace as usize]
    }

    /// Records a successful write. Called before the write is acknowledged.
    pub(crate) fn wrote(&self) {
        self.health.wrote();
        self.group_sync.wrote();
    }

    /// Classifies the failed write of this buffer. For a deletion the whole reserve is released, so
    /// that its next attempt succeeds.
    pub(crate) fn write_failed(&self, error: &rocksdb::Error, buffer: &WriteBuffer) -> KvError {
        let failure = self.health.write_failed(error);
        if self.health.is_disk_full() && !room::adds(buffer) {
            self.room.give_up();
            self.health.note_room();
        }
        failure
    }

    /// Checks before a commit that there is room for it.
    pub(crate) fn admit(&self, buffer: &WriteBuffer) -> KvResult<()> {
        self.health.check()?;
        self.look_at_compactions();
        let admitted = self.room.admit(buffer)?;
        if !self.room.is_short() {
            self.stall_writes(true);
        }
        if admitted == Admission::AfterCompactions {
            return self.let_compactions_go_first();
        }
        Ok(())
    }

    /// Makes the next batch include the mark of the last sync again.
    pub(crate) fn repeat_mark(&self) {
        self.marks.marked.store(0, Ordering::Release);
    }

    /// The folder for temporary files. Fails unless there is room for this many bytes.
    pub(crate) fn scratch(&self, bytes: u64) -> KvResult<PathBuf> {
        self.room.admit_files(bytes)?;
        self.scratch_folder()
    }

    fn scratch_folder(&self) -> KvResult<PathBuf> {
        let scratch = self.folder.join(SCRATCH_FOLDER);
        std::fs::create_dir_all(&scratch)
            .map_err(|error| KvError::Unavailable(format!("{}: {error}", scratch.display())))?;
        Ok(scratch)
    }

    pub(crate) fn sync(&self) -> KvResult<()> {
        self.health.check()?;
        if self.health.is_disk_full() {
            self.probe()?;
        }
        self.group_sync.run(|| {
            let covered = self.db.latest_sequence_number();
            self.db.flush_wal(true).map_err(|error| self.health.sync_failed(&error))?;
            self.marks.synced.fetch_max(covered, Ordering::AcqRel);
            Ok(())
        })
    }

    /// An empty batch. The first one after a sync contains the mark of the sync.
    pub(crate) fn batch(&self, bytes: usize) -> WriteBatch {
        let mut batch = WriteBatch::with_capacity_bytes(bytes + log_tail::MARK_BYTES);
        let Marks { opened_at, synced, marked } = &self.marks;
        let synced = synced.load(Ordering::Acquire);
        if marked.fetch_max(synced, Ordering::AcqRel) < synced {
            batch.put_log_data(log_tail::mark(*opened_at, synced));
        }
        batch
    }

    /// Whether there is room, and file descriptors, to reopen the store with the reserve released.
    pub(crate) fn can_open_files(&self) -> bool {
        self.room.give_up();
        let Ok(folder) = self.scratch_folder() else { return false };
        let names = (0..PROBE_FILES).map(|n| folder.join(format!("probe-{n}")));
        let open = |path: &PathBuf| File::create(path);
        let paths: Vec<PathBuf> = names.collect();
        let files: std::io::Result<Vec<File>> = paths.iter().map(open).collect();
        let probe = files.and_then(|mut files| files[0].write_all(&vec![0; PROBE_BYTES]));
        paths.iter().for_each(|path| drop(std::fs::remove_file(path)));
        probe.is_ok()
    }

    /// Counts deleted keys of records and indexes, for `reclaim_space`.
    pub(crate) fn count_deleted(&self, keyspace: Keyspace, keys: u64) {
        let [records, entries] = &self.deleted;
        let deleted = match keyspace {
            Keyspace::Record => records,
            Keyspace::Index => entries,
            _ => return,
        };
        if keys > 0 {
            deleted.fetch_add(keys, Ordering::Relaxed);
        }
    }

    /// While the disk is nearly full: starts a flush, which frees the write-ahead log, and ensures
    /// that compactions have room and that deletions do not wait for them.
    pub(crate) fn make_room(&self) -> KvResult<()> {
        self.stall_writes(false);
        if self.check_background_errors() {
            // A compaction failed because the disk was full: it gets the whole reserve.
            self.room.give_up();
        }
        let buffered = Keyspace::ALL.map(|keyspace| {
            let (family, name) = (self.family(keyspace), properties::CUR_SIZE_ALL_MEM_TABLES);
            self.db.property_int_value_cf(&family, name).ok().flatten().unwrap_or(0)
        });
        if buffered.iter().sum::<u64>() < WORTH_A_FLUSH {
            return Ok(());
        }
        let mut options = FlushOptions::default();
        options.set_wait(false);
        for keyspace in Keyspace::ALL {
            let begun = self.db.flush_cf_opt(&self.family(keyspace), &options);
            begun.map_err(|error| KvError::Unavailable(error.to_string()))?;
        }
        Ok(())
    }

    /// Writes an empty log entry, to find out whether RocksDB has resumed after a full disk.
    fn probe(&self) -> KvResult<()> {
        let mut batch = WriteBatch::default();
        batch.put_log_data(b"probe");
        self.db
            .write_opt(batch, &self.write_options)
            .map_err(|error| self.health.write_failed(&error))?;
        self.wrote();
        Ok(())
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.db.cancel_all_background_work(true);
    }
}

#[allow(
    unsafe_code,
    reason = "the handle lives in the database's map of families, which is neither changed nor dropped before \
              the Store; the Store hands it out for its own lifetime only"
)]
fn lasting(family: &ColumnFamily) -> &'static ColumnFamily {
    unsafe { std::mem::transmute::<&ColumnFamily, &'static ColumnFamily>(family) }
}

/// A snapshot that keeps its store open.
pub(crate) struct StoreSnapshot {
    /// Points at `snapshot`; dropped before it.
    pub(crate) read_options: ReadOptions,
    /// The range of sequence numbers at which it was taken.
    pub(crate) as_of: AsOf,
    /// Borrows from `store`; dropped before it.
    snapshot: Snapshot<'static>,
    store: Arc<Store>,
}

impl StoreSnapshot {
    #[allow(
        unsafe_code,
        reason = "the snapshot borrows the database inside the Arc next to it, and is dropped first: fields drop \
                  in the order of declaration"
    )]
    pub(crate) fn new(store: Arc<Store>) -> StoreSnapshot {
        let holds = store.db.latest_sequence_number();
        let snapshot = store.db.snapshot();
        let as_of = AsOf::Snapshot(holds, store.db.latest_sequence_number());
        let snapshot = unsafe { std::mem::transmute::<Snapshot<'_>, Snapshot<'static>>(snapshot) };
        let mut read_options = ReadOptions::default();
        read_options.set_snapshot(&snapshot);
        StoreSnapshot { read_options, as_of, snapshot, store }
    }

    /// Options for a scan, which needs its own because of the bounds.
    pub(crate) fn scan_options(&self) -> ReadOptions {
        let mut options = ReadOptions::default();
        options.set_snapshot(&self.snapshot);
        if self.store.shared.is_small {
            options.set_readahead_size(options::SMALL_READAHEAD);
        }
        options
    }
}
