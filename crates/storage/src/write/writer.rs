//! Commits of write units: the central retry loop, and waits for durability.

use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_kv::{KvError, TxnOptions};
use mayfly_work::{OpCtx, current};

use super::archive::{ArchiveSink, FindArchives};
use super::capped::CappedUnit;
use super::commit::CommitOwner;
use super::definition_hook::DefinitionHook;
use super::durability::SyncGate;
use super::fsync_lock::FsyncLock;
use super::load::ForegroundLoad;
use super::others::{OpenCollections, OtherCollection};
use super::role::Primacy;
use super::unit::{Inserts, UnitContext, WriteUnit};
use super::user_block::UserWriteBlock;
use crate::catalog::{Collection, Core};
use crate::isolation::{Effects, Pending, ReadView};
use crate::policy::TtlStats;
use crate::record::error::from_kv;
use crate::shared::back_off;

/// How often a write is retried after a conflict before the client gets the error.
const MAX_RETRIES: u32 = 10_000;

/// How often a write of the server itself is retried; it can be done later.
const BACKGROUND_RETRIES: u32 = 8;

/// How often a write is retried when its snapshot was too old: each try may have taken long.
const MAX_RETRIES_TOO_OLD: u32 = 10;

/// How often a deletion without room is retried, and after what pause: the engine makes room and
/// reopens its store meanwhile.
const MAX_TRIES_ON_FULL_DISK: u32 = 100;
const FULL_DISK_PAUSE: Duration = Duration::from_millis(200);

/// The operation, view and collections of a write unit, and how it is run.
#[derive(Clone, Copy)]
pub struct WriteOptions<'w> {
    op: &'w OpCtx,
    view: &'w ReadView,
    collection: &'w Collection,
    others: &'w [OtherCollection],
    most_retries: u32,
    is_background: bool,
}

impl<'w> WriteOptions<'w> {
    /// A unit of a command over one collection, retried after conflicts without an own limit.
    pub fn new(op: &'w OpCtx, view: &'w ReadView, collection: &'w Collection) -> WriteOptions<'w> {
        let (others, most_retries) = (&[][..], u32::MAX);
        WriteOptions { op, view, collection, others, most_retries, is_background: false }
    }

    /// Limits the retries after conflicts.
    #[must_use]
    pub fn with_retries(self, most_retries: u32) -> WriteOptions<'w> {
        WriteOptions { most_retries, ..self }
    }

    /// Adds other collections that the unit may write to ([`WriteUnit::within`]).
    #[must_use]
    pub fn with_others(self, others: &'w [OtherCollection]) -> WriteOptions<'w> {
        WriteOptions { others, ..self }
    }

    /// Marks the unit as the server's own work: its time does not count as clients' load. It fails
    /// soon when it conflicts (112), because an open transaction may hold a record for a long time.
    #[must_use]
    pub(crate) fn in_background(self) -> WriteOptions<'w> {
        WriteOptions { most_retries: BACKGROUND_RETRIES, is_background: true, ..self }
    }
}

/// A core with everything that writes need.
pub struct Writer {
    core: Core,
    pub(super) primacy: Primacy,
    pub(super) sync: SyncGate,
    /// Further units are refused.
    closing: AtomicBool,
    ttl_stats: TtlStats,
    /// Conflicts that led to a retry, for serverStatus.
    pub write_conflicts: AtomicI64,
    pub(crate) load: ForegroundLoad,
    archive_sink: OnceLock<Arc<dyn ArchiveSink>>,
    finds_archives: OnceLock<Weak<dyn FindArchives>>,
    pub(super) user_block: UserWriteBlock,
    /// A unit has found the disk nearly full; the sweeper resets the flag.
    pub(crate) noticed_full: AtomicBool,
    pub(super) definition_hook: DefinitionHook,
    /// Blocks writers while `fsync` holds it.
    pub fsync_lock: FsyncLock,
    /// How long a statement of an open transaction waits for a lock, in milliseconds; negative for
    /// no limit.
    pub transaction_lock_timeout_ms: AtomicI64,
    /// Memory for the keys of indexes that are built together, in bytes.
    pub index_build_bytes: AtomicI64,
}

