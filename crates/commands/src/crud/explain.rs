//! `explain`, and `explain: true` of `aggregate`: the plan of another command.
//!
//! Writes are explained without writing. Invalid filters, sort patterns, projections and hints are
//! refused as in the command itself.

mod bulk;
mod pipeline;
mod query;
mod view;

use mayfly_value::arguments::Argument;
use std::sync::Arc;

use mayfly_base::{Error, ErrorCode, Namespace, Result};
use mayfly_query::{QueryShape, Verbosity};
use mayfly_service::QuerySetting;
use mayfly_service::parameters::{self, Value};
use mayfly_storage::ResolvedView;
use mayfly_value::{DocBuilder, RawDoc, RawValue};

use crate::context::{Command, CommandContext, Handler};
use crate::crud::aggregate::WITHOUT_CURSOR;
use crate::crud::encrypted;
use crate::crud::{Collating, Source, Stages, find_on_view, settings_of, source};
use crate::diagnostics::build_info::VERSION;
use crate::request::row::{Expected, Hides, Names, Reads, RowFlags};
use crate::request::{Fields, Needs, Request};
use crate::rules::raw_data::names_series;
use crate::rules::rights::demands;

pub(crate) const ROW: Command = Command::new("explain", "Returns the plan of another command", run)
    .arguments(&[Argument::string("verbosity")])
    .needs(Needs::Demands(demands::explain))
    .since("3.0")
    .flags(RowFlags::STABLE)
    .reads(Reads::PREFERENCE.union(Reads::COMMITTED))
    .hides(Hides::Users)
    .expected(Expected::Long);

/// The names of verbosities.
const VERBOSITIES: [(&str, Verbosity); 3] = [
    ("queryPlanner", Verbosity::QueryPlanner),
    ("executionStats", Verbosity::ExecutionStats),
    ("allPlansExecution", Verbosity::AllPlansExecution),
];

/// The internal parameters in the output.
const PARAMETERS: [&str; 8] = [
    "internalQueryFacetBufferSizeBytes",
    "internalQueryFacetMaxOutputDocSizeBytes",
    "internalLookupStageIntermediateDocumentMaxSizeBytes",
    "internalDocumentSourceGroupMaxMemoryBytes",
    "internalQueryMaxBlockingSortMemoryUsageBytes",
    "internalQueryProhibitBlockingMergeOnMongoS",
    "internalQueryMaxAddToSetBytes",
    "internalDocumentSourceSetWindowFieldsMaxMemoryBytes",
];

/// The explained command.
struct Inner<'a> {
    request: &'a Request<'a>,
    /// Its fields.
    fields: Fields<'a>,
    /// Its namespace, or the collection of the view that it names.
    ns: Namespace,
    /// The view that it names, if its pipeline begins with a search.
    searched: Option<ResolvedView>,
    verbosity: Verbosity,
    /// How strings compare.
    collating: Collating,
    /// The query settings that apply to it.
    setting: Option<Arc<QuerySetting>>,
}

impl<'a> Inner<'a> {
    /// Parses the common arguments of explained commands.
    ///
    /// # Errors
    /// 73 InvalidNamespace, 40415 for an unknown argument; errors of the collation.
    fn of(
        ctx: &CommandContext<'_>,
        request: &'a Request<'a>,
        verbosity: Verbosity,
    ) -> Result<Inner<'a>> {
        let ns = request.namespace()?;
        let name = request.row.name;
        let fields = request.arguments()?;
        let collating = match request.declares("collation") {
            true => Collating::parse(&fields)?,
            false => Collating::AsCollection,
        };
        let setting = settings_of(ctx, name, &ns, request.body);
        Ok(Inner { request, fields, ns, searched: None, verbosity, collating, setting })
    }

    /// The same for commands that write.
    ///
    /// # Errors
    /// 166 CommandNotSupportedOnView, and those of [`Inner::of`].
    fn writing(
        ctx: &CommandContext<'_>,
        request: &'a Request<'a>,
        verbosity: Verbosity,
    ) -> Result<Inner<'a>> {
        let inner = Inner::of(ctx, request, verbosity)?;
        let store = &ctx.service.store;
        if store.time_series_named(ctx.store.view, &inner.ns).is_none() {
            store.check_no_view(ctx.store.view, &inner.ns)?;
        }
        Ok(inner)
    }

    /// The argument `let`, if the command has it.
    fn variables(&self) -> Result<Option<RawDoc<'a>>> {
        if self.request.declares("let") { self.fields.document("let") } else { Ok(None) }
    }

    /// The argument `allowDiskUse`, if the command has it.
    fn may_spill(&self) -> Result<Option<bool>> {
        let is_declared = self.request.declares("allowDiskUse");
        if is_declared { self.fields.bool("allowDiskUse") } else { Ok(None) }
    }
}

