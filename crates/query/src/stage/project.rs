//! `$project`: inclusion and exclusion of fields.

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_expr::{Dependencies, Scope};
use mayfly_mql::Projection;
use mayfly_mql::projection::{ProjectedFields, ProjectionKind};
use mayfly_value::{RawDoc, RawValue};

use super::{Effect, Next, Reads, Running, Stage, StageContext};
use crate::exec::Flow;
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
        Box::new(RunningProject(self.0))
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

struct RunningProject(Projection);

impl Running for RunningProject {
    fn push(
        &mut self,
        context: &StageContext<'_>,
        document: RawDoc<'_>,
        next: &mut Next<'_>,
    ) -> Result<Flow> {
        let metadata = context.metadata.get();
        next(self.0.project(metadata.frame(document))?.as_doc())
    }
}

/// Drops fields that no later stage reads.
#[derive(Debug)]
pub(crate) struct KeepFields(pub(crate) Fields);

impl Stage for KeepFields {
    fn start(self: Box<Self>) -> Box<dyn Running> {
        Box::new(RunningKeep(self.0))
    }

    fn reads(&self) -> Reads {
        Reads::some([])
    }
}

struct RunningKeep(Fields);

impl Running for RunningKeep {
    fn push(
        &mut self,
        _: &StageContext<'_>,
        document: RawDoc<'_>,
        next: &mut Next<'_>,
    ) -> Result<Flow> {
        next(self.0.of(document).as_doc())
    }
}
