//! The session of PostgreSQL in which a transaction reads.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::time::Instant;

use mayfly_kv::{Expected, Keyspace, KvError, KvResult};
use tokio_postgres::Row;

use crate::commit::CommitLease;
use crate::connection::Params;
use crate::cursor::column;
use crate::engine::Store;
use crate::failure::Failure;
use crate::held::{HeldSession, MAX_AGE};
use crate::opening::{Opening, Waits};
use crate::pool::{Admission, Lease};
use crate::sql::Sql;

const BEGIN: &str = "begin isolation level repeatable read";
const BEGIN_TO_READ: &str = "begin isolation level repeatable read read only";

/// What the first statement of a transaction has before it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Begins {
    /// BEGIN.
    Transaction,
    /// Nothing: the statement is executed outside of a transaction.
    Nothing,
}

/// The value of a key on which a transaction depends.
struct Condition {
    keyspace: Keyspace,
    key: Vec<u8>,
    value: Vec<u8>,
}

impl Condition {
    /// Whether this row with the value of the key, if there is one, is the expected one.
    fn holds(&self, found: &[Row]) -> Result<bool, Failure> {
        let value =
            found.first().map(|row| column(row, 0)).transpose().map_err(Failure::Refused)?;
        Ok(value == Some(&self.value))
    }
}

/// How often the first statement of a transaction is sent again because its connection was dead.
pub(crate) const MAX_TRIES: usize = 3;

/// The session of a transaction.
pub(crate) struct TxnSession {
    pub(crate) store: Arc<Store>,
    kind: SessionKind,
    begun: Instant,
}

enum SessionKind {
    /// Of a transaction that may write, or that depends on a condition.
    Own(OwnSession),
    /// Of a read-only transaction.
    Reader(RefCell<ReaderSession>),
    /// That of a held snapshot.
    Held(Arc<HeldSession>),
}

/// A session whose BEGIN is sent with the first read.
struct OwnSession {
    /// From the first read on.
    lease: RefCell<Option<Lease>>,
    /// Whether BEGIN was sent: reads of locked keys come before it ([`TxnSession::query_locked`]).
    has_begun: Cell<bool>,
    admission: Admission,
    /// Only for a transaction that does not write. It is looked at with the first read.
    condition: Option<Condition>,
}

/// The session of a read-only transaction.
struct ReaderSession {
    lease: Lease,
    /// Until the first read.
    opening: Option<Opening>,
}

impl TxnSession {
    fn new(store: Arc<Store>, kind: SessionKind) -> TxnSession {
        TxnSession { store, kind, begun: Instant::now() }
    }

    /// Of a read-only transaction, whose BEGIN was sent on this lease; it was also answered, if
    /// there is no `opening`.
    pub(crate) fn reader(store: Arc<Store>, lease: Lease, opening: Option<Opening>) -> TxnSession {
        let session = ReaderSession { lease, opening };
        TxnSession::new(store, SessionKind::Reader(RefCell::new(session)))
    }

    /// Of a transaction that may write.
    pub(crate) fn writer(store: Arc<Store>, admission: Admission) -> TxnSession {
        TxnSession::own(store, admission, None)
    }

    /// Of a read-only transaction, whose first read fails if a key has another value.
    pub(crate) fn reader_if(store: Arc<Store>, expected: &Expected<'_>) -> TxnSession {
        let (key, value) = (expected.key.to_vec(), expected.value.to_vec());
        let condition = Condition { keyspace: expected.keyspace, key, value };
        TxnSession::own(store, Admission::Queued, Some(condition))
    }

    fn own(store: Arc<Store>, admission: Admission, condition: Option<Condition>) -> TxnSession {
        let (lease, has_begun) = (RefCell::default(), Cell::default());
        let own = OwnSession { lease, has_begun, admission, condition };
        TxnSession::new(store, SessionKind::Own(own))
    }

    /// Of a read-only transaction over a held snapshot.
    pub(crate) fn over(store: Arc<Store>, session: Arc<HeldSession>) -> TxnSession {
        TxnSession::new(store, SessionKind::Held(session))
    }

    /// Executes a statement that reads in the transaction; the first one also begins it.
    pub(crate) fn query(&self, sql: Sql, params: Params<'_>) -> KvResult<Vec<Row>> {
        let deadline = self.store.deadline();
        self.check_age()?;
        match &self.kind {
            SessionKind::Held(session) => {
                let lease = session.lease()?;
                lease.connection().query(sql, params, deadline).map_err(Failure::into_kv)
            }
            SessionKind::Reader(session) => {
                self.query_reader(&mut session.borrow_mut(), sql, params)
            }
            SessionKind::Own(own) => {
                if own.has_begun.get()
                    && let Some(lease) = &*own.lease.borrow()
                {
                    return lease
                        .connection()
                        .query(sql, params, deadline)
                        .map_err(Failure::into_kv);
                }
                self.query_first((own, Begins::Transaction), sql, params)
            }
        }
    }

