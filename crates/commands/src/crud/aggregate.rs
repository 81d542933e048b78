//! `aggregate`.

use std::sync::Arc;

use mayfly_base::{Error, ErrorCode, Namespace, Result};
use mayfly_query::{
    Around, ChangeScope, Cursor, CursorSource, Hint, Host, Pipeline, PipelineRun, RunSettings,
    cached_plans,
};
use mayfly_service::QuerySetting;
use mayfly_service::query_settings::namespace_of;
use mayfly_storage::Collection;
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue};

use super::explain;
use super::read::{Collating, FirstBatch, first_batch, hint, refuse};
use super::settings::settings_to_run;
use super::view::{
    Source, Stages, check_collation, command_scope, has_natural_order, reads_log, run_settings,
    source,
};
use crate::context::{Command, CommandContext};
use crate::diagnostics::coll_stats::{
    Shown, coll_stats_document, log_stats_document, view_stats_document,
};
use crate::diagnostics::current_op::Whose;
use crate::diagnostics::current_op::{CurrentOpOptions, current_ops};
use crate::diagnostics::index_stats::index_stats;
use crate::request::row::{Expected, InTransaction, Reads, RowFlags, Writes};
use crate::request::{Fields, Needs, Request};
use crate::rules::primacy::not_writable;
use crate::rules::rights::demands;

pub(crate) const ROW: Command = Command::new("aggregate", "Runs a pipeline", run)
    .needs(Needs::Demands(demands::aggregate))
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
    .explained(KNOWN, explain::aggregate);

/// The collection that `$listSessions` stands for.
const SESSIONS: &str = "config.system.sessions";

/// Arguments that work, then those that are refused when they ask for something.
pub(crate) const KNOWN: &[&str] = &[
    "pipeline",
    "cursor",
    "hint",
    "allowDiskUse",
    "bypassDocumentValidation",
    "bypassEmptyTsReplacement",
    "explain",
    "collation",
    "let",
    "fromMongos",
    "needsMerge",
    "exchange",
];

fn run(ctx: &CommandContext<'_>, request: &Request<'_>, reply: &mut DocBuilder) -> Result<()> {
    let fields = request.fields(KNOWN)?;
    if fields.bool("explain")? == Some(true) {
        return explain::run_aggregate(ctx, request, reply);
    }
    refuse(&fields, &["needsMerge", "exchange"])?;
    let pipeline = fields.array("pipeline")?.ok_or_else(|| fields.missing("pipeline"))?;
    let batch = FirstBatch { size: batch_size(&fields)?, ..FirstBatch::default() };
    let hint = hint(&fields)?;
    let collation = Collating::parse(&fields)?;
    let collection = match request.target() {
        RawValue::String(_) => ctx.store.collection(&request.namespace()?),
        _ => None,
    };
    let variables = fields.document("let")?;
    let scope = command_scope(ctx, collation.over(collection.as_deref()), variables)?;
    let mut settings = run_settings(ctx, &fields)?;
    let around = Around::command(request.db, &scope).with_view(ctx.store.view);
    let parsed = Pipeline::parse(pipeline, &around)?;
    let writes = parsed.writes();
    ctx.op.set_writes(writes);
    if writes && !ctx.service.is_primary() {
        return Err(not_writable());
    }
    if ctx.service.query_settings.any()
        && !parsed.is_source()
        && !parsed.describes_collection()
        && let Some(ns) = namespace_of(request.db, request.target())
    {
        let setting = settings_to_run(ctx, request.row.name, &ns, request.body)?;
        settings.hints = setting.and_then(|setting| setting.hints.clone());
    }
    if let Some(all) = parsed.follows_changes() {
        return follow_changes(ctx, request, (parsed, all), batch, settings, reply);
    }
    if parsed.lists_sessions()
        && request.namespace().ok().as_ref().map(Namespace::as_str) != Some(SESSIONS)
    {
        let text = format!("$listSessions may only be run against {SESSIONS}");
        return Err(Error::new(ErrorCode::InvalidNamespace, text));
    }
    let (ns, run) = match request.target() {
        RawValue::String(_) if parsed.lists_sessions() => (
            request.namespace()?,
            parsed.start_source(
                ctx.store,
                &ServerHost { ctx, described: Described::Nothing },
                settings,
            )?,
        ),
        RawValue::String(_) => {
            let ns = request.namespace()?;
            if parsed.gives_documents() {
                let text =
                    format!("'{}' can only be run with {{aggregate: 1}}", stage_name(pipeline));
                return Err(Error::new(ErrorCode::InvalidNamespace, text));
            }
            if parsed.is_source() {
                return Err(only_without_collection(pipeline));
            }
            let asked = Asked { pipeline, parsed, collation, collection, variables };
            let run = start_named(ctx, &ns, asked, hint, settings)?;
            (ns, run)
        }
        number if number.is_number() => {
            let ns = Namespace::new(request.db, "$cmd.aggregate")?;
            if !parsed.is_source() {
                return Err(needs_collection(pipeline));
            }
            if request.db != "admin" && parsed.is_admin_only() {
                return Err(only_without_collection(pipeline));
            }
            let host = ServerHost { ctx, described: Described::Nothing };
            (ns, parsed.start_source(ctx.store, &host, settings)?)
        }
        other => return Err(fields.wrong(request.row.name, other, "[string, int]")),
    };
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

/// What an aggregation asks of a name.
struct Asked<'a> {
    /// As it was sent.
    pipeline: RawDoc<'a>,
    parsed: Pipeline,
    collation: Collating,
    /// The collection of this name, if there is one.
    collection: Option<Arc<Collection>>,
    variables: Option<RawDoc<'a>>,
}

