//! Changes of indexes in the catalog: create, drop.

use crate::isolation::ReadView;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use mayfly_base::{Error, ErrorCode, Namespace, Result};
use mayfly_buckets::TimeSeries;
use mayfly_kv::{Direction, ScanLimit};
use mayfly_value::shell::Shell;
use mayfly_value::{Collation, DocBuf, DocBuilder, RawDoc, RawValue, same_collation};
use mayfly_work::current::Current;
use mayfly_work::{OpCtx, current};

use super::change_index::IndexSelector;
use super::select::{droppable, is_id_selector, new_specs, without_replacements};
use super::sparing::{
    OpenTransactions, index_change_endangers, index_shows_other_documents,
    spec_shows_other_documents,
};
use super::{command_ns, log_index, put_collection, put_dropped};
use crate::Store;
use crate::catalog::{Collection, CollectionState, Definition, Index, new_index};
use crate::index::spec::{IndexSpec, Requested, SpecRules, in_spec_context};
use crate::oplog::LoggedCommand;
use crate::policy::TtlIndexRules;
use crate::read::whole_range;
use crate::timeseries::{checked_on_buckets, listed_for_clients};
use crate::write::DefinitionChange;

/// The most indexes on one collection, including `_id_`.
const MAX_INDEXES: usize = 64;

/// The result of `createIndexes`.
#[derive(Debug, Default)]
pub struct CreateIndexesResult {
    /// The number of indexes before, including `_id_`.
    pub before: i32,
    /// The number of indexes after, including `_id_`.
    pub after: i32,
    /// Whether the collection was created.
    pub created_collection: bool,
    /// Notes for the reply.
    pub notes: Vec<&'static str>,
    /// Names of the indexes whose policy was changed in place.
    pub updated: Vec<String>,
    /// Whether one of the policies is a last-modified one.
    pub last_modified: bool,
}

/// Options of `createIndexes` for definitions that are not accepted as they are.
#[derive(Clone, Copy, Default)]
pub struct CreateIndexesOptions {
    /// Drop unknown options instead of refusing them.
    pub ignore_unknown: bool,
    /// Changes an index that differs only in its policy in place.
    pub update_policies: bool,
}

