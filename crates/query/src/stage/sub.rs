//! A pipeline inside a stage, over another collection or view. It is checked when the stage is
//! parsed, and parsed again for each run, when its variables have values. Comparisons with
//! variables thereby become comparisons with constants, which indexes serve.
//!
//! This file is the only place where stages refer to the layer above them: pipelines contain
//! stages, and stages may contain pipelines.
//!
//! Leading stages that refer to no variable of the enclosing stage give the same results for each
//! of its documents, and can run once.

use mayfly_base::{Error, ErrorCode, Namespace, Result};
use mayfly_expr::Scope;
use mayfly_mql::matcher::Expr;
use mayfly_storage::{Collection, ResolvedView, StoreSession};
use mayfly_value::arguments::error::mistyped;
use mayfly_value::{Collation, DocBuf, DocBuilder, RawDoc, RawValue, same_collation};
use std::sync::Arc;

use super::{PipelineContext, PipelineOwner, StageContext, Step, WantedDescription};
use crate::language::validator::mentions;
use crate::optimise::optimised;
pub(crate) use crate::pipeline::PipelineRun;
pub(crate) use crate::pipeline::rows::is_stage;
use crate::pipeline::{Pipeline, StageRow, begins_with_search, note_rights, parse_stages};

/// A checked pipeline over another collection.
#[derive(Clone, Debug)]
pub(crate) struct SubPipeline {
    /// The collection that it reads; `None` if its first stage is a source.
    pub(crate) from: Option<Namespace>,
    db: String,
    stages: DocBuf,
    inside: PipelineOwner,
    depth: usize,
    scope: Scope,
    /// The variables of the enclosing stage, without values.
    unknown: DocBuf,
    /// Other collections that its stages read, as far as they could be parsed without values of the
    /// variables.
    reads: Vec<Namespace>,
    /// The descriptions of collections that its stages return, its own one first.
    descriptions: Vec<WantedDescription>,
    /// Whether its first stage describes the collection.
    describes: bool,
}

/// The resolved input of a pipeline.
pub(crate) enum From {
    /// A collection, and the view over it.
    Collection(Arc<Collection>, Option<Box<ResolvedView>>),
    /// No such collection.
    Nothing,
}

/// Errors that do not depend on the values of variables: the pipeline itself is invalid.
const WRITTEN_WRONG: &[i32] = &[
    9, 14, 168, 232, 238, 15947, 15955, 15959, 15973, 15976, 16020, 16410, 16872, 17276, 31441,
    40234, 40235, 40236, 40323, 40324, 40600, 40601, 40602, 51047,
];

impl SubPipeline {
    /// Checks a pipeline. If it may refer to variables of the stage, whose values are not known
    /// yet, only errors that do not depend on them are found here.
    ///
    /// # Errors
    /// 232 MaxSubPipelineDepthExceeded, errors of the stages.
    pub(crate) fn parse(
        from: Option<Namespace>,
        stages: RawDoc<'_>,
        inside: PipelineOwner,
        variables: RawDoc<'_>,
        context: &PipelineContext<'_>,
    ) -> Result<SubPipeline> {
        let collection = from.as_ref().map(|from| from.collection().to_owned());
        let inner = context.deeper(inside)?.over(collection.as_deref());
        let own = context.scope.clone().without_metadata();
        let mut scope = own.clone();
        let mut unknown = DocBuilder::new();
        for variable in variables {
            unknown.append(variable.name(), "$$REMOVE");
        }
        let unknown = unknown.finish();
        scope.declare(unknown.as_doc())?;
        let first = stages.iter().next().and_then(|stage| stage.value().as_document());
        let own_description = match (&from, first, StageRow::first_of(stages)) {
            (Some(of), Some(stage), Some(row)) if row.describes_collection() => {
                Some(WantedDescription { of: of.clone(), stage: stage.to_owned() })
            }
            _ => None,
        };
        let describes = own_description.is_some();
        let mut descriptions: Vec<_> = own_description.into_iter().collect();
        let mut parsed = 0;
        let checked = Pipeline::parse_counted(stages, &inner.scoped(&scope), &mut parsed);
        let reads = match checked {
            Ok(pipeline) => {
                check_first(&pipeline, from.as_ref(), inside)?;
                descriptions.extend(pipeline.descriptions());
                pipeline.collections()
            }
            Err(error) if variables.is_empty() || WRITTEN_WRONG.contains(&error.code().0) => {
                return Err(error);
            }
            Err(_) => {
                if context.notes_rights() {
                    let mut scope = own.clone();
                    variables.iter().for_each(|variable| scope.declare_unknown(variable.name()));
                    note_rights(stages, parsed, &inner.scoped(&scope));
                }
                Vec::new()
            }
        };
        Ok(SubPipeline {
            from,
            db: context.db.to_owned(),
            stages: stages.to_owned(),
            inside,
            depth: inner.depth(),
            scope: own,
            unknown,
            reads,
            descriptions,
            describes,
        })
    }