/// The default of `maxTransactionLockRequestTimeoutMillis`.
const TRANSACTION_LOCK_TIMEOUT_MS: i64 = 5;

/// The least wait for the catalog's lock, unless a statement must not wait at all. In this server,
/// changes of other collections hold that lock too, which in the reference would not block a
/// transaction.
const LEAST_LOCK_WAIT_MS: u64 = 1_000;

/// The default of `maxIndexBuildMemoryUsageMegabytes`, in bytes.
const INDEX_BUILD_BYTES: i64 = 200 << 20;

impl Deref for Writer {
    type Target = Core;

    fn deref(&self) -> &Core {
        &self.core
    }
}

impl Writer {
    pub(crate) fn new(core: Core, sync: SyncGate) -> Writer {
        Writer {
            core,
            primacy: Primacy::default(),
            sync,
            closing: AtomicBool::new(false),
            ttl_stats: TtlStats::default(),
            write_conflicts: AtomicI64::new(0),
            load: ForegroundLoad::default(),
            archive_sink: OnceLock::new(),
            finds_archives: OnceLock::new(),
            user_block: UserWriteBlock::default(),
            noticed_full: AtomicBool::new(false),
            definition_hook: DefinitionHook::default(),
            fsync_lock: FsyncLock::default(),
            transaction_lock_timeout_ms: AtomicI64::new(TRANSACTION_LOCK_TIMEOUT_MS),
            index_build_bytes: AtomicI64::new(INDEX_BUILD_BYTES),
        }
    }

    /// Sets the source of the collections that policies archive into.
    pub(crate) fn find_archives_by(&self, finder: Weak<dyn FindArchives>) {
        // Each writer has one store, which sets it at opening.
        let _ = self.finds_archives.set(finder);
    }

    /// The collections that policies of this one archive into.
    fn archives_of(&self, view: &ReadView, collection: &Collection) -> Vec<OtherCollection> {
        if !collection.archives() {
            return Vec::new();
        }
        let finder = self.finds_archives.get().and_then(Weak::upgrade);
        finder.map_or_else(Vec::new, |finder| finder.archives_of(view, collection))
    }

    /// Takes a lock that others may hold for long. A statement of an open transaction waits for a
    /// limited time.
    ///
    /// # Errors
    /// Errors of the operation's deadline, 24 LockTimeout.
    pub(crate) fn lock_in_time<L>(
        &self,
        view: &ReadView,
        what: &str,
        mut try_for: impl FnMut(Duration) -> Option<L>,
    ) -> Result<L> {
        let millis = match view.in_transaction() {
            true => self.transaction_lock_timeout_ms.load(Ordering::Relaxed),
            false => -1,
        };
        let Ok(longest) = u64::try_from(millis) else { return current::acquire(try_for) };
        let longest = if longest == 0 { 0 } else { longest.max(LEAST_LOCK_WAIT_MS) };
        try_for(Duration::from_millis(longest)).ok_or_else(|| {
            let text = format!("Unable to acquire lock on {what} within {millis}ms.");
            Error::new(ErrorCode::LockTimeout, text)
        })
    }

    /// The sink that writes archive files.
    pub(crate) fn archive_sink(&self) -> Option<&dyn ArchiveSink> {
        self.archive_sink.get().map(|sink| &**sink)
    }

    /// Refuses further units.
    pub(crate) fn refuse_units(&self) {
        self.closing.store(true, Ordering::Release);
    }

    /// Ends the thread that syncs.
    pub(crate) fn close_gate(&self) {
        self.sync.close();
    }

    /// The TTL monitor's counters.
    pub fn ttl_stats(&self) -> &TtlStats {
        &self.ttl_stats
    }

    /// Sets the sink that writes archive files; later calls have no effect.
    pub fn archive_into(&self, sink: Arc<dyn ArchiveSink>) {
        // A second sink would belong to a second server over the same store, which is impossible.
        let _ = self.archive_sink.set(sink);
    }

