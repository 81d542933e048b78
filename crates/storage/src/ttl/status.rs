//! The status of policies: `$ttlStats` and `ttlStatus` (expiry contract, section 9, T-74).
//!
//! Due documents are counted by the same scan that a visit makes, so that the reported lag is
//! exact. A count of a million takes a third of a second; [`DueCount::UpTo`] limits it. The scan
//! begins with the oldest documents, so a limited count knows the oldest due one, too.

use std::collections::HashSet;
use std::sync::Arc;

use mayfly_base::Result;
use mayfly_kv::{KeyRange, ScanLimit};
use mayfly_value::keys::{TypeBitsReader, decode_value};
use mayfly_value::{DocBuf, DocBuilder, RawValue};
use mayfly_work::OpCtx;

use crate::Store;
use crate::catalog::{Collection, Policy};
use crate::index::keygen::KeySet;
use crate::read::ScanResult;
use crate::record::RecordKey;
use crate::record::{Moment, Record, RetiredTally};
use crate::ttl::census::eta_secs;
use crate::ttl::rule::Rule;

/// The number of entries that are read in one snapshot.
const BATCH_ENTRIES: usize = 10_000;

/// A cutoff after all dates, with which the scan also visits buckets that are not due.
const ANY: i64 = i64::MAX;

/// How many due documents are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DueCount {
    /// All.
    All,
    /// The count of a policy ends after this many index entries (or records, for a policy without
    /// an index).
    UpTo(usize),
}

/// The status of a policy.
#[derive(Clone, Debug)]
pub struct PolicyStatus {
    /// The collection as `db.collection`.
    pub namespace: String,
    /// The name of the index, or `_id_`.
    pub index: String,
    /// The time to live as it is listed, in seconds.
    pub expire_after_secs: i64,
    /// `index`, `lastModified`, `clustered` or `timeseries`.
    pub kind: &'static str,
    /// The number of documents, or buckets, that are due.
    pub due: i64,
    /// Whether the count ended at its limit, so that more may be due; `None` without a limit.
    pub due_is_limit: Option<bool>,
    /// When the oldest of them became due, in milliseconds since 1970.
    pub due_since: Option<i64>,
    /// When the next one will be due, in milliseconds since 1970.
    pub next_due: Option<i64>,
    /// The number of deletions since the start of the server.
    pub deleted: i64,
    /// The number of examined documents that stayed, by reason.
    pub skipped: Vec<(&'static str, i64)>,
    /// Deletions in a second, averaged over about ten seconds.
    pub rate_per_sec: f64,
    /// The estimated seconds until nothing is due; `None` if the policy deletes nothing.
    pub eta_secs: Option<f64>,
    /// Whether the policy is paused.
    pub paused: bool,
    /// The configured pace in documents and in bytes per second.
    pub pace: (Option<f64>, Option<f64>),
    /// The error of the last visit.
    pub last_error: Option<String>,
    /// Removed documents of the collection that stay until the oplog is cut; `None` if not known,
    /// since a crash.
    pub retired: Option<RetiredTally>,
    /// The present time in milliseconds since 1970.
    pub now_ms: i64,
}

impl PolicyStatus {
    /// For how many seconds the oldest due document has been due.
    pub fn oldest_overdue_secs(&self) -> Option<f64> {
        self.due_since.map(|since| self.now_ms.saturating_sub(since).max(0) as f64 / 1000.0)
    }

    /// Appends the fields of `$ttlStats`.
    pub fn append_to(&self, out: &mut DocBuilder) {
        let number = |value: Option<f64>| value.map_or(RawValue::Null, RawValue::Double);
        out.append("index", self.index.as_str());
        match i32::try_from(self.expire_after_secs) {
            Ok(seconds) if self.kind == "index" || self.kind == "lastModified" => {
                out.append("expireAfterSeconds", seconds);
            }
            _ => {
                out.append("expireAfterSeconds", self.expire_after_secs);
            }
        }
        out.append("kind", self.kind).append("due", self.due);
        if let Some(is_limit) = self.due_is_limit {
            out.append("dueIsLimit", is_limit);
        }
        out.append("oldestOverdueSecs", number(self.oldest_overdue_secs()));
        out.append("nextDue", self.next_due.map_or(RawValue::Null, RawValue::Date));
        out.append("deleted", self.deleted).start_document("skipped");
        for (reason, count) in &self.skipped {
            out.append(reason, *count);
        }
        out.end().append("ratePerSec", self.rate_per_sec).append("etaSecs", number(self.eta_secs));
        out.append(
            "lastError",
            self.last_error.as_deref().map_or(RawValue::Null, RawValue::String),
        );
        if self.paused {
            out.append("paused", true);
        }
        let (docs, bytes) = self.pace;
        for (name, pace) in [("maxDocsPerSec", docs), ("maxBytesPerSec", bytes)] {
            if let Some(pace) = pace {
                out.append(name, pace);
            }
        }
        RetiredTally::append(self.retired, 1, out);
    }
}

/// The result of the test of a record.
#[derive(Default)]
struct RecordTest {
    due: bool,
    /// When a bucket is due.
    at: Option<i64>,
}

impl RecordTest {
    fn at(
        rule: &Rule,
        holding: &[Arc<Policy>],
        record: Record<'_>,
        moment: Moment,
        keys: &mut KeySet,
    ) -> Result<RecordTest> {
        let held = holding.iter().any(|policy| policy.holds(record.document));
        let due = !held && rule.is_due(record, moment, keys)?;
        Ok(RecordTest { due, at: rule.bucket_due_at(record) })
    }
}

/// The due documents of a range.
#[derive(Default)]
struct Due {
    count: i64,
    since: Option<i64>,
    /// When the first document that is not due yet will be.
    next: Option<i64>,
    /// Documents that were counted; a document may have several entries.
    seen: HashSet<RecordKey>,
    /// The number of entries that may still be read.
    left: usize,
    /// Whether the count ended because none were left.
    is_limit: bool,
}

impl Store {
    /// The collections that have policies, ascending by name.
    pub fn collections_with_policies(&self) -> Vec<Arc<Collection>> {
        let mut found = self.collections(None);
        found.retain(|collection| !collection.is_temporary() && collection.has_policies());
        found
    }

