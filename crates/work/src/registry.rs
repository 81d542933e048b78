//! The operations of a server: `currentOp` lists them, `killOp` sets a flag in one.
//!
//! A command that waits for data has no thread meanwhile. Its operation is a [`WaitingOp`] then,
//! and goes on under the same number when the command runs again.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::task::Poll;

use mayfly_base::{Clock, ErrorCode};
use parking_lot::{Mutex, MutexGuard};

use crate::library::ScriptLibrary;
use crate::op::{OpCtx, OpInfo};
use crate::scratch::ScratchPool;
use crate::threads::Sleeper;

type Ops = BTreeMap<i32, Arc<OpCtx>>;

/// All operations that run or wait now.
pub struct OpRegistry {
    clock: Arc<dyn Clock>,
    next_id: AtomicI32,
    running: Mutex<Ops>,
    /// Those that wait without a thread.
    waiting: Mutex<Ops>,
    /// Wakes the watcher thread, which sleeps while nothing runs.
    pub(crate) sleeper: Sleeper,
    /// Whether a watcher thread runs.
    pub(crate) watched: AtomicBool,
    scratch: Arc<ScratchPool>,
    library: Arc<ScriptLibrary>,
}

/// Keeps an operation registered until it is dropped.
pub struct OpGuard {
    registry: Arc<OpRegistry>,
    op: Arc<OpCtx>,
}

/// An operation that waits without a thread, until it is dropped or
/// [goes on](OpRegistry::go_on).
pub struct WaitingOp {
    registry: Arc<OpRegistry>,
    op: Arc<OpCtx>,
}

impl OpRegistry {
    /// An empty registry.
    pub fn new(clock: Arc<dyn Clock>) -> Arc<OpRegistry> {
        Arc::new(OpRegistry {
            clock,
            next_id: AtomicI32::new(1),
            running: Mutex::default(),
            waiting: Mutex::default(),
            sleeper: Sleeper::default(),
            watched: AtomicBool::new(false),
            scratch: Arc::default(),
            library: Arc::default(),
        })
    }

    /// Registers an operation that begins now. Dropping the guard removes it.
    pub fn begin(self: &Arc<OpRegistry>, info: OpInfo) -> OpGuard {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed) & i32::MAX;
        self.run(self.new_op(id, info))
    }

    /// Registers the operation of a command that runs again after its wait, under the same number.
    /// Its times begin anew, but for [`OpCtx::shown_micros`]. It is killed if it was while it
    /// waited.
    pub fn go_on(self: &Arc<OpRegistry>, waited: &WaitingOp, info: OpInfo) -> OpGuard {
        let mut op = self.new_op(waited.op.id(), info);
        op.first_started_micros = waited.op.first_started_micros;
        let guard = self.run(op);
        waited.leave();
        // Read after it left: a kill finds one of the two.
        match waited.op.kill_code.load(Ordering::SeqCst) {
            0 => {}
            code => guard.op.kill(ErrorCode(code)),
        }
        guard
    }

    fn new_op(&self, id: i32, info: OpInfo) -> OpCtx {
        let shared = (self.scratch.clone(), self.library.clone());
        OpCtx::with_id(id, self.clock.clone(), info, shared)
    }

    fn run(self: &Arc<OpRegistry>, op: OpCtx) -> OpGuard {
        let op = Arc::new(op);
        self.running.lock().insert(op.id(), op.clone());
        self.sleeper.wake();
        OpGuard { registry: self.clone(), op }
    }

    /// The account of the temporary files of all operations.
    pub fn scratch(&self) -> &Arc<ScratchPool> {
        &self.scratch
    }

    /// The reader of the functions that databases store for scripts.
    pub fn library(&self) -> &ScriptLibrary {
        &self.library
    }

    /// A snapshot of what runs, ascending by id.
    pub fn list(&self) -> Vec<Arc<OpCtx>> {
        self.running.lock().values().cloned().collect()
    }

    /// The same with what waits without a thread.
    pub fn list_all(&self) -> Vec<Arc<OpCtx>> {
        let (waiting, running) = self.both();
        let mut all = waiting.clone();
        all.extend(running.iter().map(|(id, op)| (*id, op.clone())));
        all.into_values().collect()
    }

    /// Calls `see` for each running operation.
    pub(crate) fn each(&self, see: &mut dyn FnMut(&OpCtx)) {
        self.running.lock().values().for_each(|op| see(op));
    }

    /// Kills the operation with this id. False when there is no such operation.
    pub fn kill(&self, id: i32, code: ErrorCode) -> bool {
        let found: Vec<_> = {
            let (waiting, running) = self.both();
            waiting.get(&id).into_iter().chain(running.get(&id)).cloned().collect()
        };
        found.iter().for_each(|op| op.kill(code));
        !found.is_empty()
    }

    /// What waits and what runs at one moment. An operation that passes from one to the other is in
    /// both for a short time, and never in neither.
    fn both(&self) -> (MutexGuard<'_, Ops>, MutexGuard<'_, Ops>) {
        let waiting = self.waiting.lock();
        (waiting, self.running.lock())
    }
}

