//! Stores for tests of this crate: without background threads, and with a clock that tests move.

use std::sync::Arc;

use mayfly_base::{Clock, ManualClock};
use mayfly_kv::{Engine, MemoryEngine};
use mayfly_work::{OpCtx, OpRegistry};

use crate::{Store, StoreOptions};

/// The start of clocks of [`clock`]: 2027-01-15T08:00:00Z.
pub(crate) const NOW: i64 = 1_800_000_000_000;

/// An open store, and an operation on it.
pub(crate) struct Opened {
    pub(crate) store: Arc<Store>,
    pub(crate) ops: Arc<OpRegistry>,
    pub(crate) op: Arc<OpCtx>,
}

/// A manual clock at [`NOW`].
pub(crate) fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::at_ms(NOW))
}

/// An empty engine in memory.
pub(crate) fn memory() -> Arc<dyn Engine> {
    Arc::new(MemoryEngine::new())
}

/// Opens a store over an engine.
pub(crate) fn open(engine: Arc<dyn Engine>, clock: Arc<dyn Clock>) -> Opened {
    open_with(engine, clock, StoreOptions { background: false, ..StoreOptions::default() })
}

/// Opens a store with these options.
pub(crate) fn open_with(
    engine: Arc<dyn Engine>,
    clock: Arc<dyn Clock>,
    options: StoreOptions,
) -> Opened {
    let ops = OpRegistry::new(clock.clone());
    let store = Store::open(engine, options, clock.clone(), ops.clone()).unwrap();
    Opened { store, ops, op: OpCtx::detached(clock) }
}
