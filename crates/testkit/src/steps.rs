//! An engine that counts the steps of reads of records: keys that are looked up, entries that scans
//! visit, and tombstones that they skip.
//!
//! Tombstones are never removed here, so that the counts do not depend on the engine and the time
//! of its compactions.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use mayfly_kv::{
    Direction, Engine, EngineWrapper, Guard, KeyRange, Keyspace, KvResult, LogEntries,
    LoggedCommit, ScanEnd, ScanLimit, Txn, TxnOptions, Visitor,
};
use parking_lot::RwLock;

/// The counter of an engine.
#[derive(Default)]
pub struct Steps {
    gone: RwLock<BTreeSet<Vec<u8>>>,
    steps: AtomicU64,
}

impl Steps {
    /// The number of steps since the last call.
    pub fn take(&self) -> u64 {
        self.steps.swap(0, Ordering::AcqRel)
    }

    fn note(&self, range: &KeyRange, direction: Direction, visited: u64, end: &ScanEnd) {
        let from = match (end, direction) {
            (ScanEnd::Exhausted, _) => (range.start.clone(), range.end.clone()),
            (ScanEnd::More { last_key }, Direction::Forward) => {
                (range.start.clone(), last_key.clone())
            }
            (ScanEnd::More { last_key }, Direction::Backward) => {
                (last_key.clone(), range.end.clone())
            }
        };
        let places = (Bound::Included(from.0), Bound::Excluded(from.1));
        let gone = self.gone.read().range::<Vec<u8>, _>(places).count() as u64;
        self.steps.fetch_add(visited + gone, Ordering::AcqRel);
    }
}

/// An engine that counts the steps of iterators over another one.
pub struct CountsSteps {
    inner: Arc<dyn Engine>,
    steps: Arc<Steps>,
}

impl CountsSteps {
    /// Wraps an engine.
    pub fn new(inner: Arc<dyn Engine>, steps: Arc<Steps>) -> CountsSteps {
        CountsSteps { inner, steps }
    }
}

impl EngineWrapper for CountsSteps {
    fn inner(&self) -> &dyn Engine {
        &*self.inner
    }

    fn begin(&self, options: TxnOptions) -> KvResult<Box<dyn Txn>> {
        let inner = self.inner.begin(options)?;
        Ok(Box::new(CountingTxn { inner, steps: self.steps.clone(), deleted: Vec::new() }))
    }
}

struct CountingTxn {
    inner: Box<dyn Txn>,
    steps: Arc<Steps>,
    deleted: Vec<Vec<u8>>,
}

impl Txn for CountingTxn {
    mayfly_kv::forward_txn!(inner: scan_retired, put, put_with_gaps, lock, size, written_keys);

    fn get(&self, keyspace: Keyspace, key: &[u8], see: &mut dyn FnMut(&[u8])) -> KvResult<bool> {
        if keyspace == Keyspace::Record {
            self.steps.steps.fetch_add(1, Ordering::AcqRel);
        }
        self.inner.get(keyspace, key, see)
    }

    fn scan(
        &self,
        keyspace: Keyspace,
        range: &KeyRange,
        direction: Direction,
        limit: ScanLimit,
        visit: &mut Visitor<'_>,
    ) -> KvResult<ScanEnd> {
        let visited = Cell::new(0);
        let end = self.inner.scan(keyspace, range, direction, limit, &mut |key, value| {
            visited.set(visited.get() + 1);
            visit(key, value)
        })?;
        if keyspace == Keyspace::Record && !range.is_empty() {
            self.steps.note(range, direction, visited.get(), &end);
        }
        Ok(end)
    }

    fn delete(&mut self, keyspace: Keyspace, key: &[u8], guard: Guard) -> KvResult<()> {
        self.inner.delete(keyspace, key, guard)?;
        if keyspace == Keyspace::Record {
            self.deleted.push(key.to_vec());
        }
        Ok(())
    }

    fn retire(&mut self, keyspace: Keyspace, key: &[u8], guard: Guard) -> KvResult<()> {
        self.inner.retire(keyspace, key, guard)?;
        self.deleted.push(key.to_vec());
        Ok(())
    }

    fn commit_logged(self: Box<Self>, entries: LogEntries) -> LoggedCommit {
        let logged = self.inner.commit_logged(entries);
        if logged.result.is_ok() {
            self.steps.gone.write().extend(self.deleted);
        }
        logged
    }
}
