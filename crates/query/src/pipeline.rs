//! A pipeline: stages parsed and checked, the front of it run as a plan, the rest shown document after document.

mod places;

use std::borrow::Cow;
use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::Arc;

use mayfly_base::{Error, ErrorCode, OpCtx, Result, limits};
use mayfly_expr::Scope;
use mayfly_mql::{Matcher, ParseContext};
use mayfly_storage::{Collection, Store, in_transaction};
use mayfly_value::{Collation, DocBuf, RawDoc};

use crate::buckets::{OnBuckets, wanted_fields};
use crate::change::{ChangeScope, ChangeStream};
use crate::foremost;
use crate::log_scan::LogScan;
use crate::metadata::InFlight;
use crate::needed::{Fields, kept_by_front_sort, narrow};
use crate::optimise::optimised;
use crate::stage::geo_near;
use crate::stage::unpack::Unpack;
use crate::stage::{Around, Inside, RunSettings, Running, Stage, StageContext, StageRow};
use crate::{CanonicalQuery, Executor, FirstOf, Flow, Hint, Host};
use places::{check_behind_changes, check_in_transaction, check_split};

/// A checked pipeline.
pub struct Pipeline {
    stages: Vec<Stage>,
    collation: Option<Arc<Collation>>,
    rewritten: Option<DocBuf>,
    /// It need not run as it is written.
    optimised: bool,
    /// What a sort at the front keeps of documents; nothing: all.
    front_sort: Option<Fields>,
    /// What it asks buckets for, over measurements.
    on_buckets: Option<DocBuf>,
}

impl Pipeline {
    /// Parses and checks all stages; strings compare by the collation of the scope.
    ///
    /// # Errors
    /// 14 for what is no document, 7749501 for too many stages, 40601 and 40602 for stages in the wrong place, those of the
    /// stages.
    pub fn parse(pipeline: RawDoc<'_>, around: &Around<'_>) -> Result<Pipeline> {
        let mut stages = parse_stages(pipeline, around)?;
        let follows = matches!(stages.first(), Some(Stage::ChangeStream(_)));
        if follows {
            check_behind_changes(pipeline)?;
        }
        check_split(&mut stages)?;
        let rewritten = match around.optimises() && stages.len() > 1 && !follows {
            true => optimised(pipeline, around.scope),
            false => None,
        };
        if let Some(better) = &rewritten {
            stages = parse_stages(better.as_doc(), around)?;
        }
        let pipeline = rewritten.as_ref().map_or(pipeline, DocBuf::as_doc);
        let mut on_buckets = None;
        if let Some(Stage::Unpack(unpack)) = stages.first_mut() {
            on_buckets = use_what_is_asked(unpack, pipeline);
            if let Some(filter) = &on_buckets {
                stages.insert(0, Stage::Match(Matcher::parse_in(filter.as_doc(), around.scope)?));
            }
        }
        if let Some(Stage::ShowBuckets(show)) = stages.first() {
            let first = pipeline.iter().nth(1).and_then(|stage| stage.value().as_document());
            let filter = first.and_then(|stage| stage.get("$match")?.as_document());
            on_buckets = filter.and_then(|filter| show.on_stored(filter));
            if let Some(filter) = &on_buckets {
                stages.insert(0, Stage::Match(Matcher::parse_in(filter.as_doc(), around.scope)?));
            }
        }
        limit_sorts(&mut stages);
        let mut front_sort = None;
        if around.optimises() {
            front_sort = kept_by_front_sort(&stages, pipeline);
            let count = pipeline.iter().count();
            // Some stages are short for several others.
            let mut sent = if stages.len() == count { (0..count).collect() } else { Vec::new() };
            fold_unwinds(&mut stages, &mut sent, pipeline, around.scope);
            narrow(&mut stages, &sent, pipeline);
        }
        let (collation, optimised) = (around.scope.collation().cloned(), around.optimises());
        Ok(Pipeline { stages, collation, rewritten, optimised, front_sort, on_buckets })
    }

