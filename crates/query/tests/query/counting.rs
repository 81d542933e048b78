//! A memory engine that notes how many records are read together.

use std::sync::{Arc, Mutex};

use mayfly_kv::{
    Direction, EachValue, Engine, EngineAround, GAP_BYTES, Guard, KeyRange, Keyspace, KvResult,
    MemoryEngine, ScanEnd, ScanLimit, Txn, TxnOptions, Visitor,
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

impl EngineAround for CountingEngine {
    fn inner(&self) -> &dyn Engine {
        &self.inner
    }

    fn begin(&self, options: TxnOptions) -> KvResult<Box<dyn Txn>> {
        Ok(Box::new(CountingTxn { inner: self.inner.begin(options)?, reads: self.reads.clone() }))
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

    fn written_keys(&self, keyspace: Keyspace, range: &KeyRange) -> Vec<Vec<u8>> {
        self.inner.written_keys(keyspace, range)
    }

    fn commit(self: Box<Self>) -> KvResult<()> {
        self.inner.commit()
    }
}
