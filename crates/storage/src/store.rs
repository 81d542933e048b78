//! The store: opening, closing, the central retry loop for writes, and acknowledging them.

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use mayfly_base::{Clock, Error, ErrorCode, OpCtx, OpRegistry, Result, current};
use mayfly_kv::{Engine, Guard, Keyspace, Txn, TxnOptions};
use mayfly_value::{Collation, RawDoc};

use crate::capped::CappedUnit;
use crate::catalog::Collection;
use crate::catalog::{Catalog, Core, History, rows};
use crate::durability::SyncGate;
use crate::fsync_lock::FsyncLock;
use crate::index::{FilterCompiler, RecordFilter};
use crate::oplog::Oplog;
use crate::policy::TtlParameters;
use crate::policy::watch::{ClockWatch, Mark};
use crate::read::open_view;
use crate::record::error::from_kv;
use crate::record::layout::catalog_key;
use crate::role::Primacy;
use crate::sweep::Sweeper;
use crate::ttl::archive::{ArchiveCollection, Archives, OpenArchives};
use crate::ttl::load::ForegroundLoad;
use crate::ttl::pass::PacedPolicies;
use crate::ttl::report::VisitHook;
use crate::ttl::suspension::load_mark;
use crate::ttl::{ArchiveSink, TtlMonitor, TtlStats};
use crate::write::{Effects, Pending, WriteUnit};
use crate::write_block::UserWriteBlock;

/// How often one write is tried again before the client sees the conflict.
const MAX_RETRIES: u32 = 10_000;

/// How often one of the server's own that can as well be done later.
const BRIEF_RETRIES: u32 = 8;

/// How often when its snapshot was too old: each try may have taken long.
const MAX_RETRIES_TOO_OLD: u32 = 10;

/// How long closing waits for a unit that is still running.
const LAST_UNIT: Duration = Duration::from_secs(2);

/// How a store is opened.
pub struct StoreOptions {
    /// Compiles filters of partial indexes.
    pub filters: Arc<dyn FilterCompiler>,
    /// The oplog is trimmed to about this many bytes.
    pub oplog_bytes: u64,
    /// Whether background threads (TTL monitor, sweeper) run; tests drive them by hand.
    pub background: bool,
}

impl Default for StoreOptions {
    fn default() -> StoreOptions {
        StoreOptions { filters: Arc::new(NoFilters), oplog_bytes: 1 << 30, background: true }
    }
}

/// Refuses partial indexes.
struct NoFilters;

impl FilterCompiler for NoFilters {
    fn compile(&self, _: RawDoc<'_>, _: Option<&Arc<Collation>>) -> Result<Arc<dyn RecordFilter>> {
        Err(Error::not_implemented("index option 'partialFilterExpression'"))
    }
}

/// An open store.
pub struct Store {
    core: Core,
    pub(crate) primacy: Primacy,
    sync: SyncGate,
    /// Units are refused from here on.
    closing: AtomicBool,
    /// What the catalog says of suspended expiry.
    pub(crate) suspension_recorded: parking_lot::Mutex<Option<Mark>>,
    ttl_stats: TtlStats,
    ttl: parking_lot::Mutex<Option<TtlMonitor>>,
    sweeper: parking_lot::Mutex<Option<Sweeper>>,
    /// Wall time before which no recorded statement can be old enough to go.
    pub(crate) next_statement_due: AtomicI64,
    /// Conflicts that led to another try, for serverStatus.
    pub write_conflicts: AtomicI64,
    pub(crate) visit_hook: VisitHook,
    pub(crate) paced: PacedPolicies,
    pub(crate) load: ForegroundLoad,
    pub(crate) archive_sink: std::sync::OnceLock<Arc<dyn ArchiveSink>>,
    pub(crate) write_block: UserWriteBlock,
    /// Keeps writers out while `fsync` holds it.
    pub fsync_lock: FsyncLock,
    /// Called behind each unit of a visit.
    #[cfg(test)]
    pub(crate) between_units: parking_lot::Mutex<Option<Box<dyn Fn() + Send>>>,
}

impl Deref for Store {
    type Target = Core;

    fn deref(&self) -> &Core {
        &self.core
    }
}

