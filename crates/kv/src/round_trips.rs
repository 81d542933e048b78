//! An engine that counts the calls which would cross a network if the store were in another
//! process, and can delay each of them.
//!
//! | call | round trips |
//! |---|---|
//! | a read of one key, of a key and the one that it names, or of many keys together | one |
//! | counting the entries of a range | one |
//! | a scan, also of several ranges | one for each page of rows |
//! | beginning a transaction | none: it is sent with the first read, or with the commit |
//! | a put, a delete, a retirement, a lock | none: they are sent with the commit |
//! | an insert | none if the commit may refuse it, otherwise one |
//! | a commit | one if the transaction has written or locked a key |
//! | holding a snapshot, clearing a part of a range, finishing a load | one |
//!
//! A scan ends where the visitor breaks off or where the limit is reached; the rows of its last
//! page that the visitor did not see were read in vain. The limit has the size of the first page.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::{
    Caps, Direction, EachValue, Engine, EngineWrapper, Expected, Guard, HeldSnapshot, Ingest,
    InsertCheck, KeyRange, Keyspace, KvError, KvResult, LogEntries, LoggedCommit, NamedKey,
    RangesVisitor, ScanEnd, ScanLimit, SweepEnd, ThroughVisitor, Txn, TxnOptions, Visitor,
    next_page,
};

/// The counter of an engine's round trips, and their delay.
#[derive(Debug, Default)]
pub struct RoundTripCounter {
    trips: AtomicU64,
    delay_micros: AtomicU64,
}

impl RoundTripCounter {
    /// The number of round trips since the last call.
    pub fn take(&self) -> u64 {
        self.trips.swap(0, Ordering::AcqRel)
    }

    /// Delays each round trip from now on.
    pub fn delay(&self, delay: Duration) {
        let micros = u64::try_from(delay.as_micros()).unwrap_or(u64::MAX);
        self.delay_micros.store(micros, Ordering::Release);
    }

    fn cross(&self) {
        self.trips.fetch_add(1, Ordering::AcqRel);
        let delay = self.delay_micros.load(Ordering::Acquire);
        if delay > 0 {
            std::thread::sleep(Duration::from_micros(delay));
        }
    }
}

/// The pages in which the rows of a scan cross the network.
struct ScanPages<'c> {
    counter: &'c RoundTripCounter,
    rows: usize,
    left: usize,
}

impl<'c> ScanPages<'c> {
    /// Fetches the first page.
    fn begin(counter: &'c RoundTripCounter, rows: usize) -> ScanPages<'c> {
        counter.cross();
        ScanPages { counter, rows, left: rows }
    }

    /// Takes a row, the first one of a page after fetching it.
    fn take_row(&mut self) {
        if self.left == 0 {
            self.counter.cross();
            self.rows = next_page(self.rows);
            self.left = self.rows;
        }
        self.left -= 1;
    }
}

/// An engine that counts its round trips.
pub struct RoundTrips {
    inner: Arc<dyn Engine>,
    counter: Arc<RoundTripCounter>,
}

impl RoundTrips {
    /// Wraps an engine.
    pub fn new(inner: Arc<dyn Engine>, counter: Arc<RoundTripCounter>) -> RoundTrips {
        RoundTrips { inner, counter }
    }
}

impl EngineWrapper for RoundTrips {
    fn inner(&self) -> &dyn Engine {
        &*self.inner
    }

    fn caps(&self) -> Caps {
        Caps { is_remote: true, late_inserts: true, ..self.inner.caps() }
    }

    fn begin(&self, options: TxnOptions) -> KvResult<Box<dyn Txn>> {
        Ok(Box::new(CountedTxn::new(self.inner.begin(options)?, &self.counter)))
    }

    /// The expected value is looked at by the first read.
    fn begin_if(&self, expected: &Expected<'_>) -> KvResult<Box<dyn Txn>> {
        let inner = self.inner.begin(TxnOptions::READ_ONLY)?;
        let has_changed = !expected.holds_in(&*inner)?;
        Ok(Box::new(CountedTxn { has_changed, ..CountedTxn::new(inner, &self.counter) }))
    }

    fn hold(&self) -> KvResult<Arc<dyn HeldSnapshot>> {
        self.counter.cross();
        let (inner, counter) = (self.inner.hold()?, self.counter.clone());
        Ok(Arc::new(CountedSnapshot { inner, counter }))
    }

