//! The context of an operation from its first byte to its reply: identity, deadline, kill flag,
//! counters.
//!
//! Every operation, a client's command as well as a visit of the TTL monitor, is an [`OpCtx`] in
//! the one [registry](crate::OpRegistry). Long loops call [`OpCtx::check`].

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::task::Waker;

use mayfly_base::{Clock, Error, ErrorCode, Result};
use parking_lot::Mutex;

use crate::library::ScriptLibrary;
use crate::memory;
pub use crate::op_info::{OpInfo, OpProgress};
use crate::planning::Planning;
use crate::scratch::{OperationScratch, ScratchPool};
use crate::spill::SpillCounters;
use crate::threads::ThreadOccupancy;

/// No deadline.
const NEVER: i64 = i64::MAX;

/// One operation. The thread that runs it shares it with the registry's readers.
pub struct OpCtx {
    id: i32,
    clock: Arc<dyn Clock>,
    started_micros: i64,
    /// When its command ran for the first time.
    pub(crate) first_started_micros: i64,
    started_wall_ms: i64,
    /// Monotonic microseconds.
    deadline_micros: AtomicI64,
    /// 0, or the error code to end with.
    pub(crate) kill_code: AtomicI32,
    /// Wakes the connection of an operation that waits without a thread.
    pub(crate) waker: Mutex<Option<Waker>>,
    /// Documents read so far, for `currentOp`, the profiler and the log.
    pub docs_examined: AtomicU64,
    /// Index entries read.
    pub keys_examined: AtomicU64,
    /// Documents that the reply has or that the operation changed.
    pub docs_returned: AtomicU64,
    /// How often it released its scheduler slot or lock to other operations.
    pub yields: AtomicU64,
    /// Microseconds spent waiting at the client's request, such as for new data of a tailable
    /// cursor.
    pub waited_micros: AtomicI64,
    /// Whether it sorted documents because no index gave their order.
    pub has_sort_stage: AtomicBool,
    /// How its plan was chosen.
    pub planning: Planning,
    /// Documents that it sorted.
    pub keys_sorted: AtomicU64,
    /// Bytes of the documents that it sorted.
    pub bytes_sorted: AtomicU64,
    /// The amounts that it spilled to files.
    pub spills: SpillCounters,
    /// The connections to a database that it holds: an operation with one does not queue for
    /// another, because those before it may wait for it.
    pub connections: AtomicU32,
    /// Whether it requires a primary.
    writes: AtomicBool,
    /// Its use of the runtime's thread and its scheduler slot.
    pub thread: ThreadOccupancy,
    scratch_pool: Arc<ScratchPool>,
    library: Arc<ScriptLibrary>,
    /// Created with the first temporary file; few operations have one.
    scratch: Mutex<Option<Arc<OperationScratch>>>,
    info: Mutex<OpInfo>,
}

impl OpCtx {
    /// An operation outside any registry, for tests and start-up work.
    pub fn detached(clock: Arc<dyn Clock>) -> Arc<OpCtx> {
        let shared = (Arc::default(), Arc::default());
        Arc::new(OpCtx::with_id(0, clock, OpInfo::default(), shared))
    }

    pub(crate) fn with_id(
        id: i32,
        clock: Arc<dyn Clock>,
        info: OpInfo,
        (scratch_pool, library): (Arc<ScratchPool>, Arc<ScriptLibrary>),
    ) -> OpCtx {
        let started_micros = clock.monotonic_micros();
        OpCtx {
            id,
            started_micros,
            first_started_micros: started_micros,
            started_wall_ms: clock.now_ms(),
            clock,
            deadline_micros: AtomicI64::new(NEVER),
            kill_code: AtomicI32::new(0),
            waker: Mutex::new(None),
            docs_examined: AtomicU64::new(0),
            keys_examined: AtomicU64::new(0),
            docs_returned: AtomicU64::new(0),
            yields: AtomicU64::new(0),
            waited_micros: AtomicI64::new(0),
            has_sort_stage: AtomicBool::new(false),
            planning: Planning::default(),
            keys_sorted: AtomicU64::new(0),
            bytes_sorted: AtomicU64::new(0),
            spills: SpillCounters::default(),
            connections: AtomicU32::new(0),
            writes: AtomicBool::new(false),
            thread: ThreadOccupancy::default(),
            scratch_pool,
            library,
            scratch: Mutex::new(None),
            info: Mutex::new(info),
        }
    }

    /// `opid`, positive; 0 outside a registry.
    pub fn id(&self) -> i32 {
        self.id
    }

    /// The clock of the server.
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    /// Wall time now, in milliseconds since 1970.
    pub fn now_ms(&self) -> i64 {
        self.clock.now_ms()
    }

    /// Monotonic microseconds; see [`Clock::monotonic_micros`].
    pub fn monotonic_micros(&self) -> i64 {
        self.clock.monotonic_micros()
    }

    /// Microseconds since it began.
    pub fn elapsed_micros(&self) -> i64 {
        self.clock.monotonic_micros() - self.started_micros
    }

