//! The executor: runs plans in batches of results, each batch over its own snapshot. README.md in
//! this folder describes nodes, rows and batches.
//!
//! The nodes of a plan ([`node`]) start with the first batch. Documents reach the sink as borrowed
//! bytes.

mod count;
mod length;
mod node;
pub(crate) mod shape;
pub(crate) mod tail;
mod trial;

use mayfly_storage::ReadView;
use mayfly_storage::StoreSession;
use std::ops::ControlFlow;
use std::sync::Arc;

use mayfly_base::{ErrorCode, Namespace, Result};
use mayfly_storage::{Collection, RecordKey, Snapshot};
use mayfly_value::{DocBuf, RawDoc};
use mayfly_work::{OpCtx, PlanTimer};

pub(crate) use node::near::{near_metadata, nearest};
pub use node::text::metadata_of;
use node::{Batch, IfChanged, Node, Progress, ReadPurpose, Settings};
pub(crate) use node::{Counters, Failures, NodeStats};
use shape::ResultShape;
use trial::Trial;
pub(crate) use trial::TriedPlan;

use crate::language::CanonicalQuery;
use crate::language::metadata::{INDEX_KEY, Metadata};
use crate::language::needed::Fields;
use crate::memory::Budget;
use crate::plan::{Plan, UsedIndex, plan_in_order, planned};

/// The reply of a sink to a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// The sink accepted the document and wants more.
    More,
    /// The sink accepted the document and wants no more in this batch.
    Pause,
    /// The sink did not accept the document, and wants it again in the next batch.
    Refused,
}

/// Receives documents with their record keys and metadata.
pub(crate) type Sink<'s> = dyn FnMut(&[u8], RawDoc<'_>, &Metadata) -> Result<Flow> + 's;

/// The limits of a batch.
#[derive(Clone, Copy)]
struct BatchLimits {
    /// The number of documents that the caller will probably take.
    expected: Option<u64>,
    /// The works that a cached plan may need.
    works: Option<u64>,
}

/// A running plan.
pub struct Executor {
    collection: Arc<Collection>,
    /// The name of the collection when the query started.
    namespace: Namespace,
    query: CanonicalQuery,
    plan: Plan,
    settings: Settings,
    /// The candidates for a trial, until the plan is chosen.
    trial: Option<Trial>,
    /// The caller does not need documents.
    counts_only: bool,
    /// The root of the running nodes, from the first batch on.
    root: Option<Box<dyn Node>>,
    /// A document that the sink refused.
    pending: Option<(RecordKey, DocBuf, Metadata)>,
    /// Memory for operators that buffer.
    budget: Budget,
    done: bool,
    /// The shape in which results are returned.
    shape: ResultShape,
    /// The command that errors name.
    command: Option<&'static str>,
    /// Limit on the documents of the next batch, if known.
    expected: Option<u64>,
    /// Whether index entries may move between batches without a visible change of the documents, as
    /// in a time series.
    keeps_keys: bool,
}

/// Counts the use of the indexes of a plan.
fn note_use(collection: &Collection, plan: &Plan) {
    match plan.used_index() {
        // Uses of the `_id` index are counted with the collection, which may be clustered and have
        // no such index.
        Some(UsedIndex::Id) => collection.id_uses.add(),
        Some(UsedIndex::Other(index)) => index.runtime.uses.add(),
        // Several scans of one index count once.
        None => {
            let mut last = None;
            for input in plan.inputs() {
                let index = input.index_scan().map(|scan| scan.index.id());
                if index.is_none() || index != last {
                    note_use(collection, input);
                }
                last = index;
            }
        }
    }
}

impl Executor {
    /// Plans the query with the indexes that are visible to the view.
    ///
    /// # Errors
    /// 2 BadValue for a hint that matches no index.
    pub fn new(
        view: &ReadView,
        collection: Arc<Collection>,
        mut query: CanonicalQuery,
    ) -> Result<Executor> {
        query.indexes = view.visible_indexes();
        let planned = planned(&collection, &query)?;
        let (plan, cached) = (planned.plan, planned.cached);
        let trial =
            planned.candidates.map(|candidates| Trial::new(&collection, candidates, cached));
        if trial.is_none() {
            note_use(&collection, &plan);
        }
        Ok(Executor { trial, ..Executor::with_plan(collection, query, plan) })
    }

