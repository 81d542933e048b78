//! The engine's own calls: opening, beginning, syncing, copying, figures, closing.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use mayfly_base::clock::{Clock, SystemClock};
use mayfly_kv::conflict::ConflictTracker;
use mayfly_kv::{
    Caps, Engine, EngineStats, HeldSnapshot, Ingest, KeyRange, Keyspace, KvError, KvResult,
    SweepEnd, Txn, TxnOptions,
};
use parking_lot::RwLock;
use rocksdb::checkpoint::Checkpoint;
use rocksdb::{CompactOptions, FlushOptions, Range, properties};

use crate::format;
use crate::health::read_failed;
use crate::ingest::RocksIngest;
use crate::log_tail;
use crate::open_error::OpenError;
use crate::options::RocksOptions;
use crate::record_cache::{AsOf, Look};
use crate::room::DiskState;
use crate::store::Store;
use crate::sweep;
use crate::txn::{CAPS, RocksHeld, RocksTxn};

/// Deletions that are worth a file: as many as mark it for compaction, and some more.
const MANY_DELETES: u64 = 4_096;
/// Calls behind such that find few.
const EAGER_CALLS: u8 = 3;

/// So long nobody tries to open the store again after somebody has.
const REOPEN_EVERY_MICROS: i64 = 1_000_000;

/// A store in a folder. The files are closed when the engine is closed or dropped and the last transaction ended.
pub struct RocksEngine {
    place: RwLock<Place>,
    folder: PathBuf,
    options: RocksOptions,
    /// When the store may be opened again, in microseconds since the engine was opened.
    next_attempt: AtomicI64,
    clock: SystemClock,
    conflicts: Arc<ConflictTracker>,
    disk: Arc<DiskState>,
}

/// Where the store is.
enum Place {
    Open(Arc<Store>),
    /// It was closed in order to be opened again, which failed.
    Lost,
    Closed,
}

impl RocksEngine {
    /// Opens the store in a folder, or makes one.
    ///
    /// # Errors
    /// Why it cannot be opened; the caller knows the folder's name.
    pub fn open(
        folder: &Path,
        options: RocksOptions,
    ) -> std::result::Result<Arc<RocksEngine>, OpenError> {
        let disk = Arc::<DiskState>::default();
        let store = Arc::new(Store::open(folder, &options, disk.clone())?);
        Ok(Arc::new(RocksEngine {
            place: RwLock::new(Place::Open(store)),
            folder: folder.to_owned(),
            options,
            next_attempt: AtomicI64::new(0),
            clock: SystemClock::new(),
            conflicts: ConflictTracker::new(),
            disk,
        }))
    }

    fn store(&self) -> KvResult<Arc<Store>> {
        match &*self.place.read() {
            Place::Open(store) => return Ok(Arc::clone(store)),
            Place::Closed => return Err(KvError::Unavailable("the store is closed".into())),
            Place::Lost => {}
        }
        self.reopen();
        match &*self.place.read() {
            Place::Open(store) => Ok(Arc::clone(store)),
            _ => {
                let cause = if self.disk.is_short() { "the disk is full: " } else { "" };
                Err(KvError::Unavailable(format!("{cause}the store waits to be opened again")))
            }
        }
    }

    /// The store for somebody who writes.
    fn writable(&self) -> KvResult<Arc<Store>> {
        let store = self.store()?;
        if !store.health.wants_reopen() {
            return Ok(store);
        }
        drop(store);
        self.reopen();
        self.store()
    }

    /// Opens the store again, when RocksDB has stopped and nothing is in doubt: everything that was committed stands in the log.
    /// It waits for nobody: as long as somebody else has a transaction or a snapshot, the next writer tries.
    fn reopen(&self) {
        let now = self.clock.monotonic_micros();
        let due = self.next_attempt.load(Ordering::Acquire);
        let next = now + REOPEN_EVERY_MICROS;
        let take =
            || self.next_attempt.compare_exchange(due, next, Ordering::AcqRel, Ordering::Acquire);
        if due > now || take().is_err() {
            return;
        }
        let mut place = self.place.write();
        match std::mem::replace(&mut *place, Place::Lost) {
            Place::Open(store) => match Arc::try_unwrap(store) {
                Ok(store) if store.health.wants_reopen() && store.can_open_files() => drop(store),
                Ok(store) => *place = Place::Open(Arc::new(store)),
                Err(shared) => *place = Place::Open(shared),
            },
            Place::Lost => {}
            Place::Closed => *place = Place::Closed,
        }
        if !matches!(*place, Place::Lost) {
            return;
        }
        match Store::open(&self.folder, &self.options, self.disk.clone()) {
            Ok(store) => {
                tracing::info!("the store was opened again; writes go on");
                *place = Place::Open(Arc::new(store));
            }
            Err(error) => tracing::error!(%error, "the store cannot be opened again yet"),
        }
    }
}

