//! Runs plans: batches of results, each batch over a snapshot of its own.
//!
//! A plan's nodes ([`node`]) are started with the first batch. Documents reach the sink as borrowed bytes.

mod count;
mod node;
pub(crate) mod shape;
pub(crate) mod tail;
mod trial;

use mayfly_storage::ReadView;
use mayfly_storage::StoreSession;
use std::ops::ControlFlow;
use std::sync::Arc;

use mayfly_base::{Namespace, Result};
use mayfly_storage::{Collection, RecordKey, Snapshot};
use mayfly_value::{DocBuf, RawDoc};
use mayfly_work::LONG_BYTES;

pub(crate) use node::near::{nearest, told};
pub use node::text::metadata_of;
use node::{Batch, Node, Progress, Settings};
pub(crate) use node::{Counters, Failures, Ran};
use shape::ResultShape;
use tail::Tail;
use trial::Trial;
pub(crate) use trial::Tried;

use crate::language::CanonicalQuery;
use crate::language::metadata::{INDEX_KEY, Metadata};
use crate::language::needed::Fields;
use crate::memory::Budget;
use crate::plan::{Plan, is_whole, plan_in_order, planned};

/// So many documents are looked at in a moment.
const FEW_DOCUMENTS: u64 = 1000;

/// So many documents a narrow scan of an index finds, about.
const NARROW_DOCUMENTS: i64 = 16;

/// What a sink answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// Taken; go on.
    More,
    /// Taken; that is enough for now.
    Pause,
    /// Not taken: give it again next time.
    Refused,
}

/// Receives documents with the keys of their records, and what is known about them beside their fields.
pub(crate) type Sink<'s> = dyn FnMut(&[u8], RawDoc<'_>, &Metadata) -> Result<Flow> + 's;

/// A running plan.
pub struct Executor {
    collection: Arc<Collection>,
    /// The collection's name when it began.
    namespace: Namespace,
    query: CanonicalQuery,
    plan: Plan,
    settings: Settings,
    /// What it may be chosen from, until that is settled.
    trial: Option<Trial>,
    /// Nobody looks at documents.
    counts_only: bool,
    /// Its nodes, once they run.
    root: Option<Box<dyn Node>>,
    /// A document that the sink refused.
    pending: Option<(RecordKey, DocBuf, Metadata)>,
    /// Memory for what it has to keep.
    budget: Budget,
    done: bool,
    /// How results are shown.
    shape: ResultShape,
    /// The command that failures name.
    command: Option<&'static str>,
    /// How many documents the next batch takes, where that is known.
    expected: Option<u64>,
    /// Whether the entries of its documents may move between batches although what is shown of the documents does not change.
    keeps_keys: bool,
}

/// Counts the use of indexes.
fn note_use(collection: &Collection, plan: &Plan) {
    match plan {
        Plan::Id(_) => collection.id_uses.add(),
        // A scan of everything uses no order.
        Plan::Records(scan) if !scan.is_whole() => collection.id_uses.add(),
        Plan::Text(text) => text.index.runtime.uses.add(),
        // Counted with the collection, which may do without this index.
        Plan::Index(scan) if scan.index.spec.name() == "_id_" => collection.id_uses.add(),
        Plan::Index(scan) => scan.index.runtime.uses.add(),
        Plan::Near(near) => near.index.runtime.uses.add(),
        // Parts of one index.
        Plan::Merge { inputs, .. } | Plan::Or(inputs) => {
            let mut last = None;
            for input in inputs {
                let index = input.index_scan().map(|scan| scan.index.id());
                if index.is_none() || index != last {
                    note_use(collection, input);
                }
                last = index;
            }
        }
        other => other.inputs().iter().for_each(|input| note_use(collection, input)),
    }
}

impl Executor {
    /// Plans the query with the indexes that the view sees.
    ///
    /// # Errors
    /// 2 BadValue for a hint that fits no index.
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

    /// Runs a query by one of its plans ([`crate::plans`]).
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

