//! `delete`.

use mayfly_base::{Error, ErrorCode, Namespace, Result};
use mayfly_query::{CanonicalQuery, DeleteSpec, FindOptions};
use mayfly_value::{DocBuilder, RawDoc};

use super::read::{hint, refuse};
use super::write::{WriteResults, check_count, check_writable, ends_command, ordered, wrote};
use crate::{CommandContext, Fields, OpKind, Request, Row, RowFlags};

pub(crate) const ROW: Row = Row::new("delete", "Removes documents", run)
    .flags(RowFlags::WRITE.and(RowFlags::MAY_BLOCK).and(RowFlags::COUNTS_ITSELF))
    .kind(OpKind::Delete);

fn run(ctx: &mut CommandContext<'_>, request: &Request<'_>, reply: &mut DocBuilder) -> Result<()> {
    let fields = request.fields(&["deletes", "ordered", "let", "bypassDocumentValidation"])?;
    let ns = request.namespace()?;
    check_writable(&ns)?;
    ctx.op.update_info(|info| info.ns = ns.as_str().to_owned());
    let ordered = ordered(&fields)?;
    refuse(&fields, &["let"])?;
    let Some(deletes) = request.documents("deletes")? else {
        return Err(fields.missing("deletes"));
    };
    check_count(deletes.len())?;
    let mut results = WriteResults::default();
    for (index, statement) in deletes.enumerate() {
        match one(ctx, &ns, statement) {
            Ok(deleted) => results.n += deleted,
            Err(error) if ends_command(&error) => return Err(error),
            Err(error) => {
                if results.fail(index, error, ordered) {
                    break;
                }
            }
        }
        ctx.count(OpKind::Delete, 1);
    }
    wrote(ctx, request);
    results.write(reply, None);
    Ok(())
}

fn one(ctx: &CommandContext<'_>, ns: &Namespace, statement: RawDoc<'_>) -> Result<i64> {
    let fields = Fields::strict(statement, "delete.deletes", &["q", "limit", "hint", "collation"])?;
    refuse(&fields, &["collation"])?;
    let filter = fields.document("q")?.ok_or_else(|| fields.missing("q"))?;
    let multi = match fields.long("limit")? {
        None => return Err(fields.missing("limit")),
        Some(0) => true,
        Some(1) => false,
        Some(other) => {
            return Err(Error::new(
                ErrorCode::FailedToParse,
                format!("The limit field in delete objects must be 0 or 1. Got {other}"),
            ));
        }
    };
    let options = FindOptions { hint: hint(&fields)?, ..FindOptions::default() };
    let query = CanonicalQuery::parse(filter, options)?;
    let Some(collection) = ctx.service.store.collection(ns) else { return Ok(0) };
    let spec = DeleteSpec { query, multi };
    match mayfly_query::delete(&ctx.service.store, ctx.op, &collection, spec) {
        // Dropped meanwhile: nothing is left to delete.
        Err(error)
            if matches!(
                error.code(),
                ErrorCode::NamespaceNotFound | ErrorCode::QueryPlanKilled
            ) =>
        {
            Ok(0)
        }
        other => other,
    }
}
