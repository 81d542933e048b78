//! Builds indexes over existing documents while writers continue.
//!
//! 1. The indexes are registered as not ready. From then on write units note what they change
//!    (`index::building`), and only the build writes entries of these indexes.
//! 2. All records are walked once, in order, and the keys of all indexes are generated and sorted
//!    (`walk`).
//! 3. The sorted entries of each index are loaded in bulk into the byte store
//!    ([`Engine::begin_ingest`](mayfly_kv::Engine)); a small number of entries goes through
//!    transactions (`load`).
//! 4. The build catches up with the notes in rounds: it takes the notes with the collection's state
//!    held exclusively for a moment, so that their changes are committed, and then applies them
//!    (`catch_up`). If writers are faster, they are made to wait a little for each note; after
//!    twenty rounds they wait for the end of the build.
//! 5. The last notes are applied with the state held exclusively, and under the same lock the
//!    indexes become ready in one catalog change.
//!
//! Entries are written with the state held, after a check that the index still exists. The range of
//! an index that is dropped meanwhile is left to the sweeper, and no entry is written into it
//! afterwards.
//!
//! Two documents with the same key of a unique index end the build if both have it when the
//! conflict is found. If one of them is due and hidden, it is removed. If one has changed
//! meanwhile, there is a note of it, and the other one is noted again.
//!
//! Log-fed indexes are filled first, without notes ([`crate::feed`]). They become ready with the
//! others, and follow the log from then on.
//!
//! A build that was interrupted by a crash is discarded when the store opens again: its client got
//! no reply.

mod catch_up;
mod load;
mod log_fed;
pub(super) use log_fed::is_internal;
#[cfg(test)]
mod tests;
mod walk;

use crate::isolation::ReadView;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use mayfly_base::{ClientData, Error, ErrorCode, Result};
use mayfly_kv::{Txn, TxnOptions};
use mayfly_work::op::OpProgress;
use mayfly_work::{OpCtx, memory};

use crate::Store;
use crate::catalog::{Collection, CollectionState, Index};
use crate::index::building::{BuildNotes, Building};
use crate::index::keygen::KeySet;
use crate::index::sorter::Scratch;
use crate::record::RecordKey;
use crate::record::error::from_kv;
use crate::record::layout::catalog_key;
use crate::shared::{back_off, set_bits};
use crate::write::{DefinitionChange, covered_keys, duplicate_key, most_tries};

/// The largest amount of memory for notes.
const NOTES_BYTES: usize = 16 << 20;

/// The effect on a build when one of its indexes is dropped meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IfDropped {
    /// The build ends with an error.
    Ends,
    /// The build continues with the other indexes.
    GoesOn,
}

/// Whether other threads may write to the collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Writers {
    Run,
    /// The collection's state is held exclusively.
    Wait,
}

/// A key of a unique index that two documents seem to have.
struct Dispute {
    number: usize,
    values: Vec<u8>,
    record_key: RecordKey,
    owner: RecordKey,
}

/// The build of one or several indexes.
pub(super) struct Build<'s> {
    store: &'s Store,
    op: &'s OpCtx,
    collection: &'s Collection,
    indexes: &'s [Arc<Index>],
    notes: Arc<BuildNotes>,
    /// For each index, the mask of the paths on which arrays were met.
    multikey: Vec<u32>,
    if_dropped: IfDropped,
    /// The number of notes in the last round.
    last_round: u64,
    rounds: u32,
    /// How long writers wait for each note, in nanoseconds.
    delay_nanos: u64,
}

impl Store {
    pub(crate) fn build_indexes(
        &self,
        op: &OpCtx,
        collection: &Collection,
        building: &[Arc<Index>],
    ) -> Result<()> {
        let publish = |state: &mut CollectionState| self.publish_built(collection, state, building);
        self.build_and(op, collection, building, IfDropped::Ends, publish)
    }

    /// Builds registered indexes and publishes them; drops them if that fails. `publish` is called
    /// once, with the catalog's lock and the collection's state held.
    pub(super) fn build_and(
        &self,
        op: &OpCtx,
        collection: &Collection,
        building: &[Arc<Index>],
        if_dropped: IfDropped,
        publish: impl FnOnce(&mut CollectionState) -> Result<()>,
    ) -> Result<()> {
        // The sorters have their own limit, at which they spill to files.
        memory::allow(self.index_build_bytes());
        let (fed, written): (Vec<_>, Vec<_>) =
            building.iter().cloned().partition(|index| index.spec.is_log_fed());
        let filled = match fed.is_empty() {
            true => Ok(()),
            false => self.fill_while(op, collection, &fed, if_dropped),
        };
        let result = filled.and_then(|()| match written.is_empty() {
            true => self.finish_log_fed(collection, &fed, if_dropped, publish),
            false => {
                let mut build = Build::new(self, op, collection, &written, if_dropped)?;
                build.fill()?;
                build.finish(publish)
            }
        });
        op.update_info(|info| info.progress = None);
        if let Err(error) = result {
            let ns = collection.namespace();
            for index in building {
                index.runtime.abandoned.store(true, Ordering::Release);
                let spec = index.spec.document();
                self.report_definition(&DefinitionChange::BuildAbandoned { ns: &ns, spec });
            }
            if let Err(why) = self.abandon_building(collection, building) {
                // For example on a full disk. The sweeper and the next build of the index retry it.
                let why = ClientData(why);
                tracing::warn!(%why, "the indexes of a failed build cannot be dropped yet; the sweeper will retry");
            }
            return Err(error);
        }
        Ok(())
    }

