//! Brings the definitions in memory to those of a snapshot.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_kv::{Keyspace, Txn};
use mayfly_value::RawDoc;

use crate::Store;
use crate::catalog::{
    ChangedState, Collection, CollectionState, Definition, Loaded, encode_collection, rows,
};
use crate::policy::watch::Mark;
use crate::record::error::from_kv;
use crate::record::layout::catalog_key;

/// How long a change of a collection's state waits for readers.
const LONGEST_WAIT: Duration = Duration::from_secs(2);

impl Store {
    /// Brings the definitions in memory to those of this snapshot. Collections and indexes that did
    /// not change stay the same objects.
    ///
    /// # Errors
    /// 301 DataCorruptionDetected, 262 ExceededTimeLimit while other operations hold a definition,
    /// errors of the engine and of the operation's deadline.
    pub(super) fn refresh(&self, txn: &dyn Txn) -> Result<()> {
        let _changing = self.catalog.lock()?;
        let stored = rows(txn, b'c')?;
        let present: HashMap<u64, Arc<Collection>> =
            self.catalog.all().values().map(|it| (it.id(), it.clone())).collect();
        let ids: HashSet<u64> = stored.iter().map(|(id, _)| *id).collect();
        for (_, gone) in present.iter().filter(|(id, _)| !ids.contains(id)) {
            self.forget_collection(gone)?;
        }
        for (id, bytes) in &stored {
            let loaded = Loaded::parse(*id, bytes)?;
            match present.get(id) {
                Some(collection) => self.refresh_collection(collection, &loaded)?,
                None => self.add_collection(&loaded)?,
            }
        }
        self.refresh_search(txn)?;
        self.catalog.load_attributes(txn)?;
        let mut cut = 0;
        txn.get(Keyspace::Catalog, catalog_key::OPLOG_CUT, &mut |value| {
            cut = value.try_into().map_or(0, u64::from_be_bytes);
        })
        .map_err(from_kv)?;
        self.oplog.set_cut(cut);
        let mut mark = None;
        txn.get(Keyspace::Catalog, catalog_key::SUSPENDED, &mut |value| {
            mark = RawDoc::new(value).and_then(Mark::from_document);
        })
        .map_err(from_kv)?;
        self.watch.follow(mark);
        Ok(())
    }

    fn forget_collection(&self, collection: &Collection) -> Result<()> {
        let ns = collection.namespace();
        let state = changed_soon(collection)?;
        let _definition = self.definitions.changing(&ns, Definition::Changed);
        collection.mark_dropped(&state);
        self.catalog.publish(|map| {
            // Another collection may have got the name.
            if map.get(&ns).is_some_and(|it| it.id() == collection.id()) {
                map.remove(&ns);
            }
        });
        Ok(())
    }

    fn add_collection(&self, loaded: &Loaded<'_>) -> Result<()> {
        let collection = Arc::new(loaded.collection(&*self.filters, &self.catalog.settings)?);
        let ns = collection.namespace();
        let _definition = self.definitions.changing(&ns, Definition::Created);
        self.catalog.publish(|map| {
            map.insert(ns.clone(), collection);
        });
        Ok(())
    }

    fn refresh_collection(&self, collection: &Arc<Collection>, loaded: &Loaded<'_>) -> Result<()> {
        let before = collection.namespace();
        let ns = loaded.namespace()?;
        {
            let state = collection.read_state()?;
            let same = encode_collection(&before, &collection.uuid(), &state);
            if same.as_bytes() == loaded.bytes() {
                return Ok(());
            }
        }
        let mut state = changed_soon(collection)?;
        let old: HashMap<u64, _> =
            state.maintained().map(|index| (index.id(), index.clone())).collect();
        let changed: CollectionState = loaded.state(&*self.filters, &old)?;
        let kept: HashSet<u64> = changed.maintained().map(|index| index.id()).collect();
        let _definition = self.definitions.changing(&before, Definition::Changed);
        let _renamed = (ns != before).then(|| self.definitions.changing(&ns, Definition::Renamed));
        for (_, index) in old.iter().filter(|(id, _)| !kept.contains(id)) {
            index.runtime.dropped.store(true, Ordering::Release);
        }
        collection.install(&mut state, changed);
        if ns != before {
            collection.set_namespace(ns.clone(), &state);
            self.catalog.publish(|map| {
                if map.get(&before).is_some_and(|it| it.id() == collection.id()) {
                    map.remove(&before);
                }
                map.insert(ns.clone(), collection.clone());
            });
        }
        Ok(())
    }
}

/// Locks the state exclusively. Readers hold it for moments only, except for `validate`, which may
/// need a snapshot meanwhile: then its snapshot fails instead of waiting for itself.
fn changed_soon(collection: &Collection) -> Result<ChangedState<'_>> {
    let take = || {
        let busy = || {
            let text = "the definitions of a collection are in use";
            Error::new(ErrorCode::ExceededTimeLimit, text)
        };
        collection.state.try_write_for(LONGEST_WAIT).ok_or_else(busy)
    };
    collection.change_state_by(take)
}
