//! Rules: a policy as it is at the start of a visit, with its scan and its test of documents.
//!
//! ```text
//! policy     scans                                   a document is due when
//! index      the index, from the oldest date up      one of its keys is a date up to the cutoff
//! clustered  records, `_id` from 1970-01-01 up       its `_id` is a date from there up to the cutoff
//! buckets    records, from the earliest start up     all of its measurements are due
//! ```
//!
//! `ttlIndexRules` decides when all measurements of a bucket are due: by default when its latest
//! measurement is, under `mongod8` when the whole span of the bucket has passed since its start. An
//! index over buckets uses the same test.
//!
//! A rule only finds documents; [`crate::ttl::visit`] deletes them. Expiry contract, sections 4 and
//! 7.2.

use std::ops::ControlFlow;
use std::sync::Arc;

use mayfly_base::Result;
use mayfly_buckets::{BucketView, TimeSeries};
use mayfly_kv::{Direction, KeyRange, ScanLimit};
use mayfly_value::shell::Shell;
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue, SortOrder};

use crate::catalog::{Collection, Policy, PolicySource, TimeToLive};
use crate::index::keygen::KeySet;
use crate::index::range::between;
use crate::policy::TtlIndexRules;
use crate::read::{ScanResult, Snapshot};
use crate::record::{Moment, Record};
use crate::write::WriteUnit;

/// A policy as it is when a visit begins.
#[derive(Clone)]
pub(super) struct Rule {
    policy: Arc<Policy>,
    /// The test of buckets, for a time series.
    span: Option<BucketSpan>,
}

/// The test whether a bucket is due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BucketSpan {
    time: String,
    /// The span that must have passed since its start; `None` if its latest measurement decides.
    since_start_ms: Option<i64>,
}

impl BucketSpan {
    fn of(series: &TimeSeries, rules: TtlIndexRules) -> BucketSpan {
        let since_start_ms = match rules {
            TtlIndexRules::Manual => None,
            TtlIndexRules::Mongod8 => Some(series.max_span_secs * 1000),
        };
        BucketSpan { time: series.fields.time.clone(), since_start_ms }
    }

    fn is_due(&self, bucket: RawDoc<'_>, cutoff: i64) -> bool {
        self.decides(bucket).is_some_and(|date| date <= cutoff)
    }

    /// The date from which the time to live of a bucket counts.
    fn decides(&self, bucket: RawDoc<'_>) -> Option<i64> {
        let view = BucketView::new(bucket).ok()?;
        match (view.bounds(&self.time), self.since_start_ms) {
            (Some((_, RawValue::Date(latest))), None) => Some(latest),
            (Some((RawValue::Date(start), _)), Some(span)) => Some(start.saturating_add(span)),
            _ => None,
        }
    }
}

impl Rule {
    /// The present policy with this id; `None` if it no longer exists or is not usable.
    pub(super) fn now(collection: &Collection, id: u64, rules: TtlIndexRules) -> Option<Rule> {
        let policy = collection.policy(id)?;
        let usable = policy.expire_after != TimeToLive::Invalid;
        usable.then(|| Rule {
            policy,
            span: collection.time_series().map(|series| BucketSpan::of(&series, rules)),
        })
    }

    /// The policy of the rule.
    pub(super) fn policy(&self) -> &Arc<Policy> {
        &self.policy
    }

    /// Whether the policy has not changed when the unit runs.
    pub(super) fn holds_in(&self, unit: &WriteUnit<'_>) -> bool {
        unit.policy(self.policy.id).is_some_and(|now| now.is_same_as(&self.policy))
    }

    /// When a bucket is due; `None` for a record that is no bucket.
    pub(super) fn bucket_due_at(&self, record: Record<'_>) -> Option<i64> {
        let date = self.span.as_ref()?.decides(record.document)?;
        Some(date.saturating_add(self.policy.listed_secs().saturating_mul(1000)))
    }

    /// The `planSummary` of a visit.
    pub(super) fn plan_summary(&self) -> String {
        match self.policy.index() {
            Some(index) => format!("IXSCAN {}", Shell(index.spec.key())),
            None => "CLUSTERED_IXSCAN".to_owned(),
        }
    }