    /// Its stages as they run, when they are not those that were sent.
    pub fn rewritten(&self) -> Option<RawDoc<'_>> {
        self.rewritten.as_ref().map(DocBuf::as_doc)
    }

    /// What it asks buckets for where it reads measurements, as a filter.
    pub fn filter_on_buckets(&self) -> Option<RawDoc<'_>> {
        self.on_buckets.as_ref().map(DocBuf::as_doc)
    }

    /// The query that a search by distance in its first stage begins with, as a filter.
    ///
    /// # Errors
    /// 27 IndexNotFound where no index says which field is meant.
    pub fn filter_by_distance(&self, collection: &Collection) -> Result<Option<DocBuf>> {
        match self.stages.first() {
            Some(Stage::GeoNear(stage)) => stage.filter_over(collection).map(Some),
            _ => Ok(None),
        }
    }

    /// Whether it follows changes; if so, whether those of all databases.
    pub fn follows_changes(&self) -> Option<bool> {
        match self.stages.first() {
            Some(Stage::ChangeStream(options)) => Some(options.all),
            _ => None,
        }
    }

    /// Starts it over the changes of a scope.
    ///
    /// # Errors
    /// 286 ChangeStreamHistoryLost.
    pub fn start_changes(
        self,
        store: &Store,
        scope: ChangeScope,
        settings: RunSettings,
    ) -> Result<PipelineRun> {
        let mut stages = VecDeque::from(self.stages);
        let Some(Stage::ChangeStream(options)) = stages.pop_front() else {
            return Err(Error::internal(
                "a pipeline that follows no changes was started as one that does",
            ));
        };
        let stream = ChangeStream::new(store, scope, &options)?;
        Ok(PipelineRun::new(Input::Changes(Box::new(stream)), stages.into(), settings))
    }

    /// Starts it over the operation log.
    pub fn start_log(self, scan: LogScan, settings: RunSettings) -> PipelineRun {
        PipelineRun::new(Input::Log(Box::new(scan)), self.stages, settings)
    }

    /// Whether its first stage needs no collection.
    pub fn is_source(&self) -> bool {
        self.stages.first().is_some_and(Stage::is_source)
    }

    /// Whether its first stage tells about the collection.
    pub fn describes_collection(&self) -> bool {
        self.stages.first().is_some_and(Stage::describes_collection)
    }

    /// Whether its first stage stands for the collection of sessions, `config.system.sessions`, and runs on that only.
    pub fn lists_sessions(&self) -> bool {
        matches!(self.stages.first(), Some(Stage::Sessions(_)))
    }

    /// Whether its first stage runs on the database `admin` only.
    pub fn is_admin_only(&self) -> bool {
        matches!(self.stages.first(), Some(Stage::CurrentOp(_)))
    }

    /// Starts it over a collection; nothing to read when there is none.
    ///
    /// # Errors
    /// Those of planning.
    pub fn start(
        self,
        collection: Option<Arc<Collection>>,
        hint: Option<Hint>,
        settings: RunSettings,
    ) -> Result<PipelineRun> {
        if self.gives_documents() {
            return Ok(self.start_over(Vec::new(), settings));
        }
        let first_of = self.first_of();
        let mut stages = self.stages;
        let by_distance = match (stages.first_mut(), &collection) {
            (Some(Stage::GeoNear(stage)), Some(collection)) => Some(stage.query_over(collection)?),
            _ => None,
        };
        let (mut query, mut rest) = split(stages, hint)?;
        if let Some(matcher) = by_distance {
            query.matcher = matcher;
        }
        query.first_of = first_of;
        query.collation = self.collation;
        let times = match &collection {
            Some(collection) => foremost::prepared(collection, &mut query, &mut rest)?,
            None => None,
        };
        let input = match collection {
            Some(collection) => {
                let mut executor = Executor::new(collection, query)?;
                executor.use_budget(settings.budget.clone());
                executor.sort_keeping(self.front_sort);
                Input::Plan(Box::new(executor))
            }
            None if query.matcher.text().is_some() => {
                let text = "text index required for $text query";
                return Err(Error::new(ErrorCode::IndexNotFound, text));
            }
            None => Input::Documents(VecDeque::new()),
        };
        let mut run = PipelineRun::new(input, rest, settings);
        if let Some((at, stage)) = times {
            run.stages.insert(at, stage);
        }
        Ok(run)
    }

    /// What its planned part is asked for, when the `$group` behind it does with one document for each value of a field.
    pub fn first_of(&self) -> Option<FirstOf> {
        let mut stages = self.stages.iter().peekable();
        stages.next_if(|stage| matches!(stage, Stage::Match(_)));
        let ordered = stages.next_if(|stage| matches!(stage, Stage::Sort(..))).is_some();
        match stages.next() {
            Some(Stage::Group(group)) if self.optimised => group.first_of(ordered),
            _ => None,
        }
    }

    /// Whether it changes data.
    pub fn writes(&self) -> bool {
        matches!(self.stages.last(), Some(Stage::Out(_) | Stage::Merge(_)))
    }

    /// Whether its documents are written in its first stage.
    pub fn gives_documents(&self) -> bool {
        matches!(self.stages.first(), Some(Stage::Documents(_)))
    }

    /// Starts it over documents that are there, or those in its first stage.
    pub(crate) fn start_over(self, documents: Vec<DocBuf>, settings: RunSettings) -> PipelineRun {
        let (mut documents, mut stages) = (documents, VecDeque::from(self.stages));
        if let Some(Stage::Documents(_)) = stages.front()
            && let Some(Stage::Documents(own)) = stages.pop_front()
        {
            documents = own;
        }
        PipelineRun::new(Input::Documents(documents.into()), stages.into(), settings)
    }

    /// Starts it over documents that others read, too.
    pub(crate) fn start_shared(
        self,
        documents: Arc<Vec<DocBuf>>,
        settings: RunSettings,
    ) -> PipelineRun {
        PipelineRun::new(Input::Shared(documents, 0), self.stages, settings)
    }

    /// Starts it with the documents that its first stage gives.
    ///
    /// # Errors
    /// Those of the host.
    pub fn start_source(self, host: &dyn Host, settings: RunSettings) -> Result<PipelineRun> {
        let mut stages = VecDeque::from(self.stages);
        let documents = match stages.pop_front() {
            Some(Stage::Documents(documents)) => documents,
            Some(Stage::CurrentOp(options)) => host.current_ops(options.as_doc())?,
            Some(Stage::LocalSessions(options)) => host.local_sessions(options.as_doc())?,
            Some(Stage::Sessions(options)) => host.sessions(options.as_doc())?,
            Some(Stage::CollStats(options)) => host.coll_stats(options.as_doc())?,
            Some(Stage::IndexStats) => host.index_stats()?,
            Some(Stage::TtlStats) => host.ttl_stats()?,
            _ => Vec::new(),
        };
        let input = Input::Documents(documents.into());
        Ok(PipelineRun::new(input, stages.into(), settings))
    }
}

