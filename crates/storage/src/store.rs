//! The store: opening, closing, and its background threads.

use crate::isolation::ReadView;
use std::collections::HashMap;
use std::ops::Deref;
use std::sync::atomic::{AtomicI64, AtomicU64};
use std::sync::{Arc, Weak};
use std::time::Duration;

use mayfly_base::{Clock, Error, ErrorCode, Result};
use mayfly_kv::{Engine, Guard, Keyspace};
use mayfly_value::{Collation, RawDoc};
use mayfly_work::OpRegistry;

use crate::backup::{CopyExport, refuse_unfinished};
use crate::catalog::Collection;
use crate::catalog::counts::CountsRow;
use crate::catalog::{Catalog, Core, History, IdHints, OpenPlaces, rows};
use crate::index::{FilterCompiler, RecordFilter};
use crate::oplog::{LogLimits, Oplog, SegmentsToStore};
use crate::policy::TtlParameters;
use crate::policy::watch::{ClockWatch, Mark};
use crate::record::error::from_kv;
use crate::record::layout::catalog_key;
use crate::secondary::{FollowingEngine, SettledThread, read_settled};
use crate::shared::begin_versions;
use crate::sweep::Sweeper;
use crate::ttl::TtlMonitor;
use crate::ttl::pass::PacedPolicies;
use crate::ttl::report::VisitHook;
use crate::ttl::suspension::load_mark;
use crate::write::{FindArchives, OpenTransaction, SyncGate, Writer, wait_for_build};

/// How long closing waits for a running unit.
const LAST_UNIT: Duration = Duration::from_secs(2);

/// What a store does with its byte store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StoreRole {
    /// No other process uses it.
    #[default]
    Alone,
    /// It is the only one that writes. Secondaries may read what it writes.
    Owner,
    /// It reads what the owner writes.
    Secondary,
}

/// Options of an open store.
pub struct StoreOptions {
    /// Compiles filters of partial indexes and validators.
    pub filters: Arc<dyn FilterCompiler>,
    /// The oplog is trimmed to about this many bytes, unless [`Store::resize_oplog`] has been
    /// called since this value was last changed.
    pub oplog_bytes: u64,
    /// Younger entries of the oplog are kept regardless of its size, in milliseconds.
    pub oplog_retention_ms: i64,
    /// Memory for hints of records by `_id`, in bytes.
    pub id_hint_bytes: usize,
    /// Whether background threads (TTL monitor, sweeper) run. Tests call their work themselves.
    pub background: bool,
    /// Whether the store is opened for a replay of its log, which may still need the temporary
    /// collections of commands that had not ended.
    pub for_replay: bool,
    /// What the store does with its byte store.
    pub role: StoreRole,
    /// Whether the store is opened although its catalog has the mark of an unfinished copy, or of
    /// a store that was moved.
    pub marks: CatalogMarks,
}

/// What an open does with a catalog that says that no server may use the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CatalogMarks {
    /// It fails.
    #[default]
    Refuse,
    /// It opens the store: for the copy that has written the mark.
    Allow,
}

impl Default for StoreOptions {
    fn default() -> StoreOptions {
        StoreOptions {
            filters: Arc::new(NoFilters),
            oplog_bytes: 1 << 30,
            oplog_retention_ms: 0,
            id_hint_bytes: 1 << 20,
            background: true,
            for_replay: false,
            role: StoreRole::Alone,
            marks: CatalogMarks::Refuse,
        }
    }
}

/// Refuses partial indexes.
struct NoFilters;

impl FilterCompiler for NoFilters {
    fn compile(&self, _: RawDoc<'_>, _: Option<&Arc<Collation>>) -> Result<Arc<dyn RecordFilter>> {
        Err(Error::not_implemented("index option 'partialFilterExpression'"))
    }
}