impl Store {
    /// Opens a store over an engine: reads the catalog, forgets builds that a crash cut off, starts the background work.
    ///
    /// # Errors
    /// 12 UnsupportedFormat, 301 DataCorruptionDetected, those of the engine.
    pub fn open(
        engine: Arc<dyn Engine>,
        options: StoreOptions,
        clock: Arc<dyn Clock>,
        ops: Arc<OpRegistry>,
    ) -> Result<Arc<Store>> {
        let catalog = Catalog::load(&*engine, &*options.filters)?;
        let (oplog, written_ms) = Oplog::open(engine.clone(), clock.now_ms(), options.oplog_bytes)?;
        let ttl_params: Arc<TtlParameters> = Arc::default();
        let mark = load_mark(&*engine)?;
        let watch = ClockWatch::begin(clock.clone(), ttl_params.clone(), written_ms, mark);
        let sync =
            SyncGate::start(engine.clone(), oplog.clock.shared_settled()).map_err(no_thread)?;
        let core = Core {
            engine,
            catalog,
            clock,
            ops,
            filters: options.filters,
            oplog,
            definitions: Arc::default(),
            history: History::default(),
            ttl_params,
            watch: Arc::new(watch),
        };
        let store = Arc::new(Store {
            core,
            primacy: Primacy::default(),
            sync,
            closing: AtomicBool::new(false),
            suspension_recorded: parking_lot::Mutex::new(mark),
            ttl_stats: TtlStats::default(),
            ttl: parking_lot::Mutex::new(None),
            sweeper: parking_lot::Mutex::new(None),
            next_statement_due: AtomicI64::new(i64::MIN),
            write_conflicts: AtomicI64::new(0),
            visit_hook: VisitHook::default(),
            paced: PacedPolicies::default(),
            load: ForegroundLoad::default(),
            archive_sink: std::sync::OnceLock::new(),
            write_block: UserWriteBlock::default(),
            fsync_lock: FsyncLock::default(),
            #[cfg(test)]
            between_units: parking_lot::Mutex::default(),
        });
        store.load_counts()?;
        store.forget_unfinished_builds()?;
        store.drop_temporary()?;
        if options.background {
            *store.sweeper.lock() = Some(Sweeper::start(&store).map_err(no_thread)?);
            *store.ttl.lock() = Some(TtlMonitor::start(&store).map_err(no_thread)?);
        }
        Ok(store)
    }

