//! Rules: what says that documents are due, as it is when a visit begins.
//!
//! ```text
//! rule       scans                                   a document is due when
//! index      the index, from the oldest date up      one of its keys is a date up to the cutoff
//! clustered  records, `_id` from 1970-01-01 up       its `_id` is a date from there up to the cutoff
//! buckets    records, from the earliest start up     all that is in it is due
//! ```
//!
//! When all of a bucket is due, the rules of `ttlIndexRules` say: by default when its latest measurement is, under `mongod8`
//! when its start and a whole span after it are. An index over buckets goes by the same.
//!
//! A rule looks, it deletes nothing: [`crate::ttl::visit`] does. Expiry contract, sections 4 and 7.2.

use std::ops::ControlFlow;
use std::sync::Arc;

use mayfly_base::Result;
use mayfly_kv::{Direction, KeyRange, ScanLimit};
use mayfly_value::shell::Shell;
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue};

use crate::catalog::{Collection, Index};
use crate::index::keygen::KeySet;
use crate::index::range::between;
use crate::policy::ExpireAfter;
use crate::policy::value::cutoff_ms;
use crate::policy::{PolicyRuntime, TtlIndexRules, TtlOptions};
use crate::read::{Scanned, Snapshot};
use crate::record::{Moment, Record};
use crate::timeseries::{BucketView, TimeSeries};
use crate::write::{Expiring, WriteUnit};

/// What a visit goes by.
#[derive(Clone)]
pub(super) enum Rule {
    /// A TTL index.
    Index {
        index: Arc<Index>,
        expire_after: ExpireAfter,
        /// Over buckets: when one is due.
        span: Option<BucketSpan>,
    },
    /// `expireAfterSeconds` of a collection that is clustered by `_id`.
    Clustered {
        expire_after_secs: i64,
        options: Arc<TtlOptions>,
        /// As a policy on `_id`, where it looks at documents.
        policy: Option<Arc<Index>>,
    },
    /// `expireAfterSeconds` of a time series.
    Buckets { expire_after_secs: i64, span: BucketSpan, options: Arc<TtlOptions> },
}

/// When a bucket is due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BucketSpan {
    time: String,
    /// What must have passed since its start; nothing when its latest measurement decides.
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

/// Which rule, whatever it says now.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum RuleKind {
    /// That of the index with this id.
    Index(u64),
    /// That of the collection.
    Collection,
}

impl Rule {
    /// The rule as it is now; nothing when it is gone.
    pub(super) fn now(
        collection: &Collection,
        kind: RuleKind,
        rules: TtlIndexRules,
    ) -> Option<Rule> {
        let series = collection.time_series();
        let span = series.as_deref().map(|series| BucketSpan::of(series, rules));
        match kind {
            RuleKind::Index(id) => {
                let ready = collection.ready_indexes();
                let index = ready.into_iter().find(|index| index.id() == id)?;
                match index.spec.expire_after() {
                    _ if index.spec.is_inert() => None,
                    Some(expire_after @ (ExpireAfter::Seconds(_) | ExpireAfter::OwnOnly)) => {
                        Some(Rule::Index { index, expire_after, span })
                    }
                    Some(ExpireAfter::Invalid) | None => None,
                }
            }
            RuleKind::Collection => {
                let expire_after_secs = collection.expire_after_secs()?;
                let (options, policy) = collection.own_policy();
                Some(match span {
                    Some(span) => Rule::Buckets { expire_after_secs, span, options },
                    None => Rule::Clustered { expire_after_secs, options, policy },
                })
            }
        }
    }

    /// Whether it is what holds while the unit runs.
    pub(super) fn holds_in(&self, unit: &WriteUnit<'_>) -> bool {
        match self {
            Rule::Index { index, .. } => {
                unit.index(index.id()).is_some_and(|now| now.spec.same_policy(&index.spec))
            }
            Rule::Clustered { expire_after_secs, options, .. }
            | Rule::Buckets { expire_after_secs, options, .. } => {
                unit.collection_policy() == (Some(*expire_after_secs), options)
            }
        }
    }

