//! Reads of a view: the stages of its definition, followed by those of the command, as one
//! pipeline.

use mayfly_storage::StoreSession;
use std::sync::Arc;

use mayfly_base::{Error, ErrorCode, Namespace, Result};
use mayfly_expr::Scope;
use mayfly_query::{
    Budget, Flow, Hint, LogOrder, LogScan, Pipeline, PipelineContext, PipelineRun, RunSettings,
    Searcher, UncheckedPipeline, begins_with_search,
};
use mayfly_storage::{Collection, OPLOG, ResolvedView, buckets_view};
use mayfly_value::{Collation, DocBuf, DocBuilder, RawDoc, RawValue, same_collation};

use super::aggregate::with_descriptions;
use super::read::Collating;
use crate::context::CommandContext;
use crate::request::Request;

/// The object that a name stands for.
pub(crate) enum Source {
    /// A collection.
    Collection(Arc<Collection>),
    /// A view, or something that is read like one: buckets in the reference's format, and the
    /// operation log.
    View(Box<ResolvedView>),
    /// Nothing.
    Nothing,
}

/// The object that a name currently stands for.
///
/// # Errors
/// Errors of [`mayfly_storage::Store::resolve_view`].
pub(crate) fn source(ctx: &CommandContext<'_>, ns: &Namespace) -> Result<Source> {
    let store = &ctx.service.store;
    if ctx.store.view.cluster_time().is_some() && ns.db() == "local" {
        check_local_snapshot(ctx.store, ns)?;
    }
    if ns.as_str() == OPLOG {
        let (on, pipeline) = (ns.clone(), DocBuilder::new_array().finish());
        let log = ResolvedView { ns: on.clone(), on, pipeline, collation: None, is_series: false };
        return Ok(Source::View(Box::new(log)));
    }
    if let Some(collection) = store.collection(ctx.store.view, ns) {
        // Buckets are read in the reference's format.
        return Ok(match buckets_view(&collection) {
            Some(view) => Source::View(Box::new(view)),
            None => Source::Collection(collection),
        });
    }
    Ok(match store.resolve_view(ctx.store.view, ns)? {
        Some(view) => Source::View(Box::new(view)),
        None => Source::Nothing,
    })
}

/// Refuses snapshot reads of capped collections and the log in `local`, which keep no history.
///
/// # Errors
/// 246 SnapshotUnavailable.
fn check_local_snapshot(store: StoreSession<'_>, ns: &Namespace) -> Result<()> {
    let is_capped = |found: Arc<Collection>| found.capped().is_some();
    match ns.as_str() == OPLOG || store.collection(ns).is_some_and(is_capped) {
        false => Ok(()),
        true => Err(Error::new(
            ErrorCode::SnapshotUnavailable,
            "Reading from non replicated capped collections with readConcern snapshot is not supported",
        )),
    }
}

/// The stages of a view, followed by those of a command.
pub(crate) struct Stages {
    stages: DocBuilder,
    /// The number of stages of the view.
    of_view: usize,
    /// Whether the command's stages begin with a search of the view.
    searching: bool,
    /// Whether the reader waits at the end of the log.
    following: bool,
}

/// Whether a namespace that is read like a view has a natural order, to which `$natural` refers.
pub(super) fn has_natural_order(view: &ResolvedView) -> bool {
    view.shows_buckets() || reads_log(view)
}

/// Whether a view reads the operation log.
pub(crate) fn reads_log(view: &ResolvedView) -> bool {
    view.on.as_str() == OPLOG
}

impl Stages {
    pub(crate) fn new(view: &ResolvedView) -> Stages {
        let mut out = DocBuilder::new_array();
        for stage in view.pipeline.as_doc() {
            out.push(stage.value());
        }
        let of_view = view.pipeline.as_doc().iter().count();
        Stages { stages: out, of_view, searching: false, following: false }
    }

    /// Makes the reader of the log wait at the end.
    pub(super) fn make_tailable(&mut self) {
        self.following = true;
    }