impl Engine for RocksEngine {
    fn name(&self) -> &'static str {
        "rocksdb"
    }

    fn caps(&self) -> Caps {
        CAPS
    }

    fn begin(&self, options: TxnOptions) -> KvResult<Box<dyn Txn>> {
        let store = if options.read_only { self.store()? } else { self.writable()? };
        Ok(Box::new(match options.read_only {
            true => RocksTxn::reader(store),
            false => RocksTxn::writer(store, self.conflicts.begin()),
        }))
    }

    fn hold(&self) -> KvResult<Arc<dyn HeldSnapshot>> {
        Ok(Arc::new(RocksHeld::new(self.store()?)))
    }

    fn get_once(
        &self,
        keyspace: Keyspace,
        key: &[u8],
        see: &mut dyn FnMut(&[u8]),
    ) -> KvResult<bool> {
        let store = self.store()?;
        let offer = match keyspace {
            Keyspace::Record => match store.records.look(key, AsOf::Latest) {
                Look::Found(value) => {
                    see(&value);
                    return Ok(true);
                }
                Look::Missing(offer) => offer,
            },
            _ => None,
        };
        let found = store
            .db
            .get_pinned_cf_opt(&store.family(keyspace), key, &store.read_options)
            .map_err(|error| read_failed(&error))?;
        if let (Some(offer), Some(value)) = (&offer, &found) {
            store.records.add(offer, value, || store.db.latest_sequence_number());
        }
        Ok(found.inspect(|value| see(value)).is_some())
    }

    fn sweep_range(&self, keyspace: Keyspace, range: &KeyRange, max: usize) -> KvResult<SweepEnd> {
        let store = self.store()?;
        if !range.is_empty() {
            let reader = self.begin(TxnOptions { read_only: true })?;
            sweep::sweep(&store, &*reader, keyspace, range, max)?;
        }
        Ok(SweepEnd::Done)
    }

    fn begin_ingest(&self, keyspace: Keyspace) -> KvResult<Option<Box<dyn Ingest>>> {
        let store = self.store()?;
        store.health.check()?;
        Ok(Some(Box::new(RocksIngest::new(store, keyspace))))
    }

    fn scratch(&self, bytes: u64) -> KvResult<Option<PathBuf>> {
        self.store()?.scratch(bytes).map(Some)
    }

    fn sync(&self) -> KvResult<()> {
        self.writable()?.sync()
    }

    /// Files only: what is still in memtables counts when it is flushed.
    fn approximate_bytes(&self, keyspace: Keyspace, range: &KeyRange) -> KvResult<u64> {
        let store = self.store()?;
        if range.is_empty() {
            return Ok(0);
        }
        let ranges = [Range::new(&range.start, &range.end)];
        Ok(store.db.get_approximate_sizes_cf(&store.family(keyspace), &ranges)[0])
    }

    /// Tombstones do nothing while they are in a memtable, which a quiet server does not fill. Files that are dense in them
    /// are compacted soon (see the column families' options).
    fn give_back_space(&self) -> KvResult<()> {
        let store = self.store()?;
        if store.health.check().is_err() {
            return Ok(());
        }
        let mut options = FlushOptions::default();
        options.set_wait(false);
        if store.room.look(0) {
            store.make_room()?;
        } else {
            store.stall_writes(true);
            store.look_at_errors();
        }
        let families = [Keyspace::Record, Keyspace::Index].iter().zip(&store.deleted);
        for ((keyspace, deleted), eager) in families.zip(&store.eager) {
            // Most of them may have been flushed meanwhile: then the last ones are not left alone.
            match deleted.load(Ordering::Relaxed) {
                MANY_DELETES.. => eager.store(EAGER_CALLS, Ordering::Relaxed),
                _ if eager.load(Ordering::Relaxed) == 0 => continue,
                _ => _ = eager.fetch_sub(1, Ordering::Relaxed),
            }
            deleted.store(0, Ordering::Relaxed);
            let family = store.family(*keyspace);
            let deletes =
                store.db.property_int_value_cf(&family, properties::NUM_DELETES_ACTIVE_MEM_TABLE);
            if deletes.ok().flatten().unwrap_or(0) > 0 {
                let begun = store.db.flush_cf_opt(&family, &options);
                begun.map_err(|error| KvError::Unavailable(error.to_string()))?;
            }
        }
        Ok(())
    }

    fn compact_range(&self, keyspace: Keyspace, range: &KeyRange) -> KvResult<()> {
        let store = self.store()?;
        store.health.check()?;
        if !range.is_empty() {
            let mut options = CompactOptions::default();
            // Others' compactions go on beside it.
            options.set_exclusive_manual_compaction(false);
            let (family, range) = (store.family(keyspace), (&range.start, &range.end));
            store.db.compact_range_cf_opt(&family, Some(range.0), Some(range.1), &options);
        }
        Ok(())
    }

    fn is_nearly_full(&self) -> bool {
        self.disk.is_short()
    }

    fn checkpoint(&self, folder: &Path) -> KvResult<()> {
        let store = self.store()?;
        if folder.exists() {
            return Err(KvError::Invalid(format!("{} exists already", folder.display())));
        }
        store.sync()?;
        Checkpoint::new(&*store.db)
            .and_then(|checkpoint| checkpoint.create_checkpoint(folder))
            .map_err(|error| KvError::Unavailable(format!("{}: {error}", folder.display())))?;
        Ok(format::mark(folder)?)
    }

    fn stats(&self) -> EngineStats {
        let Ok(store) = self.store() else { return EngineStats::default() };
        let (mut readers, mut disk_bytes, mut written_bytes) = (0, 0, 0);
        for keyspace in Keyspace::ALL {
            let family = store.family(keyspace);
            let figure = |name| store.db.property_int_value_cf(&family, name).ok().flatten();
            readers += figure(properties::ESTIMATE_TABLE_READERS_MEM).unwrap_or(0);
            disk_bytes += figure(properties::TOTAL_SST_FILES_SIZE).unwrap_or(0);
            let text = store.db.property_value_cf(&family, properties::CFSTATS_NO_FILE_HISTOGRAM);
            written_bytes += written_by_compaction(&text.ok().flatten().unwrap_or_default());
        }
        // Memtables are charged to the cache, so its usage includes them.
        let records = store.records.bytes() as u64;
        let memory_bytes = store.shared.cache.get_usage() as u64 + records + readers;
        let log_bytes = log_tail::bytes(&store.folder);
        let room = Some(store.room.stats());
        EngineStats { memory_bytes, disk_bytes, written_bytes, log_bytes, room }
    }

    fn close(&self) -> KvResult<()> {
        let place = std::mem::replace(&mut *self.place.write(), Place::Closed);
        let Place::Open(store) = place else { return Ok(()) };
        // Flushed memtables make the next start quick; they need room that a broken disk does not have.
        if store.health.check().is_err() {
            return Ok(());
        }
        let families: Vec<_> = Keyspace::ALL.map(|keyspace| store.family(keyspace)).to_vec();
        let families: Vec<_> = families.iter().collect();
        let flushed = store.db.flush_cfs_opt(&families, &FlushOptions::default());
        if let Err(error) = flushed {
            tracing::warn!(%error, folder = %store.folder.display(), "closing without a flush");
        }
        store.sync()
    }
}

/// RocksDB tells what flushes and compactions have written only in a line of text, in GB with two decimals.
fn written_by_compaction(text: &str) -> u64 {
    let gigabytes = text
        .lines()
        .find_map(|line| line.strip_prefix("Cumulative compaction: "))
        .and_then(|rest| rest.split(' ').next()?.parse::<f64>().ok());
    (gigabytes.unwrap_or(0.0) * f64::from(1 << 30)) as u64
}
