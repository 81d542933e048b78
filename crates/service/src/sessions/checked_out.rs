//! A session that one command has checked out: its executed statements, and its open transaction.

use std::sync::{Arc, Weak};

use mayfly_base::{Clock, Error, ErrorCode, Result};
use mayfly_storage::{ExecutedStatements, OpenTransaction, ReadView, SessionKey, Statement, Store};
use mayfly_value::DocBuf;
use mayfly_work::OpCtx;
use parking_lot::RawMutex;
use parking_lot::lock_api::ArcMutexGuard;

use super::state::{State, Usage};
use super::transactions::{Transaction, TransactionInfo};

/// A session that is checked out for one command.
pub struct CheckedOut {
    pub(super) session: SessionKey,
    pub(super) txn_number: i64,
    pub(super) state: ArcMutexGuard<RawMutex, State>,
}

impl CheckedOut {
    /// The identity under which a statement is recorded.
    pub fn statement(&self, id: i32) -> Statement {
        Statement { session: self.session, txn_number: self.txn_number, id }
    }

    /// The result of a statement that was already executed.
    pub fn executed(&self, id: i32) -> Option<&DocBuf> {
        self.state.executed.of(id).map(|executed| &executed.result)
    }

    /// Remembers statements after the commit that recorded them.
    pub fn note(&mut self, executed: ExecutedStatements) {
        self.state.executed.add(executed);
    }

    /// Discards what is known about executed statements after a command that failed, perhaps after
    /// a commit: the next command reads it from the store.
    pub fn doubt(&mut self) {
        self.state.key = None;
    }

    /// Enters the transaction: this thread reads and writes in it from now on.
    ///
    /// # Errors
    /// 251 NoSuchTransaction when it was aborted or has expired, 256 TransactionCommitted.
    pub fn enter(&mut self, op: &Arc<OpCtx>) -> Result<ReadView> {
        Ok(self.open(op)?.take(op)?.enter())
    }

    /// Leaves the transaction after a statement, whose reply has `reply_bytes` bytes. The
    /// transaction stays open unless it was ended meanwhile.
    ///
    /// # Errors
    /// 246 SnapshotUnavailable when a definition that the transaction has used was changed; the
    /// transaction is aborted.
    pub fn leave(&mut self, view: ReadView, op: &OpCtx, reply_bytes: usize) -> Result<()> {
        let left = OpenTransaction::leave(view);
        let number = self.txn_number;
        let goes_on = match (&mut self.state.usage, left) {
            (Usage::Open(transaction), Ok(open)) => {
                Ok(transaction.give_back(open, op, reply_bytes))
            }
            (_, left) => left.map(|_| false),
        };
        if !matches!(goes_on, Ok(true)) {
            self.state.abort(number);
        }
        goes_on.map(drop)
    }

    /// Rolls the transaction back if it is open.
    pub fn abort_open(&mut self) {
        self.state.abort(self.txn_number);
    }

    /// Commits the transaction; returns true if it was committed before.
    ///
    /// # Errors
    /// 251 NoSuchTransaction when it was aborted or has expired; 112 and 246 when it cannot be
    /// committed; errors of the engine.
    pub fn commit(&mut self, store: &Store, op: &Arc<OpCtx>) -> Result<bool> {
        if matches!(self.state.usage, Usage::Committed) {
            return Ok(true);
        }
        let transaction = self.open(op)?;
        let open = transaction.take(op)?;
        match store.commit_transaction(open) {
            Ok(_) => {
                transaction.note_commit();
                self.state.usage = Usage::Committed;
                Ok(false)
            }
            Err(error) => {
                self.state.usage = Usage::Aborted;
                if !is_undone(error.code()) {
                    // It is unknown whether the commit took effect.
                    self.doubt();
                }
                Err(error)
            }
        }
    }

    /// Aborts the transaction.
    ///
    /// # Errors
    /// 251 NoSuchTransaction when it was aborted before, 256 TransactionCommitted.
    pub fn abort(&mut self, op: &OpCtx) -> Result<()> {
        self.open(op)?;
        self.abort_open();
        Ok(())
    }

    /// The cluster time of the open transaction's snapshot; 0 without one.
    pub fn read_time(&self) -> u64 {
        match &self.state.usage {
            Usage::Open(transaction) => transaction.read_time(),
            Usage::Writes | Usage::Committed | Usage::Aborted => 0,
        }
    }

    /// The open transaction for `currentOp`.
    pub fn shown(&self, clock: &dyn Clock) -> Option<TransactionInfo> {
        match &self.state.usage {
            Usage::Open(transaction) => Some(transaction.shown(clock)),
            Usage::Writes | Usage::Committed | Usage::Aborted => None,
        }
    }

    /// A reference that is alive as long as the open transaction.
    pub fn alive(&self) -> Weak<()> {
        match &self.state.usage {
            Usage::Open(transaction) => transaction.alive(),
            Usage::Writes | Usage::Committed | Usage::Aborted => Weak::new(),
        }
    }

    /// The `txnNumber` of the retryable write or transaction that the session is used for.
    pub fn txn_number(&self) -> i64 {
        self.txn_number
    }

    fn open(&mut self, op: &OpCtx) -> Result<&mut Transaction> {
        let number = self.txn_number;
        let ended = |code: ErrorCode, how: &str| {
            let name = format!("{{ txnNumber: {number}, txnRetryCounter: 0 }}");
            Err(Error::new(code, format!("Transaction with {name} has been {how}.")))
        };
        if matches!(&self.state.usage, Usage::Open(transaction) if transaction.is_over(op)) {
            self.state.usage = Usage::Aborted;
        }
        match &mut self.state.usage {
            Usage::Open(transaction) => Ok(transaction),
            Usage::Committed => ended(ErrorCode::TransactionCommitted, "committed"),
            Usage::Aborted | Usage::Writes => ended(ErrorCode::NoSuchTransaction, "aborted"),
        }
    }
}

impl Drop for CheckedOut {
    fn drop(&mut self) {
        if self.state.executed.is_too_much() {
            self.state.executed.clear();
            self.doubt();
        }
        // A statement that did not leave its transaction has rolled it back.
        if matches!(&self.state.usage, Usage::Open(transaction) if transaction.is_taken()) {
            self.abort_open();
        }
    }
}

/// Whether a commit that failed with this error certainly had no effect.
fn is_undone(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::WriteConflict
            | ErrorCode::SnapshotUnavailable
            | ErrorCode::NoSuchTransaction
            | ErrorCode::SnapshotTooOld
            | ErrorCode::InterruptedAtShutdown
    )
}
