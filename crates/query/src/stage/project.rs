//! `$project`: inclusion and exclusion of fields.

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_expr::{Dependencies, Scope};
use mayfly_mql::Projection;
use mayfly_mql::projection::{ProjectedFields, ProjectionKind};
use mayfly_value::RawValue;

use super::{Effect, Reads, Running, Stage, one_for_one};
use crate::language::needed::Fields;

pub(crate) fn parse(value: RawValue<'_>, scope: &Scope) -> Result<Box<dyn Stage>> {
    match value {
        RawValue::Document(spec) => {
            let projection = Projection::parse_in(spec, ProjectionKind::Stage, scope)
                .map_err(|error| error.in_context("Invalid $project"))?;
            Ok(Box::new(Project(projection)))
        }
        _ => Err(Error::new(ErrorCode(15969), "$project specification must be an object")),
    }
}

/// A parsed `$project`.
#[derive(Debug)]
pub(crate) struct Project(Projection);

impl Stage for Project {
    fn start(self: Box<Self>) -> Box<dyn Running> {
        one_for_one(move |frame| self.0.project(frame))
    }

    fn reads(&self) -> Reads {
        projected_reads(&self.0.fields())
    }

    fn effect(&self) -> Effect {
        Effect::projecting(&self.0.fields())
    }

    fn is_one_for_one(&self) -> bool {
        true
    }
}

/// The fields that a projection reads.
pub(super) fn projected_reads(fields: &ProjectedFields<'_>) -> Reads {
    match fields {
        ProjectedFields::Without(_) => Reads::some([]),
        ProjectedFields::Only { paths, made, .. } => {
            let mut read = Dependencies::default();
            made.iter().for_each(|(_, value)| read.add(value));
            // A computed inner field also reads the levels above it.
            let around = made.iter().map(|(path, _)| path).filter(|path| path.contains('.'));
            Reads::only_of(read, paths.iter().chain(around).cloned())
        }
    }
}

/// Drops fields that no later stage reads.
#[derive(Debug)]
pub(crate) struct KeepFields(pub(crate) Fields);

impl Stage for KeepFields {
    fn start(self: Box<Self>) -> Box<dyn Running> {
        one_for_one(move |frame| Ok(self.0.of(frame.root())))
    }

    fn reads(&self) -> Reads {
        Reads::some([])
    }
}
