//! `aggregate`.

mod described;
mod host;

use crate::request::arguments::CURSOR;
use crate::request::arguments::{HINT, INFORMATION};
use mayfly_base::{Error, ErrorCode, Namespace, Result};
use mayfly_query::{
    ChangeScope, Cursor, CursorSource, Description, Hint, Pipeline, PipelineContext, PipelineRun,
    RunSettings, StageRow, UncheckedPipeline,
};
use mayfly_service::query_settings::namespace_of;
use mayfly_storage::ResolvedView;
use mayfly_value::arguments::Argument;
use mayfly_value::{DocBuilder, Number, RawDoc, RawValue};

use super::explain;
use super::read::{Collating, FirstBatch, first_batch, hint, refuse};
use super::settings::settings_to_run;
use super::view::{
    Source, Stages, command_scope, decide_collation, has_natural_order, reads_log, run_settings,
    source,
};
use super::write::keep_empty_timestamps;
use crate::context::{COLLECTION_UUID, Command, CommandContext};
use crate::request::row::{Encrypted, Expected, InTransaction, Reads, RowFlags, Writes};
use crate::request::{Fields, Needs, Request};
use crate::rules::primacy::not_writable;
pub(crate) use described::with_descriptions;
use host::{Described, ServerHost};

pub(crate) const ROW: Command = Command::new("aggregate", "Runs a pipeline", run)
    .arguments(ARGUMENTS)
    .needs(Needs::InHandler)
    .since("2.2")
    .flags(RowFlags::STABLE.union(RowFlags::SHAPED).union(RowFlags::PIPELINE))
    .writes(Writes::Sometimes)
    .reads(
        Reads::PREFERENCE
            .union(Reads::DEFAULTS)
            .union(Reads::COUNTED)
            .union(Reads::COMMITTED)
            .union(Reads::LINEARIZABLE)
            .union(Reads::SNAPSHOT),
    )
    .in_transaction(InTransaction::Statement)
    .expected(Expected::Long)
    .encrypted(Encrypted::Pipeline("pipeline"))
    .explained(explain::aggregate);

/// The namespace of `$listSessions`.
const SESSIONS: &str = "config.system.sessions";

/// Supported arguments, then those that are refused when they have an effect.
pub(crate) const ARGUMENTS: &[Argument] = &[
    Argument::array("pipeline").required().null_is_value(),
    Argument::fields("cursor", CURSOR),
    HINT.since("3.6"),
    Argument::bool("allowDiskUse").null_is_value(),
    Argument::flag("bypassDocumentValidation"),
    Argument::bool("bypassEmptyTsReplacement").null_is_value().since("8.0"),
    Argument::bool("explain"),
    Argument::any("collation").since("3.4"),
    Argument::document("let").since("5.0"),
    Argument::flag("fromMongos").unstable(),
    Argument::flag("needsMerge").unstable(),
    Argument::document("exchange").unstable(),
    INFORMATION,
    COLLECTION_UUID,
];

