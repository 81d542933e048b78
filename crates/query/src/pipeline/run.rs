//! A running pipeline: passes documents from its input through the stages to the reader.

use mayfly_storage::StoreSession;
use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::Arc;

use mayfly_base::Result;
use mayfly_storage::{Collection, Snapshot, Store, Watch};
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue};
use mayfly_work::{OpCtx, PlanSummary};

use crate::change::{BatchEnd, ChangeStream, LogScan};
use crate::exec::{Executor, Flow};
use crate::language::metadata::CurrentMetadata;
use crate::plan::{Plan, UsedIndex};
use crate::stage::group::Group;
use crate::stage::source::RunningSource;
use crate::stage::{Reader, RunSettings, Running, StageContext, Step, TimedStage, show};

/// The input of a pipeline.
pub(super) enum Input {
    Plan(Box<Executor>),
    /// Documents of a source, or in memory.
    Source(Box<dyn RunningSource>),
    /// The number of documents of a collection, from which a `$group` makes one document.
    Counted(Arc<Collection>, Option<Box<Group>>),
    /// Shared documents, and the number of those that were read.
    Shared(Arc<Vec<DocBuf>>, usize),
    /// Change events, without end.
    Changes(Box<ChangeStream>),
    /// Entries of the operation log.
    Log(Box<LogScan>),
}

impl Input {
    fn is_done(&self) -> bool {
        match self {
            Input::Plan(executor) => executor.is_done(),
            Input::Source(source) => source.is_over(),
            Input::Counted(_, group) => group.is_none(),
            Input::Shared(documents, read) => *read >= documents.len(),
            Input::Changes(stream) => stream.is_over(),
            Input::Log(scan) => scan.is_over(),
        }
    }

    /// Passes the next documents to the first stage until one pauses or none are left.
    ///
    /// # Errors
    /// Errors of the input and of the stages.
    fn feed(
        &mut self,
        stages: &mut [Box<dyn Running>],
        context: &StageContext<'_>,
        snapshot: &mut Option<Snapshot>,
        take: &mut Reader<'_>,
    ) -> Result<()> {
        let session = context.session;
        match self {
            Input::Plan(executor) => {
                executor.run_over(snapshot, session, &mut |_, document, metadata| {
                    context.metadata.set(metadata);
                    show(stages, context, document, take)
                })?
            }
            Input::Source(source) => {
                while let Some((document, known)) = source.next(session)? {
                    context.metadata.set(&known);
                    if show(stages, context, document.as_doc(), take)? != Flow::More {
                        break;
                    }
                }
            }
            Input::Changes(stream) => {
                while let Some(event) = stream.next(session)? {
                    let taken = &mut |document: RawDoc<'_>| {
                        stream.check_shown(document)?;
                        take(document)
                    };
                    match show(stages, context, event.as_doc(), taken) {
                        Ok(Flow::More) => {}
                        Ok(_) => break,
                        // The operation has to end; the event is not at fault.
                        Err(error) if session.op.check().is_err() => return Err(error),
                        Err(error) => return stream.refuse(error),
                    }
                }
            }
            Input::Log(scan) => {
                while let Some(entry) = scan.next(session)? {
                    if show(stages, context, entry.as_doc(), take)? != Flow::More {
                        break;
                    }
                }
            }
            Input::Counted(collection, group) => {
                let count = session.store.count_documents(session.op, collection)?;
                let count = u64::try_from(count).unwrap_or(0);
                let counted = group.take().and_then(|group| group.counted(count));
                // Without documents there is no group.
                if let Some(counted) = counted.filter(|_| count > 0) {
                    show(stages, context, counted.as_doc(), take)?;
                }
            }
            Input::Shared(documents, read) => {
                while let Some(document) = documents.get(*read) {
                    *read += 1;
                    if show(stages, context, document.as_doc(), take)? != Flow::More {
                        break;
                    }
                }
            }
        }
        Ok(())
    }
}

/// A running pipeline.
pub struct PipelineRun {
    pub(super) input: Input,
    stages: Vec<Box<dyn Running>>,
    settings: RunSettings,
    /// Stages before this index are finished.
    finished: usize,
    /// Results that the reader did not accept yet.
    ready: VecDeque<DocBuf>,
}

impl PipelineRun {
    pub(super) fn new(input: Input, steps: Vec<Step>, settings: RunSettings) -> PipelineRun {
        let watched = settings.read_only;
        let start = |step: Step| match watched && step.written().is_some() {
            true => TimedStage::over(step.start()),
            false => step.start(),
        };
        let stages = steps.into_iter().map(start).collect();
        PipelineRun { input, stages, settings, finished: 0, ready: VecDeque::new() }
    }