    /// The same, which learns nothing from the queries before it.
    ///
    /// # Errors
    /// Those of [`Executor::new`].
    pub(crate) fn by_itself(
        view: &ReadView,
        collection: Arc<Collection>,
        query: CanonicalQuery,
    ) -> Result<Executor> {
        let executor = Executor::new(view, collection, query)?;
        let trial = executor.trial.map(Trial::by_itself);
        Ok(Executor { trial, ..executor })
    }

    /// The plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The query.
    pub fn query(&self) -> &CanonicalQuery {
        &self.query
    }

    /// The collection it reads.
    pub fn collection(&self) -> &Arc<Collection> {
        &self.collection
    }

    /// Whether the first batch may look at many documents: a scan, a sort, a range without a limit, a script. Such work must not
    /// keep one of the runtime's threads; for shorter work saying so would cost more than the work.
    pub fn may_take_long(&self) -> bool {
        // A script may loop over its first document.
        if self.query.matcher.computes() {
            return true;
        }
        if self.may_give_much() {
            return true;
        }
        if self.collection.documents_about() <= FEW_DOCUMENTS as i64 {
            return false;
        }
        let few = |documents: Option<u64>| {
            documents.is_some_and(|most| most.saturating_add(self.query.skip) <= FEW_DOCUMENTS)
        };
        let narrow = |plan: &Plan| match plan {
            Plan::Nothing | Plan::Id(_) => true,
            Plan::Index(scan) => scan.narrow,
            _ => false,
        };
        // So does a trial.
        let tries = self.trial.as_ref().is_some_and(|trial| trial.allowed().is_none());
        if tries || self.plan.blocking_sort() {
            return true;
        }
        match self.plan.source() {
            Plan::Or(inputs) | Plan::Merge { inputs, .. } => !inputs.iter().all(narrow),
            Plan::Records(scan) => scan.is_whole() || !few(self.query.limit),
            Plan::Index(scan) => {
                let bounded =
                    scan.ranges.iter().all(|range| !is_whole(std::slice::from_ref(range)));
                // A batch is full soon when every entry gives a document.
                let exact = scan.exact && scan.multikey == 0 && !scan.repeats;
                let exact = exact && !self.settings.for_write && !self.collection.hides_expired();
                let limited = few(self.query.limit) || exact && few(self.expected);
                !(scan.narrow || bounded && limited)
            }
            other => !narrow(other),
        }
    }

    /// Whether documents are so large that the first batch copies megabytes, however few they are.
    fn may_give_much(&self) -> bool {
        let (documents, bytes) = self.collection.size_about();
        // On average a document has less: one that is read by its `_id` is not long, and most reads are of one.
        let are_small = bytes <= documents.saturating_mul(LONG_BYTES as i64);
        if bytes <= LONG_BYTES as i64 || are_small && matches!(self.plan, Plan::Id(_)) {
            return false;
        }
        let found = match self.plan.source() {
            Plan::Nothing => 0,
            Plan::Id(_) => 1,
            Plan::Index(scan) if scan.narrow => NARROW_DOCUMENTS,
            // Of a large collection of small documents the other rules say how many are looked at.
            _ => documents.min(FEW_DOCUMENTS as i64),
        };
        let wanted = self.query.limit.or(self.expected).map_or(i64::MAX, |most| most as i64);
        let average = bytes / documents.max(1);
        average.saturating_mul(found.min(wanted)) > LONG_BYTES as i64
    }

    /// Whether everything was given.
    pub fn is_done(&self) -> bool {
        self.done && self.pending.is_none()
    }

    /// From now on it finds records for a write, which changes or deletes them meanwhile: an index does not show a record a second
    /// time, even when an update moved its keys.
    pub fn find_for_write(&mut self) {
        self.settings.for_write = true;
        self.adapt();
    }

    fn adapt(&mut self) {
        let plan = std::mem::replace(&mut self.plan, Plan::Nothing);
        self.plan = self.adapted(plan);
    }