fn run(ctx: &CommandContext<'_>, request: &Request<'_>, reply: &mut DocBuilder) -> Result<()> {
    let fields = request.arguments()?;
    if fields.bool("explain")? == Some(true) {
        if request.body.get("writeConcern").is_some_and(|concern| concern != RawValue::Null) {
            let text = "Aggregation explain does not support a write concern";
            return Err(Error::new(ErrorCode::InvalidOptions, text));
        }
        return explain::run_aggregate(ctx, request, reply);
    }
    refuse(&fields, &["needsMerge", "exchange"])?;
    let pipeline = fields.array("pipeline")?.ok_or_else(|| fields.missing("pipeline"))?;
    if request.generic.api_strict {
        StageRow::check_stable(pipeline)?;
    }
    let batch = FirstBatch { size: batch_size(&fields)?, ..FirstBatch::default() };
    let arguments = Arguments {
        request,
        pipeline,
        hint: hint(&fields)?,
        collation: Collating::parse(&fields)?,
        variables: fields.document("let")?,
    };
    let settings = RunSettings {
        bypass_validation: fields.bool("bypassDocumentValidation")?.unwrap_or(false),
        keep_empty_timestamps: keep_empty_timestamps(&fields)?,
        ..run_settings(ctx, fields.bool("allowDiskUse")?)
    };
    let named = named(request)?;
    // A client without rights on the namespace must not see errors about it: they are returned
    // after the check of rights.
    let found = named.as_ref().map(|ns| source(ctx, ns));
    let begins_elsewhere = StageRow::first_of(pipeline).is_some_and(StageRow::is_source);
    let started = match (named, found) {
        (Some(ns), Some(Ok(Source::View(mut view)))) if !begins_elsewhere => {
            start_over_view(ctx, arguments, (ns, &mut view), settings)?
        }
        (named, found) => {
            let parsed = arguments.parse(ctx, named.as_ref())?;
            if let Some(all) = parsed.follows_changes() {
                refuse(&fields, &[COLLECTION_UUID.name])?;
                let settings = with_hints(ctx, request, settings)?;
                return follow_changes(ctx, request, (parsed, all), batch, settings, reply);
            }
            start(ctx, arguments, (named, found), parsed, settings)?
        }
    };
    let Started { ns, run, writes } = started;
    ctx.check_uuid(&ns, &fields)?;
    ctx.op.update_info(|info| {
        info.ns = ns.as_str().to_owned();
        info.plan_summary = run.plan_summary();
    });
    let cursor = Cursor::new(ns, CursorSource::Pipeline(Box::new(run)));
    if !writes {
        return first_batch(ctx, cursor, batch, reply);
    }
    let _writing = ctx.service.store.fsync_lock.enter(ctx.op)?;
    first_batch(ctx, cursor, batch, reply)
}

/// The collection in the command's value, which is 1 for a pipeline without a collection.
///
/// # Errors
/// 73 InvalidNamespace for a wrong type, 2 BadValue for another number.
fn named(request: &Request<'_>) -> Result<Option<Namespace>> {
    match Number::from_value(request.target()) {
        None => request.namespace().map(Some),
        Some(number) if number.compare(Number::Int32(1)).is_eq() => Ok(None),
        Some(_) => {
            let text =
                "Invalid command format: the 'aggregate' field must specify a collection name or 1";
            Err(Error::bad_value(text))
        }
    }
}

/// The arguments of an aggregation.
pub(super) struct Arguments<'a> {
    pub(super) request: &'a Request<'a>,
    /// The pipeline as it was sent.
    pub(super) pipeline: RawDoc<'a>,
    pub(super) hint: Option<Hint>,
    pub(super) collation: Collating,
    pub(super) variables: Option<RawDoc<'a>>,
}

/// A started pipeline.
struct Started {
    ns: Namespace,
    run: PipelineRun,
    /// Whether it changes data.
    writes: bool,
}

impl Arguments<'_> {
    /// Parses the pipeline, over the collection of this name or without one, and checks the
    /// client's rights.
    ///
    /// # Errors
    /// 13 Unauthorized; errors of the variables and of the stages.
    fn parse(&self, ctx: &CommandContext<'_>, named: Option<&Namespace>) -> Result<Pipeline> {
        let collection = named.and_then(|ns| ctx.store.collection(ns));
        let collation = self.collation.over(collection.as_deref());
        let scope = command_scope(ctx, collation, self.variables)?;
        let context = PipelineContext::command(self.request.db, &scope).with_view(ctx.store.view);
        let context = context.over(named.map(Namespace::collection));
        let pipeline =
            ctx.checked(self.request, UncheckedPipeline::parse(self.pipeline, &context))?;
        note_writes(ctx, &pipeline)?;
        Ok(pipeline)
    }
}

