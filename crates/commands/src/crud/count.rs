//! `count`.

use mayfly_auth::Action;
use mayfly_base::{Error, Result};
use mayfly_query::{CanonicalQuery, Executor, FindOptions, PipelineRun, check_absent};
use mayfly_storage::ResolvedView;
use mayfly_value::arguments::Argument;
use mayfly_value::shell::ShellValue;
use mayfly_value::{DocBuilder, Number, RawDoc, RawValue};

use super::explain;
use super::read::{Collating, hint};
use super::view::{
    Source, Stages, budget, decide_collation, only, reads_log, run_settings, source,
};
use crate::context::{Command, CommandContext};
use crate::request::arguments::{HINT, INFORMATION};
use crate::request::row::{Encrypted, Expected, InTransaction, Reads, RowFlags};
use crate::request::{Fields, Needs, Request};

/// The suggested alternative in a transaction.
const TRANSACTIONS: &str =
    "Please see http://dochub.mongodb.org/core/transaction-count for a recommended alternative.";

pub(crate) const ROW: Command = Command::new("count", "Counts documents", run)
    .arguments(ARGUMENTS)
    .needs(Needs::Collection(&[Action::Find]))
    .flags(RowFlags::STABLE)
    .reads(
        Reads::PREFERENCE
            .union(Reads::DEFAULTS)
            .union(Reads::COUNTED)
            .union(Reads::COMMITTED)
            .union(Reads::LINEARIZABLE),
    )
    .in_transaction(InTransaction::RefusedWith(TRANSACTIONS))
    .expected(Expected::Long)
    .encrypted(Encrypted::Filter("query"))
    .explained(explain::count);

/// The arguments; `fields` is ignored.
pub(crate) const ARGUMENTS: &[Argument] = &[
    Argument::document("query"),
    Argument::whole("limit")
        .null_is_value()
        .refused_with(2, "limit value is not a valid number, but {}"),
    Argument::whole("skip").at_least(0),
    HINT,
    Argument::any("collation").since("3.4"),
    Argument::any("fields"),
    INFORMATION,
];

fn run(ctx: &CommandContext<'_>, request: &Request<'_>, reply: &mut DocBuilder) -> Result<()> {
    let fields = request.arguments()?;
    let collating = Collating::parse(&fields)?;
    let ns = request.namespace()?;
    let skip = fields.long("skip")?.unwrap_or(0);
    let limit = limit_of(&fields)?;
    let filter = fields.document("query")?.unwrap_or(RawDoc::EMPTY);
    let collection = ctx.store.collection(&ns);
    let options = FindOptions {
        skip: skip as u64,
        limit,
        hint: hint(&fields)?,
        time: Some(ctx.time()),
        collation: collating.over(collection.as_deref()),
        scripts: Some(ctx.service.settings.script_limits()),
        ..FindOptions::default()
    };
    let query = CanonicalQuery::parse(filter, options)?;
    let collection = match source(ctx, &ns)? {
        Source::Collection(collection) => collection,
        Source::View(view) if view.shows_buckets() && filter.is_empty() && query.hint.is_none() => {
            // All buckets can be counted without reading them.
            match collection {
                Some(collection) => collection,
                None => {
                    reply.append("n", 0);
                    return Ok(());
                }
            }
        }
        Source::View(view) if reads_log(&view) && filter.is_empty() && query.hint.is_none() => {
            // The count of a long log is an estimate, as the reference's fast count is.
            let all = ctx.service.store.oplog().sizes()?.entries;
            reply.append("n", number(within(all, skip, limit)));
            return Ok(());
        }
        Source::View(mut view) => {
            decide_collation(&mut view, &collating)?;
            let (stages, settings) = (on_view(&view, filter, skip, limit), run_settings(ctx, None));
            let stages = stages.parse((ctx, request), &view, None)?;
            let run = stages.start(ctx, query.hint, settings)?;
            reply.append("n", number(counted_by(ctx, run)?));
            return Ok(());
        }
        Source::Nothing => {
            check_absent(&query, &ns)?;
            reply.append("n", 0);
            return Ok(());
        }
    };
    let store = &ctx.service.store;
    let countless = collection.hides_expired();
    let count = if filter.is_empty() && query.hint.is_none() && !countless {
        let (all, _) = store.recent_size(ctx.op, &collection)?;
        within(all, skip, limit)
    } else {
        let mut executor = Executor::new(ctx.store.view, collection, query)?;
        executor.name_failures(request.row.name);
        if executor.buffers_between_batches() {
            executor.use_budget(budget(ctx, None));
        }
        executor.count_only();
        ctx.op.update_info(|info| info.plan_summary = executor.plan().summary());
        let counted = executor.count(ctx.store)?;
        i64::try_from(counted).unwrap_or(i64::MAX)
    };
    reply.append("n", number(count));
    Ok(())
}

/// The limit, which is a whole number. A negative one has the effect of a positive one.
///
/// # Errors
/// 9 FailedToParse unless it is a 64-bit integer, 2 BadValue for the least one.
pub(crate) fn limit_of(fields: &Fields<'_>) -> Result<u64> {
    let Some(value) = fields.get("limit") else { return Ok(0) };
    match Number::from_value(value).and_then(Number::to_i64_exact) {
        Some(i64::MIN) => Err(Error::bad_value("limit value for count cannot be min long")),
        Some(limit) => Ok(limit.unsigned_abs()),
        None => {
            let shown = ShellValue(value);
            Err(Error::failed_to_parse(format!("Expected an integer: limit: {shown}")))
        }
    }
}

/// The number of documents after a skip and a limit; a limit of 0 is none.
fn within(all: i64, skip: i64, limit: u64) -> i64 {
    let remaining = (all - skip).max(0);
    if limit == 0 { remaining } else { remaining.min(i64::try_from(limit).unwrap_or(i64::MAX)) }
}

/// The count as stages after those of a view.
pub(crate) fn on_view(view: &ResolvedView, filter: RawDoc<'_>, skip: i64, limit: u64) -> Stages {
    let mut stages = Stages::new(view);
    stages.push_document("$match", Some(filter));
    if skip > 0 {
        stages.push("$skip", skip);
    }
    if limit > 0 {
        stages.push("$limit", i64::try_from(limit).unwrap_or(i64::MAX));
    }
    stages.push("$count", "count");
    stages
}

/// The result of `$count` at the end of a pipeline.
fn counted_by(ctx: &CommandContext<'_>, run: PipelineRun) -> Result<i64> {
    let counted = only(ctx, run)?;
    let counted = counted.as_ref().and_then(|counted| counted.as_doc().get("count"));
    Ok(counted.and_then(Number::from_value).and_then(Number::to_i64_exact).unwrap_or(0))
}

fn number(count: i64) -> RawValue<'static> {
    i32::try_from(count).map_or(RawValue::Int64(count), RawValue::Int32)
}