    /// A plan for what is wanted of it.
    fn adapted(&self, plan: Plan) -> Plan {
        let reads = self.settings.for_write || self.shape.key_only;
        let plan = if reads { plan.reading() } else { plan };
        if self.counts_only { plan.without_documents() } else { plan }
    }

    /// Settles which plan it is, where that takes a trial. Gives the plans that were tried, the chosen one first.
    ///
    /// # Errors
    /// Those of running plans.
    pub(crate) fn settle(&mut self, session: StoreSession<'_>) -> Result<Vec<Tried>> {
        let Some(trial) = self.trial.take() else { return Ok(Vec::new()) };
        if trial.allowed().is_some() && self.root.is_none() {
            self.trial = Some(trial);
            return Ok(Vec::new());
        }
        let before = self.plan.summary();
        let tried = self.choose(&trial, session)?;
        note_use(&self.collection, &self.plan);
        session.op.update_info(|info| {
            // A plan inside of a stage is not that of the command.
            if info.plan_summary == before {
                info.plan_summary = self.plan.summary();
            }
        });
        Ok(tried)
    }

    /// From now on it waits at the end of its collection, which must be capped.
    ///
    /// # Errors
    /// Those of a query that cannot be followed.
    pub fn follow(&mut self) -> Result<()> {
        self.settings.tail = Some(Tail::new(&self.collection, &self.query)?);
        self.plan = plan_in_order(&self.collection, &self.query);
        self.trial = None;
        self.done = false;
        Ok(())
    }

    /// From now on results are shown in this shape.
    ///
    /// # Errors
    /// 238 NotImplemented when this plan's results cannot be.
    pub fn show_as(&mut self, shape: ResultShape) -> Result<()> {
        self.shape = shape;
        self.check_shape(&self.plan)?;
        if self.tells_keys() {
            // Once its first document is shown it stays with its index.
            self.trial = self.trial.take().map(Trial::by_itself);
        }
        self.adapt();
        Ok(())
    }

    /// Whether the keys of its index are shown.
    fn tells_keys(&self) -> bool {
        let projection = self.query.projection.as_ref();
        self.shape.key_only || projection.is_some_and(|it| it.asks_for(INDEX_KEY))
    }

    /// Whether results of a plan can be shown as they are asked for.
    ///
    /// # Errors
    /// 238 NotImplemented when they cannot be.
    fn check_shape(&self, plan: &Plan) -> Result<()> {
        ResultShape { key_only: self.tells_keys(), ..self.shape }.check(plan)
    }

    /// From now on what it keeps is kept within this budget.
    pub fn use_budget(&mut self, budget: Budget) {
        self.budget = budget;
    }

    /// What its nodes did.
    pub(crate) fn ran(&self) -> Option<Ran> {
        self.root.as_ref().map(|root| root.ran())
    }

    /// Whether it keeps more than its position.
    pub fn keeps_much(&self) -> bool {
        self.settings.for_write
            || self.plan.any(&mut |node| match node {
                Plan::Text(_) | Plan::Near(_) | Plan::Sort { .. } => true,
                Plan::And(_) | Plan::Or(_) | Plan::Merge { disjoint: false, .. } => true,
                Plan::Index(scan) => scan.multikey != 0 || scan.repeats,
                _ => false,
            })
    }

    /// From now on a sort keeps of documents no more than this, besides what it goes by.
    pub(crate) fn sort_keeping(&mut self, keeps: Option<Fields>) {
        self.settings.keeps = keeps;
    }

    /// How results are shown.
    pub(crate) fn shape(&self) -> ResultShape {
        self.shape
    }

    /// From now on its nodes say how long they took.
    pub(crate) fn time_nodes(&mut self) {
        self.settings.timed = true;
    }

    /// Failures that a document causes name this command and its collection, as the reference's do.
    pub fn name_failures(&mut self, command: &'static str) {
        self.command = Some(command);
    }

