//! Search indexes of a secondary: the definitions of the owner, with the state of local files.
//!
//! Each server fills files of its own, so a version is ready on a secondary when its local files
//! are, however far the owner is. A secondary writes nothing about them. The owner drops an old
//! version when its own new one is ready; a secondary keeps an old version that is ready until the
//! new one is ready here, so that searches have an index all the time.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use mayfly_base::Result;
use mayfly_kv::Txn;

use crate::Store;
use crate::catalog::{Collection, Definition, SearchIndex, SearchVersion, stored_search};

impl Store {
    /// Forgets which files of the owner are ready.
    pub(crate) fn begin_local_search(&self) {
        for index in self.search_indexes() {
            index.versions.iter().for_each(|version| version.forget_ready());
        }
    }

    /// Brings the search indexes in memory to those of a snapshot. The caller holds the catalog's
    /// lock.
    ///
    /// # Errors
    /// 301 DataCorruptionDetected, errors of the engine.
    pub(super) fn refresh_search(&self, txn: &dyn Txn) -> Result<()> {
        for (collection, stored) in stored_search(txn, &self.catalog.all())? {
            if stored.is_empty() && !collection.search.are_there() {
                continue;
            }
            let present = collection.search.all();
            let merged: Vec<_> = stored.iter().map(|index| merge(index, &present)).collect();
            let files = |list: &[Arc<SearchIndex>]| -> Vec<u64> {
                list.iter().flat_map(|it| &it.versions).map(|version| version.file).collect()
            };
            // The ids of files are never reused.
            if files(&merged) != files(&present) {
                self.catalog.may_be_log_fed.store(true, Ordering::Release);
                self.install_local(&collection, merged);
            }
        }
        Ok(())
    }

    /// Notes that the local files of a version are ready. Older versions of its index are dropped.
    /// The caller holds the catalog's lock.
    pub(crate) fn note_local_ready(&self, collection: &Collection, version: &SearchVersion) {
        version.mark_ready();
        let newer = |index: &Arc<SearchIndex>| {
            if index.versions.iter().all(|other| other.file != version.file) {
                return index.clone();
            }
            let mut changed = SearchIndex::clone(index);
            changed.versions.retain(|other| other.number >= version.number);
            Arc::new(changed)
        };
        let list = collection.search.all().iter().map(newer).collect();
        self.install_local(collection, list);
    }

    fn install_local(&self, collection: &Collection, list: Vec<Arc<SearchIndex>>) {
        // The follower waits for this change.
        let ns = collection.namespace();
        let _definition = self.definitions.changing(&ns, Definition::Building);
        collection.search.install(list);
    }
}

/// An index of the owner with the local state of its versions, and with the older version that
/// serves searches here.
fn merge(stored: &Arc<SearchIndex>, present: &[Arc<SearchIndex>]) -> Arc<SearchIndex> {
    let mut merged = SearchIndex::clone(stored);
    let before = present.iter().find(|index| index.id == stored.id);
    for version in &mut merged.versions {
        let known = before.and_then(|it| it.versions.iter().find(|it| it.file == version.file));
        match known {
            Some(known) => *version = known.clone(),
            None => version.forget_ready(),
        }
    }
    let is_served = merged.serving().is_some();
    if let Some(serving) = before.and_then(|index| index.serving()).filter(|_| !is_served) {
        merged.versions.insert(0, serving.clone());
    }
    Arc::new(merged)
}
