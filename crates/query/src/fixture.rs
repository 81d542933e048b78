//! An in-memory store for tests of pipelines.

use mayfly_storage::ReadView;
use mayfly_storage::StoreSession;
use std::sync::Arc;

use mayfly_base::{Clock, Namespace, SystemClock};
use mayfly_kv::MemoryEngine;
use mayfly_storage::{Collection, CreateIndexesOptions, Store, StoreOptions};
use mayfly_value::{DocBuf, RawDoc};
use mayfly_work::current::Current;
use mayfly_work::{OpCtx, OpRegistry, current};

use crate::language::metadata::CurrentMetadata;
use crate::pipeline::parse_stages;
use crate::stage::show;
use crate::stage::{StageContext, Step};
use crate::{Flow, Metadata, Pipeline, PipelineContext, RunSettings};

pub(crate) struct Fixture {
    store: Arc<Store>,
    op: Arc<OpCtx>,
    view: ReadView,
}

impl Fixture {
    pub(crate) fn new() -> Fixture {
        Fixture::at(Arc::new(SystemClock::new()))
    }

    /// A store with this clock.
    pub(crate) fn at(clock: Arc<dyn Clock>) -> Fixture {
        let ops = OpRegistry::new(clock.clone());
        let options = StoreOptions {
            background: false,
            filters: Arc::new(crate::PartialFilters),
            ..StoreOptions::default()
        };
        let engine = Arc::new(MemoryEngine::new());
        let store = Store::open(engine, options, clock.clone(), ops).unwrap();
        Fixture { store, op: OpCtx::detached(clock), view: ReadView::now() }
    }

