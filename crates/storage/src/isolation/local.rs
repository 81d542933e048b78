//! An open transaction's part of the catalog: the collections that it created, which are invisible
//! to others before it commits, and the collections that it has used, whose definitions must stay
//! as they were when it began. It does not use indexes that were published since, because its
//! snapshot does not have their entries.

use std::sync::Arc;

use mayfly_base::{Namespace, Result};

use crate::catalog::{
    Collection, Definitions, Index, OpenTransactionGuard, Reader, VisibleIndexes, changed,
};

/// The catalog of an open transaction.
pub(crate) struct LocalCatalog {
    definitions: Arc<Definitions>,
    /// The edition of the definitions when the transaction began.
    edition: u64,
    /// The collections that the transaction created, in order.
    pub created: Vec<Arc<Collection>>,
    /// Other collections that it has looked up, each once.
    touched: Vec<Arc<Collection>>,
    /// The names that it has looked up.
    names: Vec<Namespace>,
    /// The entry that makes changes of these names wait.
    listed: OpenTransactionGuard,
}

impl LocalCatalog {
    /// The catalog of a transaction that begins now, and takes its snapshot afterwards.
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

    /// Checks that no name that the transaction looked up has changed its meaning.
    ///
    /// # Errors
    /// 246 SnapshotUnavailable.
    pub(crate) fn check(&self) -> Result<()> {
        self.definitions.check_since(self.edition, &self.names, Reader::Transaction)
    }

    /// Checks that the definition of a collection is as it was when the transaction began, or that
    /// the transaction created it. The caller holds the state shared, so the result stays true.
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

    /// The indexes that the transaction reads and writes: those published before it began, and
    /// those of collections that it created.
    pub(crate) fn visible_indexes(&self) -> VisibleIndexes {
        VisibleIndexes::up_to(self.edition)
    }

    /// Whether the transaction reads and writes this index.
    pub(crate) fn sees(&self, index: &Index) -> bool {
        self.visible_indexes().have(index)
    }

    /// The collection of this id, if the transaction has looked it up or created it.
    pub(crate) fn known(&self, id: u64) -> Option<Arc<Collection>> {
        self.created.iter().chain(&self.touched).find(|known| known.id() == id).cloned()
    }

    /// Whether the transaction created this collection.
    pub(crate) fn made(&self, collection: &Collection) -> bool {
        self.created.iter().any(|made| made.id() == collection.id())
    }

    /// The collection of this name in the transaction; `shared` is the one that others see.
    pub(super) fn look_up(
        &mut self,
        ns: &Namespace,
        shared: Option<Arc<Collection>>,
    ) -> Option<Arc<Collection>> {
        if !self.names.contains(ns) {
            self.names.push(ns.clone());
            self.listed.looks_up(ns);
        }
        if let Some(made) = self.created.iter().find(|made| made.namespace() == *ns) {
            return Some(made.clone());
        }
        if let Some(found) = &shared
            && !self.touched.iter().any(|other| other.id() == found.id())
        {
            self.touched.push(found.clone());
        }
        shared
    }
}
