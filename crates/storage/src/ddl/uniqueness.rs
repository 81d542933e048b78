//! Makes an index unique, for `collMod`. Manual: "Convert an Existing Index to a Unique Index".
//!
//! Entries of a unique index have another layout than those of other indexes (file `layout` of
//! `record`), so the index is built again:
//!
//! 1. The entries are scanned for keys of several documents. The index has `prepareUnique`, so
//!    that writers add no such key after the scan.
//! 2. A unique index is built under a new id from the existing documents. Readers use the old one
//!    meanwhile, which writers maintain.
//! 3. One catalog change, which is also the entry in the oplog, replaces the old index by the new
//!    one.
//!
//! After a crash before step 3 the old index remains, because interrupted builds are discarded;
//! after it the index is unique.

use std::ops::ControlFlow;
use std::sync::Arc;

use mayfly_base::{Error, ErrorCode, Namespace, Result};
use mayfly_kv::{Direction, ScanLimit};
use mayfly_value::{DocBuf, DocBuilder, RawValue};
use mayfly_work::OpCtx;

use super::IndexSelector;
use super::build::IfDropped;
use super::change_index::{
    CollModChange, CollModResult, coll_mod_command, options_before, with_spec,
};
use super::command_ns;
use super::indexes::on_buckets;
use super::rebuild::Replaced;
use super::replace::check_no_build;
use super::select::{is_id_selector, select};
use crate::Store;
use crate::catalog::{Collection, CollectionState, Definition, Index};
use crate::index::kinds;
use crate::index::spec::IndexSpec;
use crate::oplog::LoggedCommand;
use crate::read::{Entry, Hidden, ScanResult, Snapshot, whole_range};
use crate::record::RecordKey;
use crate::write::DefinitionChange;

/// The number of entries between two checks of the deadline.
const PAGE_ROWS: usize = if cfg!(test) { 3 } else { 1_000 };
/// The largest size of the listed `_id`s. Further violations are not listed.
const MOST_LISTED_BYTES: usize = 8 << 20;

/// The index that a command makes unique.
type Converted = (Arc<Collection>, Arc<Index>);

impl Store {
    /// Makes an index unique, together with the other changes. An index that is unique already gets
    /// only the other changes.
    ///
    /// # Errors
    /// Errors of [`Store::modify_index`]; 72 InvalidOptions without `prepareUnique`, 359
    /// CannotConvertIndexToUnique with the documents that violate the constraint, 12587 while an
    /// index is being built, errors of the operation's deadline. The index stays as it was.
    pub fn make_index_unique(
        &self,
        op: &OpCtx,
        ns: &Namespace,
        selector: IndexSelector<'_>,
        change: CollModChange<'_>,
    ) -> Result<CollModResult> {
        let Some((collection, old)) = self.not_yet_unique(ns, selector)? else {
            return self.modify_index(ns, selector, change);
        };
        self.forget_abandoned_builds(&collection)?;
        self.changed_spec(&collection, &old, change)?;
        self.check_keys_unique(op, &collection, &old)?;
        let (fresh, before, result) = {
            let _changing = self.lock_catalog_sparing(std::slice::from_ref(ns))?;
            let indexes = collection.indexes();
            check_no_build(&collection, &indexes)?;
            let before = present(&indexes, &old)?.clone();
            let (spec, result) = self.changed_spec(&collection, &before, change)?;
            (self.register_building(&collection, vec![spec])?, before, result)
        };
        let publish = |state: &mut CollectionState| {
            self.publish_unique(&collection, [&before, &fresh[0]], change, state)
        };
        let built = self.build_and(op, &collection, &fresh, IfDropped::GoesOn, publish);
        if let Err(error) = built {
            if error.code() == ErrorCode::DuplicateKey {
                // `prepareUnique` was taken away meanwhile.
                self.check_keys_unique(op, &collection, &old)?;
            }
            return Err(error);
        }
        let (ns, spec) = (collection.namespace(), fresh[0].spec.document());
        self.report_definition(&DefinitionChange::Rebuilt { ns: &ns, spec });
        Ok(result)
    }

