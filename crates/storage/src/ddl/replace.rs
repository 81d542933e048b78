//! Replaces a collection by a new one, for `$out` and `convertToCapped`.
//!
//! 1. [`Store::begin_replacement`] creates a collection with a temporary name and, for `$out`, with
//!    the present options and indexes of the target.
//! 2. The caller fills it. Its policies are not active yet: none of its documents expires, is
//!    hidden or is archived.
//! 3. [`Store::finish_replacement`] renames it to the target's name in one catalog change, and
//!    drops the target. If the target's options or indexes have changed since step 1, the
//!    replacement fails and the target remains.
//!
//! A crash before step 3 leaves the target unchanged. The next start drops the temporary
//! collection.

use crate::isolation::ReadView;
use std::sync::Arc;

use mayfly_base::{Error, ErrorCode, Namespace, Result};
use mayfly_buckets::TimeSeries;
use mayfly_value::DocBuf;
use mayfly_value::bson::oid::ObjectId;
use mayfly_value::shell::Shell;
use mayfly_work::current;
use mayfly_work::current::Current;

use super::rename::TEMP;
use super::{Logging, NewCollection};
use crate::Store;
use crate::catalog::{Collection, CollectionState, Index};
use crate::catalog::{OF_AGGREGATION, is_temporary};
use crate::index::spec::IndexSpec;
use crate::record::new_uuid;

/// A new temporary name with this prefix.
pub(super) fn temporary_name(db: &str, front: &str, now_ms: i64) -> Result<Namespace> {
    let id = ObjectId::from_bytes(mayfly_value::new_object_id(now_ms));
    Namespace::new(db, &format!("{front}{}", id.to_hex()))
}

/// Refuses to replace a collection whose indexes are being built, because the build would fail.
///
/// # Errors
/// 12587 BackgroundOperationInProgressForNamespace.
pub(super) fn check_no_build(collection: &Collection, indexes: &[Arc<Index>]) -> Result<()> {
    if indexes.iter().all(|index| index.is_ready()) {
        return Ok(());
    }
    let text = format!(
        "cannot perform operation: an index build is currently running for collection with UUID: {}",
        collection.shown_uuid()
    );
    Err(Error::new(ErrorCode::BackgroundOperationInProgressForNamespace, text))
}

/// A collection that will replace another one when it is complete.
pub struct Replacement {
    collection: Arc<Collection>,
    becomes: Namespace,
    /// The state of the other collection at the start; `None` if there was none.
    found: Option<TargetState>,
}

/// The definitions that must not change while a replacement is filled.
struct TargetState {
    options: DocBuf,
    /// Definitions of indexes in the order of their names.
    indexes: Vec<DocBuf>,
}

impl TargetState {
    fn of(state: &CollectionState) -> TargetState {
        let mut indexes: Vec<_> = state.indexes.iter().collect();
        indexes.sort_by(|a, b| a.spec.name().cmp(b.spec.name()));
        let indexes = indexes.into_iter().map(|index| index.spec.document().to_owned()).collect();
        TargetState { options: state.options.clone(), indexes }
    }
}

impl Collection {
    /// Whether it still has its temporary name: a client may drop or rename any collection.
    fn is_in_preparation(&self) -> bool {
        self.is_temporary() && !self.is_dropped()
    }
}

impl Replacement {
    /// The collection to be filled.
    pub fn collection(&self) -> &Arc<Collection> {
        &self.collection
    }

    /// Checks that the target's definitions have not changed.
    ///
    /// # Errors
    /// 125 CommandFailed when they have.
    fn check_target(&self, now: Option<&CollectionState>) -> Result<()> {
        let changed = |what: String| Err(Error::new(ErrorCode::CommandFailed, what));
        let target = &self.becomes;
        let now = now.map(TargetState::of);
        let options =
            |of: &Option<TargetState>| of.as_ref().map_or(DocBuf::empty(), |it| it.options.clone());
        let (before, after) = (options(&self.found), options(&now));
        if before != after {
            return changed(format!(
                "collection options of target collection {target} changed during processing. Original options: {}, new \
                 options: {}",
                Shell(before.as_doc()),
                Shell(after.as_doc())
            ));
        }
        // The index on `_id` also differs if the target was created or dropped.
        let indexes = |of: &Option<TargetState>| of.as_ref().map(|it| it.indexes.clone());
        if indexes(&self.found) != indexes(&now) {
            return changed(format!(
                "indexes of target collection {target} changed during processing."
            ));
        }
        Ok(())
    }
}