    /// Runs a query with one of its plans ([`crate::plans`]).
    pub fn with_plan(collection: Arc<Collection>, query: CanonicalQuery, plan: Plan) -> Executor {
        Executor {
            done: matches!(plan.source(), Plan::Nothing),
            namespace: collection.namespace(),
            collection,
            query,
            plan,
            settings: Settings::default(),
            trial: None,
            counts_only: false,
            root: None,
            pending: None,
            budget: Budget::default(),
            shape: ResultShape::default(),
            command: None,
            expected: None,
            keeps_keys: false,
        }
    }

    /// Creates an executor that neither uses nor fills the plan cache.
    ///
    /// # Errors
    /// Errors of [`Executor::new`].
    pub(crate) fn by_itself(
        view: &ReadView,
        collection: Arc<Collection>,
        query: CanonicalQuery,
    ) -> Result<Executor> {
        let executor = Executor::new(view, collection, query)?;
        let trial = executor.trial.map(Trial::by_itself);
        Ok(Executor { trial, ..executor })
    }

    /// The plan that runs; a trial may have chosen it.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The query that the plan answers.
    pub fn query(&self) -> &CanonicalQuery {
        &self.query
    }

    /// The collection that the plan reads.
    pub fn collection(&self) -> &Arc<Collection> {
        &self.collection
    }

    /// Whether all results were returned.
    pub fn is_done(&self) -> bool {
        self.done && self.pending.is_none()
    }

    /// Prepares the executor to find records for a write, which changes or deletes them meanwhile:
    /// an index scan does not return a record twice, even when an update moves its keys.
    pub fn find_for_write(&mut self) {
        self.settings.purpose = ReadPurpose::Write;
        self.adapt();
    }

    /// The same for a caller that needs the keys of the records only, and checks the filter itself:
    /// no documents are passed if the bounds of an index are equivalent to the filter.
    pub(crate) fn find_keys_for_write(&mut self) {
        self.find_for_write();
        self.settings.only_keys = true;
    }

    fn finds_for_write(&self) -> bool {
        self.settings.purpose == ReadPurpose::Write
    }

    fn adapt(&mut self) {
        let plan = std::mem::replace(&mut self.plan, Plan::Nothing);
        self.plan = self.adapted(plan);
    }

    /// Adjusts a plan to the needs of the caller.
    fn adapted(&self, plan: Plan) -> Plan {
        let reads = self.finds_for_write() || self.shape.key_only;
        let plan = if reads { plan.reading() } else { plan };
        if self.counts_only { plan.without_documents() } else { plan }
    }

    /// Runs the trial, if the plan is not chosen yet. Returns the plans that were tried, the chosen
    /// one first.
    ///
    /// # Errors
    /// Errors of running plans.
    pub(crate) fn settle(&mut self, session: StoreSession<'_>) -> Result<Vec<TriedPlan>> {
        let Some(trial) = self.trial.take() else { return Ok(Vec::new()) };
        if trial.allowed().is_some() && self.root.is_none() {
            self.trial = Some(trial);
            return Ok(Vec::new());
        }
        let before = self.plan.summary();
        let timer = PlanTimer::begin();
        let tried = self.choose(&trial, session)?;
        drop(timer);
        note_use(&self.collection, &self.plan);
        session.op.update_info(|info| {
            // The plan of a pipeline inside of a stage is not that of the command.
            if info.plan_summary == before {
                info.plan_summary = self.plan.summary();
            }
        });
        Ok(tried)
    }

    /// Makes the executor wait for new records at the end of its collection, which must be capped.
    ///
    /// # Errors
    /// Errors for queries that cannot be tailable.
    pub fn make_tailable(&mut self) -> Result<()> {
        tail::check(&self.collection, &self.query)?;
        self.settings.is_tailable = true;
        self.plan = plan_in_order(&self.collection, &self.query);
        self.trial = None;
        self.done = false;
        Ok(())
    }

    /// Whether the executor waits for new records at the end of its collection.
    pub fn is_tailable(&self) -> bool {
        self.settings.is_tailable
    }

    /// Sets the shape in which results are returned.
    pub fn set_shape(&mut self, shape: ResultShape) {
        self.shape = shape;
        if self.returns_keys() {
            // Once the first document is returned, the index must not change.
            self.trial = self.trial.take().map(Trial::by_itself);
        }
        self.adapt();
    }

