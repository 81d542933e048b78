//! An engine that stops one thread at a chosen transaction, so that a test can inspect work in
//! progress and interfere with it.
//!
//! The gate applies to transactions of one kind (reads or writes) that begin on threads with a
//! given name. A number of them pass; the next one waits until the gate is opened. Other threads
//! never wait.

use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use mayfly_kv::{Engine, EngineWrapper, HeldSnapshot, KvResult, Txn, TxnOptions};

/// Name of the threads that a gate stops.
pub const GATED_THREAD: &str = "gated";

/// The longest wait at a gate, and for a transaction to arrive at it.
const PATIENCE: Duration = Duration::from_secs(60);

/// Which transactions a gate stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stops {
    /// Snapshots.
    Reads,
    /// Transactions that may write.
    Writes,
}

#[derive(Debug, Default)]
struct State {
    stops: Option<Stops>,
    /// Transactions that may still pass.
    passes: usize,
    /// Whether an operation waits.
    waiting: bool,
}

/// The gate; open at first.
#[derive(Debug, Default)]
pub struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

impl Gate {
    fn state(&self) -> MutexGuard<'_, State> {
        match self.state.lock() {
            Ok(state) => state,
            Err(poisoned) => poisoned.into_inner(),
        }
    }

    fn wait<'s>(&self, state: MutexGuard<'s, State>) -> MutexGuard<'s, State> {
        match self.changed.wait_timeout(state, PATIENCE) {
            Ok((state, waited)) => {
                assert!(!waited.timed_out(), "the other side of the gate does not come");
                state
            }
            Err(poisoned) => poisoned.into_inner().0,
        }
    }

    /// Stops transactions of this kind after `passes` further ones.
    pub fn close_after(&self, stops: Stops, passes: usize) {
        *self.state() = State { stops: Some(stops), passes, waiting: false };
    }

    /// Waits until an operation waits at the gate.
    pub fn wait_for_arrival(&self) {
        let mut state = self.state();
        while !state.waiting {
            state = self.wait(state);
        }
    }

    /// Lets all operations pass.
    pub fn open(&self) {
        *self.state() = State::default();
        self.changed.notify_all();
    }

    fn pass(&self, kind: Stops) {
        if std::thread::current().name() != Some(GATED_THREAD) {
            return;
        }
        let mut state = self.state();
        while state.stops == Some(kind) {
            if state.passes > 0 {
                state.passes -= 1;
                return;
            }
            state.waiting = true;
            self.changed.notify_all();
            state = self.wait(state);
        }
    }
}

/// An engine with a gate.
pub struct GatedEngine {
    inner: Arc<dyn Engine>,
    gate: Arc<Gate>,
}

impl GatedEngine {
    /// Adds a gate to an engine.
    pub fn new(inner: Arc<dyn Engine>, gate: Arc<Gate>) -> GatedEngine {
        GatedEngine { inner, gate }
    }
}

impl EngineWrapper for GatedEngine {
    fn inner(&self) -> &dyn Engine {
        &*self.inner
    }

    fn begin(&self, options: TxnOptions) -> KvResult<Box<dyn Txn>> {
        self.gate.pass(if options.read_only { Stops::Reads } else { Stops::Writes });
        self.inner.begin(options)
    }

    fn hold(&self) -> KvResult<Arc<dyn HeldSnapshot>> {
        self.gate.pass(Stops::Reads);
        self.inner.hold()
    }
}