    /// The status of a collection's policies, in the order of its indexes.
    ///
    /// # Errors
    /// 175 when the collection is dropped meanwhile; errors of the engine and of the operation's
    /// deadline.
    pub fn ttl_status(
        &self,
        op: &OpCtx,
        collection: &Collection,
        count: DueCount,
    ) -> Result<Vec<PolicyStatus>> {
        let mut statuses = Vec::new();
        let rules = self.ttl_params().rules();
        for policy in collection.ready_policies() {
            let Some(rule) = Rule::now(collection, policy.id, rules) else { continue };
            statuses.push(self.policy_status(op, collection, &rule, count)?);
        }
        Ok(statuses)
    }

    fn policy_status(
        &self,
        op: &OpCtx,
        collection: &Collection,
        rule: &Rule,
        count: DueCount,
    ) -> Result<PolicyStatus> {
        let moment = self.moment();
        let now_micros = self.clock.monotonic_micros();
        let left = match count {
            DueCount::All => usize::MAX,
            DueCount::UpTo(limit) => limit.max(1),
        };
        let mut due = Due { left, ..Due::default() };
        let mut next_due: Option<i64> = None;
        for range in rule.policy().due_ranges(moment) {
            self.count_due(op, collection, rule, range.clone(), moment, &mut due)?;
            let next = self.first_not_due(collection, rule, &range)?;
            next_due = next_due.into_iter().chain(next).min();
        }
        let next_due = next_due.into_iter().chain(due.next).min();
        let policy = rule.policy();
        let runtime = &policy.runtime;
        let rate = runtime.rate(now_micros);
        let limits = runtime.limits(&policy.options, now_micros);
        let enabled = self.ttl_params().enabled.load(std::sync::atomic::Ordering::Relaxed);
        let works = enabled && !policy.options.paused && self.watch.is_trusted();
        let mut skipped = Vec::new();
        let counted = [("refreshed", &runtime.refreshed), ("held", &runtime.held)];
        for (reason, count) in counted {
            let count = count.load(std::sync::atomic::Ordering::Relaxed);
            if count > 0 {
                skipped.push((reason, count));
            }
        }
        Ok(PolicyStatus {
            namespace: collection.namespace().as_str().to_owned(),
            index: policy.name().to_owned(),
            expire_after_secs: policy.listed_secs(),
            kind: rule.kind_name(),
            due: due.count,
            due_is_limit: (count != DueCount::All).then_some(due.is_limit),
            due_since: due.since,
            next_due,
            deleted: runtime.deleted(),
            skipped,
            rate_per_sec: rate,
            eta_secs: works.then(|| eta_secs(due.count, limits, rate)),
            paused: policy.options.paused,
            pace: (policy.options.max_docs_per_sec, policy.options.max_bytes_per_sec),
            last_error: runtime.last_error(),
            retired: self.retired(collection),
            now_ms: moment.now_ms,
        })
    }