    /// The descriptions of collections that its stages return.
    pub(crate) fn descriptions(&self) -> &[WantedDescription] {
        &self.descriptions
    }

    /// The documents of its first stage, which describes the collection.
    ///
    /// # Errors
    /// 238 NotImplemented if the stage was not known when the command began.
    fn described(&self, context: &StageContext<'_>) -> Result<Vec<DocBuf>> {
        let wanted = self.descriptions.first();
        let known = context.settings.descriptions.iter();
        let mut found = known.filter(|known| Some(&known.wanted) == wanted);
        found.next().map(|known| known.documents.clone()).ok_or_else(|| {
            Error::not_implemented("the description of a collection at this place of a pipeline")
        })
    }

    /// The variables of its expressions, without those of the enclosing stage.
    pub(crate) fn scope(&self) -> &Scope {
        &self.scope
    }

    /// The stages as the client sent them.
    pub(crate) fn stages(&self) -> RawDoc<'_> {
        self.stages.as_doc()
    }

    /// The pipeline with a filter appended.
    pub(crate) fn filtered(&self, filter: &Expr) -> SubPipeline {
        let mut stages = DocBuilder::new_array();
        self.stages.as_doc().iter().for_each(|stage| {
            stages.push(stage.value());
        });
        stages.push_document().append("$match", &filter.to_document()).end();
        SubPipeline { stages: stages.finish(), ..self.clone() }
    }

    /// The collections that it reads.
    pub(crate) fn collections(&self) -> Vec<Namespace> {
        self.from.iter().chain(&self.reads).cloned().collect()
    }

    /// Whether it has no stages.
    pub(crate) fn is_empty(&self) -> bool {
        self.stages.as_doc().is_empty()
    }

    /// Whether its first stage describes the collection, whose documents are not read.
    pub(crate) fn describes(&self) -> bool {
        self.describes
    }

    /// Whether its first stage reads a search index instead of the collection's documents.
    pub(crate) fn searches(&self) -> bool {
        begins_with_search(self.stages.as_doc())
    }

    /// Whether its stages give the same results in a second run.
    pub(crate) fn is_repeatable(&self) -> bool {
        is_repeatable(self.stages.as_doc())
    }

    /// Whether its stages and those of the view below it give the same results in a second run.
    pub(crate) fn is_repeatable_over(&self, view: Option<&ResolvedView>) -> bool {
        self.is_repeatable() && view.is_none_or(|view| is_repeatable(view.pipeline.as_doc()))
    }

    /// The number of leading stages that do not depend on these variables, if running them once
    /// pays off. It does not if the optimiser moves a condition on a variable before them, because
    /// an index may serve that.
    pub(crate) fn uncorrelated<'v>(&self, variables: impl Iterator<Item = &'v str>) -> usize {
        let marks: Vec<String> = variables.map(|name| format!("$${name}")).collect();
        let varies = |stage: RawDoc<'_>| {
            marks.iter().any(|mark| mentions(stage, mark)) || !is_repeatable(stage)
        };
        let stages = || self.stages.as_doc().iter().filter_map(|stage| stage.value().as_document());
        let same = stages().take_while(|stage| !varies(*stage)).count();
        // Documents that are kept have no metadata.
        let reads_metadata =
            |stage| ["$meta", "$$SEARCH_META"].iter().any(|it| mentions(stage, it));
        if self.searches() && stages().skip(same).any(reads_metadata) {
            return 0;
        }
        let mut unknown = self.scope.clone();
        let context = match unknown.declare(self.unknown.as_doc()) {
            Ok(()) => {
                PipelineContext::command(&self.db, &unknown).at_depth(self.depth, self.inside)
            }
            Err(_) => return 0,
        };
        match Pipeline::parse(self.stages.as_doc(), &context) {
            Ok(moved) if moved.first_written().is_some_and(varies) => 0,
            _ => same,
        }
    }

    /// Starts the first `count` stages.
    ///
    /// # Errors
    /// Errors of the stages and of planning.
    pub(crate) fn start_front(
        &self,
        context: &StageContext<'_>,
        count: usize,
    ) -> Result<PipelineRun> {
        let stages = part(self.stages.as_doc().iter().take(count));
        SubPipeline { stages, ..self.clone() }.start(context, &self.scope, None)
    }

    /// Starts the stages after the first `count`, over the results of those.
    ///
    /// # Errors
    /// Errors of the stages.
    pub(crate) fn start_after(
        &self,
        context: &StageContext<'_>,
        scope: &Scope,
        count: usize,
        documents: Arc<Vec<DocBuf>>,
    ) -> Result<PipelineRun> {
        let stages = part(self.stages.as_doc().iter().skip(count));
        let pipeline = Pipeline::parse(stages.as_doc(), &self.context(context, scope))?;
        Ok(pipeline.start_shared(documents, context.settings.clone()))
    }

    /// Resolves the input.
    ///
    /// # Errors
    /// Errors of resolving a view.
    pub(crate) fn source(&self, context: &StageContext<'_>) -> Result<From> {
        let Some(from) = &self.from else { return Ok(From::Nothing) };
        let session = context.session;
        if let Some(collection) = session.collection(from) {
            return Ok(From::Collection(collection, None));
        }
        let Some(view) = resolve_joined(session, from, self.scope.collation())? else {
            return Ok(From::Nothing);
        };
        Ok(match session.collection(&view.on) {
            Some(collection) => From::Collection(collection, Some(Box::new(view))),
            None => From::Nothing,
        })
    }

    /// Starts the pipeline with an additional filter in front, which may use an index.
    ///
    /// # Errors
    /// Errors of the stages and of planning.
    pub(crate) fn start(
        &self,
        context: &StageContext<'_>,
        scope: &Scope,
        filter: Option<RawDoc<'_>>,
    ) -> Result<PipelineRun> {
        let source = self.source(context)?;
        if self.describes && !matches!(source, From::Collection(_, Some(_))) {
            return self.start_described(context, scope, filter);
        }
        let mut stages = DocBuilder::new_array();
        let mut own = self.stages.as_doc().iter();
        // A search reads an index, also of a view, whose stages then do not run.
        let searches = self.searches();
        if (self.from.is_none() || searches)
            && let Some(first) = own.next()
        {
            stages.push(first.value());
        }
        let (collection, view) = match source {
            From::Nothing => (None, None),
            From::Collection(collection, view) => (Some(collection), view),
        };
        if let Some(view) = view.as_ref().filter(|_| !searches) {
            view.pipeline.as_doc().iter().for_each(|stage| {
                stages.push(stage.value());
            });
        }
        if let Some(filter) = filter {
            stages.push_document().append("$match", filter).end();
        }
        own.for_each(|stage| {
            stages.push(stage.value());
        });
        let stages = stages.finish();
        let mut pipeline = Pipeline::parse(stages.as_doc(), &self.context(context, scope))?;
        if let Some(view) = view.as_ref().filter(|_| searches) {
            pipeline.search_view(view);
        }
        pipeline.start(context.session, collection, None, context.settings.clone())
    }

    /// Starts a pipeline whose first stage describes the collection, with a filter after it.
    fn start_described(
        &self,
        context: &StageContext<'_>,
        scope: &Scope,
        filter: Option<RawDoc<'_>>,
    ) -> Result<PipelineRun> {
        let documents = self.described(context)?;
        let mut stages = DocBuilder::new_array();
        if let Some(filter) = filter {
            stages.push_document().append("$match", filter).end();
        }
        self.stages.as_doc().iter().skip(1).for_each(|stage| {
            stages.push(stage.value());
        });
        let stages = stages.finish();
        let pipeline = Pipeline::parse(stages.as_doc(), &self.context(context, scope))?;
        Ok(pipeline.start_over(documents, context.settings.clone()))
    }

    /// The context in which the pipeline is parsed for a run.
    fn context<'a>(&'a self, context: &StageContext<'_>, scope: &'a Scope) -> PipelineContext<'a> {
        PipelineContext::command(&self.db, scope)
            .with_view(context.session.view)
            .at_depth(self.depth, self.inside)
    }

    /// Starts the pipeline over documents in memory.
    ///
    /// # Errors
    /// Errors of the stages.
    pub(crate) fn start_over(
        &self,
        context: &StageContext<'_>,
        scope: &Scope,
        documents: Vec<DocBuf>,
    ) -> Result<PipelineRun> {
        let pipeline = Pipeline::parse(self.stages.as_doc(), &self.context(context, scope))?;
        Ok(pipeline.start_over(documents, context.settings.clone()))
    }
}