    /// Adds a stage.
    pub(super) fn push<'v>(&mut self, name: &str, operand: impl Into<RawValue<'v>>) -> &mut Stages {
        self.stages.push_document().append(name, operand).end();
        self
    }

    /// Adds a stage unless its operand is missing or empty.
    pub(crate) fn push_document(&mut self, name: &str, operand: Option<RawDoc<'_>>) -> &mut Stages {
        match operand {
            Some(operand) if !operand.is_empty() => self.push(name, operand),
            _ => self,
        }
    }

    /// The stages of a pipeline over a view. A search reads an index on the view, whose stages then
    /// do not run.
    pub(super) fn over(view: &ResolvedView, pipeline: RawDoc<'_>) -> Stages {
        let searching = begins_with_search(pipeline);
        let of_view = if searching { RawDoc::EMPTY } else { view.pipeline.as_doc() };
        let mut stages = DocBuilder::new_array();
        for stage in of_view.iter().chain(pipeline) {
            stages.push(stage.value());
        }
        let of_view = of_view.iter().count();
        Stages { stages, of_view, searching, following: false }
    }

    /// Whether the command's stages begin with a search of the view.
    pub(crate) fn is_searching(&self) -> bool {
        self.searching
    }

    /// All stages as an array, and the number of the view's stages.
    pub(crate) fn finish(self) -> (DocBuf, usize) {
        (self.stages.finish(), self.of_view)
    }

    /// Parses the stages, and checks the rights of the command's stages; those of the view were
    /// checked when it was defined.
    ///
    /// # Errors
    /// 13 Unauthorized; errors of the variables and of the stages.
    pub(super) fn parse<'v>(
        self,
        (ctx, request): (&CommandContext<'_>, &Request<'_>),
        view: &'v ResolvedView,
        variables: Option<RawDoc<'_>>,
    ) -> Result<OverView<'v>> {
        let Stages { searching, following, .. } = self;
        let (stages, of_view) = self.finish();
        let scope = command_scope(ctx, view.collation.clone(), variables)?;
        let context = PipelineContext::command(view.on.db(), &scope).with_view(ctx.store.view);
        let context = context.over(request.target().as_str());
        let parsed = UncheckedPipeline::parse(stages.as_doc(), &context.after_view(of_view));
        let mut pipeline = ctx.checked(request, parsed)?;
        if searching {
            pipeline.search_view(view);
        }
        Ok(OverView { view, pipeline, following })
    }
}

/// A parsed pipeline over the collection of a view, beginning with the view's stages.
pub(crate) struct OverView<'v> {
    view: &'v ResolvedView,
    pipeline: Pipeline,
    /// Whether the reader waits at the end of the log.
    following: bool,
}

impl OverView<'_> {
    /// The pipeline.
    pub(super) fn pipeline(&self) -> &Pipeline {
        &self.pipeline
    }

    /// Starts it over the operation log.
    ///
    /// # Errors
    /// 2 BadValue for the hint of an index.
    fn start_log(self, hint: Option<&Hint>, settings: RunSettings) -> Result<PipelineRun> {
        let order = match hint {
            Some(Hint::Natural { backward: true }) => LogOrder::Descending,
            None | Some(Hint::Natural { .. }) if self.following => LogOrder::Following,
            None | Some(Hint::Natural { .. }) => LogOrder::Ascending,
            Some(Hint::Name(_) | Hint::Key(_) | Hint::Between { .. }) => {
                let text = "error processing query: planner returned error :: caused by :: hint provided does not \
                            correspond to an existing index";
                return Err(Error::bad_value(text));
            }
        };
        let filter = self.pipeline.first_filter();
        let mut scan = LogScan::new(filter.unwrap_or(RawDoc::EMPTY), order);
        if self.view.collation.is_some() {
            scan.read_all();
        }
        self.pipeline.start_log(scan, settings)
    }

    /// Starts it over the collection of the view.
    ///
    /// # Errors
    /// Errors of planning.
    pub(super) fn start(
        self,
        ctx: &CommandContext<'_>,
        hint: Option<Hint>,
        settings: RunSettings,
    ) -> Result<PipelineRun> {
        let view = self.view;
        let settings = with_descriptions(ctx, &self.pipeline, settings)?;
        if reads_log(view) {
            let run = self.start_log(hint.as_ref(), settings)?;
            ctx.op.update_info(|info| info.plan_summary = run.plan_summary());
            return Ok(run);
        }
        let collection = ctx.store.collection(&view.on);
        let hint = match view.shows_buckets() {
            true => hint,
            false => hint_on(collection.as_deref(), hint),
        };
        let run = self.pipeline.start(ctx.store, collection, hint, settings)?;
        ctx.op.update_info(|info| info.plan_summary = run.plan_summary());
        Ok(run)
    }
}