/// Starts a pipeline over what has this name: a collection, a view, or nothing.
///
/// # Errors
/// 26 NamespaceNotFound for `$collStats` of nothing; those of planning and of views.
fn start_named(
    ctx: &CommandContext<'_>,
    ns: &Namespace,
    Asked { pipeline, parsed, collation, collection, variables }: Asked<'_>,
    hint: Option<Hint>,
    settings: RunSettings,
) -> Result<PipelineRun> {
    Ok(match source(ctx, ns)? {
        Source::Collection(collection) if parsed.describes_collection() => {
            let described = Described::Documents(collection);
            parsed.start_source(ctx.store, &ServerHost { ctx, described }, settings)?
        }
        Source::Collection(collection) => {
            parsed.start(ctx.store.view, Some(collection), hint, settings)?
        }
        Source::Nothing if stage_name(pipeline) == "$collStats" => {
            let text = format!("Unable to retrieve stats: Collection [{ns}] not found.");
            return Err(Error::new(ErrorCode::NamespaceNotFound, text));
        }
        Source::Nothing => parsed.start(ctx.store.view, None, hint, settings)?,
        Source::View(view) if parsed.describes_collection() && has_natural_order(&view) => {
            let described = match (reads_log(&view), collection) {
                (true, _) => Described::Log,
                (false, Some(buckets)) => Described::Documents(buckets),
                (false, None) => Described::Nothing,
            };
            parsed.start_source(ctx.store, &ServerHost { ctx, described }, settings)?
        }
        Source::View(_) if parsed.describes_collection() => {
            let described = described_view(ctx, ns, stage_name(pipeline))?;
            parsed.start_source(ctx.store, &ServerHost { ctx, described }, settings)?
        }
        Source::View(view) => {
            check_collation(&view, &collation)?;
            let mut stages = Stages::new(&view);
            stages.push_all(pipeline);
            stages.start(ctx, &view, variables, hint, settings)?
        }
    })
}

/// Opens a change stream over a collection, a database (`aggregate: 1`), or all of them (on `admin`).
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

fn batch_size(fields: &Fields<'_>) -> Result<Option<i64>> {
    let Some(cursor) = fields.document("cursor")? else {
        return Err(Error::failed_to_parse(
            "The 'cursor' option is required, except for aggregate with the explain argument",
        ));
    };
    Fields::strict(cursor, "aggregate.cursor", &["batchSize"])?.non_negative("batchSize")
}

fn stage_name(pipeline: RawDoc<'_>) -> &str {
    let first = pipeline.iter().next().and_then(|element| element.value().as_document());
    first.and_then(|spec| spec.iter().next()).map_or("", |field| field.name())
}

