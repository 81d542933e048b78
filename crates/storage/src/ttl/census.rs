//! A dry run of a policy: what it would delete at once, and which documents never expire and why.
//! It reads all documents and changes nothing.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use mayfly_base::{Namespace, Result};
use mayfly_kv::{Direction, ScanLimit};
use mayfly_value::{DocBuilder, RawDoc, RawValue};
use mayfly_work::OpCtx;

use crate::Store;
use crate::catalog::new_index;
use crate::catalog::{Collection, Index, Policy};
use crate::index::keygen::{KeySet, path_exists, single_values};
use crate::index::spec::{IndexSpec, Requested, SpecRules, in_spec_context};
use crate::policy::PaceLimits;
use crate::policy::{OwnTtl, own_ttl};
use crate::read::{ScanResult, whole_range};
use crate::record::{Moment, Record};

/// The number of records that are read in one snapshot.
const BATCH_RECORDS: usize = 1000;
/// The assumed rate of a policy without a pace, in documents a second, if there is no measurement.
const USUAL_DOCS_PER_SEC: f64 = 50_000.0;

/// The effect that a policy would have on the existing documents.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Census {
    /// The number of documents that are due.
    pub due: i64,
    /// The bytes of the documents that are due.
    pub due_bytes: i64,
    /// The oldest date of a document that is due, in milliseconds since 1970.
    pub oldest: Option<i64>,
    /// The newest date of a document that is due.
    pub newest: Option<i64>,
    /// The number of documents that never expire because they lack the field.
    pub missing: i64,
    /// The number of documents that never expire because the field is no date, by type.
    pub wrong_type: BTreeMap<&'static str, i64>,
    /// The estimated duration of the deletion, in seconds.
    pub eta_secs: f64,
}

impl Census {
    /// Appends the reply of a dry run.
    pub fn append_to(&self, reply: &mut DocBuilder) {
        let date = |date: Option<i64>| date.map_or(RawValue::Null, RawValue::Date);
        reply.append("dryRun", true).append("dueNow", self.due).append("dueBytes", self.due_bytes);
        reply.append("oldest", date(self.oldest)).append("newest", date(self.newest));
        reply.start_document("never").append("missing", self.missing);
        reply.start_document("wrongType");
        for (name, count) in &self.wrong_type {
            reply.append(name, *count);
        }
        reply.end().end().append("etaSecs", self.eta_secs);
    }

    fn add(
        &mut self,
        index: &Index,
        holding: &[Arc<Policy>],
        record: Record<'_>,
        moment: Moment,
        keys: &mut KeySet,
    ) -> Result<()> {
        let document = record.document;
        if !index.covers(document)? {
            return Ok(());
        }
        if index.spec.is_last_modified() {
            self.add_modified(index, record);
        } else {
            self.add_dated(index, document);
        }
        let held = holding.iter().any(|policy| policy.holds(document));
        if held || !index.is_due(record, moment, keys)? {
            return Ok(());
        }
        self.due += 1;
        self.due_bytes += document.as_bytes().len() as i64;
        if let Some(date) = base_date(index, record) {
            self.oldest = Some(self.oldest.map_or(date, |oldest| oldest.min(date)));
            self.newest = Some(self.newest.map_or(date, |newest| newest.max(date)));
        }
        Ok(())
    }

    fn add_dated(&mut self, index: &Index, document: RawDoc<'_>) {
        let parts = &index.spec.fields()[0].parts;
        if !path_exists(document, parts) {
            self.missing += 1;
            return;
        }
        let mut dated = false;
        let mut name = "";
        let arrays = single_values(document, parts, &mut |value| {
            dated |= matches!(value, RawValue::Date(_));
            name = value.type_name();
        });
        if !dated {
            *self.wrong_type.entry(if arrays { "array" } else { name }).or_default() += 1;
        }
    }

    fn add_modified(&mut self, index: &Index, record: Record<'_>) {
        let only_own = index.spec.expire_after() == Some(crate::policy::ExpireAfter::OwnOnly);
        match own_ttl(record.document) {
            OwnTtl::Never => self.missing += 1,
            OwnTtl::Unset if only_own => self.missing += 1,
            OwnTtl::Unset | OwnTtl::Seconds(_) => {}
        }
    }
}

/// The date from which the time to live counts.
fn base_date(index: &Index, record: Record<'_>) -> Option<i64> {
    let mut earliest = None;
    single_values(record.document, &index.spec.fields()[0].parts, &mut |value| {
        if let RawValue::Date(date) = value {
            earliest = Some(earliest.map_or(date, |before: i64| before.min(date)));
        }
    });
    match index.spec.is_last_modified() {
        true => earliest.or(Some(record.modified_ms)),
        false => earliest,
    }
}

/// The estimated duration of the deletion of this many documents, in seconds.
pub(crate) fn eta_secs(due: i64, limits: PaceLimits, measured_per_sec: f64) -> f64 {
    if due == 0 {
        return 0.0;
    }
    let usual = if measured_per_sec > 1.0 { measured_per_sec } else { USUAL_DOCS_PER_SEC };
    due as f64 / limits.docs.unwrap_or(usual)
}

impl Store {
    /// The documents that an index with this definition would expire, as requested from
    /// `createIndexes`.
    ///
    /// # Errors
    /// Errors of `createIndexes` for the definition; 72 when it is no TTL index.
    pub fn dry_run_index(
        &self,
        op: &OpCtx,
        ns: &Namespace,
        request: RawDoc<'_>,
    ) -> Result<Option<Census>> {
        let rules = SpecRules { ignore_unknown: false, ..self.spec_rules() };
        let requested = IndexSpec::request(request, rules);
        let Requested::Index(spec, _) = requested.map_err(|e| in_spec_context(e, request))? else {
            return Ok(None);
        };
        if spec.expire_after().is_none() {
            return Ok(None);
        }
        self.check_no_circle(ns, &[spec.ttl_options()], &[])?;
        let collection = self.catalog.get(ns);
        let default = collection.as_ref().and_then(|collection| collection.collation().cloned());
        self.census(op, collection.as_deref(), spec.inheriting(default.as_ref())).map(Some)
    }

    /// The effect that a policy would have on a collection.
    ///
    /// # Errors
    /// Errors of the operation's deadline and of the engine.
    pub(crate) fn census(
        &self,
        op: &OpCtx,
        collection: Option<&Collection>,
        spec: IndexSpec,
    ) -> Result<Census> {
        let index = new_index(0, spec, &*self.filters)?;
        let mut census = Census::default();
        let moment = self.moment();
        let mut keys = KeySet::default();
        // The policy itself is evaluated by its index.
        let mut holding = collection.map(Collection::holding).unwrap_or_default();
        holding.retain(|policy| policy.name() != index.spec.name());
        let mut range = whole_range();
        while let Some(collection) = collection {
            op.check()?;
            collection.check_alive()?;
            let limit = ScanLimit::rows(BATCH_RECORDS);
            let forward = Direction::Forward;
            let scanned = self.latest()?.scan_stored(
                collection,
                &range,
                forward,
                limit,
                &mut |_, record| {
                    census.add(&index, &holding, record, moment, &mut keys)?;
                    Ok(ControlFlow::Continue(()))
                },
            )?;
            match scanned {
                ScanResult::Exhausted => break,
                ScanResult::Paused(last) => range = range.after(&last, forward),
            }
        }
        let limits = PaceLimits::of(index.spec.ttl_options(), None);
        census.eta_secs = eta_secs(census.due, limits, 0.0);
        Ok(census)
    }
}
