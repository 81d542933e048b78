//! `explain`, and `explain: true` of `aggregate`: how another command would run.
//!
//! Writing commands are explained without writing. What another command would refuse because it is malformed is refused
//! here, too, as far as filter, order, projection and hint go.

mod bulk;
mod pipeline;
mod query;
mod view;

use std::sync::Arc;

use mayfly_base::{Error, ErrorCode, Namespace, Result};
use mayfly_query::{QueryShape, Verbosity};
use mayfly_service::QuerySetting;
use mayfly_service::parameters::{self, Value};
use mayfly_value::{DocBuilder, RawDoc, RawValue};

use super::build_info::VERSION;
use crate::access::demands;
use crate::crud::{Collating, Source, arguments_of, settings_of, source};
use crate::{CommandContext, Fields, Generic, Handler, Needs, Request, Row, RowFlags, registry};

pub(crate) use pipeline::explain_aggregate;

pub(crate) const ROW: Row = Row::new("explain", "Tells how another command would run", run)
    .needs(Needs::Demands(demands::explain))
    .since("3.0")
    .flags(RowFlags::MAY_BLOCK);

/// Words for how much to tell.
const VERBOSITIES: [(&str, Verbosity); 3] = [
    ("queryPlanner", Verbosity::QueryPlanner),
    ("executionStats", Verbosity::ExecutionStats),
    ("allPlansExecution", Verbosity::AllPlansExecution),
];

/// The internal limits that plans are shown with.
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

/// The command that is explained.
struct Inner<'a> {
    /// Its fields.
    fields: Fields<'a>,
    /// Its namespace.
    ns: Namespace,
    verbosity: Verbosity,
    /// How strings compare.
    collating: Collating,
    /// The query settings that apply to it.
    setting: Option<Arc<QuerySetting>>,
}

fn run(ctx: &mut CommandContext<'_>, request: &Request<'_>, doc: &mut DocBuilder) -> Result<()> {
    let fields = request.fields(&["verbosity"])?;
    let RawValue::Document(body) = request.target() else {
        return Err(fields.wrong("explain", request.target(), "object"));
    };
    let verbosity = verbosity(fields.string("verbosity")?)?;
    let sent = body;
    let write;
    let (body, db) = match body.iter().next() {
        Some(first) if first.name() == "bulkWrite" => {
            check_database(body, request.db)?;
            write = bulk::as_write(body)?;
            (write.1.as_doc(), &*write.0)
        }
        _ => (body, request.db),
    };
    let name = body.iter().next().map_or("", |element| element.name());
    let Some(entry) = registry::find(name) else {
        let text = format!("Explain failed due to unknown command: {name}");
        return Err(Error::new(ErrorCode::CommandNotFound, text));
    };
    check_database(body, db)?;
    let target = body.iter().next().map_or(RawValue::Null, |element| element.value());
    let inner = |name: &'static str| -> Result<Inner<'_>> {
        let RawValue::String(collection) = target else {
            let text = format!("collection name has invalid type {}", target.type_name());
            return Err(Error::new(ErrorCode::InvalidNamespace, text));
        };
        let ns = Namespace::new(db, collection)?;
        let explained =
            Request { row: entry.row, name, db, body, generic: Generic::default(), sequences: &[] };
        explained.fields(arguments_of(name).unwrap_or_default())?;
        let fields = Fields::new(body, name);
        let collating = Collating::parse(&fields)?;
        let setting = settings_of(ctx, name, &ns, body);
        Ok(Inner { fields, ns, verbosity, collating, setting })
    };
    doc.append("explainVersion", "1");
    if let name @ ("find" | "count" | "distinct" | "aggregate") = entry.row.name
        && let RawValue::String(_) = target
        && let inner = inner(name)?
        && let Source::View(view) = source(ctx, &inner.ns)?
    {
        view::explain(ctx, name, inner, &view, doc)?;
        append_rest(ctx, sent, request.db, doc);
        return Ok(());
    }
    match entry.row.name {
        "find" => query::find(ctx, &inner("find")?, doc)?,
        "count" => query::count(ctx, &inner("count")?, doc)?,
        "distinct" => query::distinct(ctx, &inner("distinct")?, doc)?,
        "update" => query::update(ctx, &inner("update")?, doc)?,
        "delete" => query::delete(ctx, &inner("delete")?, doc)?,
        "findAndModify" => query::find_and_modify(ctx, &inner("findAndModify")?, doc)?,
        "aggregate" => pipeline::aggregate(ctx, &inner("aggregate")?, doc)?,
        "mapReduce" => {
            return Err(Error::not_implemented(format_args!("explain of '{name}'")));
        }
        _ => {
            if matches!(entry.row.handler, Handler::Missing) {
                return Err(Error::not_implemented(format_args!("the command '{name}'")));
            }
            let text = format!("Cannot explain cmd: {}", entry.row.name);
            return Err(Error::new(ErrorCode::IllegalOperation, text));
        }
    }
    append_rest(ctx, sent, request.db, doc);
    Ok(())
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

/// The command may name its database, if it is the same.
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

/// The shape of a command on a collection; of those that have one.
fn shape_of(body: RawDoc<'_>, db: &str) -> Option<QueryShape> {
    let command = body.iter().next()?;
    let ns = Namespace::new(db, command.value().as_str()?).ok()?;
    QueryShape::of(registry::find(command.name())?.row.name, &ns, body)
}

/// What stands behind the plan: the command, the server, its limits.
fn append_rest(ctx: &CommandContext<'_>, body: RawDoc<'_>, db: &str, doc: &mut DocBuilder) {
    if let Some(shape) = shape_of(body, db) {
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
        // What there is no parameter for is switched off.
        let value = parameter.map_or(Value::Number(0), |it| (it.get)(ctx.service));
        if let Value::Number(value) = value {
            doc.append(name, i32::try_from(value).map_or(RawValue::Int64(value), RawValue::Int32));
        }
    }
    doc.append("internalQueryFrameworkControl", "forceClassicEngine");
    doc.append("internalQueryPlannerIgnoreIndexWithCollationForRegex", 1).end();
}
