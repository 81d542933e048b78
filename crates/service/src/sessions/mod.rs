//! Logical sessions: which are there, when each was last used, and what its last transaction number stands for: writes that
//! may be sent again, or one transaction of several statements. They time out after half an hour.
//!
//! A command with a transaction number checks its session out: nobody else runs under the session meanwhile, so that
//! a write that is sent again finds the first attempt over, whatever became of it. A session that is ended or times out while a
//! command has it stays until the command is over: a second one must not begin a session of its own beside it.

mod cursors;
mod transactions;

pub use cursors::{CursorOwner, Cursors};
pub use transactions::{Beginning, OpenTransactions, ShownTransaction, TransactionCounts};

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use mayfly_base::{Clock, Error, ErrorCode, Result, limits};
use mayfly_storage::{
    COMMIT_STATEMENT, Executed, OpenTransaction, ReadView, SessionKey, Statement, Store,
    TransactionOwner,
};
use mayfly_value::DocBuf;
use mayfly_work::{OpCtx, current};
use parking_lot::lock_api::ArcMutexGuard;
use parking_lot::{Mutex, RawMutex};

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

/// What a session's latest transaction number stands for.
#[derive(Default)]
pub(crate) struct State {
    /// What the store keeps it under; nothing until the store was asked what was executed before this process began.
    key: Option<SessionKey>,
    txn_number: Option<i64>,
    usage: Usage,
    executed: Statements,
}

/// What a transaction number is used for.
#[derive(Default)]
enum Usage {
    /// Writes that may be sent again.
    #[default]
    Writes,
    /// A transaction that is open.
    Open(Box<Transaction>),
    /// One that was committed.
    Committed,
    /// One that was aborted.
    Aborted,
}

/// Executed statements by the first id that each record stands for.
#[derive(Default)]
struct Statements {
    records: BTreeMap<i32, Executed>,
    /// Bytes of the records' results.
    bytes: usize,
}

/// Most bytes of results that a session remembers: of one statement that shows its document, and of many others. Whatever is asked
/// beyond it is asked of the store again.
const MOST_REMEMBERED: usize = 1 << 20;
/// Most bytes of results that all sessions remember.
const ALL_REMEMBERED: usize = 64 << 20;

/// Bytes of results that all sessions remember.
static REMEMBERED: AtomicUsize = AtomicUsize::new(0);

/// A session that is checked out for one command.
pub struct CheckedOut {
    session: SessionKey,
    txn_number: i64,
    state: ArcMutexGuard<RawMutex, State>,
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
        state.check_transaction(session, txn_number, beginning.is_some())?;
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

impl State {
    /// Asks the store what was executed, when memory may not know it all. Gives the session's key.
    fn load(&mut self, store: &Store, session: SessionId) -> Result<SessionKey> {
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

    fn begin_writes(&mut self, session: SessionId, txn_number: i64) -> Result<()> {
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

    /// Whether a transaction of this number can begin, or go on.
    fn check_transaction(&self, session: SessionId, number: i64, begins: bool) -> Result<()> {
        if let Some(latest) = self.txn_number.filter(|latest| number < *latest) {
            return Err(Error::new(
                ErrorCode::TransactionTooOld,
                format!(
                    "Cannot start transaction with {{ txnNumber: {number} }} on session {session} because a newer {} with \
                     txnNumberAndRetryCounter {{ txnNumber: {latest}, txnRetryCounter: 0 }} has already started on this \
                     session.",
                    self.usage.shown()
                ),
            ));
        }
        let is_latest = self.txn_number == Some(number);
        if begins {
            return match is_latest {
                false => Ok(()),
                true => Err(Error::new(
                    ErrorCode::ConflictingOperationInProgress,
                    "Only servers in a sharded cluster can start a new transaction at the active transaction number",
                )),
            };
        }
        match is_latest && !matches!(self.usage, Usage::Writes) {
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

    /// The open transaction with this number between two statements.
    pub(crate) fn transaction(&self, number: i64) -> Option<&Transaction> {
        match &self.usage {
            Usage::Open(open) if open.number() == number && !open.is_taken() => Some(open),
            _ => None,
        }
    }

    /// Undoes the transaction with this number if it is open.
    pub(crate) fn abort(&mut self, number: i64) {
        if matches!(&self.usage, Usage::Open(open) if open.number() == number) {
            self.usage = Usage::Aborted;
        }
    }
}

impl Usage {
    fn shown(&self) -> &'static str {
        match self {
            Usage::Writes => "retryable write",
            Usage::Open(_) | Usage::Committed | Usage::Aborted => "transaction",
        }
    }
}

impl Statements {
    fn add(&mut self, executed: Executed) {
        let bytes = executed.result.as_bytes().len();
        self.bytes += bytes;
        REMEMBERED.fetch_add(bytes, Ordering::Relaxed);
        self.records.insert(executed.id, executed);
    }

    fn clear(&mut self) {
        self.records = BTreeMap::new();
        REMEMBERED.fetch_sub(std::mem::take(&mut self.bytes), Ordering::Relaxed);
    }

    fn is_too_much(&self) -> bool {
        self.bytes > MOST_REMEMBERED
            || self.bytes > 0 && REMEMBERED.load(Ordering::Relaxed) > ALL_REMEMBERED
    }

    fn of(&self, id: i32) -> Option<&Executed> {
        let (_, before) = self.records.range(..=id).next_back()?;
        (i64::from(id) < i64::from(before.id) + i64::from(before.count)).then_some(before)
    }
}

impl Drop for Statements {
    fn drop(&mut self) {
        self.clear();
    }
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
    fn later_numbers_void_earlier_ones() {
        let mut writes = State { key: Some([0; 16]), ..State::default() };
        let session = session(0xAB);
        writes.begin_writes(session, 3).unwrap();
        writes.executed.add(Executed { id: 0, count: 2, result: DocBuf::empty() });
        writes.begin_writes(session, 3).unwrap();
        assert_eq!(writes.executed.records.len(), 1);
        let error = writes.begin_writes(session, 2).unwrap_err();
        assert_eq!(error.code(), ErrorCode::TransactionTooOld);
        assert!(error.message().contains("abababab-abab-abab-abab-abababababab"));
        writes.begin_writes(session, 4).unwrap();
        assert!(writes.executed.records.is_empty());
    }

    #[test]
    fn statements_are_found_by_any_id_that_a_record_stands_for() {
        let mut executed = Statements::default();
        for (id, count) in [(7, 2), (0, 3), (i32::MAX, 2)] {
            executed.add(Executed { id, count, result: DocBuf::empty() });
        }
        let found = |id| executed.of(id).map(|found| found.id);
        assert_eq!(
            [0, 2, 3, 7, 8, 9, i32::MAX].map(found),
            [Some(0), Some(0), None, Some(7), Some(7), None, Some(i32::MAX)]
        );
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
