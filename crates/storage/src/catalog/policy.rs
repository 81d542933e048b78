//! Policies: rules by which documents of a collection are due.
//!
//! A policy is a TTL index, or the time to live of a time series or of a collection that is
//! clustered by a date. A collection's state lists its policies
//! ([`CollectionState::policies`](super::CollectionState)); the monitor, reads that hide, unique
//! checks, `$ttlStats` and changes of definitions all use that list. A policy may change during a
//! visit, which therefore finds it again by its id.

use std::sync::Arc;

use mayfly_base::Result;
use mayfly_buckets::TimeSeries;
use mayfly_kv::KeyRange;
use mayfly_value::{RawDoc, RawValue, SortOrder};

use super::Index;
use crate::index::keygen::{KeySet, index_keys};
use crate::index::range::{between, dates_up_to, numbers_up_to};
use crate::policy::value::cutoff_ms;
use crate::policy::{ExpireAfter, PolicyRuntime, TtlOptions, is_due_by_modification};
use crate::record::{Moment, Record};

/// A rule by which documents are due.
pub(crate) struct Policy {
    /// The id of its index, or of the collection; the two never coincide.
    pub id: u64,
    pub source: PolicySource,
    pub expire_after: TimeToLive,
    /// Its options other than the time to live.
    pub options: Arc<TtlOptions>,
    /// Its counters and pace, which changes of the policy do not reset.
    pub runtime: Arc<PolicyRuntime>,
}

/// The definition that a policy comes from.
#[derive(Clone)]
pub(crate) enum PolicySource {
    /// A TTL index.
    Index(Arc<Index>),
    /// `expireAfterSeconds` of a collection that is clustered by `_id`.
    Collection,
    /// `expireAfterSeconds` of a time series, whose documents are buckets.
    TimeSeries(Arc<TimeSeries>),
}

/// How long documents are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TimeToLive {
    Seconds(i64),
    /// As long as the document's own `ttl`; others do not expire.
    OwnOnly,
    /// An invalid definition, by which nothing expires.
    Invalid,
}

impl Policy {
    /// The policy of an index, if it has one.
    pub(crate) fn of_index(index: &Arc<Index>) -> Option<Policy> {
        let expire_after = match index.spec.expire_after()? {
            _ if index.spec.is_inert() => TimeToLive::Invalid,
            ExpireAfter::Seconds(seconds) => TimeToLive::Seconds(i64::from(seconds)),
            ExpireAfter::OwnOnly => TimeToLive::OwnOnly,
            ExpireAfter::Invalid => TimeToLive::Invalid,
        };
        Some(Policy {
            id: index.id,
            source: PolicySource::Index(index.clone()),
            expire_after,
            options: index.spec.shared_ttl_options(),
            runtime: index.runtime.ttl.clone(),
        })
    }

    /// The name in the server's log and in the operation log.
    pub(crate) fn name(&self) -> &str {
        match &self.source {
            PolicySource::Index(index) => index.spec.name(),
            PolicySource::Collection | PolicySource::TimeSeries(_) => "_id_",
        }
    }

    /// The TTL index, if the policy is one.
    pub(crate) fn index(&self) -> Option<&Arc<Index>> {
        match &self.source {
            PolicySource::Index(index) => Some(index),
            PolicySource::Collection | PolicySource::TimeSeries(_) => None,
        }
    }

    /// The time to live in replies, in seconds.
    pub(crate) fn listed_secs(&self) -> i64 {
        match (self.expire_after, &self.source) {
            (TimeToLive::Seconds(seconds), _) => seconds,
            (TimeToLive::OwnOnly | TimeToLive::Invalid, PolicySource::Index(index)) => {
                index.spec.expire_after().map_or(0, |it| i64::from(it.listed_secs()))
            }
            (TimeToLive::OwnOnly, _) => -1,
            (TimeToLive::Invalid, _) => i64::from(i32::MAX),
        }
    }

    /// The cutoff in milliseconds since 1970: documents dated at or before it are due.
    pub(crate) fn cutoff(&self, moment: Moment) -> i64 {
        match self.expire_after {
            TimeToLive::Seconds(seconds) => cutoff_ms(moment.now_ms, seconds),
            TimeToLive::OwnOnly => moment.now_ms,
            TimeToLive::Invalid => i64::MIN,
        }
    }

    /// Whether the policy is active: its index is built and not dropped.
    pub(crate) fn is_ready(&self) -> bool {
        self.index().is_none_or(|index| index.is_ready())
    }