fn run(ctx: &CommandContext<'_>, request: &Request<'_>, doc: &mut DocBuilder) -> Result<()> {
    let fields = request.arguments()?;
    let RawValue::Document(body) = request.target() else {
        return Err(fields.wrong_or_missing(request.row.name, request.target(), "object"));
    };
    let verbosity = verbosity(fields.string("verbosity")?)?;
    let sent = body;
    let find = |body: RawDoc<'_>| {
        let name = body.iter().next().map_or("", |element| element.name());
        ctx.commands.find(name).map(|entry| entry.command)
    };
    let write;
    let (body, db) = match find(body) {
        // A command on several collections is explained as the only write that it contains.
        Some(command) if command.row.names == Names::List => {
            check_database(body, request.db)?;
            write = bulk::as_write(body)?;
            (write.1.as_doc(), &*write.0)
        }
        _ => (body, request.db),
    };
    let Some(command) = find(body) else {
        let name = body.iter().next().map_or("", |element| element.name());
        let text = format!("Explain failed due to unknown command: {name}");
        return Err(Error::new(ErrorCode::CommandNotFound, text));
    };
    check_database(body, db)?;
    let name = command.row.name;
    doc.append("explainVersion", "1");
    match (command.explained, command.handler) {
        (Some(explain), _) => {
            let mut inner = Request::inner(&command.row, db, body);
            if request.generic.raw_data || body.get("rawData") == Some(RawValue::Bool(true)) {
                inner.names_buckets = names_series(&ctx.service.store, &inner);
            }
            match encrypted::rewritten(ctx, &inner)? {
                None => explain(ctx, &inner, verbosity, doc)?,
                Some(rewritten) => {
                    rewritten.with_request(&inner, |inner| explain(ctx, inner, verbosity, doc))?
                }
            }
        }
        (None, Handler::Missing) => {
            return Err(Error::not_implemented(format_args!("the command '{name}'")));
        }
        (None, Handler::Run(_)) => {
            let text = format!("Cannot explain cmd: {name}");
            return Err(Error::new(ErrorCode::IllegalOperation, text));
        }
    }
    append_rest(ctx, sent, request.db, doc);
    Ok(())
}

/// `aggregate` with `explain: true`.
pub(super) fn run_aggregate(
    ctx: &CommandContext<'_>,
    request: &Request<'_>,
    doc: &mut DocBuilder,
) -> Result<()> {
    doc.append("explainVersion", "1");
    explain_aggregate(ctx, request, Verbosity::QueryPlanner, doc)?;
    append_rest(ctx, request.body, request.db, doc);
    Ok(())
}

