//! Wrappers of engines: a method that the wrapper does not define is forwarded to the inner engine.
//!
//! A new method of [`Engine`] needs a line here too; the compiler reports a missing one only if the
//! method has no default.
//!
//! The macros are written by hand: `ambassador` delegates a whole trait and does not let a wrapper
//! override one method of it, `delegate` needs every signature in every wrapper.
//!
//! ```
//! use mayfly_kv::{Engine, EngineWrapper, KvResult, MemoryEngine};
//!
//! struct NeverSynced(MemoryEngine);
//!
//! impl EngineWrapper for NeverSynced {
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
    Caps, CheckpointFile, Engine, EngineStats, Expected, HeldSnapshot, Ingest, KeyRange, Keyspace,
    KvResult, LogClock, NamedKey, Sharing, SweepEnd, ThroughVisitor, Txn, TxnOptions,
};

macro_rules! engine_around {
    ($(fn $name:ident(&self $(, $argument:ident: $kind:ty)*) -> $result:ty;)*) => {
        /// An engine that wraps another one. It is an [`Engine`]; each method calls the one of the
        /// same name here.
        pub trait EngineWrapper: Send + Sync {
            /// The engine inside.
            fn inner(&self) -> &dyn Engine;

            $(
                #[doc = concat!("As [`Engine::", stringify!($name), "`].")]
                fn $name(&self $(, $argument: $kind)*) -> $result {
                    self.inner().$name($($argument),*)
                }
            )*
        }

        impl<E: EngineWrapper> Engine for E {
            $(
                fn $name(&self $(, $argument: $kind)*) -> $result {
                    EngineWrapper::$name(self $(, $argument)*)
                }
            )*
        }
    };
}

