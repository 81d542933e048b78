//! Logical sessions: which are there, when each was last used, and what its last transaction number has executed.
//! They time out after half an hour.
//!
//! A command with a transaction number checks its session out: nobody else runs under the session meanwhile, so that
//! a write that is sent again finds the first attempt over, whatever became of it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use mayfly_base::{Error, ErrorCode, OpCtx, Result, limits};
use mayfly_storage::{Executed, Statement, Store};
use mayfly_value::DocBuf;
use parking_lot::lock_api::ArcMutexGuard;
use parking_lot::{Mutex, RawMutex};

/// How often one who waits for a session looks whether it may go on waiting.
const LOOK: Duration = Duration::from_millis(10);

/// The UUID of a logical session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SessionId(pub [u8; 16]);

/// All sessions.
#[derive(Default)]
pub struct Sessions {
    sessions: Mutex<HashMap<SessionId, Session>>,
}

struct Session {
    last_use_ms: i64,
    /// Only of sessions that write with transaction numbers.
    writes: Option<Arc<Mutex<Writes>>>,
}

/// What a session has executed under its latest transaction number.
#[derive(Default)]
struct Writes {
    /// The store was asked what was executed before this process began.
    loaded: bool,
    txn_number: Option<i64>,
    executed: Vec<Executed>,
}

/// A session that is checked out for one command.
pub struct CheckedOut {
    session: SessionId,
    txn_number: i64,
    writes: ArcMutexGuard<RawMutex, Writes>,
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
        if sessions.len() >= limits::MAX_LOGICAL_SESSIONS {
            expire(&mut sessions, now_ms);
        }
        if sessions.len() >= limits::MAX_LOGICAL_SESSIONS {
            let text = "cannot add session into the cache: too many logical sessions";
            return Err(Error::new(ErrorCode::TooManyLogicalSessions, text));
        }
        sessions.insert(session, Session { last_use_ms: now_ms, writes: None });
        Ok(())
    }

    /// Takes the session for a command with this transaction number; waits while another command has it.
    ///
    /// # Errors
    /// 225 TransactionTooOld when a greater number was used; those of the store and of the operation's deadline.
    pub fn check_out(
        &self,
        store: &Store,
        op: &OpCtx,
        session: SessionId,
        txn_number: i64,
    ) -> Result<CheckedOut> {
        let writes = {
            let mut sessions = self.sessions.lock();
            let entry = sessions
                .entry(session)
                .or_insert_with(|| Session { last_use_ms: op.now_ms(), writes: None });
            entry.writes.get_or_insert_default().clone()
        };
        let mut writes = loop {
            match writes.try_lock_arc_for(LOOK) {
                Some(guard) => break guard,
                None => op.check()?,
            }
        };
        writes.load(store, session)?;
        writes.begin(session, txn_number)?;
        Ok(CheckedOut { session, txn_number, writes })
    }

    /// The session is over.
    pub fn end(&self, session: SessionId) {
        self.sessions.lock().remove(&session);
    }

    /// How many there are, those that timed out left aside.
    pub fn count(&self, now_ms: i64) -> usize {
        let mut sessions = self.sessions.lock();
        expire(&mut sessions, now_ms);
        sessions.len()
    }

    /// Id and last use of each.
    pub fn list(&self, now_ms: i64) -> Vec<(SessionId, i64)> {
        let mut sessions = self.sessions.lock();
        expire(&mut sessions, now_ms);
        sessions.iter().map(|(id, session)| (*id, session.last_use_ms)).collect()
    }
}

impl Writes {
    fn load(&mut self, store: &Store, session: SessionId) -> Result<()> {
        if !self.loaded {
            if let Some((txn_number, executed)) = store.executed_statements(&session.0)? {
                self.txn_number = Some(txn_number);
                self.executed = executed;
            }
            self.loaded = true;
        }
        Ok(())
    }

    fn begin(&mut self, session: SessionId, txn_number: i64) -> Result<()> {
        match self.txn_number {
            Some(latest) if txn_number < latest => Err(Error::new(
                ErrorCode::TransactionTooOld,
                format!(
                    "Retryable write with txnNumber {txn_number} is prohibited on session {session} because a \
                     newer retryable write with txnNumber {latest} has already started on this session."
                ),
            )),
            Some(latest) if txn_number == latest => Ok(()),
            _ => {
                self.txn_number = Some(txn_number);
                self.executed.clear();
                Ok(())
            }
        }
    }
}

impl CheckedOut {
    /// The name under which a statement is recorded.
    pub fn statement(&self, id: i32) -> Statement {
        Statement { session: self.session.0, txn_number: self.txn_number, id }
    }

    /// What the statement was answered when it was executed, if it was.
    pub fn executed(&self, id: i32) -> Option<&DocBuf> {
        let covers = |e: &&Executed| (e.id..e.id.saturating_add(e.count)).contains(&id);
        self.writes.executed.iter().find(covers).map(|executed| &executed.result)
    }

    /// To be called after the commit that recorded the statements.
    pub fn note(&mut self, executed: Executed) {
        self.writes.executed.push(executed);
    }
}

impl std::fmt::Display for SessionId {
    /// As the reference shows it: the UUID.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (at, byte) in self.0.iter().enumerate() {
            let dash = if matches!(at, 4 | 6 | 8 | 10) { "-" } else { "" };
            write!(f, "{dash}{byte:02x}")?;
        }
        Ok(())
    }
}

fn expire(sessions: &mut HashMap<SessionId, Session>, now_ms: i64) {
    let oldest = now_ms - i64::from(limits::SESSION_TIMEOUT_MINUTES) * 60_000;
    sessions.retain(|_, session| session.last_use_ms >= oldest);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_time_out() {
        let sessions = Sessions::default();
        sessions.touch(SessionId([1; 16]), 0).unwrap();
        sessions.touch(SessionId([2; 16]), 1_000).unwrap();
        assert_eq!(sessions.count(30 * 60_000), 2);
        assert_eq!(sessions.count(30 * 60_000 + 1), 1);
        sessions.end(SessionId([2; 16]));
        assert_eq!(sessions.count(0), 0);
    }

    #[test]
    fn later_numbers_void_earlier_ones() {
        let mut writes = Writes { loaded: true, ..Writes::default() };
        let session = SessionId([0xAB; 16]);
        writes.begin(session, 3).unwrap();
        writes.executed.push(Executed { id: 0, count: 2, result: DocBuf::empty() });
        writes.begin(session, 3).unwrap();
        assert_eq!(writes.executed.len(), 1);
        let error = writes.begin(session, 2).unwrap_err();
        assert_eq!(error.code(), ErrorCode::TransactionTooOld);
        assert!(error.message().contains("abababab-abab-abab-abab-abababababab"));
        writes.begin(session, 4).unwrap();
        assert!(writes.executed.is_empty());
    }
}
