//! Explains a pipeline: its query as it was planned and run, and the stages after it.

use std::sync::Arc;

use mayfly_base::Result;
use mayfly_storage::{Collection, StoreSession};
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue};

use super::run::{Input, PipelineRun};
use super::{Pipeline, front_length};
use crate::exec::{Flow, TriedPlan};
use crate::explain::{Explained, examined_by, write_absent, write_counted, write_started};
use crate::language::{CanonicalQuery, Hint};
use crate::stage::geo_near::GeoNear;
use crate::stage::search::Search;
use crate::stage::{RunSettings, Step};

impl Pipeline {
    /// Starts the pipeline, runs it if its execution is explained, and appends its plan. The
    /// results are dropped, and nothing is written.
    ///
    /// # Errors
    /// Errors of planning and of running.
    pub fn explain(
        self,
        session: StoreSession<'_>,
        collection: Option<Arc<Collection>>,
        hint: Option<Hint>,
        settings: RunSettings,
        explained: &Explained<'_>,
        out: &mut DocBuilder,
    ) -> Result<()> {
        if let Some(last) = self.steps.last() {
            last.stage().check_target(session)?;
        }
        let by_distance =
            collection.is_some() && self.steps.first().is_some_and(Step::is::<GeoNear>);
        let search = self.steps.first().and_then(Step::get::<Search>).map(Search::name);
        let first = search.or(by_distance.then_some("$geoNearCursor"));
        let taken = if first.is_some() { 1 } else { front_length(&self.steps) };
        let later = self.steps[taken..].iter().filter_map(Step::written);
        let later: Vec<DocBuf> = later.map(RawDoc::to_owned).collect();
        let settings = RunSettings { read_only: true, ..settings };
        let sought = self.steps.first().filter(|_| search.is_some()).and_then(Step::written);
        let sought = sought.map(RawDoc::to_owned);
        let mut run = self.start(session, collection, hint, settings)?;
        session.op.update_info(|info| info.plan_summary = run.plan_summary());
        let runs = explained.runs();
        let tried = run.choose(session, explained)?;
        let began = session.op.elapsed_micros();
        while runs && !run.is_done() {
            run.run(session, &mut |_| Ok(Flow::More))?;
        }
        let all = session.op.elapsed_micros().abs_diff(began);
        if later.is_empty() && first.is_none() {
            return run.write_query(session, &tried, explained, out).map(|_| ());
        }
        let did = if runs { run.stage_stats() } else { Vec::new() };
        let mut micros = did.iter().fold(all, |left, (_, own)| left.saturating_sub(*own));
        let took = |micros: u64| RawValue::Int64(i64::try_from(micros / 1000).unwrap_or(i64::MAX));
        out.start_array("stages").push_document();
        out.start_document(first.unwrap_or("$cursor"));
        let returned = match sought {
            Some(sought) => run.write_search(sought.as_doc(), out),
            None => run.write_query(session, &tried, explained, out)?,
        };
        out.end();
        if runs {
            out.append("nReturned", i64::try_from(returned).unwrap_or(i64::MAX));
            out.append("executionTimeMillisEstimate", took(micros));
        }
        out.end();
        // The first stages may be part of the plan: then they did not run, or are not shown.
        let (shown, ran) = (later.len(), did.len());
        for (at, stage) in later.iter().enumerate() {
            out.push_document().append_all(stage.as_doc());
            if let Some((did, own)) = (at + ran).checked_sub(shown).and_then(|at| did.get(at)) {
                // The reference includes the time of all previous stages.
                micros += own;
                out.append_all(did.as_doc()).append("executionTimeMillisEstimate", took(micros));
            }
            out.end();
        }
        out.end();
        Ok(())
    }
}

impl PipelineRun {
    /// Runs the trial of the query, if there is one.
    fn choose(
        &mut self,
        session: StoreSession<'_>,
        explained: &Explained<'_>,
    ) -> Result<Vec<TriedPlan>> {
        let Input::Plan(executor) = &mut self.input else { return Ok(Vec::new()) };
        if explained.runs() {
            executor.time_nodes();
        }
        executor.settle(session)
    }

    /// Appends a search: the operand of its stage, and how the index runs it. Returns the number of
    /// its results.
    fn write_search(&self, sought: RawDoc<'_>, out: &mut DocBuilder) -> u64 {
        if let Some(operand) = sought.iter().next() {
            out.append("query", operand.value());
        }
        if let Input::Source(source) = &self.input
            && let Some((explained, returned)) = source.explain()
        {
            out.append("explain", &explained);
            return returned;
        }
        0
    }

    /// Appends the plan of the query and its figures. Returns the number of its results.
    fn write_query(
        &self,
        session: StoreSession<'_>,
        tried: &[TriedPlan],
        explained: &Explained<'_>,
        out: &mut DocBuilder,
    ) -> Result<u64> {
        match &self.input {
            Input::Plan(executor) => {
                // The operation's counters include those of nested pipelines.
                let examined = examined_by(executor);
                Ok(write_started(session, (executor, tried), examined, explained, out))
            }
            Input::Counted(collection, _) => {
                let query = CanonicalQuery::everything(None)?;
                write_counted(session, collection, &query, explained, out)
            }
            Input::Source(_) | Input::Shared(..) | Input::Changes(_) | Input::Log(_) => {
                write_absent(&CanonicalQuery::everything(None)?, explained, out);
                Ok(0)
            }
        }
    }
}
