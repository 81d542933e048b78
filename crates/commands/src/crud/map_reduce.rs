//! `mapReduce`: rewritten to a pipeline. Manual: "mapReduce".
//!
//! ```text
//! query, sort, limit   ->  $match, $sort, $limit
//! map, reduce, finalize, scope  ->  the stage of the three functions
//! out: inline          ->  the results are in the reply
//! out: replace         ->  $out
//! out: merge           ->  $merge that replaces documents
//! out: reduce          ->  $merge that calls reduce and finalize with the old and the new value
//! ```

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_query::{MAP_REDUCE_STAGE, RunSettings, Verbosity};
use mayfly_value::arguments::Argument;
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue, check_size};

use super::aggregate::{self, Arguments};
use super::explain;
use super::read::Collating;
use super::view::{for_each, run_settings};
use crate::context::{Command, CommandContext};
use crate::request::row::{Expected, Reads, Writes};
use crate::request::{Fields, Needs, Request};

pub(crate) const ROW: Command =
    Command::new("mapReduce", "Runs a map-reduce operation over a collection", run)
        .aliases(&["mapreduce"])
        .arguments(ARGUMENTS)
        .needs(Needs::InHandler)
        .writes(Writes::Sometimes)
        .reads(Reads::PREFERENCE.union(Reads::COUNTED))
        .expected(Expected::Long)
        .explained(explained);

const ARGUMENTS: &[Argument] = &[
    Argument::any("map").required(),
    Argument::any("reduce").required(),
    Argument::any("out").required(),
    Argument::document("query"),
    Argument::document("sort"),
    Argument::document("collation"),
    Argument::whole("limit"),
    Argument::any("finalize"),
    Argument::document("scope"),
    Argument::flag("jsMode"),
    Argument::flag("verbose"),
    Argument::flag("bypassDocumentValidation"),
];

/// The function that the pipeline of `$merge` calls for a key that has a value: its free variables
/// are those of `scope`.
const REDUCE_BOTH: &str = "function (key, values, scope, reduce, finalize) { \
    Object.assign(globalThis, scope); \
    const value = reduce(key, values); \
    return finalize ? finalize(key, value) : value; }";