    /// The command that failures name.
    pub(crate) fn command(&self) -> Option<&'static str> {
        self.command
    }

    /// From now on all runs of a batch share a snapshot, and [`Executor::end_batch`] is called with it: the cursor returns each
    /// bucket of a time series once, whatever is inserted between batches (`node/key_list.rs`).
    pub(crate) fn keep_keys(&mut self) {
        self.keeps_keys = self.collection.time_series().is_some();
    }

    /// A batch has ended and another one may follow.
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

    /// From now on the sink counts and does not look: it may be given empty documents.
    pub fn count_only(&mut self) {
        self.counts_only = true;
        self.adapt();
    }

    /// The next batch takes at most so many documents: no more records are read ahead than that.
    pub fn expect(&mut self, documents: usize) {
        self.expected = Some(documents as u64);
    }

    /// Gives documents to the sink until it pauses, refuses, or nothing is left. Projection is not applied.
    ///
    /// # Errors
    /// Those of the sink, the store, and the operation's deadline.
    pub fn run(&mut self, session: StoreSession<'_>, sink: &mut Sink<'_>) -> Result<()> {
        self.run_over(&mut None, session, sink)
    }

    /// The same as a part of a batch: takes its snapshot, and leaves it where [`Executor::keep_keys`] was called.
    ///
    /// # Errors
    /// Those of [`Executor::run`].
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
        let allowed = trial.as_ref().and_then(Trial::allowed);
        if trial.is_some() {
            session.op.planning.from_cache.store(true, std::sync::atomic::Ordering::Relaxed);
            note_use(&self.collection, &self.plan);
        }
        let expected = self.expected.take();
        let (progress, given) = self.go_on((session, snapshot), (expected, allowed), sink)?;
        if allowed.is_none_or(|_| progress != Progress::Spent) {
            self.done = progress == Progress::Over;
            return Ok(());
        }
        // The plan that others were served by is no good for this one. What it has given stays given.
        let trial = trial.map(|trial| trial.doubted(self, session.op));
        if given == 0 {
            self.root = None;
            self.trial = trial;
            self.settle(session)?;
        }
        let (progress, _) = self.go_on((session, snapshot), (expected, None), sink)?;
        self.done = progress == Progress::Over;
        Ok(())
    }

    /// Runs the nodes, as long as so much may be spent on it. Says how many results there were.
    fn go_on(
        &mut self,
        (session, snapshot): (StoreSession<'_>, &mut Option<Snapshot>),
        (expected, works): (Option<u64>, Option<u64>),
        sink: &mut Sink<'_>,
    ) -> Result<(Progress, u64)> {
        let root = match &mut self.root {
            Some(root) => root,
            none => {
                let of = (&self.collection, &self.query);
                none.insert(node::start(&self.plan, of, &mut self.settings))
            }
        };
        root.check_alive()?;
        let kept = (&self.budget, self.command);
        let batch = Batch::new(session, &self.collection, &self.query, kept);
        let batch = batch.with_works(works.unwrap_or(u64::MAX), false);
        let batch = batch.over(snapshot.take());
        batch.wanted.set(expected);
        let (pending, mut given, mut stopped) = (&mut self.pending, 0, false);
        let progress = root.run(&batch, &mut |row| {
            given += 1;
            let document = row.document.unwrap_or(RawDoc::EMPTY);
            let flow = sink(row.record, document, row.metadata)?;
            if flow == Flow::Refused {
                *pending = Some((row.record.to_vec(), document.to_owned(), row.metadata.clone()));
            }
            stopped = flow != Flow::More;
            Ok(if stopped { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })?;
        // What was dropped meanwhile is not maintained any more, and its range is cleared under open snapshots, too:
        // the scan may have missed documents.
        self.collection.check_alive()?;
        root.check_alive()?;
        let spent = progress == Progress::Stopped && !stopped && batch.works_left() == 0;
        *snapshot = batch.into_snapshot().filter(|_| self.keeps_keys);
        Ok((if spent { Progress::Spent } else { progress }, given))
    }
}
