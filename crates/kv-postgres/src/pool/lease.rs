//! A connection for one transaction.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use mayfly_work::OpCtx;

use super::Pool;
use crate::connection::Connection;

/// Whether a lease waits until fewer operations have one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// It does, unless its operation holds one already, or the thread has no operation.
    Queued,
    /// It does not: the number of such leases has a limit of its own.
    AtOnce,
}

/// A connection for one transaction; returned to the pool when dropped.
pub(crate) struct Lease {
    /// `None` only while it is dropped.
    connection: Option<Box<Connection>>,
    pool: Arc<Pool>,
    is_queued: bool,
    /// The operation that has leased it.
    op: Option<Arc<OpCtx>>,
    /// Whether the session may be in a transaction.
    in_transaction: AtomicBool,
}

impl Lease {
    pub(super) fn new(
        connection: Box<Connection>,
        pool: &Arc<Pool>,
        admission: Admission,
        op: Option<Arc<OpCtx>>,
    ) -> Lease {
        let is_queued = admission == Admission::Queued;
        let in_transaction = AtomicBool::new(false);
        if let Some(op) = &op {
            op.connections.fetch_add(1, Ordering::Relaxed);
        }
        Lease { connection: Some(connection), pool: pool.clone(), is_queued, op, in_transaction }
    }

    pub(crate) fn connection(&self) -> &Connection {
        match &self.connection {
            Some(connection) => connection,
            None => unreachable!("a lease has a connection until it is dropped"),
        }
    }

    /// Notes that a transaction must be rolled back when the lease ends.
    pub(crate) fn begin_transaction(&self) {
        self.in_transaction.store(true, Ordering::Release);
    }

    /// Notes that the transaction has ended.
    pub(crate) fn end_transaction(&self) {
        self.in_transaction.store(false, Ordering::Release);
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let Some(connection) = self.connection.take() else { return };
        if connection.is_usable() && self.in_transaction.load(Ordering::Acquire) {
            connection.send_and_forget("rollback");
        }
        if let Some(op) = &self.op {
            op.connections.fetch_sub(1, Ordering::Relaxed);
        }
        let mut state = self.pool.state.lock();
        state.admitted -= usize::from(self.is_queued);
        if connection.is_usable() && !state.is_closed && state.open <= self.pool.most {
            connection.unshare();
            state.idle.push(*connection);
        } else {
            state.open -= 1;
        }
        drop(state);
        self.pool.freed.notify_one();
    }
}
