//! Changes of one index in the catalog by `collMod`.

use crate::isolation::ReadView;
use std::sync::Arc;

use mayfly_base::{Error, ErrorCode, Namespace, Result};
use mayfly_value::shell::Shell;
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue};

use super::indexes::on_buckets;
use super::policies::{id_index_change, may_expire_more, with_new_expire_after};
use super::select::{is_id_selector, select};
use super::sparing::{OpenTransactions, index_change_endangers};
use super::uniqueness::with_unique;
use super::{command_ns, put_collection};
use crate::Store;
use crate::catalog::{Collection, Definition, Index};
use crate::index::kinds;
use crate::index::spec::IndexSpec;
use crate::oplog::LoggedCommand;
use crate::policy::ExpireAfter;
use crate::timeseries::check_policy;

/// A new time to live of an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewExpireAfter {
    /// A number of seconds; -1 for a last-modified policy only.
    Seconds(i32),
    /// The index becomes an ordinary one.
    Off,
}

/// How a command names an index.
#[derive(Clone, Copy)]
pub enum IndexSelector<'a> {
    /// The name of the index.
    Name(&'a str),
    /// The key pattern, which may match several indexes.
    Key(RawDoc<'a>),
}

/// The changes that `collMod` makes to an index.
#[derive(Clone, Copy, Default)]
pub struct CollModChange<'a> {
    /// The new time to live.
    pub expire_after: Option<NewExpireAfter>,
    /// The new document `ttl`, checked before; an empty one removes it.
    pub ttl: Option<RawDoc<'a>>,
    /// Whether the planner ignores the index.
    pub hidden: Option<bool>,
    /// Whether writes may add no second document with a key.
    pub prepare_unique: Option<bool>,
    /// The index becomes a unique one.
    pub unique: bool,
}

impl CollModChange<'_> {
    pub(super) fn concerns_uniqueness_alone(&self) -> bool {
        self.expire_after.is_none() && self.ttl.is_none() && self.hidden.is_none()
    }
}

/// The result of `collMod` for an index.
#[derive(Debug, Default)]
pub struct CollModResult {
    /// The old time to live, if there was one.
    pub expire_after_old: Option<i32>,
    /// The new time to live, if it changed.
    pub expire_after_new: Option<i32>,
    /// Whether the index was hidden before and is after, if that changed.
    pub hidden: Option<(bool, bool)>,
    /// `prepareUnique` before and after, if it changed.
    pub prepare_unique: Option<(bool, bool)>,
    /// Whether the index became unique.
    pub became_unique: bool,
}

impl Store {
    /// Changes the options of one index.
    ///
    /// # Errors
    /// 26, 27, 72, 181 and 2 as the expiry contract's section 3.4 lists them.
    pub fn modify_index(
        &self,
        ns: &Namespace,
        selector: IndexSelector<'_>,
        change: CollModChange<'_>,
    ) -> Result<CollModResult> {
        self.change_sparing(ns, |open| self.try_modify_index(ns, selector, change, open))
    }

    fn try_modify_index(
        &self,
        ns: &Namespace,
        selector: IndexSelector<'_>,
        change: CollModChange<'_>,
        open: OpenTransactions,
    ) -> Result<Option<CollModResult>> {
        let _changing = self.catalog.lock()?;
        let Some(collection) = self.catalog.get(ns) else {
            return Err(Error::new(ErrorCode::NamespaceNotFound, "ns does not exist"));
        };
        // A time series shows no index on `_id`.
        if is_id_selector(selector) && collection.time_series().is_none() {
            let clustered = collection.options().as_doc().get("clusteredIndex").is_some();
            if change.concerns_uniqueness_alone() && !clustered {
                // The index on `_id` is unique already.
                return Ok(Some(CollModResult::default()));
            }
            return Err(match change.hidden {
                _ if clustered => clustered_index_change(ns, selector, change),
                Some(_) => Error::bad_value("can't hide _id index"),
                None => id_index_change(),
            });
        }
        let on_buckets = on_buckets(selector, collection.time_series().as_deref());
        let mapped = on_buckets.as_ref().map(|key| IndexSelector::Key(key.as_doc()));
        let found = select(&collection.indexes(), mapped.unwrap_or(selector), ns)?;
        let (spec, result) = self.changed_spec(&collection, &found, change)?;
        if result.became_unique {
            let text = format!("index '{}' was replaced meanwhile", spec.name());
            return Err(Error::new(ErrorCode::ConflictingOperationInProgress, text));
        }
        let changed = with_spec(&found, spec);
        if open == OpenTransactions::Spare && index_change_endangers(&found, &changed) {
            return Ok(None);
        }
        if result.hidden.is_some() {
            found.runtime.uses.reset();
        }
        self.replace_index(&collection, &found, changed)?;
        Ok(Some(result))
    }