    /// Whether results contain the keys of the index.
    fn returns_keys(&self) -> bool {
        let projection = self.query.projection.as_ref();
        self.shape.key_only || projection.is_some_and(|it| it.asks_for(INDEX_KEY))
    }

    /// Sets the memory budget for operators that buffer.
    pub fn use_budget(&mut self, budget: Budget) {
        self.budget = budget;
    }

    /// The statistics of the running nodes.
    pub(crate) fn ran(&self) -> Option<NodeStats> {
        self.root.as_ref().map(|root| root.ran())
    }

    /// Whether the executor keeps more than a position between batches.
    pub fn buffers_between_batches(&self) -> bool {
        self.finds_for_write() || self.plan.buffers_between_batches()
    }

    /// Restricts the fields that a sort buffers to these, besides its sort keys.
    pub(crate) fn sort_keeping(&mut self, keeps: Option<Fields>) {
        self.settings.keeps = keeps;
    }

    /// The shape in which results are returned.
    pub(crate) fn shape(&self) -> ResultShape {
        self.shape
    }

    /// Makes the nodes measure their execution time.
    pub(crate) fn time_nodes(&mut self) {
        self.settings.timed = true;
    }

    /// Makes errors that a document causes name this command and the collection, as in the
    /// reference.
    pub fn name_failures(&mut self, command: &'static str) {
        self.command = Some(command);
    }