impl Store {
    /// Creates indexes, and the collection if there is none. New indexes are built from the
    /// existing documents while writers continue; either all of them become usable at once, or none
    /// remains.
    ///
    /// # Errors
    /// 67, 85, 86, 197 and further codes for bad definitions; 11000 when a unique index finds
    /// duplicates.
    pub fn create_indexes(
        &self,
        (op, view): (&OpCtx, &ReadView),
        ns: &Namespace,
        requests: &[RawDoc<'_>],
        options: CreateIndexesOptions,
    ) -> Result<CreateIndexesResult> {
        loop {
            op.check()?;
            if let Some(result) = self.try_create_indexes((op, view), ns, requests, options)? {
                return Ok(result);
            }
        }
    }

    /// As [`Store::create_indexes`]; returns `None` if the collection was dropped or replaced
    /// before anything happened.
    fn try_create_indexes(
        &self,
        (op, view): (&OpCtx, &ReadView),
        ns: &Namespace,
        requests: &[RawDoc<'_>],
        options: CreateIndexesOptions,
    ) -> Result<Option<CreateIndexesResult>> {
        if let Some(collection) = self.catalog.get(ns) {
            self.forget_abandoned_builds(&collection)?;
        }
        let series = self.time_series_not_hidden(view, ns);
        let mut rules = SpecRules { ignore_unknown: options.ignore_unknown, ..self.spec_rules() };
        if series.is_some() {
            // Both rules make it an error here, and measurements have no time of modification.
            rules.ttl = TtlIndexRules::Mongod8;
            rules.last_modified = false;
        }
        let mut specs = Vec::with_capacity(requests.len());
        let mut id_collations = Vec::new();
        let mut result = CreateIndexesResult::default();
        for request in requests {
            match IndexSpec::request(*request, rules).map_err(|e| in_spec_context(e, *request))? {
                Requested::Id(_) if series.is_some() => {
                    return Err(Error::not_implemented("an index on '_id' of measurements"));
                }
                Requested::Id(collation) => id_collations.extend(collation),
                Requested::Index(spec, note) => {
                    let spec = match &series {
                        Some((_, series)) => {
                            let filters = self.filters.as_ref();
                            Box::new(checked_on_buckets(&spec, &series.fields, filters)?)
                        }
                        None => spec,
                    };
                    // Checked before a collection is created, which an invalid filter must not
                    // leave.
                    if let Some(filter) = spec.partial_filter() {
                        self.filters.compile(filter, spec.collation())?;
                    }
                    // The same for a policy that archives in a circle.
                    if self.collection(view, ns).is_none() {
                        self.check_no_circle(ns, &[spec.ttl_options()], &[])?;
                    }
                    self.check_archive_place(spec.ttl_options())?;
                    if spec.expire_after().is_some() {
                        self.check_not_capped(view, ns)?;
                    }
                    result.notes.extend(note);
                    result.last_modified |= spec.is_last_modified();
                    specs.push(*spec);
                }
            }
        }
        let (collection, created) = match series {
            Some((buckets, _)) => (buckets, false),
            None => self.get_or_create(view, ns)?,
        };
        result.created_collection = created;
        let own = collection.counts_id_index();
        check_id_collations(&collection, &id_collations)?;
        let specs: Vec<IndexSpec> =
            specs.into_iter().map(|spec| spec.inheriting(collection.collation())).collect();
        for spec in &specs {
            if let Some(kind) = spec.kind().special() {
                let checked = kind.check_in_collection(spec);
                let checked = checked.and_then(|()| self.check_log_fed(ns, spec));
                checked.map_err(|e| in_spec_context(e, spec.document()))?;
            }
        }
        let own_notes = result.notes.len();
        let mut open = OpenTransactions::Spare;
        loop {
            let changing = self.lock_catalog(view)?;
            if collection.is_dropped() {
                return Ok(None);
            }
            let existing = collection.indexes();
            result.before = existing.len() as i32 + own;
            result.notes.truncate(own_notes);
            let policies = match options.update_policies {
                true => self.changed_policies(&collection, &existing, &specs)?,
                false => Vec::new(),
            };
            let endangers = policies.iter().any(|(old, new)| index_change_endangers(old, new))
                || specs.iter().any(spec_shows_other_documents);
            if endangers && open == OpenTransactions::Spare && !view.in_transaction() {
                drop(changing);
                self.definitions.open.await_end(&[collection.namespace()])?;
                open = OpenTransactions::Ended;
                continue;
            }
            for (old, new) in policies {
                result.updated.push(new.spec.name().to_owned());
                self.replace_index(&collection, &old, new)?;
            }
            let existing = collection.indexes();
            let fresh = new_specs(&existing, specs.clone())?;
            for spec in &fresh {
                self.check_no_circle(&collection.namespace(), &[spec.ttl_options()], &[])?;
            }
            if fresh.len() < requests.len() {
                let all_there = fresh.is_empty();
                let note =
                    if all_there { "all indexes already exist" } else { "index already exists" };
                result.notes.push(note);
            }
            if existing.len() + 1 + fresh.len() > MAX_INDEXES {
                return Err(Error::new(
                    ErrorCode::CannotCreateIndex,
                    format!("add index fails, too many indexes for {ns}"),
                ));
            }
            result.after = result.before + fresh.len() as i32;
            if !fresh.is_empty() && view.in_transaction() {
                self.add_in_transaction(view, &collection, fresh)?;
                return Ok(Some(result));
            }
            if !fresh.is_empty() {
                self.check_user_namespace(collection.namespace().as_str())?;
                let building = self.register_building(&collection, fresh)?;
                drop(changing);
                self.build_indexes(op, &collection, &building)?;
                return Ok(Some(result));
            }
            drop(changing);
            wait_for_builds(op, &collection)?;
            // If the build of another command has failed, the index is missing.
            if new_specs(&collection.indexes(), specs.clone())?.is_empty() {
                return Ok(Some(result));
            }
        }
    }

    /// Adds indexes to a collection that the open transaction has created and not written to, so
    /// that there is nothing to build.
    fn add_in_transaction(
        &self,
        view: &ReadView,
        collection: &Collection,
        specs: Vec<IndexSpec>,
    ) -> Result<()> {
        let ns = collection.namespace();
        let refused = |what: &str| {
            let text = format!(
                "Cannot create new indexes on {what} collection {ns} in a multi-document transaction."
            );
            Err(Error::new(ErrorCode::OperationNotSupportedInTransaction, text))
        };
        if !view.open().is_some_and(|open| open.local().made(collection)) {
            return refused("existing");
        }
        let snapshot = self.snapshot(view)?;
        let (all, forward) = (whole_range(), Direction::Forward);
        let first = ScanLimit::rows(1);
        let mut empty = true;
        snapshot.scan_stored(collection, &all, forward, first, &mut |_, _| {
            empty = false;
            Ok(ControlFlow::Break(()))
        })?;
        drop(snapshot);
        if !empty {
            return refused("non-empty");
        }
        let mut state = collection.change_state()?;
        let mut changed = state.clone();
        self.change_in(view, |txn, oplog| {
            for spec in &specs {
                let index = new_index(self.new_id()?, spec.clone(), &*self.filters)?;
                index.runtime.ready.store(true, Ordering::Release);
                if spec.expire_after().is_some() {
                    index.runtime.ttl.begin_ramp(self.clock.monotonic_micros());
                }
                changed.indexes.push(Arc::new(index));
            }
            let definition = put_collection(txn, collection, &ns, &changed)?;
            for spec in &specs {
                log_index(oplog, &ns, collection.uuid(), spec, &definition);
            }
            Ok(())
        })?;
        collection.install(&mut state, changed);
        Ok(())
    }

    /// Registers indexes that are not ready in the catalog: from then on every write leaves notes
    /// for their build.
    pub(crate) fn register_building(
        &self,
        collection: &Collection,
        specs: Vec<IndexSpec>,
    ) -> Result<Vec<Arc<Index>>> {
        let ns = collection.namespace();
        let mut state = collection.change_state()?;
        if collection.is_dropped() {
            return Err(Error::new(ErrorCode::NamespaceNotFound, format!("{ns} was dropped")));
        }
        let mut changed = state.clone();
        let mut building = Vec::new();
        let _definition = self.definitions.changing(&ns, Definition::Building);
        self.change(|txn, _| {
            changed = state.clone();
            building.clear();
            for spec in &specs {
                let id = self.new_id()?;
                let index = Arc::new(new_index(id, spec.clone(), &*self.filters)?);
                index.runtime.visible_since.store(u64::MAX, Ordering::Release);
                if spec.expire_after().is_some() {
                    index.runtime.ttl.begin_ramp(self.clock.monotonic_micros());
                }
                building.push(index.clone());
                changed.indexes.push(index);
            }
            put_collection(txn, collection, &ns, &changed)
        })?;
        self.leave_to_build(&building);
        collection.install(&mut state, changed);
        for index in &building {
            let spec = index.spec.document();
            self.report_definition(&DefinitionChange::BuildBegun { ns: &ns, spec });
        }
        Ok(building)
    }

    /// Publishes built indexes. The caller holds the catalog's lock and the state.
    pub(super) fn publish_built(
        &self,
        collection: &Collection,
        state: &CollectionState,
        built: &[Arc<Index>],
    ) -> Result<()> {
        let ns = collection.namespace();
        let what = match built.iter().any(index_shows_other_documents) {
            true => Definition::Changed,
            false => Definition::IndexAdded,
        };
        let definition = self.definitions.changing(&ns, what);
        mark_ready(built);
        let changed = self.change_begun(|txn, oplog| {
            let definition = put_collection(txn, collection, &ns, state)?;
            for index in built {
                log_index(oplog, &ns, collection.uuid(), &index.spec, &definition);
            }
            Ok(())
        });
        changed.inspect_err(|_| mark_unready(built))?;
        show_since(built, definition.end());
        Ok(())
    }

    /// Drops these indexes. The caller holds the catalog's lock.
    pub(crate) fn drop_indexes_locked(
        &self,
        collection: &Collection,
        gone: &[Arc<Index>],
        what: Definition,
    ) -> Result<()> {
        let ns = collection.namespace();
        let mut state = collection.change_state()?;
        let mut changed = state.clone();
        changed.indexes.retain(|index| !gone.iter().any(|other| other.id == index.id));
        let _definition = self.definitions.changing(&ns, what);
        self.change_begun(|txn, oplog| {
            let definition = put_collection(txn, collection, &ns, &changed)?;
            let database = command_ns(&ns);
            for index in gone {
                put_dropped(txn, index.id)?;
                let mut command = DocBuilder::new();
                command.append("dropIndexes", ns.collection()).append("index", index.spec.name());
                command.append("spec", &index.spec.listed());
                let command = command.finish();
                let logged = LoggedCommand::new(&database, collection.uuid(), command.as_doc());
                oplog.command(logged.defining(definition.clone()));
            }
            Ok(())
        })?;
        collection.install(&mut state, changed);
        // Set before any writer skips the index's keys: a reader whose later check finds no mark
        // has read all of them.
        for index in gone {
            index.runtime.dropped.store(true, Ordering::Release);
        }
        drop(state);
        self.leave_to_sweeper(gone.iter().map(|index| index.id));
        Ok(())
    }

    /// Drops indexes whose build failed.
    pub(crate) fn abandon_building(
        &self,
        collection: &Collection,
        gone: &[Arc<Index>],
    ) -> Result<()> {
        // Runs outside the operation, so that it is done also when the operation must end.
        let _outside = current::enter(Current::default());
        let _changing = self.catalog.lock()?;
        if collection.is_dropped() {
            return Ok(());
        }
        // Some of them may have been dropped meanwhile.
        let mut left = collection.indexes();
        left.retain(|index| gone.iter().any(|gone| gone.id == index.id));
        match left.is_empty() {
            true => Ok(()),
            false => self.drop_indexes_locked(collection, &left, Definition::Building),
        }
    }

    /// Drops the selected indexes, or all except `_id_` if `selectors` is `None`. Returns the
    /// number of indexes before, including `_id_`.
    ///
    /// # Errors
    /// 26 NamespaceNotFound, 27 IndexNotFound, 72 InvalidOptions for `_id_`.
    pub fn drop_indexes(
        &self,
        ns: &Namespace,
        selectors: Option<&[IndexSelector<'_>]>,
    ) -> Result<i32> {
        let _changing = self.lock_catalog_sparing(std::slice::from_ref(ns))?;
        let series = self.time_series_not_hidden(&ReadView::now(), ns);
        let named = series.as_ref().map(|(buckets, _)| buckets.clone());
        let Some(collection) = named.or_else(|| self.catalog.get(ns)) else {
            self.check_no_view(&ReadView::now(), ns)?;
            return Err(Error::new(ErrorCode::NamespaceNotFound, format!("ns not found {ns}")));
        };
        let existing = collection.indexes();
        let before = existing.len() as i32 + collection.counts_id_index();
        let gone = match selectors {
            None => existing,
            Some(selectors) => {
                let mut gone = Vec::new();
                for selector in selectors {
                    let on_buckets = on_buckets(*selector, series.as_ref().map(|(_, s)| &**s));
                    let mapped = on_buckets.as_ref().map(|key| IndexSelector::Key(key.as_doc()));
                    let selector = mapped.unwrap_or(*selector);
                    if is_id_selector(selector) && collection.counts_id_index() == 0 {
                        let text = "cannot drop the clusteredIndex";
                        return Err(Error::new(ErrorCode(5_979_800), text));
                    }
                    gone.push(droppable(&existing, selector, ns)?);
                }
                gone
            }
        };
        if !gone.is_empty() {
            self.check_user_namespace(collection.namespace().as_str())?;
            self.drop_indexes_locked(&collection, &gone, Definition::Changed)?;
        }
        Ok(before)
    }
}

/// Makes transactions use the indexes from this edition of the definitions on.
pub(super) fn show_since(indexes: &[Arc<Index>], edition: u64) {
    for index in indexes {
        index.runtime.visible_since.store(edition, Ordering::Release);
    }
}

/// Marks the indexes as ready. The caller holds the state exclusively.
pub(super) fn mark_ready(indexes: &[Arc<Index>]) {
    indexes.iter().for_each(|index| index.runtime.ready.store(true, Ordering::Release));
}

/// Takes [`mark_ready`] back, because the catalog change failed.
pub(super) fn mark_unready(indexes: &[Arc<Index>]) {
    indexes.iter().for_each(|index| index.runtime.ready.store(false, Ordering::Release));
}

/// The key pattern over buckets for a key pattern over measurements.
pub(super) fn on_buckets(
    selector: IndexSelector<'_>,
    series: Option<&TimeSeries>,
) -> Option<DocBuf> {
    match selector {
        IndexSelector::Key(key) => Some(series?.fields.key_on_buckets(key)),
        IndexSelector::Name(_) => None,
    }
}

/// Waits for builds of other commands, which may create the requested indexes.
fn wait_for_builds(op: &OpCtx, collection: &Collection) -> Result<()> {
    while collection.indexes().iter().any(|index| !index.is_ready()) {
        op.check()?;
        collection.check_alive()?;
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    Ok(())
}

/// Checks that the index on `_id` is not requested with another collation than the collection's.
fn check_id_collations(
    collection: &Collection,
    requested: &[Option<Arc<Collation>>],
) -> Result<()> {
    let shown = |collation: Option<&Arc<Collation>>| match collation {
        Some(collation) => Shell(collation.document()).to_string(),
        None => "{ locale: \"simple\" }".to_owned(),
    };
    let own = collection.collation();
    match requested.iter().find(|requested| !same_collation(requested.as_ref(), own)) {
        None => Ok(()),
        Some(other) => Err(Error::bad_value(format!(
            "The _id index must have the same collation as the collection. Index collation: {}, collection collation: {}",
            shown(other.as_ref()),
            shown(own)
        ))),
    }
}

/// The definition of the index on `_id` in listings.
pub(crate) fn id_index_document(collation: Option<&Arc<Collation>>) -> DocBuf {
    let mut doc = DocBuilder::new();
    doc.append("v", 2).start_document("key").append("_id", RawValue::Int32(1)).end();
    doc.append("name", "_id_");
    if let Some(collation) = collation {
        doc.append("collation", collation.document());
    }
    doc.finish()
}

impl Collection {
    /// The documents of `listIndexes` for the time series with these buckets.
    pub fn list_measurement_indexes(&self) -> Vec<DocBuf> {
        self.listed_indexes().iter().filter_map(|index| listed_for_clients(&index.spec)).collect()
    }

    /// All indexes except those whose failed build could not be removed yet, and those that are
    /// being built to replace another one.
    fn listed_indexes(&self) -> Vec<Arc<Index>> {
        let mut indexes = without_replacements(&self.indexes());
        indexes.retain(|index| !index.runtime.abandoned.load(Ordering::Acquire));
        indexes
    }

    /// The documents of `listIndexes`, `_id_` first. Indexes being built are listed, as in the
    /// reference.
    pub fn list_indexes(&self) -> Vec<DocBuf> {
        let options = self.options();
        if self.time_series().is_some() {
            // Buckets are in the order of their start, for which no index is listed.
            return self.listed_indexes().iter().map(|index| index.spec.listed()).collect();
        }
        let clustered = options.as_doc().get("clusteredIndex").and_then(RawValue::as_document);
        let mut list = vec![match clustered {
            None => id_index_document(self.collation()),
            Some(index) => {
                let mut shown = DocBuilder::new();
                shown.append_all(index).append("clustered", true);
                shown.finish()
            }
        }];
        list.extend(self.listed_indexes().iter().map(|index| index.spec.listed()));
        list
    }
}
