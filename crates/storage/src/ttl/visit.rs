//! A visit: deletes documents that are due by one rule, oldest first, in small write units, within
//! limits of time and documents.

#[cfg(test)]
mod tests;
mod unit;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use mayfly_base::{ErrorCode, Result};
use mayfly_kv::{KeyRange, ScanLimit};
use mayfly_value::{DocBuf, DocBuilder, RawValue};
use mayfly_work::{OpCtx, OpGuard, OpInfo};

use crate::Store;
use crate::catalog::Collection;
use crate::policy::value::seconds_value;
use crate::read::ScanResult;
use crate::record::Moment;
use crate::record::RecordKey;
use crate::ttl::report::VisitReport;
use crate::ttl::rule::Rule;

/// The number of index entries, or records, in one scan.
const SCAN_ENTRIES: usize = 1000;
/// One visit by one rule.
pub(super) struct Visit<'s> {
    pub(super) store: &'s Store,
    pub(super) collection: &'s Arc<Collection>,
    pub(super) rule: &'s Rule,
    pub(super) pass: i64,
    pub(super) sub_pass: i64,
    pub(super) stopping: &'s AtomicBool,
    pub(super) batched: bool,
}

/// The end of a visit.
pub(super) enum VisitEnd {
    /// No due documents are left.
    Drained,
    /// The document or time target was reached; there may be more after this position.
    TargetMet(RecordKey),
    /// The pace allows no more for now; there is more after this position, or anywhere if there is
    /// none.
    Paced(Option<RecordKey>),
    /// The policy has changed or was dropped: nothing more may be deleted by the old one.
    PolicyChanged,
}

/// The amounts of a visit that count for its targets.
struct Progress {
    deleted: i64,
    keys_examined: i64,
    docs_examined: i64,
    started_micros: i64,
    /// How many documents the next unit may delete, if no parameter says so.
    unit_docs: usize,
}