impl Store {
    /// Creates the collection that will replace `existing` under the name `becomes`, with its
    /// options and indexes, or with `options` if there is none. If `becomes` is the name of a time
    /// series' buckets, it is a collection of buckets.
    ///
    /// # Errors
    /// 26 NamespaceNotFound when the existing one was dropped meanwhile, errors of the engine.
    pub fn begin_replacement(
        &self,
        becomes: &Namespace,
        existing: Option<&Collection>,
        options: DocBuf,
    ) -> Result<Replacement> {
        let _changing = self.catalog.lock()?;
        let mut name = temporary_name(becomes.db(), OF_AGGREGATION, self.clock.now_ms())?;
        if TimeSeries::name_of(becomes).is_some() {
            name = TimeSeries::buckets_of(&name).unwrap_or(name);
        }
        let Some(existing) = existing else {
            let collection = self.create_locked(&ReadView::now(), &name, options, new_uuid())?;
            return Ok(Replacement { collection, becomes: becomes.clone(), found: None });
        };
        let (found, indexes): (TargetState, Vec<IndexSpec>) = {
            let state = existing.read_state()?;
            let indexes = state.indexes.iter().map(|index| index.spec.clone());
            (TargetState::of(&state), indexes.collect())
        };
        if existing.is_dropped() {
            let text = format!("collection {becomes} was dropped");
            return Err(Error::new(ErrorCode::NamespaceNotFound, text));
        }
        let definition =
            NewCollection { ns: &name, options: found.options.clone(), uuid: new_uuid() };
        let collection =
            self.create_with_indexes(&ReadView::now(), definition, [&[], &indexes], Logging::On)?;
        Ok(Replacement { collection, becomes: becomes.clone(), found: Some(found) })
    }

    /// Renames a replacement to its target's name, and drops the target.
    ///
    /// # Errors
    /// 125 CommandFailed when the target has changed meanwhile, 12587 while one of its indexes is
    /// being built, 48 NamespaceExists when a view or, for buckets, another collection has got the
    /// name, 26 NamespaceNotFound when the replacement was dropped or renamed; errors of the
    /// engine.
    pub fn finish_replacement(&self, replacement: &Replacement) -> Result<()> {
        let Replacement { collection, becomes, .. } = replacement;
        let _changing = self.lock_catalog_sparing(std::slice::from_ref(becomes))?;
        let state = collection.change_state()?;
        if !collection.is_in_preparation() {
            let text = format!("the collection that was to replace {becomes} is gone");
            return Err(Error::new(ErrorCode::NamespaceNotFound, text));
        }
        let target = self.catalog.get(becomes);
        let target_state = target.as_ref().map(|target| target.change_state()).transpose()?;
        let target = target.as_deref().zip(target_state.as_deref());
        self.check_name_free(becomes, target.is_some())?;
        replacement.check_target(target.map(|(_, state)| state))?;
        if let Some((target, state)) = target {
            check_no_build(target, &state.indexes)?;
        }
        if let Some((target, _)) = target {
            self.inherit_search(target, collection)?;
        }
        self.give_name(collection, &state, becomes, target)?;
        let now = self.clock.monotonic_micros();
        state.policies().iter().for_each(|policy| policy.runtime.begin_ramp(now));
        Ok(())
    }

    /// Drops a replacement that will not be finished.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn abandon_replacement(&self, replacement: &Replacement) -> Result<()> {
        // Runs outside the operation, so that it is done also when the operation must end.
        let _outside = current::enter(Current::default());
        let _changing = self.catalog.lock()?;
        match replacement.collection.is_in_preparation() {
            true => self.drop_locked(&replacement.collection),
            false => Ok(()),
        }
    }

    /// Checks that a name is free.
    ///
    /// # Errors
    /// 48 NamespaceExists when a view has this name, or when a collection has the name of the time
    /// series with these buckets.
    fn check_name_free(&self, ns: &Namespace, is_collection: bool) -> Result<()> {
        let measurements = match TimeSeries::name_of(ns) {
            Some(name) => Some(Namespace::new(ns.db(), name)?),
            None => None,
        };
        if let Some(taken) = measurements.as_ref().filter(|ns| self.catalog.get(ns).is_some()) {
            let text = format!("collection {taken} was created during $out");
            return Err(Error::new(ErrorCode::NamespaceExists, text));
        }
        let shown = measurements.as_ref().unwrap_or(ns);
        if !is_collection && self.view(&ReadView::now(), shown)?.is_some() {
            let text = format!("a view already exists with that name: {shown}");
            return Err(Error::new(ErrorCode::NamespaceExists, text));
        }
        Ok(())
    }

    /// Drops the temporary collections that remained when the server stopped: those of unfinished
    /// commands, and those that clients created as such.
    pub(crate) fn drop_temporary(&self) -> Result<()> {
        for collection in self.collections(None) {
            let ns = collection.namespace();
            let is_marked = collection.options().as_doc().get(TEMP).is_some();
            if is_marked || is_temporary(&ns) {
                tracing::info!(namespace = %ns, "dropped a temporary collection of a command that had not ended when the server stopped");
                self.drop_collection(&ns)?;
            }
        }
        Ok(())
    }
}