    pub(crate) fn insert(&self, collection: &str, documents: &[DocBuf]) {
        let ns = Namespace::new("test", collection).unwrap();
        let (collection, _) = self.store.get_or_create(&self.view, &ns).unwrap();
        let write = |unit: &mut mayfly_storage::WriteUnit<'_>| {
            documents.iter().try_for_each(|document| unit.insert(document.as_doc()))
        };
        self.session().write(&collection, write).unwrap();
    }

    /// Creates an index.
    pub(crate) fn index(&self, collection: &str, definition: RawDoc<'_>) {
        let ns = Namespace::new("test", collection).unwrap();
        let options = CreateIndexesOptions { ignore_unknown: false, update_policies: false };
        self.store.create_indexes((&self.op, &self.view), &ns, &[definition], options).unwrap();
    }

    /// A collection.
    pub(crate) fn collection(&self, ns: &Namespace) -> Arc<Collection> {
        self.session().collection(ns).unwrap()
    }

    /// The plan summary of a pipeline over the collection `c`.
    pub(crate) fn summary(&self, stages: RawDoc<'_>, context: &PipelineContext<'_>) -> String {
        let parsed = Pipeline::parse(stages, context).unwrap();
        let collection = self.session().collection(&Namespace::new("test", "c").unwrap());
        let run = parsed.start(self.session(), collection, None, RunSettings::default()).unwrap();
        run.plan_summary().into()
    }

    /// Runs a pipeline over the collection `c`. Returns its results as text, or its error code.
    pub(crate) fn run(
        &self,
        stages: RawDoc<'_>,
        context: &PipelineContext<'_>,
        settings: RunSettings,
    ) -> Result<Vec<String>, i32> {
        let run = || -> mayfly_base::Result<Vec<String>> {
            let parsed = Pipeline::parse(stages, context)?;
            let ns = Namespace::new("test", "c")?;
            let collection = self.session().collection(&ns);
            let mut run = parsed.start(self.session(), collection, None, settings)?;
            let mut out = Vec::new();
            while !run.is_done() {
                run.run(self.session(), &mut |document| {
                    out.push(mayfly_value::shell::Shell(document).to_string());
                    // Small batches, so that every stage is paused.
                    Ok(if out.len() % 3 == 0 { Flow::Pause } else { Flow::More })
                })?;
            }
            Ok(out)
        };
        run().map_err(|error| error.code().0)
    }

    /// Runs stages over documents with metadata. Returns the results as text.
    pub(crate) fn run_over(
        &self,
        stages: RawDoc<'_>,
        context: &PipelineContext<'_>,
        settings: &RunSettings,
        documents: &[(DocBuf, Metadata)],
    ) -> Vec<String> {
        let (_, steps) = parse_stages(stages, context).unwrap();
        let mut stages: Vec<_> = steps.into_iter().map(Step::start).collect();
        let metadata = CurrentMetadata::default();
        let context = StageContext::new(self.session(), settings, &metadata);
        let mut out = Vec::new();
        let mut take = |document: RawDoc<'_>| {
            out.push(mayfly_value::shell::Shell(document).to_string());
            Ok(Flow::More)
        };
        for (document, known) in documents {
            if stages.iter().any(|stage| stage.is_satisfied()) {
                break;
            }
            metadata.set(known);
            context.begin_step();
            show(&mut stages, &context, document.as_doc(), &mut take).unwrap();
        }
        for at in 0..stages.len() {
            let (now, later) = stages[at..].split_at_mut(1);
            metadata.clear();
            context.begin_step();
            let next = &mut |document: RawDoc<'_>| show(later, &context, document, &mut take);
            now[0].finish(&context, next).unwrap();
        }
        out
    }

    /// Pushes documents `{ _id: n }` to one stage, calls `act`, then finishes the stage. Returns
    /// the result of finishing.
    pub(crate) fn run_around(
        &self,
        stage: RawDoc<'_>,
        documents: i32,
        act: impl FnOnce(&Store, &Arc<OpCtx>),
    ) -> mayfly_base::Result<()> {
        let scope = mayfly_expr::Scope::default();
        let (_, steps) = parse_stages(stage, &PipelineContext::command("test", &scope))?;
        let mut stages: Vec<_> = steps.into_iter().map(Step::start).collect();
        let (settings, metadata) = (RunSettings::default(), CurrentMetadata::default());
        let context = StageContext::new(self.session(), &settings, &metadata);
        let mut take = |_: RawDoc<'_>| Ok(Flow::More);
        for id in 0..documents {
            let mut document = mayfly_value::DocBuilder::new();
            document.append("_id", id);
            show(&mut stages, &context, document.finish().as_doc(), &mut take)?;
        }
        act(&self.store, &self.op);
        let ended = stages[0].finish(&context, &mut take);
        if ended.is_err() {
            stages[0].abandon(&context);
        }
        ended.map(|_| ())
    }

    /// Pushes a document to stages, and ends the operation at the first result. Returns the number
    /// of results, and the result of pushing.
    pub(crate) fn end_at_first(
        &self,
        stages: RawDoc<'_>,
        document: RawDoc<'_>,
    ) -> (usize, mayfly_base::Result<Flow>) {
        let scope = mayfly_expr::Scope::default();
        let (_, steps) = parse_stages(stages, &PipelineContext::command("test", &scope)).unwrap();
        let mut stages: Vec<_> = steps.into_iter().map(Step::start).collect();
        let (settings, metadata) = (RunSettings::default(), CurrentMetadata::default());
        let context = StageContext::new(self.session(), &settings, &metadata);
        let mut results = 0;
        let mut take = |_: RawDoc<'_>| {
            results += 1;
            self.op.kill(mayfly_base::ErrorCode::Interrupted);
            Ok(Flow::More)
        };
        let _entered = current::enter(Current { op: Some(self.op.clone()) });
        let flow = show(&mut stages, &context, document, &mut take);
        (results, flow)
    }

    /// The store, the operation and the view.
    pub(crate) fn session(&self) -> StoreSession<'_> {
        StoreSession { store: &self.store, op: &self.op, view: &self.view }
    }

    /// The operation of all runs.
    pub(crate) fn op(&self) -> &Arc<OpCtx> {
        &self.op
    }

    /// The store.
    pub(crate) fn store(&self) -> &Arc<Store> {
        &self.store
    }
}
