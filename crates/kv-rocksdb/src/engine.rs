//! The calls of the [`Engine`] contract: opening, transactions, sync, checkpoints, statistics,
//! closing.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use mayfly_base::clock::{Clock, SystemClock};
use mayfly_kv::conflict::ConflictTracker;
use mayfly_kv::{
    Caps, CheckpointFile, Engine, EngineStats, HeldSnapshot, Ingest, KeyRange, Keyspace, KvError,
    KvResult, LogClock, SweepEnd, Txn, TxnOptions, is_retired,
};
use parking_lot::RwLock;
use rocksdb::{CompactOptions, FlushOptions, Range, properties};

use crate::checkpoint;
use crate::counts::Counts;
use crate::figures::{self, SlowFigures};
use crate::health::read_failed;
use crate::held::RocksHeld;
use crate::ingest::RocksIngest;
use crate::open_error::OpenError;
use crate::options::RocksOptions;
use crate::record_cache::{AsOf, CacheLookup};
use crate::room::DiskState;
use crate::store::Store;
use crate::sweep;
use crate::txn::{CAPS, RocksTxn};

/// Deletions after which a flush pays: more than the number that marks a file for compaction.
pub(crate) const MANY_DELETES: u64 = 4_096;
/// How many calls after such a flush also flush few deletions.
const EAGER_CALLS: u8 = 3;

/// Minimum interval between two attempts to open the store again.
const REOPEN_EVERY_MICROS: i64 = 1_000_000;

/// A store in a folder. Its files are closed when the engine is closed or dropped and the last
/// transaction has ended.
pub struct RocksEngine {
    state: RwLock<StoreState>,
    folder: PathBuf,
    options: RocksOptions,
    /// The earliest time of the next attempt to reopen the store, in microseconds since the engine
    /// was opened.
    next_attempt: AtomicI64,
    clock: SystemClock,
    conflicts: Arc<ConflictTracker>,
    log: Arc<LogClock>,
    disk: Arc<DiskState>,
    counts: Arc<Counts>,
    slow_figures: SlowFigures,
}

/// The state of the store.
enum StoreState {
    Open(Arc<Store>),
    /// It was closed for reopening, and opening it failed.
    AwaitingReopen,
    Closed,
}

impl RocksEngine {
    /// Opens the store in a folder, or creates one.
    ///
    /// # Errors
    /// The reason, without the name of the folder.
    pub fn open(
        folder: &Path,
        options: RocksOptions,
    ) -> std::result::Result<Arc<RocksEngine>, OpenError> {
        let disk = Arc::<DiskState>::default();
        let counts = Arc::<Counts>::default();
        let store = Arc::new(Store::open(folder, &options, disk.clone(), counts.clone())?);
        Ok(Arc::new(RocksEngine {
            state: RwLock::new(StoreState::Open(store)),
            folder: folder.to_owned(),
            options,
            next_attempt: AtomicI64::new(0),
            clock: SystemClock::new(),
            conflicts: ConflictTracker::new(),
            log: LogClock::new(),
            disk,
            counts,
            slow_figures: SlowFigures::default(),
        }))
    }

    fn store(&self) -> KvResult<Arc<Store>> {
        match &*self.state.read() {
            StoreState::Open(store) => return Ok(Arc::clone(store)),
            StoreState::Closed => return Err(KvError::Unavailable("the store is closed".into())),
            StoreState::AwaitingReopen => {}
        }
        self.reopen();
        match &*self.state.read() {
            StoreState::Open(store) => Ok(Arc::clone(store)),
            _ => {
                let cause = if self.disk.is_short() { "the disk is full: " } else { "" };
                Err(KvError::Unavailable(format!("{cause}the store is waiting to be reopened")))
            }
        }
    }

    /// The store, for a write: reopened first if it needs that.
    fn writable(&self) -> KvResult<Arc<Store>> {
        let store = self.store()?;
        if !store.health.needs_reopen() {
            return Ok(store);
        }
        drop(store);
        self.reopen();
        self.store()
    }

