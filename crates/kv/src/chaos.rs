//! An engine that misbehaves as far as the contract allows: it finds retry bugs before a network
//! engine exists.
//!
//! It wraps any engine and adds conflicts at writes and at commits, commits with an unknown outcome
//! (half of them applied), scans that pause early, and the limits of other engines. Randomness
//! depends only on the seed and the order of the calls.

use std::ops::ControlFlow;
use std::sync::Arc;

use mayfly_base::clock::{Clock, SystemClock};
use parking_lot::Mutex;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::{
    Caps, Direction, EachValue, Engine, EngineWrapper, Gap, Guard, HeldSnapshot, Ingest,
    InsertCheck, KeyRange, Keyspace, KvError, KvResult, LogEntries, LoggedCommit, RangesVisitor,
    ScanEnd, ScanLimit, Txn, TxnOptions, Visitor,
};

/// The narrowest limits among known engines: 1 KiB keys, 1 MB values, 10 MB and five seconds a
/// transaction.
pub const NARROW_LIMITS: Caps = Caps {
    max_key_bytes: 1 << 10,
    max_value_bytes: 1_000_000,
    max_txn_bytes: 10_000_000,
    max_txn_keys: 100_000,
    max_txn_age_ms: 5_000,
    max_open_txns: usize::MAX,
    durable: false,
    clusters_records: false,
    is_remote: false,
    late_inserts: false,
};

/// The faults to inject. By default none.
#[derive(Clone, Copy, Debug, Default)]
pub struct ChaosOptions {
    /// The seed of the random numbers.
    pub seed: u64,
    /// Probability (0 to 1) of a conflict, at each checked write and at each commit that wrote.
    pub conflict_probability: f64,
    /// Probability of an unknown outcome at a commit that wrote; half of these are applied.
    pub unknown_commit_probability: f64,
    /// Whether scans pause after one to three entries.
    pub short_pages: bool,
    /// Reported as [`Caps::clusters_records`].
    pub clusters_records: bool,
    /// Reported as [`Caps::is_remote`].
    pub is_remote: bool,
    /// Whether only the commit refuses inserts of present keys, where the caller allows it.
    pub late_inserts: bool,
    /// Limits enforced in addition to the engine's own: sizes as `TooLarge`, age as `TooOld`.
    pub limits: Option<Caps>,
}

/// An engine that injects faults into another one.
pub struct ChaosEngine {
    inner: Arc<dyn Engine>,
    options: Mutex<ChaosOptions>,
    random: Mutex<SmallRng>,
    clock: Arc<dyn Clock>,
}

impl ChaosEngine {
    /// Wraps an engine; transaction ages are measured by the machine's clock.
    pub fn new(inner: Arc<dyn Engine>, options: ChaosOptions) -> ChaosEngine {
        ChaosEngine::with_clock(inner, options, Arc::new(SystemClock::new()))
    }

    /// Wraps an engine; transaction ages are measured by this clock.
    pub fn with_clock(
        inner: Arc<dyn Engine>,
        options: ChaosOptions,
        clock: Arc<dyn Clock>,
    ) -> ChaosEngine {
        let random = Mutex::new(SmallRng::seed_from_u64(options.seed));
        ChaosEngine { inner, options: Mutex::new(options), random, clock }
    }

    /// Applies other options to transactions that begin from now on; the random sequence continues.
    pub fn change(&self, options: ChaosOptions) {
        *self.options.lock() = options;
    }
}

impl EngineWrapper for ChaosEngine {
    fn inner(&self) -> &dyn Engine {
        &*self.inner
    }

    fn caps(&self) -> Caps {
        let (caps, options) = (self.inner.caps(), *self.options.lock());
        let clusters_records = caps.clusters_records || options.clusters_records;
        let late_inserts = caps.late_inserts || options.late_inserts;
        let is_remote = caps.is_remote || options.is_remote;
        let caps = Caps { clusters_records, is_remote, late_inserts, ..caps };
        options.limits.map_or(caps, |limits| narrower(caps, limits))
    }