/// Parses all stages of a pipeline.
pub(crate) fn parse_stages(pipeline: RawDoc<'_>, around: &Around<'_>) -> Result<Vec<Stage>> {
    let mut stages = Vec::new();
    let count = pipeline.iter().count();
    if count > limits::MAX_PIPELINE_STAGES {
        let most = limits::MAX_PIPELINE_STAGES;
        let text = format!("Pipeline length must be no longer than {most} stages");
        return Err(Error::new(ErrorCode(7749501), text));
    }
    // What the first stage finds may have metadata, which those behind it may ask for.
    let mut behind = None;
    for (at, element) in pipeline.iter().enumerate() {
        let here = behind.as_ref().map_or(*around, |scope| around.scoped(scope));
        let Some(spec) = element.value().as_document() else {
            return Err(Error::type_mismatch(
                "Each element of the 'pipeline' array must be an object",
            ));
        };
        if in_transaction() {
            check_in_transaction(spec)?;
        }
        let mut parsed = Stage::parse(spec, &here)?;
        let unpacked = at == 1 && matches!(stages.first(), Some(Stage::Unpack(_)));
        if unpacked && matches!(parsed.as_slice(), [Stage::GeoNear(_)]) {
            parsed = over_measurements(parsed)?;
        }
        let searches = |stage: &Stage| matches!(stage, Stage::Match(it) if it.text().is_some());
        if (at > 0 || around.inside == Inside::Facet) && parsed.iter().any(searches) {
            let text = "$match with $text is only allowed as the first pipeline stage";
            return Err(Error::new(ErrorCode(17313), text));
        }
        if at == 0 || unpacked {
            let names = parsed.iter().flat_map(|stage| stage.gives_metadata());
            behind = names.fold(None, |scope: Option<Scope>, name| {
                let scope = scope.unwrap_or_else(|| around.scope.clone());
                Some(scope.with_metadata(name))
            });
        }
        stages.extend(parsed);
    }
    let names = pipeline.iter().filter_map(|element| element.value().as_document()?.iter().next());
    let over_measurements =
        matches!(stages.as_slice(), [Stage::Unpack(_), Stage::Distances(_), ..]);
    for (at, name) in names.enumerate() {
        if !(over_measurements && at == 1) {
            StageRow::of(name)?.check_place(at, count)?;
        }
    }
    Ok(stages)
}