    /// Fails for a transaction that is older than a snapshot may become.
    pub(crate) fn check_age(&self) -> KvResult<()> {
        if self.begun.elapsed() > MAX_AGE { Err(KvError::TooOld) } else { Ok(()) }
    }

    /// Executes a statement that reads keys that this transaction has locked, or locks next. As
    /// long as it has read no other keys, this is a statement outside of a transaction, which saves
    /// the messages that begin and end one. It sees the newest state: no other transaction can
    /// change these keys, so that a snapshot that is taken later shows the same values.
    ///
    /// A transaction that stays open for its client takes its snapshot at the first read, whatever
    /// it is: it also shows which keys are absent.
    pub(crate) fn query_locked(&self, sql: Sql, params: Params<'_>) -> KvResult<Vec<Row>> {
        match &self.kind {
            SessionKind::Own(own) if !own.has_begun.get() && own.admission == Admission::Queued => {
                self.check_age()?;
                self.query_first((own, Begins::Nothing), sql, params)
            }
            _ => self.query(sql, params),
        }
    }

    /// Nothing depends on the session yet, so another connection is used when the first one turns
    /// out to be dead.
    fn query_first(
        &self,
        (own, begins): (&OwnSession, Begins),
        sql: Sql,
        params: Params<'_>,
    ) -> KvResult<Vec<Row>> {
        let (deadline, mut tries) = (self.store.deadline(), 0);
        loop {
            tries += 1;
            let lease = match own.lease.take() {
                Some(lease) => lease,
                None => self.store.pool.lease(own.admission, deadline)?,
            };
            let connection = lease.connection();
            let result = match begins {
                Begins::Nothing => connection.query(sql, params, deadline),
                Begins::Transaction => {
                    lease.begin_transaction();
                    match &own.condition {
                        None => connection
                            .query_first(BEGIN, [(sql, params)], deadline)
                            .map(|[rows]| rows),
                        Some(condition) => {
                            let first: Params<'_> = &[&condition.key];
                            let queries = [(Sql::Get(condition.keyspace), first), (sql, params)];
                            connection.query_first(BEGIN_TO_READ, queries, deadline).and_then(
                                |[found, rows]| match condition.holds(&found)? {
                                    true => Ok(rows),
                                    false => Err(Failure::Refused(KvError::Changed)),
                                },
                            )
                        }
                    }
                }
            };
            match result {
                Ok(rows) => {
                    own.has_begun.set(begins == Begins::Transaction);
                    own.lease.replace(Some(lease));
                    return Ok(rows);
                }
                Err(Failure::Lost(_)) if tries < MAX_TRIES => {
                    lease.connection().abandon();
                    self.store.pool.drop_idle();
                }
                Err(failure) => return Err(failure.into_kv()),
            }
        }
    }

    /// The first read follows BEGIN at once. If the connection turns out to be dead, the
    /// transaction begins again, unless there were commits meanwhile.
    fn query_reader(
        &self,
        session: &mut ReaderSession,
        sql: Sql,
        params: Params<'_>,
    ) -> KvResult<Vec<Row>> {
        let (store, deadline, mut tries) = (&self.store, self.store.deadline(), 0);
        loop {
            tries += 1;
            let result = session.lease.connection().query(sql, params, deadline);
            let Some(opening) = &session.opening else { return result.map_err(Failure::into_kv) };
            match opening.wait(deadline) {
                Ok(()) => {
                    session.opening = None;
                    return result.map_err(Failure::into_kv);
                }
                Err(Failure::Lost(_)) if tries < MAX_TRIES && opening.may_repeat() => {
                    let commits = opening.commits();
                    session.lease.connection().abandon();
                    store.pool.drop_idle();
                    session.lease = store.pool.lease(Admission::Queued, deadline)?;
                    session.opening =
                        Some(store.openings.begin(&session.lease, Waits::Commits, Some(commits)));
                }
                Err(failure) => return Err(failure.into_kv()),
            }
        }
    }

    /// The connection for the commit: that of the reads, if there were some.
    pub(crate) fn commit_lease(&mut self) -> KvResult<CommitLease> {
        let (has_read, has_begun) = match &mut self.kind {
            SessionKind::Own(own) => (own.lease.take(), own.has_begun.get()),
            SessionKind::Held(_) | SessionKind::Reader(_) => (None, false),
        };
        match has_read {
            Some(lease) if has_begun => Ok(CommitLease::InTransaction(lease)),
            Some(lease) => Ok(CommitLease::Free(lease)),
            None => {
                let lease = self.store.pool.lease(Admission::Queued, self.store.deadline())?;
                Ok(CommitLease::Free(lease))
            }
        }
    }
}
