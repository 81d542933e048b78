//! `delete`.

use mayfly_auth::Action;
use mayfly_base::{Error, ErrorCode, Namespace, Result};
use mayfly_query::{
    CanonicalQuery, DeleteSpec, FindOptions, Hint, ModifyOutcome, Repeatable, check_absent,
};
use mayfly_storage::Collection;
use mayfly_value::arguments::{Argument, Form};
use mayfly_value::shell::ShellValue;
use mayfly_value::{DocBuilder, Number, RawDoc};

use super::explain;
use super::measurements;
use super::read::{Collating, hint};
use super::together::{PreparedWrite, Proceed, WriteStatement, repeatable, run_all};
use super::view::write_budget;
use super::write::{WriteOptions, WriteResults, check_count, ends_command, was_dropped};
use crate::context::retry::Attempt;
use crate::context::{COLLECTION_UUID, Command, CommandContext, DocumentChanges};
use crate::request::arguments::{HINT, INFORMATION};
use crate::request::row::{Audited, Encrypted, Expected, InTransaction, RowFlags, Writes};
use crate::request::{Fields, Needs, OpKind, Request};

pub(crate) const ROW: Command = Command::new("delete", "Removes documents", run)
    .arguments(ARGUMENTS)
    .needs(Needs::Collection(&[Action::Remove]))
    .audited(Audited::Documents)
    .flags(RowFlags::STABLE)
    .writes(Writes::Repeatable)
    .in_transaction(InTransaction::Statement)
    .expected(Expected::Statements("deletes"))
    .encrypted(Encrypted::Statements { list: "deletes", filter: "q", in_namespaces: false })
    .kind(OpKind::Delete)
    .explained(explain::delete);

pub(crate) const ARGUMENTS: &[Argument] = &[
    Argument::array("deletes").required().parts(STATEMENT),
    Argument::bool("ordered"),
    Argument::document("let").since("5.0"),
    Argument::flag("bypassDocumentValidation"),
    Argument::bool("bypassEmptyTsReplacement").null_is_value().since("8.0"),
    Argument::new("stmtId", Form::Int32),
    Argument::array("stmtIds"),
    INFORMATION,
    COLLECTION_UUID,
];

fn run(ctx: &CommandContext<'_>, request: &Request<'_>, reply: &mut DocBuilder) -> Result<()> {
    let fields = request.arguments()?;
    let ns = request.namespace()?;
    ctx.check_uuid(&ns, &fields)?;
    measurements::check_changeable(ctx, &ns)?;
    // A delete writes no documents; arguments for written documents are still checked.
    let options = WriteOptions::parse(&fields)?;
    let variables = fields.document("let")?;
    let Some(deletes) = request.documents("deletes")? else {
        return Err(fields.missing("deletes"));
    };
    check_count(deletes.len())?;
    // An invalid statement fails the whole command before anything is deleted.
    let statements = deletes.map(|delete| parse(delete, variables)).collect::<Result<Vec<_>>>()?;
    if request.generic.is_encrypted && statements.len() != 1 {
        let text = "Only single document deletes are permitted";
        return Err(Error::new(ErrorCode(6371302), text));
    }
    ctx.check_repeatable(statements.iter().any(|statement| statement.multi).then_some("limit=0"))?;
    let mut results = WriteResults::default();
    run_all(ctx, &ns, 0, &statements, &mut |index, result| {
        let mut proceed = Proceed::Continue;
        match result {
            Ok(ModifyOutcome { matched: deleted, .. }) => {
                ctx.count_modified(&DocumentChanges { deleted, ..DocumentChanges::default() });
                results.n += deleted;
            }
            Err(error) if ends_command(ctx, &error) => return Err(error),
            Err(error) => {
                if results.fail(ctx, index, error, options) {
                    proceed = Proceed::Stop;
                }
            }
        }
        ctx.count(OpKind::Delete, 1);
        Ok(proceed)
    })?;
    results.write(request, reply, None);
    ctx.append_retried(reply);
    Ok(())
}

/// The fields of an element of `deletes`.
pub(super) const STATEMENT: &[Argument] = &[
    Argument::document("q").required(),
    Argument::number("limit").required(),
    HINT.since("4.4"),
    Argument::document("collation").since("3.4"),
    Argument::uuid("sampleId").since("7.0").unstable(),
];

