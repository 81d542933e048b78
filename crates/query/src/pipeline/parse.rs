//! Parses stages from BSON, and checks their positions.

use mayfly_base::{Error, ErrorCode, Result, limits};
use mayfly_expr::Scope;
use mayfly_value::RawDoc;
use mayfly_value::arguments::error::mistyped;

use super::positions::check_in_transaction;
use super::row::{Parsed, StageRow, parse_stage};
use crate::language::metadata::SORT_KEY;
use crate::stage::filter::Match;
use crate::stage::fused::SCORE;
use crate::stage::geo_near::{self, Distances, GeoNear};
use crate::stage::{PipelineContext, PipelineOwner, Source, Step};
use crate::timeseries::unpack::Unpack;

/// The source, if the first stage is one, and the other stages.
pub(crate) type ParsedStages = (Option<Box<dyn Source>>, Vec<Step>);

/// Parses all stages of a pipeline.
pub(crate) fn parse_stages(
    pipeline: RawDoc<'_>,
    context: &PipelineContext<'_>,
) -> Result<ParsedStages> {
    parse_counted(pipeline, context, &mut 0)
}

/// Parses all stages. `parsed` counts those without errors, for callers that continue after an
/// error.
pub(super) fn parse_counted(
    pipeline: RawDoc<'_>,
    context: &PipelineContext<'_>,
    parsed: &mut usize,
) -> Result<ParsedStages> {
    let count = pipeline.iter().count();
    if context.follows_view() || reads_input(pipeline) {
        context.reads_input();
    }
    if count > limits::MAX_PIPELINE_STAGES {
        let most = limits::MAX_PIPELINE_STAGES;
        let text = format!("Pipeline length must be no longer than {most} stages");
        return Err(Error::new(ErrorCode(7749501), text));
    }
    let mut stages = Stages { context, source: None, steps: Vec::new(), scope_after_first: None };
    for (at, element) in pipeline.iter().enumerate() {
        let Some(spec) = element.value().as_document() else {
            let text = "Each element of the 'pipeline' array must be an object";
            return Err(match context.inside {
                PipelineOwner::Facet => Error::new(ErrorCode(40171), text),
                _ => mistyped(text),
            });
        };
        stages.add(at, spec)?;
        *parsed += 1;
    }
    stages.check_places(pipeline, count)?;
    Ok((stages.source, stages.steps))
}

/// Whether the first stage reads the collection of the command. Unknown stages count as reading it.
fn reads_input(pipeline: RawDoc<'_>) -> bool {
    StageRow::first_of(pipeline).is_none_or(|row| row.needs.read_input())
}

/// Records the rights of stages when one of them cannot be parsed, because variables have no values
/// yet. For a stage that cannot be parsed and whose rights depend on its options, every right is
/// required.
pub(crate) fn note_rights(stages: RawDoc<'_>, from: usize, context: &PipelineContext<'_>) {
    for spec in stages.iter().skip(from).filter_map(|stage| stage.value().as_document()) {
        let row = spec.iter().next().and_then(|field| StageRow::find(field.name()));
        if parse_stage(spec, context).is_err()
            && row.is_some_and(|row| row.needs.depend_on_options())
        {
            context.needs_everything();
        }
    }
}

/// The stages parsed so far.
struct Stages<'a> {
    context: &'a PipelineContext<'a>,
    source: Option<Box<dyn Source>>,
    steps: Vec<Step>,
    /// The scope of the later stages, which may refer to metadata of the first.
    scope_after_first: Option<Scope>,
}

impl Stages<'_> {
    /// Parses the stage at index `at` and adds it.
    fn add(&mut self, at: usize, spec: RawDoc<'_>) -> Result<()> {
        let here = self
            .scope_after_first
            .as_ref()
            .map_or(*self.context, |scope| self.context.scoped(scope));
        if here.in_transaction {
            check_in_transaction(spec)?;
        }
        let parsed = match parse_stage(spec, &here.for_stage(at))? {
            Parsed::Steps(parsed) => parsed,
            Parsed::Source(found) => {
                self.source.get_or_insert(found);
                return Ok(());
            }
        };
        let unpacked = at == 1 && self.steps.first().is_some_and(Step::is::<Unpack>);
        let parsed = if unpacked { over_measurements(parsed, spec)? } else { parsed };
        self.check_search(at, &parsed)?;
        let adds = |step: &Step| {
            let names = step.stage().gives_metadata();
            names.contains(&SCORE) || names.contains(&SORT_KEY)
        };
        let is_added = parsed.last().is_some_and(adds);
        if at == 0 || unpacked || is_added {
            let names = parsed.iter().flat_map(|step| step.stage().gives_metadata());
            let before = self.scope_after_first.take().filter(|_| is_added);
            self.scope_after_first = names.fold(before, |scope: Option<Scope>, name| {
                let scope = scope.unwrap_or_else(|| self.context.scope.clone());
                Some(scope.with_metadata(name))
            });
        }
        self.steps.extend(parsed);
        Ok(())
    }

    /// Checks that a text search is the first stage.
    fn check_search(&self, at: usize, parsed: &[Step]) -> Result<()> {
        let searches =
            |step: &Step| step.get::<Match>().is_some_and(|found| found.0.text().is_some());
        if (at > 0 || self.context.inside == PipelineOwner::Facet) && parsed.iter().any(searches) {
            let text = "$match with $text is only allowed as the first pipeline stage";
            return Err(Error::new(ErrorCode(17313), text));
        }
        Ok(())
    }

    /// Checks the position of each stage by its row.
    fn check_places(&self, pipeline: RawDoc<'_>, count: usize) -> Result<()> {
        let names =
            pipeline.iter().filter_map(|element| element.value().as_document()?.iter().next());
        let over_measurements = matches!(
            &self.steps[..],
            [first, second, ..] if first.is::<Unpack>() && second.is::<Distances>()
        );
        for (at, name) in names.enumerate() {
            let row = StageRow::find(name.name());
            // A fusion may be over a view.
            let fuses_view = row.is_some_and(|row| row.fuses) && self.context.begins_at(at);
            if !(over_measurements && at == 1 || fuses_view) {
                row.map_or(Ok(()), |row| row.check_place(at, count))?;
            }
        }
        Ok(())
    }
}

/// Replaces a search by distance after the stage that unpacks buckets, where it reads measurements.
fn over_measurements(mut parsed: Vec<Step>, spec: RawDoc<'_>) -> Result<Vec<Step>> {
    match &parsed[..] {
        [only] if only.is::<GeoNear>() => {
            let stage = parsed.pop().and_then(Step::take::<GeoNear>);
            stage.map_or(Ok(Vec::new()), |stage| geo_near::over_measurements(*stage, spec))
        }
        _ => Ok(parsed),
    }
}