/// A hook for the steps of a build.
#[cfg(test)]
pub(crate) type BuildStep = Box<dyn FnMut(&Store, &'static str) -> bool + Send>;

/// An open store, with its background threads. It derefs to [`Writer`].
pub struct Store {
    writer: Writer,
    /// The suspension of expiry that is in the catalog.
    pub(crate) suspension_recorded: parking_lot::Mutex<Option<Mark>>,
    /// The size of the log that the store was opened with.
    oplog_bytes: u64,
    ttl: parking_lot::Mutex<Option<TtlMonitor>>,
    sweeper: parking_lot::Mutex<Option<Sweeper>>,
    /// Before this wall time no recorded statement is old enough to be removed.
    pub(crate) next_statement_due: AtomicI64,
    /// How often a stale log-fed index was built again.
    pub(crate) log_fed_rebuilds: AtomicU64,
    pub(crate) visit_hook: VisitHook,
    pub(crate) paced: PacedPolicies,
    /// Writes the settled timestamp for secondaries, or reads it as one.
    settled: parking_lot::Mutex<Option<SettledThread>>,
    /// The copy of this store that is under way.
    pub(crate) export: CopyExport,
    /// The mark of the point of the backup cursor that is open.
    pub(crate) cursor_point: parking_lot::Mutex<Weak<()>>,
    /// Called after each unit of a visit.
    #[cfg(test)]
    pub(crate) between_units: parking_lot::Mutex<Option<Box<dyn Fn() + Send>>>,
    /// Called between the steps of a build, until it returns true.
    #[cfg(test)]
    pub(crate) between_steps: parking_lot::Mutex<Option<BuildStep>>,
}

impl Deref for Store {
    type Target = Writer;

    fn deref(&self) -> &Writer {
        &self.writer
    }
}

impl Store {
    /// Opens a store over an engine: loads the catalog, discards interrupted builds, starts
    /// background threads.
    ///
    /// # Errors
    /// 12 UnsupportedFormat, 301 DataCorruptionDetected, 94 NotYetInitialized if a restore or a
    /// copy into the engine is not complete or the store was moved, errors of the engine.
    pub fn open(
        engine: Arc<dyn Engine>,
        options: StoreOptions,
        clock: Arc<dyn Clock>,
        ops: Arc<OpRegistry>,
    ) -> Result<Arc<Store>> {
        if options.marks == CatalogMarks::Refuse {
            refuse_unfinished(&*engine)?;
        }
        let is_secondary = options.role == StoreRole::Secondary;
        let following = is_secondary.then(|| FollowingEngine::new(engine.clone()));
        let engine = following.clone().map_or(engine, |it| it as Arc<dyn Engine>);
        let catalog = Catalog::load(&*engine, &*options.filters)?;
        let limits = LogLimits {
            bytes: resized_bytes(&*engine, options.oplog_bytes)?,
            retention_ms: options.oplog_retention_ms,
        };
        let settled = following.as_ref().map(|_| read_settled(&*engine)).transpose()?;
        let (oplog, written_ms) = Oplog::open(engine.clone(), clock.now_ms(), limits, settled)?;
        let ttl_params: Arc<TtlParameters> = Arc::default();
        let mark = load_mark(&*engine)?;
        let watch = ClockWatch::begin(clock.clone(), ttl_params.clone(), written_ms, mark);
        // No timestamp up to a stored position is assigned again, also if the clock was set back.
        if following.is_none() {
            oplog.clock.advance_to(catalog.last_fed());
        }
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
            id_hints: IdHints::new(options.id_hint_bytes),
            open_places: OpenPlaces::default(),
            ttl_params,
            watch: Arc::new(watch),
            follows_owner: following.is_some(),
        };
        let store = Arc::new(Store {
            writer: Writer::new(core, sync),
            suspension_recorded: parking_lot::Mutex::new(mark),
            oplog_bytes: options.oplog_bytes,
            ttl: parking_lot::Mutex::new(None),
            sweeper: parking_lot::Mutex::new(None),
            next_statement_due: AtomicI64::new(i64::MIN),
            log_fed_rebuilds: AtomicU64::new(0),
            visit_hook: VisitHook::default(),
            paced: PacedPolicies::default(),
            settled: parking_lot::Mutex::default(),
            export: CopyExport::default(),
            cursor_point: parking_lot::Mutex::default(),
            #[cfg(test)]
            between_units: parking_lot::Mutex::default(),
            #[cfg(test)]
            between_steps: parking_lot::Mutex::default(),
        });
        let finds_archives: Weak<dyn FindArchives> = Arc::<Store>::downgrade(&store);
        store.find_archives_by(finds_archives);
        match following {
            Some(following) => store.begin_secondary(&following, options.background)?,
            None => store.begin(options.background, options.for_replay, options.role)?,
        }
        Ok(store)
    }

    /// Begins to follow the owner.
    fn begin_secondary(
        self: &Arc<Store>,
        following: &FollowingEngine,
        background: bool,
    ) -> Result<()> {
        self.begin_local_search();
        following.follow_for(self);
        self.stay_secondary();
        if background {
            *self.settled.lock() = Some(SettledThread::read(self).map_err(no_thread)?);
        }
        Ok(())
    }

    /// Discards what the last run has left unfinished, and starts background threads.
    fn begin(self: &Arc<Store>, background: bool, for_replay: bool, role: StoreRole) -> Result<()> {
        if role == StoreRole::Owner {
            begin_versions(self.engine()).map_err(from_kv)?;
        }
        self.load_counts()?;
        // A replay does so itself, after it has noted where it begins: the log gets an entry.
        if !for_replay {
            self.forget_unfinished_builds()?;
            self.drop_temporary()?;
        }
        if !background {
            return Ok(());
        }
        *self.sweeper.lock() = Some(Sweeper::start(self).map_err(no_thread)?);
        let weak = Arc::downgrade(self);
        self.oplog.trim_by(Box::new(move || {
            if let Some(store) = weak.upgrade() {
                store.wake_trimmer();
            }
        }));
        *self.ttl.lock() = Some(TtlMonitor::start(self).map_err(no_thread)?);
        if role == StoreRole::Owner {
            *self.settled.lock() = Some(SettledThread::write(self).map_err(no_thread)?);
        }
        Ok(())
    }

    /// Writes an entry without an operation into an empty log, because tools read the newest entry
    /// before there is any other.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn begin_log(&self) -> Result<()> {
        if !self.oplog.is_new()? {
            return Ok(());
        }
        self.change(|_, oplog| {
            oplog.note("initiating set");
            Ok(())
        })
    }

    /// Writes an entry without an operation, with this document, into the log.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn append_note(&self, note: RawDoc<'_>) -> Result<()> {
        self.change(|_, oplog| {
            oplog.note_document(note);
            Ok(())
        })
    }

    /// Changes the limits of the log, and trims it at once. The size survives a restart, until
    /// another one is configured; the retention time does not.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn resize_oplog(&self, limits: LogLimits) -> Result<()> {
        let value = [self.oplog_bytes.to_be_bytes(), limits.bytes.to_be_bytes()].concat();
        self.oplog.set_limits(limits);
        // An entry must remain when the rest is cut: this note.
        self.change(|txn, oplog| {
            oplog.note("the operation log was resized");
            txn.put(Keyspace::Catalog, catalog_key::OPLOG_SIZE, &value, Guard::Checked)
                .map_err(from_kv)
        })?;
        self.oplog.trim();
        Ok(())
    }

    /// Whether the store reads what another process writes.
    pub fn is_secondary(&self) -> bool {
        self.follows_owner
    }

    /// Whether the TTL monitor's thread is running.
    #[cfg(test)]
    pub(crate) fn ttl_running(&self) -> bool {
        self.ttl.lock().as_ref().is_some_and(TtlMonitor::is_running)
    }

    /// Whether the sweeper's thread is running.
    #[cfg(test)]
    pub(crate) fn sweeper_running(&self) -> bool {
        self.sweeper.lock().as_ref().is_some_and(Sweeper::is_running)
    }

    /// Commits a transaction of several statements; returns the cluster time of the commit.
    ///
    /// # Errors
    /// As [`Writer::commit_open`]; 112 WriteConflict when the name of a collection that it created
    /// is taken.
    pub fn commit_transaction(&self, transaction: OpenTransaction) -> Result<u64> {
        // New names are published under the catalog's lock.
        let changing = match transaction.makes_collections() {
            true => Some(self.catalog.lock()?),
            false => None,
        };
        for ns in transaction.made() {
            if self.catalog.get(&ns).is_some() || self.view(&ReadView::now(), &ns)?.is_some() {
                let text = format!("{ns} was created by another operation meanwhile");
                return Err(Error::new(ErrorCode::WriteConflict, text));
            }
        }
        let (committed_at, delay) = self.commit_open(transaction)?;
        drop(changing);
        wait_for_build(delay);
        Ok(committed_at)
    }

    /// Loads the counts of the last clean close. They are removed, except where units write them,
    /// so that there are none after a crash.
    fn load_counts(&self) -> Result<()> {
        let all = self.catalog.all();
        let by_id: HashMap<u64, &Arc<Collection>> =
            all.values().map(|collection| (collection.id(), collection)).collect();
        let kept = |id: &u64| by_id.get(id).is_some_and(|it| it.capped().is_some());
        let found = self.change(|txn, _| {
            let found = rows(txn, b'k')?;
            // The number belongs to a collection of a transaction that was not committed; its id is
            // not reused.
            for (id, _) in rows(txn, b'r')?.iter().filter(|(id, _)| !by_id.contains_key(id)) {
                txn.delete(Keyspace::Catalog, &catalog_key::numbers(*id), Guard::Checked)
                    .map_err(from_kv)?;
            }
            for (id, _) in found.iter().filter(|(id, _)| !kept(id)) {
                txn.delete(Keyspace::Catalog, &catalog_key::counts(*id), Guard::Checked)
                    .map_err(from_kv)?;
            }
            for (id, _) in rows(txn, b'u')? {
                txn.delete(Keyspace::Catalog, &catalog_key::shown_counts(id), Guard::Checked)
                    .map_err(from_kv)?;
            }
            // The entries may change from now on.
            txn.delete(Keyspace::Catalog, catalog_key::COPYING, Guard::Checked).map_err(from_kv)?;
            Ok(found)
        })?;
        for collection in by_id.values() {
            collection.counts.retired_unknown(self.oplog.clock.last());
        }
        for (id, value) in &found {
            if let (Some(collection), Some(row)) = (by_id.get(id), CountsRow::decode(value)) {
                collection.counts.go_on_from(row);
                collection.capped.raise_first(row.first);
            }
        }
        Ok(())
    }

    pub(crate) fn store_counts(&self) -> Result<()> {
        let feeds = self.feeds_to_store(u64::MAX);
        self.change(|txn, _| {
            for (fed, row) in &feeds {
                let key = catalog_key::feed(fed.id);
                let value = fed.row_value(*row);
                txn.put(Keyspace::Catalog, &key, &value, Guard::Checked).map_err(from_kv)?;
            }
            for collection in self.catalog.all().values() {
                // Waits for a unit that began before the close. If one hangs, the next start counts
                // again.
                let Some(_no_writers) = collection.state.try_write_for(LAST_UNIT) else { continue };
                collection.numbers.give_back(txn)?;
                if let Some(row) =
                    collection.counts.row(collection.capped.first(), self.oplog.cut())
                {
                    let key = catalog_key::counts(collection.id());
                    txn.put(Keyspace::Catalog, &key, &row.encode(), Guard::Checked)
                        .map_err(from_kv)?;
                }
            }
            Ok(())
        })
    }

    /// Ends the background threads, syncs, and closes the engine. Must be called once; later writes
    /// are refused.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn close(&self) -> Result<()> {
        self.engine.begin_to_close();
        let monitor = self.ttl.lock().take();
        if let Some(monitor) = monitor {
            monitor.stop(&self.ttl_params);
        }
        let sweeper = self.sweeper.lock().take();
        if let Some(sweeper) = sweeper {
            sweeper.stop();
        }
        drop(self.settled.lock().take());
        if self.is_secondary() {
            self.await_steps_of_feeds(LAST_UNIT);
            self.close_gate();
            return self.engine.close().map_err(from_kv);
        }
        self.refuse_units();
        self.await_steps_of_feeds(LAST_UNIT);
        let counted = self.store_counts();
        let recorded = self.record_suspension_last();
        let measured = self.oplog.store_segments(SegmentsToStore::All);
        self.close_gate();
        // Held snapshots keep the engine's files open; no new ones are taken now.
        self.history.set_window_secs(0);
        self.drop_copy_point();
        self.engine.close().map_err(from_kv)?;
        counted.and(recorded).and(measured)
    }

    /// The store is about to be closed, so that another server over the same byte store can own it.
    /// From now on it counts as lost for new operations.
    pub fn begin_to_hand_over(&self) {
        self.engine.sharing().begin_to_hand_over();
    }

    /// Makes the sweeper trim the log at once.
    fn wake_trimmer(&self) {
        if let Some(sweeper) = self.sweeper.lock().as_ref() {
            sweeper.trim();
        }
    }

    /// Makes the sweeper run at once.
    pub(crate) fn wake_sweeper(&self) {
        if let Some(sweeper) = self.sweeper.lock().as_ref() {
            sweeper.wake();
        }
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        // The monitor waits for its parameters only; when it wakes, it finds that the store is
        // gone.
        self.ttl_params.wake();
        self.close_gate();
    }
}

/// The size of the log: the size of the last resize, unless the configured one has changed since.
fn resized_bytes(engine: &dyn Engine, configured: u64) -> Result<u64> {
    let mut bytes = configured;
    let see = &mut |value: &[u8]| {
        let Ok(value) = <[u8; 16]>::try_from(value) else { return };
        let (then, resized) = value.split_at(8);
        if then == configured.to_be_bytes() {
            bytes = resized.try_into().map_or(configured, u64::from_be_bytes);
        }
    };
    engine.get_once(Keyspace::Catalog, catalog_key::OPLOG_SIZE, see).map_err(from_kv)?;
    Ok(bytes)
}

fn no_thread(error: std::io::Error) -> Error {
    Error::internal(format!("cannot start a background thread: {error}"))
}