    /// Checks whether an index could be made unique, without a change.
    ///
    /// # Errors
    /// Errors of [`Store::make_index_unique`].
    pub fn dry_run_unique(
        &self,
        op: &OpCtx,
        ns: &Namespace,
        selector: IndexSelector<'_>,
        change: CollModChange<'_>,
    ) -> Result<()> {
        let Some((collection, old)) = self.not_yet_unique(ns, selector)? else { return Ok(()) };
        self.changed_spec(&collection, &old, change)?;
        self.check_keys_unique(op, &collection, &old)
    }

    /// The selected index; `None` if it is unique already, or is the one on `_id`.
    fn not_yet_unique(
        &self,
        ns: &Namespace,
        selector: IndexSelector<'_>,
    ) -> Result<Option<Converted>> {
        let Some(collection) = self.catalog.get(ns) else {
            return Err(Error::new(ErrorCode::NamespaceNotFound, "ns does not exist"));
        };
        if is_id_selector(selector) {
            return Ok(None);
        }
        let mapped = on_buckets(selector, collection.time_series().as_deref());
        let selector = mapped.as_ref().map_or(selector, |key| IndexSelector::Key(key.as_doc()));
        let found = select(&collection.indexes(), selector, ns)?;
        Ok((!found.spec.unique()).then_some((collection, found)))
    }

    /// Replaces the index by the unique one. The caller holds the catalog's lock and the state.
    fn publish_unique(
        &self,
        collection: &Collection,
        [before, fresh]: [&Arc<Index>; 2],
        change: CollModChange<'_>,
        state: &mut CollectionState,
    ) -> Result<()> {
        let now = present(&state.indexes, before)?.clone();
        let spec = match now.spec.document() == before.spec.document() {
            true => fresh.spec.clone(),
            false if !now.spec.prepare_unique() => return Err(not_prepared()),
            false if change.concerns_uniqueness_alone() => now.spec.with_unique(),
            false => {
                let text = format!("index '{}' was changed meanwhile", now.spec.name());
                return Err(Error::new(ErrorCode::ConflictingOperationInProgress, text));
            }
        };
        let ns = collection.namespace();
        let command = coll_mod_command(&ns, &now.spec, &spec);
        let logged_before =
            options_before(collection, state.options.as_doc(), Some((&now.spec, &spec)));
        let mut changed = state.clone();
        changed.indexes.retain(|index| index.id != fresh.id);
        for index in changed.indexes.iter_mut().filter(|index| index.id == before.id) {
            *index = with_spec(fresh, spec.clone());
        }
        let fresh = std::slice::from_ref(fresh);
        let definition = Definition::Changed;
        let replaced = Replaced { changed, fresh, gone: vec![now], definition };
        self.publish_replaced(collection, state, replaced, |oplog, definition| {
            let database = command_ns(&ns);
            let logged = LoggedCommand::new(&database, collection.uuid(), command.as_doc());
            oplog.command(logged.changing(logged_before.as_doc()).defining(definition));
        })
    }

    /// Checks that no two visible documents share a key.
    ///
    /// # Errors
    /// 359 CannotConvertIndexToUnique with the `_id`s of those that do.
    fn check_keys_unique(&self, op: &OpCtx, collection: &Collection, index: &Index) -> Result<()> {
        let mut violations = Violations {
            collection,
            snapshot: self.latest()?,
            hidden: Hidden::of(collection, &self.watch, || self.moment()),
            group: Vec::new(),
            listed_bytes: 0,
            out: Vec::new(),
        };
        let mut last = LastEntry::default();
        let (mut range, forward) = (whole_range(), Direction::Forward);
        loop {
            op.check()?;
            let mut page = Vec::new();
            let limit = ScanLimit::rows(PAGE_ROWS);
            let snapshot = &violations.snapshot;
            let scanned = snapshot.scan_index(index, &range, forward, limit, &mut |entry| {
                page.extend(last.shared_with(entry));
                Ok(ControlFlow::Continue(()))
            })?;
            page.iter().try_for_each(|shared| violations.add(shared))?;
            match scanned {
                ScanResult::Paused(last) if violations.listed_bytes < MOST_LISTED_BYTES => {
                    range = range.after(&last, forward);
                }
                _ => return violations.finish(),
            }
        }
    }
}

/// The index in its present definition.
///
/// # Errors
/// 276 IndexBuildAborted if it was dropped or replaced.
fn present<'i>(indexes: &'i [Arc<Index>], old: &Index) -> Result<&'i Arc<Index>> {
    indexes.iter().find(|index| index.id == old.id).ok_or_else(|| {
        let text = format!("Index build aborted: index '{}' was dropped", old.spec.name());
        Error::new(ErrorCode::IndexBuildAborted, text)
    })
}