    /// Makes an empty log begin with an entry that does nothing: tools ask for the newest entry before there is any other.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn begin_log(&self) -> Result<()> {
        if !self.oplog.is_new()? {
            return Ok(());
        }
        self.change(|_, oplog| {
            oplog.note("initiating set");
            Ok(())
        })
    }

    /// Writes a note into the log, which is all it does.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn append_note(&self, note: RawDoc<'_>) -> Result<()> {
        self.change(|_, oplog| {
            oplog.note_document(note);
            Ok(())
        })
    }

    /// Whether the TTL monitor's thread is there.
    #[cfg(test)]
    pub(crate) fn ttl_running(&self) -> bool {
        self.ttl.lock().as_ref().is_some_and(TtlMonitor::is_running)
    }

    /// The TTL monitor's counters.
    pub fn ttl_stats(&self) -> &TtlStats {
        &self.ttl_stats
    }

    /// Runs a write unit and commits it; runs it again as long as it conflicts. The body has no side effects but through
    /// the unit.
    ///
    /// # Errors
    /// Those of the body and of the engine; 50 MaxTimeMSExpired and kills of the operation; 26 NamespaceNotFound when
    /// the collection was dropped meanwhile.
    pub fn write<T>(
        &self,
        op: &OpCtx,
        collection: &Collection,
        body: impl FnMut(&mut WriteUnit<'_>) -> Result<T>,
    ) -> Result<T> {
        let began = self.clock.monotonic_micros();
        let result = self.write_unmeasured(op, collection, body);
        let now = self.clock.monotonic_micros();
        self.load.note(now - began, now);
        result
    }

    /// The same for the server's own work, which is to make room for that of others.
    ///
    /// # Errors
    /// As [`Store::write`].
    pub(crate) fn write_unmeasured<T>(
        &self,
        op: &OpCtx,
        collection: &Collection,
        body: impl FnMut(&mut WriteUnit<'_>) -> Result<T>,
    ) -> Result<T> {
        self.write_beside(op, collection, &[], body)
    }

    /// The same with other collections that the unit may write to.
    ///
    /// # Errors
    /// As [`Store::write`].
    pub(crate) fn write_beside<T>(
        &self,
        op: &OpCtx,
        collection: &Collection,
        others: &[ArchiveCollection],
        body: impl FnMut(&mut WriteUnit<'_>) -> Result<T>,
    ) -> Result<T> {
        self.write_tried(op, collection, others, u32::MAX, body)
    }

    /// As [`Store::write_unmeasured`], for what can be done later: an open transaction may hold a record for a long time.
    ///
    /// # Errors
    /// As [`Store::write`]; 112 WriteConflict after a short time.
    pub(crate) fn write_briefly<T>(
        &self,
        op: &OpCtx,
        collection: &Collection,
        body: impl FnMut(&mut WriteUnit<'_>) -> Result<T>,
    ) -> Result<T> {
        self.write_tried(op, collection, &[], BRIEF_RETRIES, body)
    }

    fn write_tried<T>(
        &self,
        op: &OpCtx,
        collection: &Collection,
        others: &[ArchiveCollection],
        most: u32,
        mut body: impl FnMut(&mut WriteUnit<'_>) -> Result<T>,
    ) -> Result<T> {
        if let Some(view) = open_view() {
            let mut archives = self.archives_of(collection);
            archives.extend_from_slice(others);
            return self.write_in_open(&view, op, collection, &archives, &mut body);
        }
        if collection.capped().is_some() {
            // What has to go depends on how much there is.
            self.count_documents(op, collection)?;
        }
        let mut tries = 0;
        loop {
            let mut archives = self.archives_of(collection);
            archives.extend_from_slice(others);
            match self.try_write(collection, &archives, &mut body) {
                Err(error) if tries < most_tries(&error).min(most) => {
                    tries += 1;
                    self.write_conflicts.fetch_add(1, Ordering::Relaxed);
                    op.check()?;
                    back_off(tries);
                }
                other => return other,
            }
        }
    }

    fn try_write<T>(
        &self,
        collection: &Collection,
        archives: &[ArchiveCollection],
        body: &mut impl FnMut(&mut WriteUnit<'_>) -> Result<T>,
    ) -> Result<T> {
        let state = collection.state.read();
        let namespace = collection.namespace();
        if collection.is_dropped() {
            return Err(Error::new(
                ErrorCode::NamespaceNotFound,
                format!("collection {namespace} was dropped"),
            ));
        }
        self.check_open()?;
        let moment = self.moment();
        let now_ms = moment.now_ms;
        // Units on a capped collection run one after the other.
        let mut next = state.capped.map(|_| collection.capped.next.lock());
        let open = OpenArchives::open(archives);
        let mut txn = self.engine.begin(TxnOptions::default()).map_err(from_kv)?;
        let mut pending = Pending::new();
        let ns = namespace.as_str();
        let mut unit =
            WriteUnit::new(&mut *txn, &mut pending, collection, &state, ns, moment, &self.watch);
        if let (Some(limits), Some(next)) = (state.capped, &next) {
            unit.capped = Some(CappedUnit::new(limits, **next));
        }
        unit.archives =
            Archives { open: Some(&open), sink: self.archive_sink.get().map(|sink| &**sink) };
        let result = body(&mut unit)?;
        unit.make_room()?;
        let number = unit.capped.as_ref().and_then(|capped| capped.next);
        let effects = unit.effects;
        self.commit(txn, pending, (collection, effects), now_ms)?;
        if let Some(next) = &mut next {
            **next = number;
            collection.note_capped_commit();
        }
        Ok(result)
    }

    fn commit(
        &self,
        mut txn: Box<dyn Txn>,
        mut pending: Pending,
        (collection, effects): (&Collection, Effects),
        now_ms: i64,
    ) -> Result<()> {
        if txn.size().1 == 0 {
            return Ok(());
        }
        let mut under_way = None;
        if !pending.oplog.is_empty() {
            let stamp = self.oplog.clock.next(now_ms);
            let timestamp = stamp.timestamp();
            let entry = pending.oplog.finish(timestamp, now_ms);
            self.check_user_write(entry.as_doc())?;
            txn.put(Keyspace::Oplog, &timestamp.to_be_bytes(), entry.as_bytes(), Guard::Derived)
                .map_err(from_kv)?;
            // Given back when the commit is over.
            under_way = Some(stamp);
        }
        txn.commit().map_err(from_kv)?;
        drop(under_way);
        pending.note_multikey();
        self.note_effects(collection, effects);
        for (collection, effects) in pending.collections {
            self.note_effects(&collection, effects);
        }
        self.sync.note_commit();
        Ok(())
    }

    /// Whether units are still taken.
    ///
    /// # Errors
    /// 11600 InterruptedAtShutdown.
    pub(crate) fn check_open(&self) -> Result<()> {
        match self.closing.load(Ordering::Acquire) {
            false => Ok(()),
            true => {
                let text = "the store is closing";
                Err(Error::new(ErrorCode::InterruptedAtShutdown, text))
            }
        }
    }

    /// What was written is committed.
    pub(crate) fn note_effects(&self, collection: &Collection, effects: Effects) {
        let expired = effects.apply(collection);
        if expired > 0 {
            self.ttl_stats.deleted_documents.fetch_add(expired, Ordering::Relaxed);
        }
    }

    /// A catalog change was committed outside a unit.
    pub(crate) fn note_commit(&self) {
        self.sync.note_commit();
    }

    /// Waits until everything committed before this call survives a crash of the machine.
    ///
    /// # Errors
    /// Those of the engine; the store then refuses further writes.
    pub async fn wait_durable(&self) -> Result<()> {
        self.sync.wait().await
    }

    /// Waits until everything up to this timestamp of the operation log survives a crash of the machine.
    ///
    /// # Errors
    /// As [`Store::wait_durable`].
    pub async fn wait_durable_up_to(&self, timestamp: u64) -> Result<()> {
        self.sync.wait_up_to(timestamp).await
    }

    /// Whether everything up to this timestamp of the operation log survives a crash of the machine.
    pub fn is_durable(&self, timestamp: u64) -> bool {
        self.sync.is_durable(timestamp)
    }

    /// Takes the counts of the last clean close, and removes them, so that a crash leaves none behind.
    fn load_counts(&self) -> Result<()> {
        let found = self.change(|txn, _| {
            let found = rows(txn, b'k')?;
            for (id, _) in &found {
                txn.delete(Keyspace::Catalog, &catalog_key::counts(*id), Guard::Checked)
                    .map_err(from_kv)?;
            }
            Ok(found)
        })?;
        let all = self.catalog.all();
        let by_id: HashMap<u64, &Arc<Collection>> =
            all.values().map(|collection| (collection.id(), collection)).collect();
        for (id, value) in &found {
            let numbers = (value.get(..8), value.get(8..16));
            let collection = by_id.get(id);
            if let (Some(collection), (Some(documents), Some(bytes))) = (collection, numbers) {
                let number = |b: &[u8]| b.try_into().map_or(0, i64::from_le_bytes);
                collection.counts.documents.store(number(documents), Ordering::Release);
                collection.counts.bytes.store(number(bytes), Ordering::Release);
                collection.counts.exact.store(true, Ordering::Release);
            }
        }
        Ok(())
    }

    fn store_counts(&self) -> Result<()> {
        self.change(|txn, _| {
            for collection in self.catalog.all().values() {
                // A unit that began before the store was closing still counts; one that hangs makes the next start count.
                let Some(_no_writers) = collection.state.try_write_for(LAST_UNIT) else { continue };
                if collection.counts.exact.load(Ordering::Acquire) {
                    let mut value =
                        collection.counts.documents.load(Ordering::Acquire).to_le_bytes().to_vec();
                    let bytes = collection.counts.bytes.load(Ordering::Acquire);
                    value.extend_from_slice(&bytes.to_le_bytes());
                    let key = catalog_key::counts(collection.id());
                    txn.put(Keyspace::Catalog, &key, &value, Guard::Checked).map_err(from_kv)?;
                }
            }
            Ok(())
        })
    }

    /// Ends the background work, syncs, and closes the engine. To be called once; who still writes is refused.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn close(&self) -> Result<()> {
        let monitor = self.ttl.lock().take();
        if let Some(monitor) = monitor {
            monitor.stop(&self.ttl_params);
        }
        let sweeper = self.sweeper.lock().take();
        if let Some(sweeper) = sweeper {
            sweeper.stop();
        }
        self.closing.store(true, Ordering::Release);
        let counted = self.store_counts();
        let recorded = self.record_suspension_last();
        self.sync.close();
        // Held snapshots keep the engine's files open; none comes any more.
        self.history.set_window_secs(0);
        self.engine.close().map_err(from_kv)?;
        counted.and(recorded)
    }

    /// Makes the sweeper look at once.
    pub(crate) fn wake_sweeper(&self) {
        if let Some(sweeper) = self.sweeper.lock().as_ref() {
            sweeper.wake();
        }
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        // The monitor waits for its parameters only; it sees that the store is gone.
        self.ttl_params.wake();
        self.sync.close();
    }
}

fn no_thread(error: std::io::Error) -> Error {
    Error::internal(format!("cannot start a background thread: {error}"))
}

/// How often a unit that failed so may be tried again.
fn most_tries(error: &Error) -> u32 {
    match error.code() {
        ErrorCode::WriteConflict => MAX_RETRIES,
        ErrorCode::SnapshotTooOld => MAX_RETRIES_TOO_OLD,
        _ => 0,
    }
}

/// Gives the other writer time; longer with each try.
fn back_off(tries: u32) {
    if tries < 4 {
        std::thread::yield_now();
    } else {
        let cap = 50u64 << tries.min(9);
        let micros = rand::random_range(cap / 4..=cap);
        // The other writer may be a transaction, whose next statement needs a thread, too.
        current::wait(|| std::thread::sleep(Duration::from_micros(micros.min(20_000))));
    }
}
