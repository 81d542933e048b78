//! The context of a command in storage: the store, its operation, and its view. It is one value,
//! which is passed to everything that reads and writes for the command.

use std::sync::Arc;

use mayfly_base::{Namespace, Result};
use mayfly_work::OpCtx;

use crate::catalog::Collection;
use crate::isolation::ReadView;
use crate::read::Snapshot;
use crate::store::Store;
use crate::write::WriteUnit;

/// A command over a store. This is not a client's logical session, which has many commands.
#[derive(Clone, Copy)]
pub struct StoreSession<'s> {
    /// The store that the command works on.
    pub store: &'s Store,
    /// The operation: deadline, kill flag, counters.
    pub op: &'s Arc<OpCtx>,
    /// The view of its reads and writes.
    pub view: &'s ReadView,
}

impl<'s> StoreSession<'s> {
    /// A session of an operation over a store with this view.
    pub fn new(store: &'s Store, op: &'s Arc<OpCtx>, view: &'s ReadView) -> StoreSession<'s> {
        StoreSession { store, op, view }
    }

    /// A snapshot; see [`Core::snapshot`](crate::Core::snapshot).
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn snapshot(&self) -> Result<Snapshot> {
        self.store.snapshot(self.view)
    }

    /// A snapshot whose first read may fail, upon which the caller begins again; see
    /// [`Core::snapshot_again`](crate::Core::snapshot_again).
    ///
    /// # Errors
    /// 175 QueryPlanKilled as the first read; errors of the engine.
    pub fn snapshot_again(&self) -> Result<Snapshot> {
        self.store.snapshot_again(self.view)
    }

    /// The collection of this name in the view.
    pub fn collection(&self, ns: &Namespace) -> Option<Arc<Collection>> {
        self.store.collection(self.view, ns)
    }

    /// Runs a write unit; see [`Writer::write`](crate::Writer::write).
    ///
    /// # Errors
    /// As [`Writer::write`](crate::Writer::write).
    pub fn write<T>(
        &self,
        collection: &Collection,
        body: impl FnMut(&mut WriteUnit<'_>) -> Result<T>,
    ) -> Result<T> {
        self.store.write(self.op, self.view, collection, body)
    }

    /// Whether this is a statement of an open transaction.
    pub fn in_transaction(&self) -> bool {
        self.view.in_transaction()
    }
}