fn only_without_collection(pipeline: RawDoc<'_>) -> Error {
    Error::new(
        ErrorCode::InvalidNamespace,
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

/// What stages that describe a collection can say about something that is read as a view.
fn described_view(ctx: &CommandContext<'_>, ns: &Namespace, stage: &str) -> Result<Described> {
    match (ctx.service.store.time_series_named(ctx.store.view, ns), stage) {
        (Some((buckets, _)), "$collStats" | "$indexStats") => Ok(Described::Measurements(buckets)),
        (None, "$collStats") => Ok(Described::View(ns.clone())),
        _ => Err(not_on_views(stage)),
    }
}

fn not_on_views(stage: &str) -> Error {
    let text = format!("{stage} is not supported on views");
    Error::new(ErrorCode::CommandNotSupportedOnView, text)
}

/// What a stage describes that reads no documents.
enum Described {
    /// A collection.
    Documents(Arc<Collection>),
    /// The measurements in these buckets.
    Measurements(Arc<Collection>),
    /// A view, of which only its use is known.
    View(Namespace),
    /// The operation log.
    Log,
    Nothing,
}

impl Described {
    fn collection(&self) -> Option<&Collection> {
        match self {
            Described::Documents(collection) | Described::Measurements(collection) => {
                Some(collection)
            }
            Described::View(_) | Described::Log | Described::Nothing => None,
        }
    }
}

struct ServerHost<'a, 'c> {
    ctx: &'a CommandContext<'c>,
    described: Described,
}

impl Host for ServerHost<'_, '_> {
    fn current_ops(&self, options: RawDoc<'_>) -> Result<Vec<DocBuf>> {
        let known = &[
            "allUsers",
            "idleConnections",
            "idleCursors",
            "idleSessions",
            "localOps",
            "backtrace",
            "truncateOps",
            "targetAllNodes",
        ];
        let fields = Fields::strict(options, "$currentOp", known)?;
        let all_users = fields.bool("allUsers")?.unwrap_or(false);
        let options = CurrentOpOptions {
            whose: if all_users { Whose::All } else { Whose::of(self.ctx) },
            idle_connections: fields.bool("idleConnections")?.unwrap_or(false),
            idle_sessions: fields.bool("idleSessions")?.unwrap_or(true),
            truncate_ops: fields.bool("truncateOps")?.unwrap_or(false),
        };
        Ok(current_ops(self.ctx.service, &options))
    }

    fn local_sessions(&self, options: RawDoc<'_>) -> Result<Vec<DocBuf>> {
        crate::diagnostics::local_sessions::local_sessions(self.ctx, "$listLocalSessions", options)
    }

    fn sessions(&self, options: RawDoc<'_>) -> Result<Vec<DocBuf>> {
        crate::diagnostics::local_sessions::local_sessions(self.ctx, "$listSessions", options)
    }

    fn query_settings(&self, with_shapes: bool) -> Result<Vec<DocBuf>> {
        Ok(list_settings(self.ctx, with_shapes))
    }

    fn coll_stats(&self, options: RawDoc<'_>) -> Result<Vec<DocBuf>> {
        Ok(vec![match &self.described {
            Described::Documents(collection) => {
                coll_stats_document(self.ctx, collection, Shown::Documents, options)?
            }
            Described::Measurements(buckets) => {
                coll_stats_document(self.ctx, buckets, Shown::Measurements, options)?
            }
            Described::Log => log_stats_document(self.ctx, options)?,
            Described::View(ns) if options.iter().all(|part| part.name() == "latencyStats") => {
                view_stats_document(self.ctx, ns, options)?
            }
            Described::View(_) => return Err(not_on_views("$collStats")),
            Described::Nothing => return Ok(Vec::new()),
        }])
    }

    fn index_stats(&self) -> Result<Vec<DocBuf>> {
        let specs = match &self.described {
            Described::Measurements(buckets) => buckets.list_measurement_indexes(),
            Described::Documents(collection) => collection.list_indexes(),
            Described::View(_) | Described::Log | Described::Nothing => Vec::new(),
        };
        let list = |collection| index_stats(self.ctx.service, collection, &specs);
        Ok(self.described.collection().map(list).unwrap_or_default())
    }

    fn cached_plans(&self) -> Result<Vec<DocBuf>> {
        let Some(collection) = self.described.collection() else { return Ok(Vec::new()) };
        cached_plans(collection, &self.ctx.service.host)
    }

    fn ttl_stats(&self) -> Result<Vec<DocBuf>> {
        let Some(collection) = self.described.collection() else { return Ok(Vec::new()) };
        let statuses = self.ctx.service.store.ttl_status(self.ctx.op, collection)?;
        let documents = statuses.iter().map(|status| {
            let mut document = DocBuilder::new();
            status.append_to(&mut document);
            document.finish()
        });
        Ok(documents.collect())
    }
}

/// The documents of `$querySettings`.
fn list_settings(ctx: &CommandContext<'_>, with_shapes: bool) -> Vec<DocBuf> {
    let document = |setting: &Arc<QuerySetting>| {
        let mut out = DocBuilder::new();
        setting.append_to(&mut out);
        if with_shapes && let Some(shape) = setting.shape() {
            out.append("debugQueryShape", RawValue::Document(shape.as_doc()));
        }
        out.finish()
    };
    ctx.service.query_settings.all().iter().map(document).collect()
}
