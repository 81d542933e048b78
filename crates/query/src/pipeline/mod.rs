//! Pipelines: stages are parsed, checked and optimised; the leading ones become a query for the
//! planner, and the others process its documents one by one.

pub(crate) mod absent;
mod explain;
mod fusion;
mod parse;
mod positions;
mod row;
pub(crate) mod rows;
mod run;
mod searched_view;
mod searches;
mod shape;
mod unchecked;

use std::collections::VecDeque;
use std::sync::Arc;

use mayfly_base::{Error, ErrorCode, Namespace, Result};
use mayfly_storage::{Collection, ReadView, ResolvedView, Store, StoreSession};
use mayfly_value::{Collation, DocBuf, RawDoc};

use crate::change::LogScan;
use crate::change::{ChangeScope, ChangeStream};
use crate::exec::Executor;
use crate::language::metadata::{SORT_KEY, TEXT_SCORE};
use crate::language::needed::Fields;
use crate::language::validator::mentions;
use crate::language::{CanonicalQuery, FirstOf, Hint, SearchedView, sorts_by_score};
use crate::optimise::{kept_by_front_sort, optimised};
use crate::plan::{allowed_on, no_text_index};
use crate::stage::fields::needed_fields;
use crate::stage::filter::Match;
use crate::stage::geo_near::GeoNear;
use crate::stage::group::Group;
use crate::stage::search::Search;
use crate::stage::sort::Sort;
use crate::stage::source::MemorySource;
use crate::stage::sub::resolve_joined;
use crate::stage::window::{Limit, Skip};
use crate::stage::{
    About, Description, Host, PipelineContext, RunSettings, Source, Step, WantedDescription,
};
use crate::timeseries::prepare;
pub(crate) use parse::{note_rights, parse_stages};
use positions::{check_after_changes, check_split};
pub use row::{StageConcern, StageOptions, StagePosition, StageRow};
use run::Input;
pub use run::PipelineRun;
pub use searches::begins_with_search;
pub use unchecked::{Client, UncheckedPipeline, Validation};

/// A parsed pipeline. Outside of this crate, its rights have been checked ([`UncheckedPipeline`]).
pub struct Pipeline {
    /// The source, if the first stage is one.
    source: Option<Box<dyn Source>>,
    steps: Vec<Step>,
    collation: Option<Arc<Collation>>,
    /// Whether the pipeline may be optimised.
    optimised: bool,
    /// The fields that a sort in the query buffers; `None` for whole documents.
    front_sort: Option<Fields>,
}

impl Pipeline {
    /// Parses and checks all stages. Strings compare by the collation of the scope.
    ///
    /// # Errors
    /// 14 for elements that are not documents, 7749501 for too many stages, 40601 and 40602 for
    /// misplaced stages, errors of the stages.
    pub(crate) fn parse(pipeline: RawDoc<'_>, context: &PipelineContext<'_>) -> Result<Pipeline> {
        Pipeline::parse_counted(pipeline, context, &mut 0)
    }

    /// Parses a pipeline, and counts the stages that could be parsed.
    ///
    /// # Errors
    /// As [`Pipeline::parse`].
    pub(crate) fn parse_counted(
        pipeline: RawDoc<'_>,
        context: &PipelineContext<'_>,
        parsed: &mut usize,
    ) -> Result<Pipeline> {
        let (source, mut steps) = parse::parse_counted(pipeline, context, parsed)?;
        let changes = source.as_ref().and_then(|source| source.changes());
        if changes.is_some() {
            check_after_changes(pipeline)?;
        }
        check_split(changes, &mut steps)?;
        if mentions(pipeline, SORT_KEY) {
            steps.iter_mut().filter_map(Step::get_mut::<Sort>).for_each(|it| it.gives_key = true);
        }
        if changes.is_none() {
            steps = optimised(steps, context);
        }
        let (collation, optimised) = (context.scope.collation().cloned(), context.optimises());
        let front_sort = kept_by_front_sort(&steps).filter(|_| optimised);
        Ok(Pipeline { source, steps, collation, optimised, front_sort })
    }

