//! What an open transaction of several statements knows of the catalog: the collections that it made itself, which nobody else
//! sees before it commits, and those that it has touched, whose definitions must stay as they were when it began. Indexes that
//! were published since are none for it: its snapshot does not have their entries.
//!
//! It belongs to the thread that runs a statement of the transaction, for as long as it does ([`enter`]).

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use mayfly_base::{Namespace, Result};

use super::definitions::{Reader, changed};
use super::open::Listed;
use super::{Collection, Definitions, Index};

thread_local! {
    /// Asked by every look-up of a name: whether there is anything in the other.
    static IS_ENTERED: Cell<bool> = const { Cell::new(false) };
    static LOCAL: RefCell<Option<LocalCatalog>> = const { RefCell::new(None) };
}

/// A transaction's part of the catalog.
pub(crate) struct LocalCatalog {
    definitions: Arc<Definitions>,
    /// The edition of the definitions when the transaction began.
    edition: u64,
    /// Collections that it made, in order.
    pub created: Vec<Arc<Collection>>,
    /// Those of others that it has looked up, each once.
    touched: Vec<Arc<Collection>>,
    /// The names that it has looked up.
    names: Vec<Namespace>,
    /// The same for changes of definitions that wait.
    listed: Listed,
}

impl LocalCatalog {
    /// Of a transaction that begins now, and takes its snapshot afterwards.
    pub(crate) fn beginning(definitions: &Arc<Definitions>) -> LocalCatalog {
        LocalCatalog {
            edition: definitions.edition(),
            definitions: definitions.clone(),
            created: Vec::new(),
            touched: Vec::new(),
            names: Vec::new(),
            listed: definitions.open.begin(),
        }
    }

    /// No name that the transaction looked up has got another meaning.
    ///
    /// # Errors
    /// 246 SnapshotUnavailable.
    pub(crate) fn check(&self) -> Result<()> {
        self.definitions.check_since(self.edition, &self.names, Reader::Transaction)
    }

    /// A collection is written as it was when the transaction began, or was made by it. To be asked with its state held
    /// shared, which keeps it so.
    ///
    /// # Errors
    /// 246 SnapshotUnavailable.
    pub(crate) fn check_written(&self, collection: &Collection) -> Result<()> {
        let name = collection.namespace();
        let same =
            self.made(collection) || !self.definitions.written_otherwise_since(self.edition, &name);
        if same && !collection.is_dropped() {
            return Ok(());
        }
        Err(changed(&format!(" to collection '{name}'")))
    }

    /// Whether the transaction uses the index and writes its entries: it was published before the transaction began, or belongs to
    /// a collection that the transaction has made.
    pub(crate) fn sees(&self, index: &Index) -> bool {
        index.runtime.visible_since.load(Ordering::Acquire) <= self.edition
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

/// Whether this thread may use the index: outside of transactions always.
#[inline]
pub(super) fn sees(index: &Index) -> bool {
    !is_entered() || with(|local| local.sees(index)).unwrap_or(true)
}

/// Does something with what this thread sees; nothing when that is nothing of its own.
pub(crate) fn with<T>(act: impl FnOnce(&mut LocalCatalog) -> T) -> Option<T> {
    LOCAL.with_borrow_mut(|local| local.as_mut().map(act))
}

/// The collection of this name as the transaction sees it, which is asked for only where there is one.
#[cold]
pub(super) fn look_up(ns: &Namespace, shared: Option<Arc<Collection>>) -> Option<Arc<Collection>> {
    let found = with(|local| {
        if !local.names.contains(ns) {
            local.names.push(ns.clone());
            local.listed.looks_up(ns);
        }
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
