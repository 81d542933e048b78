//! `$project`: inclusion and exclusion of fields.

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_expr::Scope;
use mayfly_mql::Projection;
use mayfly_mql::projection::ProjectionKind;
use mayfly_value::{RawDoc, RawValue};

use super::{Next, Running, Stage, StageContext};
use crate::Flow;
use crate::needed::Fields;

pub(super) fn parse(value: RawValue<'_>, scope: &Scope) -> Result<Vec<Stage>> {
    match value {
        RawValue::Document(spec) => {
            let projection = Projection::parse_in(spec, ProjectionKind::Stage, scope)
                .map_err(|error| error.in_context("Invalid $project"))?;
            Ok(vec![Stage::Project(projection)])
        }
        _ => Err(Error::new(ErrorCode(15969), "$project specification must be an object")),
    }
}

pub(super) struct RunningProject(pub(super) Projection);

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

pub(super) struct RunningKeep(pub(super) Fields);

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
