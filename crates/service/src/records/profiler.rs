//! The profiler: decides which operations get a log line or a document in `system.profile`, and
//! writes these documents.
//!
//! `slowms` and `sampleRate` apply to the server, level and filter to a database. `system.profile`
//! is an ordinary collection whose oldest documents are deleted when it grows beyond a megabyte. A
//! document that cannot be written is lost, because its operation has already been answered.

#[cfg(test)]
mod tests;

use mayfly_storage::ReadView;
use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

use mayfly_base::{Namespace, Result};
use mayfly_mql::Matcher;
use mayfly_storage::{Direction, RecordKey, ScanLimit, Store, whole_range};
use mayfly_value::{DocBuf, DocBuilder, RawDoc};
use mayfly_work::OpCtx;
use parking_lot::{Mutex, RwLock};

/// The name of the collection in each database.
pub const COLLECTION: &str = "system.profile";
/// The largest size of the collection.
const MOST_BYTES: i64 = 1 << 20;
/// How many of the oldest documents are deleted at once.
const DELETED_AT_ONCE: usize = 100;
const DEFAULT_SLOW_MS: i64 = 100;

/// The profiling settings of a database.
#[derive(Clone, Default)]
pub struct Profiled {
    /// 0 for nothing, 1 for operations that are slow or pass the filter, 2 for all.
    pub level: i32,
    /// Replaces `slowms` and `sampleRate`: as sent, and compiled.
    pub filter: Option<(DocBuf, Matcher)>,
}

/// Settings and state of the profiler.
pub struct Profiler {
    slow_ms: AtomicI64,
    /// The bits of an f64.
    sample_rate: AtomicU64,
    databases: RwLock<HashMap<String, Profiled>>,
    /// The settings of all other databases except `local`.
    default: RwLock<Profiled>,
    /// Whether any database has a level or a filter.
    any: AtomicBool,
    last_id: AtomicI64,
    /// Held while old documents are deleted.
    trimming: Mutex<()>,
}

impl Default for Profiler {
    fn default() -> Profiler {
        Profiler {
            slow_ms: AtomicI64::new(DEFAULT_SLOW_MS),
            sample_rate: AtomicU64::new(1.0f64.to_bits()),
            databases: RwLock::default(),
            default: RwLock::default(),
            any: AtomicBool::new(false),
            last_id: AtomicI64::new(0),
            trimming: Mutex::new(()),
        }
    }
}

/// Where an operation is recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordTargets {
    /// In the log.
    pub log: bool,
    /// Whether it becomes a document of `system.profile`.
    pub profile: bool,
}

impl Profiler {
    /// The `slowms` of `profile`: operations that take longer, in milliseconds, are slow.
    pub fn slow_ms(&self) -> i64 {
        self.slow_ms.load(Ordering::Relaxed)
    }

    /// Sets `slowms` of the profiler only; see
    /// [`Service::set_slow_ms`](crate::Service::set_slow_ms).
    pub(crate) fn set_slow_ms(&self, slow_ms: i64) {
        self.slow_ms.store(slow_ms, Ordering::Relaxed);
    }

    /// The `sampleRate` of `profile`: the fraction of slow operations that are recorded, 0 to 1.
    pub fn sample_rate(&self) -> f64 {
        f64::from_bits(self.sample_rate.load(Ordering::Relaxed))
    }

    /// Sets `sampleRate`, from 0 to 1.
    pub fn set_sample_rate(&self, rate: f64) {
        self.sample_rate.store(rate.to_bits(), Ordering::Relaxed);
    }

    /// The profiling settings of a database.
    pub fn database(&self, db: &str) -> Profiled {
        match self.databases.read().get(db) {
            Some(profiled) => profiled.clone(),
            None if db == "local" => Profiled::default(),
            None => self.default.read().clone(),
        }
    }

    /// Sets the settings of databases that no command has set: `operationProfiling` of the
    /// configuration.
    pub fn set_default(&self, profiled: Profiled) {
        *self.default.write() = profiled;
        self.note_any();
    }

