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
use mayfly_kv::{Direction, KeyRange, ScanLimit, prefix_end};
use mayfly_value::keys::{self, TypeBits};
use mayfly_value::shell::Shell;
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue};

use crate::collection::{Collection, Index};
use crate::index_spec::{ExpireAfter, IndexField};
use crate::keygen::{KeySet, index_keys};
use crate::read::{Scanned, Snapshot};
use crate::unit::WriteUnit;

/// What a visit goes by.
#[derive(Clone)]
pub(super) enum Rule {
    /// A TTL index.
    Index { index: Arc<Index>, expire_after_secs: i32 },
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
                    Some(ExpireAfter::Seconds(expire_after_secs)) => {
                        Some(Rule::Index { index, expire_after_secs })
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
            Rule::Index { index, expire_after_secs } => unit.index(index.id()).is_some_and(|now| {
                now.spec.expire_after() == Some(ExpireAfter::Seconds(*expire_after_secs))
            }),
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
            Rule::Index { expire_after_secs, .. } => i64::from(*expire_after_secs),
            Rule::Clustered { expire_after_secs } => *expire_after_secs,
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
    pub(super) fn due_range(&self, cutoff: i64) -> KeyRange {
        match self {
            Rule::Index { index, .. } => dates(&index.spec.fields()[0], cutoff),
            Rule::Clustered { .. } => {
                KeyRange { start: date_key(0, false), end: prefix_end(&date_key(cutoff, false)) }
            }
        }
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
                snapshot.scan_records(collection, range, direction, limit, &mut |key, _| {
                    see(key, key);
                    Ok(ControlFlow::Continue(()))
                })
            }
        }
    }

    /// Whether the document as it is now is due, and the rule is about it at all.
    pub(super) fn is_due(
        &self,
        document: RawDoc<'_>,
        cutoff: i64,
        keys: &mut KeySet,
    ) -> Result<bool> {
        match self {
            Rule::Index { index, .. } => {
                if !index.covers(document) {
                    return Ok(false);
                }
                index_keys(&index.spec, document, keys)?;
                let range = self.due_range(cutoff);
                let (start, end) = (range.start.as_slice(), range.end.as_slice());
                Ok(keys.iter().any(|(key, _)| start <= key && key < end))
            }
            Rule::Clustered { .. } => Ok(match document.get("_id") {
                Some(RawValue::Date(date)) => (0..=cutoff).contains(&date),
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

fn date_key(date: i64, descending: bool) -> Vec<u8> {
    let mut key = Vec::with_capacity(16);
    keys::append_value(&mut key, &mut TypeBits::default(), RawValue::Date(date), descending);
    key
}

/// The positions of all dates from the first one up to the cutoff, both included.
fn dates(field: &IndexField, cutoff: i64) -> KeyRange {
    let first = date_key(i64::MIN, field.descending);
    let last = date_key(cutoff, field.descending);
    if field.descending {
        KeyRange { start: last, end: prefix_end(&first) }
    } else {
        KeyRange { start: first, end: prefix_end(&last) }
    }
}