    /// How it is called in logs and in the oplog.
    pub(super) fn name(&self) -> &str {
        match self {
            Rule::Index { index, .. } => index.spec.name(),
            Rule::Clustered { .. } | Rule::Buckets { .. } => "_id_",
        }
    }

    /// Its time to live.
    pub(super) fn expire_after_secs(&self) -> i64 {
        match self {
            Rule::Index { expire_after, .. } => i64::from(expire_after.listed_secs()),
            Rule::Clustered { expire_after_secs, .. } | Rule::Buckets { expire_after_secs, .. } => {
                *expire_after_secs
            }
        }
    }

    /// When a bucket is due; nothing for what is no bucket.
    pub(super) fn bucket_due_at(&self, record: Record<'_>) -> Option<i64> {
        match self {
            Rule::Index { span: Some(span), .. } | Rule::Buckets { span, .. } => {
                let date = span.decides(record.document)?;
                Some(date.saturating_add(self.expire_after_secs().saturating_mul(1000)))
            }
            Rule::Index { span: None, .. } | Rule::Clustered { .. } => None,
        }
    }

    /// What it does beside deleting.
    pub(super) fn options(&self) -> &TtlOptions {
        match self {
            Rule::Index { index, .. } => index.spec.ttl_options(),
            Rule::Clustered { options, .. } | Rule::Buckets { options, .. } => options,
        }
    }

    /// The policy that archives.
    pub(super) fn archiving(&self) -> Option<&Arc<Index>> {
        match self {
            Rule::Index { index, .. } => Some(index),
            Rule::Clustered { policy, .. } => policy.as_ref(),
            Rule::Buckets { .. } => None,
        }
    }

    /// What it has done.
    pub(super) fn runtime<'r>(&'r self, collection: &'r Collection) -> &'r PolicyRuntime {
        match self {
            Rule::Index { index, .. } => &index.runtime.ttl,
            Rule::Clustered { .. } | Rule::Buckets { .. } => &collection.ttl,
        }
    }

