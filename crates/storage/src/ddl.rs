//! Changes of the catalog: create, drop, rename, indexes.
//!
//! Each holds the catalog's one lock, writes one engine transaction, and then publishes the new state. Dropping only makes a
//! range unreachable; the sweeper clears it later.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use mayfly_base::{Error, ErrorCode, Namespace, OpCtx, Result, limits};
use mayfly_kv::{Guard, Keyspace, Txn, TxnOptions};
use mayfly_value::shell::Shell;
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue};

use crate::Store;
use crate::catalog::{encode_collection, new_index};
use crate::collection::{Collection, CollectionState, Index};
use crate::error::from_kv;
use crate::index_spec::{IndexSpec, Requested, SpecRules, in_spec_context};
use crate::layout::catalog_key;
use crate::oplog::OplogBatch;

/// What `createIndexes` reports.
#[derive(Debug, Default)]
pub struct CreateIndexesResult {
    /// Indexes before, `_id_` included.
    pub before: i32,
    /// Indexes after, `_id_` included.
    pub after: i32,
    /// Whether the collection came into being.
    pub created_collection: bool,
    /// Notes for the reply.
    pub notes: Vec<&'static str>,
}

/// Which index is meant.
#[derive(Clone, Copy)]
pub enum IndexSelector<'a> {
    /// By name.
    Name(&'a str),
    /// By key pattern.
    Key(RawDoc<'a>),
}

/// What `collMod` changes on an index.
#[derive(Clone, Copy, Default)]
pub struct CollModChange {
    /// A new time to live, in seconds.
    pub expire_after: Option<i32>,
    /// Hidden or not.
    pub hidden: Option<bool>,
}

/// What `collMod` reports.
#[derive(Debug, Default)]
pub struct CollModResult {
    /// Old time to live, when it had one.
    pub expire_after_old: Option<i32>,
    /// New time to live.
    pub expire_after_new: Option<i32>,
    /// Hidden before and after, when it changed.
    pub hidden: Option<(bool, bool)>,
}

impl Store {
    /// Creates a collection.
    ///
    /// # Errors
    /// 48 NamespaceExists.
    pub fn create_collection(&self, ns: &Namespace, options: DocBuf) -> Result<Arc<Collection>> {
        let _changing = self.catalog.changing.lock();
        if self.catalog.get(ns).is_some() {
            return Err(Error::new(
                ErrorCode::NamespaceExists,
                format!("Collection {ns} already exists."),
            ));
        }
        self.create_locked(ns, options)
    }

    /// The collection of this name, created with no options when there is none; true when it was created.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn get_or_create(&self, ns: &Namespace) -> Result<(Arc<Collection>, bool)> {
        if let Some(found) = self.collection(ns) {
            return Ok((found, false));
        }
        let _changing = self.catalog.changing.lock();
        match self.catalog.get(ns) {
            Some(found) => Ok((found, false)),
            None => Ok((self.create_locked(ns, DocBuf::empty())?, true)),
        }
    }

    fn create_locked(&self, ns: &Namespace, options: DocBuf) -> Result<Arc<Collection>> {
        let state = CollectionState { options, indexes: Vec::new() };
        let uuid = new_uuid();
        let mut command = DocBuilder::new();
        command.append("create", ns.collection()).append_all(state.options.as_doc());
        let command = command.finish();
        let id = self.change(|txn, oplog| {
            let id = self.catalog.new_id(txn)?;
            put_collection(txn, id, ns, &uuid, &state)?;
            oplog.command(&command_ns(ns), &uuid, command.as_doc());
            Ok(id)
        })?;
        let collection = Arc::new(Collection::new(id, uuid, ns.clone(), state));
        collection.counts.exact.store(true, Ordering::Release);
        self.catalog.publish(|map| {
            map.insert(ns.clone(), collection.clone());
        });
        Ok(collection)
    }

    /// Drops a collection; gives the number of indexes it had, `_id_` included, or nothing when there was none.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn drop_collection(&self, ns: &Namespace) -> Result<Option<i32>> {
        let _changing = self.catalog.changing.lock();
        let Some(collection) = self.catalog.get(ns) else { return Ok(None) };
        self.drop_locked(&collection)?;
        Ok(Some(collection.indexes().len() as i32 + 1))
    }

    fn drop_locked(&self, collection: &Collection) -> Result<()> {
        let ns = collection.namespace();
        // Writers in flight end first; those that come later see the mark.
        let state = collection.state.write();
        let mut command = DocBuilder::new();
        command.append("drop", ns.collection());
        let command = command.finish();
        self.change(|txn, oplog| {
            put_gone(txn, collection, &state)?;
            oplog.command(&command_ns(&ns), &collection.uuid(), command.as_doc());
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

    /// Drops all collections of a database; true when there was one.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn drop_database(&self, db: &str) -> Result<bool> {
        let _changing = self.catalog.changing.lock();
        let all = self.collections(Some(db));
        for collection in &all {
            self.drop_locked(collection)?;
        }
        Ok(!all.is_empty())
    }

    /// Gives a collection another name.
    ///
    /// # Errors
    /// 26 NamespaceNotFound, 48 NamespaceExists, 20 IllegalOperation.
    pub fn rename_collection(
        &self,
        from: &Namespace,
        to: &Namespace,
        drop_target: bool,
    ) -> Result<()> {
        let _changing = self.catalog.changing.lock();
        let Some(collection) = self.catalog.get(from) else {
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
        let target = self.catalog.get(to);
        if target.is_some() && !drop_target {
            return Err(Error::new(ErrorCode::NamespaceExists, "target namespace exists"));
        }
        let state = collection.state.write();
        // Nobody else holds two of these locks: whoever takes one for a change holds the catalog's.
        let target = target.as_ref().map(|target| (target, target.state.write()));
        let mut command = DocBuilder::new();
        command.append("renameCollection", from.as_str()).append("to", to.as_str());
        if let Some((target, _)) = &target {
            let uuid = target.uuid();
            command.append("dropTarget", RawValue::Binary { subtype: 4, bytes: &uuid });
        }
        let command = command.finish();
        self.change(|txn, oplog| {
            if let Some((target, state)) = &target {
                put_gone(txn, target, state)?;
            }
            put_collection(txn, collection.id(), to, &collection.uuid(), &state)?;
            oplog.command(&command_ns(from), &collection.uuid(), command.as_doc());
            Ok(())
        })?;
        collection.set_namespace(to.clone());
        if let Some((target, state)) = &target {
            target.mark_dropped(state);
        }
        self.catalog.publish(|map| {
            map.remove(from);
            map.insert(to.clone(), collection.clone());
        });
        if let Some((target, state)) = &target {
            self.leave_to_sweeper(object_ids(target, state));
        }
        Ok(())
    }

    /// Creates indexes, and the collection when there is none. New indexes are built from the present documents while
    /// writers go on; they become usable all at once, or none of them stays.
    ///
    /// # Errors
    /// 67, 85, 86, 197 and further codes for bad definitions; 11000 when a unique index finds duplicates.
    pub fn create_indexes(
        &self,
        op: &OpCtx,
        ns: &Namespace,
        requests: &[RawDoc<'_>],
        ignore_unknown: bool,
    ) -> Result<CreateIndexesResult> {
        let rules = SpecRules { ttl: self.ttl_params().rules(), ignore_unknown };
        let mut wanted = Vec::with_capacity(requests.len());
        let mut result = CreateIndexesResult::default();
        for request in requests {
            match IndexSpec::request(*request, rules).map_err(|e| in_spec_context(e, *request))? {
                Requested::Id => {}
                Requested::Index(spec, note) => {
                    // A filter that does not compile must not leave a new collection behind.
                    if let Some(filter) = spec.partial_filter() {
                        self.filters.compile(filter)?;
                    }
                    result.notes.extend(note);
                    wanted.push(*spec);
                }
            }
        }
        let (collection, created) = self.get_or_create(ns)?;
        result.created_collection = created;
        let own_notes = result.notes.len();
        loop {
            let changing = self.catalog.changing.lock();
            let existing = collection.indexes();
            result.before = existing.len() as i32 + 1;
            result.notes.truncate(own_notes);
            let fresh = new_specs(&existing, wanted.clone())?;
            if fresh.len() < requests.len() {
                let all_there = fresh.is_empty();
                let note =
                    if all_there { "all indexes already exist" } else { "index already exists" };
                result.notes.push(note);
            }
            if existing.len() + 1 + fresh.len() > limits::MAX_INDEXES_PER_COLLECTION {
                return Err(Error::new(
                    ErrorCode::CannotCreateIndex,
                    format!("add index fails, too many indexes for {ns}"),
                ));
            }
            result.after = result.before + fresh.len() as i32;
            if !fresh.is_empty() {
                let building = self.register_building(&collection, fresh)?;
                drop(changing);
                self.build_indexes(op, &collection, &building)?;
                return Ok(result);
            }
            drop(changing);
            wait_for_builds(op, &collection)?;
            // Unless somebody else's build has failed and taken its index away again.
            if new_specs(&collection.indexes(), wanted.clone())?.is_empty() {
                return Ok(result);
            }
        }
    }

    /// Puts indexes that are not ready into the catalog: from here on every write maintains them.
    pub(crate) fn register_building(
        &self,
        collection: &Collection,
        specs: Vec<IndexSpec>,
    ) -> Result<Vec<Arc<Index>>> {
        let ns = collection.namespace();
        let mut state = collection.state.write();
        if collection.is_dropped() {
            return Err(Error::new(ErrorCode::NamespaceNotFound, format!("{ns} was dropped")));
        }
        let mut changed = state.clone();
        let mut building = Vec::new();
        self.change(|txn, _| {
            changed = state.clone();
            building.clear();
            for spec in &specs {
                let id = self.catalog.new_id(txn)?;
                let index = Arc::new(new_index(id, spec.clone(), &*self.filters)?);
                building.push(index.clone());
                changed.indexes.push(index);
            }
            put_collection(txn, collection.id(), &ns, &collection.uuid(), &changed)
        })?;
        *state = changed;
        Ok(building)
    }

    /// Makes built indexes usable.
    pub(crate) fn finish_building(
        &self,
        collection: &Collection,
        built: &[Arc<Index>],
    ) -> Result<()> {
        let _changing = self.catalog.changing.lock();
        let state = collection.state.write();
        collection.check_alive()?;
        let ns = collection.namespace();
        for index in built {
            index.check_alive()?;
            index.runtime.ready.store(true, Ordering::Release);
        }
        self.change(|txn, oplog| {
            for index in built {
                let mut command = DocBuilder::new();
                command.append("createIndexes", ns.collection()).append_all(index.spec.document());
                oplog.command(&command_ns(&ns), &collection.uuid(), command.finish().as_doc());
            }
            put_collection(txn, collection.id(), &ns, &collection.uuid(), &state)
        })
    }

    /// Drops indexes by position in the state. The caller holds the catalog's lock.
    fn drop_indexes_locked(&self, collection: &Collection, gone: &[Arc<Index>]) -> Result<()> {
        let ns = collection.namespace();
        let mut state = collection.state.write();
        let mut changed = state.clone();
        changed.indexes.retain(|index| !gone.iter().any(|other| other.id == index.id));
        self.change(|txn, oplog| {
            put_collection(txn, collection.id(), &ns, &collection.uuid(), &changed)?;
            for index in gone {
                put_dropped(txn, index.id)?;
                let mut command = DocBuilder::new();
                command.append("dropIndexes", ns.collection()).append("index", index.spec.name());
                oplog.command(&command_ns(&ns), &collection.uuid(), command.finish().as_doc());
            }
            Ok(())
        })?;
        *state = changed;
        // Before any writer leaves out its keys: a reader that finds no mark after its snapshot has them all.
        for index in gone {
            index.runtime.dropped.store(true, Ordering::Release);
        }
        drop(state);
        self.leave_to_sweeper(gone.iter().map(|index| index.id));
        Ok(())
    }

    /// Takes back indexes whose build failed.
    pub(crate) fn abandon_building(
        &self,
        collection: &Collection,
        gone: &[Arc<Index>],
    ) -> Result<()> {
        let _changing = self.catalog.changing.lock();
        if collection.is_dropped() {
            return Ok(());
        }
        self.drop_indexes_locked(collection, gone)
    }

    /// Drops the selected indexes; all but `_id_` when `selectors` is nothing. Gives the count before, `_id_` included.
    ///
    /// # Errors
    /// 26 NamespaceNotFound, 27 IndexNotFound, 72 InvalidOptions for `_id_`.
    pub fn drop_indexes(
        &self,
        ns: &Namespace,
        selectors: Option<&[IndexSelector<'_>]>,
    ) -> Result<i32> {
        let _changing = self.catalog.changing.lock();
        let Some(collection) = self.catalog.get(ns) else {
            return Err(Error::new(ErrorCode::NamespaceNotFound, format!("ns not found {ns}")));
        };
        let existing = collection.indexes();
        let before = existing.len() as i32 + 1;
        let gone = match selectors {
            None => existing,
            Some(selectors) => {
                let mut gone = Vec::new();
                for selector in selectors {
                    gone.push(droppable(&existing, *selector, ns)?);
                }
                gone
            }
        };
        if !gone.is_empty() {
            self.drop_indexes_locked(&collection, &gone)?;
        }
        Ok(before)
    }

    /// Changes the options of one index.
    ///
    /// # Errors
    /// 26, 27, 72, 181 and 2 as the expiry contract's section 3.4 lists them.
    pub fn modify_index(
        &self,
        ns: &Namespace,
        selector: IndexSelector<'_>,
        change: CollModChange,
    ) -> Result<CollModResult> {
        let _changing = self.catalog.changing.lock();
        let Some(collection) = self.catalog.get(ns) else {
            return Err(Error::new(ErrorCode::NamespaceNotFound, "ns does not exist"));
        };
        if is_id_selector(selector) {
            return Err(match change.hidden {
                Some(_) => Error::bad_value("can't hide _id index"),
                None => Error::new(
                    ErrorCode::InvalidOptions,
                    "the _id field does not support TTL indexes",
                ),
            });
        }
        let found = select(&collection.indexes(), selector, ns)?;
        let mut spec = found.spec.clone();
        let mut result = CollModResult::default();
        if let Some(seconds) = change.expire_after {
            if spec.fields().len() > 1 {
                return Err(Error::new(
                    ErrorCode::InvalidOptions,
                    "TTL indexes are single-field indexes, compound indexes do not support TTL",
                ));
            }
            result.expire_after_old = spec.expire_after().map(|old| match old {
                crate::ExpireAfter::Seconds(seconds) => seconds,
                crate::ExpireAfter::Invalid => i32::MAX,
            });
            result.expire_after_new = Some(seconds);
            spec = spec.with_expire_after(seconds);
        }
        if let Some(hidden) = change.hidden
            && hidden != spec.hidden()
        {
            result.hidden = Some((spec.hidden(), hidden));
            spec = spec.with_hidden(hidden);
        }
        self.replace_index(&collection, &found, spec)?;
        Ok(result)
    }

    fn replace_index(&self, collection: &Collection, old: &Index, spec: IndexSpec) -> Result<()> {
        let ns = collection.namespace();
        let mut command = DocBuilder::new();
        command.append("collMod", ns.collection()).start_document("index");
        command.append("name", spec.name());
        if let Some(element) = spec.document().get_element("expireAfterSeconds") {
            command.append_element(element);
        }
        command.append("hidden", spec.hidden());
        let command = command.finish();
        let replacement = Arc::new(Index {
            id: old.id,
            spec,
            filter: old.filter.clone(),
            runtime: old.runtime.clone(),
        });
        let mut state = collection.state.write();
        let mut changed = state.clone();
        for index in &mut changed.indexes {
            if index.id == old.id {
                *index = replacement.clone();
            }
        }
        self.change(|txn, oplog| {
            oplog.command(&command_ns(&ns), &collection.uuid(), command.as_doc());
            put_collection(txn, collection.id(), &ns, &collection.uuid(), &changed)
        })?;
        *state = changed;
        Ok(())
    }

    /// One catalog transaction with its oplog entry; run again on a conflict.
    pub(crate) fn change<T>(
        &self,
        mut body: impl FnMut(&mut dyn Txn, &mut OplogBatch) -> Result<T>,
    ) -> Result<T> {
        let mut tries = 0;
        loop {
            let attempt = self.try_change(&mut body);
            match attempt {
                Err(error) if error.code() == ErrorCode::WriteConflict && tries < 1000 => {
                    tries += 1
                }
                other => return other,
            }
        }
    }

    fn try_change<T>(
        &self,
        body: &mut impl FnMut(&mut dyn Txn, &mut OplogBatch) -> Result<T>,
    ) -> Result<T> {
        let mut txn = self.engine().begin(TxnOptions::default()).map_err(from_kv)?;
        let mut oplog = OplogBatch::new();
        let result = body(&mut *txn, &mut oplog)?;
        if !oplog.is_empty() {
            let now_ms = self.clock.now_ms();
            let timestamp = self.oplog_clock.next(now_ms);
            let entry = oplog.finish(timestamp, now_ms);
            txn.put(Keyspace::Oplog, &timestamp.to_be_bytes(), entry.as_bytes(), Guard::Derived)
                .map_err(from_kv)?;
        }
        if txn.size().1 > 0 {
            txn.commit().map_err(from_kv)?;
            self.note_commit();
        }
        Ok(result)
    }
}

/// Somebody else may still be building what was asked for: it exists when that is over.
fn wait_for_builds(op: &OpCtx, collection: &Collection) -> Result<()> {
    while collection.indexes().iter().any(|index| !index.is_ready()) {
        op.check()?;
        collection.check_alive()?;
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    Ok(())
}

fn command_ns(ns: &Namespace) -> String {
    format!("{}.$cmd", ns.db())
}

pub(crate) fn put_collection(
    txn: &mut dyn Txn,
    id: u64,
    ns: &Namespace,
    uuid: &[u8; 16],
    state: &CollectionState,
) -> Result<()> {
    let document = encode_collection(ns, uuid, state);
    txn.put(Keyspace::Catalog, &catalog_key::collection(id), document.as_bytes(), Guard::Checked)
        .map_err(from_kv)
}

/// The ids of a collection and of its indexes.
fn object_ids(collection: &Collection, state: &CollectionState) -> Vec<u64> {
    let indexes = state.indexes.iter().map(|index| index.id);
    std::iter::once(collection.id()).chain(indexes).collect()
}

/// Takes a collection out of the catalog.
fn put_gone(txn: &mut dyn Txn, collection: &Collection, state: &CollectionState) -> Result<()> {
    txn.delete(Keyspace::Catalog, &catalog_key::collection(collection.id()), Guard::Checked)
        .map_err(from_kv)?;
    object_ids(collection, state).into_iter().try_for_each(|id| put_dropped(txn, id))
}

fn put_dropped(txn: &mut dyn Txn, id: u64) -> Result<()> {
    txn.put(Keyspace::Catalog, &catalog_key::dropped(id), &[], Guard::Checked).map_err(from_kv)
}

/// A random UUID, version 4.
fn new_uuid() -> [u8; 16] {
    let mut uuid: [u8; 16] = rand::random();
    uuid[6] = uuid[6] & 0x0F | 0x40;
    uuid[8] = uuid[8] & 0x3F | 0x80;
    uuid
}

/// Those of the wanted indexes that do not exist yet. Expiry contract, section 1.3.
fn new_specs(existing: &[Arc<Index>], wanted: Vec<IndexSpec>) -> Result<Vec<IndexSpec>> {
    let mut fresh: Vec<IndexSpec> = Vec::new();
    for spec in wanted {
        let known = existing.iter().map(|index| &index.spec).chain(fresh.iter());
        let mut known: Vec<&IndexSpec> = known.collect();
        // An equivalent index is reported before one that only has the name.
        known.sort_by_key(|other| !spec.same_identity(other));
        let mut there = false;
        for other in known {
            if spec.same_definition(other) {
                there = true;
                break;
            }
            check_conflict(&spec, other)?;
        }
        if !there {
            fresh.push(spec);
        }
    }
    Ok(fresh)
}

fn check_conflict(spec: &IndexSpec, other: &IndexSpec) -> Result<()> {
    let both = || {
        format!(
            "Requested index: {}, existing index: {}",
            Shell(spec.document()),
            Shell(other.document())
        )
    };
    let same_name = spec.name() == other.name();
    if spec.same_identity(other) {
        let options_differ =
            spec.expire_after() != other.expire_after() || spec.hidden() != other.hidden();
        let text = match (same_name, options_differ) {
            (false, false) => {
                format!("Index already exists with a different name: {}", other.name())
            }
            (true, _) => format!(
                "An equivalent index already exists with the same name but different options. {}",
                both()
            ),
            (false, true) => format!(
                "An equivalent index already exists with a different name and options. {}",
                both()
            ),
        };
        return Err(Error::new(ErrorCode::IndexOptionsConflict, text));
    }
    if same_name {
        return Err(Error::new(
            ErrorCode::IndexKeySpecsConflict,
            format!(
                "An existing index has the same name as the requested index. When index names are not specified, they \
                 are auto generated and can cause conflicts. Please refer to our documentation. {}",
                both()
            ),
        ));
    }
    Ok(())
}

fn is_id_selector(selector: IndexSelector<'_>) -> bool {
    match selector {
        IndexSelector::Name(name) => name == "_id_",
        IndexSelector::Key(key) => {
            let mut elements = key.iter();
            elements.next().is_some_and(|element| element.name() == "_id")
                && elements.next().is_none()
        }
    }
}

fn same_pattern(spec: &IndexSpec, key: RawDoc<'_>) -> bool {
    let mut fields = spec.fields().iter();
    let same = key.iter().all(|element| {
        fields.next().is_some_and(|field| {
            let descending =
                crate::index_spec::as_f64(element.value()).is_some_and(|number| number < 0.0);
            field.path == element.name() && field.descending == descending
        })
    });
    same && fields.next().is_none()
}

fn select(
    existing: &[Arc<Index>],
    selector: IndexSelector<'_>,
    ns: &Namespace,
) -> Result<Arc<Index>> {
    let (shown, matching): (String, Vec<_>) = match selector {
        IndexSelector::Name(name) => {
            (name.to_owned(), existing.iter().filter(|index| index.spec.name() == name).collect())
        }
        IndexSelector::Key(key) => (
            Shell(key).to_string(),
            existing.iter().filter(|index| same_pattern(&index.spec, key)).collect(),
        ),
    };
    match matching.as_slice() {
        [one] => Ok(Arc::clone(one)),
        [] => Err(Error::new(
            ErrorCode::IndexNotFound,
            format!("cannot find index {shown} for ns {ns}"),
        )),
        several => {
            let names: Vec<String> =
                several.iter().map(|index| Shell(index.spec.document()).to_string()).collect();
            Err(Error::new(
                ErrorCode::AmbiguousIndexKeyPattern,
                format!(
                    "index keyPattern {shown} matches {} indexes, must use index name. Conflicting indexes:{}",
                    several.len(),
                    names.join(",")
                ),
            ))
        }
    }
}

fn droppable(
    existing: &[Arc<Index>],
    selector: IndexSelector<'_>,
    ns: &Namespace,
) -> Result<Arc<Index>> {
    if is_id_selector(selector) {
        return Err(Error::new(ErrorCode::InvalidOptions, "cannot drop _id index"));
    }
    // A pattern may fit several indexes with other options: then only a name says which.
    select(existing, selector, ns).map_err(|error| match (error.code(), selector) {
        (ErrorCode::IndexNotFound, IndexSelector::Name(name)) => {
            Error::new(ErrorCode::IndexNotFound, format!("index not found with name [{name}]"))
        }
        (ErrorCode::IndexNotFound, IndexSelector::Key(key)) => Error::new(
            ErrorCode::IndexNotFound,
            format!("can't find index with key: {}", Shell(key)),
        ),
        _ => error,
    })
}

/// The entry of the `_id` index in listings.
pub(crate) fn id_index_document() -> DocBuf {
    let mut doc = DocBuilder::new();
    doc.append("v", 2).start_document("key").append("_id", RawValue::Int32(1)).end();
    doc.append("name", "_id_");
    doc.finish()
}

impl Collection {
    /// The documents of `listIndexes`, `_id_` first. Indexes being built are listed, as in the reference.
    pub fn list_indexes(&self) -> Vec<DocBuf> {
        let mut list = vec![id_index_document()];
        list.extend(self.indexes().iter().map(|index| index.spec.listed()));
        list
    }
}