    /// The first stage as explain shows it.
    pub(crate) fn first_written(&self) -> Option<RawDoc<'_>> {
        self.steps.first().and_then(Step::written)
    }

    /// The filter of a leading `$match`, as the client sent it.
    pub fn first_filter(&self) -> Option<RawDoc<'_>> {
        let first = self.steps.first().filter(|step| step.is::<Match>())?;
        first.written()?.iter().next()?.value().as_document()
    }

    /// The collections that the stages read besides the input.
    pub fn collections(&self) -> Vec<Namespace> {
        self.steps.iter().flat_map(|step| step.stage().collections()).collect()
    }

    /// Checks that the views which the stages read have the pipeline's collation, also those that
    /// are read only if there are documents to join.
    ///
    /// # Errors
    /// 167 OptionNotSupportedOnView; errors of resolving the views.
    pub fn check_views(&self, session: StoreSession<'_>) -> Result<()> {
        for from in self.collections() {
            if session.collection(&from).is_none() {
                resolve_joined(session, &from, self.collation.as_ref())?;
            }
        }
        Ok(())
    }

    /// The descriptions of collections with which pipelines inside of its stages begin.
    pub fn descriptions(&self) -> Vec<WantedDescription> {
        self.steps.iter().flat_map(|step| step.stage().descriptions()).collect()
    }

    fn about(&self) -> Option<About> {
        self.source.as_ref().map(|source| source.about())
    }

    /// Makes a search at the start of the pipeline ([`begins_with_search`]) use the search indexes
    /// of a view. The stages of the view are not part of such a pipeline.
    pub fn search_view(&mut self, view: &ResolvedView) {
        if let Some(search) = self.steps.first_mut().and_then(Step::get_mut::<Search>) {
            search.set_view(Arc::new(view.clone()), SearchedView::of(view));
        }
    }

    /// Whether the pipeline is a change stream, and if so, whether it covers all databases.
    pub fn follows_changes(&self) -> Option<bool> {
        Some(self.source.as_ref()?.changes()?.all)
    }

    /// Starts a change stream over a scope.
    ///
    /// # Errors
    /// 286 ChangeStreamHistoryLost.
    pub fn start_changes(
        self,
        store: &Store,
        scope: ChangeScope,
        settings: RunSettings,
    ) -> Result<PipelineRun> {
        let Some(options) = self.source.as_ref().and_then(|source| source.changes()) else {
            return Err(Error::internal(
                "a pipeline that follows no changes was started as one that does",
            ));
        };
        let stream = ChangeStream::new(store, scope, options)?;
        Ok(PipelineRun::new(Input::Changes(Box::new(stream)), self.steps, settings))
    }

    /// Starts the pipeline over the operation log.
    ///
    /// # Errors
    /// 27 IndexNotFound for a text search, because the log has no indexes.
    pub fn start_log(self, scan: LogScan, settings: RunSettings) -> Result<PipelineRun> {
        let stage = self.steps.first().and_then(Step::get::<Match>);
        if stage.is_some_and(|stage| stage.0.text().is_some()) {
            return Err(no_text_index());
        }
        Ok(PipelineRun::new(Input::Log(Box::new(scan)), self.steps, settings))
    }

    /// Whether the first stage is a source that needs no collection.
    pub fn is_source(&self) -> bool {
        match self.about() {
            Some(About::Server | About::Admin | About::Sessions | About::Pipeline) => true,
            Some(About::Collection(_) | About::Changes) | None => false,
        }
    }

    /// The description of the collection that the first stage returns, if it returns one.
    pub fn describes_collection(&self) -> Option<Description> {
        match self.about() {
            Some(About::Collection(description)) => Some(description),
            _ => None,
        }
    }

    /// Whether the first stage runs only on the collection of sessions, `config.system.sessions`.
    pub fn lists_sessions(&self) -> bool {
        self.about() == Some(About::Sessions)
    }

    /// Whether the first stage runs only on the database `admin`.
    pub fn is_admin_only(&self) -> bool {
        self.about() == Some(About::Admin)
    }

    /// Starts the pipeline over a collection. Without a collection the input is empty.
    ///
    /// # Errors
    /// Errors of planning.
    pub fn start(
        self,
        session: StoreSession<'_>,
        collection: Option<Arc<Collection>>,
        hint: Option<Hint>,
        settings: RunSettings,
    ) -> Result<PipelineRun> {
        let view = session.view;
        if self.gives_documents() {
            return Ok(self.start_over(Vec::new(), settings));
        }
        let first_of = self.first_of();
        let mut steps = self.steps;
        if steps.first().is_some_and(Step::is::<Search>)
            && let Some(search) = steps.remove(0).take::<Search>()
        {
            let searcher = settings.searcher.as_ref();
            let source = search.start_over(session, collection, searcher, &steps)?;
            return Ok(PipelineRun::new(Input::Source(source), steps, settings));
        }
        let stage = steps.first_mut().and_then(Step::get_mut::<GeoNear>);
        let by_distance = match (stage, &collection) {
            (Some(stage), Some(collection)) => Some(stage.query_over(view, collection)?),
            (Some(_), None) => {
                let text =
                    "$geoNear requires a geo index to run, but its collection does not exist";
                return Err(Error::new(ErrorCode::NamespaceNotFound, text));
            }
            (None, _) => None,
        };
        let (mut query, mut rest) = split(steps, hint)?;
        if let Some(matcher) = by_distance {
            query.matcher = matcher;
        }
        query.first_of = first_of;
        query.uses_score = query.sort.as_ref().is_some_and(sorts_by_score)
            || rest.iter().filter_map(Step::written).any(|spec| mentions(spec, TEXT_SCORE));
        query.needed_paths = needed_paths(&rest);
        query.indexes = view.visible_indexes();
        query.collation = self.collation;
        if let Some(collection) = &collection {
            query.allowed = settings.hints.as_ref().and_then(|it| allowed_on(it, collection));
            prepare(collection, &mut query, &mut rest)?;
        }
        let input = match collection {
            Some(collection) if counts_all(view, &collection, &query, &rest) => {
                let group = rest.remove(0).take::<Group>();
                Input::Counted(collection, group)
            }
            Some(collection) => {
                let mut executor = match settings.read_only {
                    true => Executor::by_itself(view, collection, query)?,
                    false => Executor::new(view, collection, query)?,
                };
                executor.use_budget(settings.budget.clone());
                executor.sort_keeping(self.front_sort);
                executor.keep_keys();
                if needs_number_only(&rest) {
                    executor.count_only();
                }
                Input::Plan(Box::new(executor))
            }
            None if query.matcher.text().is_some() => return Err(no_text_index()),
            None => Input::Source(MemorySource::boxed(VecDeque::new())),
        };
        Ok(PipelineRun::new(input, rest, settings))
    }

    /// Set if a `$group` needs only one document of the query for each value of a field.
    fn first_of(&self) -> Option<FirstOf> {
        let mut steps = self.steps.iter().peekable();
        steps.next_if(|step| step.is::<Match>());
        let sort = steps.next_if(|step| is_order(step)).and_then(Step::get::<Sort>);
        let group = steps.next()?.get::<Group>().filter(|_| self.optimised)?;
        group.first_of(sort)
    }

    /// The collection that the pipeline writes to.
    pub fn writes_to(&self) -> Option<&Namespace> {
        self.steps.last().and_then(|step| step.stage().writes_to())
    }

    /// Whether the first stage contains the documents.
    pub fn gives_documents(&self) -> bool {
        self.about() == Some(About::Pipeline)
    }

    /// Starts the pipeline over documents in memory, or those of its first stage.
    pub(crate) fn start_over(self, documents: Vec<DocBuf>, settings: RunSettings) -> PipelineRun {
        let own = self.source.as_ref().and_then(|source| source.given());
        let documents = own.map_or(documents, <[DocBuf]>::to_vec);
        PipelineRun::new(Input::Source(MemorySource::boxed(documents)), self.steps, settings)
    }

    /// Starts the pipeline over shared documents.
    pub(crate) fn start_shared(
        self,
        documents: Arc<Vec<DocBuf>>,
        settings: RunSettings,
    ) -> PipelineRun {
        PipelineRun::new(Input::Shared(documents, 0), self.steps, settings)
    }

    /// Starts the pipeline over the documents of its source.
    ///
    /// # Errors
    /// Errors of the host.
    pub fn start_source(
        self,
        session: StoreSession<'_>,
        host: &dyn Host,
        settings: RunSettings,
    ) -> Result<PipelineRun> {
        let source = match &self.source {
            Some(source) => source.start(session, host)?,
            None => MemorySource::boxed(VecDeque::new()),
        };
        Ok(PipelineRun::new(Input::Source(source), self.steps, settings))
    }
}

