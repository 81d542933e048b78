//! A pipeline: stages parsed and checked, the front of it run as a plan, the rest shown document after document.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::Arc;

use mayfly_base::{Error, ErrorCode, OpCtx, Result, limits};
use mayfly_expr::Scope;
use mayfly_mql::{Matcher, ParseContext};
use mayfly_storage::{Collection, Store};
use mayfly_value::{Collation, DocBuf, RawDoc};

use crate::buckets::{OnBuckets, wanted_fields};
use crate::stage::unpack::Unpack;
use crate::stage::{Running, Stage};
use crate::{CanonicalQuery, Executor, Flow, Hint, Host};

/// A checked pipeline.
pub struct Pipeline {
    stages: Vec<Stage>,
    collation: Option<Arc<Collation>>,
}

impl Pipeline {
    /// Parses and checks all stages; strings compare by the collation of the scope.
    ///
    /// # Errors
    /// 14 for what is no document, 7749501 for too many stages, 40602 for a source that is not first, those of the stages.
    pub fn parse(pipeline: RawDoc<'_>, scope: &Scope) -> Result<Pipeline> {
        let mut stages = Vec::new();
        for (at, element) in pipeline.iter().enumerate() {
            let Some(spec) = element.value().as_document() else {
                return Err(Error::type_mismatch(
                    "Each element of the 'pipeline' array must be an object",
                ));
            };
            if at >= limits::MAX_PIPELINE_STAGES {
                return Err(Error::new(
                    ErrorCode(7749501),
                    format!(
                        "Pipeline length must be no longer than {} stages",
                        limits::MAX_PIPELINE_STAGES
                    ),
                ));
            }
            let parsed = Stage::parse(spec, scope)?;
            let first_only = |stage: &Stage| stage.is_source() || stage.describes_collection();
            if at > 0 && parsed.iter().any(first_only) {
                let name = spec.iter().next().map_or("", |field| field.name());
                return Err(Error::new(
                    ErrorCode(40602),
                    format!("{name} is only valid as the first stage in a pipeline"),
                ));
            }
            stages.extend(parsed);
        }
        if let Some(Stage::Unpack(unpack)) = stages.first_mut() {
            let on_buckets = use_what_is_asked(unpack, pipeline);
            if let Some(filter) = on_buckets {
                stages.insert(0, Stage::Match(Matcher::parse_in(filter.as_doc(), scope)?));
            }
        }
        Ok(Pipeline { stages, collation: scope.collation().cloned() })
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
    ) -> Result<PipelineRun> {
        let (mut query, rest) = split(self.stages, hint)?;
        query.collation = self.collation;
        let input = match collection {
            Some(collection) => Input::Plan(Box::new(Executor::new(collection, query)?)),
            None => Input::Documents(VecDeque::new()),
        };
        Ok(PipelineRun::new(input, rest))
    }

    /// Starts it with the documents that its first stage gives.
    ///
    /// # Errors
    /// Those of the host.
    pub fn start_source(self, host: &dyn Host) -> Result<PipelineRun> {
        let mut stages = VecDeque::from(self.stages);
        let documents = match stages.pop_front() {
            Some(Stage::CurrentOp(options)) => host.current_ops(options.as_doc())?,
            Some(Stage::LocalSessions(options)) => host.local_sessions(options.as_doc())?,
            Some(Stage::Sessions(options)) => host.sessions(options.as_doc())?,
            Some(Stage::IndexStats) => host.index_stats()?,
            Some(Stage::TtlStats) => host.ttl_stats()?,
            _ => Vec::new(),
        };
        Ok(PipelineRun::new(Input::Documents(documents.into()), stages.into()))
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

/// Takes `$match`, `$sort`, `$skip` and `$limit` at the front, in this order, for the planner.
fn split(stages: Vec<Stage>, hint: Option<Hint>) -> Result<(CanonicalQuery, Vec<Stage>)> {
    let everything = Matcher::parse(RawDoc::EMPTY, &ParseContext::default())?;
    let mut query = CanonicalQuery {
        matcher: Arc::new(everything),
        sort: None,
        natural_backward: None,
        projection: None,
        skip: 0,
        limit: None,
        hint,
        collation: None,
    };
    let mut rest = stages.into_iter().peekable();
    if let Some(Stage::Match(_)) = rest.peek()
        && let Some(Stage::Match(matcher)) = rest.next()
    {
        query.matcher = Arc::new(matcher);
    }
    if let Some(Stage::Sort(_)) = rest.peek()
        && let Some(Stage::Sort(pattern)) = rest.next()
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
}

/// A running pipeline.
pub struct PipelineRun {
    input: Input,
    stages: Vec<Box<dyn Running>>,
    /// Stages before this one were told that the input is over.
    finished: usize,
    /// Results that the reader had no room for.
    ready: VecDeque<DocBuf>,
}

impl PipelineRun {
    fn new(input: Input, stages: Vec<Stage>) -> PipelineRun {
        let stages = stages.into_iter().map(Stage::start).collect();
        PipelineRun { input, stages, finished: 0, ready: VecDeque::new() }
    }

    /// What the plan at the front does, for `planSummary`.
    pub fn plan_summary(&self) -> Cow<'static, str> {
        match &self.input {
            Input::Plan(executor) => executor.plan().summary(),
            Input::Documents(_) => Cow::Borrowed(""),
        }
    }

    /// Whether everything was given.
    pub fn is_done(&self) -> bool {
        let input_done = match &self.input {
            Input::Plan(executor) => executor.is_done(),
            Input::Documents(documents) => documents.is_empty(),
        };
        let input_done = input_done || self.stages.iter().any(|stage| stage.is_satisfied());
        input_done && self.finished >= self.stages.len() && self.ready.is_empty()
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
        let mut full = drain(&mut ready, reader)?;
        let PipelineRun { input, stages, finished, .. } = self;
        let mut take = |document: RawDoc<'_>| -> Result<Flow> {
            if !full {
                match reader(document)? {
                    Flow::More => return Ok(Flow::More),
                    Flow::Pause => full = true,
                    Flow::Refused => {
                        full = true;
                        ready.push_back(document.to_owned());
                    }
                }
            } else {
                ready.push_back(document.to_owned());
            }
            Ok(Flow::Pause)
        };
        // Once a stage was told the end, what came out of it waits in `ready`.
        if *finished == 0 {
            let mut over = match input {
                Input::Plan(executor) => {
                    executor
                        .run(store, op, &mut |_, document| show(stages, document, &mut take))?;
                    executor.is_done()
                }
                Input::Documents(documents) => {
                    while let Some(document) = documents.pop_front() {
                        if show(stages, document.as_doc(), &mut take)? != Flow::More {
                            break;
                        }
                    }
                    documents.is_empty()
                }
            };
            over |= stages.iter().any(|stage| stage.is_satisfied());
            if over {
                while *finished < stages.len() {
                    let (now, behind) = stages[*finished..].split_at_mut(1);
                    now[0].finish(&mut |document| show(behind, document, &mut take))?;
                    *finished += 1;
                    op.check()?;
                }
            }
        }
        self.ready = ready;
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

/// Shows a document to the first stage, whose results go to the second, and so on to the reader.
fn show(
    stages: &mut [Box<dyn Running>],
    document: RawDoc<'_>,
    reader: &mut dyn FnMut(RawDoc<'_>) -> Result<Flow>,
) -> Result<Flow> {
    match stages.split_first_mut() {
        None => reader(document),
        Some((first, behind)) => {
            let flow = first.push(document, &mut |result| show(behind, result, reader))?;
            Ok(if first.is_satisfied() { Flow::Pause } else { flow })
        }
    }
}
