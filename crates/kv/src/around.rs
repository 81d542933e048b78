//! Engines around others: what one does not say itself the engine inside does.
//!
//! A new method of [`Engine`] goes here, too; the compiler asks for it only where it has no default.
//!
//! ```
//! use mayfly_kv::{Engine, EngineAround, KvResult, MemoryEngine};
//!
//! struct NeverSynced(MemoryEngine);
//!
//! impl EngineAround for NeverSynced {
//!     fn inner(&self) -> &dyn Engine {
//!         &self.0
//!     }
//!
//!     fn sync(&self) -> KvResult<()> {
//!         Ok(())
//!     }
//! }
//!
//! let engine: Box<dyn Engine> = Box::new(NeverSynced(MemoryEngine::new()));
//! assert!(engine.sync().is_ok());
//! ```

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::{
    Caps, Engine, EngineStats, HeldSnapshot, Ingest, KeyRange, Keyspace, KvResult, SweepEnd, Txn,
    TxnOptions,
};

/// An engine around another one. It is an [`Engine`], each of whose methods is the one of this name here.
pub trait EngineAround: Send + Sync {
    /// The engine inside.
    fn inner(&self) -> &dyn Engine;

    /// As [`Engine::name`].
    fn name(&self) -> &'static str {
        self.inner().name()
    }

    /// As [`Engine::caps`].
    fn caps(&self) -> Caps {
        self.inner().caps()
    }

    /// As [`Engine::begin`].
    fn begin(&self, options: TxnOptions) -> KvResult<Box<dyn Txn>> {
        self.inner().begin(options)
    }

    /// As [`Engine::hold`].
    fn hold(&self) -> KvResult<Arc<dyn HeldSnapshot>> {
        self.inner().hold()
    }

    /// As [`Engine::get_once`].
    fn get_once(
        &self,
        keyspace: Keyspace,
        key: &[u8],
        see: &mut dyn FnMut(&[u8]),
    ) -> KvResult<bool> {
        self.inner().get_once(keyspace, key, see)
    }

    /// As [`Engine::sweep_range`].
    fn sweep_range(&self, keyspace: Keyspace, range: &KeyRange, max: usize) -> KvResult<SweepEnd> {
        self.inner().sweep_range(keyspace, range, max)
    }

    /// As [`Engine::begin_ingest`].
    fn begin_ingest(&self, keyspace: Keyspace) -> KvResult<Option<Box<dyn Ingest>>> {
        self.inner().begin_ingest(keyspace)
    }

    /// As [`Engine::scratch`].
    fn scratch(&self, bytes: u64) -> KvResult<Option<PathBuf>> {
        self.inner().scratch(bytes)
    }

    /// As [`Engine::sync`].
    fn sync(&self) -> KvResult<()> {
        self.inner().sync()
    }

    /// As [`Engine::approximate_bytes`].
    fn approximate_bytes(&self, keyspace: Keyspace, range: &KeyRange) -> KvResult<u64> {
        self.inner().approximate_bytes(keyspace, range)
    }

    /// As [`Engine::give_back_space`].
    fn give_back_space(&self) -> KvResult<()> {
        self.inner().give_back_space()
    }

    /// As [`Engine::compact_range`].
    fn compact_range(&self, keyspace: Keyspace, range: &KeyRange) -> KvResult<()> {
        self.inner().compact_range(keyspace, range)
    }

    /// As [`Engine::is_nearly_full`].
    fn is_nearly_full(&self) -> bool {
        self.inner().is_nearly_full()
    }

    /// As [`Engine::checkpoint`].
    fn checkpoint(&self, folder: &Path) -> KvResult<()> {
        self.inner().checkpoint(folder)
    }

    /// As [`Engine::stats`].
    fn stats(&self) -> EngineStats {
        self.inner().stats()
    }

    /// As [`Engine::close`].
    fn close(&self) -> KvResult<()> {
        self.inner().close()
    }
}

impl<E: EngineAround> Engine for E {
    fn name(&self) -> &'static str {
        EngineAround::name(self)
    }

    fn caps(&self) -> Caps {
        EngineAround::caps(self)
    }

    fn begin(&self, options: TxnOptions) -> KvResult<Box<dyn Txn>> {
        EngineAround::begin(self, options)
    }

    fn hold(&self) -> KvResult<Arc<dyn HeldSnapshot>> {
        EngineAround::hold(self)
    }

    fn get_once(
        &self,
        keyspace: Keyspace,
        key: &[u8],
        see: &mut dyn FnMut(&[u8]),
    ) -> KvResult<bool> {
        EngineAround::get_once(self, keyspace, key, see)
    }

    fn sweep_range(&self, keyspace: Keyspace, range: &KeyRange, max: usize) -> KvResult<SweepEnd> {
        EngineAround::sweep_range(self, keyspace, range, max)
    }

    fn begin_ingest(&self, keyspace: Keyspace) -> KvResult<Option<Box<dyn Ingest>>> {
        EngineAround::begin_ingest(self, keyspace)
    }

    fn scratch(&self, bytes: u64) -> KvResult<Option<PathBuf>> {
        EngineAround::scratch(self, bytes)
    }

    fn sync(&self) -> KvResult<()> {
        EngineAround::sync(self)
    }

    fn approximate_bytes(&self, keyspace: Keyspace, range: &KeyRange) -> KvResult<u64> {
        EngineAround::approximate_bytes(self, keyspace, range)
    }

    fn give_back_space(&self) -> KvResult<()> {
        EngineAround::give_back_space(self)
    }

    fn compact_range(&self, keyspace: Keyspace, range: &KeyRange) -> KvResult<()> {
        EngineAround::compact_range(self, keyspace, range)
    }

    fn is_nearly_full(&self) -> bool {
        EngineAround::is_nearly_full(self)
    }

    fn checkpoint(&self, folder: &Path) -> KvResult<()> {
        EngineAround::checkpoint(self, folder)
    }

    fn stats(&self) -> EngineStats {
        EngineAround::stats(self)
    }

    fn close(&self) -> KvResult<()> {
        EngineAround::close(self)
    }
}