/// Parses an element of `deletes`.
fn parse<'a>(statement: RawDoc<'a>, variables: Option<RawDoc<'a>>) -> Result<DeleteStatement<'a>> {
    let fields = Fields::read(statement, "delete.deletes", STATEMENT)?;
    let filter = fields.document("q")?.ok_or_else(|| fields.missing("q"))?;
    let multi = deletes_all(&fields)?;
    let (hint, collation) = (hint(&fields)?, Collating::parse(&fields)?);
    Ok(DeleteStatement { filter, multi, variables, hint, collation })
}

/// `limit`: whether all documents are deleted. A number between 0 and 1 is refused; a wrong type,
/// too, although the reference takes it for 0, because it could delete more than the client wanted.
///
/// # Errors
/// 40414, 14 TypeMismatch, 9 FailedToParse.
pub(super) fn deletes_all(fields: &Fields<'_>) -> Result<bool> {
    let limit = fields.required("limit")?;
    let Some(number) = Number::from_value(limit) else {
        return Err(fields.wrong("limit", limit, "[long, int, decimal, double]"));
    };
    match number.to_i64_exact() {
        Some(0) => Ok(true),
        Some(1) => Ok(false),
        _ => {
            let shown = ShellValue(limit);
            Err(Error::failed_to_parse(format!(
                "The limit field in delete objects must be 0 or 1. Got {shown}"
            )))
        }
    }
}

/// A delete statement of any command, with its filter not yet parsed.
pub(super) struct DeleteStatement<'a> {
    pub(super) filter: RawDoc<'a>,
    pub(super) multi: bool,
    /// `let` of the command.
    pub(super) variables: Option<RawDoc<'a>>,
    pub(super) hint: Option<Hint>,
    pub(super) collation: Collating,
}

impl DeleteStatement<'_> {
    fn spec(
        &self,
        ctx: &CommandContext<'_>,
        collection: Option<&Collection>,
        repeatable: Option<Repeatable>,
    ) -> Result<DeleteSpec> {
        let options = FindOptions {
            hint: self.hint.clone(),
            variables: self.variables,
            time: Some(ctx.time()),
            collation: self.collation.over(collection),
            scripts: Some(ctx.service.settings.script_limits()),
            ..FindOptions::default()
        };
        let query = CanonicalQuery::parse(self.filter, options)?;
        let budget = write_budget(ctx, self.multi);
        Ok(DeleteSpec { query, multi: self.multi, repeatable, budget })
    }
}

impl WriteStatement for DeleteStatement<'_> {
    fn filter(&self) -> RawDoc<'_> {
        self.filter
    }

    fn is_multi(&self) -> bool {
        self.multi
    }

    fn prepare(
        &self,
        ctx: &CommandContext<'_>,
        ns: &Namespace,
        repeatable: Option<Repeatable>,
    ) -> Result<PreparedWrite> {
        let collection = ctx.store.collection(ns);
        self.spec(ctx, collection.as_deref(), repeatable)
            .map(|spec| PreparedWrite::Delete(Box::new(spec)))
    }

    /// `matched` in the outcome is the number of deleted documents.
    fn run(&self, ctx: &CommandContext<'_>, ns: &Namespace, index: usize) -> Result<ModifyOutcome> {
        let statement = match ctx.attempt(index)? {
            Attempt::Again(record) => return Ok(ModifyOutcome::recall(record.as_doc()).0),
            Attempt::First(statement) => statement,
        };
        let collection = ctx.store.collection(ns);
        let series = measurements::series_named(ctx, ns);
        let buckets = series.as_ref().map(|(buckets, _)| &**buckets);
        let spec = self.spec(ctx, collection.as_deref().or(buckets), repeatable(statement))?;
        let deleted = match (series, &collection) {
            (Some(series), _) => measurements::delete(ctx, &series, spec)?,
            (None, None) => {
                check_absent(&spec.query, ns)?;
                ctx.service.store.check_no_view(ctx.store.view, ns)?;
                0
            }
            (None, Some(buckets)) if measurements::buckets_named(ctx, ns).is_some() => {
                measurements::on_raw_buckets(ctx, buckets, || {
                    mayfly_query::delete_raw_buckets(ctx.store, buckets, &spec)
                })?
            }
            (None, Some(collection)) => match mayfly_query::delete(ctx.store, collection, &spec) {
                // The collection was dropped concurrently: nothing is left to delete.
                Err(error) if was_dropped(ctx.store, &error, collection) => 0,
                other => other?,
            },
        };
        let outcome = ModifyOutcome { matched: deleted, ..ModifyOutcome::default() };
        if deleted > 0 {
            ctx.committed(statement, || outcome.record(None));
        }
        Ok(outcome)
    }
}
