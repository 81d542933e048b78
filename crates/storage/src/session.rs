//! What a command works with: the store, its operation, and what it sees of the store. It is one value, which is handed down to
//! everything that reads and writes for the command.

use std::sync::Arc;

use mayfly_base::{Namespace, Result};
use mayfly_work::OpCtx;

use crate::catalog::Collection;
use crate::isolation::ReadView;
use crate::read::Snapshot;
use crate::store::Store;
use crate::write::WriteUnit;

/// A command over a store. It is not a client's logical session: that has many commands.
#[derive(Clone, Copy)]
pub struct StoreSession<'s> {
    /// The store.
    pub store: &'s Store,
    /// The operation: deadline, kill flag, counters.
    pub op: &'s Arc<OpCtx>,
    /// What it sees of the store, and what its writes go into.
    pub view: &'s ReadView,
}

impl<'s> StoreSession<'s> {
    /// An operation over a store with this view.
    pub fn new(store: &'s Store, op: &'s Arc<OpCtx>, view: &'s ReadView) -> StoreSession<'s> {
        StoreSession { store, op, view }
    }

    /// As [`Core::snapshot`](crate::Core::snapshot).
    ///
    /// # Errors
    /// Those of the engine.
    pub fn snapshot(&self) -> Result<Snapshot> {
        self.store.snapshot(self.view)
    }

    /// The collection of this name.
    pub fn collection(&self, ns: &Namespace) -> Option<Arc<Collection>> {
        self.store.collection(self.view, ns)
    }

    /// As [`Writer::write`](crate::Writer::write).
    ///
    /// # Errors
    /// As there.
    pub fn write<T>(
        &self,
        collection: &Collection,
        body: impl FnMut(&mut WriteUnit<'_>) -> Result<T>,
    ) -> Result<T> {
        self.store.write(self.op, self.view, collection, body)
    }

    /// Whether it is a statement of an open transaction.
    pub fn in_transaction(&self) -> bool {
        self.view.in_transaction()
    }
}