    /// Microseconds since its command ran for the first time, with the waits in between.
    pub fn shown_micros(&self) -> i64 {
        self.clock.monotonic_micros() - self.first_started_micros
    }

    /// Microseconds since it began, without those spent waiting at the client's request. The
    /// threshold for slow operations applies to this.
    pub fn worked_micros(&self) -> i64 {
        (self.elapsed_micros() - self.waited_micros.load(Ordering::Relaxed)).max(0)
    }

    /// Wall time at its beginning, in milliseconds since 1970.
    pub fn started_wall_ms(&self) -> i64 {
        self.started_wall_ms
    }

    /// Sets the deadline relative to now. `maxTimeMS: 0` means no limit and must not be passed.
    pub fn set_max_time_ms(&self, max_time_ms: i64) {
        let micros = max_time_ms.saturating_mul(1000);
        self.deadline_micros
            .store(self.clock.monotonic_micros().saturating_add(micros), Ordering::Relaxed);
    }

    /// Time until the deadline; `None` without one.
    pub fn time_left_micros(&self) -> Option<i64> {
        match self.deadline_micros.load(Ordering::Relaxed) {
            NEVER => None,
            deadline => Some(deadline.saturating_sub(self.clock.monotonic_micros())),
        }
    }

    /// Sets whether it writes. A writing operation is killed when its server stops being the
    /// primary.
    pub fn set_writes(&self, writes: bool) {
        self.writes.store(writes, Ordering::SeqCst);
    }

    /// Whether it writes.
    pub fn writes(&self) -> bool {
        self.writes.load(Ordering::SeqCst)
    }

    /// Sets the code that its next check fails with. The first call wins.
    pub fn kill(&self, code: ErrorCode) {
        let _ = self.kill_code.compare_exchange(0, code.0, Ordering::SeqCst, Ordering::SeqCst);
        if let Some(waker) = self.waker.lock().take() {
            waker.wake();
        }
    }

    /// Whether it is neither killed nor past its deadline.
    pub(crate) fn may_continue(&self) -> bool {
        let deadline = self.deadline_micros.load(Ordering::Relaxed);
        !self.is_killed() && (deadline == NEVER || self.clock.monotonic_micros() < deadline)
    }

    /// Whether it was killed.
    pub fn is_killed(&self) -> bool {
        self.kill_code.load(Ordering::Relaxed) != 0
    }

    /// Checks deadline and kill flag, for a thread that works for the operation of another one.
    ///
    /// # Errors
    /// 50 MaxTimeMSExpired, 11601 Interrupted or the killer's code.
    pub fn check_ended(&self) -> Result<()> {
        let code = self.kill_code.load(Ordering::Relaxed);
        if code != 0 {
            return Err(Error::new(ErrorCode(code), "operation was interrupted"));
        }
        let deadline = self.deadline_micros.load(Ordering::Relaxed);
        if deadline != NEVER && self.clock.monotonic_micros() >= deadline {
            return Err(Error::new(ErrorCode::MaxTimeMSExpired, "operation exceeded time limit"));
        }
        Ok(())
    }

    /// Checks deadline, kill flag and memory. Every long loop calls it, about every hundred items.
    ///
    /// # Errors
    /// 50 MaxTimeMSExpired, 11601 Interrupted or the killer's code; 146 ExceededMemoryLimit, see
    /// [`memory::check`].
    pub fn check(&self) -> Result<()> {
        self.check_ended()?;
        self.thread.leave_when_asked(self);
        memory::check()
    }

    /// The account of its temporary files.
    pub fn scratch(&self) -> Arc<OperationScratch> {
        let make = || Arc::new(OperationScratch::new(self.scratch_pool.clone()));
        self.scratch.lock().get_or_insert_with(make).clone()
    }

    /// Continues the account of an earlier operation with the same cursor.
    pub fn continue_scratch(&self, scratch: Arc<OperationScratch>) {
        *self.scratch.lock() = Some(scratch);
    }

    /// Changes the fields that `currentOp` reports.
    pub fn update_info(&self, change: impl FnOnce(&mut OpInfo)) {
        change(&mut self.info.lock());
    }

    /// The fields that `currentOp` reports.
    pub fn info(&self) -> OpInfo {
        self.info.lock().clone()
    }

    /// The functions that the operation's database stores for scripts, as the bytes of a document;
    /// `None` if there is no reader of them.
    ///
    /// # Errors
    /// Errors of the reader.
    pub fn stored_functions(self: &Arc<OpCtx>) -> Result<Option<Vec<u8>>> {
        let ns = self.info.lock().ns.clone();
        let db = ns.split('.').next().unwrap_or_default();
        if db.is_empty() { Ok(None) } else { self.library.functions(self, db) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mayfly_base::ManualClock;

    #[test]
    fn waiting_as_asked_is_no_work() {
        let clock = Arc::new(ManualClock::at_ms(0));
        let op = OpCtx::detached(clock.clone());
        clock.advance_ms(1000);
        op.waited_micros.fetch_add(990_000, Ordering::Relaxed);
        assert_eq!((op.elapsed_micros(), op.worked_micros()), (1_000_000, 10_000));
    }
}