    /// Whether due documents are hidden. A paused policy hides nothing: a write that meets a hidden
    /// document would have to fail because of an invisible document, or to remove it.
    pub(crate) fn hides(&self) -> bool {
        let by_modification = self.index().is_some_and(|index| index.spec.is_last_modified());
        self.is_about_documents()
            && (by_modification || self.options.hide_expired)
            && !self.options.paused
    }

    /// Whether the policy holds documents by a field.
    pub(crate) fn holds_documents(&self) -> bool {
        self.is_about_documents() && self.options.hold_field.is_some()
    }

    /// Whether the policy holds this document.
    pub(crate) fn holds(&self, document: RawDoc<'_>) -> bool {
        self.is_about_documents() && self.options.holds(document)
    }

    /// Whether the policy archives documents before it deletes them.
    pub(crate) fn archives(&self) -> bool {
        self.is_about_documents() && self.options.archive.is_some()
    }

    /// Whether the policy evaluates documents. One of a time series does not: it deletes whole
    /// buckets.
    fn is_about_documents(&self) -> bool {
        !matches!(self.source, PolicySource::TimeSeries(_))
    }

    /// Whether both have the same time to live and options.
    pub(crate) fn is_same_as(&self, other: &Policy) -> bool {
        self.expire_after == other.expire_after && self.options == other.options
    }

    /// Whether the record is due by the policy; for buckets see [`crate::ttl`].
    ///
    /// # Errors
    /// Errors of key generation and of a partial index's filter.
    pub(crate) fn is_due(
        &self,
        record: Record<'_>,
        moment: Moment,
        keys: &mut KeySet,
    ) -> Result<bool> {
        match &self.source {
            PolicySource::Index(index) => index.is_due(record, moment, keys),
            // Dates before 1970 never expire.
            PolicySource::Collection => Ok(match record.document.get("_id") {
                Some(RawValue::Date(date)) if !self.options.holds(record.document) => {
                    (0..=self.cutoff(moment)).contains(&date)
                }
                _ => false,
            }),
            PolicySource::TimeSeries(_) => Ok(false),
        }
    }

    /// The key ranges in which entries may be due, of its index or of the records.
    pub(crate) fn due_ranges(&self, moment: Moment) -> Vec<KeyRange> {
        let first = match &self.source {
            PolicySource::Index(index) => return index.due_ranges(moment),
            PolicySource::Collection => 0,
            // The keys of buckets begin with their start.
            PolicySource::TimeSeries(_) => i64::MIN,
        };
        let last = RawValue::Date(self.cutoff(moment));
        vec![between(RawValue::Date(first), last, SortOrder::Ascending)]
    }
}

impl Index {
    /// Whether a record is due by the index's time to live.
    ///
    /// # Errors
    /// Errors of key generation and of the filter.
    pub(crate) fn is_due(
        &self,
        record: Record<'_>,
        moment: Moment,
        keys: &mut KeySet,
    ) -> Result<bool> {
        let Some(expire_after) = self.spec.expire_after() else { return Ok(false) };
        if self.spec.is_inert() {
            return Ok(false);
        }
        let document = record.document;
        if !self.covers(document)? || self.spec.ttl_options().holds(document) {
            return Ok(false);
        }
        if self.spec.is_last_modified() {
            return Ok(is_due_by_modification(record, expire_after, moment));
        }
        let ExpireAfter::Seconds(seconds) = expire_after else { return Ok(false) };
        let cutoff = cutoff_ms(moment.now_ms, i64::from(seconds));
        let field = &self.spec.fields()[0];
        // The usual case needs no keys.
        if let [name] = field.parts.as_slice() {
            match document.get(name) {
                Some(RawValue::Date(date)) => return Ok(date <= cutoff),
                Some(RawValue::Array(_)) => {}
                _ => return Ok(false),
            }
        }
        index_keys(&self.spec, record, keys)?;
        let range = dates_up_to(field, cutoff);
        Ok(keys.iter().any(|(key, _)| range.start.as_slice() <= key && key < range.end.as_slice()))
    }

    /// The key ranges of entries that may be due.
    fn due_ranges(&self, moment: Moment) -> Vec<KeyRange> {
        let field = &self.spec.fields()[0];
        let mut ranges = Vec::new();
        if self.spec.is_inert() {
            return ranges;
        }
        if self.spec.is_last_modified() && moment.last_modified {
            ranges.push(numbers_up_to(field, moment.now_ms));
        }
        if let Some(ExpireAfter::Seconds(seconds)) = self.spec.expire_after() {
            ranges.push(dates_up_to(field, cutoff_ms(moment.now_ms, i64::from(seconds))));
        }
        ranges
    }
}
