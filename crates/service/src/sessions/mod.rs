//! Logical sessions: when each was last used, and the purpose of its latest transaction number,
//! which is retryable writes or a multi-statement transaction. Sessions time out after half an
//! hour.
//!
//! A command with a transaction number checks its session out. No other command runs in the session
//! meanwhile, so a retried write finds that its first attempt has ended, with or without success. A
//! session that ends or times out while it is checked out stays until the command is over, so that
//! no other command begins a second session with the same id.

mod checked_out;
mod cursors;
mod state;
mod statements;
mod transactions;

pub use checked_out::CheckedOut;
pub(crate) use cursors::CursorCounts;
pub use cursors::{CursorOwner, Cursors, IdleTime, OpenCursor};
pub use transactions::{Beginning, OpenTransactions, TransactionCounts, TransactionInfo};

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use mayfly_base::{Error, ErrorCode, Result, limits};
use mayfly_storage::{SessionKey, Store, TransactionOwner};
use mayfly_work::{OpCtx, current};
use parking_lot::lock_api::ArcMutexGuard;
use parking_lot::{Mutex, RawMutex};

use self::state::{State, Usage};
use self::transactions::Transaction;
use crate::clients::SessionId;

/// The interval at which a command that waits for a session checks whether it must end.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// The largest number of sessions.
const MAX_SESSIONS: usize = 1_000_000;

/// The last use of a session that ended while it was checked out.
const ENDED: i64 = i64::MIN;

/// The logical sessions of all clients, with a limit on their number.
#[derive(Default)]
pub struct Sessions {
    sessions: Mutex<HashMap<SessionId, Session>>,
    /// The open transactions.
    pub transactions: Arc<OpenTransactions>,
}

struct Session {
    last_use_ms: i64,
    /// Only sessions with transaction numbers have one.
    state: Option<Arc<Mutex<State>>>,
}

impl Sessions {
    /// Records the use of a session; creates it if it is missing.
    ///
    /// # Errors
    /// 261 TooManyLogicalSessions.
    pub fn touch(&self, session: SessionId, now_ms: i64) -> Result<()> {
        let mut sessions = self.sessions.lock();
        if let Some(session) = sessions.get_mut(&session) {
            session.last_use_ms = now_ms;
            return Ok(());
        }
        if sessions.len() >= MAX_SESSIONS {
            expire(&mut sessions, now_ms);
        }
        if sessions.len() >= MAX_SESSIONS {
            let text = "cannot add session into the cache: too many logical sessions";
            return Err(Error::new(ErrorCode::TooManyLogicalSessions, text));
        }
        sessions.insert(session, Session { last_use_ms: now_ms, state: None });
        Ok(())
    }

    /// Checks the session out for a write with this transaction number; waits while another command
    /// has it.
    ///
    /// # Errors
    /// 225 TransactionTooOld when a greater number was used, 217 IncompleteTransactionHistory when
    /// the number belongs to a transaction; errors of the store and of the operation's deadline.
    pub fn check_out(
        &self,
        store: &Store,
        op: &OpCtx,
        session: SessionId,
        txn_number: i64,
    ) -> Result<CheckedOut> {
        let (key, mut state) = self.lock(store, op, session)?;
        state.begin_writes(session, txn_number)?;
        Ok(CheckedOut { session: key, txn_number, state })
    }

    /// Checks the session out for a statement of the transaction with this number. With a
    /// `beginning`, it begins the transaction.
    ///
    /// # Errors
    /// 225 TransactionTooOld when a greater number was used, 117 ConflictingOperationInProgress
    /// when a transaction begins with a number that was used, 251 NoSuchTransaction when there is
    /// none to continue; errors of the store and of the operation's deadline.
    pub fn check_out_transaction(
        &self,
        store: &Store,
        op: &OpCtx,
        (session, txn_number): (SessionId, i64),
        beginning: Option<Beginning>,
    ) -> Result<CheckedOut> {
        let (key, mut state) = self.lock(store, op, session)?;
        match beginning {
            None => state.check_going_on(session, txn_number)?,
            Some(_) => state.check_beginning(session, txn_number)?,
        }
        if let Some(beginning) = beginning {
            state.executed.clear();
            state.txn_number = Some(txn_number);
            // Aborts a transaction that is still open.
            state.usage = Usage::Aborted;
            let lsid = beginning.lsid.clone();
            let owner = TransactionOwner { session: key, lsid, txn_number };
            let open = store.begin_transaction(owner)?;
            let shared: Weak<Mutex<State>> = Arc::downgrade(ArcMutexGuard::mutex(&state));
            let names = (session, txn_number);
            let begun = Transaction::begin(&self.transactions, names, shared, op, open, beginning);
            state.usage = Usage::Open(Box::new(begun));
        }
        Ok(CheckedOut { session: key, txn_number, state })
    }

