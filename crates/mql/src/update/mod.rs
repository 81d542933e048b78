//! Updates: a replacement document, or operators that change a document in place.
//!
//! Operators are applied in the order of their paths, each to the result of the previous ones.
//! Existing fields keep their position, new ones are appended. A change goes through a tree of the
//! document ([`tree`]), in which only the levels on the way to a path are opened; all other parts
//! are copied as bytes. Paths with `$`, `$[]` and `$[identifier]` are first expanded to plain ones
//! ([`expand`]), separately for each document.

mod apply;
mod array_filters;
mod expand;
mod fields;
pub mod op;
mod parse;
mod path;
pub mod pipeline;
mod stored_names;
mod tree;
mod upsert;

use mayfly_base::{Error, Result};
use mayfly_expr::Scope;
use mayfly_value::{ChangedPath, DocBuf, PathWrite, RawDoc, RawValue};

use crate::FieldPath;
use crate::matcher::{Matcher, ParseContext};
use array_filters::ArrayFilters;
use op::Modifier;
use pipeline::Pipeline;

/// The context of applying an update.
#[derive(Clone, Copy, Debug, Default)]
pub struct UpdateContext {
    /// Wall time of the operation, in milliseconds since 1970.
    pub now_ms: i64,
    /// Whether the document is being inserted, so that `$setOnInsert` applies.
    pub is_insert: bool,
    /// The index of the array item that the filter matched, for `$` in paths; see
    /// [`Update::position`].
    pub position: Option<usize>,
}

/// A document that an upsert inserts.
#[derive(Clone, Debug)]
pub struct Upserted {
    /// The document, with `_id` first if it has one.
    pub document: DocBuf,
    /// Whether the filter or the update provides an `_id`; otherwise the caller generates one.
    pub has_id: bool,
}

/// A parsed update.
#[derive(Debug)]
pub struct Update {
    kind: UpdateKind,
}

#[derive(Debug)]
enum UpdateKind {
    Replacement(DocBuf),
    Operators(Operators),
    Pipeline(Pipeline),
}

/// A parsed document of operators.
#[derive(Debug)]
struct Operators {
    /// In the order of their paths.
    modifications: Vec<Modification>,
    filters: ArrayFilters,
    /// Whether a path must be expanded for each document.
    dynamic: bool,
    /// Whether a path contains `$`.
    positional: bool,
}

/// One operator on one path.
#[derive(Debug)]
struct Modification {
    path: FieldPath,
    /// Whether the path contains `$` or `$[...]`.
    dynamic: bool,
    action: Action,
}

#[derive(Debug)]
enum Action {
    Modify(Box<dyn Modifier>),
    /// Applies only when the document is being inserted.
    ModifyOnInsert(Box<dyn Modifier>),
    /// Moves the value from another path.
    RenameFrom(FieldPath),
}

impl Modification {
    /// Whether it changes one path.
    fn is_single(&self) -> bool {
        !matches!(self.action, Action::RenameFrom(_))
    }

    /// Passes on the paths that it changes, of which `path` is its own in a document.
    fn add_paths<'p>(&'p self, path: &'p FieldPath, add: &mut impl FnMut(ChangedPath<'p>)) {
        let write = match &self.action {
            Action::Modify(modifier) | Action::ModifyOnInsert(modifier) => modifier.writes(),
            Action::RenameFrom(from) => {
                let (parts, write) = (from.parts(), PathWrite::Whole);
                add(ChangedPath { parts, given: parts, write });
                write
            }
        };
        add(ChangedPath { parts: path.parts(), given: self.path.parts(), write });
    }
}

impl Update {
    /// Parses a replacement or a document of operators, determined by its first field.
    pub fn parse(update: RawDoc<'_>, context: &ParseContext) -> Result<Update> {
        Update::parse_value(RawValue::Document(update), context)
    }

    /// Parses the field `u` of a command: a document, or a pipeline.
    pub fn parse_value(update: RawValue<'_>, context: &ParseContext) -> Result<Update> {
        let scope = context.time.map_or_else(Scope::default, Scope::at);
        Update::parse_in(update, &[], &scope, context)
    }