/// The definition with `unique`.
///
/// # Errors
/// 72 InvalidOptions without `prepareUnique` and on time series; the errors of `createIndexes` for
/// kinds of indexes that cannot be unique.
pub(super) fn with_unique(collection: &Collection, spec: &IndexSpec) -> Result<IndexSpec> {
    if collection.time_series().is_some() {
        let text = "Unique indexes are not supported on time-series collections";
        return Err(Error::new(ErrorCode::InvalidOptions, text));
    }
    let unique = spec.with_unique();
    kinds::request(unique.document(), unique.key())?;
    if unique.is_last_modified() {
        let text = "a '_ts' policy cannot be unique";
        return Err(Error::new(ErrorCode::CannotCreateIndex, text));
    }
    if !spec.prepare_unique() {
        return Err(not_prepared());
    }
    Ok(unique)
}

fn not_prepared() -> Error {
    Error::new(
        ErrorCode::InvalidOptions,
        "Cannot make an index unique without 'prepareUnique'; run collMod with 'prepareUnique: true' first",
    )
}

/// Two records in the order of the index that have the same key.
struct SharedKey {
    /// The first record with the key, if `owner` is the second one.
    first: Option<RecordKey>,
    owner: RecordKey,
}

/// The last entry of a scan.
#[derive(Default)]
struct LastEntry {
    values: Vec<u8>,
    /// Its record; `None` if an earlier entry has the same key.
    first: Option<RecordKey>,
    any: bool,
}

impl LastEntry {
    /// Goes on to the next entry; returns its record if it has the key of the last one.
    fn shared_with(&mut self, entry: Entry<'_>) -> Option<SharedKey> {
        let owner = entry.record_key.to_vec();
        if self.any && self.values == entry.values {
            return Some(SharedKey { first: self.first.take(), owner });
        }
        self.any = true;
        self.values.clear();
        self.values.extend_from_slice(entry.values);
        self.first = Some(owner);
        None
    }
}

/// The keys that several documents have.
struct Violations<'a> {
    collection: &'a Collection,
    snapshot: Snapshot,
    hidden: Hidden,
    /// The `_id`s of the documents that have the present key.
    group: Vec<DocBuf>,
    listed_bytes: usize,
    /// The items of the array `violations`.
    out: Vec<DocBuf>,
}

impl Violations<'_> {
    fn add(&mut self, shared: &SharedKey) -> Result<()> {
        if let Some(first) = &shared.first {
            self.end_group();
            self.add_document(first)?;
        }
        self.add_document(&shared.owner)
    }

    /// Adds a document to the group, unless it is hidden.
    fn add_document(&mut self, record_key: &[u8]) -> Result<()> {
        if self.listed_bytes >= MOST_LISTED_BYTES {
            return Ok(());
        }
        let mut id = None;
        self.snapshot.stored_record(self.collection, record_key, &mut |record| {
            if !self.hidden.hides(record)? {
                let mut only = DocBuilder::new();
                only.append("_id", record.document.get("_id").unwrap_or(RawValue::Null));
                id = Some(only.finish());
            }
            Ok(())
        })?;
        self.listed_bytes += id.as_ref().map_or(0, |id| id.as_bytes().len());
        self.group.extend(id);
        Ok(())
    }

    fn end_group(&mut self) {
        let group = std::mem::take(&mut self.group);
        if group.len() > 1 {
            let mut ids = DocBuilder::new();
            ids.start_array("ids");
            for id in &group {
                ids.push(id.as_doc().get("_id").unwrap_or(RawValue::Null));
            }
            ids.end();
            self.out.push(ids.finish());
        }
    }

    fn finish(mut self) -> Result<()> {
        self.end_group();
        if self.out.is_empty() {
            return Ok(());
        }
        let mut extra = DocBuilder::new();
        extra.start_array("violations");
        for violation in &self.out {
            extra.push(RawValue::Document(violation.as_doc()));
        }
        extra.end();
        let text = "Cannot convert the index to unique. Please resolve conflicting documents before running \
                    collMod again.";
        let error = Error::new(ErrorCode::CannotConvertIndexToUnique, text);
        Err(error.with_extra(extra.finish().into_bytes()))
    }
}
