//! `update`.

use mayfly_base::{Error, ErrorCode, Namespace, Result};
use mayfly_mql::{ParseContext, Update};
use mayfly_query::{CanonicalQuery, FindOptions, Hint, ModifyOutcome, UpdateSpec};
use mayfly_value::{DocBuilder, RawDoc, RawValue};

use super::object_id::new_object_id;
use super::read::{hint, refuse};
use super::write::{
    WriteResults, check_count, check_writable, ends_command, on_collection, ordered, wrote,
};
use crate::{CommandContext, Fields, OpKind, Request, Row, RowFlags};

pub(crate) const ROW: Row = Row::new("update", "Changes documents", run)
    .flags(RowFlags::WRITE.and(RowFlags::MAY_BLOCK).and(RowFlags::COUNTS_ITSELF))
    .kind(OpKind::Update);

fn run(ctx: &mut CommandContext<'_>, request: &Request<'_>, reply: &mut DocBuilder) -> Result<()> {
    let fields = request.fields(&["updates", "ordered", "bypassDocumentValidation", "let"])?;
    let ns = request.namespace()?;
    check_writable(&ns)?;
    let ordered = ordered(&fields)?;
    fields.bool("bypassDocumentValidation")?;
    refuse(&fields, &["let"])?;
    let Some(updates) = request.documents("updates")? else {
        return Err(fields.missing("updates"));
    };
    check_count(updates.len())?;
    // A malformed statement fails the whole command before anything is written.
    let statements = updates.map(Statement::parse).collect::<Result<Vec<_>>>()?;
    let mut results = WriteResults::default();
    let mut modified = 0;
    for (index, statement) in statements.iter().enumerate() {
        match one(ctx, &ns, statement) {
            Ok(outcome) => {
                results.n += outcome.matched;
                modified += outcome.modified;
                if let Some(id) = outcome.upserted {
                    results.n += 1;
                    results.upserted.push((index, id));
                }
            }
            Err(error) if ends_command(&error) => return Err(error),
            Err(error) => {
                if results.fail(index, error, ordered) {
                    break;
                }
            }
        }
        ctx.count(OpKind::Update, 1);
    }
    wrote(ctx, request);
    results.write(reply, Some(modified));
    Ok(())
}

/// One element of `updates`; filter and update are not looked into yet.
struct Statement<'a> {
    filter: RawDoc<'a>,
    update: RawValue<'a>,
    multi: bool,
    upsert: bool,
    hint: Option<Hint>,
}

impl<'a> Statement<'a> {
    fn parse(statement: RawDoc<'a>) -> Result<Statement<'a>> {
        let known = &[
            "q",
            "u",
            "upsert",
            "multi",
            "hint",
            "collation",
            "arrayFilters",
            "c",
            "sort",
            "upsertSupplied",
        ];
        let fields = Fields::strict(statement, "update.updates", known)?;
        refuse(&fields, &["collation", "arrayFilters", "c", "sort", "upsertSupplied"])?;
        let filter = fields.document("q")?.ok_or_else(|| fields.missing("q"))?;
        let update = fields.required("u")?;
        if !matches!(update, RawValue::Document(_) | RawValue::Array(_)) {
            let text = "Update argument must be either an object or an array";
            return Err(Error::failed_to_parse(text));
        }
        Ok(Statement {
            filter,
            update,
            multi: fields.bool("multi")?.unwrap_or(false),
            upsert: fields.bool("upsert")?.unwrap_or(false),
            hint: hint(&fields)?,
        })
    }
}

fn one(
    ctx: &CommandContext<'_>,
    ns: &Namespace,
    statement: &Statement<'_>,
) -> Result<ModifyOutcome> {
    let Statement { multi, upsert, .. } = *statement;
    let parse = || -> Result<UpdateSpec> {
        let update =
            Update::parse_value(statement.update, &ParseContext { now_ms: ctx.op.now_ms() })?;
        if multi && update.is_replacement() {
            return Err(Error::new(
                ErrorCode::FailedToParse,
                "multi update is not supported for replacement-style update",
            ));
        }
        let options = FindOptions { hint: statement.hint.clone(), ..FindOptions::default() };
        let query = CanonicalQuery::parse(statement.filter, options)?;
        let new_id = new_object_id(ctx.op.now_ms());
        Ok(UpdateSpec { query, update, multi, upsert, new_id })
    };
    if !upsert && ctx.service.store.collection(ns).is_none() {
        parse()?;
        return Ok(ModifyOutcome::default());
    }
    let mut spec = Some(parse()?);
    on_collection(ctx, ns, |collection| {
        let spec = match spec.take() {
            Some(spec) => spec,
            None => parse()?,
        };
        mayfly_query::update(&ctx.service.store, ctx.op, collection, spec)
    })
}
