//! Rules: what says that documents are due, as it is when a visit begins.
//!
//! ```text
//! rule       scans                                   a document is due when
//! index      the index, from the oldest date up      one of its keys is a date up to the cutoff
//! clustered  records, `_id` from 1970-01-01 up       its `_id` is a date from there up to the cutoff
//! ```
//!
//! A rule looks, it deletes nothing: [`crate::ttl::visit`] does. Expiry contract, section 4.

use std::ops::ControlFlow;
use std::sync::Arc;

use mayfly_base::Result;
use mayfly_kv::{Direction, KeyRange, ScanLimit};
use mayfly_value::shell::Shell;
use mayfly_value::{DocBuf, DocBuilder, RawValue};

use crate::collection::{Collection, Index};
use crate::index_spec::ExpireAfter;
use crate::keygen::KeySet;
use crate::read::{Scanned, Snapshot};
use crate::ttl::due::between;
use crate::ttl::options::PLAIN;
use crate::ttl::value::cutoff_ms;
use crate::ttl::{Moment, PolicyRuntime, Record, TtlOptions};
use crate::unit::{Expiring, WriteUnit};

/// What a visit goes by.
#[derive(Clone)]
pub(super) enum Rule {
    /// A TTL index.
    Index { index: Arc<Index>, expire_after: ExpireAfter },
    /// `expireAfterSeconds` of a collection that is clustered by `_id`.
    Clustered { expire_after_secs: i64 },
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
    pub(super) fn now(collection: &Collection, kind: RuleKind) -> Option<Rule> {
        match kind {
            RuleKind::Index(id) => {
                let ready = collection.ready_indexes();
                let index = ready.into_iter().find(|index| index.id() == id)?;
                match index.spec.expire_after() {
                    Some(expire_after @ (ExpireAfter::Seconds(_) | ExpireAfter::OwnOnly)) => {
                        Some(Rule::Index { index, expire_after })
                    }
                    Some(ExpireAfter::Invalid) | None => None,
                }
            }
            RuleKind::Collection => {
                let expire_after_secs = collection.expire_after_secs()?;
                Some(Rule::Clustered { expire_after_secs })
            }
        }
    }

    /// Whether it is what holds while the unit runs.
    pub(super) fn holds_in(&self, unit: &WriteUnit<'_>) -> bool {
        match self {
            Rule::Index { index, .. } => {
                unit.index(index.id()).is_some_and(|now| now.spec.same_policy(&index.spec))
            }
            Rule::Clustered { expire_after_secs } => {
                unit.collection_expire_after() == Some(*expire_after_secs)
            }
        }
    }

    /// How it is called in logs and in the oplog.
    pub(super) fn name(&self) -> &str {
        match self {
            Rule::Index { index, .. } => index.spec.name(),
            Rule::Clustered { .. } => "_id_",
        }
    }

    /// Its time to live.
    pub(super) fn expire_after_secs(&self) -> i64 {
        match self {
            Rule::Index { expire_after, .. } => i64::from(expire_after.listed_secs()),
            Rule::Clustered { expire_after_secs } => *expire_after_secs,
        }
    }

    /// What it does beside deleting.
    pub(super) fn options(&self) -> &TtlOptions {
        match self {
            Rule::Index { index, .. } => index.spec.ttl_options(),
            Rule::Clustered { .. } => &PLAIN,
        }
    }

    /// What it has done.
    pub(super) fn runtime<'r>(&'r self, collection: &'r Collection) -> &'r PolicyRuntime {
        match self {
            Rule::Index { index, .. } => &index.runtime.ttl,
            Rule::Clustered { .. } => &collection.ttl,
        }
    }

    /// As a unit that deletes by it names it.
    pub(super) fn expiring(&self) -> Expiring<'_> {
        match self {
            Rule::Index { index, .. } => Expiring::Index(index),
            Rule::Clustered { expire_after_secs } => Expiring::Collection(*expire_after_secs),
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
            Rule::Clustered { .. } => "CLUSTERED_IXSCAN".to_owned(),
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
        }
        command.append("$lte", RawValue::Date(cutoff)).end().end();
        command.append("limit", 0).end().end().append("$db", db);
        command.finish()
    }

    /// Which way its scan goes: the oldest first.
    pub(super) fn direction(&self) -> Direction {
        match self {
            Rule::Index { index, .. } if index.spec.fields()[0].descending => Direction::Backward,
            Rule::Index { .. } | Rule::Clustered { .. } => Direction::Forward,
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

    /// Shows positions in the range and the records that they belong to.
    pub(super) fn scan(
        &self,
        snapshot: &Snapshot,
        collection: &Collection,
        range: &KeyRange,
        limit: ScanLimit,
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
            Rule::Index { index, .. } => index.is_due(record, moment, keys),
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
            Rule::Clustered { .. } => Ok(()),
        }
    }
}
