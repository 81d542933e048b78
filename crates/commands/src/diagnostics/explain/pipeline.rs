//! Explaining `aggregate`: the plan of the stages at its front, and the stages behind it.

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_query::{
    Around, BatchLimit, Cursor, CursorSource, Hint, Pipeline, Purpose, RunSettings, Verbosity,
};
use mayfly_storage::Collection;
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue};

use super::Inner;
use super::query::{Parts, write};
use crate::crud::{Collating, Source, command_scope, run_settings, source};
use crate::fields::whole_number;
use crate::{CommandContext, Fields, Request};

/// `aggregate` with `explain: true`.
pub(crate) fn explain_aggregate(
    ctx: &CommandContext<'_>,
    request: &Request<'_>,
    doc: &mut DocBuilder,
) -> Result<()> {
    let fields = Fields::new(request.body, "aggregate");
    let collating = Collating::parse(&fields)?;
    let verbosity = Verbosity::QueryPlanner;
    let inner = Inner { fields, ns: request.namespace()?, verbosity, collating };
    doc.append("explainVersion", "1");
    match source(ctx, &inner.ns)? {
        Source::View(view) => super::view::explain(ctx, "aggregate", inner, &view, doc)?,
        Source::Collection(_) | Source::Nothing => aggregate(ctx, &inner, doc)?,
    }
    super::append_rest(ctx, request.body, request.db, doc);
    Ok(())
}

pub(super) fn aggregate(
    ctx: &CommandContext<'_>,
    inner: &Inner<'_>,
    doc: &mut DocBuilder,
) -> Result<()> {
    let fields = &inner.fields;
    let pipeline = fields.array("pipeline")?.ok_or_else(|| fields.missing("pipeline"))?;
    explain_stages(ctx, inner, pipeline, doc)
}

/// Explains stages over the collection of a command; the other arguments are those of the command.
pub(super) fn explain_stages(
    ctx: &CommandContext<'_>,
    inner: &Inner<'_>,
    pipeline: RawDoc<'_>,
    doc: &mut DocBuilder,
) -> Result<()> {
    let fields = &inner.fields;
    let collection = ctx.service.store.collection(&inner.ns);
    let collation = inner.collating.over(collection.as_deref());
    let variables = fields.document("let")?;
    let scope = command_scope(ctx, collation, variables)?;
    let parsed = Pipeline::parse(pipeline, &Around::command(inner.ns.db(), &scope))?;
    if parsed.follows_changes().is_some() {
        // What it reads is the log, not the collection whose plan would be shown.
        return Err(Error::not_implemented("explain of '$changeStream'"));
    }
    if parsed.is_source() {
        let text = "a pipeline that reads no collection cannot be explained";
        return Err(Error::new(ErrorCode::InvalidNamespace, text));
    }
    let shown = parsed.rewritten().map(RawDoc::to_owned);
    let pipeline = shown.as_ref().map_or(pipeline, DocBuf::as_doc);
    let by_distance = match &collection {
        Some(collection) => parsed.filter_by_distance(collection)?,
        None => None,
    };
    let on_buckets = parsed.filter_on_buckets().map(RawDoc::to_owned);
    let mut front = match (&by_distance, &on_buckets) {
        (Some(filter), _) => Front { parts: Parts::of(filter.as_doc()), taken: 1 },
        (None, Some(filter)) => Front { parts: Parts::of(filter.as_doc()), taken: 0 },
        (None, None) => Front::of(pipeline),
    };
    let first_of = parsed.first_of();
    front.parts.first_of = first_of.as_ref();
    let key = collection.as_deref().and_then(|over| hinted_buckets(over, fields.get("hint")));
    let key = key.as_ref().map(|key| RawValue::Document(key.as_doc()));
    front.parts.hint = key.or_else(|| fields.get("hint"));
    front.parts.variables = variables;
    if front.taken == pipeline.iter().count() && by_distance.is_none() {
        return write(ctx, inner, front.parts, Purpose::Find, doc).map(|_| ());
    }
    let runs = inner.verbosity >= Verbosity::ExecutionStats;
    let mut begun = DocBuilder::new();
    let read = write(ctx, inner, front.parts, Purpose::Find, &mut begun)?;
    let results = if runs { run(ctx, inner, parsed, front.parts.hint)? } else { 0 };
    doc.start_array("stages").push_document();
    let name = if by_distance.is_some() { "$geoNearCursor" } else { "$cursor" };
    doc.append(name, &begun.finish());
    append_counts(runs, read, doc);
    doc.end();
    let behind = pipeline.iter().skip(front.taken).count();
    for (at, stage) in pipeline.iter().skip(front.taken).enumerate() {
        let Some(stage) = stage.value().as_document() else { continue };
        doc.push_document().append_all(stage);
        // Only what goes in at the front and comes out at the end is counted.
        if at + 1 == behind {
            append_counts(runs, results, doc);
        }
        doc.end();
    }
    doc.end();
    Ok(())
}

