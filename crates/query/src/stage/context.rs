//! The context that a stage is parsed in, and the settings of its run.

use mayfly_storage::ReadView;
use std::sync::Arc;

use mayfly_auth::Action;
use mayfly_base::{Error, ErrorCode, Namespace, Result};
use mayfly_expr::Scope;
use mayfly_value::DocBuf;

use super::Searcher;
use super::rights::RecordedRights;
use crate::language::IndexHints;
use crate::memory::Budget;

/// Limit on nested pipelines. Manual: "MongoDB Limits and Thresholds", "Nested Sub-pipelines".
const MAX_SUB_PIPELINES: usize = 20;

/// What a pipeline belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PipelineOwner {
    /// A command.
    Command,
    /// The definition of a view.
    View,
    /// A `$facet`.
    Facet,
    /// A `$lookup`.
    Lookup,
    /// A `$unionWith`.
    UnionWith,
}

/// The context that a pipeline is parsed in.
#[derive(Clone, Copy)]
pub struct PipelineContext<'a> {
    /// The database of the command.
    pub db: &'a str,
    /// The collection of the command, for stages that read it several times.
    pub(crate) collection: Option<&'a str>,
    /// The variables that expressions may refer to.
    pub scope: &'a Scope,
    /// What the pipeline belongs to.
    pub inside: PipelineOwner,
    /// Number of enclosing pipelines.
    depth: usize,
    /// Whether one of them, or the pipeline itself, belongs to a `$facet`.
    within_facet: bool,
    /// The index of the stage that is parsed.
    stage: usize,
    /// Whether the optimiser is disabled.
    as_written: bool,
    /// Whether the command is a statement of an open transaction, in which some stages are refused.
    pub(crate) in_transaction: bool,
    /// Records the rights that stages need; `None` if they were checked before.
    pub(super) rights: Option<&'a RecordedRights>,
    /// Number of leading stages that come from a view, whose rights were checked when it was
    /// defined.
    of_view: usize,
    /// Whether the stage that is parsed can be the first one of its own pipeline, over a view.
    after_view: bool,
}

