//! Wraps a stage of an explained pipeline: counts its results, and measures its time.

use mayfly_base::Result;
use mayfly_value::{DocBuilder, RawDoc};

use super::{Next, Running, StageContext};
use crate::exec::Flow;

/// A stage with its statistics.
pub(crate) struct TimedStage {
    stage: Box<dyn Running>,
    did: StageStats,
}

#[derive(Default)]
struct StageStats {
    /// Documents that it returned.
    given: i64,
    /// The time of the stage without that of later stages.
    micros: u64,
}

impl StageStats {
    /// Runs the stage, and adds to its statistics.
    fn watch(
        &mut self,
        context: &StageContext<'_>,
        next: &mut Next<'_>,
        run: impl FnOnce(&mut Next<'_>) -> Result<Flow>,
    ) -> Result<Flow> {
        let now = || context.session.op.elapsed_micros().unsigned_abs();
        let (began, mut later_stages) = (now(), 0);
        let given = &mut self.given;
        let flow = run(&mut |result| {
            *given += 1;
            let passed_at = now();
            let flow = next(result);
            later_stages += now().saturating_sub(passed_at);
            flow
        });
        self.micros += now().saturating_sub(began).saturating_sub(later_stages);
        flow
    }
}

impl TimedStage {
    /// Wraps a stage.
    pub(crate) fn over(stage: Box<dyn Running>) -> Box<dyn Running> {
        Box::new(TimedStage { stage, did: StageStats::default() })
    }
}

impl Running for TimedStage {
    fn push(
        &mut self,
        context: &StageContext<'_>,
        document: RawDoc<'_>,
        next: &mut Next<'_>,
    ) -> Result<Flow> {
        self.did.watch(context, next, |next| self.stage.push(context, document, next))
    }

    fn resume(&mut self, context: &StageContext<'_>, next: &mut Next<'_>) -> Result<Flow> {
        self.did.watch(context, next, |next| self.stage.resume(context, next))
    }

    fn finish(&mut self, context: &StageContext<'_>, next: &mut Next<'_>) -> Result<Flow> {
        self.did.watch(context, next, |next| self.stage.finish(context, next))
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

    fn explain(&self, out: &mut DocBuilder) -> u64 {
        self.stage.explain(out);
        out.append("nReturned", self.did.given);
        self.did.micros
    }
}