/// Records whether a pipeline writes.
///
/// # Errors
/// 10107 NotWritablePrimary.
fn note_writes(ctx: &CommandContext<'_>, pipeline: &Pipeline) -> Result<()> {
    let writes = pipeline.writes_to().is_some();
    ctx.op.set_writes(writes);
    match writes && !ctx.service.is_primary() {
        true => Err(not_writable()),
        false => Ok(()),
    }
}

/// Adds the indexes that query settings allow.
///
/// # Errors
/// 411 QueryRejectedBySettings.
fn with_hints(
    ctx: &CommandContext<'_>,
    request: &Request<'_>,
    settings: RunSettings,
) -> Result<RunSettings> {
    let ns = match ctx.service.query_settings.any() {
        true => namespace_of(request.db, request.target()),
        false => None,
    };
    let Some(ns) = ns else { return Ok(settings) };
    let setting = settings_to_run(ctx, request.row.name, &ns, request.body)?;
    Ok(RunSettings { hints: setting.and_then(|setting| setting.hints.clone()), ..settings })
}

/// Starts a pipeline that another command was rewritten to, over a collection or a view.
///
/// # Errors
/// 13 Unauthorized; errors of the stages and of planning.
pub(super) fn start_over(
    ctx: &CommandContext<'_>,
    arguments: Arguments<'_>,
    ns: Namespace,
    settings: RunSettings,
) -> Result<PipelineRun> {
    let started = match source(ctx, &ns) {
        Ok(Source::View(mut view)) => start_over_view(ctx, arguments, (ns, &mut view), settings)?,
        found => {
            let parsed = arguments.parse(ctx, Some(&ns))?;
            start(ctx, arguments, (Some(ns), Some(found)), parsed, settings)?
        }
    };
    let summary = started.run.plan_summary();
    ctx.op.update_info(|info| info.plan_summary = summary);
    Ok(started.run)
}

/// Starts a pipeline over a view: the stages of the view and of the command as one pipeline.
///
/// # Errors
/// 13 Unauthorized; errors of the stages and of planning.
fn start_over_view(
    ctx: &CommandContext<'_>,
    Arguments { request, pipeline, hint, collation, variables }: Arguments<'_>,
    (ns, view): (Namespace, &mut ResolvedView),
    settings: RunSettings,
) -> Result<Started> {
    let decided = decide_collation(view, &collation);
    let stages = Stages::over(view, pipeline).parse((ctx, request), view, variables)?;
    note_writes(ctx, stages.pipeline())?;
    let settings = with_hints(ctx, request, settings)?;
    decided?;
    stages.pipeline().check_views(ctx.store)?;
    let writes = stages.pipeline().writes_to().is_some();
    Ok(Started { ns, run: stages.start(ctx, hint, settings)?, writes })
}

/// Starts a pipeline over the command's collection, or without a collection.
///
/// # Errors
/// 73 InvalidNamespace if a stage needs a collection or must not have one; errors of views and of
/// planning.
fn start(
    ctx: &CommandContext<'_>,
    arguments: Arguments<'_>,
    (named, found): (Option<Namespace>, Option<Result<Source>>),
    parsed: Pipeline,
    settings: RunSettings,
) -> Result<Started> {
    let (request, pipeline) = (arguments.request, arguments.pipeline);
    let reads = !parsed.is_source() && parsed.describes_collection().is_none();
    let settings = if reads { with_hints(ctx, request, settings)? } else { settings };
    let settings = with_descriptions(ctx, &parsed, settings)?;
    parsed.check_views(ctx.store)?;
    let writes = parsed.writes_to().is_some();
    let sourced = |parsed: Pipeline, settings| {
        let host = ServerHost { ctx, described: Described::Nothing };
        parsed.start_source(ctx.store, &host, settings)
    };
    if parsed.lists_sessions() && named.as_ref().map(Namespace::as_str) != Some(SESSIONS) {
        let text = format!("$listSessions may only be run against {SESSIONS}");
        return Err(Error::new(ErrorCode::InvalidNamespace, text));
    }
    let (ns, run) = match (named, found) {
        (Some(ns), Some(_)) if parsed.lists_sessions() => (ns, sourced(parsed, settings)?),
        (Some(ns), Some(found)) => {
            if parsed.gives_documents() {
                let text =
                    format!("'{}' can only be run with {{aggregate: 1}}", stage_name(pipeline));
                return Err(Error::new(ErrorCode::InvalidNamespace, text));
            }
            if parsed.is_source() {
                return Err(only_without_collection(pipeline));
            }
            let run = start_named(ctx, (&ns, found?), (arguments, parsed), settings)?;
            (ns, run)
        }
        _ => {
            let ns = Namespace::new(request.db, "$cmd.aggregate")?;
            if !parsed.is_source() {
                return Err(needs_collection(pipeline));
            }
            if request.db != "admin" && parsed.is_admin_only() {
                return Err(only_without_collection(pipeline));
            }
            (ns, sourced(parsed, settings)?)
        }
    };
    Ok(Started { ns, run, writes })
}

