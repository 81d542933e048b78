//! The purpose of a session's latest transaction number: retryable writes, or a transaction.

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_storage::{COMMIT_STATEMENT, SessionKey, Store};

use super::statements::Statements;
use super::transactions::Transaction;
use crate::clients::SessionId;

/// The state of a session.
#[derive(Default)]
pub(crate) struct State {
    /// The session's key in the store; `None` until the statements that were executed before this
    /// process started are read.
    pub(super) key: Option<SessionKey>,
    pub(super) txn_number: Option<i64>,
    pub(super) usage: Usage,
    pub(super) executed: Statements,
}

/// The purpose of a transaction number.
#[derive(Default)]
pub(super) enum Usage {
    /// Retryable writes.
    #[default]
    Writes,
    /// An open transaction.
    Open(Box<Transaction>),
    /// A committed transaction.
    Committed,
    /// An aborted transaction.
    Aborted,
}

impl State {
    /// Reads the executed statements from the store, unless memory has them all. Returns the
    /// session's key.
    pub(super) fn load(&mut self, store: &Store, session: SessionId) -> Result<SessionKey> {
        if let Some(key) = self.key {
            return Ok(key);
        }
        let key = session.key();
        if let Some((txn_number, executed)) = store.executed_statements(&key)?
            && self.txn_number.is_none_or(|latest| latest <= txn_number)
        {
            self.txn_number = Some(txn_number);
            if executed.iter().any(|executed| executed.id == COMMIT_STATEMENT) {
                self.usage = Usage::Committed;
            } else {
                executed.into_iter().for_each(|executed| self.executed.add(executed));
            }
        }
        self.key = Some(key);
        Ok(key)
    }

    pub(super) fn begin_writes(&mut self, session: SessionId, txn_number: i64) -> Result<()> {
        match self.txn_number {
            Some(latest) if txn_number < latest => Err(Error::new(
                ErrorCode::TransactionTooOld,
                format!(
                    "Retryable write with txnNumber {txn_number} is prohibited on session {session} because a \
                     newer {} with txnNumber {latest} has already started on this session.",
                    self.usage.shown()
                ),
            )),
            Some(latest) if txn_number == latest => match self.usage {
                Usage::Writes => Ok(()),
                _ => Err(Error::new(
                    ErrorCode::IncompleteTransactionHistory,
                    "Cannot retry a retryable write that has been converted into a transaction",
                )),
            },
            _ => {
                self.txn_number = Some(txn_number);
                self.usage = Usage::Writes;
                self.executed.clear();
                Ok(())
            }
        }
    }

    /// Checks that a transaction with this number can begin.
    pub(super) fn check_beginning(&self, session: SessionId, number: i64) -> Result<()> {
        self.check_latest(session, number)?;
        match self.txn_number == Some(number) {
            false => Ok(()),
            true => Err(Error::new(
                ErrorCode::ConflictingOperationInProgress,
                "Only servers in a sharded cluster can start a new transaction at the active transaction number",
            )),
        }
    }

    /// Checks that there is a transaction with this number to continue.
    pub(super) fn check_going_on(&self, session: SessionId, number: i64) -> Result<()> {
        self.check_latest(session, number)?;
        match self.txn_number == Some(number) && !matches!(self.usage, Usage::Writes) {
            true => Ok(()),
            false => Err(Error::new(
                ErrorCode::NoSuchTransaction,
                format!(
                    "Given transaction number {number} does not match any in-progress transactions. The active transaction \
                     number is {}",
                    self.txn_number.unwrap_or(-1)
                ),
            )),
        }
    }

    /// Checks that no greater number was used.
    fn check_latest(&self, session: SessionId, number: i64) -> Result<()> {
        let Some(latest) = self.txn_number.filter(|latest| number < *latest) else { return Ok(()) };
        Err(Error::new(
            ErrorCode::TransactionTooOld,
            format!(
                "Cannot start transaction with {{ txnNumber: {number} }} on session {session} because a newer {} with \
                 txnNumberAndRetryCounter {{ txnNumber: {latest}, txnRetryCounter: 0 }} has already started on this \
                 session.",
                self.usage.shown()
            ),
        ))
    }

    /// The open transaction with this number, between two statements.
    pub(crate) fn transaction(&self, number: i64) -> Option<&Transaction> {
        match &self.usage {
            Usage::Open(open) if open.number() == number && !open.is_taken() => Some(open),
            _ => None,
        }
    }

    /// Rolls back the transaction with this number if it is open.
    pub(crate) fn abort(&mut self, number: i64) {
        if matches!(&self.usage, Usage::Open(open) if open.number() == number) {
            self.usage = Usage::Aborted;
        }
    }
}

impl Usage {
    pub(super) fn shown(&self) -> &'static str {
        match self {
            Usage::Writes => "retryable write",
            Usage::Open(_) | Usage::Committed | Usage::Aborted => "transaction",
        }
    }
}

#[cfg(test)]
mod tests {
    use mayfly_storage::ExecutedStatements;
    use mayfly_value::DocBuf;

    use super::*;
    use crate::clients::SessionOwner;

    #[test]
    fn later_numbers_void_earlier_ones() {
        let mut writes = State { key: Some([0; 16]), ..State::default() };
        let session = SessionId { id: [0xAB; 16], owner: SessionOwner::NONE };
        writes.begin_writes(session, 3).unwrap();
        writes.executed.add(ExecutedStatements { id: 0, count: 2, result: DocBuf::empty() });
        writes.begin_writes(session, 3).unwrap();
        assert_eq!(writes.executed.len(), 1);
        let error = writes.begin_writes(session, 2).unwrap_err();
        assert_eq!(error.code(), ErrorCode::TransactionTooOld);
        assert!(error.message().contains("abababab-abab-abab-abab-abababababab"));
        writes.begin_writes(session, 4).unwrap();
        assert_eq!(writes.executed.len(), 0);
    }
}
