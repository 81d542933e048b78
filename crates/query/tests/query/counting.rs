//! A memory engine that counts how many records are read together.

use std::sync::{Arc, Mutex};

use mayfly_kv::{
    EachValue, Engine, EngineWrapper, Keyspace, KvResult, MemoryEngine, Txn, TxnOptions,
};

/// The number of record keys in each read since the counters were last taken.
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

impl EngineWrapper for CountingEngine {
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
    mayfly_kv::forward_txn!(inner: scan, scan_retired, put, put_with_gaps, delete, retire, lock, size, written_keys, commit);

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
}
