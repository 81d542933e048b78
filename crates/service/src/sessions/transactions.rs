//! Open transactions of several statements: their owners, lifetimes, and running statements.
//!
//! The transaction itself is part of its session ([`super`]). This module holds what code without
//! the session needs: the check for expired transactions, kills, `currentOp` and `serverStatus`. To
//! end a transaction whose session is checked out, it marks the transaction and kills the
//! statement; the transaction is dropped when the session is returned.

use std::collections::HashMap;
use std::sync::atomic::{AtomicI32, AtomicI64, Ordering};
use std::sync::{Arc, Weak};

use mayfly_base::{Clock, Error, ErrorCode};
use mayfly_storage::OpenTransaction;
use mayfly_value::DocBuf;
use mayfly_work::memory::RetainedBytes;
use mayfly_work::{OpCtx, memory};
use parking_lot::Mutex;

use crate::clients::SessionId;
use crate::counters::metrics::Counter;
use crate::sessions::State;

/// The default of `transactionLifetimeLimitSeconds`.
const LIFETIME_SECS: i64 = 60;

/// The client's options at the beginning of a transaction, for `currentOp`.
#[derive(Clone, Debug)]
pub struct Beginning {
    /// Its session, in the form of the operation log.
    pub lsid: DocBuf,
    /// `readConcern` as sent.
    pub read_concern: DocBuf,
    /// The client's address.
    pub client: Arc<str>,
    /// The id of the connection that sent the first statement.
    pub connection_id: i64,
}

/// All open transactions, and counters.
pub struct OpenTransactions {
    open: Mutex<HashMap<SessionId, Arc<Handle>>>,
    /// The parameter `transactionLifetimeLimitSeconds`, for transactions that begin later.
    pub lifetime_secs: AtomicI64,
    /// Transactions that began.
    pub started: Counter,
    /// Transactions that ended without a commit.
    pub aborted: Counter,
    /// Transactions that ended with a commit.
    pub committed: Counter,
    /// Commits that a client sent again after the transaction was committed.
    pub retried_commands: Counter,
}

/// The part of an open transaction that is accessible without its session.
struct Handle {
    number: i64,
    state: Weak<Mutex<State>>,
    expires_micros: i64,
    /// 0, or the error code with which the transaction ends when its session is returned.
    doomed: AtomicI32,
    /// The running statement.
    op: Mutex<Option<Arc<OpCtx>>>,
}

/// An open transaction inside its session. Dropping it rolls it back.
pub(crate) struct Transaction {
    session: SessionId,
    all: Arc<OpenTransactions>,
    handle: Arc<Handle>,
    /// `None` while a statement runs.
    open: Option<OpenTransaction>,
    beginning: Beginning,
    read_time: u64,
    started_ms: i64,
    started_micros: i64,
    /// When the running statement began.
    active_since: i64,
    active_micros: i64,
    /// The memory that it holds between two statements.
    kept: RetainedBytes,
    /// The memory of the thread when the running statement began.
    mark: isize,
    is_committed: bool,
    /// Alive as long as the transaction; its cursors hold weak references to it.
    alive: Arc<()>,
}

/// An open transaction, for `currentOp`.
pub struct TransactionInfo {
    /// The `txnNumber` within its session.
    pub number: i64,
    /// The client's options.
    pub beginning: Beginning,
    /// The cluster time of its snapshot.
    pub read_time: u64,
    /// When it began, in milliseconds since 1970.
    pub started_ms: i64,
    /// Microseconds since it began.
    pub open_micros: i64,
    /// Microseconds during which statements ran.
    pub active_micros: i64,
    /// When it expires, in milliseconds since 1970.
    pub expires_ms: i64,
}

/// The current numbers of open transactions.
#[derive(Clone, Copy, Debug, Default)]
pub struct TransactionCounts {
    /// Transactions with a running statement.
    pub active: i64,
    /// Transactions without a running statement.
    pub inactive: i64,
}

impl Default for OpenTransactions {
    fn default() -> OpenTransactions {
        OpenTransactions {
            open: Mutex::default(),
            lifetime_secs: AtomicI64::new(LIFETIME_SECS),
            started: Counter::default(),
            aborted: Counter::default(),
            committed: Counter::default(),
            retried_commands: Counter::default(),
        }
    }
}

impl OpenTransactions {
    /// Aborts the transactions of the chosen sessions; a running statement is killed.
    pub fn abort(&self, code: ErrorCode, chosen: impl Fn(SessionId) -> bool) {
        self.end_where(code, |session, _| chosen(session));
    }

    /// Aborts the transactions without a running statement.
    pub fn abort_idle(&self, code: ErrorCode) {
        self.end_where(code, |_, handle| handle.op.lock().is_none());
    }

    /// Aborts the expired transactions.
    pub fn abort_expired(&self, now_micros: i64) {
        let code = ErrorCode::TransactionExceededLifetimeLimitSeconds;
        // Includes transactions that were marked while their session was just being returned.
        self.end_where(code, |_, handle| handle.is_over(now_micros));
    }

    fn end_where(&self, code: ErrorCode, chosen: impl Fn(SessionId, &Handle) -> bool) {
        let open = self.open.lock();
        let due: Vec<_> = open
            .iter()
            .filter(|(session, handle)| chosen(**session, handle))
            .map(|(_, handle)| handle.clone())
            .collect();
        drop(open);
        due.iter().for_each(|handle| handle.end(code));
    }