    fn get_once(
        &self,
        keyspace: Keyspace,
        key: &[u8],
        see: &mut dyn FnMut(&[u8]),
    ) -> KvResult<bool> {
        self.counter.cross();
        self.inner.get_once(keyspace, key, see)
    }

    fn get_through_once(
        &self,
        keyspace: Keyspace,
        key: &[u8],
        named: &NamedKey<'_>,
        see: &mut ThroughVisitor<'_>,
    ) -> KvResult<bool> {
        self.counter.cross();
        self.inner.get_through_once(keyspace, key, named, see)
    }

    fn get_if(
        &self,
        expected: &Expected<'_>,
        entry: (Keyspace, &[u8]),
        see: &mut dyn FnMut(&[u8]),
    ) -> KvResult<Option<bool>> {
        self.counter.cross();
        self.inner.get_if(expected, entry, see)
    }

    fn get_through_if(
        &self,
        expected: &Expected<'_>,
        entry: (Keyspace, &[u8]),
        named: &NamedKey<'_>,
        see: &mut ThroughVisitor<'_>,
    ) -> KvResult<Option<bool>> {
        self.counter.cross();
        self.inner.get_through_if(expected, entry, named, see)
    }

    fn sweep_range(&self, keyspace: Keyspace, range: &KeyRange, max: usize) -> KvResult<SweepEnd> {
        self.counter.cross();
        self.inner.sweep_range(keyspace, range, max)
    }

    fn begin_ingest(&self, keyspace: Keyspace) -> KvResult<Option<Box<dyn Ingest>>> {
        let (inner, counter) = (self.inner.begin_ingest(keyspace)?, self.counter.clone());
        Ok(inner.map(|inner| Box::new(CountedIngest { inner, counter }) as Box<dyn Ingest>))
    }
}

struct CountedSnapshot {
    inner: Arc<dyn HeldSnapshot>,
    counter: Arc<RoundTripCounter>,
}

impl HeldSnapshot for CountedSnapshot {
    fn begin(&self) -> KvResult<Box<dyn Txn>> {
        Ok(Box::new(CountedTxn::new(self.inner.begin()?, &self.counter)))
    }
}

struct CountedIngest {
    inner: Box<dyn Ingest>,
    counter: Arc<RoundTripCounter>,
}

impl Ingest for CountedIngest {
    fn add(&mut self, key: &[u8], value: &[u8]) -> KvResult<()> {
        self.inner.add(key, value)
    }

    fn finish(self: Box<Self>) -> KvResult<()> {
        self.counter.cross();
        self.inner.finish()
    }
}

struct CountedTxn {
    inner: Box<dyn Txn>,
    counter: Arc<RoundTripCounter>,
    has_locked: bool,
    /// Whether an inserted key was present, so that the commit fails.
    inserted_present: bool,
    /// Whether reads fail, because a key has another value than the transaction expects.
    has_changed: bool,
}

impl CountedTxn {
    fn new(inner: Box<dyn Txn>, counter: &Arc<RoundTripCounter>) -> CountedTxn {
        let counter = counter.clone();
        CountedTxn {
            inner,
            counter,
            has_locked: false,
            inserted_present: false,
            has_changed: false,
        }
    }

    fn check(&self) -> KvResult<()> {
        if self.has_changed { Err(KvError::Changed) } else { Ok(()) }
    }

    /// Counts a read, which may fail.
    fn cross(&self) -> KvResult<()> {
        self.counter.cross();
        self.check()
    }
}

impl Txn for CountedTxn {
    crate::forward_txn!(inner: put, put_with_gaps, delete, retire, size, written_keys);

    fn get(&self, keyspace: Keyspace, key: &[u8], see: &mut dyn FnMut(&[u8])) -> KvResult<bool> {
        self.cross()?;
        self.inner.get(keyspace, key, see)
    }

    fn get_through(
        &self,
        keyspace: Keyspace,
        key: &[u8],
        named: &NamedKey<'_>,
        see: &mut ThroughVisitor<'_>,
    ) -> KvResult<bool> {
        self.cross()?;
        self.inner.get_through(keyspace, key, named, see)
    }

    fn count(
        &self,
        keyspace: Keyspace,
        range: &KeyRange,
        max: usize,
    ) -> KvResult<(usize, ScanEnd)> {
        self.cross()?;
        self.inner.count(keyspace, range, max)
    }

