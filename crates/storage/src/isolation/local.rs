//! What an open transaction of several statements knows of the catalog: the collections that it made itself, which nobody else
//! sees before it commits, and those that it has touched, whose definitions must stay as they were when it began. Indexes that
//! were published since are none for it: its snapshot does not have their entries.

use std::sync::Arc;

use mayfly_base::{Namespace, Result};

use crate::catalog::{Collection, Definitions, Index, Listed, Reader, VisibleIndexes, changed};

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

    /// The indexes that the transaction uses and writes entries of: those that were published before it began, or belong to a
    /// collection that it has made.
    pub(crate) fn visible_indexes(&self) -> VisibleIndexes {
        VisibleIndexes::up_to(self.edition)
    }

    /// Whether the index is one of them.
    pub(crate) fn sees(&self, index: &Index) -> bool {
        self.visible_indexes().have(index)
    }

    /// The collection of this id, if the transaction has looked it up or made it.
    pub(crate) fn known(&self, id: u64) -> Option<Arc<Collection>> {
        self.created.iter().chain(&self.touched).find(|known| known.id() == id).cloned()
    }

    /// Whether the transaction made this collection.
    pub(crate) fn made(&self, collection: &Collection) -> bool {
        self.created.iter().any(|made| made.id() == collection.id())
    }

    /// The collection of this name as the transaction sees it. `shared` is the one that others see.
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