    /// Makes writers leave the entries of these indexes to their build. Must be called before the
    /// indexes are visible.
    pub(super) fn leave_to_build(&self, indexes: &[Arc<Index>]) {
        let engine = self.engine.clone();
        let scratch: Arc<Scratch> = Arc::new(move |bytes| engine.scratch(bytes).map_err(from_kv));
        let budget = NOTES_BYTES.min(self.index_build_bytes());
        let notes = Arc::new(BuildNotes::new(budget, scratch));
        // Writers do not touch the entries of a log-fed index.
        let written = indexes.iter().filter(|index| !index.spec.is_log_fed());
        for (number, index) in (0..).zip(written) {
            let building = Building { notes: notes.clone(), number };
            assert!(index.runtime.building.set(building).is_ok(), "an index is built once");
        }
    }

    fn index_build_bytes(&self) -> usize {
        usize::try_from(self.index_build_bytes.load(Ordering::Relaxed)).unwrap_or(0)
    }

    /// Drops indexes whose build failed and that could not be dropped then.
    pub(crate) fn forget_abandoned_builds(&self, collection: &Collection) -> Result<()> {
        let is_abandoned = |index: &Arc<Index>| index.runtime.abandoned.load(Ordering::Acquire);
        let left: Vec<_> = collection.indexes().into_iter().filter(is_abandoned).collect();
        match left.is_empty() {
            true => Ok(()),
            false => self.abandon_building(collection, &left),
        }
    }

    /// Drops indexes that were being built when the server stopped.
    pub(crate) fn forget_unfinished_builds(&self) -> Result<()> {
        for collection in self.collections(None) {
            let unfinished: Vec<_> =
                collection.indexes().into_iter().filter(|index| !index.is_ready()).collect();
            for index in &unfinished {
                tracing::warn!(
                    namespace = %collection.namespace(),
                    index = index.spec.name(),
                    "an index build was interrupted when the server stopped; create the index again"
                );
            }
            if !unfinished.is_empty() {
                self.abandon_building(&collection, &unfinished)?;
            }
        }
        Ok(())
    }
}