/// Whether the stages need only the number of documents, and it is known: no policy hides
/// documents, and the view is not an earlier snapshot.
fn counts_all(
    view: &ReadView,
    collection: &Collection,
    query: &CanonicalQuery,
    rest: &[Step],
) -> bool {
    let everything = query.matcher.root().conjuncts().is_empty()
        && query.skip == 0
        && query.limit.is_none()
        && query.sort.is_none()
        && query.hint.is_none();
    let group = || rest.first().and_then(Step::get::<Group>);
    everything
        && group().is_some_and(|group| group.counted(0).is_some())
        && !collection.hides_expired()
        && view.is_now()
}

/// The fields that stages read; `None` if they may read any.
fn needed_paths(rest: &[Step]) -> Option<Vec<String>> {
    let mut shown: Vec<String> = needed_fields(rest.iter())?.into_iter().collect();
    shown.sort();
    Some(shown)
}

/// Whether stages read no fields.
fn needs_number_only(rest: &[Step]) -> bool {
    needed_fields(rest.iter()).is_some_and(|fields| fields.is_empty())
}

/// Whether a stage is a `$sort` that a query can replace.
fn is_order(step: &Step) -> bool {
    step.get::<Sort>().is_some_and(Sort::only_orders)
}

/// Number of leading stages that a query for the planner can replace: `$match`, `$sort`, `$skip`
/// and
/// `$limit`, in this order.
fn front_length(steps: &[Step]) -> usize {
    let kinds = [Step::is::<Match>, is_order, Step::is::<Skip>, Step::is::<Limit>];
    kinds.iter().fold(0, |at, is| at + usize::from(steps.get(at).is_some_and(is)))
}

/// Moves these stages into a query.
fn split(mut steps: Vec<Step>, hint: Option<Hint>) -> Result<(CanonicalQuery, Vec<Step>)> {
    let mut query = CanonicalQuery::everything(hint)?;
    let rest = steps.split_off(front_length(&steps));
    let mut front = steps.into_iter().peekable();
    if let Some(found) = front.next_if(Step::is::<Match>).and_then(Step::take::<Match>) {
        query.matcher = Arc::new(found.0);
    }
    if let Some(sort) = front.next_if(is_order).and_then(Step::take::<Sort>) {
        query.sort = Some(sort.pattern);
    }
    if let Some(skip) = front.next_if(Step::is::<Skip>).and_then(Step::take::<Skip>) {
        query.skip = skip.0;
    }
    query.limit = front.next().and_then(Step::take::<Limit>).map(|limit| limit.0);
    Ok((query, rest))
}