/// Starts a pipeline over a collection, over a view that its first stage describes, or over a
/// missing collection.
///
/// # Errors
/// 26 NamespaceNotFound for `$collStats` of a missing collection; errors of planning and of views.
fn start_named(
    ctx: &CommandContext<'_>,
    (ns, found): (&Namespace, Source),
    (arguments, parsed): (Arguments<'_>, Pipeline),
    settings: RunSettings,
) -> Result<PipelineRun> {
    let described = match (found, parsed.describes_collection()) {
        (Source::Collection(collection), None) => {
            return parsed.start(ctx.store, Some(collection), arguments.hint, settings);
        }
        (Source::Collection(collection), Some(_)) => Described::Documents(collection),
        (Source::Nothing, Some(Description::Figures)) => {
            return Err(no_stats(ns));
        }
        (Source::Nothing, Some(Description::Plans)) => Described::Nothing,
        (Source::Nothing, _) => {
            return parsed.start(ctx.store, None, arguments.hint, settings);
        }
        (Source::View(view), Some(_)) if reads_log(&view) => Described::Log,
        (Source::View(view), Some(_)) if has_natural_order(&view) => {
            ctx.store.collection(ns).map_or(Described::Nothing, Described::Documents)
        }
        (Source::View(_), Some(description)) => {
            described_view(ctx, ns, description, stage_name(arguments.pipeline))?
        }
        (Source::View(_), None) => {
            return Err(Error::internal("a pipeline over a view was not parsed with its stages"));
        }
    };
    parsed.start_source(ctx.store, &ServerHost { ctx, described }, settings)
}

/// Opens a change stream over a collection, a database (`aggregate: 1`), or all databases (on
/// `admin`).
fn follow_changes(
    ctx: &CommandContext<'_>,
    request: &Request<'_>,
    (parsed, all): (Pipeline, bool),
    batch: FirstBatch,
    settings: RunSettings,
    reply: &mut DocBuilder,
) -> Result<()> {
    let invalid = |text: String| Err(Error::new(ErrorCode::InvalidNamespace, text));
    let (ns, scope) = match request.target() {
        RawValue::String(_) if all => {
            return Err(Error::new(
                ErrorCode::InvalidOptions,
                "A $changeStream with 'allChangesForCluster:true' may only be opened on the 'admin' database, and \
                 with no collection name",
            ));
        }
        RawValue::String(name) => {
            let ns = request.namespace()?;
            if name.starts_with("system.") {
                return invalid(format!(
                    "$changeStream may not be opened on the internal {ns} collection"
                ));
            }
            if matches!(source(ctx, &ns)?, Source::View(view) if !reads_log(&view)) {
                let text = "$changeStream is not supported on views and time-series collections";
                return Err(Error::new(ErrorCode::CommandNotSupportedOnView, text));
            }
            (ns.clone(), ChangeScope::Collection(ns))
        }
        _ => {
            let ns = Namespace::new(request.db, "$cmd.aggregate")?;
            match (request.db, all) {
                ("admin", true) => (ns, ChangeScope::Deployment),
                (_, true) => {
                    return Err(Error::new(
                        ErrorCode::InvalidOptions,
                        "A $changeStream with 'allChangesForCluster:true' may only be opened on the 'admin' \
                         database, and with no collection name",
                    ));
                }
                (db, false) => (ns, ChangeScope::Database(db.to_owned())),
            }
        }
    };
    if ["admin", "config", "local"].contains(&request.db) && !all {
        let text =
            format!("$changeStream may not be opened on the internal {} database", request.db);
        return invalid(text);
    }
    let run = parsed.start_changes(&ctx.service.store, scope, settings)?;
    ctx.op.update_info(|info| info.ns = ns.as_str().to_owned());
    let mut cursor = Cursor::new(ns, CursorSource::Pipeline(Box::new(run)));
    cursor.await_data = true;
    first_batch(ctx, cursor, batch, reply)
}

pub(super) const WITHOUT_CURSOR: &str =
    "The 'cursor' option is required, except for aggregate with the explain argument";

fn batch_size(fields: &Fields<'_>) -> Result<Option<i64>> {
    let Some(cursor) = fields.document("cursor")? else {
        return Err(Error::failed_to_parse(WITHOUT_CURSOR));
    };
    Fields::new(cursor, "aggregate.cursor").long("batchSize")
}

fn stage_name(pipeline: RawDoc<'_>) -> &str {
    let first = pipeline.iter().next().and_then(|element| element.value().as_document());
    first.and_then(|spec| spec.iter().next()).map_or("", |field| field.name())
}

fn only_without_collection(pipeline: RawDoc<'_>) -> Error {
    let row = StageRow::first_of(pipeline);
    Error::new(
        row.map_or(ErrorCode::InvalidNamespace, StageRow::code_over_collection),
        format!(
            "{} must be run against the 'admin' database with {{aggregate: 1}}",
            stage_name(pipeline)
        ),
    )
}

fn needs_collection(pipeline: RawDoc<'_>) -> Error {
    if pipeline.is_empty() {
        let text = "{aggregate: 1} is not valid for an empty pipeline.";
        return Error::new(ErrorCode::InvalidNamespace, text);
    }
    Error::new(
        ErrorCode::InvalidNamespace,
        format!(
            "{{aggregate: 1}} is not valid for '{}'; a collection is required.",
            stage_name(pipeline)
        ),
    )
}

/// The information that stages which describe a collection can return about something that is read
/// as a view.
fn described_view(
    ctx: &CommandContext<'_>,
    ns: &Namespace,
    description: Description,
    stage: &str,
) -> Result<Described> {
    match (ctx.service.store.time_series_named(ctx.store.view, ns), description) {
        (Some((buckets, _)), Description::Figures | Description::Indexes) => {
            Ok(Described::Measurements(buckets))
        }
        (None, Description::Figures | Description::Plans | Description::SearchIndexes) => {
            Ok(Described::View(ns.clone()))
        }
        (Some(_), Description::Plans) | (_, Description::Catalog) => {
            let text = format!("{stage} is only valid as the first stage in a pipeline");
            Err(Error::new(ErrorCode(40602), text))
        }
        _ => Err(not_on_views(stage)),
    }
}

/// The error of figures about a missing collection.
fn no_stats(ns: &Namespace) -> Error {
    let text = format!("Unable to retrieve stats: Collection [{ns}] not found.");
    Error::new(ErrorCode::NamespaceNotFound, text)
}

fn not_on_views(stage: &str) -> Error {
    let text = format!("{stage} is not supported on views");
    Error::new(ErrorCode::CommandNotSupportedOnView, text)
}