/// A search by distance that stands behind the stage which takes buckets apart.
fn over_measurements(parsed: Vec<Stage>) -> Result<Vec<Stage>> {
    let mut stages = Vec::new();
    for stage in parsed {
        match stage {
            Stage::GeoNear(stage) => stages.extend(geo_near::over_measurements(stage)?),
            other => stages.push(other),
        }
    }
    Ok(stages)
}

/// Tells sorts how many of their first results are wanted.
fn limit_sorts(stages: &mut [Stage]) {
    for at in 0..stages.len() {
        let (front, behind) = stages.split_at_mut(at + 1);
        let Some(Stage::Sort(_, keep)) = front.last_mut() else { continue };
        let mut skipped = 0u64;
        for stage in behind {
            match stage {
                Stage::Skip(count) => skipped = skipped.saturating_add(*count),
                Stage::Limit(count) => {
                    *keep = Some(skipped.saturating_add(*count));
                    break;
                }
                _ => break,
            }
        }
    }
}

/// Lets joins unwind their results themselves, and look for those only that a filter behind wants. `sent` says which stage of the
/// pipeline as it was sent each stage is, where each is one.
fn fold_unwinds(
    stages: &mut Vec<Stage>,
    sent: &mut Vec<usize>,
    pipeline: RawDoc<'_>,
    scope: &Scope,
) {
    let mut at = 1;
    while at < stages.len() {
        let (front, behind) = stages.split_at_mut(at);
        let filter = sent
            .get(at)
            .and_then(|sent| pipeline.iter().nth(*sent))
            .and_then(|stage| stage.value().as_document()?.get("$match")?.as_document());
        let folded = match (front.last_mut(), behind.first(), filter) {
            (Some(Stage::Lookup(lookup)), Some(Stage::Unwind(unwind)), _) => lookup.fold(unwind),
            (Some(Stage::Lookup(lookup)), Some(Stage::Match(_)), Some(filter)) => {
                lookup.absorb(filter, scope)
            }
            _ => false,
        };
        if folded {
            stages.remove(at);
            if at < sent.len() {
                sent.remove(at);
            }
        } else {
            at += 1;
        }
    }
}

/// Tells a stage that takes buckets apart what the stages behind it look at; gives a filter for the buckets.
fn use_what_is_asked(unpack: &mut Unpack, pipeline: RawDoc<'_>) -> Option<DocBuf> {
    let mut behind = pipeline.iter().skip(1).filter_map(|stage| stage.value().as_document());
    unpack.wanted = wanted_fields(behind.clone());
    let first = behind.next()?.get("$match")?.as_document()?;
    let asked = OnBuckets::of(first, &unpack.fields, unpack.span_ms);
    let filter = asked.filter();
    unpack.tests = asked.tests;
    filter
}

/// The query for all documents.
pub(crate) fn everything(hint: Option<Hint>) -> Result<CanonicalQuery> {
    Ok(CanonicalQuery {
        matcher: Arc::new(Matcher::parse(RawDoc::EMPTY, &ParseContext::default())?),
        sort: None,
        natural_backward: None,
        projection: None,
        skip: 0,
        limit: None,
        hint,
        collation: None,
        first_of: None,
    })
}

/// Takes `$match`, `$sort`, `$skip` and `$limit` at the front, in this order, for the planner.
fn split(stages: Vec<Stage>, hint: Option<Hint>) -> Result<(CanonicalQuery, Vec<Stage>)> {
    let mut query = everything(hint)?;
    let mut rest = stages.into_iter().peekable();
    if let Some(Stage::Match(_)) = rest.peek()
        && let Some(Stage::Match(matcher)) = rest.next()
    {
        query.matcher = Arc::new(matcher);
    }
    if let Some(Stage::Sort(..)) = rest.peek()
        && let Some(Stage::Sort(pattern, _)) = rest.next()
    {
        query.sort = Some(pattern);
    }
    if let Some(Stage::Skip(count)) = rest.peek() {
        query.skip = *count;
        rest.next();
    }
    if let Some(Stage::Limit(count)) = rest.peek() {
        query.limit = Some(*count);
        rest.next();
    }
    Ok((query, rest.collect()))
}

