//! Changes of the catalog: create, drop, rename, options; indexes have their own file.
//!
//! Each change holds the catalog's lock, commits one engine transaction, and then publishes the new
//! state. A drop only makes a range unreachable; the sweeper clears it later.

mod build;
mod change_index;
mod circle;
mod convert;
mod indexes;
mod policies;
mod rebuild;
mod rename;
mod replace;
mod search;
mod search_views;
mod select;
mod sparing;
#[cfg(test)]
mod tests;
mod uniqueness;

use crate::isolation::ReadView;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use change_index::options_before;
use mayfly_base::{Error, ErrorCode, Namespace, Result};
use mayfly_buckets::TimeSeries;
use mayfly_kv::{Guard, Keyspace, Txn};
use mayfly_value::{Collation, DocBuf, DocBuilder, RawDoc};
use mayfly_work::current::spend;

use crate::Store;
use crate::catalog::id_index_spec;
use crate::catalog::{CatalogLock, Collection, CollectionState, Definition, Policy};
use crate::catalog::{encode_collection, new_index};
use crate::index::spec::IndexSpec;
use crate::oplog::{LoggedCommand, OplogBatch};
use crate::policy::TtlOptions;
use crate::record::error::from_kv;
use crate::record::layout::catalog_key;
use crate::record::new_uuid;
use crate::record::storable::check_bytes;
use crate::shared::change_version;
use crate::timeseries::default_index;
pub use change_index::{CollModChange, CollModResult, IndexSelector, NewExpireAfter};
pub use indexes::{CreateIndexesOptions, CreateIndexesResult};
pub(crate) use rebuild::Replaced;
pub use rename::{RenameTarget, TempMark};
pub use replace::Replacement;
pub(crate) use search::{LOGGED_SEARCH, LoggedSearchIndex};
pub use search::{NewSearchIndex, SearchSelector};
pub(crate) use search_views::ViewSource;
use sparing::{OpenTransactions, options_endanger};

/// A collection that is to be created.
struct NewCollection<'a> {
    ns: &'a Namespace,
    options: DocBuf,
    uuid: [u8; 16],
}

/// Whether a change is logged.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Logging {
    On,
    Off,
}

impl Store {
    /// Creates a collection with a new UUID.
    ///
    /// # Errors
    /// 48 NamespaceExists, 72 InvalidOptions for a policy that would archive in a circle.
    pub fn create_collection(
        &self,
        view: &ReadView,
        ns: &Namespace,
        options: DocBuf,
    ) -> Result<Arc<Collection>> {
        let _changing = self.lock_catalog(view)?;
        self.create_new_locked(view, ns, options, new_uuid())
    }

    /// Creates a collection with this UUID.
    ///
    /// # Errors
    /// 48 NamespaceExists, also when another collection has the UUID.
    pub fn create_collection_as(
        &self,
        view: &ReadView,
        ns: &Namespace,
        options: DocBuf,
        uuid: [u8; 16],
    ) -> Result<Arc<Collection>> {
        let _changing = self.lock_catalog(view)?;
        if self.catalog.all().values().any(|other| other.uuid() == uuid) {
            let text = format!("{ns} cannot be created with the UUID of another collection");
            return Err(Error::new(ErrorCode::NamespaceExists, text));
        }
        self.create_new_locked(view, ns, options, uuid)
    }