    /// The plan of the query, for `planSummary`.
    pub fn plan_summary(&self) -> PlanSummary {
        match &self.input {
            Input::Plan(executor) => executor.plan().summary(),
            Input::Source(_) | Input::Shared(..) => PlanSummary::NONE,
            Input::Counted(..) => "RECORD_STORE_FAST_COUNT".into(),
            Input::Changes(_) | Input::Log(_) => PlanSummary::COLLECTION_SCAN,
        }
    }

    /// Whether the query scans its collection.
    pub(crate) fn scans_everything(&self) -> bool {
        match &self.input {
            Input::Plan(executor) => executor.plan().summary().is_collection_scan(),
            Input::Source(_)
            | Input::Shared(..)
            | Input::Counted(..)
            | Input::Changes(_)
            | Input::Log(_) => false,
        }
    }

    /// Whether the query reads one document by its `_id`.
    pub(crate) fn finds_by_id(&self) -> bool {
        match &self.input {
            Input::Plan(executor) => matches!(executor.plan().source(), Plan::Id(_)),
            _ => false,
        }
    }

    /// Visits the names of the indexes that the query uses.
    pub(crate) fn each_index(&self, see: &mut dyn FnMut(&str)) {
        if let Input::Plan(executor) = &self.input {
            each_index(executor.plan(), see);
        }
    }

    /// For an explained run: statistics and own time in microseconds of each stage that explain
    /// shows, in order.
    pub(super) fn stage_stats(&self) -> Vec<(DocBuf, u64)> {
        let stages = self.stages.iter().filter(|_| self.settings.read_only);
        let did = stages.map(|stage| {
            let mut out = DocBuilder::new();
            let micros = stage.explain(&mut out);
            (out.finish(), micros)
        });
        // Hidden stages have no statistics.
        did.filter(|(did, _)| !did.as_doc().is_empty()).collect()
    }

    /// The resume token of a change stream.
    pub fn resume_token(&self) -> Option<DocBuf> {
        match &self.input {
            // Results in `ready`, or held by a stage, were not returned yet.
            Input::Changes(stream) => {
                let ready = self.ready.front().map(DocBuf::as_doc);
                let held = || self.stages.last().and_then(|stage| stage.held());
                Some(match ready.or_else(held) {
                    Some(event) => ChangeStream::token_before(event),
                    None => stream.resume_token(),
                })
            }
            _ => None,
        }
    }

    /// The timestamp up to which a change stream, or a scan of the log, has read.
    pub(crate) fn changes_reached(&self) -> Option<u64> {
        match &self.input {
            Input::Changes(stream) => Some(stream.reached()),
            Input::Log(scan) => scan.waits_beyond(),
            _ => None,
        }
    }

    /// The watch that signals more changes, for a change stream.
    pub(crate) fn watch(&self) -> Option<&Arc<Watch>> {
        match &self.input {
            Input::Changes(stream) => Some(stream.watch()),
            _ => None,
        }
    }

    /// A timestamp up to which a change stream has returned everything.
    pub(crate) fn changes_shown_up_to(&self, store: &Store) -> Option<u64> {
        match &self.input {
            Input::Changes(stream) => Some(stream.shown_up_to(store)),
            _ => None,
        }
    }

    /// Whether all results were returned.
    pub fn is_done(&self) -> bool {
        let over = if self.stages.is_empty() {
            self.input.is_done()
        } else {
            self.finished >= self.stages.len()
        };
        over && self.ready.is_empty()
    }