/// Where the results go.
enum Output<'a> {
    Inline,
    Replace(Target<'a>),
    Merge(Target<'a>),
    Reduce(Target<'a>),
}

/// The collection of the results.
#[derive(Clone, Copy)]
struct Target<'a> {
    db: Option<&'a str>,
    collection: &'a str,
}

impl<'a> Output<'a> {
    /// Parses `out`.
    ///
    /// # Errors
    /// 2 BadValue, 72 InvalidOptions for fields next to `inline`, 115 CommandNotSupported for
    /// internal databases.
    fn parse(value: RawValue<'a>) -> Result<Output<'a>> {
        let out = match value {
            RawValue::String(collection) => {
                return Ok(Output::Replace(Target { db: None, collection }));
            }
            RawValue::Document(out) => out,
            _ => return Err(Error::bad_value("'out' must be either a string or an object")),
        };
        if let Some(inline) = out.get("inline") {
            if out.iter().count() > 1 {
                let text = "'inline' must be specified alone";
                return Err(Error::new(ErrorCode::InvalidOptions, text));
            }
            return match mayfly_value::Number::from_value(inline) {
                Some(number) if number.to_f64() == 1.0 => Ok(Output::Inline),
                _ => Err(Error::bad_value("'inline' takes only numeric '1'")),
            };
        }
        for name in ["sharded", "nonAtomic"] {
            match out.get(name) {
                None | Some(RawValue::Bool(true)) => {}
                Some(RawValue::Bool(false)) => {
                    return Err(Error::bad_value(format!("{name} field value must be true")));
                }
                Some(_) => {
                    return Err(Error::bad_value(format!("{name} field value must be boolean")));
                }
            }
        }
        let found = ["replace", "merge", "reduce"].into_iter().find_map(|name| {
            let element = out.get_element(name)?;
            Some((name, element.value()))
        });
        let Some((action, collection)) = found else {
            return Err(Error::bad_value("'out' requires 'replace', 'merge' or 'reduce'"));
        };
        let Some(collection) = collection.as_str() else {
            let text =
                format!("'{action}' supports only string consisting of output collection name");
            return Err(Error::bad_value(text));
        };
        let db = match out.get("db") {
            None => None,
            Some(RawValue::String("admin" | "config" | "local")) => {
                let text = "cannot target internal database as output";
                return Err(Error::new(ErrorCode::CommandNotSupported, text));
            }
            Some(RawValue::String(db)) => Some(db),
            Some(_) => return Err(Error::bad_value("db field value must be string")),
        };
        let known = [action, "db", "sharded", "nonAtomic"];
        if out.iter().any(|field| !known.contains(&field.name())) {
            let text = "'out' supports only output type with collection name, optional 'sharded' \
                        and optional 'db'";
            return Err(Error::bad_value(text));
        }
        let target = Target { db, collection };
        Ok(match action {
            "replace" => Output::Replace(target),
            "merge" => Output::Merge(target),
            _ => Output::Reduce(target),
        })
    }
}

/// The functions of the command, and the variables that they see.
struct Functions<'a> {
    map: &'a str,
    reduce: &'a str,
    finalize: Option<&'a str>,
    scope: DocBuf,
}

impl<'a> Functions<'a> {
    fn parse(fields: &Fields<'a>) -> Result<Functions<'a>> {
        let mut scope = DocBuilder::new();
        let mut function = |name: &str| match fields.get(name) {
            None => Ok(None),
            Some(RawValue::String(source) | RawValue::Code(source)) => Ok(Some(source)),
            Some(RawValue::CodeWithScope { code, scope: variables }) => {
                for variable in variables {
                    scope.append_element(variable);
                }
                Ok(Some(code))
            }
            Some(RawValue::Null) if name == "finalize" => Ok(None),
            Some(_) => Err(Error::bad_value(format!("'{name}' must be of string or code type"))),
        };
        let (map, reduce, finalize) =
            (function("map")?, function("reduce")?, function("finalize")?);
        let map = map.ok_or_else(|| fields.missing("map"))?;
        let reduce = reduce.ok_or_else(|| fields.missing("reduce"))?;
        for variable in fields.document("scope")?.unwrap_or(RawDoc::EMPTY) {
            scope.append_element(variable);
        }
        Ok(Functions { map, reduce, finalize, scope: scope.finish() })
    }

    /// Appends the operand of the stage.
    fn append_to(&self, stage: &mut DocBuilder) {
        stage.append("map", RawValue::Code(self.map));
        stage.append("reduce", RawValue::Code(self.reduce));
        if let Some(finalize) = self.finalize {
            stage.append("finalize", RawValue::Code(finalize));
        }
        stage.append("scope", &self.scope);
    }

    /// Appends the stages of `$merge` for a document that exists.
    fn append_reduction(&self, merge: &mut DocBuilder) {
        merge.start_array("whenMatched").push_document().start_document("$set");
        merge.start_document("value").start_document("$function");
        merge.append("body", RawValue::Code(REDUCE_BOTH)).append("lang", "js");
        merge
            .start_array("args")
            .push("$_id")
            .push_array()
            .push("$value")
            .push("$$new.value")
            .end();
        merge.push_document().append("$literal", &self.scope).end();
        merge.push_document().append("$literal", RawValue::Code(self.reduce)).end();
        let finalize = self.finalize.map_or(RawValue::Null, RawValue::Code);
        merge.push_document().append("$literal", finalize).end();
        merge.end().end().end().end().end().end();
    }
}

/// The command as stages.
fn stages(fields: &Fields<'_>, output: &Output<'_>) -> Result<DocBuf> {
    let functions = Functions::parse(fields)?;
    let mut out = DocBuilder::new_array();
    for (stage, name) in [("$match", "query"), ("$sort", "sort")] {
        if let Some(operand) = fields.document(name)?.filter(|operand| !operand.is_empty()) {
            out.push_document().append(stage, operand).end();
        }
    }
    if let Some(limit) = fields.long("limit")?.filter(|limit| *limit != 0) {
        out.push_document().append("$limit", limit).end();
    }
    functions.append_to(out.push_document().start_document(MAP_REDUCE_STAGE));
    out.end().end();
    let into = |out: &mut DocBuilder, target: &Target<'_>| {
        if let Some(db) = target.db {
            out.append("db", db);
        }
        out.append("coll", target.collection).end();
    };
    match output {
        Output::Inline => {}
        Output::Replace(target) => {
            into(out.push_document().start_document("$out"), target);
            out.end();
        }
        Output::Merge(target) | Output::Reduce(target) => {
            out.push_document().start_document("$merge");
            into(out.start_document("into"), target);
            match output {
                Output::Reduce(_) => functions.append_reduction(&mut out),
                _ => {
                    out.append("whenMatched", "replace");
                }
            }
            out.append("whenNotMatched", "insert").end().end();
        }
    }
    Ok(out.finish())
}

/// The command's arguments that change nothing: there is one format of intermediate values, the
/// reply has no statistics.
fn ignore(fields: &Fields<'_>) -> Result<()> {
    for name in ["jsMode", "verbose"] {
        fields.bool(name)?;
    }
    Ok(())
}

fn run(ctx: &CommandContext<'_>, request: &Request<'_>, reply: &mut DocBuilder) -> Result<()> {
    let fields = request.arguments()?;
    ignore(&fields)?;
    let ns = request.namespace()?;
    ctx.service.store.check_no_view(ctx.store.view, &ns)?;
    let output = Output::parse(fields.required("out")?)?;
    let stages = stages(&fields, &output)?;
    let settings = RunSettings {
        bypass_validation: fields.bool("bypassDocumentValidation")?.unwrap_or(false),
        ..run_settings(ctx, None)
    };
    let collation = Collating::parse(&fields)?;
    let arguments =
        Arguments { request, pipeline: stages.as_doc(), hint: None, collation, variables: None };
    let run = aggregate::start_over(ctx, arguments, ns, settings)?;
    let target = match output {
        Output::Inline => {
            reply.start_array("results");
            for_each(ctx, run, &mut |document| {
                reply.push(document);
                check_size(reply.len())
            })?;
            reply.end();
            return Ok(());
        }
        Output::Replace(target) | Output::Merge(target) | Output::Reduce(target) => target,
    };
    let _writing = ctx.service.store.fsync_lock.enter(ctx.op)?;
    for_each(ctx, run, &mut |_| Ok(()))?;
    match target.db {
        None => reply.append("result", target.collection),
        Some(db) => {
            reply.start_document("result").append("db", db);
            reply.append("collection", target.collection).end()
        }
    };
    Ok(())
}

/// Explains the pipeline of the command.
fn explained(
    ctx: &CommandContext<'_>,
    request: &Request<'_>,
    verbosity: Verbosity,
    doc: &mut DocBuilder,
) -> Result<()> {
    let fields = request.arguments()?;
    ignore(&fields)?;
    let output = Output::parse(fields.required("out")?)?;
    let mut body = DocBuilder::new();
    body.append("aggregate", request.target());
    body.append("pipeline", RawValue::Array(stages(&fields, &output)?.as_doc()));
    body.start_document("cursor").end();
    for name in ["collation", "bypassDocumentValidation"] {
        if let Some(value) = fields.get(name) {
            body.append(name, value);
        }
    }
    let body = body.finish();
    let inner = Request::inner(&aggregate::ROW.row, request.db, body.as_doc());
    explain::aggregate(ctx, &inner, verbosity, doc)
}
