//! Reads the operation log as documents, for pipelines over `local.oplog.rs`.
//!
//! Entries are in the order of `ts`, so comparisons with `ts` in the filter bound the scan. Between
//! batches the scan keeps only its position, like any other scan.

use mayfly_storage::StoreSession;
use std::collections::VecDeque;
use std::ops::ControlFlow;

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_storage::{Direction, LogEnd, LogEntry, LogRange};
use mayfly_value::{DocBuf, RawDoc, RawValue};

/// Limit on the entries of one read, and approximate limit on their bytes.
const QUEUED: usize = 256;
const QUEUED_BYTES: usize = 1 << 20;
/// Nesting depth up to which conjunctions are read for bounds.
const MAX_DEPTH: usize = 16;

/// The direction of a scan of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogOrder {
    /// The oldest entry first.
    #[default]
    Ascending,
    /// The newest entry first.
    Descending,
    /// The oldest entry first; at the end the scan waits for new entries.
    Following,
}

/// A scan of the log.
pub struct LogScan {
    left: LogRange,
    entries: EntryFilter,
    order: LogOrder,
    queue: VecDeque<DocBuf>,
    /// The timestamp up to which the log was complete at the last read.
    settled: u64,
    /// Whether an entry was read.
    begun: bool,
    over: bool,
}

impl LogScan {
    /// A scan of the entries that may satisfy a filter.
    pub fn new(filter: RawDoc<'_>, order: LogOrder) -> LogScan {
        let mut left = LogRange { first: 1, last: u64::MAX };
        let mut entries = EntryFilter::default();
        narrow(filter, &mut left, &mut entries, 0);
        LogScan {
            left,
            entries,
            order,
            queue: VecDeque::new(),
            settled: 0,
            begun: false,
            over: false,
        }
    }

    /// Disables the filter on strings, for queries with a collation.
    pub fn read_all(&mut self) {
        self.entries = EntryFilter::default();
    }

    /// Whether no further entry will come.
    pub(crate) fn is_over(&self) -> bool {
        self.over && self.queue.is_empty()
    }

    /// Whether no entry is queued.
    pub(crate) fn is_idle(&self) -> bool {
        self.queue.is_empty()
    }

    /// For a tailable scan: the timestamp after which new entries appear.
    pub(crate) fn waits_beyond(&self) -> Option<u64> {
        (self.order == LogOrder::Following).then_some(self.settled)
    }

    /// The next entry; `None` if there is none, or none yet.
    ///
    /// # Errors
    /// 136 CappedPositionLost if entries after the last one were truncated; errors of the store.
    pub(crate) fn next(&mut self, session: StoreSession<'_>) -> Result<Option<DocBuf>> {
        if self.queue.is_empty() && !self.over {
            session.op.check()?;
            self.read(session)?;
        }
        Ok(self.queue.pop_front())
    }

