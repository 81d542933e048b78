//! A visit: deletes documents that are due by one rule, oldest first, in small write units, within
//! limits of time and documents.

use crate::isolation::ReadView;
use crate::write::WriteOptions;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use mayfly_base::{ErrorCode, Result};
use mayfly_kv::{KeyRange, ScanLimit};
use mayfly_value::{DocBuf, DocBuilder, RawValue};
use mayfly_work::{OpCtx, OpGuard, OpInfo};

use crate::Store;
use crate::catalog::Collection;
use crate::index::keygen::KeySet;
use crate::policy::ArchiveTarget;
use crate::policy::value::seconds_value;
use crate::read::ScanResult;
use crate::record::RecordKey;
use crate::record::{Moment, StoredDocument};
use crate::ttl::report::VisitReport;
use crate::ttl::rule::Rule;
use crate::write::WriteUnit;

/// The number of index entries, or records, in one scan.
const SCAN_ENTRIES: usize = 1000;
/// The number of documents that are read in one call, if their average length does not exceed the
/// limit.
const READ_TOGETHER: usize = 32;
const READ_TOGETHER_BYTES: i64 = 16 << 10;
/// The number of documents, and their bytes, in one file of an archive.
const ARCHIVED_TOGETHER: usize = 1000;
const ARCHIVED_BYTES: i64 = 8 << 20;

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

/// The limits of a write unit.
struct UnitSize {
    docs: Option<usize>,
    micros: i64,
    bytes: i64,
}

/// The result of a unit.
#[derive(Clone, Copy)]
struct UnitResult {
    /// The number of entries that were processed.
    entries: usize,
    deleted: i64,
    examined: i64,
    held: i64,
    /// The number of held documents that were not read, because the cache has them.
    known: i64,
    /// The bytes of deleted documents.
    staged: i64,
    /// The number of deleted index keys.
    keys: i64,
}

/// What a visit has used of its targets.
struct Progress {
    deleted: i64,
    keys_examined: i64,
    docs_examined: i64,
    started_micros: i64,
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
            let limit = ScanLimit::rows(SCAN_ENTRIES.min(left).min(self.paced_entries()));
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

    /// Runs one write unit over the first entries of the list. Returns how many entries it
    /// processed, or `None` when the policy has changed.
    fn delete_batch(
        &self,
        op: &Arc<OpCtx>,
        entries: &[(RecordKey, RecordKey)],
        allowed: Option<usize>,
        moment: Moment,
        progress: &mut Progress,
    ) -> Result<Option<usize>> {
        let UnitSize { docs, micros, bytes } = self.unit_size();
        let most = docs.unwrap_or(usize::MAX).min(allowed.unwrap_or(usize::MAX));
        let clock = &self.store.clock;
        let started = clock.monotonic_micros();
        let options = &self.rule.policy().options;
        let mut keys = KeySet::default();
        let read_together = if self.has_short_documents() { READ_TOGETHER } else { 1 };
        let (mut looked, mut found_held) = (0, Vec::new());
        let now = ReadView::now();
        let unit = WriteOptions::new(op, &now, self.collection).in_background();
        let done = self.store.write_with(unit, |unit| {
            // The unit holds the collection's state, so the policy cannot change while it runs.
            if !self.rule.holds_in(unit) {
                return Ok(None);
            }
            let (mut dealt, mut deleted, mut examined, mut staged) = (0usize, 0i64, 0i64, 0i64);
            let (mut held, mut to_archive) = (0i64, Vec::new());
            let chosen = &entries[..most.min(entries.len())];
            let (ended, known) =
                self.collection.held.which_are_held(chosen.iter().map(|(_, key)| key));
            (looked, found_held) = (ended, Vec::new());
            let mut held_unread = 0;
            let mut documents = Vec::new().into_iter();
            for (at, (_, record_key)) in chosen.iter().enumerate() {
                if at.is_multiple_of(read_together) {
                    let together = at..chosen.len().min(at + read_together);
                    let unknown = together.filter(|at| !known[*at]);
                    let keys: Vec<_> = unknown.map(|at| chosen[at].1.as_slice()).collect();
                    documents = unit.read_many(&keys)?.into_iter();
                }
                dealt += 1;
                let document = if known[at] { None } else { documents.next().flatten() };
                // An array of dates has several entries; a document that was read for them is
                // processed once.
                let begin = at - at % read_together;
                if chosen[begin..at].iter().any(|(_, earlier)| earlier == record_key) {
                    continue;
                }
                if known[at] {
                    held_unread += 1;
                    continue;
                }
                let Some(document) = document else { continue };
                examined += 1;
                let record = document.record();
                if unit.holds(document.as_doc()) {
                    held += 1;
                    found_held.push(record_key.clone());
                    continue;
                }
                if !self.rule.is_due(record, moment, &mut keys)? {
                    continue;
                }
                deleted += 1;
                staged += document.as_doc().as_bytes().len() as i64;
                if options.archive.is_some() {
                    to_archive.push((record_key, document));
                } else {
                    unit.expire(record_key, &document, self.rule.policy())?;
                }
                let over_time = micros > 0 && clock.monotonic_micros() - started >= micros;
                if over_time || (bytes > 0 && staged >= bytes) {
                    break;
                }
            }
            self.archive(unit, &to_archive)?;
            Ok(Some(UnitResult {
                entries: dealt,
                deleted,
                examined,
                held,
                known: held_unread,
                staged,
                keys: unit.effects.keys_deleted,
            }))
        })?;
        let Some(done) = done else { return Ok(None) };
        if !found_held.is_empty() {
            self.collection.held.add(looked, found_held);
        }
        self.count_result(op, &done, moment, progress, started);
        #[cfg(test)]
        if let Some(act) = &*self.store.between_units.lock() {
            act();
        }
        self.make_room(started);
        Ok(Some(done.entries))
    }