impl WaitingOp {
    /// Waits until it is killed.
    pub async fn killed(&self) {
        poll_fn(|context| {
            let mut waker = self.op.waker.lock();
            // The flag is set before the waker is taken.
            match self.op.is_killed() {
                true => Poll::Ready(()),
                false => {
                    *waker = Some(context.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await;
    }

    /// Removes it. The one that waits under its number may be a later wait of the same command.
    fn leave(&self) {
        let mut waiting = self.registry.waiting.lock();
        if waiting.get(&self.op.id()).is_some_and(|op| Arc::ptr_eq(op, &self.op)) {
            waiting.remove(&self.op.id());
        }
    }
}

impl Drop for WaitingOp {
    fn drop(&mut self) {
        self.leave();
    }
}

impl OpGuard {
    /// Marks a client's operation, which takes turns with others when it takes long. Without a
    /// watcher thread nothing asks it to.
    pub fn take_turns(&self) {
        if self.registry.watched.load(Ordering::Relaxed) {
            self.op.thread.set_queues();
        }
    }

    /// The operation of a command that waits without a thread from now on.
    pub fn wait(self) -> WaitingOp {
        let (registry, op) = (self.registry.clone(), self.op.clone());
        registry.waiting.lock().insert(op.id(), op.clone());
        // The guard is dropped only now, so that a kill finds the operation all the time.
        WaitingOp { registry, op }
    }

    /// The operation that ends when the guard is dropped.
    pub fn op(&self) -> &Arc<OpCtx> {
        &self.op
    }
}

impl Drop for OpGuard {
    fn drop(&mut self) {
        self.op.thread.end_turn();
        self.registry.running.lock().remove(&self.op.id());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mayfly_base::ManualClock;
    use std::task::{Context, Waker};

    #[test]
    fn deadline_and_kill_end_an_operation() {
        let clock = Arc::new(ManualClock::at_ms(0));
        let registry = OpRegistry::new(clock.clone());
        let guard = registry.begin(OpInfo::default());
        guard.op().set_max_time_ms(5);
        assert!(guard.op().check().is_ok());
        clock.advance_ms(5);
        assert_eq!(guard.op().check().unwrap_err().code(), ErrorCode::MaxTimeMSExpired);
        assert!(registry.kill(guard.op().id(), ErrorCode::Interrupted));
        assert_eq!(guard.op().check().unwrap_err().code(), ErrorCode::Interrupted);
        drop(guard);
        assert!(registry.list().is_empty());
    }

    #[test]
    fn an_operation_that_waits_is_listed_and_killed() {
        let clock = Arc::new(ManualClock::at_ms(0));
        let registry = OpRegistry::new(clock.clone());
        let numbers = |list: Vec<Arc<OpCtx>>| list.iter().map(|op| op.id()).collect::<Vec<_>>();
        let waiting = registry.begin(OpInfo::default()).wait();
        clock.advance_ms(2000);
        assert_eq!((numbers(registry.list()), numbers(registry.list_all())), (vec![], vec![1]));
        let again = registry.go_on(&waiting, OpInfo::default());
        assert_eq!((again.op().elapsed_micros(), again.op().shown_micros()), (0, 2_000_000));
        assert_eq!((numbers(registry.list()), numbers(registry.list_all())), (vec![1], vec![1]));
        let later = again.wait();
        drop(waiting);
        assert_eq!((numbers(registry.list()), numbers(registry.list_all())), (vec![], vec![1]));
        let (mut killed, mut context) =
            (Box::pin(later.killed()), Context::from_waker(Waker::noop()));
        assert!(killed.as_mut().poll(&mut context).is_pending());
        assert!(registry.kill(1, ErrorCode::Interrupted));
        assert!(killed.as_mut().poll(&mut context).is_ready());
        drop(killed);
        let last = registry.go_on(&later, OpInfo::default());
        assert_eq!(last.op().check_ended().unwrap_err().code(), ErrorCode::Interrupted);
        drop((last, later));
        assert!(!registry.kill(1, ErrorCode::Interrupted) && registry.list_all().is_empty());
    }

    #[test]
    fn an_operation_that_passes_between_waiting_and_running_is_always_found() {
        let registry = OpRegistry::new(Arc::new(ManualClock::at_ms(0)));
        let mut waiting = registry.begin(OpInfo::default()).wait();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..100_000 {
                    waiting = registry.go_on(&waiting, OpInfo::default()).wait();
                }
                done.store(true, Ordering::SeqCst);
            });
            while !done.load(Ordering::SeqCst) {
                assert!(registry.kill(1, ErrorCode::Interrupted));
                assert_eq!(registry.list_all().len(), 1);
            }
        });
    }
}
