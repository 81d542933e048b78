//! A pipeline inside a stage, over another collection or view: checked when the stage is parsed, parsed anew for each run
//! because its variables have other values then. That makes comparisons with variables constants, which indexes serve.
//!
//! This is the one place where stages name what stands above them: pipelines have stages, and stages may have pipelines.
//!
//! Stages at its front that name no variable of the stage around it give the same for each of its documents: they can be run once.

use mayfly_base::{Error, ErrorCode, Namespace, Result};
use mayfly_expr::Scope;
use mayfly_mql::matcher::Expr;
use mayfly_storage::Collection;
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue};
use std::sync::Arc;

use super::{Around, Inside, StageContext, Step};
use crate::optimise::optimised;
pub(crate) use crate::pipeline::PipelineRun;
pub(crate) use crate::pipeline::rows::is_stage;
use crate::pipeline::{Pipeline, note_rights, parse_stages};

/// A checked pipeline over another collection.
#[derive(Clone, Debug)]
pub(crate) struct SubPipeline {
    /// What it reads; nothing when its first stage gives the documents.
    pub(crate) from: Option<Namespace>,
    db: String,
    stages: DocBuf,
    inside: Inside,
    depth: usize,
    scope: Scope,
    /// The variables of the stage around it, without values.
    unknown: DocBuf,
    /// What its stages read beside that, as far as they could be parsed without values of the variables.
    reads: Vec<Namespace>,
}

/// Where the documents of a name come from.
pub(crate) enum From {
    /// A collection, and the stages of the view over it.
    Collection(Arc<Collection>, Option<DocBuf>),
    /// There is no such collection.
    Nothing,
}

/// Errors that no value of a variable causes: the pipeline itself is wrong.
const WRITTEN_WRONG: &[i32] = &[
    9, 14, 168, 232, 238, 15947, 15955, 15959, 15973, 15976, 16020, 16410, 16872, 17276, 31441,
    40234, 40235, 40236, 40323, 40324, 40600, 40601, 40602, 51047,
];

impl SubPipeline {
    /// Checks a pipeline. Where it may use variables of the stage, whose values are not known yet, only what is wrong
    /// whatever they are is found here.
    ///
    /// # Errors
    /// 232 MaxSubPipelineDepthExceeded, those of the stages.
    pub(crate) fn parse(
        from: Option<Namespace>,
        stages: RawDoc<'_>,
        inside: Inside,
        variables: RawDoc<'_>,
        around: &Around<'_>,
    ) -> Result<SubPipeline> {
        let inner = around.deeper(inside)?;
        let own = around.scope.clone().without_metadata();
        let mut scope = own.clone();
        let mut unknown = DocBuilder::new();
        for variable in variables {
            unknown.append(variable.name(), "$$REMOVE");
        }
        let unknown = unknown.finish();
        scope.declare(unknown.as_doc())?;
        let mut parsed = 0;
        let checked = Pipeline::parse_counted(stages, &inner.scoped(&scope), &mut parsed);
        let reads = match checked {
            Ok(pipeline) => {
                check_first(&pipeline, from.as_ref(), inside)?;
                pipeline.collections()
            }
            Err(error) if variables.is_empty() || WRITTEN_WRONG.contains(&error.code().0) => {
                return Err(error);
            }
            Err(_) => {
                if around.notes_rights() {
                    let mut scope = own.clone();
                    variables.iter().for_each(|variable| scope.declare_unknown(variable.name()));
                    note_rights(stages, parsed, &inner.scoped(&scope));
                }
                Vec::new()
            }
        };
        Ok(SubPipeline {
            from,
            db: around.db.to_owned(),
            stages: stages.to_owned(),
            inside,
            depth: inner.depth(),
            scope: own,
            unknown,
            reads,
        })
    }

    /// What its expressions may name beside the variables of the stage.
    pub(crate) fn scope(&self) -> &Scope {
        &self.scope
    }