    /// Reopens the store when RocksDB has stopped and no commit is in doubt: every commit is in the
    /// write-ahead log. It does not wait: while another transaction or a snapshot has the store
    /// open, the next write tries again.
    fn reopen(&self) {
        let now = self.clock.monotonic_micros();
        let due = self.next_attempt.load(Ordering::Acquire);
        let next = now + REOPEN_EVERY_MICROS;
        let take =
            || self.next_attempt.compare_exchange(due, next, Ordering::AcqRel, Ordering::Acquire);
        if due > now || take().is_err() {
            return;
        }
        let mut state = self.state.write();
        match std::mem::replace(&mut *state, StoreState::AwaitingReopen) {
            StoreState::Open(store) => match Arc::try_unwrap(store) {
                Ok(store) if store.health.needs_reopen() && store.can_open_files() => drop(store),
                Ok(store) => *state = StoreState::Open(Arc::new(store)),
                Err(shared) => *state = StoreState::Open(shared),
            },
            StoreState::AwaitingReopen => {}
            StoreState::Closed => *state = StoreState::Closed,
        }
        if !matches!(*state, StoreState::AwaitingReopen) {
            return;
        }
        match Store::open(&self.folder, &self.options, self.disk.clone(), self.counts.clone()) {
            Ok(store) => {
                tracing::info!("the store was reopened; writes are accepted again");
                *state = StoreState::Open(Arc::new(store));
            }
            Err(error) => {
                tracing::error!(%error, "the store cannot be reopened; the next write tries again")
            }
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

    fn log(&self) -> &Arc<LogClock> {
        &self.log
    }

    fn begin(&self, options: TxnOptions) -> KvResult<Box<dyn Txn>> {
        self.counts.begin();
        let store = if options.read_only { self.store()? } else { self.writable()? };
        Ok(Box::new(match options.read_only {
            true => RocksTxn::reader(store),
            false => RocksTxn::writer(store, self.conflicts.begin(), self.log.clone()),
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
        self.counts.begin();
        let store = self.store()?;
        let offer = match keyspace {
            Keyspace::Record => match store.records.lookup(key, AsOf::Latest) {
                CacheLookup::Found(value) => {
                    see(&value);
                    return Ok(true);
                }
                CacheLookup::Missing(offer) => offer,
            },
            _ => None,
        };
        let found = store
            .db
            .get_pinned_cf_opt(&store.family(keyspace), key, &store.read_options)
            .map_err(|error| read_failed(&error))?
            .filter(|value| !is_retired(keyspace, value));
        if let (Some(offer), Some(value)) = (&offer, &found) {
            store.records.add(offer, value, || store.db.latest_sequence_number());
        }
        Ok(found.inspect(|value| see(value)).is_some())
    }

    fn sweep_range(&self, keyspace: Keyspace, range: &KeyRange, max: usize) -> KvResult<SweepEnd> {
        let store = self.store()?;
        if !range.is_empty() {
            let reader = self.begin(TxnOptions::READ_ONLY)?;
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

    /// Counts table files only, not memtables.
    fn approximate_bytes(&self, keyspace: Keyspace, range: &KeyRange) -> KvResult<u64> {
        let store = self.store()?;
        if range.is_empty() {
            return Ok(0);
        }
        let ranges = [Range::new(&range.start, &range.end)];
        Ok(store.db.get_approximate_sizes_cf(&store.family(keyspace), &ranges)[0])
    }

    /// Counts memtables, and versions that were replaced and not yet compacted.
    fn entry_bytes(&self, keyspace: Keyspace) -> KvResult<u64> {
        let store = self.store()?;
        Ok(figures::entry_bytes(&store, keyspace))
    }

    /// Flushes tombstones, which compaction cannot process while they are in a memtable, and a
    /// quiet server does not fill one. Files with many tombstones are compacted soon after (see the
    /// column families' options).
    fn reclaim_space(&self) -> KvResult<()> {
        let store = self.store()?;
        if store.health.check().is_err() || store.held.are_held() {
            return Ok(());
        }
        let mut options = FlushOptions::default();
        options.set_wait(false);
        store.look_at_compactions();
        if store.room.refresh(0) {
            store.make_room()?;
        } else {
            store.stall_writes(true);
            store.check_background_errors();
        }
        let families = [Keyspace::Record, Keyspace::Index].iter().zip(&store.deleted);
        for ((keyspace, deleted), eager) in families.zip(&store.eager) {
            // An earlier flush may have covered most of the deletions; this one covers the rest.
            let unflushed = match deleted.load(Ordering::Relaxed) {
                MANY_DELETES.. => {
                    eager.store(EAGER_CALLS, Ordering::Relaxed);
                    properties::NUM_ENTRIES_ACTIVE_MEM_TABLE
                }
                _ if eager.load(Ordering::Relaxed) == 0 => continue,
                _ => {
                    eager.fetch_sub(1, Ordering::Relaxed);
                    properties::NUM_DELETES_ACTIVE_MEM_TABLE
                }
            };
            deleted.store(0, Ordering::Relaxed);
            let family = store.family(*keyspace);
            let unflushed = store.db.property_int_value_cf(&family, unflushed);
            if unflushed.ok().flatten().unwrap_or(0) > 0 {
                let begun = store.db.flush_cf_opt(&family, &options);
                begun.map_err(|error| KvError::Unavailable(error.to_string()))?;
            }
        }
        Ok(())
    }

    fn compact_range(&self, keyspace: Keyspace, range: &KeyRange) -> KvResult<()> {
        let store = self.store()?;
        store.health.check()?;
        if store.held.are_held() {
            return Err(KvError::Unavailable("the files are held for a copy".into()));
        }
        if !range.is_empty() {
            let mut options = CompactOptions::default();
            // Automatic compactions continue meanwhile.
            options.set_exclusive_manual_compaction(false);
            let (family, range) = (store.family(keyspace), (&range.start, &range.end));
            store.db.compact_range_cf_opt(&family, Some(range.0), Some(range.1), &options);
        }
        Ok(())
    }

    fn hold_files(&self) -> KvResult<bool> {
        self.store()?.hold_files()
    }

    fn release_files(&self) -> KvResult<()> {
        self.store()?.release_files()
    }

    fn is_nearly_full(&self) -> bool {
        self.disk.is_short()
    }

    fn flush(&self) -> KvResult<()> {
        let store = self.store()?;
        store.health.check()?;
        if store.held.are_held() {
            return Err(KvError::Unavailable("the files are held for a copy".into()));
        }
        checkpoint::flush(&store)
    }

    fn checkpoint(&self, folder: &Path) -> KvResult<Vec<CheckpointFile>> {
        checkpoint::write(&*self.store()?, folder)
    }

    fn stats(&self) -> EngineStats {
        match self.store() {
            Ok(store) => figures::read(&store, &self.slow_figures, &self.clock),
            Err(_) => EngineStats::default(),
        }
    }

    fn close(&self) -> KvResult<()> {
        let state = std::mem::replace(&mut *self.state.write(), StoreState::Closed);
        let StoreState::Open(store) = state else { return Ok(()) };
        // Flushed memtables shorten the next start. The flush needs room, which a failed disk does
        // not have.
        if store.health.check().is_err() {
            return Ok(());
        }
        let families: Vec<_> = Keyspace::ALL.map(|keyspace| store.family(keyspace)).to_vec();
        let families: Vec<_> = families.iter().collect();
        let flushed = store.db.flush_cfs_opt(&families, &FlushOptions::default());
        if let Err(error) = flushed {
            tracing::warn!(%error, folder = %store.folder.display(), "the memtables were not flushed at the close; the next start replays the log");
        }
        store.sync()
    }
}
