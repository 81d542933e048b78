//! Pipelines: stages are parsed, checked and optimised; the leading ones become a query for the
//! planner, and the others process its documents one by one.

mod parse;
mod positions;
mod row;
pub(crate) mod rows;
mod run;
mod shape;
mod unchecked;

use std::collections::VecDeque;
use std::sync::Arc;

use mayfly_base::{Error, Namespace, Result};
use mayfly_storage::{Collection, ReadView, Store, StoreSession};
use mayfly_value::{Collation, DocBuf, RawDoc, RawValue};

use crate::change::LogScan;
use crate::change::{ChangeScope, ChangeStream};
use crate::exec::Executor;
use crate::explain::Purpose;
use crate::language::needed::Fields;
use crate::language::{CanonicalQuery, FirstOf, Hint};
use crate::optimise::{kept_by_front_sort, optimised};
use crate::plan::{allowed_on, no_text_index};
use crate::stage::fields::needed_fields;
use crate::stage::filter::Match;
use crate::stage::geo_near::GeoNear;
use crate::stage::group::Group;
use crate::stage::sort::Sort;
use crate::stage::source::MemorySource;
use crate::stage::window::{Limit, Skip};
use crate::stage::{About, Description, Host, PipelineContext, RunSettings, Source, Step};
use crate::timeseries::prepare;
pub(crate) use parse::{note_rights, parse_stages};
use positions::{check_after_changes, check_split};
pub use row::{StageConcern, StagePosition, StageRow};
use run::Input;
pub use run::PipelineRun;
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

/// A pipeline for explain: its query, and the stages after that.
pub struct Explained {
    /// The filter of the query.
    pub filter: DocBuf,
    /// The sort pattern of the query.
    pub sort: Option<DocBuf>,
    /// Number of documents that the query skips.
    pub skip: u64,
    /// Limit of the query; 0 for none.
    pub limit: u64,
    /// Whether the query is a search by distance.
    pub by_distance: bool,
    /// What happens to the documents of the query.
    pub purpose: Purpose,
    /// The fields that the later stages read.
    pub needed_paths: Option<Vec<String>>,
    /// The later stages, as they run.
    pub later_stages: Vec<DocBuf>,
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
        if changes.is_none() {
            steps = optimised(steps, context);
        }
        let (collation, optimised) = (context.scope.collation().cloned(), context.optimises());
        let front_sort = kept_by_front_sort(&steps).filter(|_| optimised);
        Ok(Pipeline { source, steps, collation, optimised, front_sort })
    }

    /// The explanation over a collection: the query for the planner, and the stages after it.
    ///
    /// # Errors
    /// 27 IndexNotFound if a search by distance names no field and the indexes do not determine it.
    pub fn explained(
        &self,
        view: &ReadView,
        collection: Option<&Collection>,
        hint: Option<RawValue<'_>>,
    ) -> Result<Explained> {
        let mut shown = Explained {
            filter: DocBuf::empty(),
            sort: None,
            skip: 0,
            limit: 0,
            by_distance: false,
            purpose: Purpose::Find,
            needed_paths: None,
            later_stages: Vec::new(),
        };
        let mut steps = self.steps.iter().peekable();
        if let (Some(stage), Some(collection)) =
            (steps.peek().and_then(|step| step.get::<GeoNear>()), collection)
        {
            shown.filter = stage.filter_over(view, collection)?;
            shown.by_distance = true;
            steps.next();
        } else {
            if let Some(Match(matcher)) = steps.peek().and_then(|step| step.get()) {
                shown.filter = matcher.root().to_document();
                steps.next();
            }
            if let Some(step) = steps.next_if(|step| step.is::<Sort>()) {
                let sort = step.written().and_then(|written| written.get("$sort")?.as_document());
                shown.sort = sort.map(RawDoc::to_owned);
            }
            if let Some(Skip(count)) = steps.peek().and_then(|step| step.get()) {
                shown.skip = *count;
                steps.next();
            }
            if let Some(Limit(count)) = steps.peek().and_then(|step| step.get()) {
                shown.limit = *count;
                steps.next();
            }
        }
        let taken = self.steps.len() - steps.len();
        let (rest, query) = (&self.steps[taken..], CanonicalQuery::everything(None)?);
        let cut = shown.skip > 0 || shown.limit > 0 || shown.sort.is_some();
        let whole = shown.filter.as_doc().is_empty() && !cut && hint.is_none();
        shown.purpose = match collection {
            Some(collection) if whole && counts_all(view, collection, &query, rest) => {
                Purpose::Count
            }
            _ if needs_number_only(rest) => Purpose::Keys,
            _ => Purpose::Find,
        };
        shown.needed_paths = needed_paths(rest);
        shown.later_stages = steps.filter_map(Step::written).map(RawDoc::to_owned).collect();
        Ok(shown)
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

    fn about(&self) -> Option<About> {
        self.source.as_ref().map(|source| source.about())
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

    /// What the first stage describes about the collection, if it does.
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
        view: &ReadView,
        collection: Option<Arc<Collection>>,
        hint: Option<Hint>,
        settings: RunSettings,
    ) -> Result<PipelineRun> {
        if self.gives_documents() {
            return Ok(self.start_over(Vec::new(), settings));
        }
        let first_of = self.first_of();
        let mut steps = self.steps;
        let stage = steps.first_mut().and_then(Step::get_mut::<GeoNear>);
        let by_distance = match (stage, &collection) {
            (Some(stage), Some(collection)) => Some(stage.query_over(view, collection)?),
            _ => None,
        };
        let (mut query, mut rest) = split(steps, hint)?;
        if let Some(matcher) = by_distance {
            query.matcher = matcher;
        }
        query.first_of = first_of;
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
                let mut executor = Executor::new(view, collection, query)?;
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
    pub fn first_of(&self) -> Option<FirstOf> {
        let mut steps = self.steps.iter().peekable();
        steps.next_if(|step| step.is::<Match>());
        let sort = steps.next_if(|step| step.is::<Sort>()).and_then(Step::get::<Sort>);
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

/// Moves leading `$match`, `$sort`, `$skip` and `$limit` stages, in this order, into a query for
/// the planner.
fn split(steps: Vec<Step>, hint: Option<Hint>) -> Result<(CanonicalQuery, Vec<Step>)> {
    let mut query = CanonicalQuery::everything(hint)?;
    let mut rest = steps.into_iter().peekable();
    if let Some(found) = rest.next_if(Step::is::<Match>).and_then(Step::take::<Match>) {
        query.matcher = Arc::new(found.0);
    }
    if let Some(sort) = rest.next_if(Step::is::<Sort>).and_then(Step::take::<Sort>) {
        query.sort = Some(sort.pattern);
    }
    if let Some(skip) = rest.next_if(Step::is::<Skip>).and_then(Step::take::<Skip>) {
        query.skip = skip.0;
    }
    if let Some(limit) = rest.next_if(Step::is::<Limit>).and_then(Step::take::<Limit>) {
        query.limit = Some(limit.0);
    }
    Ok((query, rest.collect()))
}
