//! `$set`, `$addFields`, `$unset`, `$replaceRoot`, `$replaceWith`: one document out of one, with the stages that updates by
//! a pipeline have, too.

use std::sync::Arc;

use mayfly_base::Result;
use mayfly_expr::Scope;
use mayfly_mql::update::pipeline::DocumentStage;
use mayfly_value::{RawDoc, RawValue};

use super::{Next, Running, Stage, StageContext};
use crate::Flow;

pub(super) fn parse(name: &str, value: RawValue<'_>, scope: &Scope) -> Result<Vec<Stage>> {
    Ok(vec![Stage::Reshape(Arc::new(DocumentStage::parse(name, value, scope)?))])
}

pub(super) struct RunningReshape(pub(super) Arc<DocumentStage>);

impl Running for RunningReshape {
    fn push(
        &mut self,
        context: &StageContext<'_>,
        document: RawDoc<'_>,
        next: &mut Next<'_>,
    ) -> Result<Flow> {
        let metadata = context.metadata.get();
        next(self.0.run(metadata.frame(document))?.as_doc())
    }
}