enum Input {
    Plan(Box<Executor>),
    Documents(VecDeque<DocBuf>),
    /// Documents that others read, too, and how many were read.
    Shared(Arc<Vec<DocBuf>>, usize),
    /// Events, which come as long as there are changes.
    Changes(Box<ChangeStream>),
    /// Entries of the operation log.
    Log(Box<LogScan>),
}

impl Input {
    fn is_done(&self) -> bool {
        match self {
            Input::Plan(executor) => executor.is_done(),
            Input::Documents(documents) => documents.is_empty(),
            Input::Shared(documents, read) => *read >= documents.len(),
            Input::Changes(stream) => stream.is_over(),
            Input::Log(scan) => scan.is_over(),
        }
    }
}

/// A running pipeline.
pub struct PipelineRun {
    input: Input,
    stages: Vec<Box<dyn Running>>,
    settings: RunSettings,
    /// Stages before this one are over.
    finished: usize,
    /// Results that the reader had no room for.
    ready: VecDeque<DocBuf>,
}

impl PipelineRun {
    fn new(input: Input, stages: Vec<Stage>, settings: RunSettings) -> PipelineRun {
        let stages = stages.into_iter().map(Stage::start).collect();
        PipelineRun { input, stages, settings, finished: 0, ready: VecDeque::new() }
    }

