//! Changes of search indexes: create, update, drop. The caller has checked the definitions.
//!
//! A change is an entry without an operation in the operation log, which clients of the log pass
//! over: it has the search indexes of the collection after the change, and a replay makes these.
//!
//! ```text
//! { op: "n", ns: "db.c", ui: ..., o: { searchIndexes: [ { id, name, type, definition } ... ] } }
//! ```
//!
//! An index on a view also has `view`, its name, and `transformation`, which does not depend on the
//! time of the replay.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use mayfly_base::{Error, ErrorCode, Namespace, Result};
use mayfly_kv::{Guard, Keyspace, Txn};
use mayfly_value::bson::oid::ObjectId;
use mayfly_value::{DocBuf, DocBuilder};

use super::build::is_internal;
use super::search_views::ViewSource;
use crate::Store;
use crate::catalog::{
    Collection, Definition, SearchIndex, SearchIndexes, SearchVersion, encode_search,
};
use crate::oplog::{LoggedObject, OplogBatch};
use crate::record::error::from_kv;
use crate::record::layout::catalog_key;
use crate::record::storable::check_bytes;
use crate::shared::change_version;

/// A search index that is to be created.
pub struct NewSearchIndex {
    /// The name, unique among the indexes of the collection and of the views that read it.
    pub name: String,
    /// The type, `search` or `vectorSearch`.
    pub kind: String,
    /// The definition, which the caller has checked.
    pub definition: DocBuf,
}

/// Selects a search index of a collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SearchSelector<'s> {
    /// By the id that clients see.
    Id(&'s str),
    /// By its name.
    Name(&'s str),
}

impl SearchSelector<'_> {
    /// Whether it selects this index.
    pub fn selects(self, index: &SearchIndex) -> bool {
        match self {
            SearchSelector::Id(id) => index.id == id,
            SearchSelector::Name(name) => index.name == name,
        }
    }

    fn not_found(self) -> Error {
        let text = match self {
            SearchSelector::Id(id) => format!("search index not found with id [{id}]"),
            SearchSelector::Name(name) => format!("search index not found with name [{name}]"),
        };
        Error::new(ErrorCode::IndexNotFound, text)
    }
}

/// The field of an entry without an operation that has the search indexes of its collection.
pub(crate) const LOGGED_SEARCH: &str = "searchIndexes";

/// A search index in the log.
pub(crate) struct LoggedSearchIndex {
    /// The id that clients see.
    pub(crate) id: String,
    pub(crate) new: NewSearchIndex,
    pub(crate) view: Option<ViewSource>,
}

/// What a change of search indexes concerns.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum SearchChange {
    /// Their definitions, which are in the log.
    Definitions,
    /// Only the state of their files.
    State,
}

/// Adds the search indexes of a collection to the log.
fn log_search(oplog: &mut OplogBatch, collection: &Collection, list: &[Arc<SearchIndex>]) {
    let mut note = DocBuilder::new();
    note.start_array(LOGGED_SEARCH);
    for index in list {
        let Some(latest) = index.latest() else { continue };
        note.push_document().append("id", index.id.as_str()).append("name", index.name.as_str());
        note.append("type", index.kind.as_str()).append("definition", &latest.definition);
        if let (Some(view), Some(transformation)) = (&index.view, &latest.transformation) {
            note.append("view", view.as_str()).append("transformation", transformation);
        }
        note.end();
    }
    note.end();
    let ns = collection.namespace();
    let object = LoggedObject { ns: ns.as_str(), uuid: collection.uuid() };
    oplog.note_about(object, note.finish().as_doc());
}

/// Writes the row of a collection's search indexes.
pub(super) fn put_search(
    txn: &mut dyn Txn,
    collection: &Collection,
    list: &[Arc<SearchIndex>],
) -> Result<()> {
    change_version(txn).map_err(from_kv)?;
    let key = catalog_key::search(collection.id());
    if list.is_empty() {
        return txn.delete(Keyspace::Catalog, &key, Guard::Checked).map_err(from_kv);
    }
    let row = encode_search(list);
    check_bytes(row.as_doc())?;
    txn.put(Keyspace::Catalog, &key, row.as_bytes(), Guard::Checked).map_err(from_kv)
}

