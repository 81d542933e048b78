//! Explains `aggregate`: the plan of the leading stages, and the stages after it.

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_query::{
    BatchLimit, Cursor, CursorSource, Hint, Pipeline, PipelineContext, Purpose, RunSettings,
    UncheckedPipeline, Verbosity,
};
use mayfly_storage::Collection;
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue};

use super::Inner;
use super::query::{Parts, write};
use crate::context::CommandContext;
use crate::crud::{command_scope, run_settings};

/// Explains the pipeline of the command.
pub(super) fn aggregate(
    ctx: &CommandContext<'_>,
    inner: &Inner<'_>,
    doc: &mut DocBuilder,
) -> Result<()> {
    let fields = &inner.fields;
    let pipeline = fields.array("pipeline")?.ok_or_else(|| fields.missing("pipeline"))?;
    explain_stages(ctx, inner, (pipeline, 0), doc)
}

/// Explains stages over the command's collection. The first `of_view` stages belong to a view; the
/// other arguments are those of the command.
pub(super) fn explain_stages(
    ctx: &CommandContext<'_>,
    inner: &Inner<'_>,
    (pipeline, of_view): (RawDoc<'_>, usize),
    doc: &mut DocBuilder,
) -> Result<()> {
    let fields = &inner.fields;
    let collection = ctx.store.collection(&inner.ns);
    let collation = inner.collating.over(collection.as_deref());
    let variables = inner.variables()?;
    let scope = command_scope(ctx, collation, variables)?;
    let context = PipelineContext::command(inner.ns.db(), &scope).after_view(of_view);
    let parsed = ctx.checked(inner.request, UncheckedPipeline::parse(pipeline, &context))?;
    if parsed.follows_changes().is_some() {
        // It reads the log and not the collection, whose plan would be returned.
        return Err(Error::not_implemented("explain of '$changeStream'"));
    }
    if parsed.is_source() {
        let text = "a pipeline that reads no collection cannot be explained";
        return Err(Error::new(ErrorCode::InvalidNamespace, text));
    }
    let shown = parsed.explained(ctx.store.view, collection.as_deref(), fields.get("hint"))?;
    let first_of = parsed.first_of();
    let key = collection.as_deref().and_then(|over| hinted_buckets(over, fields.get("hint")));
    let key = key.as_ref().map(|key| RawValue::Document(key.as_doc()));
    let front = Parts {
        sort: shown.sort.as_ref().map(DocBuf::as_doc),
        skip: i64::try_from(shown.skip).unwrap_or(i64::MAX),
        limit: i64::try_from(shown.limit).unwrap_or(i64::MAX),
        hint: key.or_else(|| fields.get("hint")),
        variables,
        first_of: first_of.as_ref(),
        needed_paths: shown.needed_paths.as_ref(),
        ..Parts::of(shown.filter.as_doc())
    };
    if shown.later_stages.is_empty() && !shown.by_distance {
        return write(ctx, inner, front, Purpose::Find, doc).map(|_| ());
    }
    let runs = inner.verbosity >= Verbosity::ExecutionStats;
    let hint = front.hint;
    let mut begun = DocBuilder::new();
    let read = write(ctx, inner, front, shown.purpose, &mut begun)?;
    let (did, mut micros) = match runs {
        true => run(ctx, inner, parsed, hint)?,
        false => (Vec::new(), 0),
    };
    let took = |micros: u64| i64::try_from(micros / 1000).unwrap_or(i64::MAX);
    doc.start_array("stages").push_document();
    let name = if shown.by_distance { "$geoNearCursor" } else { "$cursor" };
    doc.append(name, &begun.finish());
    if runs {
        doc.append("nReturned", i64::try_from(read).unwrap_or(i64::MAX));
        doc.append("executionTimeMillisEstimate", took(micros));
    }
    doc.end();
    // Stages whose work the plan took over did not run.
    let taken = shown.later_stages.len().saturating_sub(did.len());
    let mut did = did.iter().peekable();
    for (at, stage) in shown.later_stages.iter().enumerate() {
        doc.push_document().append_all(stage.as_doc());
        if let Some((did, own)) = did.next_if(|_| at >= taken) {
            // The reference includes the time of all previous stages.
            micros += own;
            doc.append_all(did.as_doc()).append("executionTimeMillisEstimate", took(micros));
        }
        doc.end();
    }
    doc.end();
    Ok(())
}

/// Translates the key pattern of a hint on measurements into that on buckets.
fn hinted_buckets(collection: &Collection, hint: Option<RawValue<'_>>) -> Option<DocBuf> {
    let (Some(RawValue::Document(key)), series) = (hint, collection.time_series()?) else {
        return None;
    };
    key.get("$natural").is_none().then(|| series.fields.key_on_buckets(key))
}

/// Runs the whole pipeline and discards its results; returns the statistics of the stages, and the
/// microseconds of reading.
fn run(
    ctx: &CommandContext<'_>,
    inner: &Inner<'_>,
    pipeline: Pipeline,
    hint: Option<RawValue<'_>>,
) -> Result<(Vec<(DocBuf, u64)>, u64)> {
    let began = ctx.op.elapsed_micros();
    let store = &ctx.service.store;
    let hint = hint.map(Hint::parse).transpose()?.flatten();
    let hints = inner.setting.as_ref().and_then(|setting| setting.hints.clone());
    let settings = RunSettings { read_only: true, hints, ..run_settings(ctx, inner.may_spill()?) };
    let run = pipeline.start(
        ctx.store.view,
        store.collection(ctx.store.view, &inner.ns),
        hint,
        settings,
    )?;
    let mut cursor = Cursor::new(inner.ns.clone(), CursorSource::Pipeline(Box::new(run)));
    while !cursor.is_done() {
        let mut batch = DocBuilder::new_array();
        let limit = BatchLimit { documents: None };
        cursor.fill(ctx.store, limit, &mut batch)?;
    }
    let did = cursor.stage_stats();
    let all = (ctx.op.elapsed_micros() - began).unsigned_abs();
    let reading = did.iter().fold(all, |left, (_, own)| left.saturating_sub(*own));
    Ok((did, reading))
}