impl<'a> PipelineContext<'a> {
    /// The context of a command's pipeline on this database.
    pub fn command(db: &'a str, scope: &'a Scope) -> PipelineContext<'a> {
        PipelineContext {
            db,
            collection: None,
            scope,
            inside: PipelineOwner::Command,
            depth: 0,
            within_facet: false,
            stage: 0,
            as_written: false,
            in_transaction: false,
            rights: None,
            of_view: 0,
            after_view: false,
        }
    }

    /// Adds the collection or view of the command.
    #[must_use]
    pub fn over(self, collection: Option<&'a str>) -> PipelineContext<'a> {
        PipelineContext { collection, ..self }
    }

    /// Adds the store view of the command.
    #[must_use]
    pub fn with_view(self, view: &ReadView) -> PipelineContext<'a> {
        PipelineContext { in_transaction: view.in_transaction(), ..self }
    }

    /// Declares that the first `of_view` stages come from a view.
    #[must_use]
    pub fn after_view(self, of_view: usize) -> PipelineContext<'a> {
        PipelineContext { of_view, ..self }
    }

    /// Adds a record for the rights that stages need.
    pub(crate) fn noting<'b>(self, rights: &'b RecordedRights) -> PipelineContext<'b>
    where
        'a: 'b,
    {
        PipelineContext { rights: Some(rights), ..self }
    }

    /// Whether rights are recorded.
    pub(crate) fn notes_rights(&self) -> bool {
        self.rights.is_some()
    }

    /// Whether the first stages come from a view.
    pub(crate) fn follows_view(&self) -> bool {
        self.of_view > 0
    }

    /// Whether the stage at index `at` can be the first one of its own pipeline, over a view: it
    /// follows the stages of the view, or belongs to a view over others, whose definition was
    /// checked when it was created.
    pub(crate) fn begins_at(&self, at: usize) -> bool {
        self.follows_view() && at <= self.of_view
    }

    /// Whether the stage that is parsed can be the first one of its own pipeline, over a view.
    pub(crate) fn is_after_view(&self) -> bool {
        self.after_view
    }

    /// The context of the stage at index `at`: for the stages of a view, no rights are recorded.
    pub(crate) fn for_stage(&self, at: usize) -> PipelineContext<'a> {
        let rights = self.rights.filter(|_| at >= self.of_view);
        let after_view = self.begins_at(at);
        PipelineContext { rights, of_view: 0, stage: at, after_view, ..*self }
    }

    /// The context of a view's pipeline.
    pub fn view(db: &'a str, scope: &'a Scope) -> PipelineContext<'a> {
        PipelineContext { inside: PipelineOwner::View, ..PipelineContext::command(db, scope) }
    }

    /// The context of a nested pipeline.
    ///
    /// # Errors
    /// 232 MaxSubPipelineDepthExceeded.
    pub(crate) fn deeper(&self, inside: PipelineOwner) -> Result<PipelineContext<'a>> {
        if self.depth >= MAX_SUB_PIPELINES {
            return Err(Error::new(
                ErrorCode::MaxSubPipelineDepthExceeded,
                format!(
                    "Maximum number of nested sub-pipelines exceeded. Limit is {MAX_SUB_PIPELINES}"
                ),
            ));
        }
        let within_facet = self.within_facet || inside == PipelineOwner::Facet;
        Ok(PipelineContext { inside, depth: self.depth + 1, within_facet, ..*self })
    }

    /// Replaces the variables.
    pub(crate) fn scoped<'b>(&self, scope: &'b Scope) -> PipelineContext<'b>
    where
        'a: 'b,
    {
        PipelineContext { scope, ..*self }
    }

    /// Disables the optimiser.
    #[cfg(test)]
    pub(crate) fn as_written(self) -> PipelineContext<'a> {
        PipelineContext { as_written: true, ..self }
    }

    /// Whether the optimiser may rewrite the pipeline.
    pub(crate) fn optimises(&self) -> bool {
        !self.as_written
    }

    /// A collection of the command's database that a stage reads. Records the right to read it.
    ///
    /// # Errors
    /// 73 InvalidNamespace.
    pub(crate) fn collection(&self, name: &str) -> Result<Namespace> {
        let ns = Namespace::new(self.db, name)?;
        self.needs_on(&ns, Action::Find);
        Ok(ns)
    }

    /// Whether the pipeline is within a `$facet`, at any depth.
    pub(crate) fn within_facet(&self) -> bool {
        self.within_facet
    }

    /// The index of the stage that is parsed.
    pub(crate) fn stage(&self) -> usize {
        self.stage
    }

    /// Number of enclosing pipelines.
    pub(crate) fn depth(&self) -> usize {
        self.depth
    }

    /// Sets the number of enclosing pipelines to one that was saved.
    pub(crate) fn at_depth(self, depth: usize, inside: PipelineOwner) -> PipelineContext<'a> {
        PipelineContext { depth, inside, ..self }
    }
}

/// A description of a collection with which a pipeline inside of a stage begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedDescription {
    /// The collection that is described.
    pub of: Namespace,
    /// The stage, such as `{ $collStats: { count: {} } }`.
    pub stage: DocBuf,
}

/// A description of a collection, with its documents.
#[derive(Clone, Debug)]
pub struct KnownDescription {
    /// What is described.
    pub wanted: WantedDescription,
    /// The documents that the stage returns.
    pub documents: Vec<DocBuf>,
}

/// Settings that a command makes for the run of its pipeline.
#[derive(Clone, Debug, Default)]
pub struct RunSettings {
    /// Memory of the stages, including those of nested pipelines.
    pub budget: Budget,
    /// Whether writing stages skip document validation.
    pub bypass_validation: bool,
    /// Whether writing stages keep empty timestamps instead of filling them in.
    pub keep_empty_timestamps: bool,
    /// The indexes that query settings allow, for each collection.
    pub hints: Option<Arc<IndexHints>>,
    /// The descriptions of collections that pipelines inside of stages return. They come from the
    /// server, so the command collects them before the run.
    pub descriptions: Arc<Vec<KnownDescription>>,
    /// The search indexes.
    pub searcher: Option<Arc<dyn Searcher>>,
    /// Whether writing stages consume their input without writing, because the run is only
    /// explained.
    pub read_only: bool,
}

#[cfg(test)]
impl RunSettings {
    /// Limits every operator to this memory; beyond it operators spill to the folder, if there is
    /// one.
    pub(crate) fn limited(bytes: usize, folder: Option<std::path::PathBuf>) -> RunSettings {
        let limits = crate::memory::MemoryLimits::default().with_all(bytes);
        RunSettings { budget: Budget::new(limits, folder), ..RunSettings::default() }
    }
}
