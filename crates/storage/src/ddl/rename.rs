//! Renaming collections.

use std::sync::Arc;

use mayfly_base::{Error, ErrorCode, Namespace, Result};
use mayfly_value::{DocBuilder, RawValue};

use super::{command_ns, object_ids, put_collection, put_gone};
use crate::Store;
use crate::catalog::{Collection, CollectionState, Definition};
use crate::isolation::ReadView;
use crate::oplog::LoggedCommand;

/// The fate of an existing collection with the new name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RenameTarget {
    /// The rename fails.
    MustNotExist,
    /// The collection is dropped in the same catalog change.
    Dropped,
    /// The same, and the rename fails unless the collection has this UUID.
    DroppedIfItIs([u8; 16]),
}

/// The option of a temporary collection.
pub(crate) const TEMP: &str = "temp";

/// What a rename does with the mark of a temporary collection (`temp` of `create`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TempMark {
    /// The collection is an ordinary one afterwards.
    Removed,
    /// A temporary collection stays one.
    Kept,
}

impl Store {
    /// Renames a collection.
    ///
    /// # Errors
    /// 26 NamespaceNotFound, 48 NamespaceExists, 20 IllegalOperation, 72 InvalidOptions when its
    /// policies would archive in a circle.
    pub fn rename_collection(
        &self,
        from: &Namespace,
        to: &Namespace,
        target: RenameTarget,
    ) -> Result<()> {
        self.rename_identified((from, None), to, target, TempMark::Removed)
    }

    /// Renames a collection that must have this UUID, if one is given.
    ///
    /// # Errors
    /// 361 CollectionUUIDMismatch, and those of [`Store::rename_collection`].
    pub fn rename_identified(
        &self,
        (from, uuid): (&Namespace, Option<[u8; 16]>),
        to: &Namespace,
        target: RenameTarget,
        mark: TempMark,
    ) -> Result<()> {
        let names: Vec<_> =
            [from, to].into_iter().filter(|ns| self.catalog.get(ns).is_some()).cloned().collect();
        let _changing = self.lock_catalog_sparing(&names)?;
        if let Some(uuid) = uuid {
            self.check_uuid(from, uuid)?;
        }
        if let RenameTarget::DroppedIfItIs(uuid) = target {
            self.check_uuid(to, uuid)?;
        }
        let Some(collection) = self.catalog.get(from) else {
            self.check_no_view(&ReadView::now(), from)?;
            return Err(Error::new(
                ErrorCode::NamespaceNotFound,
                format!("Source collection {from} does not exist"),
            ));
        };
        if from == to {
            return Err(Error::new(
                ErrorCode::IllegalOperation,
                "Can't rename a collection to itself",
            ));
        }
        let replaced = target;
        let target = self.catalog.get(to);
        if target.is_some() && replaced == RenameTarget::MustNotExist {
            return Err(Error::new(ErrorCode::NamespaceExists, "target namespace exists"));
        }
        if target.is_none() {
            self.catalog.check_case(to.db())?;
        }
        if target.is_none() && self.view(&ReadView::now(), to)?.is_some() {
            let text = format!("a view already exists with that name: {to}");
            return Err(Error::new(ErrorCode::NamespaceExists, text));
        }
        let archiving = collection.archiving();
        let policies: Vec<_> = archiving.iter().map(|policy| &*policy.options).collect();
        self.check_no_circle(to, &policies, &[from])?;
        let mut state = collection.change_state()?;
        // No other thread holds two of these locks: exclusive ones are taken with the catalog's
        // lock held.
        let target_state = target.as_ref().map(|target| target.change_state()).transpose()?;
        let target = target.as_deref().zip(target_state.as_deref());
        let ordinary = match mark {
            TempMark::Kept => None,
            TempMark::Removed => self.without_mark(&collection, &state)?,
        };
        self.give_name(&collection, ordinary.as_ref().unwrap_or(&state), to, target)?;
        if let Some(ordinary) = ordinary {
            collection.install(&mut state, ordinary);
        }
        drop((state, target_state));
        // Views are found by the names of their collections.
        self.follow_views(from.db());
        if to.db() != from.db() {
            self.follow_views(to.db());
        }
        Ok(())
    }

    /// The state of a temporary collection without its mark; `None` for an ordinary one.
    fn without_mark(
        &self,
        collection: &Collection,
        state: &CollectionState,
    ) -> Result<Option<CollectionState>> {
        let options = state.options.as_doc();
        if options.get(TEMP).is_none() {
            return Ok(None);
        }
        let mut ordinary = DocBuilder::new();
        for option in options.iter().filter(|option| option.name() != TEMP) {
            ordinary.append_element(option);
        }
        let (id_index, indexes) = (state.id_index.clone(), state.indexes.clone());
        let mut changed =
            CollectionState::new(ordinary.finish(), id_index, indexes, &*self.filters)?;
        collection.list_policies(&mut changed);
        Ok(Some(changed))
    }

    /// Checks that the collection of this name has this UUID.
    ///
    /// # Errors
    /// 361 CollectionUUIDMismatch, also if there is none; the reply names the collection that has
    /// the UUID.
    pub fn check_uuid(&self, ns: &Namespace, uuid: [u8; 16]) -> Result<()> {
        if self.catalog.get(ns).is_some_and(|collection| collection.uuid() == uuid) {
            return Ok(());
        }
        let all = self.catalog.all();
        let actual =
            all.iter().find(|(other, found)| other.db() == ns.db() && found.uuid() == uuid);
        let mut extra = DocBuilder::new();
        extra.append("db", ns.db());
        extra.append("collectionUUID", RawValue::uuid(&uuid));
        extra.append("expectedCollection", ns.collection());
        let actual = actual.map(|(other, _)| RawValue::String(other.collection()));
        extra.append("actualCollection", actual.unwrap_or(RawValue::Null));
        let text = "Collection UUID does not match that specified";
        let error = Error::new(ErrorCode::CollectionUUIDMismatch, text);
        Err(error.with_extra(extra.finish().into_bytes()))
    }

    /// Renames a collection; a collection with that name is dropped. The caller holds the catalog's
    /// lock and those of the states.
    pub(super) fn give_name(
        &self,
        collection: &Arc<Collection>,
        state: &CollectionState,
        to: &Namespace,
        target: Option<(&Collection, &CollectionState)>,
    ) -> Result<()> {
        let from = collection.namespace();
        let mut command = DocBuilder::new();
        command.append("renameCollection", from.as_str()).append("to", to.as_str());
        if let Some((target, _)) = target {
            let uuid = target.uuid();
            command.append("dropTarget", RawValue::uuid(&uuid));
        }
        if state.options.as_doc().get(TEMP).is_some() {
            command.append("stayTemp", true);
        }
        let command = command.finish();
        let _leaving = self.definitions.changing(&from, Definition::Changed);
        let _coming = self.definitions.changing(to, Definition::Renamed);
        self.change(|txn, oplog| {
            if let Some((target, state)) = target {
                put_gone(txn, target, state)?;
            }
            let definition = put_collection(txn, collection, to, state)?;
            let database = command_ns(&from);
            let logged = LoggedCommand::new(&database, collection.uuid(), command.as_doc());
            oplog.command(logged.defining(definition));
            Ok(())
        })?;
        collection.set_namespace(to.clone(), state);
        if let Some((target, state)) = target {
            target.mark_dropped(state);
        }
        self.catalog.publish(|map| {
            map.remove(&from);
            map.insert(to.clone(), collection.clone());
        });
        if let Some((target, state)) = target {
            self.leave_to_sweeper(object_ids(target, state));
        }
        Ok(())
    }
}
