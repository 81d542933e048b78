//! `setQuerySettings`, `removeQuerySettings` and the source of `$querySettings`: settings for
//! queries of one shape. Manual: "setQuerySettings", "removeQuerySettings", "$querySettings".

use mayfly_value::arguments::{Argument, Form};
use std::sync::Arc;

use mayfly_auth::Action;
use mayfly_base::{Error, ErrorCode, Namespace, Result};
use mayfly_expr::Scope;
use mayfly_mql::Matcher;
use mayfly_mql::matcher::{CmpOp, Expr, Predicate};
use mayfly_query::{
    CanonicalQuery, FindOptions, Hint, PipelineContext, QueryShape, QueryShapeHash,
    UncheckedPipeline,
};
use mayfly_service::QuerySetting;
use mayfly_service::query_settings::namespace_of;
use mayfly_value::shell::Shell;
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue};

use crate::context::{Command, CommandContext};
use crate::crud::Collating;
use crate::request::row::{Row, RowFlags, Writes};
use crate::request::{Fields, Needs, OpKind, Request};

pub(super) const SET: Command = Command::new("setQuerySettings", "Sets query settings", run_set)
    .arguments(&[Argument::document("settings").required().parts(OF_SETTINGS)])
    .needs(Needs::Cluster(&[Action::QuerySettings]))
    .since("8.0")
    .flags(RowFlags::ADMIN_ONLY)
    .writes(Writes::Settings);
pub(super) const REMOVE: Command =
    Command::new("removeQuerySettings", "Removes query settings", run_remove)
        .needs(Needs::Cluster(&[Action::QuerySettings]))
        .since("8.0")
        .flags(RowFlags::ADMIN_ONLY)
        .writes(Writes::Settings);

/// The shape in a command's own value, as a hash or as a query.
struct Target<'a> {
    hash: QueryShapeHash,
    query: Option<RawDoc<'a>>,
}

/// The command that a shape is for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Purpose {
    /// It gets settings, which some queries cannot have.
    Set,
    /// It loses them.
    Remove,
}

impl<'a> Target<'a> {
    fn parse(
        ctx: &CommandContext<'_>,
        request: &Request<'a>,
        fields: &Fields<'_>,
        purpose: Purpose,
    ) -> Result<Target<'a>> {
        match request.target() {
            RawValue::String(text) => match QueryShapeHash::parse(text) {
                Some(hash) => Ok(Target { hash, query: None }),
                None => Err(no_hash(text)),
            },
            RawValue::Document(query) => {
                let hash = representative_shape(ctx, query, purpose)?.hash();
                Ok(Target { hash, query: Some(query) })
            }
            other => Err(fields.wrong(request.row.name, other, "[object, string]")),
        }
    }
}

/// The error for a text that is no hash of a query shape: 9 unless it is a sequence of bytes in
/// hexadecimal digits, 16 for one of another length.
fn no_hash(text: &str) -> Error {
    let is_hexadecimal =
        text.len().is_multiple_of(2) && text.bytes().all(|digit| digit.is_ascii_hexdigit());
    let code = if is_hexadecimal { ErrorCode::InvalidLength } else { ErrorCode::FailedToParse };
    Error::new(code, format!("a query shape hash has 64 hexadecimal digits, unlike '{text}'"))
}

/// The shape of a representative query.
///
/// # Errors
/// 7746402 for other commands, 8584900, 8584901 and 7746606 for queries that cannot have settings;
/// errors of the command.
fn representative_shape(
    ctx: &CommandContext<'_>,
    query: RawDoc<'_>,
    purpose: Purpose,
) -> Result<QueryShape> {
    let first = query.iter().next();
    let command = first.and_then(|first| ctx.commands.find(first.name()));
    let command = command.map(|entry| entry.command);
    let shaped = command.filter(|command| command.row.flags.contains(RowFlags::SHAPED));
    let Some((command, target)) = shaped.zip(first.map(|first| first.value())) else {
        return Err(no_shape(query));
    };
    let row = &command.row;
    let fields = Fields::new(query, row.name);
    let db = fields.string("$db")?.ok_or_else(|| fields.missing("$db"))?;
    if db.is_empty() {
        let text = format!("Invalid namespace specified '{db}'");
        return Err(Error::new(ErrorCode::InvalidNamespace, text));
    }
    Request::inner(row, db, query).arguments()?;
    let Some(ns) = namespace_of(db, target)
        .filter(|_| row.flags.contains(RowFlags::PIPELINE) || !target.is_number())
    else {
        let text = "Collection namespace string must be provided for setQuerySettings command";
        return Err(Error::new(ErrorCode(7746605), text));
    };
    let refused = |code, what: &str| {
        let text = format!("setQuerySettings command cannot be used on {what}");
        Err(Error::new(ErrorCode(code), text))
    };
    let shape = || QueryShape::of(row.name, &ns, query).ok_or_else(|| no_shape(query));
    if purpose == Purpose::Remove {
        check_query(ctx, row, &ns, &fields)?;
        return shape();
    }
    if matches!(ns.db(), "admin" | "local" | "config") {
        return refused(8584900, "internal databases");
    }
    if ns.collection().starts_with("system.") {
        return refused(8584901, "system collections");
    }
    if check_query(ctx, row, &ns, &fields)? == Planned::ById {
        return refused(7746606, "find queries eligible for IDHACK");
    }
    shape()
}

