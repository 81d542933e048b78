//! A session that one command has: which of its statements were executed, and its open transaction.

use std::sync::{Arc, Weak};

use mayfly_base::{Clock, Error, ErrorCode, Result};
use mayfly_storage::{Executed, OpenTransaction, ReadView, SessionKey, Statement, Store};
use mayfly_value::DocBuf;
use mayfly_work::OpCtx;
use parking_lot::RawMutex;
use parking_lot::lock_api::ArcMutexGuard;

use super::state::{State, Usage};
use super::transactions::{ShownTransaction, Transaction};

/// A session that is checked out for one command.
pub struct CheckedOut {
    pub(super) session: SessionKey,
    pub(super) txn_number: i64,
    pub(super) state: ArcMutexGuard<RawMutex, State>,
}

impl CheckedOut {
    /// The name under which a statement is recorded.
    pub fn statement(&self, id: i32) -> Statement {
        Statement { session: self.session, txn_number: self.txn_number, id }
    }

    /// What the statement was answered when it was executed, if it was.
    pub fn executed(&self, id: i32) -> Option<&DocBuf> {
        self.state.executed.of(id).map(|executed| &executed.result)
    }

    /// To be called after the commit that recorded the statements.
    pub fn note(&mut self, executed: Executed) {
        self.state.executed.add(executed);
    }

    /// A command failed, and perhaps behind a commit: the next one asks the store what was executed.
    pub fn doubt(&mut self) {
        self.state.key = None;
    }

    /// From here on this thread reads and writes in the transaction.
    ///
    /// # Errors
    /// 251 NoSuchTransaction when it was aborted or its time is over, 256 TransactionCommitted.
    pub fn enter(&mut self, op: &Arc<OpCtx>) -> Result<ReadView> {
        Ok(self.open(op)?.take(op)?.enter())
    }

    /// The statement is over, with a reply that takes so many bytes, and its transaction goes on, unless somebody has ended it meanwhile.
    ///
    /// # Errors
    /// 246 SnapshotUnavailable when a definition changed of what the transaction has touched: then it is aborted.
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

    /// Undoes the transaction, if it is open.
    pub fn abort_open(&mut self) {
        self.state.abort(self.txn_number);
    }

    /// Commits the transaction; true when it was committed before.
    ///
    /// # Errors
    /// 251 NoSuchTransaction when it was aborted or its time is over; 112 and 246 when it cannot be committed; those of the engine.
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
                    // Nobody knows what became of it.
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

    /// The cluster time of what the open transaction reads; 0 when there is none.
    pub fn read_time(&self) -> u64 {
        match &self.state.usage {
            Usage::Open(transaction) => transaction.read_time(),
            Usage::Writes | Usage::Committed | Usage::Aborted => 0,
        }
    }

    /// The open transaction for `currentOp`.
    pub fn shown(&self, clock: &dyn Clock) -> Option<ShownTransaction> {
        match &self.state.usage {
            Usage::Open(transaction) => Some(transaction.shown(clock)),
            Usage::Writes | Usage::Committed | Usage::Aborted => None,
        }
    }

    /// What is there as long as the open transaction is.
    pub fn alive(&self) -> Weak<()> {
        match &self.state.usage {
            Usage::Open(transaction) => transaction.alive(),
            Usage::Writes | Usage::Committed | Usage::Aborted => Weak::new(),
        }
    }

    /// `txnNumber`.
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
        // A statement that never gave its transaction back has undone it.
        if matches!(&self.state.usage, Usage::Open(transaction) if transaction.is_taken()) {
            self.abort_open();
        }
    }
}

/// Whether a commit that failed so has certainly left nothing behind.
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