    /// The definition of an index after a change.
    ///
    /// # Errors
    /// 72, 67 and 2 as the expiry contract's section 3.4 lists them.
    pub(super) fn changed_spec(
        &self,
        collection: &Collection,
        found: &Index,
        change: CollModChange<'_>,
    ) -> Result<(IndexSpec, CollModResult)> {
        let mut spec = found.spec.clone();
        let mut result = CollModResult::default();
        if let Some(new) = change.expire_after {
            self.check_not_capped(&ReadView::now(), &collection.namespace())?;
            result.expire_after_old = spec.expire_after().map(ExpireAfter::listed_secs);
            spec = with_new_expire_after(&spec, new, self.spec_rules())?;
            if new != NewExpireAfter::Off {
                result.expire_after_new = spec.expire_after().map(ExpireAfter::listed_secs);
            }
        }
        if let Some(ttl) = change.ttl {
            spec = self.with_checked_ttl_options(collection, &spec, ttl)?;
        }
        if let Some(hidden) = change.hidden
            && hidden != spec.hidden()
        {
            result.hidden = Some((spec.hidden(), hidden));
            spec = spec.with_hidden(hidden);
        }
        if change.prepare_unique.is_some() && collection.time_series().is_some() {
            let text = "option not supported on a time-series collection: prepareUnique";
            return Err(Error::new(ErrorCode::InvalidOptions, text));
        }
        if let Some(prepare_unique) = change.prepare_unique
            && prepare_unique != spec.prepare_unique()
            && !spec.unique()
        {
            if !change.concerns_uniqueness_alone() || change.unique {
                let text = "prepareUnique cannot be combined with any other modification.";
                return Err(Error::new(ErrorCode::InvalidOptions, text));
            }
            result.prepare_unique = Some((spec.prepare_unique(), prepare_unique));
            spec = spec.with_prepare_unique(prepare_unique);
        }
        if change.unique && !spec.unique() {
            spec = with_unique(collection, &spec)?;
            result.became_unique = true;
        }
        if spec.is_log_fed() {
            kinds::request(spec.document(), spec.key())?;
        }
        Ok((spec, result))
    }

    /// The definition with another document `ttl`.
    fn with_checked_ttl_options(
        &self,
        collection: &Collection,
        spec: &IndexSpec,
        ttl: RawDoc<'_>,
    ) -> Result<IndexSpec> {
        if spec.expire_after().is_none() {
            return Err(Error::new(
                ErrorCode::InvalidOptions,
                "'ttl' can be used only together with 'expireAfterSeconds'",
            ));
        }
        if spec.is_inert() {
            return Err(Error::new(
                ErrorCode::InvalidOptions,
                "'ttl' is not supported on an index of this type",
            ));
        }
        let spec = spec.with_ttl_options(ttl);
        if collection.time_series().is_some() {
            check_policy(spec.ttl_options())?;
        }
        self.check_no_circle(&collection.namespace(), &[spec.ttl_options()], &[])?;
        self.check_archive_place(spec.ttl_options())?;
        Ok(spec)
    }

    /// Gives an index another definition with the same entries. The caller holds the catalog's
    /// lock.
    pub(crate) fn change_spec(
        &self,
        collection: &Collection,
        index: &Arc<Index>,
        spec: IndexSpec,
    ) -> Result<()> {
        self.replace_index(collection, index, with_spec(index, spec))
    }

