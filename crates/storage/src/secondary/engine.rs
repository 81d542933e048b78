//! The byte store of a secondary: each snapshot brings the definitions in memory to its version.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use mayfly_kv::{
    Engine, EngineWrapper, Expected, HeldSnapshot, Keyspace, KvError, KvResult, LogClock, NamedKey,
    ThroughVisitor, Txn, TxnOptions,
};
use mayfly_work::current;
use parking_lot::Mutex;

use crate::Store;
use crate::record::error::to_kv;
use crate::record::layout::catalog_key;
use crate::shared::{NO_VERSION, version};

/// An engine that refuses writes, and whose snapshots have the definitions that the store has.
pub(crate) struct FollowingEngine {
    inner: Arc<dyn Engine>,
    /// The order of the log, which the owner's engine decides: it only advances with the row of the
    /// settled timestamp.
    log: Arc<LogClock>,
    /// The version of the definitions that the store has.
    version: AtomicU64,
    /// Held while the definitions are loaded.
    loading: Mutex<()>,
    /// The store; none while it is being opened.
    store: OnceLock<Weak<Store>>,
}

impl FollowingEngine {
    /// Wraps the engine of a store that another process owns.
    pub(crate) fn new(inner: Arc<dyn Engine>) -> Arc<FollowingEngine> {
        Arc::new(FollowingEngine {
            inner,
            log: LogClock::new(),
            version: AtomicU64::new(NO_VERSION),
            loading: Mutex::default(),
            store: OnceLock::new(),
        })
    }

    /// Sets the store whose definitions are kept up to date. Its first snapshot loads them again.
    pub(crate) fn follow_for(&self, store: &Arc<Store>) {
        // A store has one engine, and sets this once.
        let _ = self.store.set(Arc::downgrade(store));
    }

    /// The version of the definitions that the store has, as it is stored; `None` if they must be
    /// loaded, or while the store is being opened.
    fn known_version(&self) -> Option<[u8; 8]> {
        let known = self.version.load(Ordering::Acquire);
        (known != NO_VERSION && self.store.get().is_some()).then(|| known.to_le_bytes())
    }

    /// A snapshot with the definitions that the store has in memory, or older ones if they were
    /// changed a moment ago: such a snapshot still has the entries of what was dropped.
    fn snapshot(&self) -> KvResult<Box<dyn Txn>> {
        let txn = self.inner.begin(TxnOptions::READ_ONLY)?;
        let Some(store) = self.store.get().and_then(Weak::upgrade) else { return Ok(txn) };
        let known = self.version.load(Ordering::Acquire);
        if known != NO_VERSION && version(&*txn)? == known {
            return Ok(txn);
        }
        drop(txn);
        let _one_loads = current::acquire(|longest| self.loading.try_lock_for(longest))
            .map_err(|_| KvError::Timeout)?;
        // Snapshots that are taken under the lock are in the order of the changes.
        let txn = self.inner.begin(TxnOptions::READ_ONLY)?;
        let present = version(&*txn)?;
        if present == NO_VERSION || present != self.version.load(Ordering::Acquire) {
            store.refresh(&*txn).map_err(|error| to_kv(&error))?;
            self.version.store(present, Ordering::Release);
        }
        Ok(txn)
    }
}

/// That the definitions have this version.
fn of_version(value: &[u8]) -> Expected<'_> {
    Expected { keyspace: Keyspace::Catalog, key: catalog_key::VERSION, value }
}

impl EngineWrapper for FollowingEngine {
    fn inner(&self) -> &dyn Engine {
        &*self.inner
    }

    fn log(&self) -> &Arc<LogClock> {
        &self.log
    }

    fn begin(&self, options: TxnOptions) -> KvResult<Box<dyn Txn>> {
        match options.read_only {
            true => match self.known_version().filter(|_| options.begins_again) {
                Some(value) => self.inner.begin_if(&of_version(&value)),
                None => self.snapshot(),
            },
            false => Err(KvError::Fenced("not primary: this server only reads".into())),
        }
    }

    /// A snapshot of the past is one of a cluster time, which a secondary knows only later.
    fn hold(&self) -> KvResult<Arc<dyn HeldSnapshot>> {
        Err(KvError::Unsupported("read concern snapshot needs the primary".into()))
    }

    fn hold_for_export(&self) -> KvResult<Arc<dyn HeldSnapshot>> {
        Err(KvError::Unsupported("backups are made by the primary".into()))
    }

    fn get_once(
        &self,
        keyspace: Keyspace,
        key: &[u8],
        see: &mut dyn FnMut(&[u8]),
    ) -> KvResult<bool> {
        if let Some(value) = self.known_version()
            && let Some(found) = self.inner.get_if(&of_version(&value), (keyspace, key), see)?
        {
            return Ok(found);
        }
        self.snapshot()?.get(keyspace, key, see)
    }

    fn get_through_once(
        &self,
        keyspace: Keyspace,
        key: &[u8],
        named: &NamedKey<'_>,
        see: &mut ThroughVisitor<'_>,
    ) -> KvResult<bool> {
        if let Some(value) = self.known_version()
            && let Some(found) =
                self.inner.get_through_if(&of_version(&value), (keyspace, key), named, see)?
        {
            return Ok(found);
        }
        self.snapshot()?.get_through(keyspace, key, named, see)
    }
}