    fn begin(&self, options: TxnOptions) -> KvResult<Box<dyn Txn>> {
        let caps = Engine::caps(self);
        let chaos = *self.options.lock();
        Ok(Box::new(ChaosTxn {
            inner: self.inner.begin(options)?,
            options: chaos,
            caps,
            random: Mutex::new(SmallRng::seed_from_u64(self.random.lock().random())),
            begun: self.clock.monotonic_micros(),
            clock: Arc::clone(&self.clock),
            inserted_present: false,
        }))
    }

    fn hold(&self) -> KvResult<Arc<dyn HeldSnapshot>> {
        let caps = Engine::caps(self);
        let chaos = *self.options.lock();
        Ok(Arc::new(ChaosHeld {
            inner: self.inner.hold()?,
            options: chaos,
            caps,
            random: Mutex::new(SmallRng::seed_from_u64(self.random.lock().random())),
            begun: self.clock.monotonic_micros(),
            clock: Arc::clone(&self.clock),
        }))
    }

    fn begin_ingest(&self, keyspace: Keyspace) -> KvResult<Option<Box<dyn Ingest>>> {
        let caps = Engine::caps(self);
        let inner = self.inner.begin_ingest(keyspace)?;
        Ok(inner.map(|inner| Box::new(ChaosIngest { inner, caps }) as Box<dyn Ingest>))
    }
}

fn narrower(a: Caps, b: Caps) -> Caps {
    Caps {
        max_key_bytes: a.max_key_bytes.min(b.max_key_bytes),
        max_value_bytes: a.max_value_bytes.min(b.max_value_bytes),
        max_txn_bytes: a.max_txn_bytes.min(b.max_txn_bytes),
        max_txn_keys: a.max_txn_keys.min(b.max_txn_keys),
        max_txn_age_ms: a.max_txn_age_ms.min(b.max_txn_age_ms),
        max_open_txns: a.max_open_txns.min(b.max_open_txns),
        durable: a.durable,
        clusters_records: a.clusters_records || b.clusters_records,
        is_remote: a.is_remote || b.is_remote,
        late_inserts: a.late_inserts || b.late_inserts,
    }
}

struct ChaosIngest {
    inner: Box<dyn Ingest>,
    caps: Caps,
}

impl Ingest for ChaosIngest {
    fn add(&mut self, key: &[u8], value: &[u8]) -> KvResult<()> {
        self.caps.check_write(key, value, (0, 0))?;
        self.inner.add(key, value)
    }

    fn finish(self: Box<Self>) -> KvResult<()> {
        self.inner.finish()
    }
}

/// Its transactions inherit its age.
struct ChaosHeld {
    inner: Arc<dyn HeldSnapshot>,
    options: ChaosOptions,
    caps: Caps,
    random: Mutex<SmallRng>,
    begun: i64,
    clock: Arc<dyn Clock>,
}

impl HeldSnapshot for ChaosHeld {
    fn begin(&self) -> KvResult<Box<dyn Txn>> {
        Ok(Box::new(ChaosTxn {
            inner: self.inner.begin()?,
            options: self.options,
            caps: self.caps,
            random: Mutex::new(SmallRng::seed_from_u64(self.random.lock().random())),
            begun: self.begun,
            clock: Arc::clone(&self.clock),
            inserted_present: false,
        }))
    }
}

struct ChaosTxn {
    inner: Box<dyn Txn>,
    options: ChaosOptions,
    caps: Caps,
    random: Mutex<SmallRng>,
    begun: i64,
    clock: Arc<dyn Clock>,
    /// Whether an inserted key was present.
    inserted_present: bool,
}

impl ChaosTxn {
    fn happens(&self, probability: f64) -> bool {
        probability > 0.0 && self.random.lock().random_bool(probability.min(1.0))
    }

    fn check_age(&self) -> KvResult<()> {
        let age_ms = (self.clock.monotonic_micros() - self.begun) / 1_000;
        if u64::try_from(age_ms).is_ok_and(|age| age > self.caps.max_txn_age_ms) {
            return Err(KvError::TooOld);
        }
        Ok(())
    }

    fn check_write(&self, key: &[u8], value: &[u8], guard: Guard) -> KvResult<()> {
        self.check_age()?;
        self.caps.check_write(key, value, self.inner.size())?;
        if guard == Guard::Checked && self.happens(self.options.conflict_probability) {
            return Err(KvError::Conflict);
        }
        Ok(())
    }
}

impl Txn for ChaosTxn {
    crate::forward_txn!(inner: scan_retired, size, written_keys);