    pub(super) fn replace_index(
        &self,
        collection: &Collection,
        old: &Arc<Index>,
        replacement: Arc<Index>,
    ) -> Result<()> {
        let (ns, spec) = (collection.namespace(), &replacement.spec);
        if may_expire_more(&old.spec, spec) {
            old.runtime.ttl.begin_ramp(self.clock.monotonic_micros());
        }
        let command = coll_mod_command(&ns, &old.spec, spec);
        let mut state = collection.change_state()?;
        let before = options_before(collection, state.options.as_doc(), Some((&old.spec, spec)));
        let mut changed = state.clone();
        for index in &mut changed.indexes {
            if index.id == old.id {
                *index = replacement.clone();
            }
        }
        let endangers = index_change_endangers(old, &replacement);
        let _definition = endangers.then(|| self.definitions.changing(&ns, Definition::Changed));
        self.change(|txn, oplog| {
            let definition = put_collection(txn, collection, &ns, &changed)?;
            let database = command_ns(&ns);
            let logged = LoggedCommand::new(&database, collection.uuid(), command.as_doc());
            oplog.command(logged.changing(before.as_doc()).defining(definition));
            Ok(())
        })?;
        collection.install(&mut state, changed);
        Ok(())
    }
}

/// The options before a change of a collection or of one of its indexes, for readers of the log. Of
/// the index, whose old and new definition are given, those that change.
pub(super) fn options_before(
    collection: &Collection,
    options: RawDoc<'_>,
    index: Option<(&IndexSpec, &IndexSpec)>,
) -> DocBuf {
    let mut out = DocBuilder::new();
    out.start_document("collectionOptions_old");
    out.append("uuid", RawValue::uuid(&collection.uuid()));
    out.append_all(options).end();
    if let Some((old, new)) = index {
        out.start_document("indexOptions_old");
        let listed = old.listed();
        if let Some(seconds) = listed.as_doc().get("expireAfterSeconds")
            && Some(seconds) != new.listed().as_doc().get("expireAfterSeconds")
        {
            out.append("expireAfterSeconds", seconds);
        }
        if old.hidden() != new.hidden() {
            out.append("hidden", old.hidden());
        }
        if old.prepare_unique() != new.prepare_unique() {
            out.append("prepareUnique", old.prepare_unique());
        }
        out.end();
    }
    out.finish()
}

/// The entry of the oplog for a change of an index. It is a command that a replay can run: it
/// contains what changes, and a change of `prepareUnique` stands alone.
pub(super) fn coll_mod_command(ns: &Namespace, old: &IndexSpec, new: &IndexSpec) -> DocBuf {
    let mut command = DocBuilder::new();
    command.append("collMod", ns.collection()).start_document("index");
    command.append("name", new.name());
    let becomes_unique = new.unique() && !old.unique();
    if old.prepare_unique() != new.prepare_unique() && !becomes_unique {
        command.append("prepareUnique", new.prepare_unique());
        return command.finish();
    }
    let mut changes_nothing = !becomes_unique && old.hidden() == new.hidden();
    for name in ["expireAfterSeconds", "ttl"] {
        let (before, after) = (old.document().get(name), new.document().get(name));
        if before == after {
            continue;
        }
        changes_nothing = false;
        match after {
            Some(value) => command.append(name, value),
            None if name == "expireAfterSeconds" => command.append(name, "off"),
            None => &mut command,
        };
    }
    if changes_nothing || old.hidden() != new.hidden() {
        command.append("hidden", new.hidden());
    }
    if becomes_unique {
        command.append("unique", true);
    }
    command.finish()
}

/// A copy of the index with another definition.
pub(super) fn with_spec(index: &Index, spec: IndexSpec) -> Arc<Index> {
    let (filter, runtime) = (index.filter.clone(), index.runtime.clone());
    Arc::new(Index { id: index.id, spec, filter, runtime })
}

/// The error for a change of the index by which a collection is clustered, which is not a separate
/// index. Expiry contract, section 3.4.
fn clustered_index_change(
    ns: &Namespace,
    selector: IndexSelector<'_>,
    change: CollModChange<'_>,
) -> Error {
    if change.hidden.is_some() {
        let text = "The 'hidden' option is not supported for a clusteredIndex";
        return Error::new(ErrorCode(6011800), text);
    }
    let shown = match selector {
        IndexSelector::Name(name) => name.to_owned(),
        IndexSelector::Key(key) => Shell(key).to_string(),
    };
    Error::new(ErrorCode::IndexNotFound, format!("cannot find index {shown} for ns {ns}"))
}