fn no_shape(query: RawDoc<'_>) -> Error {
    let text = format!("QueryShape can not be computed for command: {}", Shell(query));
    Error::new(ErrorCode(7746402), text)
}

#[derive(PartialEq, Eq)]
enum Planned {
    /// It selects one `_id`, which needs no plan.
    ById,
    Otherwise,
}

/// Checks the query as far as possible without running it.
fn check_query(
    ctx: &CommandContext<'_>,
    row: &Row,
    ns: &Namespace,
    fields: &Fields<'_>,
) -> Result<Planned> {
    let collating = Collating::parse(fields)?;
    let collation = collating.over(ctx.store.collection(ns).as_deref());
    let variables = fields.document("let")?;
    if row.flags.contains(RowFlags::PIPELINE) {
        let scripts = ctx.service.settings.script_limits();
        let mut scope = Scope::at(ctx.time()).with_script_limits(scripts).collated(collation);
        if let Some(variables) = variables {
            scope.declare(variables)?;
        }
        let pipeline = fields.array("pipeline")?.ok_or_else(|| fields.missing("pipeline"))?;
        UncheckedPipeline::parse(pipeline, &PipelineContext::command(ns.db(), &scope))
            .validate()?;
        return Ok(Planned::Otherwise);
    }
    let finds = row.kind == OpKind::Query;
    let filter = if finds {
        fields.document("filter")?
    } else {
        fields.string("key")?.ok_or_else(|| fields.missing("key"))?;
        fields.document("query")?
    };
    let hint = fields.get("hint").map(Hint::parse).transpose()?.flatten();
    let options = FindOptions {
        sort: fields.document("sort")?,
        projection: fields.document("projection")?,
        hint: hint.clone(),
        variables,
        time: Some(ctx.time()),
        collation,
        allows_key_metadata: true,
        scripts: Some(ctx.service.settings.script_limits()),
        ..FindOptions::default()
    };
    let query = CanonicalQuery::parse(filter.unwrap_or(RawDoc::EMPTY), options)?;
    let by_id = finds && hint.is_none() && is_by_id(&query.matcher);
    Ok(if by_id && fields.get("collation").is_none() { Planned::ById } else { Planned::Otherwise })
}

fn is_by_id(matcher: &Matcher) -> bool {
    match matcher.root() {
        Expr::Path { path, predicate: Predicate::Cmp { op: CmpOp::Eq, .. } } => {
            path.as_str() == "_id"
        }
        _ => false,
    }
}

fn run_set(ctx: &CommandContext<'_>, request: &Request<'_>, reply: &mut DocBuilder) -> Result<()> {
    let fields = request.arguments()?;
    let given = fields.document("settings")?.ok_or_else(|| fields.missing("settings"))?;
    if given.is_empty() {
        let text = "settings field in setQuerySettings command cannot be empty";
        return Err(Error::new(ErrorCode(8727502), text));
    }
    check_settings(given)?;
    let target = Target::parse(ctx, request, &fields, Purpose::Set)?;
    let mut shown = None;
    ctx.service.query_settings.change(&ctx.service.store, ctx.op, |entries| {
        let before = entries.get(&target.hash);
        if before.is_none() && target.query.is_none() {
            let text = "New query settings can only be created with a query instance, but a query hash was given.";
            return Err(Error::new(ErrorCode(7746401), text));
        }
        let settings = merged(before.map(|before| before.settings.as_doc()), given);
        if settings.as_doc().iter().all(|setting| setting.name() == "comment") {
            let text = "the resulting settings cannot be empty or contain only default values";
            return Err(Error::new(ErrorCode(7746604), text));
        }
        let known = before.and_then(|before| before.query.clone());
        let query = target.query.map(RawDoc::to_owned).or(known);
        let setting = Arc::new(QuerySetting::new(target.hash, settings, query)?);
        shown = Some(setting.clone());
        entries.insert(target.hash, setting);
        Ok(())
    })?;
    if let Some(setting) = shown {
        setting.append_to(reply);
    }
    Ok(())
}

