//! A running stage whose pipeline is explained: it counts what the stage gives.

use mayfly_base::Result;
use mayfly_value::{DocBuilder, RawDoc};

use super::{Next, Running, StageContext};
use crate::exec::Flow;

/// A stage, and how many documents it gave.
pub(crate) struct Watched {
    stage: Box<dyn Running>,
    given: i64,
}

impl Watched {
    /// Watches a stage.
    pub(crate) fn over(stage: Box<dyn Running>) -> Box<dyn Running> {
        Box::new(Watched { stage, given: 0 })
    }
}

impl Running for Watched {
    fn push(
        &mut self,
        context: &StageContext<'_>,
        document: RawDoc<'_>,
        next: &mut Next<'_>,
    ) -> Result<Flow> {
        let given = &mut self.given;
        self.stage.push(context, document, &mut |result| {
            *given += 1;
            next(result)
        })
    }

    fn resume(&mut self, context: &StageContext<'_>, next: &mut Next<'_>) -> Result<Flow> {
        let given = &mut self.given;
        self.stage.resume(context, &mut |result| {
            *given += 1;
            next(result)
        })
    }

    fn finish(&mut self, context: &StageContext<'_>, next: &mut Next<'_>) -> Result<Flow> {
        let given = &mut self.given;
        self.stage.finish(context, &mut |result| {
            *given += 1;
            next(result)
        })
    }

    fn end_batch(&mut self) {
        self.stage.end_batch();
    }

    fn abandon(&mut self, context: &StageContext<'_>) {
        self.stage.abandon(context);
    }

    fn is_satisfied(&self) -> bool {
        self.stage.is_satisfied()
    }

    fn held(&self) -> Option<RawDoc<'_>> {
        self.stage.held()
    }

    fn holds_back(&self) -> bool {
        self.stage.holds_back()
    }

    fn explain(&self, out: &mut DocBuilder) {
        self.stage.explain(out);
        out.append("nReturned", self.given).append("executionTimeMillisEstimate", 0i64);
    }
}