/// Removes the rows of positions of versions.
pub(super) fn delete_positions(
    txn: &mut dyn Txn,
    versions: impl IntoIterator<Item = Arc<SearchVersion>>,
) -> Result<()> {
    versions.into_iter().try_for_each(|version| {
        let key = catalog_key::feed(version.file);
        txn.delete(Keyspace::Catalog, &key, Guard::Checked).map_err(from_kv)
    })
}

impl Store {
    /// Creates search indexes on a collection or a view. One that exists with the same type and
    /// definition stays as it is. Returns the ids that clients see, in the order of the request.
    /// The caller has checked that the view can have search indexes; otherwise they fail when they
    /// are filled.
    ///
    /// # Errors
    /// 26 NamespaceNotFound; 67 CannotCreateIndex on internal collections; 68 IndexAlreadyExists
    /// for another definition, also within the request, and for a name that an index of the
    /// collection or of another view over it has; 166 on a time series; errors of the engine.
    pub fn create_search_indexes(
        &self,
        ns: &Namespace,
        new: &[NewSearchIndex],
    ) -> Result<Vec<String>> {
        self.change_search(ns, |list, collection, view| {
            let read = collection.namespace();
            if let Some(internal) = [ns, &read].into_iter().find(|ns| is_internal(ns)) {
                let text = format!("search indexes are not supported on {internal}");
                return Err(Error::new(ErrorCode::CannotCreateIndex, text));
            }
            new.iter().map(|new| self.add_search_index(list, new, view)).collect()
        })
    }

    fn add_search_index(
        &self,
        list: &mut Vec<Arc<SearchIndex>>,
        new: &NewSearchIndex,
        view: Option<&ViewSource>,
    ) -> Result<String> {
        if let Some(found) = list.iter().find(|index| index.name == new.name) {
            if !is_on(found, view) {
                let text = format!(
                    "Index {} already exists on {}. The names of search indexes are unique among a collection and \
                     the views that read it.",
                    new.name,
                    found.view.as_ref().map_or("another namespace", |view| view),
                );
                return Err(Error::new(ErrorCode::IndexAlreadyExists, text));
            }
            let latest = found.latest().map(|version| &version.definition);
            if found.kind == new.kind && latest == Some(&new.definition) {
                return Ok(found.id.clone());
            }
            let text = format!(
                "Index {} already exists with a different definition. Drop and recreate instead.",
                new.name
            );
            return Err(Error::new(ErrorCode::IndexAlreadyExists, text));
        }
        let id = ObjectId::from_bytes(mayfly_value::new_object_id(self.clock.now_ms())).to_hex();
        list.push(Arc::new(self.new_search_index(id.clone(), new, view)?));
        Ok(id)
    }

    fn new_search_index(
        &self,
        id: String,
        new: &NewSearchIndex,
        view: Option<&ViewSource>,
    ) -> Result<SearchIndex> {
        let (name, kind, definition) = (new.name.clone(), new.kind.clone(), new.definition.clone());
        let transformation = view.map(|view| view.transformation.clone());
        let (file, now_ms) = (self.new_id()?, self.clock.now_ms());
        let version = SearchVersion::new(file, 0, now_ms, definition, transformation);
        let view = view.map(|view| view.name.clone());
        Ok(SearchIndex { id, name, kind, view, versions: vec![Arc::new(version)] })
    }

