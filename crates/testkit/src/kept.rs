//! An engine that outlives the store's close, so that a store over memory can be opened again.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use mayfly_kv::{
    Caps, Engine, EngineStats, HeldSnapshot, Ingest, KeyRange, Keyspace, KvResult, SweepEnd, Txn,
    TxnOptions,
};

/// Passes everything on but the close.
pub struct KeptOpen(pub Arc<dyn Engine>);

impl Engine for KeptOpen {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn caps(&self) -> Caps {
        self.0.caps()
    }

    fn begin(&self, options: TxnOptions) -> KvResult<Box<dyn Txn>> {
        self.0.begin(options)
    }

    fn hold(&self) -> KvResult<Arc<dyn HeldSnapshot>> {
        self.0.hold()
    }

    fn get_once(
        &self,
        keyspace: Keyspace,
        key: &[u8],
        see: &mut dyn FnMut(&[u8]),
    ) -> KvResult<bool> {
        self.0.get_once(keyspace, key, see)
    }

    fn sweep_range(&self, keyspace: Keyspace, range: &KeyRange, max: usize) -> KvResult<SweepEnd> {
        self.0.sweep_range(keyspace, range, max)
    }

    fn begin_ingest(&self, keyspace: Keyspace) -> KvResult<Option<Box<dyn Ingest>>> {
        self.0.begin_ingest(keyspace)
    }

    fn scratch(&self, bytes: u64) -> KvResult<Option<PathBuf>> {
        self.0.scratch(bytes)
    }

    fn sync(&self) -> KvResult<()> {
        self.0.sync()
    }

    fn approximate_bytes(&self, keyspace: Keyspace, range: &KeyRange) -> KvResult<u64> {
        self.0.approximate_bytes(keyspace, range)
    }

    fn checkpoint(&self, folder: &Path) -> KvResult<()> {
        self.0.checkpoint(folder)
    }

    fn stats(&self) -> EngineStats {
        self.0.stats()
    }

    fn close(&self) -> KvResult<()> {
        Ok(())
    }
}
