//! A memory engine that notes how many records are read together.

use std::path::Path;
use std::sync::{Arc, Mutex};

use mayfly_kv::{
    Caps, Direction, EachValue, Engine, EngineStats, GAP_BYTES, Guard, HeldSnapshot, Ingest,
    KeyRange, Keyspace, KvResult, MemoryEngine, ScanEnd, ScanLimit, SweepEnd, Txn, TxnOptions,
    Visitor,
};

/// Numbers of keys of records in each read since the last look.
pub(crate) type Reads = Arc<Mutex<Vec<usize>>>;

pub(crate) struct CountingEngine {
    inner: MemoryEngine,
    reads: Reads,
}

impl CountingEngine {
    pub(crate) fn new() -> (CountingEngine, Reads) {
        let reads = Reads::default();
        (CountingEngine { inner: MemoryEngine::new(), reads: reads.clone() }, reads)
    }
}

impl Engine for CountingEngine {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn caps(&self) -> Caps {
        self.inner.caps()
    }

    fn begin(&self, options: TxnOptions) -> KvResult<Box<dyn Txn>> {
        Ok(Box::new(CountingTxn { inner: self.inner.begin(options)?, reads: self.reads.clone() }))
    }

    fn hold(&self) -> KvResult<Arc<dyn HeldSnapshot>> {
        self.inner.hold()
    }

    fn get_once(
        &self,
        keyspace: Keyspace,
        key: &[u8],
        see: &mut dyn FnMut(&[u8]),
    ) -> KvResult<bool> {
        self.inner.get_once(keyspace, key, see)
    }

    fn sweep_range(&self, keyspace: Keyspace, range: &KeyRange, max: usize) -> KvResult<SweepEnd> {
        self.inner.sweep_range(keyspace, range, max)
    }

    fn begin_ingest(&self, keyspace: Keyspace) -> KvResult<Option<Box<dyn Ingest>>> {
        self.inner.begin_ingest(keyspace)
    }

    fn sync(&self) -> KvResult<()> {
        self.inner.sync()
    }

    fn approximate_bytes(&self, keyspace: Keyspace, range: &KeyRange) -> KvResult<u64> {
        self.inner.approximate_bytes(keyspace, range)
    }

    fn checkpoint(&self, folder: &Path) -> KvResult<()> {
        self.inner.checkpoint(folder)
    }

    fn stats(&self) -> EngineStats {
        self.inner.stats()
    }

    fn close(&self) -> KvResult<()> {
        self.inner.close()
    }
}

struct CountingTxn {
    inner: Box<dyn Txn>,
    reads: Reads,
}

impl CountingTxn {
    fn note(&self, keyspace: Keyspace, keys: usize) {
        if keyspace == Keyspace::Record {
            self.reads.lock().unwrap().push(keys);
        }
    }
}

impl Txn for CountingTxn {
    fn get(&self, keyspace: Keyspace, key: &[u8], see: &mut dyn FnMut(&[u8])) -> KvResult<bool> {
        self.note(keyspace, 1);
        self.inner.get(keyspace, key, see)
    }

    fn multi_get(
        &self,
        keyspace: Keyspace,
        keys: &[&[u8]],
        see: &mut EachValue<'_>,
    ) -> KvResult<()> {
        self.note(keyspace, keys.len());
        self.inner.multi_get(keyspace, keys, see)
    }

    fn scan(
        &self,
        keyspace: Keyspace,
        range: &KeyRange,
        direction: Direction,
        limit: ScanLimit,
        visit: &mut Visitor<'_>,
    ) -> KvResult<ScanEnd> {
        self.inner.scan(keyspace, range, direction, limit, visit)
    }

    fn put(&mut self, keyspace: Keyspace, key: &[u8], value: &[u8], guard: Guard) -> KvResult<()> {
        self.inner.put(keyspace, key, value, guard)
    }

    fn put_with_gap(
        &mut self,
        keyspace: Keyspace,
        key: &[u8],
        value: &[u8],
        guard: Guard,
        gap: usize,
    ) -> KvResult<()> {
        self.inner.put_with_gap(keyspace, key, value, guard, gap)
    }

    fn fill_gaps(&mut self, bytes: [u8; GAP_BYTES]) {
        self.inner.fill_gaps(bytes);
    }

    fn delete(&mut self, keyspace: Keyspace, key: &[u8], guard: Guard) -> KvResult<()> {
        self.inner.delete(keyspace, key, guard)
    }

    fn lock(&mut self, keyspace: Keyspace, key: &[u8]) -> KvResult<()> {
        self.inner.lock(keyspace, key)
    }

    fn size(&self) -> (usize, usize) {
        self.inner.size()
    }

    fn commit(self: Box<Self>) -> KvResult<()> {
        self.inner.commit()
    }
}
