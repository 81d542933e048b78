//! Snapshots that are held for several readers: a read-only transaction that stays open.
//!
//! Its readers share one connection, on which their statements are pipelined. An open transaction
//! keeps the server from removing old versions, and it takes a connection. Therefore the number of
//! held snapshots and their age are bounded: when there are too many, the oldest one ends, and its
//! readers fail with [`KvError::TooOld`]. The snapshot of an export has no such bounds.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use mayfly_kv::{HeldSnapshot, KvError, KvResult, Txn};
use parking_lot::Mutex;

use crate::engine::Store;
use crate::pool::Lease;
use crate::session::TxnSession;
use crate::txn::PostgresTxn;

/// The longest life of a transaction.
pub(crate) const MAX_AGE: Duration = Duration::from_secs(600);
/// The longest life of a held snapshot.
const MAX_HELD: Duration = Duration::from_secs(60);

/// The open transaction of a held snapshot.
pub(crate) struct HeldSession {
    /// `None` once the snapshot was ended.
    lease: Mutex<Option<Arc<Lease>>>,
    /// When it ends at the latest; `None` for the snapshot of an export.
    until: Option<Instant>,
}

impl HeldSession {
    /// The snapshot of an open transaction.
    fn new(lease: Lease, until: Option<Instant>) -> Arc<HeldSession> {
        lease.connection().share();
        Arc::new(HeldSession { lease: Mutex::new(Some(Arc::new(lease))), until })
    }

    /// The snapshot of an open transaction, for an export.
    pub(crate) fn for_export(lease: Lease) -> Arc<HeldSession> {
        HeldSession::new(lease, None)
    }

    /// The connection with the snapshot, for one statement.
    pub(crate) fn lease(&self) -> KvResult<Arc<Lease>> {
        self.end_if_old();
        self.lease.lock().clone().ok_or(KvError::TooOld)
    }

    fn end_if_old(&self) {
        if self.until.is_some_and(|until| Instant::now() > until) {
            self.end();
        }
    }

    fn end(&self) {
        *self.lease.lock() = None;
    }

    fn is_open(&self) -> bool {
        self.lease.lock().is_some()
    }
}

/// The snapshots that are held.
#[derive(Default)]
pub(crate) struct HeldSessions(Mutex<VecDeque<Weak<HeldSession>>>);

impl HeldSessions {
    /// Ends the snapshots that are too old, and the oldest others until there is room for one more.
    pub(crate) fn make_room(&self, most: usize) {
        let mut sessions = self.0.lock();
        let is_open = |session: &Weak<HeldSession>| {
            session.upgrade().is_some_and(|session| {
                session.end_if_old();
                session.is_open()
            })
        };
        sessions.retain(is_open);
        while sessions.len() >= most {
            if let Some(oldest) = sessions.pop_front().and_then(|oldest| oldest.upgrade()) {
                oldest.end();
            }
        }
    }

    /// Adds the snapshot of an open transaction.
    pub(crate) fn add(&self, lease: Lease) -> Arc<HeldSession> {
        let session = HeldSession::new(lease, Some(Instant::now() + MAX_HELD));
        self.0.lock().push_back(Arc::downgrade(&session));
        session
    }
}

/// A held snapshot, as its callers see it.
pub(crate) struct PostgresHeld {
    pub(crate) store: Arc<Store>,
    pub(crate) session: Arc<HeldSession>,
}

impl HeldSnapshot for PostgresHeld {
    fn begin(&self) -> KvResult<Box<dyn Txn>> {
        self.session.lease()?;
        let session = TxnSession::over(self.store.clone(), self.session.clone());
        Ok(Box::new(PostgresTxn::new(session, None)))
    }
}
