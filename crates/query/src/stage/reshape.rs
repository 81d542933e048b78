//! `$set`, `$addFields`, `$unset`, `$replaceRoot`, `$replaceWith`: one document out of one, with the stages that updates by
//! a pipeline have, too.

use std::sync::Arc;

use mayfly_base::Result;
use mayfly_expr::Scope;
use mayfly_mql::update::pipeline::DocumentStage;
use mayfly_value::{RawDoc, RawValue};

use super::{Next, Running, Stage};
use crate::Flow;

pub(super) fn parse_set(value: RawValue<'_>, scope: &Scope) -> Result<Vec<Stage>> {
    parse("$set", value, scope)
}

pub(super) fn parse_add_fields(value: RawValue<'_>, scope: &Scope) -> Result<Vec<Stage>> {
    parse("$addFields", value, scope)
}

pub(super) fn parse_unset(value: RawValue<'_>, scope: &Scope) -> Result<Vec<Stage>> {
    parse("$unset", value, scope)
}

pub(super) fn parse_replace_root(value: RawValue<'_>, scope: &Scope) -> Result<Vec<Stage>> {
    parse("$replaceRoot", value, scope)
}

pub(super) fn parse_replace_with(value: RawValue<'_>, scope: &Scope) -> Result<Vec<Stage>> {
    parse("$replaceWith", value, scope)
}

fn parse(name: &str, value: RawValue<'_>, scope: &Scope) -> Result<Vec<Stage>> {
    Ok(vec![Stage::Reshape(Arc::new(DocumentStage::parse(name, value, scope)?))])
}

pub(super) struct RunningReshape(pub(super) Arc<DocumentStage>);

impl Running for RunningReshape {
    fn push(&mut self, document: RawDoc<'_>, next: &mut Next<'_>) -> Result<Flow> {
        next(self.0.run(document)?.as_doc())
    }

    fn finish(&mut self, _: &mut Next<'_>) -> Result<()> {
        Ok(())
    }
}