    /// Runs units of one entry each, after a unit over several conflicted with a transaction that
    /// holds one of the records: that record is left to the next pass, and the others are deleted
    /// now.
    #[cold]
    fn delete_singly(
        &self,
        op: &Arc<OpCtx>,
        entries: &[(RecordKey, RecordKey)],
        allowed: Option<usize>,
        moment: Moment,
        progress: &mut Progress,
    ) -> Result<Option<usize>> {
        let most = allowed.unwrap_or(usize::MAX).min(SCAN_ENTRIES).min(entries.len());
        for (at, entry) in entries[..most].iter().enumerate() {
            self.check(op)?;
            match self.delete_batch(op, std::slice::from_ref(entry), None, moment, progress) {
                Ok(Some(_)) => {}
                Ok(None) => return Ok(None),
                Err(error) if error.code() == ErrorCode::WriteConflict => {}
                Err(error) => return Err(error),
            }
            if self.target_met(progress) {
                return Ok(Some(at + 1));
            }
        }
        Ok(Some(most))
    }

    /// Archives documents and then deletes them, in one unit.
    fn archive(
        &self,
        unit: &mut WriteUnit<'_>,
        due: &[(&RecordKey, StoredDocument)],
    ) -> Result<()> {
        let policy = self.rule.policy();
        if due.is_empty() {
            return Ok(());
        }
        let documents: Vec<_> = due.iter().map(|(_, document)| document.as_doc()).collect();
        unit.archive(policy, &documents)?;
        for (record_key, document) in due {
            unit.expire(record_key, document, self.rule.policy())?;
        }
        Ok(())
    }

