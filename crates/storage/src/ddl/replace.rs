//! Replacing a collection by one that is filled beside it, for `$out` and `convertToCapped`.
//!
//! 1. [`Store::begin_replacement`] creates a collection with a temporary name and, for `$out`, with the options and indexes that
//!    the target has at that moment.
//! 2. The caller fills it. Its policies do not run yet: no document of it expires, is hidden or is archived.
//! 3. [`Store::finish_replacement`] gives it the target's name in one catalog change, and drops the target. A target whose options
//!    or indexes have changed since step 1 stays, and the replacement fails.
//!
//! A crash before step 3 leaves the target as it was. The next start drops the temporary collection.

use crate::isolation::ReadView;
use std::sync::Arc;

use mayfly_base::{Error, ErrorCode, Namespace, Result};
use mayfly_buckets::TimeSeries;
use mayfly_value::DocBuf;
use mayfly_value::bson::oid::ObjectId;
use mayfly_value::shell::Shell;
use mayfly_work::current;
use mayfly_work::current::Current;

use super::{Logging, NewCollection};
use crate::Store;
use crate::catalog::{Collection, CollectionState, Index};
use crate::catalog::{OF_AGGREGATION, is_temporary};
use crate::index::spec::IndexSpec;
use crate::record::new_uuid;

/// A new name for one.
pub(super) fn temporary_name(db: &str, front: &str, now_ms: i64) -> Result<Namespace> {
    let id = ObjectId::from_bytes(mayfly_value::new_object_id(now_ms));
    Namespace::new(db, &format!("{front}{}", id.to_hex()))
}

/// A collection whose indexes are being built is not replaced: the build would fail.
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

/// A collection that takes the name of another one when it is full.
pub struct Replacement {
    collection: Arc<Collection>,
    becomes: Namespace,
    /// What the other one was like; nothing when there was none.
    found: Option<Found>,
}

/// What must not change while a replacement is filled.
struct Found {
    options: DocBuf,
    /// Ascending by name.
    indexes: Vec<DocBuf>,
}

impl Found {
    fn of(state: &CollectionState) -> Found {
        let mut indexes: Vec<_> = state.indexes.iter().collect();
        indexes.sort_by(|a, b| a.spec.name().cmp(b.spec.name()));
        let indexes = indexes.into_iter().map(|index| index.spec.document().to_owned()).collect();
        Found { options: state.options.clone(), indexes }
    }
}

impl Collection {
    /// Whether it still waits for its name: a client may drop or rename any collection.
    fn is_in_preparation(&self) -> bool {
        self.is_temporary() && !self.is_dropped()
    }
}

impl Replacement {
    /// Where the documents go.
    pub fn collection(&self) -> &Arc<Collection> {
        &self.collection
    }

    /// # Errors
    /// 125 CommandFailed when the target is not what it was.
    fn check_target(&self, now: Option<&CollectionState>) -> Result<()> {
        let changed = |what: String| Err(Error::new(ErrorCode::CommandFailed, what));
        let target = &self.becomes;
        let now = now.map(Found::of);
        let options =
            |of: &Option<Found>| of.as_ref().map_or(DocBuf::empty(), |it| it.options.clone());
        let (before, after) = (options(&self.found), options(&now));
        if before != after {
            return changed(format!(
                "collection options of target collection {target} changed during processing. Original options: {}, new \
                 options: {}",
                Shell(before.as_doc()),
                Shell(after.as_doc())
            ));
        }
        // A target that came or went has another index on `_id`, too.
        let indexes = |of: &Option<Found>| of.as_ref().map(|it| it.indexes.clone());
        if indexes(&self.found) != indexes(&now) {
            return changed(format!(
                "indexes of target collection {target} changed during processing."
            ));
        }
        Ok(())
    }
}

impl Store {
    /// Creates the collection that will replace `existing` under the name `becomes`, with its options and indexes. Without one it
    /// is created with these options. The name of a time series' buckets makes it one of buckets.
    ///
    /// # Errors
    /// 26 NamespaceNotFound when the existing one was dropped meanwhile, those of the engine.
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
        let (found, indexes): (Found, Vec<IndexSpec>) = {
            let state = existing.read_state()?;
            let indexes = state.indexes.iter().map(|index| index.spec.clone());
            (Found::of(&state), indexes.collect())
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

    /// Gives a replacement its name; what had it goes.
    ///
    /// # Errors
    /// 125 CommandFailed when that has changed meanwhile, 12587 while one of its indexes is being built, 48 NamespaceExists when a
    /// view or, for buckets, another collection has got the name, 26 NamespaceNotFound when
    /// somebody dropped or renamed the replacement; those of the engine.
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
        self.give_name(collection, &state, becomes, target)?;
        let now = self.clock.monotonic_micros();
        state.policies().iter().for_each(|policy| policy.runtime.begin_ramp(now));
        Ok(())
    }

    /// Drops a replacement that will not be finished.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn abandon_replacement(&self, replacement: &Replacement) -> Result<()> {
        // Also when the operation has to end.
        let _nobody = current::enter(Current::default());
        let _changing = self.catalog.lock()?;
        match replacement.collection.is_in_preparation() {
            true => self.drop_locked(&replacement.collection),
            false => Ok(()),
        }
    }

    /// # Errors
    /// 48 NamespaceExists when a view has this name, or a collection has the name of the measurements whose buckets these are.
    fn check_name_free(&self, ns: &Namespace, is_collection: bool) -> Result<()> {
        let measurements = match TimeSeries::name_of(ns) {
            Some(name) => Some(Namespace::new(ns.db(), name)?),
            None => None,
        };
        if let Some(taken) = measurements.as_ref().filter(|ns| self.catalog.get(ns).is_some()) {
            let text = format!("collection {taken} came into being during $out");
            return Err(Error::new(ErrorCode::NamespaceExists, text));
        }
        let shown = measurements.as_ref().unwrap_or(ns);
        if !is_collection && self.view(&ReadView::now(), shown)?.is_some() {
            let text = format!("a view already exists with that name: {shown}");
            return Err(Error::new(ErrorCode::NamespaceExists, text));
        }
        Ok(())
    }

    /// Drops the temporary collections that a stop of the server left: they never got their names.
    pub(crate) fn drop_temporary(&self) -> Result<()> {
        for collection in self.collections(None) {
            let ns = collection.namespace();
            if is_temporary(&ns) {
                tracing::info!(namespace = %ns, "dropped a collection that was not yet in its place");
                self.drop_collection(&ns)?;
            }
        }
        Ok(())
    }
}