    /// Takes the catalog's lock for changes that a statement of an open transaction may also make.
    ///
    /// # Errors
    /// Errors of the operation's deadline, 24 LockTimeout.
    pub(crate) fn lock_catalog(&self, view: &ReadView) -> Result<CatalogLock<'_>> {
        self.catalog.lock_by(|try_for| self.lock_in_time(view, "the catalog", try_for))
    }

    fn create_new_locked(
        &self,
        view: &ReadView,
        ns: &Namespace,
        options: DocBuf,
        uuid: [u8; 16],
    ) -> Result<Arc<Collection>> {
        if self.collection(view, ns).is_some() {
            return Err(Error::new(
                ErrorCode::NamespaceExists,
                format!("Collection {ns} already exists."),
            ));
        }
        if self.view(view, ns)?.is_some() {
            let text = format!("A view already exists. NS: {ns}");
            return Err(Error::new(ErrorCode::NamespaceExists, text));
        }
        self.create_locked(view, ns, options, uuid)
    }

    /// The collection of this name, created without options if there is none. Returns also whether
    /// it was created.
    ///
    /// # Errors
    /// 166 CommandNotSupportedOnView, errors of the engine.
    pub fn get_or_create(
        &self,
        view: &ReadView,
        ns: &Namespace,
    ) -> Result<(Arc<Collection>, bool)> {
        if let Some(found) = self.collection(view, ns) {
            return Ok((found, false));
        }
        let _changing = self.lock_catalog(view)?;
        match self.collection(view, ns) {
            Some(found) => Ok((found, false)),
            None => {
                self.check_no_view(view, ns)?;
                Ok((self.create_locked(view, ns, DocBuf::empty(), new_uuid())?, true))
            }
        }
    }

    /// The collection of this name, created if there is none. The caller holds the catalog's lock.
    pub(crate) fn get_or_create_locked(&self, ns: &Namespace) -> Result<Arc<Collection>> {
        match self.catalog.get(ns) {
            Some(found) => Ok(found),
            None => self.create_locked(&ReadView::now(), ns, DocBuf::empty(), new_uuid()),
        }
    }

    /// A collection of the server's own. It is not logged, so that a replay of the log does not
    /// create it elsewhere.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn get_or_create_own(&self, ns: &Namespace) -> Result<Arc<Collection>> {
        let _changing = self.catalog.lock()?;
        match self.catalog.get(ns) {
            Some(found) => Ok(found),
            None => {
                let definition = NewCollection { ns, options: DocBuf::empty(), uuid: new_uuid() };
                self.create_with_indexes(&ReadView::now(), definition, [&[], &[]], Logging::Off)
            }
        }
    }

    /// Checks that a name without a collection is not a view.
    ///
    /// # Errors
    /// 166 CommandNotSupportedOnView.
    pub fn check_no_view(&self, view: &ReadView, ns: &Namespace) -> Result<()> {
        match self.view(view, ns)? {
            None => Ok(()),
            Some(_) => Err(Error::new(
                ErrorCode::CommandNotSupportedOnView,
                format!("Namespace {ns} is a view, not a collection"),
            )),
        }
    }

    /// Changes the options of a collection.
    ///
    /// # Errors
    /// 26 NamespaceNotFound, errors of `change`, errors of a validator among the new options, 72
    /// InvalidOptions for a policy that would archive in a circle.
    pub fn modify_options(
        &self,
        ns: &Namespace,
        command: RawDoc<'_>,
        change: impl Fn(RawDoc<'_>) -> Result<DocBuf>,
    ) -> Result<()> {
        self.change_sparing(ns, |open| self.try_modify_options(ns, command, &change, open))
    }

    fn try_modify_options(
        &self,
        ns: &Namespace,
        command: RawDoc<'_>,
        change: impl Fn(RawDoc<'_>) -> Result<DocBuf>,
        open: OpenTransactions,
    ) -> Result<Option<()>> {
        let _changing = self.catalog.lock()?;
        let Some(collection) = self.catalog.get(ns) else {
            return Err(Error::new(ErrorCode::NamespaceNotFound, "ns does not exist"));
        };
        let mut state = collection.change_state()?;
        let options = change(state.options.as_doc())?;
        let (id_index, indexes) = (state.id_index.clone(), state.indexes.clone());
        let mut changed = CollectionState::new(options, id_index, indexes, &*self.filters)?;
        collection.list_policies(&mut changed);
        let (own, before) = (changed.own_policy(), state.own_policy());
        if let Some(policy) = own
            && !before.is_some_and(|old| old.options.archive == policy.options.archive)
        {
            self.check_no_circle(ns, &[&policy.options], &[])?;
        }
        let stays = |policy: Option<&Arc<Policy>>| policy.map_or(i64::MAX, |it| it.listed_secs());
        if let Some(policy) = own
            && stays(own) < stays(before)
        {
            policy.runtime.begin_ramp(self.clock.monotonic_micros());
        }
        let logged_before = options_before(&collection, state.options.as_doc(), None);
        let endangers = options_endanger(&state, &changed);
        if endangers && open == OpenTransactions::Spare {
            return Ok(None);
        }
        let _definition = endangers.then(|| self.definitions.changing(ns, Definition::Changed));
        self.change(|txn, oplog| {
            let definition = put_collection(txn, &collection, ns, &changed)?;
            let database = command_ns(ns);
            let logged = LoggedCommand::new(&database, collection.uuid(), command);
            oplog.command(logged.changing(logged_before.as_doc()).defining(definition));
            Ok(())
        })?;
        collection.install(&mut state, changed);
        Ok(Some(()))
    }

    fn create_locked(
        &self,
        view: &ReadView,
        ns: &Namespace,
        options: DocBuf,
        uuid: [u8; 16],
    ) -> Result<Arc<Collection>> {
        let default = match TimeSeries::from_options(options.as_doc()) {
            Some(series) => default_index(&series.fields)?,
            None => None,
        };
        let collation = Collation::of_options(options.as_doc())?;
        let default = default.map(|index| index.inheriting(collation.as_ref()));
        let definition = NewCollection { ns, options, uuid };
        self.create_with_indexes(view, definition, [default.as_slice(), &[]], Logging::On)
    }

    /// Creates a collection with indexes. Default indexes are not logged.
    fn create_with_indexes(
        &self,
        view: &ReadView,
        definition: NewCollection<'_>,
        [own, further]: [&[IndexSpec]; 2],
        logging: Logging,
    ) -> Result<Arc<Collection>> {
        let NewCollection { ns, options, uuid } = definition;
        self.catalog.check_case(ns.db())?;
        let collation = Collation::of_options(options.as_doc())?;
        let mut state = CollectionState::new(options, None, Vec::new(), &*self.filters)?;
        self.check_no_circle(
            ns,
            &[&TtlOptions::from_catalog(state.options.as_doc().get("ttl"))],
            &[],
        )?;
        let mut command = DocBuilder::new();
        command.append("create", ns.collection()).append_all(state.options.as_doc());
        let command = command.finish();
        let ready = |spec: &IndexSpec| {
            let index = new_index(self.new_id()?, spec.clone(), &*self.filters)?;
            index.runtime.ready.store(true, Ordering::Release);
            Ok::<_, Error>(Arc::new(index))
        };
        let _definition = self.definitions.changing(ns, Definition::Created);
        let id = self.change_in(view, |txn, oplog| {
            let id = self.new_id()?;
            state.indexes = Vec::new();
            for spec in own.iter().chain(further) {
                state.indexes.push(ready(spec)?);
            }
            if !self.is_clustered(&state) {
                state.id_index = Some(ready(&id_index_spec(collation.as_ref())?)?);
            }
            let definition = put_definition(txn, id, encode_collection(ns, &uuid, &state))?;
            if logging == Logging::On {
                let database = command_ns(ns);
                let logged = LoggedCommand::new(&database, uuid, command.as_doc());
                oplog.command(logged.defining(definition.clone()));
                for spec in further {
                    log_index(oplog, ns, uuid, spec, &definition);
                }
            }
            Ok(id)
        })?;
        let collection = Collection::new(
            id,
            uuid,
            ns.clone(),
            state,
            (collation, self.catalog.settings.clone()),
        );
        let collection = Arc::new(collection);
        collection.counts.exact.store(true, Ordering::Release);
        match view.open() {
            Some(open) => open.local_mut().created.push(collection.clone()),
            None => self.catalog.publish(|map| {
                map.insert(ns.clone(), collection.clone());
            }),
        }
        Ok(collection)
    }

    /// Creates a collection from its catalog document, for a replay. The change is not logged.
    ///
    /// # Errors
    /// Errors of the engine.
    pub(crate) fn create_defined(
        &self,
        ns: &Namespace,
        options: DocBuf,
        uuid: [u8; 16],
        indexes: &[IndexSpec],
    ) -> Result<()> {
        let _changing = self.catalog.lock()?;
        let definition = NewCollection { ns, options, uuid };
        let view = ReadView::now();
        self.create_with_indexes(&view, definition, [indexes, &[]], Logging::Off).map(drop)
    }

    /// Whether the records of a new collection are clustered by `_id`.
    fn is_clustered(&self, state: &CollectionState) -> bool {
        let plain = state.capped.is_none() && state.time_series.is_none();
        let asked = state.options.as_doc().get("clusteredIndex").is_some();
        plain && (asked || self.engine().caps().clusters_records)
    }

    /// Drops a collection. Returns the number of indexes that clients saw, or `None` when
    /// there was no collection.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn drop_collection(&self, ns: &Namespace) -> Result<Option<i32>> {
        if self.catalog.get(ns).is_none() {
            return Ok(None);
        }
        let _changing = self.lock_catalog_sparing(std::slice::from_ref(ns))?;
        let Some(collection) = self.catalog.get(ns) else { return Ok(None) };
        self.drop_locked(&collection)?;
        Ok(Some(collection.indexes().len() as i32 + collection.counts_id_index()))
    }

    fn drop_locked(&self, collection: &Collection) -> Result<()> {
        let ns = collection.namespace();
        // The lock waits for running writers; later ones see the mark.
        let state = collection.change_state()?;
        let mut command = DocBuilder::new();
        command.append("drop", ns.collection());
        let command = command.finish();
        let _definition = self.definitions.changing(&ns, Definition::Changed);
        self.change(|txn, oplog| {
            put_gone(txn, collection, &state)?;
            let database = command_ns(&ns);
            oplog.command(LoggedCommand::new(&database, collection.uuid(), command.as_doc()));
            Ok(())
        })?;
        collection.mark_dropped(&state);
        self.catalog.publish(|map| {
            map.remove(&ns);
        });
        self.leave_to_sweeper(object_ids(collection, &state));
        Ok(())
    }

    fn leave_to_sweeper(&self, ids: impl IntoIterator<Item = u64>) {
        self.catalog.dropped.lock().extend(ids);
        self.wake_sweeper();
    }

    /// Drops all collections of a database. Returns whether there was one.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn drop_database(&self, db: &str) -> Result<bool> {
        let names: Vec<_> =
            self.collections(Some(db)).iter().map(|collection| collection.namespace()).collect();
        let _changing = self.lock_catalog_sparing(&names)?;
        let all = self.collections(Some(db));
        for collection in &all {
            spend(usize::MAX)?;
            self.drop_locked(collection)?;
        }
        if !all.is_empty() {
            let mut command = DocBuilder::new();
            command.append("dropDatabase", 1);
            let command = command.finish();
            self.change(|_, oplog| {
                let database = format!("{db}.$cmd");
                oplog.command(LoggedCommand::new(&database, [0; 16], command.as_doc()));
                Ok(())
            })?;
        }
        Ok(!all.is_empty())
    }
}