    /// Adds the result of a unit to the counters.
    fn count_result(
        &self,
        op: &OpCtx,
        done: &UnitResult,
        moment: Moment,
        progress: &mut Progress,
        started: i64,
    ) {
        let UnitResult { deleted, examined, held, known, staged, .. } = *done;
        let now = self.store.clock.monotonic_micros();
        let runtime = &self.rule.policy().runtime;
        runtime.spend(deleted, staged, now);
        runtime.held.fetch_add(held + known, Ordering::Relaxed);
        runtime.refreshed.fetch_add(examined - deleted - held, Ordering::Relaxed);
        let keys_deleted = done.keys;
        let cutoff = self.rule.policy().cutoff(moment);
        progress.deleted += deleted;
        progress.docs_examined += examined;
        op.yields.fetch_add(1, Ordering::Relaxed);
        op.update_info(|info| info.extra = self.extra(cutoff, progress.deleted).into_bytes());
        let stats = self.store.ttl_stats();
        stats.deleted_keys.fetch_add(keys_deleted, Ordering::Relaxed);
        if self.batched {
            stats.batches.fetch_add(1, Ordering::Relaxed);
            stats.batch_docs.fetch_add(deleted, Ordering::Relaxed);
            stats.staged_size_bytes.fetch_add(staged, Ordering::Relaxed);
            stats.time_in_batch_micros.fetch_add(now - started, Ordering::Relaxed);
        }
    }

    /// Pauses if clients' commits are slowed down by this visit.
    fn make_room(&self, started: i64) {
        let now = self.store.clock.monotonic_micros();
        let pause = self.store.load.pause_micros(now - started, now);
        if pause > 0 {
            std::thread::sleep(std::time::Duration::from_micros(pause.unsigned_abs()));
        }
    }

