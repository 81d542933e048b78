//! Logical sessions: which are there, when each was last used, and what its last transaction number stands for: writes that
//! may be sent again, or one transaction of several statements. They time out after half an hour.
//!
//! A command with a transaction number checks its session out: nobody else runs under the session meanwhile, so that
//! a write that is sent again finds the first attempt over, whatever became of it. A session that is ended or times out while a
//! command has it stays until the command is over: a second one must not begin a session of its own beside it.

mod checked_out;
mod cursors;
mod state;
mod statements;
mod transactions;

pub use checked_out::CheckedOut;
pub use cursors::{CursorOwner, Cursors, IdleTime};
pub use transactions::{Beginning, OpenTransactions, ShownTransaction, TransactionCounts};

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

/// How often one who waits for a session looks whether it may go on waiting.
const LOOK: Duration = Duration::from_millis(100);

/// Most sessions remembered at once.
const MAX_SESSIONS: usize = 1_000_000;

/// The last use of a session that was ended while a command had it.
const ENDED: i64 = i64::MIN;

/// All sessions.
#[derive(Default)]
pub struct Sessions {
    sessions: Mutex<HashMap<SessionId, Session>>,
    /// Their open transactions.
    pub transactions: Arc<OpenTransactions>,
}

struct Session {
    last_use_ms: i64,
    /// Only of sessions with transaction numbers.
    state: Option<Arc<Mutex<State>>>,
}

impl Sessions {
    /// The session is used now; it begins when it was not there.
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

    /// Takes the session for a write with this transaction number; waits while another command has it.
    ///
    /// # Errors
    /// 225 TransactionTooOld when a greater number was used, 217 IncompleteTransactionHistory when the number is that of a
    /// transaction; those of the store and of the operation's deadline.
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

    /// Takes the session for a statement of the transaction with this number, which begins with it when there is a beginning.
    ///
    /// # Errors
    /// 225 TransactionTooOld when a greater number was used, 117 ConflictingOperationInProgress when one begins whose number was
    /// used, 251 NoSuchTransaction when there is none to go on with; those of the store and of the operation's deadline.
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
            // What was open goes now.
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

    /// The session's state and what the store keeps it under, for who may have to wait for another command under it.
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
                    match state.try_lock_arc_for(LOOK) {
                        Some(guard) => return Ok(guard),
                        None => op.check()?,
                    }
                }
            })?,
        };
        let key = state.load(store, session)?;
        Ok((key, state))
    }

    /// The session is over, and with it its transaction. When a command has it, it goes after the command.
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

    /// How many there are, those that timed out left aside.
    pub fn count(&self, now_ms: i64) -> usize {
        self.list(now_ms).len()
    }

    /// Id and last use of each.
    pub fn list(&self, now_ms: i64) -> Vec<(SessionId, i64)> {
        let mut sessions = self.sessions.lock();
        expire(&mut sessions, now_ms);
        let there = sessions.iter().map(|(id, session)| (*id, session.last_use_ms));
        there.filter(|(_, last_use_ms)| *last_use_ms != ENDED).collect()
    }
}

impl Session {
    /// Whether a command has it, or waits for it: nobody else clones its state but under the sessions' lock.
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
        SessionId { id: [byte; 16], owner: SessionOwner::NOBODY }
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