    /// The same with the elements of `arrayFilters`, and with variables of a command for
    /// expressions.
    pub fn parse_in(
        update: RawValue<'_>,
        array_filters: &[RawDoc<'_>],
        scope: &Scope,
        context: &ParseContext,
    ) -> Result<Update> {
        match update {
            RawValue::Document(update) => {
                let filters = ArrayFilters::parse(array_filters, scope)?;
                Ok(Update { kind: parse::parse(update, filters, context)? })
            }
            RawValue::Array(stages) if array_filters.is_empty() => Ok(Update {
                kind: UpdateKind::Pipeline(Pipeline::parse(stages, scope, context.is_stage)?),
            }),
            RawValue::Array(_) => {
                let text = "arrayFilters may not be specified for pipeline-style updates";
                Err(Error::failed_to_parse(text))
            }
            _ => {
                Err(Error::failed_to_parse("Update argument must be either an object or an array"))
            }
        }
    }

    /// Checks the names of a pipeline's stages. A command that does so before its first statement
    /// fails as a whole.
    ///
    /// # Errors
    /// 14 TypeMismatch, 40323, 40324.
    pub fn check_stage_names(update: RawValue<'_>, is_stage: fn(&str) -> bool) -> Result<()> {
        match update {
            RawValue::Array(stages) => pipeline::check_names(stages, is_stage),
            _ => Ok(()),
        }
    }

    /// Whether it replaces the whole document.
    pub fn is_replacement(&self) -> bool {
        matches!(self.kind, UpdateKind::Replacement(_))
    }

    /// The dotted paths that operators may change; `None` for other updates. Indexes on other paths
    /// are unaffected. For a path with `$` or `$[...]` it is the array's path.
    pub fn changed_paths(&self) -> Option<Vec<&str>> {
        let UpdateKind::Operators(operators) = &self.kind else {
            return None;
        };
        let mut paths = Vec::new();
        for modification in &operators.modifications {
            paths.push(path::plain_front(&modification.path));
            if let Action::RenameFrom(from) = &modification.action {
                paths.push(from.as_str());
            }
        }
        Some(paths)
    }

    /// Calls `act` with the paths that operators change in this document; with `None` for other
    /// updates. One operator on a plain path needs no allocation.
    ///
    /// # Errors
    /// Errors of array filters.
    pub fn with_paths<T>(
        &self,
        doc: RawDoc<'_>,
        context: &UpdateContext,
        act: impl FnOnce(Option<&[ChangedPath<'_>]>) -> T,
    ) -> Result<T> {
        let UpdateKind::Operators(operators) = &self.kind else { return Ok(act(None)) };
        if operators.dynamic {
            let expanded = expand::expand(doc, operators, context)?;
            let mut paths = Vec::with_capacity(expanded.len());
            for (path, modification) in &expanded {
                modification.add_paths(path, &mut |path| paths.push(path));
            }
            return Ok(act(Some(&paths)));
        }
        match &operators.modifications[..] {
            [one] if one.is_single() => {
                let mut only = None;
                one.add_paths(&one.path, &mut |path| only = Some(path));
                Ok(act(Some(only.as_slice())))
            }
            several => {
                let mut paths = Vec::with_capacity(several.len());
                for one in several {
                    one.add_paths(&one.path, &mut |path| paths.push(path));
                }
                Ok(act(Some(&paths)))
            }
        }
    }

    /// The index of the array item that `$` selects, in a document that the filter matches; `None`
    /// when no path contains it.
    ///
    /// # Errors
    /// Errors of the filter.
    pub fn position(&self, filter: &Matcher, doc: RawDoc<'_>) -> Result<Option<usize>> {
        match &self.kind {
            UpdateKind::Operators(operators) if operators.positional => filter.array_position(doc),
            UpdateKind::Operators(_) | UpdateKind::Replacement(_) | UpdateKind::Pipeline(_) => {
                Ok(None)
            }
        }
    }

    /// The document after the update; `None` when it is unchanged. A replacement is unchanged if
    /// its bytes, `_id` included, are those of the document.
    pub fn apply(&self, doc: RawDoc<'_>, context: &UpdateContext) -> Result<Option<DocBuf>> {
        let updated = match &self.kind {
            UpdateKind::Replacement(replacement) => {
                if !context.is_insert {
                    stored_names::check_replacement(replacement.as_doc())?;
                }
                if replacement.as_bytes() == doc.as_bytes() {
                    return Ok(None);
                }
                return apply::replace(doc, replacement.as_doc()).map(Some);
            }
            UpdateKind::Operators(operators) => {
                let updated = apply::modify(doc, operators, context)?;
                if !context.is_insert {
                    stored_names::check_modified(doc, updated.as_doc(), operators)?;
                }
                updated
            }
            UpdateKind::Pipeline(pipeline) => apply::replace(doc, pipeline.run(doc)?.as_doc())?,
        };
        Ok((updated.as_bytes() != doc.as_bytes()).then_some(updated))
    }

    /// The document that an upsert inserts when no document matched: the equalities of the filter,
    /// then the update.
    pub fn upsert_document(&self, filter: &Matcher, context: &UpdateContext) -> Result<Upserted> {
        upsert::upsert_document(self, filter, context)
    }
}

#[cfg(test)]
mod tests;