    /// As a unit that deletes by it names it.
    pub(super) fn expiring(&self) -> Expiring<'_> {
        match self {
            Rule::Index { index, .. } => Expiring::Index(index),
            Rule::Clustered { expire_after_secs, .. } | Rule::Buckets { expire_after_secs, .. } => {
                Expiring::Collection(*expire_after_secs)
            }
        }
    }

    /// Documents dated at or before this moment are due, in milliseconds since 1970.
    pub(super) fn cutoff(&self, moment: Moment) -> i64 {
        match self {
            Rule::Index { expire_after: ExpireAfter::OwnOnly, .. } => moment.now_ms,
            _ => cutoff_ms(moment.now_ms, self.expire_after_secs()),
        }
    }

    /// `planSummary` of a visit.
    pub(super) fn plan_summary(&self) -> String {
        match self {
            Rule::Index { index, .. } => format!("IXSCAN {}", Shell(index.spec.key())),
            Rule::Clustered { .. } | Rule::Buckets { .. } => "CLUSTERED_IXSCAN".to_owned(),
        }
    }

    /// The deletion that a visit amounts to, for `currentOp` and the profiler.
    pub(super) fn delete_command(&self, db: &str, collection: &str, cutoff: i64) -> DocBuf {
        let mut command = DocBuilder::new();
        command.append("delete", collection).start_array("deletes").push_document();
        command.start_document("q");
        match self {
            Rule::Index { index, .. } => {
                command.start_document(&index.spec.fields()[0].path);
            }
            Rule::Clustered { .. } => {
                command.start_document("_id").append("$gte", RawValue::Date(0));
            }
            Rule::Buckets { span, .. } => {
                command.start_document(&format!("control.max.{}", span.time));
            }
        }
        command.append("$lte", RawValue::Date(cutoff)).end().end();
        command.append("limit", 0).end().end().append("$db", db);
        command.finish()
    }

    /// Which way its scan goes: the oldest first.
    pub(super) fn direction(&self) -> Direction {
        match self {
            Rule::Index { index, .. } if index.spec.fields()[0].descending => Direction::Backward,
            _ => Direction::Forward,
        }
    }

    /// The positions that may be due, as its scan names them.
    pub(super) fn due_ranges(&self, moment: Moment) -> Vec<KeyRange> {
        match self {
            Rule::Index { index, .. } => index.due_ranges(moment),
            Rule::Clustered { .. } => {
                let last = RawValue::Date(self.cutoff(moment));
                vec![between(RawValue::Date(0), last, false)]
            }
            // The keys of records begin with the start.
            Rule::Buckets { .. } => {
                let last = RawValue::Date(self.cutoff(moment));
                vec![between(RawValue::Date(i64::MIN), last, false)]
            }
        }
    }

    /// The positions of the same type of value that are not due yet.
    pub(super) fn behind(&self, due: &KeyRange) -> Option<KeyRange> {
        let backward = self.direction() == Direction::Backward;
        let first = RawValue::Date(i64::MIN);
        let dates = between(first, RawValue::Date(i64::MAX), backward);
        let whole = match dates.start <= due.start && due.start < dates.end {
            true => dates,
            false => between(RawValue::Int64(i64::MIN), RawValue::Int64(i64::MAX), backward),
        };
        let behind = match backward {
            true => KeyRange { start: whole.start, end: due.start.clone() },
            false => KeyRange { start: due.end.clone(), end: whole.end },
        };
        (!behind.is_empty()).then_some(behind)
    }

    /// Shows positions in the range that may be due, and the records that they belong to.
    pub(super) fn scan(
        &self,
        snapshot: &Snapshot,
        collection: &Collection,
        range: &KeyRange,
        limit: ScanLimit,
        cutoff: i64,
        see: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<Scanned> {
        let direction = self.direction();
        match self {
            Rule::Index { index, .. } => {
                snapshot.scan_index(index, range, direction, limit, &mut |entry| {
                    see(entry.position, entry.record_key);
                    Ok(ControlFlow::Continue(()))
                })
            }
            // A bucket of every source is under way at the cutoff: those need no lock to be seen to stay.
            Rule::Buckets { span, .. } => {
                snapshot.scan_stored(collection, range, direction, limit, &mut |key, stored| {
                    if span.is_due(stored.document, cutoff) {
                        see(key, key);
                    }
                    Ok(ControlFlow::Continue(()))
                })
            }
            Rule::Clustered { .. } => {
                snapshot.scan_stored(collection, range, direction, limit, &mut |key, _| {
                    see(key, key);
                    Ok(ControlFlow::Continue(()))
                })
            }
        }
    }

    /// Whether the document as it is now is due, and the rule is about it at all.
    pub(super) fn is_due(
        &self,
        record: Record<'_>,
        moment: Moment,
        keys: &mut KeySet,
    ) -> Result<bool> {
        match self {
            Rule::Index { span: None, index, .. } => index.is_due(record, moment, keys),
            Rule::Index { index, .. } if !index.covers(record.document)? => Ok(false),
            Rule::Index { span: Some(span), .. } | Rule::Buckets { span, .. } => {
                Ok(span.is_due(record.document, self.cutoff(moment)))
            }
            Rule::Clustered { .. } => Ok(match record.document.get("_id") {
                Some(RawValue::Date(date)) => (0..=self.cutoff(moment)).contains(&date),
                _ => false,
            }),
        }
    }

    /// 175 when what it scans is gone.
    pub(super) fn check_alive(&self) -> Result<()> {
        match self {
            Rule::Index { index, .. } => index.check_alive(),
            Rule::Clustered { .. } | Rule::Buckets { .. } => Ok(()),
        }
    }
}