    fn get(&self, keyspace: Keyspace, key: &[u8], see: &mut dyn FnMut(&[u8])) -> KvResult<bool> {
        self.check_age()?;
        self.inner.get(keyspace, key, see)
    }

    fn multi_get(
        &self,
        keyspace: Keyspace,
        keys: &[&[u8]],
        see: &mut EachValue<'_>,
    ) -> KvResult<()> {
        self.check_age()?;
        self.inner.multi_get(keyspace, keys, see)
    }

    fn scan_ranges(
        &self,
        keyspace: Keyspace,
        ranges: &[KeyRange],
        (direction, page): (Direction, usize),
        visit: &mut RangesVisitor<'_>,
    ) -> KvResult<(usize, ScanEnd)> {
        self.check_age()?;
        let mut left = match self.options.short_pages {
            true => self.random.lock().random_range(1..=3),
            false => usize::MAX,
        };
        self.inner.scan_ranges(keyspace, ranges, (direction, page), &mut |at, key, value| {
            left -= 1;
            visit(at, key, value)?;
            if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })
    }

    fn scan(
        &self,
        keyspace: Keyspace,
        range: &KeyRange,
        direction: Direction,
        mut limit: ScanLimit,
        visit: &mut Visitor<'_>,
    ) -> KvResult<ScanEnd> {
        self.check_age()?;
        if self.options.short_pages {
            limit.rows = limit.rows.min(self.random.lock().random_range(1..=3));
        }
        self.inner.scan(keyspace, range, direction, limit, visit)
    }

    fn put(&mut self, keyspace: Keyspace, key: &[u8], value: &[u8], guard: Guard) -> KvResult<()> {
        self.check_write(key, value, guard)?;
        self.inner.put(keyspace, key, value, guard)
    }

    fn insert(
        &mut self,
        keyspace: Keyspace,
        key: &[u8],
        value: &[u8],
        check: InsertCheck,
        taken: &mut dyn FnMut(&[u8]),
    ) -> KvResult<bool> {
        self.check_write(key, value, Guard::Checked)?;
        if check == InsertCheck::AtOnce || !self.options.late_inserts {
            return self.inner.insert(keyspace, key, value, check, taken);
        }
        self.inserted_present |= self.inner.get_locked(keyspace, key, &mut |_| {})?;
        self.inner.put(keyspace, key, value, Guard::Derived)?;
        Ok(true)
    }

    fn put_with_gaps(
        &mut self,
        keyspace: Keyspace,
        key: &[u8],
        value: &[u8],
        guard: Guard,
        gaps: &[Gap],
    ) -> KvResult<()> {
        self.check_write(key, value, guard)?;
        self.inner.put_with_gaps(keyspace, key, value, guard, gaps)
    }

    fn delete(&mut self, keyspace: Keyspace, key: &[u8], guard: Guard) -> KvResult<()> {
        self.check_write(key, &[], guard)?;
        self.inner.delete(keyspace, key, guard)
    }

    fn retire(&mut self, keyspace: Keyspace, key: &[u8], guard: Guard) -> KvResult<()> {
        self.check_write(key, &[], guard)?;
        self.inner.retire(keyspace, key, guard)
    }

    fn lock(&mut self, keyspace: Keyspace, key: &[u8]) -> KvResult<()> {
        self.check_write(key, &[], Guard::Checked)?;
        self.inner.lock(keyspace, key)
    }

    fn commit_logged(self: Box<Self>, entries: LogEntries) -> LoggedCommit {
        if let Err(error) = self.check_age() {
            return LoggedCommit::failed(error);
        }
        if self.inner.size().1 == 0 {
            return self.inner.commit_logged(entries);
        }
        if self.inserted_present || self.happens(self.options.conflict_probability) {
            return LoggedCommit::failed(KvError::Conflict);
        }
        if !self.happens(self.options.unknown_commit_probability) {
            return self.inner.commit_logged(entries);
        }
        let unknown = KvError::CommitUnknown("chaos".into());
        if !self.happens(0.5) {
            return LoggedCommit::failed(unknown);
        }
        let applied = self.inner.commit_logged(entries);
        LoggedCommit { result: applied.result.and(Err(unknown)), place: applied.place }
    }
}
