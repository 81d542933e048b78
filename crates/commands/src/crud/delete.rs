//! `delete`.

use mayfly_auth::Action;
use mayfly_base::{Error, Namespace, Result};
use mayfly_query::{
    CanonicalQuery, DeleteSpec, FindOptions, Hint, Image, ModifyOutcome, Repeatable, check_absent,
};
use mayfly_value::{DocBuilder, RawDoc};

use super::measurements;
use super::read::{Collating, hint};
use super::view::write_budget;
use super::write::{
    WriteResults, bypass_validation, check_count, check_writable, ends_command,
    keep_empty_timestamps, ordered, was_dropped, wrote,
};
use crate::audit::Audited;
use crate::retry::Attempt;
use crate::{CommandContext, DocumentChanges, Fields, Needs, OpKind, Request, Row, RowFlags};

pub(crate) const ROW: Row = Row::new("delete", "Removes documents", run)
    .needs(Needs::Collection(&[Action::Remove]))
    .audited(Audited::Documents)
    .flags(RowFlags::RETRYABLE_WRITE.and(RowFlags::MAY_BLOCK).and(RowFlags::COUNTS_ITSELF))
    .kind(OpKind::Delete);

pub(crate) const KNOWN: &[&str] = &[
    "deletes",
    "ordered",
    "let",
    "bypassDocumentValidation",
    "bypassEmptyTsReplacement",
    "stmtId",
    "stmtIds",
];

fn run(ctx: &mut CommandContext<'_>, request: &Request<'_>, reply: &mut DocBuilder) -> Result<()> {
    let fields = request.fields(KNOWN)?;
    let ns = request.namespace()?;
    check_writable(&ns)?;
    let ordered = ordered(&fields)?;
    // Deletes put nothing in place of anything; the arguments are checked all the same.
    bypass_validation(&fields)?;
    keep_empty_timestamps(&fields)?;
    let variables = fields.document("let")?;
    let Some(deletes) = request.documents("deletes")? else {
        return Err(fields.missing("deletes"));
    };
    check_count(deletes.len())?;
    // A malformed statement fails the whole command before anything is deleted.
    let statements = deletes.map(|delete| parse(delete, variables)).collect::<Result<Vec<_>>>()?;
    ctx.check_repeatable(statements.iter().any(|statement| statement.multi), "limit=0")?;
    let mut results = WriteResults::default();
    for (index, statement) in statements.into_iter().enumerate() {
        match statement.run(ctx, &ns, index) {
            Ok(deleted) => {
                ctx.count_modified(&DocumentChanges { deleted, ..DocumentChanges::default() });
                results.n += deleted;
            }
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
    ctx.append_retried(reply);
    Ok(())
}

/// One element of `deletes`.
fn parse<'a>(statement: RawDoc<'a>, variables: Option<RawDoc<'a>>) -> Result<DeleteStatement<'a>> {
    let known = &["q", "limit", "hint", "collation"];
    let fields = Fields::strict(statement, "delete.deletes", known)?;
    let filter = fields.document("q")?.ok_or_else(|| fields.missing("q"))?;
    let multi = match fields.long("limit")? {
        None => return Err(fields.missing("limit")),
        Some(0) => true,
        Some(1) => false,
        Some(other) => {
            return Err(Error::failed_to_parse(format!(
                "The limit field in delete objects must be 0 or 1. Got {other}"
            )));
        }
    };
    let (hint, collation) = (hint(&fields)?, Collating::parse(&fields)?);
    Ok(DeleteStatement { filter, multi, variables, hint, collation })
}

/// A delete statement of any command; the filter is not looked into yet.
pub(super) struct DeleteStatement<'a> {
    pub(super) filter: RawDoc<'a>,
    pub(super) multi: bool,
    /// `let` of the command.
    pub(super) variables: Option<RawDoc<'a>>,
    pub(super) hint: Option<Hint>,
    pub(super) collation: Collating,
}

impl DeleteStatement<'_> {
    /// Runs it as the command's statement at this place, unless an earlier attempt has done so; gives the number of
    /// documents that went.
    ///
    /// # Errors
    /// Those of the filter and of [`mayfly_query::delete`].
    pub(super) fn run(self, ctx: &CommandContext<'_>, ns: &Namespace, at: usize) -> Result<i64> {
        let statement = match ctx.attempt(at)? {
            Attempt::Again(record) => return Ok(ModifyOutcome::recall(record.as_doc()).0.matched),
            Attempt::First(statement) => statement,
        };
        let DeleteStatement { filter, multi, variables, hint, collation } = self;
        let collection = ctx.service.store.collection(ns);
        let collation = collation.over(collection.as_deref());
        let now_ms = Some(ctx.op.now_ms());
        let scripts = Some(ctx.service.settings.script_limits());
        let options =
            FindOptions { hint, variables, now_ms, collation, scripts, ..FindOptions::default() };
        let query = CanonicalQuery::parse(filter, options)?;
        let image = Image::Neither;
        let repeatable = statement.map(|statement| Repeatable { statement, image });
        let budget = write_budget(ctx, multi);
        let spec = DeleteSpec { query, multi, repeatable, budget };
        if let Some(series) = measurements::series_named(ctx, ns) {
            let deleted = measurements::delete(ctx, &series, spec)?;
            if deleted > 0 {
                let outcome = ModifyOutcome { matched: deleted, ..ModifyOutcome::default() };
                ctx.committed(statement, || outcome.record(None));
            }
            return Ok(deleted);
        }
        let Some(collection) = collection else {
            check_absent(&spec.query, ns)?;
            return ctx.service.store.check_no_view(ns).map(|()| 0);
        };
        let deleted = match mayfly_query::delete(&ctx.service.store, ctx.op, &collection, &spec) {
            // Dropped meanwhile: nothing is left to delete.
            Err(error) if was_dropped(&error, &collection) => 0,
            other => other?,
        };
        if deleted > 0 {
            let outcome = ModifyOutcome { matched: deleted, ..ModifyOutcome::default() };
            ctx.committed(statement, || outcome.record(None));
        }
        Ok(deleted)
    }
}