    /// The current numbers of open transactions.
    pub fn counts(&self) -> TransactionCounts {
        let open = self.open.lock();
        let active = open.values().filter(|handle| handle.op.lock().is_some()).count() as i64;
        TransactionCounts { active, inactive: open.len() as i64 - active }
    }

    /// The transactions without a running statement.
    pub fn inactive(&self, clock: &dyn Clock) -> Vec<TransactionInfo> {
        let handles: Vec<_> = self.open.lock().values().cloned().collect();
        let mut list = Vec::new();
        for handle in handles {
            let Some(state) = handle.state.upgrade() else { continue };
            let Some(state) = state.try_lock() else { continue };
            if let Some(transaction) = state.transaction(handle.number) {
                list.push(transaction.shown(clock));
            }
        }
        list
    }
}

impl Handle {
    fn is_over(&self, now_micros: i64) -> bool {
        self.doomed.load(Ordering::Acquire) != 0 || now_micros >= self.expires_micros
    }

    fn end(&self, code: ErrorCode) {
        let _ = self.doomed.compare_exchange(0, code.0, Ordering::AcqRel, Ordering::Relaxed);
        let Some(state) = self.state.upgrade() else { return };
        if let Some(mut state) = state.try_lock() {
            state.abort(self.number);
        } else if let Some(op) = &*self.op.lock() {
            op.kill(code);
        }
    }
}

impl Transaction {
    /// Begins a transaction.
    pub(crate) fn begin(
        all: &Arc<OpenTransactions>,
        (session, number): (SessionId, i64),
        state: Weak<Mutex<State>>,
        op: &OpCtx,
        open: OpenTransaction,
        beginning: Beginning,
    ) -> Transaction {
        let now_micros = op.clock().monotonic_micros();
        let lifetime = all.lifetime_secs.load(Ordering::Relaxed).saturating_mul(1_000_000);
        let handle = Arc::new(Handle {
            number,
            state,
            expires_micros: now_micros.saturating_add(lifetime),
            doomed: AtomicI32::new(0),
            op: Mutex::new(None),
        });
        all.started.add(1);
        all.open.lock().insert(session, handle.clone());
        Transaction {
            session,
            all: all.clone(),
            handle,
            read_time: open.read_time(),
            open: Some(open),
            beginning,
            started_ms: op.now_ms(),
            started_micros: now_micros,
            active_since: now_micros,
            active_micros: 0,
            kept: RetainedBytes::default(),
            mark: memory::mark(),
            is_committed: false,
            alive: Arc::default(),
        }
    }

    /// Whether it has expired or was ended.
    pub(crate) fn is_over(&self, op: &OpCtx) -> bool {
        self.handle.is_over(op.clock().monotonic_micros())
    }

    /// Takes it for a statement that this operation runs on this thread.
    ///
    /// # Errors
    /// An internal error when a statement is already running.
    pub(crate) fn take(&mut self, op: &Arc<OpCtx>) -> Result<OpenTransaction, Error> {
        *self.handle.op.lock() = Some(op.clone());
        self.active_since = op.clock().monotonic_micros();
        self.mark = memory::mark();
        memory::carry(self.kept.bytes());
        self.open.take().ok_or_else(|| Error::internal("a transaction runs two statements at once"))
    }

    /// Returns it after a statement with a reply of `reply_bytes` bytes. Returns false when it has
    /// ended.
    #[must_use]
    pub(crate) fn give_back(
        &mut self,
        open: OpenTransaction,
        op: &OpCtx,
        reply_bytes: usize,
    ) -> bool {
        self.kept.grown_since(self.mark, reply_bytes);
        self.active_micros += op.clock().monotonic_micros() - self.active_since;
        self.open = Some(open);
        *self.handle.op.lock() = None;
        !op.is_killed() && self.handle.doomed.load(Ordering::Acquire) == 0
    }

    /// Whether a statement is running.
    pub(crate) fn is_taken(&self) -> bool {
        self.open.is_none()
    }

    pub(crate) fn note_commit(&mut self) {
        self.is_committed = true;
    }

    pub(crate) fn number(&self) -> i64 {
        self.handle.number
    }

    pub(crate) fn read_time(&self) -> u64 {
        self.read_time
    }

    /// A reference that is alive as long as the transaction.
    pub(crate) fn alive(&self) -> Weak<()> {
        Arc::downgrade(&self.alive)
    }

    pub(crate) fn shown(&self, clock: &dyn Clock) -> TransactionInfo {
        let now_micros = clock.monotonic_micros();
        let left_micros = self.handle.expires_micros.saturating_sub(now_micros);
        TransactionInfo {
            number: self.handle.number,
            beginning: self.beginning.clone(),
            read_time: self.read_time,
            started_ms: self.started_ms,
            open_micros: now_micros - self.started_micros,
            active_micros: self.active_micros,
            expires_ms: clock.now_ms().saturating_add(left_micros / 1000),
        }
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        let mut open = self.all.open.lock();
        if open.get(&self.session).is_some_and(|handle| Arc::ptr_eq(handle, &self.handle)) {
            open.remove(&self.session);
        }
        drop(open);
        match self.is_committed {
            true => self.all.committed.add(1),
            false => self.all.aborted.add(1),
        }
    }
}