    /// Its stages as they were sent.
    pub(crate) fn stages(&self) -> RawDoc<'_> {
        self.stages.as_doc()
    }

    /// The same with a filter at its end.
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

    /// Whether it keeps every document.
    pub(crate) fn is_empty(&self) -> bool {
        self.stages.as_doc().is_empty()
    }

    /// Whether a second run gives what the first gave, as far as its own stages are concerned.
    pub(crate) fn is_repeatable(&self) -> bool {
        is_repeatable(self.stages.as_doc())
    }

    /// The same of a view over which it runs and of its own stages.
    pub(crate) fn is_repeatable_over(&self, view: Option<&DocBuf>) -> bool {
        self.is_repeatable() && view.is_none_or(|view| is_repeatable(view.as_doc()))
    }

    /// How many stages at its front give the same whatever the values of these variables, where running them once pays: not
    /// where a condition on a variable goes before them, because an index may serve that.
    pub(crate) fn uncorrelated<'v>(&self, variables: impl Iterator<Item = &'v str>) -> usize {
        let marks: Vec<String> = variables.map(|name| format!("$${name}")).collect();
        let varies = |stage: RawDoc<'_>| {
            marks.iter().any(|mark| mentions(stage, mark)) || !is_repeatable(stage)
        };
        let stages = || self.stages.as_doc().iter().filter_map(|stage| stage.value().as_document());
        let same = stages().take_while(|stage| !varies(*stage)).count();
        let mut unknown = self.scope.clone();
        let around = match unknown.declare(self.unknown.as_doc()) {
            Ok(()) => Around::command(&self.db, &unknown).at_depth(self.depth, self.inside),
            Err(_) => return 0,
        };
        match Pipeline::parse(self.stages.as_doc(), &around) {
            Ok(moved) if moved.first_written().is_some_and(varies) => 0,
            _ => same,
        }
    }

    /// Starts so many stages at its front.
    ///
    /// # Errors
    /// Those of the stages and of planning.
    pub(crate) fn start_front(
        &self,
        context: &StageContext<'_>,
        count: usize,
    ) -> Result<PipelineRun> {
        let stages = part(self.stages.as_doc().iter().take(count));
        SubPipeline { stages, ..self.clone() }.start(context, &self.scope, None)
    }

    /// Starts what stands behind so many stages, over what those gave.
    ///
    /// # Errors
    /// Those of the stages.
    pub(crate) fn start_behind(
        &self,
        context: &StageContext<'_>,
        scope: &Scope,
        count: usize,
        documents: Arc<Vec<DocBuf>>,
    ) -> Result<PipelineRun> {
        let stages = part(self.stages.as_doc().iter().skip(count));
        let around = self.around(context, scope);
        let pipeline = Pipeline::parse(stages.as_doc(), &around)?;
        Ok(pipeline.start_shared(documents, context.settings.clone()))
    }

    /// Where its documents come from now.
    ///
    /// # Errors
    /// Those of resolving a view.
    pub(crate) fn source(&self, context: &StageContext<'_>) -> Result<From> {
        let Some(from) = &self.from else { return Ok(From::Nothing) };
        let session = context.session;
        if let Some(collection) = session.collection(from) {
            return Ok(From::Collection(collection, None));
        }
        Ok(match session.store.resolve_view(session.view, from)? {
            Some(view) => match session.collection(&view.on) {
                Some(collection) => From::Collection(collection, Some(view.pipeline)),
                None => From::Nothing,
            },
            None => From::Nothing,
        })
    }

    /// Starts it with another filter in front, which may use an index.
    ///
    /// # Errors
    /// Those of the stages and of planning.
    pub(crate) fn start(
        &self,
        context: &StageContext<'_>,
        scope: &Scope,
        filter: Option<RawDoc<'_>>,
    ) -> Result<PipelineRun> {
        let source = self.source(context)?;
        let mut stages = DocBuilder::new_array();
        let collection = match source {
            From::Nothing => None,
            From::Collection(collection, view) => {
                if let Some(view) = view {
                    view.as_doc().iter().for_each(|stage| {
                        stages.push(stage.value());
                    });
                }
                Some(collection)
            }
        };
        let mut own = self.stages.as_doc().iter();
        if self.from.is_none()
            && let Some(documents) = own.next()
        {
            stages.push(documents.value());
        }
        if let Some(filter) = filter {
            stages.push_document().append("$match", filter).end();
        }
        own.for_each(|stage| {
            stages.push(stage.value());
        });
        let stages = stages.finish();
        let around = self.around(context, scope);
        let pipeline = Pipeline::parse(stages.as_doc(), &around)?;
        pipeline.start(context.session.view, collection, None, context.settings.clone())
    }

    /// What it is parsed in when it runs.
    fn around<'a>(&'a self, context: &StageContext<'_>, scope: &'a Scope) -> Around<'a> {
        let around = Around::command(&self.db, scope).with_view(context.session.view);
        around.at_depth(self.depth, self.inside)
    }

    /// Starts it over documents that are there.
    ///
    /// # Errors
    /// Those of the stages.
    pub(crate) fn start_over(
        &self,
        context: &StageContext<'_>,
        scope: &Scope,
        documents: Vec<DocBuf>,
    ) -> Result<PipelineRun> {
        let around = self.around(context, scope);
        let pipeline = Pipeline::parse(self.stages.as_doc(), &around)?;
        Ok(pipeline.start_over(documents, context.settings.clone()))
    }
}

/// Whether a pipeline over a collection reads it, and one without a collection has documents of its own.
///
/// # Errors
/// 73 InvalidNamespace, 9 FailedToParse.
fn check_first(pipeline: &Pipeline, from: Option<&Namespace>, inside: Inside) -> Result<()> {
    match (pipeline.gives_documents(), from) {
        (true, None) | (false, Some(_)) => Ok(()),
        (true, Some(_)) => {
            let text = "'$documents' can only be run with {aggregate: 1}";
            Err(Error::new(ErrorCode::InvalidNamespace, text))
        }
        (false, None) => {
            let name = if inside == Inside::Lookup { "$lookup" } else { "$unionWith" };
            let text = format!(
                "{name} stage without explicit collection must have a pipeline with $documents as first stage"
            );
            Err(Error::failed_to_parse(text))
        }
    }
}

/// The stages of a pipeline that runs inside the stage, over its documents.
///
/// # Errors
/// Those of the stages.
pub(crate) fn branch(pipeline: RawDoc<'_>, around: &Around<'_>) -> Result<Vec<Step>> {
    let (_, steps) = parse_stages(pipeline, around)?;
    Ok(optimised(steps, around))
}

/// Whether the bytes of a document have this text somewhere: it may mean something else there, but nothing has it otherwise.
fn mentions(document: RawDoc<'_>, text: &str) -> bool {
    document.as_bytes().windows(text.len()).any(|part| part == text.as_bytes())
}

/// Whether a second run of these stages gives what the first gave.
/// Whether a second run of these stages gives what the first gave.
pub(crate) fn is_repeatable(stages: RawDoc<'_>) -> bool {
    !["$rand", "$sample", "$function", "$where", "$accumulator"]
        .into_iter()
        .any(|name| mentions(stages, name))
}

/// Some of the stages.
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
        _ => Err(Error::type_mismatch("'pipeline' option must be specified as an array")),
    }
}