/// The hint for a collection. Clients use key patterns of measurements, which differ from those of
/// buckets.
pub(crate) fn hint_on(collection: Option<&Collection>, hint: Option<Hint>) -> Option<Hint> {
    match (hint?, collection.and_then(Collection::time_series)) {
        (Hint::Key(key), Some(series)) => {
            Some(Hint::Key(series.fields.key_on_buckets(key.as_doc())))
        }
        (hint, _) => Some(hint),
    }
}

/// Decides the collation: that of a view applies to every operation on it; measurements are read
/// with that of the operation, if it has one.
///
/// # Errors
/// 167 OptionNotSupportedOnView when an operation on a view has another one.
pub(crate) fn decide_collation(view: &mut ResolvedView, collating: &Collating) -> Result<()> {
    match collating {
        Collating::By(asked) if view.is_series => {
            view.collation.clone_from(asked);
            Ok(())
        }
        Collating::By(asked) if !same_collation(asked.as_ref(), view.collation.as_ref()) => {
            let text = "Cannot override a view's default collation";
            Err(Error::new(ErrorCode::OptionNotSupportedOnView, text))
        }
        Collating::By(_) | Collating::AsCollection => Ok(()),
    }
}

/// The variables for the stages of a command: `$$NOW`, `$$CLUSTER_TIME`, and those of its `let`.
///
/// # Errors
/// Errors of the variables.
pub(crate) fn command_scope(
    ctx: &CommandContext<'_>,
    collation: Option<Arc<Collation>>,
    variables: Option<RawDoc<'_>>,
) -> Result<Scope> {
    let mut scope = Scope::at(ctx.time())
        .with_script_limits(ctx.service.settings.script_limits())
        .collated(collation)
        .with_accumulator_limits(ctx.service.settings.memory.accumulators());
    if let Some(variables) = variables {
        scope.declare(variables)?;
    }
    Ok(scope)
}

/// The budget of memory and files for finding the documents of a write.
pub(crate) fn write_budget(ctx: &CommandContext<'_>, multi: bool) -> Budget {
    if multi { budget(ctx, None) } else { Budget::default() }
}

/// The memory budget of a command's operators; `may_spill` is its `allowDiskUse`.
pub(crate) fn budget(ctx: &CommandContext<'_>, may_spill: Option<bool>) -> Budget {
    let memory = &ctx.service.settings.memory;
    let may_spill = may_spill.unwrap_or_else(|| memory.allows_disk_use());
    let folder = may_spill.then(|| ctx.service.spill_folder());
    let room = folder.is_some().then(|| ctx.service.spill_room());
    Budget::within(memory.limits(), folder, room)
}

/// The options of a pipeline's run in a command; `may_spill` is its `allowDiskUse`.
pub(crate) fn run_settings(ctx: &CommandContext<'_>, may_spill: Option<bool>) -> RunSettings {
    let searcher: Arc<dyn Searcher> = ctx.service.search.clone();
    RunSettings {
        budget: budget(ctx, may_spill),
        searcher: Some(searcher),
        ..RunSettings::default()
    }
}

/// Visits all documents of a pipeline.
///
/// # Errors
/// Errors of the pipeline and of `see`.
pub(super) fn for_each(
    ctx: &CommandContext<'_>,
    mut run: PipelineRun,
    see: &mut dyn FnMut(RawDoc<'_>) -> Result<()>,
) -> Result<()> {
    while !run.is_done() {
        run.run(ctx.store, &mut |document| see(document).map(|()| Flow::More))?;
    }
    Ok(())
}

/// The document of a pipeline that returns at most one.
///
/// # Errors
/// Errors of the pipeline.
pub(super) fn only(ctx: &CommandContext<'_>, run: PipelineRun) -> Result<Option<DocBuf>> {
    let mut found = None;
    for_each(ctx, run, &mut |document| {
        found = Some(document.to_owned());
        Ok(())
    })?;
    Ok(found)
}

/// Refuses options of a find that only collections support.
///
/// # Errors
/// 168 InvalidPipelineOperator.
pub(super) fn check_find(options: &[(&str, bool)]) -> Result<()> {
    match options.iter().find(|(_, asked)| *asked) {
        Some((name, _)) => Err(Error::new(
            ErrorCode::InvalidPipelineOperator,
            format!("Option {name} not supported in aggregation."),
        )),
        None => Ok(()),
    }
}