    /// Locks the session's state, waiting for other commands; returns it with the session's key in
    /// the store.
    fn lock(
        &self,
        store: &Store,
        op: &OpCtx,
        session: SessionId,
    ) -> Result<(SessionKey, ArcMutexGuard<RawMutex, State>)> {
        let state = {
            let mut sessions = self.sessions.lock();
            let entry = sessions
                .entry(session)
                .or_insert_with(|| Session { last_use_ms: op.now_ms(), state: None });
            entry.state.get_or_insert_default().clone()
        };
        let mut state = match state.try_lock_arc() {
            Some(guard) => guard,
            None => current::wait(|| {
                loop {
                    match state.try_lock_arc_for(CHECK_INTERVAL) {
                        Some(guard) => return Ok(guard),
                        None => op.check()?,
                    }
                }
            })?,
        };
        let key = state.load(store, session)?;
        Ok((key, state))
    }

    /// Ends a session and aborts its transaction. A session that is checked out is removed after
    /// the command.
    pub fn end(&self, session: SessionId) {
        self.transactions.abort(ErrorCode::Interrupted, |other| other == session);
        let mut sessions = self.sessions.lock();
        if let Some(entry) = sessions.get_mut(&session) {
            match entry.is_in_use() {
                true => entry.last_use_ms = ENDED,
                false => drop(sessions.remove(&session)),
            }
        }
    }

    /// The number of sessions that have not timed out.
    pub fn count(&self, now_ms: i64) -> usize {
        self.list(now_ms).len()
    }

    /// The id and last use of each session.
    pub fn list(&self, now_ms: i64) -> Vec<(SessionId, i64)> {
        let mut sessions = self.sessions.lock();
        expire(&mut sessions, now_ms);
        let there = sessions.iter().map(|(id, session)| (*id, session.last_use_ms));
        there.filter(|(_, last_use_ms)| *last_use_ms != ENDED).collect()
    }
}

impl Session {
    /// Whether a command has the session or waits for it: the state is only cloned under the lock
    /// of all sessions.
    fn is_in_use(&self) -> bool {
        self.state.as_ref().is_some_and(|state| Arc::strong_count(state) > 1)
    }
}

fn expire(sessions: &mut HashMap<SessionId, Session>, now_ms: i64) {
    let oldest = now_ms - i64::from(limits::SESSION_TIMEOUT_MINUTES) * 60_000;
    sessions.retain(|_, session| session.last_use_ms >= oldest || session.is_in_use());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clients::SessionOwner;

    fn session(byte: u8) -> SessionId {
        SessionId { id: [byte; 16], owner: SessionOwner::NONE }
    }

    #[test]
    fn sessions_time_out() {
        let sessions = Sessions::default();
        sessions.touch(session(1), 0).unwrap();
        sessions.touch(session(2), 1_000).unwrap();
        assert_eq!(sessions.count(30 * 60_000), 2);
        assert_eq!(sessions.count(30 * 60_000 + 1), 1);
        sessions.end(session(2));
        assert_eq!(sessions.count(0), 0);
    }

    #[test]
    fn a_session_that_a_command_has_stays_after_its_end() {
        let sessions = Sessions::default();
        let id = session(3);
        sessions.touch(id, 0).unwrap();
        let state =
            sessions.sessions.lock().get_mut(&id).unwrap().state.insert(Arc::default()).clone();
        sessions.end(id);
        assert_eq!(sessions.count(0), 0);
        let kept = sessions.sessions.lock().get(&id).unwrap().state.clone().unwrap();
        assert!(Arc::ptr_eq(&kept, &state));
        drop((kept, state));
        assert_eq!(sessions.count(0), 0);
        assert!(sessions.sessions.lock().is_empty());
    }
}