/// Resolves a view that a stage reads; `None` if there is no such view.
///
/// # Errors
/// 167 OptionNotSupportedOnView if the view has another collation than the pipeline; errors of
/// resolving it.
pub(crate) fn resolve_joined(
    session: StoreSession<'_>,
    from: &Namespace,
    collation: Option<&Arc<Collation>>,
) -> Result<Option<ResolvedView>> {
    let view = session.store.resolve_view(session.view, from)?;
    let differs = |view: &ResolvedView| {
        !view.is_series && !same_collation(view.collation.as_ref(), collation)
    };
    if view.as_ref().is_some_and(differs) {
        let text = format!("the view {from} has another collation than the operation");
        return Err(Error::new(ErrorCode::OptionNotSupportedOnView, text));
    }
    Ok(view)
}

/// Checks that a pipeline over a collection reads it, and that one without a collection starts with
/// a source.
///
/// # Errors
/// 73 InvalidNamespace, 9 FailedToParse.
fn check_first(pipeline: &Pipeline, from: Option<&Namespace>, inside: PipelineOwner) -> Result<()> {
    match (pipeline.gives_documents(), from) {
        (true, None) | (false, Some(_)) => Ok(()),
        (true, Some(_)) => {
            let text = "'$documents' can only be run with {aggregate: 1}";
            Err(Error::new(ErrorCode::InvalidNamespace, text))
        }
        (false, None) => {
            let name = if inside == PipelineOwner::Lookup { "$lookup" } else { "$unionWith" };
            let text = format!(
                "{name} stage without explicit collection must have a pipeline with $documents as first stage"
            );
            Err(Error::failed_to_parse(text))
        }
    }
}

