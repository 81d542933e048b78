//! What an open transaction of several statements knows of the catalog: the collections that it made itself, which nobody else
//! sees before it commits, and those that it has touched, whose definitions must stay as they were when it began.
//!
//! It belongs to the thread that runs a statement of the transaction, for as long as it does ([`enter`]).

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use mayfly_base::{Error, ErrorCode, Namespace, Result};

use super::Collection;

thread_local! {
    /// Asked by every look-up of a name: whether there is anything in the other.
    static IS_ENTERED: Cell<bool> = const { Cell::new(false) };
    static LOCAL: RefCell<Option<LocalCatalog>> = const { RefCell::new(None) };
}

/// A transaction's part of the catalog.
pub(crate) struct LocalCatalog {
    /// How often definitions had changed when the transaction began.
    definitions: u64,
    /// Collections that it made, in order.
    pub created: Vec<Arc<Collection>>,
    /// Those of others that it has looked up, each once.
    touched: Vec<Arc<Collection>>,
}

impl LocalCatalog {
    /// Of a transaction that begins when definitions have changed so often.
    pub(crate) fn beginning(definitions: u64) -> LocalCatalog {
        LocalCatalog { definitions, created: Vec::new(), touched: Vec::new() }
    }

    /// Nothing changed of what the transaction touched.
    ///
    /// # Errors
    /// 246 SnapshotUnavailable.
    pub(crate) fn check(&self) -> Result<()> {
        self.touched.iter().try_for_each(|collection| self.check_collection(collection))
    }

    /// The same for one collection; whoever holds its state shared keeps it so.
    ///
    /// # Errors
    /// 246 SnapshotUnavailable.
    pub(crate) fn check_collection(&self, collection: &Collection) -> Result<()> {
        // A change marks the collection under the exclusive lock: one that is seen in part is waited for.
        drop(collection.state.read_recursive());
        match collection.changed_at() > self.definitions {
            false => Ok(()),
            true => Err(Error::new(
                ErrorCode::SnapshotUnavailable,
                format!(
                    "Unable to read from a snapshot due to pending collection catalog changes to collection '{}'; \
                     please retry the operation.",
                    collection.namespace()
                ),
            )),
        }
    }

    /// The collection of this id, if the transaction has looked it up or made it.
    pub(crate) fn known(&self, id: u64) -> Option<Arc<Collection>> {
        self.created.iter().chain(&self.touched).find(|known| known.id() == id).cloned()
    }

    /// Whether the transaction made this collection.
    pub(crate) fn made(&self, collection: &Collection) -> bool {
        self.created.iter().any(|made| made.id() == collection.id())
    }
}

/// From here on this thread sees it.
pub(crate) fn enter(local: LocalCatalog) {
    LOCAL.set(Some(local));
    IS_ENTERED.set(true);
}

/// Ends what [`enter`] began.
pub(crate) fn leave() -> Option<LocalCatalog> {
    IS_ENTERED.set(false);
    LOCAL.take()
}

/// Whether this thread runs a statement of a transaction.
#[inline]
pub(crate) fn is_entered() -> bool {
    IS_ENTERED.get()
}

/// Does something with what this thread sees; nothing when that is nothing of its own.
pub(crate) fn with<T>(act: impl FnOnce(&mut LocalCatalog) -> T) -> Option<T> {
    LOCAL.with_borrow_mut(|local| local.as_mut().map(act))
}

/// The collection of this name as the transaction sees it, which is asked for only where there is one.
#[cold]
pub(super) fn look_up(ns: &Namespace, shared: Option<Arc<Collection>>) -> Option<Arc<Collection>> {
    let found = with(|local| {
        if let Some(made) = local.created.iter().find(|made| made.namespace() == *ns) {
            return Some(made.clone());
        }
        if let Some(found) = &shared
            && !local.touched.iter().any(|other| other.id() == found.id())
        {
            local.touched.push(found.clone());
        }
        None
    });
    found.flatten().or(shared)
}
