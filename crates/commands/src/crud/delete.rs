//! `delete`.

use mayfly_auth::Action;
use mayfly_base::{Error, Namespace, Result};
use mayfly_query::{
    CanonicalQuery, DeleteSpec, FindOptions, Hint, Image, ModifyOutcome, Repeatable, check_absent,
};
use mayfly_value::{DocBuilder, RawDoc};

use super::explain;
use super::measurements;
use super::read::{Collating, hint};
use super::view::write_budget;
use super::write::{
    WriteOptions, WriteResults, check_count, check_writable, ends_command, was_dropped,
};
use crate::context::retry::Attempt;
use crate::context::{Command, CommandContext, DocumentChanges};
use crate::request::row::{Audited, Expected, InTransaction, RowFlags, Writes};
use crate::request::{Fields, Needs, OpKind, Request};

pub(crate) const ROW: Command = Command::new("delete", "Removes documents", run)
    .needs(Needs::Collection(&[Action::Remove]))
    .audited(Audited::Documents)
    .flags(RowFlags::STABLE)
    .writes(Writes::Repeatable)
    .in_transaction(InTransaction::Statement)
    .expected(Expected::Statements("deletes"))
    .kind(OpKind::Delete)
    .explained(KNOWN, explain::delete);

pub(crate) const KNOWN: &[&str] = &[
    "deletes",
    "ordered",
    "let",
    "bypassDocumentValidation",
    "bypassEmptyTsReplacement",
    "stmtId",
    "stmtIds",
];

fn run(ctx: &CommandContext<'_>, request: &Request<'_>, reply: &mut DocBuilder) -> Result<()> {
    let fields = request.fields(KNOWN)?;
    let ns = request.namespace()?;
    check_writable(&ns)?;
    // A delete writes no documents; the arguments about them are checked all the same.
    let options = WriteOptions::parse(&fields)?;
    let variables = fields.document("let")?;
    let Some(deletes) = request.documents("deletes")? else {
        return Err(fields.missing("deletes"));
    };
    check_count(deletes.len())?;
    // A malformed statement fails the whole command before anything is deleted.
    let statements = deletes.map(|delete| parse(delete, variables)).collect::<Result<Vec<_>>>()?;
    ctx.check_repeatable(statements.iter().any(|statement| statement.multi).then_some("limit=0"))?;
    let mut results = WriteResults::default();
    for (index, statement) in statements.into_iter().enumerate() {
        match statement.run(ctx, &ns, index) {
            Ok(deleted) => {
                ctx.count_modified(&DocumentChanges { deleted, ..DocumentChanges::default() });
                results.n += deleted;
            }
            Err(error) if ends_command(ctx, &error) => return Err(error),
            Err(error) => {
                if results.fail(ctx, index, error, options) {
                    break;
                }
            }
        }
        ctx.count(OpKind::Delete, 1);
    }
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
        let collection = ctx.store.collection(ns);
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
            return ctx.service.store.check_no_view(ctx.store.view, ns).map(|()| 0);
        };
        let deleted = match mayfly_query::delete(ctx.store, &collection, &spec) {
            // Dropped meanwhile: nothing is left to delete.
            Err(error) if was_dropped(ctx.store, &error, &collection) => 0,
            other => other?,
        };
        if deleted > 0 {
            let outcome = ModifyOutcome { matched: deleted, ..ModifyOutcome::default() };
            ctx.committed(statement, || outcome.record(None));
        }
        Ok(deleted)
    }
}