impl<'s> Build<'s> {
    fn new(
        store: &'s Store,
        op: &'s OpCtx,
        collection: &'s Collection,
        indexes: &'s [Arc<Index>],
        if_dropped: IfDropped,
    ) -> Result<Build<'s>> {
        let building = indexes.first().and_then(|index| index.runtime.building.get());
        let notes = building.map(|building| building.notes.clone());
        let notes = notes.ok_or_else(|| Error::internal("a build without notes"))?;
        let multikey = vec![0; indexes.len()];
        let (last_round, rounds, delay_nanos) = (u64::MAX, 0, 0);
        Ok(Build {
            store,
            op,
            collection,
            indexes,
            notes,
            multikey,
            if_dropped,
            last_round,
            rounds,
            delay_nanos,
        })
    }

    /// Steps 2 and 3.
    fn fill(&mut self) -> Result<()> {
        let sorters = self.walk()?;
        for (number, sorter) in sorters.into_iter().enumerate() {
            self.load(number, sorter)?;
        }
        Ok(())
    }

    /// Steps 4 and 5.
    fn finish(&mut self, publish: impl FnOnce(&mut CollectionState) -> Result<()>) -> Result<()> {
        loop {
            self.catch_up()?;
            let (store, collection) = (self.store, self.collection);
            self.step("last");
            let disputes = {
                let _changing = store.catalog.lock()?;
                let mut state = collection.change_state()?;
                self.check()?;
                let Some(disputes) = self.catch_up_alone()? else { continue };
                if disputes.is_empty() {
                    self.store_multikey()?;
                    return publish(&mut state);
                }
                disputes
            };
            self.settle(&disputes)?;
        }
    }

    /// Checks that the build should continue. With the collection's state held the result stays
    /// valid.
    fn check(&self) -> Result<()> {
        self.op.check()?;
        self.store.check_open()?;
        match self.if_dropped {
            IfDropped::Ends => check_not_dropped(self.collection, self.indexes)?,
            IfDropped::GoesOn => self.collection.check_alive()?,
        }
        self.notes.check()
    }

    /// Calls the hook of a test.
    fn step(&self, _step: &'static str) {
        #[cfg(test)]
        {
            let act = self.store.between_steps.lock().take();
            if let Some(mut act) = act
                && !act(self.store, _step)
            {
                *self.store.between_steps.lock() = Some(act);
            }
        }
    }

    fn show_progress(&self, message: &'static str, done: u64, total: u64) {
        self.op.update_info(|info| info.progress = Some(OpProgress { message, done, total }));
    }

    /// Runs an engine transaction until it is committed.
    fn transact<T>(
        &self,
        writers: Writers,
        mut body: impl FnMut(&mut dyn Txn) -> Result<T>,
    ) -> Result<T> {
        let mut tries = 0;
        loop {
            let attempt = {
                let _state = match writers {
                    Writers::Run => Some(self.collection.read_state()?),
                    Writers::Wait => None,
                };
                self.check()?;
                self.try_transact(&mut body)
            };
            match attempt {
                Err(error) if tries < most_tries(&error) => {
                    tries += 1;
                    back_off(tries);
                }
                other => return other,
            }
        }
    }

    fn try_transact<T>(&self, body: &mut impl FnMut(&mut dyn Txn) -> Result<T>) -> Result<T> {
        let mut txn = self.store.engine().begin(TxnOptions::default()).map_err(from_kv)?;
        let result = body(&mut *txn)?;
        txn.commit().map_err(from_kv)?;
        self.store.note_commit();
        Ok(result)
    }

    /// Resolves disputed keys. Afterwards one document of each dispute is noted again.
    ///
    /// # Errors
    /// 11000 when both documents have the key.
    fn settle(&self, disputes: &[Dispute]) -> Result<()> {
        disputes.iter().try_for_each(|dispute| self.settle_one(dispute))
    }

    fn settle_one(&self, dispute: &Dispute) -> Result<()> {
        self.check()?;
        let index = &self.indexes[dispute.number];
        let mut refusal = None;
        let mut have = 0;
        let snapshot = self.store.latest()?;
        for record_key in [&dispute.owner, &dispute.record_key] {
            snapshot.stored_record(self.collection, record_key, &mut |record| {
                let mut keys = KeySet::default();
                covered_keys(index, record, &mut keys)?;
                have += usize::from(keys.iter().any(|(values, _)| values == dispute.values));
                let ns = self.collection.namespace();
                refusal = Some(duplicate_key(ns.as_str(), index, record.document));
                Ok(())
            })?;
        }
        drop(snapshot);
        let mut goes = have < 2;
        for record_key in [&dispute.record_key, &dispute.owner] {
            goes = goes
                || self.store.write(self.op, &ReadView::now(), self.collection, |unit| {
                    unit.expire_hidden(record_key)
                })?;
        }
        match refusal {
            Some(refusal) if !goes => Err(refusal),
            _ => {
                if let Some(building) = index.building() {
                    building.touched(&dispute.record_key).make();
                }
                Ok(())
            }
        }
    }

    /// Marks the indexes that met arrays as multikey, for readers and in the catalog.
    fn store_multikey(&self) -> Result<()> {
        for (index, mask) in self.indexes.iter().zip(&self.multikey) {
            if *mask == 0 || index.is_dropped() {
                continue;
            }
            let (runtime, mut all) = (&index.runtime, *mask);
            runtime.multikey.fetch_or(all, Ordering::AcqRel);
            self.transact(Writers::Wait, |txn| {
                all = set_bits(txn, &catalog_key::multikey(index.id), *mask).map_err(from_kv)?;
                Ok(())
            })?;
            runtime.multikey.fetch_or(all, Ordering::AcqRel);
            runtime.multikey_stored.fetch_or(all, Ordering::AcqRel);
        }
        Ok(())
    }
}

fn aborted(what: &str) -> Error {
    Error::new(ErrorCode::IndexBuildAborted, format!("Index build aborted: {what}"))
}

/// Checks that neither the collection nor one of the indexes was dropped.
///
/// # Errors
/// 276 IndexBuildAborted.
fn check_not_dropped(collection: &Collection, indexes: &[Arc<Index>]) -> Result<()> {
    if collection.is_dropped() {
        return Err(aborted("its collection was dropped"));
    }
    match indexes.iter().find(|index| index.is_dropped()) {
        Some(index) => Err(aborted(&format!("index '{}' was dropped", index.spec.name()))),
        None => Ok(()),
    }
}