    /// Passes results to the reader until it pauses, refuses, or none are left.
    ///
    /// # Errors
    /// Errors of plan, stages and reader.
    pub fn run(
        &mut self,
        session: StoreSession<'_>,
        reader: &mut dyn FnMut(RawDoc<'_>) -> Result<Flow>,
    ) -> Result<()> {
        let mut ready = std::mem::take(&mut self.ready);
        let follows = matches!(self.input, Input::Changes(_));
        if let Input::Changes(stream) = &mut self.input {
            stream.begin_batch(!ready.is_empty());
        }
        // The `_id` of the last event that the reader accepted.
        let mut last = None;
        let reader = &mut |document: RawDoc<'_>| {
            let flow = reader(document)?;
            if follows && flow != Flow::Refused {
                last = document.get("_id").and_then(RawValue::as_document).map(RawDoc::to_owned);
            }
            Ok(flow)
        };
        let full = Cell::new(drain(&mut ready, reader)?);
        let mut take = |document: RawDoc<'_>| -> Result<Flow> {
            if !full.get() {
                match reader(document)? {
                    Flow::More => return Ok(Flow::More),
                    Flow::Pause => full.set(true),
                    Flow::Refused => {
                        full.set(true);
                        ready.push_back(document.to_owned());
                    }
                }
            } else {
                ready.push_back(document.to_owned());
            }
            Ok(Flow::Pause)
        };
        let settings = std::mem::take(&mut self.settings);
        let metadata = CurrentMetadata::default();
        let context = StageContext::new(session, &settings, &metadata);
        let mut snapshot = None;
        let outcome = self.work(&context, &full, &mut snapshot, &mut take);
        let outcome = outcome.and_then(|()| match (&mut self.input, snapshot) {
            (Input::Plan(executor), Some(snapshot)) if self.finished == 0 => {
                executor.end_batch(session, snapshot)
            }
            _ => Ok(()),
        });
        self.stages.iter_mut().for_each(|stage| stage.end_batch());
        if outcome.is_err() {
            self.stages.iter_mut().for_each(|stage| stage.abandon(&context));
        }
        self.settings = settings;
        if let Input::Changes(stream) = &mut self.input {
            let end = if full.get() { BatchEnd::Full } else { BatchEnd::NoMoreEvents };
            stream.end_batch(last.as_ref().map(DocBuf::as_doc), end);
        }
        self.ready = ready;
        outcome
    }

    /// Moves buffered documents of the plan and of the stages from memory to files.
    ///
    /// # Errors
    /// 292 QueryExceededMemoryLimitNoDiskUseAllowed without files; errors of files and of the
    /// operation's deadline.
    pub(crate) fn release(&mut self, op: &OpCtx) -> Result<()> {
        if let Input::Plan(executor) = &mut self.input {
            executor.release(op)?;
        }
        self.stages.iter_mut().try_for_each(|stage| stage.release(op))
    }

    fn work(
        &mut self,
        context: &StageContext<'_>,
        full: &Cell<bool>,
        snapshot: &mut Option<Snapshot>,
        take: &mut Reader<'_>,
    ) -> Result<()> {
        while !self.settle(context, full, take)? {
            self.step(context, snapshot, take)?;
            // No input has arrived; the caller waits and runs again.
            let idle = match &self.input {
                Input::Changes(stream) => stream.is_idle(),
                Input::Log(scan) => scan.is_idle() && !scan.is_over(),
                Input::Source(source) => source.is_idle(),
                Input::Plan(_) | Input::Shared(..) | Input::Counted(..) => false,
            };
            if idle {
                break;
            }
        }
        Ok(())
    }

    /// Skips finished stages. Returns true if there is nothing more to do for now.
    fn settle(
        &mut self,
        context: &StageContext<'_>,
        full: &Cell<bool>,
        take: &mut Reader<'_>,
    ) -> Result<bool> {
        let satisfied = self.stages.iter().rposition(|stage| stage.is_satisfied());
        // No later stage needs the results of earlier ones.
        self.finished = self.finished.max(satisfied.map_or(0, |at| at + 1));
        if self.finished == 0 && !self.input.is_done() {
            return Ok(full.get());
        }
        while let Some((stage, later)) = self.stages[self.finished..].split_first_mut() {
            if stage.holds_back() {
                return Ok(full.get());
            }
            let next = &mut |document: RawDoc<'_>| show(later, context, document, take);
            context.metadata.clear();
            context.begin_step();
            stage.finish(context, next)?;
            self.finished += 1;
        }
        Ok(true)
    }

    /// Runs the stages until one of them or the reader pauses.
    fn step(
        &mut self,
        context: &StageContext<'_>,
        snapshot: &mut Option<Snapshot>,
        take: &mut Reader<'_>,
    ) -> Result<()> {
        for at in (self.finished..self.stages.len()).rev() {
            let Some((stage, later)) = self.stages[at..].split_first_mut() else { continue };
            let next = &mut |document: RawDoc<'_>| show(later, context, document, take);
            context.begin_step();
            if stage.resume(context, next)? != Flow::More {
                return Ok(());
            }
        }
        context.session.op.check()?;
        context.begin_step();
        if self.finished == 0 && !self.input.is_done() {
            return self.input.feed(&mut self.stages, context, snapshot, take);
        }
        if let Some((stage, later)) = self.stages[self.finished..].split_first_mut() {
            let next = &mut |document: RawDoc<'_>| show(later, context, document, take);
            context.metadata.clear();
            if stage.finish(context, next)? == Flow::More {
                self.finished += 1;
            }
        }
        Ok(())
    }
}

/// Visits the names of the indexes that a plan uses.
fn each_index(plan: &Plan, see: &mut dyn FnMut(&str)) {
    match plan.used_index() {
        Some(UsedIndex::Id) => see("_id_"),
        Some(UsedIndex::Other(index)) => see(index.spec.name()),
        None => plan.inputs().iter().for_each(|input| each_index(input, see)),
    }
}

fn drain(
    ready: &mut VecDeque<DocBuf>,
    reader: &mut dyn FnMut(RawDoc<'_>) -> Result<Flow>,
) -> Result<bool> {
    while let Some(document) = ready.front() {
        let flow = reader(document.as_doc())?;
        if flow == Flow::Refused {
            return Ok(true);
        }
        ready.pop_front();
        if flow == Flow::Pause {
            return Ok(true);
        }
    }
    Ok(false)
}