/// The stages of a pipeline that runs inside of a stage, over its documents.
///
/// # Errors
/// Errors of the stages.
pub(crate) fn branch(pipeline: RawDoc<'_>, context: &PipelineContext<'_>) -> Result<Vec<Step>> {
    let (_, steps) = parse_stages(pipeline, context)?;
    Ok(optimised(steps, context))
}

/// Whether a second run of these stages gives the same results.
pub(crate) fn is_repeatable(stages: RawDoc<'_>) -> bool {
    !["$rand", "$currentDate", "$sample", "$function", "$where", "$accumulator"]
        .into_iter()
        .any(|name| mentions(stages, name))
}

/// A pipeline of some of the stages.
fn part<'s>(stages: impl Iterator<Item = mayfly_value::RawElement<'s>>) -> DocBuf {
    let mut out = DocBuilder::new_array();
    stages.for_each(|stage| {
        out.push(stage.value());
    });
    out.finish()
}

/// The elements of a `pipeline` argument.
///
/// # Errors
/// 14 TypeMismatch.
pub(crate) fn pipeline_argument<'a>(value: RawValue<'a>) -> Result<RawDoc<'a>> {
    match value {
        RawValue::Array(stages) => Ok(stages),
        _ => Err(mistyped("'pipeline' option must be specified as an array")),
    }
}