    fn multi_get(
        &self,
        keyspace: Keyspace,
        keys: &[&[u8]],
        see: &mut EachValue<'_>,
    ) -> KvResult<()> {
        if !keys.is_empty() {
            self.cross()?;
        }
        self.inner.multi_get(keyspace, keys, see)
    }

    fn get_locked(
        &mut self,
        keyspace: Keyspace,
        key: &[u8],
        see: &mut dyn FnMut(&[u8]),
    ) -> KvResult<bool> {
        self.cross()?;
        self.has_locked = true;
        self.inner.get_locked(keyspace, key, see)
    }

    fn multi_get_locked(
        &mut self,
        keyspace: Keyspace,
        keys: &[&[u8]],
        see: &mut dyn FnMut(usize, &[u8]),
    ) -> KvResult<()> {
        if !keys.is_empty() {
            self.cross()?;
            self.has_locked = true;
        }
        self.inner.multi_get_locked(keyspace, keys, see)
    }

    fn get_through_locked(
        &mut self,
        keyspace: Keyspace,
        key: &[u8],
        named: &NamedKey<'_>,
        see: &mut ThroughVisitor<'_>,
    ) -> KvResult<bool> {
        self.cross()?;
        self.has_locked = true;
        self.inner.get_through_locked(keyspace, key, named, see)
    }

    fn scan(
        &self,
        keyspace: Keyspace,
        range: &KeyRange,
        direction: Direction,
        limit: ScanLimit,
        visit: &mut Visitor<'_>,
    ) -> KvResult<ScanEnd> {
        if range.is_empty() {
            return Ok(ScanEnd::Exhausted);
        }
        self.check()?;
        let mut pages = ScanPages::begin(&self.counter, limit.page);
        self.inner.scan(keyspace, range, direction, limit, &mut |key, value| {
            pages.take_row();
            visit(key, value)
        })
    }

    fn scan_retired(
        &self,
        keyspace: Keyspace,
        range: &KeyRange,
        limit: ScanLimit,
        visit: &mut Visitor<'_>,
    ) -> KvResult<ScanEnd> {
        if range.is_empty() {
            return Ok(ScanEnd::Exhausted);
        }
        self.check()?;
        let mut pages = ScanPages::begin(&self.counter, limit.page);
        self.inner.scan_retired(keyspace, range, limit, &mut |key, value| {
            pages.take_row();
            visit(key, value)
        })
    }

    fn scan_ranges(
        &self,
        keyspace: Keyspace,
        ranges: &[KeyRange],
        (direction, page): (Direction, usize),
        visit: &mut RangesVisitor<'_>,
    ) -> KvResult<(usize, ScanEnd)> {
        if ranges.iter().all(KeyRange::is_empty) {
            return Ok((ranges.len().saturating_sub(1), ScanEnd::Exhausted));
        }
        self.check()?;
        let mut pages = ScanPages::begin(&self.counter, page);
        self.inner.scan_ranges(keyspace, ranges, (direction, page), &mut |at, key, value| {
            pages.take_row();
            visit(at, key, value)
        })
    }

    fn insert(
        &mut self,
        keyspace: Keyspace,
        key: &[u8],
        value: &[u8],
        check: InsertCheck,
        taken: &mut dyn FnMut(&[u8]),
    ) -> KvResult<bool> {
        if check == InsertCheck::AtOnce {
            self.cross()?;
            return self.inner.insert(keyspace, key, value, check, taken);
        }
        self.inserted_present |= self.inner.get_locked(keyspace, key, &mut |_| {})?;
        self.inner.put(keyspace, key, value, Guard::Derived)?;
        Ok(true)
    }

    fn reserve(&mut self, bytes: usize) {
        self.inner.reserve(bytes);
    }

    fn lock(&mut self, keyspace: Keyspace, key: &[u8]) -> KvResult<()> {
        self.has_locked = true;
        self.inner.lock(keyspace, key)
    }

    fn commit_logged(self: Box<Self>, entries: LogEntries) -> LoggedCommit {
        if self.has_locked || self.inner.size().1 > 0 {
            self.counter.cross();
        }
        if self.inserted_present {
            return LoggedCommit::failed(KvError::Conflict);
        }
        self.inner.commit_logged(entries)
    }
}