    /// Sets the profiling settings of a database.
    pub fn set_database(&self, db: &str, profiled: Profiled) {
        self.databases.write().insert(db.to_owned(), profiled);
        self.note_any();
    }

    /// Gives a database the default settings, because it was dropped.
    pub fn forget_database(&self, db: &str) {
        self.databases.write().remove(db);
        self.note_any();
    }

    fn note_any(&self) {
        let records = |profiled: &Profiled| profiled.level > 0 || profiled.filter.is_some();
        let databases = self.databases.read();
        let any = databases.values().any(records) || records(&self.default.read());
        self.any.store(any, Ordering::Release);
    }

    /// Whether an operation of this duration is slow.
    pub fn is_slow(&self, micros: i64) -> bool {
        micros.max(1) > self.slow_ms().saturating_mul(1000)
    }

    /// Whether an operation of this duration may be recorded; false for nearly all of them.
    pub fn may_record(&self, micros: i64) -> bool {
        self.is_slow(micros) || self.any.load(Ordering::Acquire)
    }

    /// Decides where an operation is recorded. `describe` creates its document for a filter.
    pub fn targets(
        &self,
        db: &str,
        micros: i64,
        describe: &mut dyn FnMut() -> DocBuf,
    ) -> RecordTargets {
        let Profiled { level, filter } = self.database(db);
        if let Some((_, filter)) = filter {
            // An operation on which the filter fails is recorded, because its absence would go
            // unnoticed.
            let passes = filter.matches(describe().as_doc()).unwrap_or(true);
            return RecordTargets { log: passes, profile: level == 2 || (level == 1 && passes) };
        }
        let sampled = self.is_slow(micros) && rand::random::<f64>() < self.sample_rate();
        RecordTargets { log: sampled, profile: level == 2 || (level == 1 && sampled) }
    }

    /// Creates the collection of a database.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn create(&self, store: &Store, db: &str) -> Result<()> {
        store.get_or_create(&ReadView::now(), &Namespace::new(db, COLLECTION)?).map(|_| ())
    }

    /// Writes the document of an operation.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn keep(&self, store: &Store, op: &OpCtx, db: &str, about: RawDoc<'_>) -> Result<()> {
        let namespace = Namespace::new(db, COLLECTION)?;
        // An operation on a database that does not exist must not create it.
        if store.collection(&ReadView::now(), &namespace).is_none()
            && store.collections(Some(db)).is_empty()
        {
            return Ok(());
        }
        let (collection, _) = store.get_or_create(&ReadView::now(), &namespace)?;
        let mut document = DocBuilder::new();
        document.append("_id", self.next_id(op.now_ms())).append_all(about);
        let document = document.finish();
        store.write(op, &ReadView::now(), &collection, |unit| {
            unit.leave_unlogged();
            unit.insert(document.as_doc())
        })?;
        if store.data_bytes(&collection) <= MOST_BYTES {
            return Ok(());
        }
        let Some(_one_trims) = self.trimming.try_lock() else { return Ok(()) };
        while store.data_bytes(&collection) > MOST_BYTES {
            let mut oldest: Vec<(RecordKey, DocBuf)> = Vec::new();
            store.snapshot(&ReadView::now())?.scan_records(
                &collection,
                &whole_range(),
                Direction::Forward,
                ScanLimit::rows(DELETED_AT_ONCE),
                &mut |key, document| {
                    oldest.push((key.to_vec(), document.to_owned()));
                    Ok(ControlFlow::Continue(()))
                },
            )?;
            if oldest.is_empty() {
                break;
            }
            store.write(op, &ReadView::now(), &collection, |unit| {
                unit.leave_unlogged();
                for (key, _) in &oldest {
                    if let Some(document) = unit.read(key)? {
                        unit.delete(key, &document)?;
                    }
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Ascends with time, so that the collection is in the order of the operations.
    fn next_id(&self, now_ms: i64) -> i64 {
        let floor = now_ms.saturating_mul(1 << 20);
        let update = |last: i64| Some(last.max(floor) + 1);
        match self.last_id.fetch_update(Ordering::AcqRel, Ordering::Acquire, update) {
            Ok(last) | Err(last) => last.max(floor) + 1,
        }
    }
}
