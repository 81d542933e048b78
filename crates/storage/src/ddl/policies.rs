//! Changes of policies: `expireAfterSeconds` and `ttl` of an index. Expiry contract, sections 3 and
//! 9.

use crate::isolation::ReadView;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use mayfly_base::{Error, ErrorCode, Namespace, Result};
use mayfly_value::{RawDoc, RawValue};
use mayfly_work::OpCtx;

use super::change_index::with_spec;
use super::select::{is_id_selector, select};
use super::{CollModChange, IndexSelector, NewExpireAfter};
use crate::Store;
use crate::catalog::{Collection, Index};
use crate::index::spec::{IndexSpec, SpecRules};
use crate::policy::ExpireAfter;
use crate::policy::value::{last_modified_for_collmod, negative};
use crate::policy::{TtlIndexRules, TtlOptions};
use crate::timeseries::check_policy;
use crate::ttl::Census;

impl Store {
    /// The present rules for checks of definitions.
    pub(crate) fn spec_rules(&self) -> SpecRules {
        let params = self.ttl_params();
        let last_modified = params.last_modified.load(Ordering::Relaxed);
        SpecRules { ttl: params.rules(), last_modified, ignore_unknown: false }
    }

    /// Checks the document `ttl` of a collection's own policy.
    ///
    /// # Errors
    /// 72 InvalidOptions.
    pub fn check_collection_policy(&self, ttl: RawValue<'_>, of_time_series: bool) -> Result<()> {
        let options = TtlOptions::parse(ttl)?;
        if of_time_series {
            check_policy(&options)?;
        }
        self.check_archive_place(&options)
    }

    /// Refuses TTL indexes on capped collections by the manual's rules; 8.x servers allow them.
    pub(super) fn check_not_capped(&self, view: &ReadView, ns: &Namespace) -> Result<()> {
        let capped = self.collection(view, ns).is_some_and(|found| found.capped().is_some());
        match self.ttl_params().rules() {
            TtlIndexRules::Manual if capped => Err(Error::new(
                ErrorCode::CannotCreateIndex,
                "Cannot create TTL index on a capped collection",
            )),
            TtlIndexRules::Manual | TtlIndexRules::Mongod8 => Ok(()),
        }
    }

    /// Counts what the index would expire after a change, as a dry run.
    ///
    /// # Errors
    /// Errors of [`Store::modify_index`].
    pub fn dry_run_change(
        &self,
        op: &OpCtx,
        ns: &Namespace,
        selector: IndexSelector<'_>,
        change: CollModChange<'_>,
    ) -> Result<Option<Census>> {
        let Some(collection) = self.catalog.get(ns) else {
            return Err(Error::new(ErrorCode::NamespaceNotFound, "ns does not exist"));
        };
        if is_id_selector(selector) {
            return Err(id_index_change());
        }
        let found = select(&collection.indexes(), selector, ns)?;
        let mut spec = found.spec.clone();
        if let Some(new) = change.expire_after {
            spec = with_new_expire_after(&spec, new, self.spec_rules())?;
        }
        if let Some(ttl) = change.ttl {
            spec = spec.with_ttl_options(ttl);
            self.check_no_circle(ns, &[spec.ttl_options()], &[])?;
        }
        if spec.expire_after().is_none() {
            return Ok(None);
        }
        self.census(op, Some(&collection), spec).map(Some)
    }

    /// The present indexes that differ from requested ones only in their policy, with their new
    /// definitions.
    pub(super) fn changed_policies(
        &self,
        collection: &Collection,
        existing: &[Arc<Index>],
        requested: &[IndexSpec],
    ) -> Result<Vec<(Arc<Index>, Arc<Index>)>> {
        let mut changes = Vec::new();
        for spec in requested {
            let differs = |index: &&Arc<Index>| {
                let old = &index.spec;
                old.same_identity(spec)
                    && old.name() == spec.name()
                    && old.hidden() == spec.hidden()
                    && !old.same_policy(spec)
                    && old.is_last_modified() == spec.is_last_modified()
            };
            let Some(old) = existing.iter().find(differs) else { continue };
            let changed = match spec.expire_after() {
                Some(expire_after) => old.spec.with_expire_after(expire_after),
                // The request is silent about it; only "off" removes a policy.
                None => continue,
            };
            let ttl = spec.document().get("ttl").and_then(RawValue::as_document);
            let changed = changed.with_ttl_options(ttl.unwrap_or(RawDoc::EMPTY));
            self.check_no_circle(&collection.namespace(), &[changed.ttl_options()], &[])?;
            changes.push((old.clone(), with_spec(old, changed)));
        }
        Ok(changes)
    }
}

pub(super) fn id_index_change() -> Error {
    Error::new(ErrorCode::InvalidOptions, "the _id field does not support TTL indexes")
}

pub(super) fn with_new_expire_after(
    spec: &IndexSpec,
    new: NewExpireAfter,
    rules: SpecRules,
) -> Result<IndexSpec> {
    let seconds = match new {
        NewExpireAfter::Seconds(seconds) => seconds,
        NewExpireAfter::Off if spec.is_last_modified() => {
            return Err(Error::new(
                ErrorCode::InvalidOptions,
                "a '_ts' policy cannot become a plain index; drop it",
            ));
        }
        NewExpireAfter::Off => return Ok(spec.without_expire_after()),
    };
    if spec.fields().len() > 1 {
        return Err(Error::new(
            ErrorCode::InvalidOptions,
            "TTL indexes are single-field indexes, compound indexes do not support TTL",
        ));
    }
    if spec.is_last_modified() {
        return Ok(spec.with_expire_after(last_modified_for_collmod(seconds)?));
    }
    if rules.last_modified && spec.fields()[0].path == "_ts" && spec.expire_after().is_none() {
        // Its entries are values of a field, not times of modification.
        return Err(Error::new(
            ErrorCode::InvalidOptions,
            "a plain index on '_ts' cannot become a '_ts' policy; drop it and create it again",
        ));
    }
    if seconds < 0 {
        return Err(negative());
    }
    Ok(spec.with_expire_after(ExpireAfter::Seconds(seconds)))
}

/// Whether many documents may become due at once by this change.
pub(super) fn may_expire_more(old: &IndexSpec, new: &IndexSpec) -> bool {
    let seconds = |spec: &IndexSpec| match spec.expire_after() {
        Some(ExpireAfter::Seconds(seconds)) if !spec.ttl_options().paused => Some(seconds),
        _ => None,
    };
    match (seconds(old), seconds(new)) {
        (_, None) => false,
        (None, Some(_)) => true,
        (Some(old), Some(new)) => new < old,
    }
}