    /// The command that errors name.
    pub(crate) fn command(&self) -> Option<&'static str> {
        self.command
    }

    /// Makes all runs of a batch share one snapshot; the caller passes it to
    /// [`Executor::end_batch`]. The cursor thereby returns each bucket of a time series once,
    /// whatever is inserted between batches (`node/key_list.rs`).
    pub(crate) fn keep_keys(&mut self) {
        self.keeps_keys = self.collection.time_series().is_some();
    }

    /// Ends a batch that another one may follow.
    ///
    /// # Errors
    /// Errors of the store, of the operation's deadline, and of files for record keys.
    pub(crate) fn end_batch(
        &mut self,
        session: StoreSession<'_>,
        snapshot: Snapshot,
    ) -> Result<()> {
        let Some(root) = self.root.as_mut().filter(|_| !self.done) else { return Ok(()) };
        let kept = (&self.budget, self.command);
        let batch = Batch::new(session, &self.collection, &self.query, kept);
        root.collect_keys(&batch.over(Some(snapshot)))?;
        self.collection.check_alive()?;
        root.check_alive()
    }

    /// Moves buffered rows from memory to files.
    ///
    /// # Errors
    /// 292 QueryExceededMemoryLimitNoDiskUseAllowed without files; errors of files and of the
    /// operation's deadline.
    pub(crate) fn release(&mut self, op: &OpCtx) -> Result<()> {
        self.root.as_mut().map_or(Ok(()), |root| root.release(op))
    }

    /// Declares that the sink counts only: it may receive empty documents.
    pub fn count_only(&mut self) {
        self.counts_only = true;
        self.adapt();
    }

    /// Whether the sink counts only.
    pub(crate) fn counts_only(&self) -> bool {
        self.counts_only
    }

    /// Limits the read-ahead of the next batch to this number of documents.
    pub fn expect(&mut self, documents: usize) {
        self.expected = Some(documents as u64);
    }

    /// Passes documents to the sink until it pauses, refuses, or none are left. Projection is not
    /// applied.
    ///
    /// # Errors
    /// Errors of the sink, the store, and the operation's deadline.
    pub fn run(&mut self, session: StoreSession<'_>, sink: &mut Sink<'_>) -> Result<()> {
        self.run_over(&mut None, session, sink)
    }

    /// Runs as a part of a batch: takes the batch's snapshot, and returns it after
    /// [`Executor::keep_keys`] was called.
    ///
    /// # Errors
    /// Errors of [`Executor::run`].
    pub(crate) fn run_over(
        &mut self,
        snapshot: &mut Option<Snapshot>,
        session: StoreSession<'_>,
        sink: &mut Sink<'_>,
    ) -> Result<()> {
        if self.is_done() {
            return Ok(());
        }
        self.collection.check_still(&self.namespace)?;
        if let Some((key, document, metadata)) = self.pending.take() {
            match sink(&key, document.as_doc(), &metadata)? {
                Flow::More => {}
                Flow::Pause => return Ok(()),
                Flow::Refused => {
                    self.pending = Some((key, document, metadata));
                    return Ok(());
                }
            }
        }
        if self.done {
            return Ok(());
        }
        session.op.check()?;
        if let Some(trial) = &self.trial {
            trial.note_keys(session.op);
        }
        self.settle(session)?;
        let trial = self.trial.take();
        let works = trial.as_ref().and_then(Trial::allowed);
        if trial.is_some() {
            session.op.planning.from_cache.store(true, std::sync::atomic::Ordering::Relaxed);
            note_use(&self.collection, &self.plan);
        }
        let limits = BatchLimits { expected: self.expected.take(), works };
        let (progress, given) = self.run_nodes((session, snapshot), limits, sink)?;
        if works.is_none_or(|_| progress != Progress::Spent) {
            self.done = progress == Progress::Over;
            return Ok(());
        }
        // The cached plan does not suit this query. Results that it has returned stay valid.
        let trial = trial.map(|trial| trial.without_cached(self, session.op));
        if given == 0 {
            self.root = None;
            self.trial = trial;
            self.settle(session)?;
        }
        let limits = BatchLimits { works: None, ..limits };
        let (progress, _) = self.run_nodes((session, snapshot), limits, sink)?;
        self.done = progress == Progress::Over;
        Ok(())
    }

    /// Runs the nodes within limits. Returns the number of results as well.
    fn run_nodes(
        &mut self,
        (session, snapshot): (StoreSession<'_>, &mut Option<Snapshot>),
        limits: BatchLimits,
        sink: &mut Sink<'_>,
    ) -> Result<(Progress, u64)> {
        let (is_first, mut given) = (self.root.is_none(), 0);
        let if_changed = if is_first { IfChanged::Fails } else { IfChanged::Loads };
        let ran = self.run_batch((session, snapshot), (limits, if_changed), &mut given, sink);
        let progress = match ran {
            // Nothing depends on the first run yet.
            Err(error) if is_first && given == 0 && error.code() == ErrorCode::QueryPlanKilled => {
                self.root = None;
                let limits = (limits, IfChanged::Loads);
                self.run_batch((session, snapshot), limits, &mut given, sink)?
            }
            ran => ran?,
        };
        Ok((progress, given))
    }

    /// Runs the nodes once, and counts their results.
    fn run_batch(
        &mut self,
        (session, snapshot): (StoreSession<'_>, &mut Option<Snapshot>),
        (limits, if_changed): (BatchLimits, IfChanged),
        given: &mut u64,
        sink: &mut Sink<'_>,
    ) -> Result<Progress> {
        let root = match &mut self.root {
            Some(root) => root,
            none => {
                let suffices = self.plan.is_exact() && !self.plan.blocking_sort();
                self.settings.only_keys &= suffices && !self.collection.hides_expired();
                let of = (&self.collection, &self.query);
                none.insert(node::start(&self.plan, of, &self.settings))
            }
        };
        root.check_alive()?;
        let kept = (&self.budget, self.command);
        let batch = Batch::new(session, &self.collection, &self.query, kept);
        let batch = batch.with_works(limits.works.unwrap_or(u64::MAX));
        let batch = batch.if_changed(if_changed).over(snapshot.take());
        batch.requested.set(limits.expected);
        let (pending, mut stopped) = (&mut self.pending, false);
        let progress = root.run(&batch, &mut |row| {
            *given += 1;
            let document = row.document.unwrap_or(RawDoc::EMPTY);
            let flow = sink(row.record, document, row.metadata)?;
            if flow == Flow::Refused {
                *pending = Some((row.record.to_vec(), document.to_owned(), row.metadata.clone()));
            }
            stopped = flow != Flow::More;
            Ok(if stopped { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })?;
        // The range of a dropped collection or index is cleared even under open snapshots, so the
        // scan may have missed documents.
        self.collection.check_alive()?;
        root.check_alive()?;
        let spent = progress == Progress::Stopped && !stopped && batch.works_left() == 0;
        *snapshot = batch.into_snapshot().filter(|_| self.keeps_keys);
        Ok(if spent { Progress::Spent } else { progress })
    }
}