/// Appends the plan of a command on a collection.
type Plan = fn(&CommandContext<'_>, &Inner<'_>, &mut DocBuilder) -> Result<()>;
/// The stages of a command on a view.
type OnView = fn(&Fields<'_>, &ResolvedView) -> Result<Stages>;

/// Explains a command that reads a collection or a view.
fn reading(
    ctx: &CommandContext<'_>,
    request: &Request<'_>,
    verbosity: Verbosity,
    (plan, on_view): (Plan, OnView),
    doc: &mut DocBuilder,
) -> Result<()> {
    let inner = Inner::of(ctx, request, verbosity)?;
    match source(ctx, &inner.ns)? {
        Source::View(mut view) => view::explain(ctx, on_view, inner, &mut view, doc),
        Source::Collection(_) | Source::Nothing => plan(ctx, &inner, doc),
    }
}

/// Explains `find`.
pub(super) fn find(
    ctx: &CommandContext<'_>,
    request: &Request<'_>,
    verbosity: Verbosity,
    doc: &mut DocBuilder,
) -> Result<()> {
    reading(ctx, request, verbosity, (query::find, find_on_view), doc)
}

/// Explains `count`.
pub(super) fn count(
    ctx: &CommandContext<'_>,
    request: &Request<'_>,
    verbosity: Verbosity,
    doc: &mut DocBuilder,
) -> Result<()> {
    reading(ctx, request, verbosity, (query::count, view::count), doc)
}

/// Explains `distinct`.
pub(super) fn distinct(
    ctx: &CommandContext<'_>,
    request: &Request<'_>,
    verbosity: Verbosity,
    doc: &mut DocBuilder,
) -> Result<()> {
    reading(ctx, request, verbosity, (query::distinct, view::distinct), doc)
}

/// Explains `aggregate`.
///
/// # Errors
/// 9 FailedToParse without `cursor`, or with an `explain` of its own.
pub(super) fn aggregate(
    ctx: &CommandContext<'_>,
    request: &Request<'_>,
    verbosity: Verbosity,
    doc: &mut DocBuilder,
) -> Result<()> {
    let fields = request.arguments()?;
    if fields.get("explain").is_some() {
        return Err(Error::failed_to_parse(
            "The 'explain' option is illegal when a explain verbosity is also provided",
        ));
    }
    if fields.get("cursor").is_none() {
        return Err(Error::failed_to_parse(WITHOUT_CURSOR));
    }
    explain_aggregate(ctx, request, verbosity, doc)
}

fn explain_aggregate(
    ctx: &CommandContext<'_>,
    request: &Request<'_>,
    verbosity: Verbosity,
    doc: &mut DocBuilder,
) -> Result<()> {
    reading(ctx, request, verbosity, (pipeline::aggregate, view::aggregate), doc)
}

/// Explains `update`.
pub(super) fn update(
    ctx: &CommandContext<'_>,
    request: &Request<'_>,
    verbosity: Verbosity,
    doc: &mut DocBuilder,
) -> Result<()> {
    query::update(ctx, &Inner::writing(ctx, request, verbosity)?, doc)
}

/// Explains `delete`.
pub(super) fn delete(
    ctx: &CommandContext<'_>,
    request: &Request<'_>,
    verbosity: Verbosity,
    doc: &mut DocBuilder,
) -> Result<()> {
    query::delete(ctx, &Inner::writing(ctx, request, verbosity)?, doc)
}

/// Explains `findAndModify`.
pub(super) fn find_and_modify(
    ctx: &CommandContext<'_>,
    request: &Request<'_>,
    verbosity: Verbosity,
    doc: &mut DocBuilder,
) -> Result<()> {
    query::find_and_modify(ctx, &Inner::writing(ctx, request, verbosity)?, doc)
}

fn verbosity(word: Option<&str>) -> Result<Verbosity> {
    let Some(word) = word else { return Ok(Verbosity::AllPlansExecution) };
    match VERBOSITIES.iter().find(|(known, _)| *known == word) {
        Some((_, verbosity)) => Ok(*verbosity),
        None => Err(Error::bad_value(format!(
            "Enumeration value '{word}' for field 'explain.verbosity' is not a valid value."
        ))),
    }
}

/// Checks that the command names no other database.
fn check_database(body: RawDoc<'_>, db: &str) -> Result<()> {
    match body.get("$db") {
        None => Ok(()),
        Some(RawValue::String(named)) if named == db => Ok(()),
        Some(other) => {
            let named = other.as_str().unwrap_or_default();
            let text = format!("Mismatched $db in explain command. Expected {db} but got {named}");
            Err(Error::new(ErrorCode::InvalidNamespace, text))
        }
    }
}

/// The query shape of a command on a collection, if it has one.
fn shape_of(ctx: &CommandContext<'_>, body: RawDoc<'_>, db: &str) -> Option<QueryShape> {
    let command = body.iter().next()?;
    let ns = Namespace::new(db, command.value().as_str()?).ok()?;
    QueryShape::of(ctx.commands.find(command.name())?.command.row.name, &ns, body)
}

/// Appends the fields after the plan: the command, the server, its parameters.
fn append_rest(ctx: &CommandContext<'_>, body: RawDoc<'_>, db: &str, doc: &mut DocBuilder) {
    if let Some(shape) = shape_of(ctx, body, db) {
        doc.append("queryShapeHash", shape.hash().to_string().as_str());
    }
    doc.start_document("command");
    for element in body.iter().filter(|element| element.name() != "$db") {
        doc.append_element(element);
    }
    doc.append("$db", db).end();
    let (host, port) = ctx.service.host.rsplit_once(':').unwrap_or((&ctx.service.host, "27017"));
    doc.start_document("serverInfo").append("host", host);
    doc.append("port", port.parse::<i32>().unwrap_or(0)).append("version", VERSION);
    let commit = option_env!("MAYFLYDB_GIT_VERSION").unwrap_or("unknown");
    doc.append("gitVersion", commit).end();
    doc.start_document("serverParameters");
    for name in PARAMETERS {
        let parameter = parameters::find(name);
        // Features without a parameter are off.
        let value = parameter.map_or(Value::Number(0), |it| (it.get)(ctx.service));
        if let Value::Number(value) = value {
            doc.append(name, i32::try_from(value).map_or(RawValue::Int64(value), RawValue::Int32));
        }
    }
    doc.append("internalQueryFrameworkControl", "forceClassicEngine");
    doc.append("internalQueryPlannerIgnoreIndexWithCollationForRegex", 1).end();
}