fn run_remove(ctx: &CommandContext<'_>, request: &Request<'_>, _: &mut DocBuilder) -> Result<()> {
    let fields = request.arguments()?;
    let target = Target::parse(ctx, request, &fields, Purpose::Remove)?;
    ctx.service.query_settings.change(&ctx.service.store, ctx.op, |entries| {
        entries.remove(&target.hash);
        Ok(())
    })?;
    Ok(())
}

const SETTINGS: &str = "setQuerySettings.settings";
const OF_SETTINGS: &[Argument] = &[
    Argument::one_of("indexHints", &[Form::Array, Form::Document]).null_is_value(),
    Argument::choice("queryFramework", &["classic", "sbe"]),
    Argument::bool("reject").null_is_value(),
    Argument::any("comment"),
];
const OF_HINT: &[Argument] = &[
    Argument::fields("ns", OF_NAMESPACE).required(),
    Argument::array("allowedIndexes").required(),
];
const OF_NAMESPACE: &[Argument] = &[Argument::string("db"), Argument::string("coll")];

/// Checks names and types.
///
/// # Errors
/// 40415, 40414, 14 TypeMismatch, 2 BadValue for an unknown framework.
fn check_settings(settings: RawDoc<'_>) -> Result<()> {
    let fields = Fields::read(settings, SETTINGS, OF_SETTINGS)?;
    match fields.get("indexHints") {
        None => {}
        Some(RawValue::Document(only)) => check_hint(only)?,
        Some(RawValue::Array(list)) => {
            for item in list {
                match item.value() {
                    RawValue::Document(hint) => check_hint(hint)?,
                    other => {
                        let name = format!("indexHints.{}", item.name());
                        return Err(fields.wrong(&name, other, "object"));
                    }
                }
            }
        }
        Some(_) => {}
    }
    Ok(())
}

fn check_hint(hint: RawDoc<'_>) -> Result<()> {
    const PATH: &str = "setQuerySettings.settings.indexHints";
    let fields = Fields::read(hint, PATH, OF_HINT)?;
    let list = fields.array("allowedIndexes")?.unwrap_or(RawDoc::EMPTY);
    for item in list {
        match item.value() {
            RawValue::Document(key) if key.is_empty() => {
                return Err(Error::bad_value("index specification cannot be empty"));
            }
            value @ (RawValue::String(_) | RawValue::Document(_)) => drop(Hint::parse(value)?),
            other => {
                return Err(Error::failed_to_parse(format!(
                    "Hint must be a string or an object, but is {}",
                    other.type_name()
                )));
            }
        }
    }
    Ok(())
}

/// Merges the given settings into the previous ones and drops those without effect: `reject:
/// false`, hints that allow no index.
fn merged(before: Option<RawDoc<'_>>, given: RawDoc<'_>) -> DocBuf {
    let mut out = DocBuilder::new();
    for name in ["indexHints", "queryFramework", "reject", "comment"] {
        let present = |settings: RawDoc<'_>| -> bool {
            !matches!(settings.get(name), None | Some(RawValue::Null | RawValue::Undefined))
        };
        let source = if present(given) { Some(given) } else { before };
        let Some(value) = source.and_then(|source| source.get(name)) else { continue };
        match (name, value) {
            (_, RawValue::Null | RawValue::Undefined) | ("reject", RawValue::Bool(false)) => {}
            ("indexHints", RawValue::Document(only)) => append_hints([only].into_iter(), &mut out),
            ("indexHints", RawValue::Array(list)) => {
                append_hints(list.iter().filter_map(|item| item.value().as_document()), &mut out);
            }
            (name, value) => {
                out.append(name, value);
            }
        }
    }
    out.finish()
}

fn append_hints<'a>(hints: impl Iterator<Item = RawDoc<'a>>, out: &mut DocBuilder) {
    let allows = |hint: &RawDoc<'_>| matches!(hint.get("allowedIndexes"), Some(RawValue::Array(list)) if !list.is_empty());
    let mut hints = hints.filter(allows).peekable();
    if hints.peek().is_none() {
        return;
    }
    out.start_array("indexHints");
    hints.for_each(|hint| {
        out.push(RawValue::Document(hint));
    });
    out.end();
}