fn command_ns(ns: &Namespace) -> String {
    format!("{}.$cmd", ns.db())
}

/// Logs that a collection has a new index, with the collection's definition afterwards.
fn log_index(
    oplog: &mut OplogBatch,
    ns: &Namespace,
    uuid: [u8; 16],
    spec: &IndexSpec,
    definition: &DocBuf,
) {
    let mut command = DocBuilder::new();
    command.append("createIndexes", ns.collection()).append_all(spec.document());
    let (database, command) = (command_ns(ns), command.finish());
    let logged = LoggedCommand::new(&database, uuid, command.as_doc());
    oplog.command(logged.defining(definition.clone()));
}

/// Writes the catalog document of a collection with this name and state, and returns it.
pub(crate) fn put_collection(
    txn: &mut dyn Txn,
    collection: &Collection,
    ns: &Namespace,
    state: &CollectionState,
) -> Result<DocBuf> {
    put_definition(txn, collection.id(), encode_collection(ns, &collection.uuid(), state))
}

fn put_definition(txn: &mut dyn Txn, id: u64, definition: DocBuf) -> Result<DocBuf> {
    check_bytes(definition.as_doc())?;
    let key = catalog_key::collection(id);
    txn.put(Keyspace::Catalog, &key, definition.as_bytes(), Guard::Checked).map_err(from_kv)?;
    change_version(txn).map_err(from_kv)?;
    Ok(definition)
}

/// The ids of a collection and of its indexes.
fn object_ids(collection: &Collection, state: &CollectionState) -> Vec<u64> {
    let indexes = state.maintained().map(|index| index.id);
    std::iter::once(collection.id()).chain(indexes).collect()
}

/// Removes a collection from the catalog.
fn put_gone(txn: &mut dyn Txn, collection: &Collection, state: &CollectionState) -> Result<()> {
    txn.delete(Keyspace::Catalog, &catalog_key::collection(collection.id()), Guard::Checked)
        .map_err(from_kv)?;
    change_version(txn).map_err(from_kv)?;
    search::put_search_gone(txn, &collection.search, collection.id())?;
    object_ids(collection, state).into_iter().try_for_each(|id| put_dropped(txn, id))
}

fn put_dropped(txn: &mut dyn Txn, id: u64) -> Result<()> {
    txn.put(Keyspace::Catalog, &catalog_key::dropped(id), &[], Guard::Checked).map_err(from_kv)
}