impl Visit<'_> {
    pub(super) fn run(&self, resume: Option<&RecordKey>) -> Result<VisitEnd> {
        // Writes are locked out for a backup; a later pass deletes what is due.
        let Some(_writing) = self.store.fsync_lock.try_enter() else {
            return Ok(VisitEnd::Drained);
        };
        if self.rule.policy().options.paused {
            return Ok(VisitEnd::Drained);
        }
        let moment = self.store.moment();
        if let Some(end) = self.stopped(moment) {
            return Ok(end);
        }
        let mut ranges = self.rule.policy().due_ranges(moment);
        if let Some(position) = resume {
            for range in ranges.iter_mut().filter(|range| is_in(range, position)) {
                *range = range.after(position, self.rule.direction());
            }
        }
        let guard = self.register(self.rule.policy().cutoff(moment));
        let mut progress = Progress {
            deleted: 0,
            keys_examined: 0,
            docs_examined: 0,
            started_micros: self.store.clock.monotonic_micros(),
            unit_docs: unit::first_unit_docs(self.store),
        };
        let _running = self.store.load.visit();
        let result = self.drain_all(guard.op(), ranges, moment, &mut progress);
        self.finish(guard.op(), &progress);
        match result {
            // killOp ends this visit only; the next pass continues.
            Err(error) if guard.op().is_killed() && error.code() == ErrorCode::Interrupted => {
                Ok(VisitEnd::Drained)
            }
            other => other,
        }
    }

    fn drain_all(
        &self,
        op: &Arc<OpCtx>,
        ranges: Vec<KeyRange>,
        moment: Moment,
        progress: &mut Progress,
    ) -> Result<VisitEnd> {
        for range in ranges {
            match self.drain(op, range, moment, progress)? {
                VisitEnd::Drained => {}
                other => return Ok(other),
            }
        }
        Ok(VisitEnd::Drained)
    }

    fn drain(
        &self,
        op: &Arc<OpCtx>,
        mut range: KeyRange,
        moment: Moment,
        progress: &mut Progress,
    ) -> Result<VisitEnd> {
        let direction = self.rule.direction();
        let mut last = None;
        loop {
            self.check(op)?;
            if let Some(end) = self.stopped(moment) {
                return Ok(end);
            }
            if range.is_empty() {
                return Ok(VisitEnd::Drained);
            }
            let params = self.store.ttl_params();
            let target = params.index_target_docs.load(Ordering::Relaxed);
            let left =
                if target > 0 { (target - progress.deleted).max(1) as usize } else { usize::MAX };
            let mut found: Vec<(RecordKey, RecordKey)> = Vec::new();
            let limit = ScanLimit::rows(SCAN_ENTRIES.min(left).min(self.paced_entries())).passing();
            let snapshot = self.store.latest()?;
            let mut see = |position: &[u8], record_key: &[u8]| {
                found.push((position.to_vec(), record_key.to_vec()));
            };
            let cutoff = self.rule.policy().cutoff(moment);
            let scanned =
                self.rule.scan(&snapshot, self.collection, &range, limit, cutoff, &mut see)?;
            drop(snapshot);
            progress.keys_examined += found.len() as i64;
            let mut rest = found.as_slice();
            while !rest.is_empty() {
                self.check(op)?;
                if let Some(end) = self.stopped(moment) {
                    return Ok(end);
                }
                let allowed = self.allowance();
                if allowed == Some(0) {
                    return Ok(VisitEnd::Paced(last));
                }
                let done = match self.delete_batch(op, rest, allowed, moment, progress) {
                    Err(error) if error.code() == ErrorCode::WriteConflict => {
                        self.delete_singly(op, rest, allowed, moment, progress)?
                    }
                    done => done?,
                };
                let Some(done) = done else {
                    return Ok(VisitEnd::PolicyChanged);
                };
                let (batch, after) = rest.split_at(done.clamp(1, rest.len()));
                rest = after;
                if let Some((position, _)) = batch.last() {
                    range = range.after(position, direction);
                    last = Some(position.clone());
                    if self.target_met(progress) {
                        return Ok(VisitEnd::TargetMet(position.clone()));
                    }
                }
            }
            match scanned {
                ScanResult::Exhausted => return Ok(VisitEnd::Drained),
                // Unreadable entries were not visited.
                ScanResult::Paused(last) => range = range.after(&last, direction),
            }
        }
    }

    /// How many documents the pace allows now; `None` without a pace.
    fn allowance(&self) -> Option<usize> {
        let now = self.store.clock.monotonic_micros();
        self.rule.policy().runtime.allowance(&self.rule.policy().options, now)
    }

    /// How many entries to scan under a pace: some belong to documents that are no longer due.
    fn paced_entries(&self) -> usize {
        self.allowance().map_or(usize::MAX, |allowed| allowed.saturating_mul(2).max(1))
    }

    fn target_met(&self, progress: &Progress) -> bool {
        let params = self.store.ttl_params();
        let docs = params.index_target_docs.load(Ordering::Relaxed);
        let millis = params.index_target_ms.load(Ordering::Relaxed);
        let spent = self.store.clock.monotonic_micros() - progress.started_micros;
        (docs > 0 && progress.deleted >= docs)
            || (millis > 0 && spent >= millis.saturating_mul(1000))
    }

    /// The end of the visit, if a setting for all policies requires it: the monitor's switch, the
    /// clock, `lastModifiedTTL`.
    fn stopped(&self, moment: Moment) -> Option<VisitEnd> {
        let enabled = self.store.ttl_params().enabled.load(Ordering::Relaxed);
        if !enabled || !self.store.watch.is_trusted() {
            return Some(VisitEnd::Drained);
        }
        let rules_changed = self.store.moment().last_modified != moment.last_modified;
        rules_changed.then_some(VisitEnd::PolicyChanged)
    }

    fn check(&self, op: &OpCtx) -> Result<()> {
        self.store.check_may_expire(self.stopping)?;
        op.check()?;
        self.collection.check_alive()?;
        self.rule.check_alive()
    }

    /// Registers the visit as an operation, which `currentOp` shows and `killOp` ends. Expiry
    /// contract, section 6.2.
    fn register(&self, cutoff: i64) -> OpGuard {
        let ns = self.collection.namespace();
        let info = OpInfo {
            desc: "TTLMonitor".into(),
            op: "remove",
            ns: ns.as_str().to_owned(),
            command: self.rule.delete_command(ns.db(), ns.collection(), cutoff).into_bytes(),
            plan_summary: self.rule.plan_summary().into(),
            extra: self.extra(cutoff, 0).into_bytes(),
            ..OpInfo::default()
        };
        self.store.ops.begin(info)
    }

    fn extra(&self, cutoff: i64, deleted: i64) -> DocBuf {
        let mut extra = DocBuilder::new();
        extra.start_document("ttl").append("index", self.rule.policy().name());
        extra.append("expireAfterSeconds", seconds_value(self.rule.policy().listed_secs()));
        extra.append("cutoff", RawValue::Date(cutoff));
        extra.append("deleted", deleted);
        extra.append("pass", self.pass).append("subPass", self.sub_pass).end();
        extra.finish()
    }

    fn finish(&self, op: &OpCtx, progress: &Progress) {
        let stats = self.store.ttl_stats();
        stats.examined_documents.fetch_add(progress.docs_examined, Ordering::Relaxed);
        stats.examined_keys.fetch_add(progress.keys_examined, Ordering::Relaxed);
        let micros = self.store.clock.monotonic_micros() - progress.started_micros;
        if progress.keys_examined > 0 {
            self.store.visit_hook.call(&VisitReport {
                op,
                batched: self.batched,
                keys_examined: progress.keys_examined,
                docs_examined: progress.docs_examined,
                deleted: progress.deleted,
                micros,
            });
        }
        // A visit can be slow without deletions: it reads held documents, or waits for other
        // writers.
        let slow_ms = self.store.ttl_params().slow_ms.load(Ordering::Relaxed);
        if micros / 1000 >= slow_ms {
            self.log(progress.deleted, micros / 1000);
        }
    }

    fn log(&self, deleted: i64, millis: i64) {
        let namespace = self.collection.namespace();
        match self.rule.policy().index() {
            Some(index) => tracing::info!(
                id = 5479200,
                %namespace,
                index = index.spec.name(),
                numDeleted = deleted,
                durationMillis = millis,
                "Deleted expired documents using index"
            ),
            None => tracing::info!(
                id = 5400702,
                %namespace,
                numDeleted = deleted,
                durationMillis = millis,
                "Deleted expired documents using clustered index scan"
            ),
        }
    }
}

/// Whether a position lies in a range.
fn is_in(range: &KeyRange, position: &[u8]) -> bool {
    range.start.as_slice() <= position && (range.end.is_empty() || position < range.end.as_slice())
}
