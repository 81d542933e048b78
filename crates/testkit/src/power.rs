//! An engine with simulated power cuts, which lose everything that was not synced.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use mayfly_kv::{
    Direction, Engine, EngineWrapper, Guard, HeldSnapshot, KeyRange, Keyspace, KvResult,
    MemoryEngine, ScanEnd, ScanLimit, TxnOptions,
};

/// Forwards all calls, and keeps a snapshot for each sync.
pub struct PowerCut {
    inner: Arc<dyn Engine>,
    synced: Mutex<Arc<dyn HeldSnapshot>>,
    syncs: AtomicUsize,
}

impl PowerCut {
    /// Wraps an engine whose writes are all synced.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn new(inner: Arc<dyn Engine>) -> KvResult<PowerCut> {
        let synced = Mutex::new(inner.hold()?);
        Ok(PowerCut { inner, synced, syncs: AtomicUsize::new(0) })
    }

    /// The number of syncs.
    pub fn syncs(&self) -> usize {
        self.syncs.load(Ordering::Acquire)
    }

    /// The state that a power cut would leave now.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn survivors(&self) -> KvResult<Arc<dyn Engine>> {
        let survivors = MemoryEngine::new();
        let (from, mut to) = (self.synced().begin()?, survivors.begin(TxnOptions::default())?);
        for keyspace in Keyspace::ALL {
            let mut range = KeyRange { start: Vec::new(), end: vec![0xFF; 300] };
            loop {
                let mut put = Ok(());
                let mut copy = |key: &[u8], value: &[u8]| {
                    put = to.put(keyspace, key, value, Guard::Checked);
                    if put.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
                };
                let limit = ScanLimit::NONE;
                let end = from.scan(keyspace, &range, Direction::Forward, limit, &mut copy)?;
                put?;
                match end {
                    ScanEnd::Exhausted => break,
                    ScanEnd::More { last_key } => {
                        range = range.after(&last_key, Direction::Forward);
                    }
                }
            }
        }
        to.commit()?;
        Ok(Arc::new(survivors))
    }

    fn synced(&self) -> Arc<dyn HeldSnapshot> {
        match self.synced.lock() {
            Ok(synced) => synced.clone(),
            Err(poisoned) => poisoned.into_inner().clone(),
        }
    }
}

impl EngineWrapper for PowerCut {
    fn inner(&self) -> &dyn Engine {
        &*self.inner
    }

    fn sync(&self) -> KvResult<()> {
        // The snapshot is taken before the sync, so that it has nothing that the sync does not
        // cover.
        let snapshot = self.inner.hold()?;
        self.inner.sync()?;
        self.syncs.fetch_add(1, Ordering::AcqRel);
        match self.synced.lock() {
            Ok(mut synced) => *synced = snapshot,
            Err(poisoned) => *poisoned.into_inner() = snapshot,
        }
        Ok(())
    }
}