    /// Runs a write unit and commits it; runs it again after a conflict. In an open transaction it
    /// runs once and is committed with the transaction. The body must have no side effects other
    /// than through the unit.
    ///
    /// # Errors
    /// Errors of the body and of the engine; 50 MaxTimeMSExpired and kills of the operation; 26
    /// NamespaceNotFound when the collection was dropped meanwhile.
    pub fn write<T>(
        &self,
        op: &OpCtx,
        view: &ReadView,
        collection: &Collection,
        body: impl FnMut(&mut WriteUnit<'_>) -> Result<T>,
    ) -> Result<T> {
        self.write_with(WriteOptions::new(op, view, collection), body)
    }

    /// As [`Writer::write`], with options.
    ///
    /// # Errors
    /// As [`Writer::write`].
    pub fn write_with<T>(
        &self,
        options: WriteOptions<'_>,
        mut body: impl FnMut(&mut WriteUnit<'_>) -> Result<T>,
    ) -> Result<T> {
        if options.is_background {
            return self.write_until_done(&options, &mut body);
        }
        let began = self.clock.monotonic_micros();
        let result = self.write_until_done(&options, &mut body);
        let now = self.clock.monotonic_micros();
        self.load.note(now - began, now);
        result
    }

    fn write_until_done<T>(
        &self,
        options: &WriteOptions<'_>,
        body: &mut impl FnMut(&mut WriteUnit<'_>) -> Result<T>,
    ) -> Result<T> {
        let WriteOptions { op, view, collection, .. } = *options;
        if let Some(open) = view.open() {
            let others = self.others_of(options);
            return self.write_in_open((op, view), open, collection, &others, body);
        }
        if collection.capped().is_some() {
            // How many records are removed depends on the counts.
            self.count_documents(op, collection)?;
        }
        let (mut tries, mut tries_on_full_disk, mut removes) = (0, 0, false);
        let late = options.most_retries > 0 && self.engine.caps().late_inserts;
        loop {
            let inserts = Inserts { are_late: late && tries == 0 };
            match self.try_write(options, inserts, &mut removes, body) {
                // The engine makes room meanwhile.
                Err(error)
                    if removes
                        && error.code() == ErrorCode::OutOfDiskSpace
                        && tries_on_full_disk < MAX_TRIES_ON_FULL_DISK =>
                {
                    tries_on_full_disk += 1;
                    op.check()?;
                    pause_on_full_disk();
                }
                Err(error) if tries < most_tries(&error).min(options.most_retries) => {
                    tries += 1;
                    self.write_conflicts.fetch_add(1, Ordering::Relaxed);
                    op.check()?;
                    back_off(tries);
                }
                Ok((result, delay)) => {
                    wait_for_build(delay);
                    return Ok(result);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// The collections that the unit may write to besides its own: those that its caller names, and
    /// those that policies of all of them archive into.
    fn others_of(&self, options: &WriteOptions<'_>) -> Vec<OtherCollection> {
        let mut others = self.archives_of(options.view, options.collection);
        let add = |others: &mut Vec<OtherCollection>, more: &OtherCollection| {
            if !others.iter().any(|(ns, _)| *ns == more.0) {
                others.push(more.clone());
            }
        };
        for other in options.others {
            add(&mut others, other);
            if let Ok(collection) = &other.1 {
                let archives = self.archives_of(options.view, collection);
                archives.iter().for_each(|archive| add(&mut others, archive));
            }
        }
        others
    }

    /// Runs and commits a unit once. Returns the body's result, and how long the writer should wait
    /// after it has released its locks. `removes` is set before the commit: whether the unit
    /// removes more than it adds.
    fn try_write<T>(
        &self,
        options: &WriteOptions<'_>,
        inserts: Inserts,
        removes: &mut bool,
        body: &mut impl FnMut(&mut WriteUnit<'_>) -> Result<T>,
    ) -> Result<(T, Duration)> {
        let WriteOptions { collection, view, .. } = *options;
        let others = self.others_of(options);
        self.yield_log();
        let state = collection.read_state()?;
        let namespace = collection.namespace();
        if collection.is_dropped() {
            return Err(Error::new(
                ErrorCode::NamespaceNotFound,
                format!("collection {namespace} was dropped"),
            ));
        }
        self.check_open()?;
        let moment = self.moment();
        // Units on a capped collection run one after the other.
        let turn = &collection.capped.writing;
        let one_writes = match state.capped {
            Some(_) => Some(current::acquire(|longest| turn.try_lock_for(longest))?),
            None => None,
        };
        let open = OpenCollections::open(&others);
        let mut txn = self.engine.begin(TxnOptions::default()).map_err(from_kv)?;
        let mut pending = Pending::new();
        let ns = namespace.as_str();
        let context = UnitContext { moment, core: self, view };
        let mut unit = WriteUnit::new(&mut *txn, &mut pending, collection, &state, ns, context);
        unit.capped = state.capped.map(|limits| CappedUnit::new(limits, collection));
        unit.others = Some(&open);
        unit.archive_sink = self.archive_sink();
        unit.inserts = inserts;
        let result = match body(&mut unit) {
            // An insert before the error may have found a taken key.
            Err(_) if inserts.are_late => return Err(from_kv(KvError::Conflict)),
            result => result?,
        };
        unit.keep_limits()?;
        let (effects, capped) = (unit.effects, unit.capped);
        *removes |= effects.documents < 0 && effects.bytes < 0;
        let owner = CommitOwner::Unit(collection, effects);
        let committed = self.commit(txn, &mut pending, owner, moment.now_ms)?;
        if let Some(capped) = capped {
            capped.note_commit(collection);
        }
        drop(one_writes);
        Ok((result, committed.delay))
    }

    /// Checks that units are accepted.
    ///
    /// # Errors
    /// 11600 InterruptedAtShutdown, 10107 NotWritablePrimary.
    pub(crate) fn check_open(&self) -> Result<()> {
        self.sync.check()?;
        match self.closing.load(Ordering::Acquire) {
            false => Ok(()),
            true => {
                let text = "the store is closing";
                Err(Error::new(ErrorCode::InterruptedAtShutdown, text))
            }
        }
    }

    /// Applies the effects of a committed unit.
    pub(crate) fn note_effects(&self, collection: &Collection, effects: Effects) {
        let expired = effects.apply(collection);
        if expired > 0 {
            self.ttl_stats.deleted_documents.fetch_add(expired, Ordering::Relaxed);
        }
    }

    /// Notes a commit outside of units and catalog changes.
    pub(crate) fn note_commit(&self) {
        self.sync.note_commit();
    }

    /// Waits until all earlier commits survive a crash of the machine.
    ///
    /// # Errors
    /// Errors of the engine; the store then refuses further writes.
    pub async fn wait_durable(&self) -> Result<()> {
        self.sync.wait().await
    }

    /// Waits until everything up to this timestamp of the operation log survives a crash of the
    /// machine.
    ///
    /// # Errors
    /// As [`Writer::wait_durable`].
    pub async fn wait_durable_up_to(&self, timestamp: u64) -> Result<()> {
        self.sync.wait_up_to(timestamp).await
    }

    /// Whether everything up to this timestamp of the operation log survives a crash of the
    /// machine.
    pub fn is_durable(&self, timestamp: u64) -> bool {
        self.sync.is_durable(timestamp)
    }
}

/// How often a unit with this error may be retried.
pub(crate) fn most_tries(error: &Error) -> u32 {
    match error.code() {
        ErrorCode::WriteConflict => MAX_RETRIES,
        ErrorCode::SnapshotTooOld => MAX_RETRIES_TOO_OLD,
        _ => 0,
    }
}

/// Lets the build of an index catch up with its notes. The caller holds no locks.
pub(crate) fn wait_for_build(delay: Duration) {
    if !delay.is_zero() {
        current::wait(|| std::thread::sleep(delay));
    }
}

/// Pauses while the engine makes room.
pub(super) fn pause_on_full_disk() {
    current::wait(|| std::thread::sleep(FULL_DISK_PAUSE));
}