    /// What the plan at the front does, for `planSummary`.
    pub fn plan_summary(&self) -> Cow<'static, str> {
        match &self.input {
            Input::Plan(executor) => executor.plan().summary(),
            Input::Documents(_) | Input::Shared(..) => Cow::Borrowed(""),
            Input::Changes(_) | Input::Log(_) => Cow::Borrowed("COLLSCAN"),
        }
    }

    /// Whether the plan at the front looks at every document.
    pub(crate) fn scans_everything(&self) -> bool {
        match &self.input {
            Input::Plan(executor) => executor.plan().summary() == "COLLSCAN",
            Input::Documents(_) | Input::Shared(..) | Input::Changes(_) | Input::Log(_) => false,
        }
    }

    /// What a client goes on from that loses the cursor, when it follows changes.
    pub fn resume_token(&self) -> Option<DocBuf> {
        match &self.input {
            // What is ready was not given yet, nor is what a stage holds.
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

    /// The timestamp up to which it has looked at changes, when it follows them or the log.
    pub(crate) fn changes_reached(&self) -> Option<u64> {
        match &self.input {
            Input::Changes(stream) => Some(stream.reached()),
            Input::Log(scan) => scan.waits_beyond(),
            _ => None,
        }
    }

    /// A timestamp up to which everything is that a stream of changes shows, when it is one.
    pub(crate) fn changes_shown_up_to(&self, store: &Store) -> Option<u64> {
        match &self.input {
            Input::Changes(stream) => Some(stream.shown_up_to(store)),
            _ => None,
        }
    }

    /// Whether everything was given.
    pub fn is_done(&self) -> bool {
        let over = if self.stages.is_empty() {
            self.input.is_done()
        } else {
            self.finished >= self.stages.len()
        };
        over && self.ready.is_empty()
    }

    /// Gives results until the reader pauses, refuses, or nothing is left.
    ///
    /// # Errors
    /// Those of plan, stages and reader.
    pub fn run(
        &mut self,
        store: &Store,
        op: &OpCtx,
        reader: &mut dyn FnMut(RawDoc<'_>) -> Result<Flow>,
    ) -> Result<()> {
        let mut ready = std::mem::take(&mut self.ready);
        if let Input::Changes(stream) = &mut self.input {
            stream.begin_batch(!ready.is_empty());
        }
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
        let metadata = InFlight::default();
        let context = StageContext { store, op, settings: &settings, metadata: &metadata };
        self.stages.iter_mut().for_each(|stage| stage.begin_batch());
        let outcome = self.work(&context, &full, &mut take);
        if outcome.is_err() {
            self.stages.iter_mut().for_each(|stage| stage.abandon(&context));
        }
        self.settings = settings;
        self.ready = ready;
        outcome
    }

    fn work(
        &mut self,
        context: &StageContext<'_>,
        full: &Cell<bool>,
        take: &mut Reader<'_>,
    ) -> Result<()> {
        while !self.settle(context, full, take)? {
            self.step(context, take)?;
            // Nothing has come: whoever waits for it asks again.
            let idle = match &self.input {
                Input::Changes(stream) => stream.is_idle(),
                Input::Log(scan) => scan.is_idle() && !scan.is_over(),
                Input::Plan(_) | Input::Documents(_) | Input::Shared(..) => false,
            };
            if idle {
                break;
            }
        }
        Ok(())
    }

    /// Goes past stages that are over; true when there is nothing more to do for now.
    fn settle(
        &mut self,
        context: &StageContext<'_>,
        full: &Cell<bool>,
        take: &mut Reader<'_>,
    ) -> Result<bool> {
        let satisfied = self.stages.iter().rposition(|stage| stage.is_satisfied());
        // Nobody wants anything from the stages before.
        self.finished = self.finished.max(satisfied.map_or(0, |at| at + 1));
        if self.finished == 0 && !self.input.is_done() {
            return Ok(full.get());
        }
        while let Some((stage, behind)) = self.stages[self.finished..].split_first_mut() {
            if stage.holds_back() {
                return Ok(full.get());
            }
            let next = &mut |document: RawDoc<'_>| show(behind, context, document, take);
            context.metadata.clear();
            stage.finish(context, next)?;
            self.finished += 1;
        }
        Ok(true)
    }

    /// Works until somebody pauses.
    fn step(&mut self, context: &StageContext<'_>, take: &mut Reader<'_>) -> Result<()> {
        for at in (self.finished..self.stages.len()).rev() {
            let Some((stage, behind)) = self.stages[at..].split_first_mut() else { continue };
            let next = &mut |document: RawDoc<'_>| show(behind, context, document, take);
            if stage.resume(context, next)? != Flow::More {
                return Ok(());
            }
        }
        let (store, op) = (context.store, context.op);
        op.check()?;
        if self.finished == 0 && !self.input.is_done() {
            let stages = &mut self.stages;
            match &mut self.input {
                Input::Plan(executor) => {
                    executor.run(store, op, &mut |_, document, metadata| {
                        context.metadata.set(metadata);
                        show(stages, context, document, take)
                    })?
                }
                Input::Documents(documents) => {
                    while let Some(document) = documents.pop_front() {
                        if show(stages, context, document.as_doc(), take)? != Flow::More {
                            break;
                        }
                    }
                }
                Input::Changes(stream) => {
                    while let Some(event) = stream.next(store, op)? {
                        let taken = &mut |document: RawDoc<'_>| {
                            stream.check_shown(document)?;
                            take(document)
                        };
                        match show(stages, context, event.as_doc(), taken) {
                            Ok(Flow::More) => {}
                            Ok(_) => break,
                            // Not an error of the event, but of the operation.
                            Err(error) if op.check().is_err() => return Err(error),
                            Err(error) => return stream.refuse(error),
                        }
                    }
                }
                Input::Log(scan) => {
                    while let Some(entry) = scan.next(store, op)? {
                        if show(stages, context, entry.as_doc(), take)? != Flow::More {
                            break;
                        }
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
            return Ok(());
        }
        if let Some((stage, behind)) = self.stages[self.finished..].split_first_mut() {
            let next = &mut |document: RawDoc<'_>| show(behind, context, document, take);
            context.metadata.clear();
            if stage.finish(context, next)? == Flow::More {
                self.finished += 1;
            }
        }
        Ok(())
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

/// Takes the results of a pipeline.
type Reader<'r> = dyn FnMut(RawDoc<'_>) -> Result<Flow> + 'r;

/// Shows a document to the first stage, whose results go to the second, and so on to the reader.
pub(crate) fn show(
    stages: &mut [Box<dyn Running>],
    context: &StageContext<'_>,
    document: RawDoc<'_>,
    reader: &mut Reader<'_>,
) -> Result<Flow> {
    match stages.split_first_mut() {
        None => reader(document),
        Some((first, behind)) => {
            let next = &mut |result: RawDoc<'_>| show(behind, context, result, reader);
            let flow = first.push(context, document, next)?;
            Ok(if first.is_satisfied() { Flow::Pause } else { flow })
        }
    }
}