    fn read(&mut self, session: StoreSession<'_>) -> Result<()> {
        let cut = session.store.oplog().cut();
        let direction = match self.order {
            LogOrder::Descending => Direction::Backward,
            LogOrder::Ascending | LogOrder::Following => Direction::Forward,
        };
        let (queue, mut bytes, mut last) = (&mut self.queue, 0, None);
        let (filter, mut examined) = (&self.entries, 0);
        let end = session.store.oplog().read(self.left, direction, &mut |entry| {
            last = Some(entry.timestamp());
            examined += 1;
            if examined % QUEUED == 0 {
                session.op.check()?;
            }
            if !filter.may_pass(entry) {
                return Ok(ControlFlow::Continue(()));
            }
            let entry = match entry.whole() {
                Ok(entry) => entry.into_owned(),
                // The entry was truncated meanwhile.
                Err(error) if error.code() == ErrorCode::ChangeStreamHistoryLost => {
                    return Ok(ControlFlow::Continue(()));
                }
                Err(error) => return Err(error),
            };
            bytes += entry.as_bytes().len();
            queue.push_back(entry);
            let enough = queue.len() >= QUEUED || bytes >= QUEUED_BYTES;
            Ok(if enough { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })?;
        // Entries that were truncated during the read may have been missed.
        if self.order != LogOrder::Descending {
            let now = session.store.oplog().cut();
            if !self.begun && now != cut {
                self.queue.clear();
                return self.read(session);
            }
            if self.begun && now >= self.left.first {
                return Err(Error::new(
                    ErrorCode::CappedPositionLost,
                    "CollectionScan died due to position in capped collection being deleted.",
                ));
            }
        }
        if let Some(last) = last {
            self.begun = true;
            match self.order {
                LogOrder::Descending => self.left.last = last - 1,
                LogOrder::Ascending | LogOrder::Following => self.left.first = last + 1,
            }
        }
        if let LogEnd::Reached(settled) = end {
            self.settled = settled;
            self.over = self.order != LogOrder::Following;
            if !self.over {
                let reached = settled.min(self.left.last);
                self.left.first = self.left.first.max(reached.saturating_add(1));
                self.begun = true;
            }
        }
        Ok(())
    }
}

/// Equalities on strings of an entry that can be tested without reading its documents, so that a
/// filter for one collection reads no documents of others.
#[derive(Default)]
struct EntryFilter {
    equal: Vec<(&'static str, String)>,
}

impl EntryFilter {
    fn may_pass(&self, entry: &LogEntry<'_>) -> bool {
        self.equal.iter().all(|(name, text)| {
            // The filter itself decides about values that are not strings.
            !matches!(entry.get(name), Some(RawValue::String(found)) if found != text)
        })
    }
}

/// Narrows a range by comparisons of `ts` with timestamps, and collects equalities on strings.
fn narrow(filter: RawDoc<'_>, range: &mut LogRange, entries: &mut EntryFilter, depth: usize) {
    for element in filter {
        match (element.name(), element.value()) {
            ("$and", RawValue::Array(parts)) if depth < MAX_DEPTH => {
                for part in parts.iter().filter_map(|part| part.value().as_document()) {
                    narrow(part, range, entries, depth + 1);
                }
            }
            ("op", RawValue::String(text)) => entries.equal.push(("op", text.to_owned())),
            ("ns", RawValue::String(text)) => entries.equal.push(("ns", text.to_owned())),
            ("ts", RawValue::Timestamp(time)) => compare("$eq", time, range),
            ("ts", RawValue::Document(comparisons)) => {
                for comparison in comparisons {
                    if let RawValue::Timestamp(time) = comparison.value() {
                        compare(comparison.name(), time, range);
                    }
                }
            }
            _ => {}
        }
    }
}

fn compare(operator: &str, time: u64, range: &mut LogRange) {
    let (first, last) = match operator {
        "$eq" => (time, time),
        "$gte" => (time, u64::MAX),
        "$gt" => (time.saturating_add(1), u64::MAX),
        "$lte" => (1, time),
        "$lt" => (1, time.saturating_sub(1)),
        _ => return,
    };
    range.first = range.first.max(first);
    range.last = range.last.min(last);
}

#[cfg(test)]
mod tests {
    use mayfly_value::bson::{Timestamp, doc};

    use super::*;

    fn range(filter: mayfly_value::bson::Document) -> (u64, u64) {
        let scan = LogScan::new(DocBuf::from_bson(&filter).as_doc(), LogOrder::Ascending);
        (scan.left.first, scan.left.last)
    }

    #[test]
    fn comparisons_of_the_timestamp_bound_the_scan() {
        let at = |increment| Timestamp { time: 0, increment };
        assert_eq!(range(doc! {}), (1, u64::MAX));
        assert_eq!(range(doc! { "ts": at(5) }), (5, 5));
        assert_eq!(range(doc! { "ts": { "$gt": at(5), "$lte": at(9) } }), (6, 9));
        let both = doc! { "$and": [{ "ts": { "$gte": at(5) } }, { "ts": { "$lt": at(9) } }] };
        assert_eq!(range(both), (5, 8));
        assert_eq!(range(doc! { "ts": { "$gt": 5, "$ne": at(7) }, "op": "i" }), (1, u64::MAX));
        assert_eq!(range(doc! { "$or": [{ "ts": at(5) }, { "op": "i" }] }), (1, u64::MAX));
        assert_eq!(range(doc! { "ts": { "$lt": at(0) } }), (1, 0));
    }

    #[test]
    fn strings_of_the_outermost_conjunction_are_searched() {
        let searched = |filter: mayfly_value::bson::Document| {
            let filter = DocBuf::from_bson(&filter);
            LogScan::new(filter.as_doc(), LogOrder::Ascending).entries.equal
        };
        let both = doc! { "ns": "a.b", "$and": [{ "op": "i" }], "ui": "x", "o.ns": "c" };
        assert_eq!(searched(both), [("ns", "a.b".to_owned()), ("op", "i".to_owned())]);
        assert_eq!(searched(doc! { "$or": [{ "op": "i" }], "ns": { "$in": ["a.b"] } }), []);
    }
}