    /// The limits of one unit. If the archive is in files, units are few and large.
    fn unit_size(&self) -> UnitSize {
        let params = self.store.ttl_params();
        let into_files =
            matches!(self.rule.policy().options.archive, Some(ArchiveTarget::Files { .. }));
        if into_files {
            return UnitSize { docs: Some(ARCHIVED_TOGETHER), micros: 0, bytes: ARCHIVED_BYTES };
        }
        let docs = if self.batched { params.batch_docs.load(Ordering::Relaxed) } else { 1 };
        UnitSize {
            docs: (docs > 0).then_some(docs as usize),
            micros: params.batch_ms.load(Ordering::Relaxed).saturating_mul(1000),
            bytes: params.batch_bytes.load(Ordering::Relaxed),
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

    fn has_short_documents(&self) -> bool {
        // The size is unknown after a crash until documents are counted.
        let documents = self.collection.known_documents();
        let bytes = self.store.data_bytes(self.collection);
        documents < i64::MAX && bytes / documents.max(1) <= READ_TOGETHER_BYTES
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

#[cfg(test)]
mod tests {
    use mayfly_base::{ManualClock, Namespace};

    use mayfly_value::bson::{Bson, DateTime, doc};

    use super::*;
    use crate::policy::TtlIndexRules;
    use crate::testing::{self, NOW, Opened};
    use crate::{CollModChange, CreateIndexesOptions, IndexSelector, NewExpireAfter};

    /// A store with a policy `x_1` over documents that have been due for a second, few enough for
    /// one visit.
    struct Overdue {
        store: Arc<Store>,
        clock: Arc<ManualClock>,
        ns: Namespace,
        collection: Arc<Collection>,
        op: Arc<OpCtx>,
    }

    impl Overdue {
        fn with(documents: i32, key: &str) -> Overdue {
            let clock = Arc::new(ManualClock::at_ms(NOW - 1000));
            let Opened { store, op, .. } = testing::open(testing::memory(), clock.clone());
            let ns = Namespace::parse("d.c").unwrap();
            let seconds = i32::from(key == "_ts");
            let spec = doc! { "key": { key: 1 }, "name": "x_1", "expireAfterSeconds": seconds, "ttl": {
                "holdField": "hold",
            } };
            let spec = DocBuf::from_bson(&spec);
            store
                .create_indexes(
                    (&op, &ReadView::now()),
                    &ns,
                    &[spec.as_doc()],
                    CreateIndexesOptions::default(),
                )
                .unwrap();
            let collection = store.collection(&ReadView::now(), &ns).unwrap();
            let date = Bson::DateTime(DateTime::from_millis(NOW - 1000));
            for id in 0..documents {
                let document = DocBuf::from_bson(&doc! { "_id": id, "x": date.clone() });
                store
                    .write(&op, &ReadView::now(), &collection, |unit| {
                        unit.insert(document.as_doc())
                    })
                    .unwrap();
            }
            clock.advance_ms(1000);
            // One document in a unit, and no pace.
            store.ttl_params().batch_docs.store(1, Ordering::Relaxed);
            Overdue { store, clock, ns, collection, op }
        }

        fn policy(&self) -> Rule {
            let index = self.collection.indexes()[0].id();
            Rule::now(&self.collection, index, TtlIndexRules::Manual).unwrap()
        }

        /// Runs one visit by this rule.
        fn visit(&self, rule: &Rule) -> Result<VisitEnd> {
            let visit = Visit {
                store: &self.store,
                collection: &self.collection,
                rule,
                pass: 1,
                sub_pass: 1,
                stopping: &AtomicBool::new(false),
                batched: true,
            };
            visit.run(None)
        }

        /// The number of stored documents, hidden or not.
        fn left(&self) -> i64 {
            self.store.count_documents(&self.op, &self.collection).unwrap()
        }

        fn set_policy(&self, change: CollModChange<'_>) {
            self.store.modify_index(&self.ns, IndexSelector::Name("x_1"), change).unwrap();
        }
    }

    /// Runs a visit that began before `change`, over a document that has been due for a second.
    /// Returns how many documents are left.
    fn left_after(change: impl FnOnce(&Store, &Namespace)) -> i64 {
        let overdue = Overdue::with(1, "x");
        let rule = overdue.policy();
        change(&overdue.store, &overdue.ns);
        // A dropped index is an error, upon which the pass ends the visit.
        let _ = overdue.visit(&rule);
        overdue.left()
    }

    /// Runs a pass over four documents, one in a unit, with `change` after the second unit. Returns
    /// how many are left.
    fn left_after_two(key: &str, change: impl Fn(&Overdue) + Send + 'static) -> i64 {
        let overdue = Arc::new(Overdue::with(4, key));
        let (units, weak) = (std::sync::atomic::AtomicU32::new(0), Arc::downgrade(&overdue));
        *overdue.store.between_units.lock() = Some(Box::new(move || {
            if units.fetch_add(1, Ordering::Relaxed) == 1 {
                change(&weak.upgrade().unwrap());
            }
        }));
        overdue.store.run_ttl_pass(&AtomicBool::new(false)).unwrap();
        overdue.left()
    }

    /// Collects log lines about slow visits, as their numbers of deletions.
    #[derive(Clone, Default)]
    struct SlowVisits(Arc<std::sync::Mutex<Vec<i64>>>);

    impl tracing::Subscriber for SlowVisits {
        fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
            true
        }

        fn event(&self, event: &tracing::Event<'_>) {
            let mut line = SlowVisit::default();
            event.record(&mut line);
            if line.id == 5479200 {
                self.0.lock().unwrap().push(line.deleted);
            }
        }

        fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
            tracing::span::Id::from_u64(1)
        }

        fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

        fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

        fn enter(&self, _: &tracing::span::Id) {}

        fn exit(&self, _: &tracing::span::Id) {}
    }

    #[derive(Default)]
    struct SlowVisit {
        id: i64,
        deleted: i64,
    }

    impl tracing::field::Visit for SlowVisit {
        fn record_debug(&mut self, _: &tracing::field::Field, _: &dyn std::fmt::Debug) {}

        fn record_i64(&mut self, field: &tracing::field::Field, value: i64) {
            match field.name() {
                "id" => self.id = value,
                "numDeleted" => self.deleted = value,
                _ => {}
            }
        }
    }

    /// The log lines of a visit over four due documents that takes `millis`, with a threshold of
    /// 100 ms.
    fn logged(millis: i64, holds: bool) -> Vec<i64> {
        let overdue = Overdue::with(if holds { 0 } else { 4 }, "x");
        for id in 0..if holds { 4 } else { 0 } {
            let date = Bson::DateTime(DateTime::from_millis(NOW - 1000));
            let held = DocBuf::from_bson(&doc! { "_id": id, "x": date, "hold": true });
            let (store, collection) = (&overdue.store, &overdue.collection);
            store
                .write(&overdue.op, &ReadView::now(), collection, |unit| unit.insert(held.as_doc()))
                .unwrap();
        }
        let lines = SlowVisits::default();
        let clock = overdue.clock.clone();
        *overdue.store.between_units.lock() = Some(Box::new(move || clock.advance_ms(millis)));
        tracing::subscriber::with_default(lines.clone(), || {
            overdue.visit(&overdue.policy()).unwrap();
        });
        lines.0.lock().unwrap().clone()
    }

    #[test]
    fn slow_visits_are_logged_also_without_deletions() {
        assert_eq!(logged(100, false), [4]);
        assert_eq!(logged(1, false), [0; 0]);
        assert_eq!(logged(100, true), [0]);
    }

    #[test]
    fn what_stops_expiry_stops_a_visit_after_its_unit() {
        for key in ["x", "_ts"] {
            assert_eq!(left_after_two(key, |_| {}), 0);
            let disabled =
                |it: &Overdue| it.store.ttl_params().enabled.store(false, Ordering::Relaxed);
            assert_eq!(left_after_two(key, disabled), 2, "ttlMonitorEnabled: false");
            let paused = |it: &Overdue| {
                let paused = DocBuf::from_bson(&doc! { "paused": true });
                it.set_policy(CollModChange {
                    ttl: Some(paused.as_doc()),
                    ..CollModChange::default()
                });
            };
            assert_eq!(left_after_two(key, paused), 2, "paused");
            let hold = |it: &Overdue| {
                let id = it
                    .store
                    .locate(&ReadView::now(), &it.collection, RawValue::Int32(3))
                    .unwrap()
                    .unwrap();
                let held = DocBuf::from_bson(
                    &doc! { "_id": 3, "x": Bson::DateTime(DateTime::from_millis(NOW - 1000)), "hold": true },
                );
                let written = it.store.write(&it.op, &ReadView::now(), &it.collection, |unit| {
                    let old = unit.read_stored(&id)?.unwrap();
                    unit.update(&id, &old, held.as_doc(), crate::UpdateStyle::Replacement)
                });
                written.unwrap();
            };
            assert_eq!(left_after_two(key, hold), 1, "hold");
        }
        for to in [NOW + 86_400_000, NOW - 86_400_000] {
            let jumped = move |it: &Overdue| it.clock.set_wall_ms(to);
            assert_eq!(left_after_two("x", jumped), 2, "the clock jumps to {to}");
        }
        let within = |it: &Overdue| it.clock.set_wall_ms(NOW + 300_000);
        assert_eq!(left_after_two("x", within), 0, "the clock jumps by the limit");
        let resting =
            |it: &Overdue| it.store.ttl_params().last_modified.store(false, Ordering::Relaxed);
        assert_eq!(left_after_two("_ts", resting), 2, "lastModifiedTTL: false");
        assert_eq!(left_after_two("x", resting), 0, "lastModifiedTTL: false, another policy");
    }

    #[test]
    fn a_visit_deletes_by_the_policy_of_the_moment() {
        assert_eq!(left_after(|_, _| {}), 0);
        let set = |seconds| {
            move |store: &Store, ns: &Namespace| {
                let change = CollModChange {
                    expire_after: Some(NewExpireAfter::Seconds(seconds)),
                    ..CollModChange::default()
                };
                store.modify_index(ns, IndexSelector::Name("x_1"), change).unwrap();
            }
        };
        assert_eq!(left_after(set(3600)), 1);
        assert_eq!(left_after(set(0)), 0);
        let hide = CollModChange { hidden: Some(true), ..CollModChange::default() };
        let hide = |store: &Store, ns: &Namespace| {
            store.modify_index(ns, IndexSelector::Name("x_1"), hide).unwrap();
        };
        assert_eq!(left_after(hide), 0);
        let drop = |store: &Store, ns: &Namespace| {
            store.drop_indexes(ns, None).unwrap();
        };
        assert_eq!(left_after(drop), 1);
    }
}