engine_around! {
    fn name(&self) -> &'static str;
    fn caps(&self) -> Caps;
    fn log(&self) -> &Arc<LogClock>;
    fn begin(&self, options: TxnOptions) -> KvResult<Box<dyn Txn>>;
    fn begin_if(&self, expected: &Expected<'_>) -> KvResult<Box<dyn Txn>>;
    fn hold(&self) -> KvResult<Arc<dyn HeldSnapshot>>;
    fn hold_for_export(&self) -> KvResult<Arc<dyn HeldSnapshot>>;
    fn get_once(&self, keyspace: Keyspace, key: &[u8], see: &mut dyn FnMut(&[u8])) -> KvResult<bool>;
    fn get_through_once(&self, keyspace: Keyspace, key: &[u8], named: &NamedKey<'_>, see: &mut ThroughVisitor<'_>) -> KvResult<bool>;
    fn get_if(&self, expected: &Expected<'_>, entry: (Keyspace, &[u8]), see: &mut dyn FnMut(&[u8])) -> KvResult<Option<bool>>;
    fn get_through_if(&self, expected: &Expected<'_>, entry: (Keyspace, &[u8]), named: &NamedKey<'_>, see: &mut ThroughVisitor<'_>) -> KvResult<Option<bool>>;
    fn sweep_range(&self, keyspace: Keyspace, range: &KeyRange, max: usize) -> KvResult<SweepEnd>;
    fn begin_ingest(&self, keyspace: Keyspace) -> KvResult<Option<Box<dyn Ingest>>>;
    fn scratch(&self, bytes: u64) -> KvResult<Option<PathBuf>>;
    fn sync(&self) -> KvResult<()>;
    fn approximate_bytes(&self, keyspace: Keyspace, range: &KeyRange) -> KvResult<u64>;
    fn entry_bytes(&self, keyspace: Keyspace) -> KvResult<u64>;
    fn reclaim_space(&self) -> KvResult<()>;
    fn compact_range(&self, keyspace: Keyspace, range: &KeyRange) -> KvResult<()>;
    fn vacuum(&self, keyspaces: &[Keyspace]) -> KvResult<()>;
    fn hold_files(&self) -> KvResult<bool>;
    fn release_files(&self) -> KvResult<()>;
    fn sharing(&self) -> &dyn Sharing;
    fn is_nearly_full(&self) -> bool;
    fn flush(&self) -> KvResult<()>;
    fn checkpoint(&self, folder: &Path) -> KvResult<Vec<CheckpointFile>>;
    fn wall_ms(&self) -> KvResult<Option<i64>>;
    fn stats(&self) -> EngineStats;
    fn begin_to_close(&self) -> ();
    fn close(&self) -> KvResult<()>;
}

/// Forwards the named methods of [`Txn`] to an inner transaction: `forward_txn!(inner: put, lock,
/// commit);` in the wrapper's `impl Txn`, where `inner` is the field with the transaction.
///
/// Methods that are not named keep their defaults, which call the wrapper: one that counts `get`
/// sees each key of `multi_get`.
#[macro_export]
macro_rules! forward_txn {
    ($inner:ident: $($name:ident),+ $(,)?) => { $($crate::forward_txn!(@$name $inner);)+ };
    (@scan $inner:ident) => {
        fn scan(
            &self,
            keyspace: $crate::Keyspace,
            range: &$crate::KeyRange,
            direction: $crate::Direction,
            limit: $crate::ScanLimit,
            visit: &mut $crate::Visitor<'_>,
        ) -> $crate::KvResult<$crate::ScanEnd> {
            self.$inner.scan(keyspace, range, direction, limit, visit)
        }
    };
    (@put $inner:ident) => {
        fn put(
            &mut self,
            keyspace: $crate::Keyspace,
            key: &[u8],
            value: &[u8],
            guard: $crate::Guard,
        ) -> $crate::KvResult<()> {
            self.$inner.put(keyspace, key, value, guard)
        }
    };
    (@put_with_gaps $inner:ident) => {
        fn put_with_gaps(
            &mut self,
            keyspace: $crate::Keyspace,
            key: &[u8],
            value: &[u8],
            guard: $crate::Guard,
            gaps: &[$crate::Gap],
        ) -> $crate::KvResult<()> {
            self.$inner.put_with_gaps(keyspace, key, value, guard, gaps)
        }
    };
    (@delete $inner:ident) => {
        fn delete(
            &mut self,
            keyspace: $crate::Keyspace,
            key: &[u8],
            guard: $crate::Guard,
        ) -> $crate::KvResult<()> {
            self.$inner.delete(keyspace, key, guard)
        }
    };
    (@retire $inner:ident) => {
        fn retire(
            &mut self,
            keyspace: $crate::Keyspace,
            key: &[u8],
            guard: $crate::Guard,
        ) -> $crate::KvResult<()> {
            self.$inner.retire(keyspace, key, guard)
        }
    };
    (@scan_retired $inner:ident) => {
        fn scan_retired(
            &self,
            keyspace: $crate::Keyspace,
            range: &$crate::KeyRange,
            limit: $crate::ScanLimit,
            visit: &mut $crate::Visitor<'_>,
        ) -> $crate::KvResult<$crate::ScanEnd> {
            self.$inner.scan_retired(keyspace, range, limit, visit)
        }
    };
    (@lock $inner:ident) => {
        fn lock(&mut self, keyspace: $crate::Keyspace, key: &[u8]) -> $crate::KvResult<()> {
            self.$inner.lock(keyspace, key)
        }
    };
    (@size $inner:ident) => {
        fn size(&self) -> (usize, usize) {
            self.$inner.size()
        }
    };
    (@written_keys $inner:ident) => {
        fn written_keys(
            &self,
            keyspace: $crate::Keyspace,
            range: &$crate::KeyRange,
        ) -> Vec<Vec<u8>> {
            self.$inner.written_keys(keyspace, range)
        }
    };
    (@commit $inner:ident) => {
        fn commit_logged(self: Box<Self>, entries: $crate::LogEntries) -> $crate::LoggedCommit {
            self.$inner.commit_logged(entries)
        }
    };
}