    /// The equivalent `delete` command, for `currentOp` and the profiler.
    pub(super) fn delete_command(&self, db: &str, collection: &str, cutoff: i64) -> DocBuf {
        let mut command = DocBuilder::new();
        command.append("delete", collection).start_array("deletes").push_document();
        command.start_document("q");
        match &self.policy.source {
            PolicySource::Index(index) => {
                command.start_document(&index.spec.fields()[0].path);
            }
            PolicySource::Collection => {
                command.start_document("_id").append("$gte", RawValue::Date(0));
            }
            PolicySource::TimeSeries(series) => {
                command.start_document(&format!("control.max.{}", series.fields.time));
            }
        }
        command.append("$lte", RawValue::Date(cutoff)).end().end();
        command.append("limit", 0).end().end().append("$db", db);
        command.finish()
    }

    /// The direction of the scan, in which the oldest entry is first.
    pub(super) fn direction(&self) -> Direction {
        match self.order() {
            SortOrder::Ascending => Direction::Forward,
            SortOrder::Descending => Direction::Backward,
        }
    }

    /// The order of the entries' due times.
    pub(super) fn order(&self) -> SortOrder {
        self.policy.index().map_or(SortOrder::Ascending, |index| index.spec.fields()[0].order)
    }

    /// The range of values of the same type that are not due yet.
    pub(super) fn not_due(&self, due: &KeyRange) -> Option<KeyRange> {
        let order = self.order();
        let first = RawValue::Date(i64::MIN);
        let dates = between(first, RawValue::Date(i64::MAX), order);
        let whole = match dates.start <= due.start && due.start < dates.end {
            true => dates,
            false => between(RawValue::Int64(i64::MIN), RawValue::Int64(i64::MAX), order),
        };
        let later = match order {
            SortOrder::Ascending => KeyRange { start: due.end.clone(), end: whole.end },
            SortOrder::Descending => KeyRange { start: whole.start, end: due.start.clone() },
        };
        (!later.is_empty()).then_some(later)
    }

    /// Visits the positions in the range that may be due, with their records.
    pub(super) fn scan(
        &self,
        snapshot: &Snapshot,
        collection: &Collection,
        range: &KeyRange,
        limit: ScanLimit,
        cutoff: i64,
        see: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<ScanResult> {
        let direction = self.direction();
        match (&self.policy.source, &self.span) {
            (PolicySource::Index(index), _) => {
                snapshot.scan_index(index, range, direction, limit, &mut |entry| {
                    see(entry.position, entry.record_key);
                    Ok(ControlFlow::Continue(()))
                })
            }
            // Each source has an open bucket near the cutoff. Buckets that are not due are skipped
            // without a lock.
            (_, Some(span)) => {
                snapshot.scan_stored(collection, range, direction, limit, &mut |key, stored| {
                    if span.is_due(stored.document, cutoff) {
                        see(key, key);
                    }
                    Ok(ControlFlow::Continue(()))
                })
            }
            (_, None) => {
                snapshot.scan_stored(collection, range, direction, limit, &mut |key, _| {
                    see(key, key);
                    Ok(ControlFlow::Continue(()))
                })
            }
        }
    }

    /// Whether the document is due now, and the rule covers it.
    pub(super) fn is_due(
        &self,
        record: Record<'_>,
        moment: Moment,
        keys: &mut KeySet,
    ) -> Result<bool> {
        let Some(span) = &self.span else { return self.policy.is_due(record, moment, keys) };
        match self.policy.index() {
            Some(index) if !index.covers(record.document)? => Ok(false),
            _ => Ok(span.is_due(record.document, self.policy.cutoff(moment))),
        }
    }

    /// Returns 175 when the index was dropped.
    pub(super) fn check_alive(&self) -> Result<()> {
        self.policy.index().map_or(Ok(()), |index| index.check_alive())
    }

    /// The kind of the policy in `$ttlStats`.
    pub(super) fn kind_name(&self) -> &'static str {
        match &self.policy.source {
            PolicySource::Index(index) if index.spec.is_last_modified() => "lastModified",
            PolicySource::Index(_) => "index",
            PolicySource::Collection => "clustered",
            PolicySource::TimeSeries(_) => "timeseries",
        }
    }

    /// Whether each document has exactly one entry in the scanned range.
    pub(super) fn has_one_entry_each(&self) -> bool {
        match &self.policy.source {
            // A document with a date and its own ttl has two.
            PolicySource::Index(index) => {
                self.span.is_none()
                    && !index.is_multikey()
                    && !index.spec.is_last_modified()
                    && self.policy.expire_after != TimeToLive::OwnOnly
            }
            PolicySource::Collection => true,
            PolicySource::TimeSeries(_) => false,
        }
    }
}
