//! Around a stage: what it is parsed in, and what its run may use.

use mayfly_storage::ReadView;
use std::sync::Arc;

use mayfly_auth::Action;
use mayfly_base::{Error, ErrorCode, Namespace, Result};
use mayfly_expr::Scope;

use super::rights::Noted;
use crate::language::IndexHints;
use crate::memory::Budget;

/// Pipelines in pipelines: so many at most. Manual: "MongoDB Limits and Thresholds", "Nested Sub-pipelines".
const MAX_SUB_PIPELINES: usize = 20;

/// Where a pipeline stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inside {
    /// It is that of a command.
    Command,
    /// It defines a view.
    View,
    /// It is one of a `$facet`.
    Facet,
    /// It is that of a `$lookup`.
    Lookup,
    /// It is that of a `$unionWith`.
    UnionWith,
}

/// What a pipeline is parsed in.
#[derive(Clone, Copy)]
pub struct Around<'a> {
    /// The database of the command.
    pub db: &'a str,
    /// What expressions may name.
    pub scope: &'a Scope,
    /// Where the pipeline stands.
    pub inside: Inside,
    /// Pipelines around it.
    depth: usize,
    /// It runs as it is written.
    as_written: bool,
    /// It is a statement of an open transaction, in which some stages are refused.
    pub(crate) in_transaction: bool,
    /// Where the rights that its stages need are noted; nothing when they were checked before.
    pub(super) rights: Option<&'a Noted>,
    /// So many stages at its front are those of a view, whose rights were checked when it was defined.
    of_view: usize,
}

impl<'a> Around<'a> {
    /// Around the pipeline of a command on this database.
    pub fn command(db: &'a str, scope: &'a Scope) -> Around<'a> {
        Around {
            db,
            scope,
            inside: Inside::Command,
            depth: 0,
            as_written: false,
            in_transaction: false,
            rights: None,
            of_view: 0,
        }
    }

    /// The same as a command that has this view of the store.
    #[must_use]
    pub fn with_view(self, view: &ReadView) -> Around<'a> {
        Around { in_transaction: view.in_transaction(), ..self }
    }

    /// The same for a pipeline whose first stages, so many, are those of a view.
    #[must_use]
    pub fn after_view(self, of_view: usize) -> Around<'a> {
        Around { of_view, ..self }
    }

    /// The same where the rights that stages need are noted.
    pub(crate) fn noting<'b>(self, rights: &'b Noted) -> Around<'b>
    where
        'a: 'b,
    {
        Around { rights: Some(rights), ..self }
    }

    /// Whether rights are noted.
    pub(crate) fn notes_rights(&self) -> bool {
        self.rights.is_some()
    }

    /// Whether its first stages are those of a view.
    pub(crate) fn follows_view(&self) -> bool {
        self.of_view > 0
    }

    /// Around the stage at this place: of a view's stages no rights are noted.
    pub(crate) fn for_stage(&self, at: usize) -> Around<'a> {
        let rights = self.rights.filter(|_| at >= self.of_view);
        Around { rights, of_view: 0, ..*self }
    }

    /// Around the pipeline of a view.
    pub fn view(db: &'a str, scope: &'a Scope) -> Around<'a> {
        Around { inside: Inside::View, ..Around::command(db, scope) }
    }

    /// Around a pipeline in this one.
    ///
    /// # Errors
    /// 232 MaxSubPipelineDepthExceeded.
    pub(crate) fn deeper(&self, inside: Inside) -> Result<Around<'a>> {
        if self.depth >= MAX_SUB_PIPELINES {
            return Err(Error::new(
                ErrorCode::MaxSubPipelineDepthExceeded,
                format!(
                    "Maximum number of nested sub-pipelines exceeded. Limit is {MAX_SUB_PIPELINES}"
                ),
            ));
        }
        Ok(Around { inside, depth: self.depth + 1, ..*self })
    }

    /// The same with other variables.
    pub(crate) fn scoped<'b>(&self, scope: &'b Scope) -> Around<'b>
    where
        'a: 'b,
    {
        Around { scope, ..*self }
    }

    /// The same for a pipeline that runs as it is written.
    #[cfg(test)]
    pub(crate) fn as_written(self) -> Around<'a> {
        Around { as_written: true, ..self }
    }

    /// Whether a pipeline may be rewritten.
    pub(crate) fn optimises(&self) -> bool {
        !self.as_written
    }

    /// A collection of the command's database that a stage reads; notes the right.
    ///
    /// # Errors
    /// 73 InvalidNamespace.
    pub(crate) fn collection(&self, name: &str) -> Result<Namespace> {
        let ns = Namespace::new(self.db, name)?;
        self.needs_on(&ns, Action::Find);
        Ok(ns)
    }

    /// How deep it stands.
    pub(crate) fn depth(&self) -> usize {
        self.depth
    }

    /// As deep as another one did.
    pub(crate) fn at_depth(self, depth: usize, inside: Inside) -> Around<'a> {
        Around { depth, inside, ..self }
    }
}

/// What a command says about the run of its pipeline.
#[derive(Clone, Debug, Default)]
pub struct RunSettings {
    /// The memory of its stages, and of those of pipelines within.
    pub budget: Budget,
    /// Documents that stages write need not follow their collection's rules.
    pub bypass_validation: bool,
    /// Stages that write keep empty timestamps instead of filling them in.
    pub keep_empty_timestamps: bool,
    /// The indexes that query settings allow, of each collection.
    pub hints: Option<Arc<IndexHints>>,
    /// Stages that write take their input and leave everything as it is: the run is only explained.
    pub read_only: bool,
}

#[cfg(test)]
impl RunSettings {
    /// Every operator has this memory, and goes on in the folder.
    pub(crate) fn limited(bytes: usize, folder: Option<std::path::PathBuf>) -> RunSettings {
        let limits = crate::memory::MemoryLimits::default().with_all(bytes);
        RunSettings { budget: Budget::new(limits, folder), ..RunSettings::default() }
    }
}