    /// An index with a further definition. The present one serves searches until that one is ready.
    pub(super) fn with_definition(
        &self,
        found: &SearchIndex,
        definition: &DocBuf,
        view: Option<&ViewSource>,
    ) -> Result<SearchIndex> {
        let number = found.latest().map_or(0, |version| version.number + 1);
        let transformation = view.map(|view| view.transformation.clone());
        let (file, now_ms) = (self.new_id()?, self.clock.now_ms());
        let version = SearchVersion::new(file, number, now_ms, definition.clone(), transformation);
        let mut changed = found.clone();
        changed
            .versions
            .retain(|version| found.serving().is_some_and(|serving| serving.file == version.file));
        changed.versions.push(Arc::new(version));
        Ok(changed)
    }

    /// Replaces the definition of a search index. The present one serves searches until the new one
    /// is ready.
    ///
    /// # Errors
    /// 26 NamespaceNotFound, 27 IndexNotFound; errors of `check`, which gets the type of the index.
    pub fn update_search_index(
        &self,
        ns: &Namespace,
        selector: SearchSelector<'_>,
        definition: &DocBuf,
        check: impl Fn(&SearchIndex) -> Result<()>,
    ) -> Result<()> {
        self.change_search(ns, |list, _, view| {
            let mut own = list.iter_mut().filter(|index| is_on(index, view));
            let found = own.find(|index| selector.selects(index));
            let found = found.ok_or_else(|| selector.not_found())?;
            check(found)?;
            let latest = found.latest();
            if latest.is_some_and(|version| version.definition == *definition) {
                return Ok(());
            }
            *found = Arc::new(self.with_definition(found, definition, view)?);
            Ok(())
        })
    }

    /// Drops a search index.
    ///
    /// # Errors
    /// 26 NamespaceNotFound, 27 IndexNotFound; errors of the engine.
    pub fn drop_search_index(&self, ns: &Namespace, selector: SearchSelector<'_>) -> Result<()> {
        self.change_search(ns, |list, _, view| {
            let before = list.len();
            list.retain(|index| !(is_on(index, view) && selector.selects(index)));
            match list.len() < before {
                true => Ok(()),
                false => Err(selector.not_found()),
            }
        })
    }

    /// Makes the search indexes of a collection, and of the views that read it, those of an entry
    /// of the log. Those that exist with the same definition keep their files.
    ///
    /// # Errors
    /// Errors of the engine.
    pub(crate) fn replay_search(
        &self,
        collection: &Collection,
        wanted: &[LoggedSearchIndex],
    ) -> Result<()> {
        self.change_search(&collection.namespace(), |list, _, _| {
            let made = |LoggedSearchIndex { id, new, view }: &LoggedSearchIndex| {
                let view = view.as_ref();
                let transformation = view.map(|view| &view.transformation);
                let mut same = list.iter().filter(|index| is_on(index, view));
                let found = same.find(|index| index.id == *id && index.kind == new.kind);
                let Some(found) = found else {
                    return Ok(Arc::new(self.new_search_index(id.clone(), new, view)?));
                };
                let is_current = found.latest().is_some_and(|latest| {
                    latest.definition == new.definition
                        && latest.transformation.as_ref() == transformation
                });
                match is_current {
                    true => Ok(found.clone()),
                    false => Ok(Arc::new(self.with_definition(found, &new.definition, view)?)),
                }
            };
            *list = wanted.iter().map(made).collect::<Result<_>>()?;
            Ok(())
        })
    }

    /// Notes that a version is ready. Older versions of its index are dropped.
    ///
    /// # Errors
    /// Errors of the engine.
    pub fn note_search_ready(
        &self,
        collection: &Collection,
        version: &SearchVersion,
    ) -> Result<()> {
        let _changing = self.catalog.lock()?;
        if collection.is_dropped() || version.is_dropped() || version.is_ready() {
            return Ok(());
        }
        if self.is_secondary() {
            self.note_local_ready(collection, version);
            return Ok(());
        }
        let mut list = Vec::clone(&collection.search.all());
        for index in &mut list {
            if index.versions.iter().any(|other| other.file == version.file) {
                let mut changed = SearchIndex::clone(index);
                changed.versions.retain(|other| other.number >= version.number);
                *index = Arc::new(changed);
            }
        }
        // The row is written with the mark.
        version.ready.store(true, Ordering::Release);
        let stored = self.install_search(collection, list, SearchChange::State);
        if stored.is_err() {
            version.ready.store(false, Ordering::Release);
        }
        stored
    }