    fn count_due(
        &self,
        op: &OpCtx,
        collection: &Collection,
        rule: &Rule,
        mut range: KeyRange,
        moment: Moment,
        due: &mut Due,
    ) -> Result<()> {
        // Entries can be counted instead of documents if each document has one, and none is held.
        let holding = collection.holding();
        let by_entries = rule.has_one_entry_each() && holding.is_empty();
        let mut keys = KeySet::default();
        while !due.is_limit {
            op.check()?;
            collection.check_alive()?;
            rule.check_alive()?;
            let snapshot = self.latest()?;
            let mut found: Vec<(Vec<u8>, RecordKey)> = Vec::new();
            let limit = ScanLimit::rows(BATCH_ENTRIES.min(due.left));
            let scanned =
                rule.scan(&snapshot, collection, &range, limit, ANY, &mut |position, key| {
                    due.left = due.left.saturating_sub(1);
                    // The first entry is the oldest one.
                    if by_entries && (due.since.is_some() || !found.is_empty()) {
                        due.count += 1;
                    } else {
                        found.push((position.to_vec(), key.to_vec()));
                    }
                })?;
            for (position, record_key) in found {
                if by_entries {
                    due.count += 1;
                    due.since = due.since.into_iter().chain(due_at(rule, &position)).min();
                } else if due.seen.insert(record_key.clone()) {
                    let mut looked = RecordTest::default();
                    snapshot.stored_record(collection, &record_key, &mut |record| {
                        looked = RecordTest::at(rule, &holding, record, moment, &mut keys)?;
                        Ok(())
                    })?;
                    let at = looked.at.or(due_at(rule, &position));
                    if looked.due {
                        due.count += 1;
                        due.since = due.since.into_iter().chain(at).min();
                    } else if looked.at.is_some() {
                        due.next = due.next.into_iter().chain(at).min();
                    }
                }
            }
            match scanned {
                ScanResult::Exhausted => break,
                ScanResult::Paused(last) => range = range.after(&last, rule.direction()),
            }
            due.is_limit = due.left == 0;
        }
        Ok(())
    }

    /// When the document of the first entry after the due ones will be due.
    fn first_not_due(
        &self,
        collection: &Collection,
        rule: &Rule,
        due: &KeyRange,
    ) -> Result<Option<i64>> {
        let mut next = None;
        let Some(range) = rule.not_due(due) else { return Ok(None) };
        rule.scan(
            &self.latest()?,
            collection,
            &range,
            ScanLimit::rows(1),
            ANY,
            &mut |position, _| {
                next = due_at(rule, position);
            },
        )?;
        Ok(next)
    }
}

/// When the document of this entry is due.
fn due_at(rule: &Rule, position: &[u8]) -> Option<i64> {
    let (value, _) = decode_value(position, rule.order(), &mut TypeBitsReader::new(&[]))?;
    let seconds = rule.policy().listed_secs();
    match value.as_raw() {
        RawValue::Date(date) => Some(date.saturating_add(seconds.saturating_mul(1000))),
        RawValue::Int32(due) => Some(i64::from(due)),
        RawValue::Int64(due) => Some(due),
        RawValue::Double(due) => Some(due as i64),
        _ => None,
    }
}

impl Store {
    /// Namespace, index and number of due documents of each policy that has any.
    ///
    /// # Errors
    /// As [`Store::ttl_status`].
    pub fn due_by_policy(&self, op: &OpCtx) -> Result<Vec<(String, String, i64)>> {
        let mut found = Vec::new();
        for collection in &self.collections_with_policies() {
            match self.ttl_status(op, collection, DueCount::All) {
                Err(_) if collection.is_dropped() => {}
                Err(error) => return Err(error),
                Ok(statuses) => {
                    let due = statuses.into_iter().filter(|status| status.due > 0);
                    found.extend(due.map(|status| (status.namespace, status.index, status.due)));
                }
            }
        }
        Ok(found)
    }

    /// Appends the reply of `ttlStatus`: all policies, and totals.
    ///
    /// # Errors
    /// As [`Store::ttl_status`].
    pub fn append_ttl_status(
        &self,
        op: &OpCtx,
        count: DueCount,
        reply: &mut DocBuilder,
    ) -> Result<()> {
        let (mut due, mut deleted, mut rate) = (0i64, 0i64, 0f64);
        let mut is_limit = false;
        let mut overdue: Option<f64> = None;
        let mut policies: Vec<DocBuf> = Vec::new();
        for collection in &self.collections_with_policies() {
            let statuses = match self.ttl_status(op, collection, count) {
                Err(error) if collection.is_dropped() => {
                    tracing::debug!(%error, "a collection was dropped during ttlStatus");
                    continue;
                }
                other => other?,
            };
            for status in statuses {
                due += status.due;
                is_limit |= status.due_is_limit == Some(true);
                deleted += status.deleted;
                rate += status.rate_per_sec;
                if let Some(secs) = status.oldest_overdue_secs() {
                    overdue = Some(overdue.map_or(secs, |worst| worst.max(secs)));
                }
                let mut policy = DocBuilder::new();
                policy.append("ns", status.namespace.as_str());
                status.append_to(&mut policy);
                policies.push(policy.finish());
            }
        }
        reply.start_array("policies");
        for policy in &policies {
            reply.push(policy.as_doc());
        }
        reply.end();
        if let Some(suspension) = self.expiry_suspension() {
            reply.start_document("suspended");
            suspension.append_to(reply);
            reply.end();
        }
        reply.start_document("totals").append("policies", policies.len() as i64);
        reply.append("due", due);
        if count != DueCount::All {
            reply.append("dueIsLimit", is_limit);
        }
        reply.append("oldestOverdueSecs", overdue.map_or(RawValue::Null, RawValue::Double));
        reply.append("deleted", deleted).append("ratePerSec", rate).end();
        Ok(())
    }
}