/// A key pattern that a hint names, as it stands on buckets: of measurements the client knows others.
fn hinted_buckets(collection: &Collection, hint: Option<RawValue<'_>>) -> Option<DocBuf> {
    let (Some(RawValue::Document(key)), series) = (hint, collection.time_series()?) else {
        return None;
    };
    key.get("$natural").is_none().then(|| series.fields.key_on_buckets(key))
}

fn append_counts(runs: bool, results: u64, doc: &mut DocBuilder) {
    if runs {
        doc.append("nReturned", i64::try_from(results).unwrap_or(i64::MAX));
        doc.append("executionTimeMillisEstimate", 0i64);
    }
}

/// Runs the whole pipeline and throws its results away.
fn run(
    ctx: &CommandContext<'_>,
    inner: &Inner<'_>,
    pipeline: Pipeline,
    hint: Option<RawValue<'_>>,
) -> Result<u64> {
    let store = &ctx.service.store;
    let hint = hint.map(Hint::parse).transpose()?.flatten();
    let settings = RunSettings { read_only: true, ..run_settings(ctx, &inner.fields)? };
    let run = pipeline.start(store.collection(&inner.ns), hint, settings)?;
    let mut cursor = Cursor::new(inner.ns.clone(), CursorSource::Pipeline(Box::new(run)));
    let mut results = 0;
    while !cursor.is_done() {
        let mut batch = DocBuilder::new_array();
        let limit = BatchLimit { documents: Some(1000) };
        results += cursor.fill(store, ctx.op, limit, &mut batch)? as u64;
    }
    Ok(results)
}

/// The stages that the planner takes: `$match`, `$sort`, `$skip`, `$limit`, in this order.
struct Front<'a> {
    parts: Parts<'a>,
    taken: usize,
}

impl<'a> Front<'a> {
    fn of(pipeline: RawDoc<'a>) -> Front<'a> {
        let mut front = Front { parts: Parts::of(RawDoc::EMPTY), taken: 0 };
        let mut least = 0;
        for stage in pipeline.iter().filter_map(|stage| stage.value().as_document()) {
            let Some(first) = stage.iter().next() else { break };
            let place = match (first.name(), first.value()) {
                ("$match", RawValue::Document(filter)) if least < 1 => {
                    front.parts.filter = filter;
                    1
                }
                ("$sort", RawValue::Document(sort)) if least < 2 => {
                    front.parts.sort = Some(sort);
                    2
                }
                ("$skip", count) if least < 3 => {
                    front.parts.skip = whole_number(count).unwrap_or(0);
                    3
                }
                ("$limit", count) if least < 4 => {
                    front.parts.limit = whole_number(count).unwrap_or(0);
                    4
                }
                _ => break,
            };
            least = place;
            front.taken += 1;
        }
        front
    }
}
