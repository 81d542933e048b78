//! Rebuilds the indexes of a collection, for `reIndex`.
//!
//! 1. An index with the same definition is built for each, under a new id, while readers use the
//!    old one, which writers maintain.
//! 2. One catalog change replaces the old indexes by the new ones.
//!
//! After a crash in between the old ones remain: interrupted builds are discarded. The index on
//! `_id` is not rebuilt: it is the order of the records, or is always written with them.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use mayfly_base::Result;
use mayfly_value::DocBuf;
use mayfly_work::OpCtx;

use super::build::IfDropped;
use super::indexes::{mark_ready, mark_unready, show_since};
use super::{put_collection, put_dropped};
use crate::Store;
use crate::catalog::{Collection, CollectionState, Definition, Index};
use crate::oplog::OplogBatch;
use crate::write::DefinitionChange;

/// Indexes that others replace.
pub(crate) struct Replaced<'f> {
    /// The state afterwards.
    pub(crate) changed: CollectionState,
    /// The new indexes.
    pub(crate) fresh: &'f [Arc<Index>],
    /// The indexes that disappear.
    pub(crate) gone: Vec<Arc<Index>>,
    /// What this means for open transactions and reads of snapshots.
    pub(crate) definition: Definition,
}

impl Store {
    /// Rebuilds all indexes; returns their number, including `_id_`.
    ///
    /// # Errors
    /// 11000 when a unique index finds duplicates, errors of the engine and of the operation's
    /// deadline; the old indexes remain.
    pub fn rebuild_indexes(&self, op: &OpCtx, collection: &Collection) -> Result<i32> {
        let old = {
            let _changing = self.lock_catalog_sparing(&[collection.namespace()])?;
            collection.indexes().into_iter().filter(|index| index.is_ready()).collect::<Vec<_>>()
        };
        if !old.is_empty() {
            let specs = old.iter().map(|index| index.spec.clone()).collect();
            let fresh = {
                let _changing = self.catalog.lock()?;
                self.register_building(collection, specs)?
            };
            self.build_and(op, collection, &fresh, IfDropped::GoesOn, |state| {
                self.put_in_place(collection, &old, &fresh, state)
            })?;
            let ns = collection.namespace();
            for index in &fresh {
                let spec = index.spec.document();
                self.report_definition(&DefinitionChange::Rebuilt { ns: &ns, spec });
            }
        }
        Ok(collection.indexes().len() as i32 + 1)
    }

    /// Replaces indexes by the built ones. If an old index was dropped or changed meanwhile, its
    /// new one is dropped. The caller holds the catalog's lock.
    fn put_in_place(
        &self,
        collection: &Collection,
        old: &[Arc<Index>],
        fresh: &[Arc<Index>],
        state: &mut CollectionState,
    ) -> Result<()> {
        let mut changed = state.clone();
        let mut gone = Vec::new();
        for (old, fresh) in old.iter().zip(fresh) {
            let place = |id: u64| state.indexes.iter().position(|index| index.id == id);
            match (place(old.id), place(fresh.id)) {
                (Some(at), Some(_)) => {
                    // Its options may have changed meanwhile.
                    let now = &state.indexes[at];
                    changed.indexes[at] = Arc::new(Index {
                        id: fresh.id,
                        spec: now.spec.clone(),
                        filter: now.filter.clone(),
                        runtime: fresh.runtime.clone(),
                    });
                    gone.push(now.clone());
                }
                (None, Some(_)) => gone.push(fresh.clone()),
                (_, None) => {}
            }
        }
        // Removes the entries that the new indexes had while they were being built.
        let mut seen = std::collections::HashSet::new();
        changed.indexes.retain(|index| {
            !gone.iter().any(|other| other.id == index.id) && seen.insert(index.id)
        });
        let definition = Definition::Changed;
        self.publish_replaced(
            collection,
            state,
            Replaced { changed, fresh, gone, definition },
            |_, _| {},
        )
    }

    /// Replaces indexes in one catalog change, to which `log` may add an entry; it gets the catalog
    /// document of the collection. The caller holds the catalog's lock.
    pub(crate) fn publish_replaced(
        &self,
        collection: &Collection,
        state: &mut CollectionState,
        Replaced { changed, fresh, gone, definition }: Replaced<'_>,
        log: impl Fn(&mut OplogBatch, DocBuf),
    ) -> Result<()> {
        let ns = collection.namespace();
        let definition = self.definitions.changing(&ns, definition);
        mark_ready(fresh);
        let result = self.change_begun(|txn, oplog| {
            let definition = put_collection(txn, collection, &ns, &changed)?;
            log(oplog, definition);
            gone.iter().try_for_each(|index| put_dropped(txn, index.id))
        });
        result.inspect_err(|_| mark_unready(fresh))?;
        collection.install(state, changed);
        show_since(fresh, definition.end());
        // Set before any writer skips the index's keys: a reader whose later check finds no mark
        // has read all of them.
        for index in &gone {
            index.runtime.dropped.store(true, Ordering::Release);
        }
        self.leave_to_sweeper(gone.iter().map(|index| index.id));
        Ok(())
    }
}