    /// Changes the search indexes of a collection or a view. The list also has those of the
    /// collection's other views.
    fn change_search<T>(
        &self,
        ns: &Namespace,
        change: impl FnOnce(&mut Vec<Arc<SearchIndex>>, &Collection, Option<&ViewSource>) -> Result<T>,
    ) -> Result<T> {
        let _changing = self.catalog.lock()?;
        let (collection, view) = self.searched(ns)?;
        let present = collection.search.all();
        let mut list = Vec::clone(&present);
        let result = change(&mut list, &collection, view.as_ref())?;
        // Frameworks create their indexes at each start. If all exist, nothing is written.
        let is_same = |(one, other): (&Arc<_>, &Arc<_>)| Arc::ptr_eq(one, other);
        if list.len() == present.len() && list.iter().zip(present.iter()).all(is_same) {
            return Ok(result);
        }
        // From now on the log's cuts and the follower look for indexes.
        self.catalog.may_be_log_fed.store(true, Ordering::Release);
        self.install_search(&collection, list, SearchChange::Definitions)?;
        Ok(result)
    }

    /// Writes and publishes search indexes. The caller holds the catalog's lock.
    pub(super) fn install_search(
        &self,
        collection: &Collection,
        list: Vec<Arc<SearchIndex>>,
        change: SearchChange,
    ) -> Result<()> {
        let ns = collection.namespace();
        // Plans and writes do not depend on search indexes; the follower waits for this change.
        let _definition = self.definitions.changing(&ns, Definition::Building);
        let kept = |version: &Arc<SearchVersion>| {
            list.iter().any(|index| index.versions.iter().any(|it| it.file == version.file))
        };
        let gone: Vec<_> =
            collection.search.versions().into_iter().filter(|it| !kept(it)).collect();
        self.change(|txn, oplog| {
            put_search(txn, collection, &list)?;
            if change == SearchChange::Definitions {
                log_search(oplog, collection, &list);
            }
            delete_positions(txn, gone.iter().cloned())
        })?;
        collection.search.install(list);
        Ok(())
    }

    /// Gives a new collection the search indexes of the one that it will replace, with files of
    /// their own. The caller holds the catalog's lock.
    pub(super) fn inherit_search(&self, from: &Collection, to: &Collection) -> Result<()> {
        if !from.search.are_there() {
            return Ok(());
        }
        let inherited = |index: &Arc<SearchIndex>| {
            let mut index = SearchIndex::clone(index);
            if let Some(latest) = index.versions.pop() {
                let (number, created_ms) = (latest.number, latest.created_ms);
                let definition = latest.definition.clone();
                let transformation = latest.transformation.clone();
                let file = self.new_id()?;
                let version =
                    SearchVersion::new(file, number, created_ms, definition, transformation);
                index.versions = vec![Arc::new(version)];
            }
            Ok(Arc::new(index))
        };
        let list = from.search.all().iter().map(inherited).collect::<Result<Vec<_>>>()?;
        self.change(|txn, oplog| {
            log_search(oplog, to, &list);
            put_search(txn, to, &list)
        })?;
        to.search.install(list);
        Ok(())
    }
}

/// Whether an index is on this view, or on the collection if there is none.
fn is_on(index: &SearchIndex, view: Option<&ViewSource>) -> bool {
    index.view.as_ref() == view.map(|view| &view.name)
}

/// Removes the rows of a collection that is dropped.
pub(super) fn put_search_gone(txn: &mut dyn Txn, indexes: &SearchIndexes, id: u64) -> Result<()> {
    if !indexes.are_there() {
        return Ok(());
    }
    txn.delete(Keyspace::Catalog, &catalog_key::search(id), Guard::Checked).map_err(from_kv)?;
    delete_positions(txn, indexes.versions())
}
