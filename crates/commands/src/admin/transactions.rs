//! `commitTransaction` and `abortTransaction`; and commands of shards, which this server refuses.

use std::cell::{RefCell, RefMut};

use mayfly_auth::Action;
use mayfly_base::{Error, ErrorCode, Result};
use mayfly_service::CheckedOut;
use mayfly_value::DocBuilder;

use crate::context::{Command, CommandContext};
use crate::request::row::{Expected, InTransaction, RowFlags, Writes};
use crate::request::{Needs, Request};
use mayfly_value::arguments::Argument;

pub(crate) const COMMIT: Command =
    Command::new("commitTransaction", "Commits a transaction of several statements", run_commit)
        .arguments(ARGUMENTS)
        .needs(Needs::Nothing)
        .since("4.0")
        .flags(RowFlags::ADMIN_ONLY.union(RowFlags::STABLE))
        .writes(Writes::Settings)
        .in_transaction(InTransaction::Ends)
        .expected(Expected::Long);
pub(crate) const ABORT: Command =
    Command::new("abortTransaction", "Aborts a transaction of several statements", run_abort)
        .arguments(ARGUMENTS)
        .needs(Needs::Nothing)
        .since("4.0")
        .flags(RowFlags::ADMIN_ONLY.union(RowFlags::STABLE))
        .writes(Writes::Settings)
        .in_transaction(InTransaction::Ends)
        .expected(Expected::Long);
pub(crate) const PREPARE: Command =
    Command::new("prepareTransaction", "Prepares a transaction on a shard", refuse)
        .needs(Needs::Cluster(&[Action::Internal]))
        .since("4.2")
        .flags(RowFlags::ADMIN_ONLY.union(RowFlags::LENIENT))
        .in_transaction(InTransaction::Statement);
pub(crate) const COORDINATE: Command =
    Command::new("coordinateCommitTransaction", "Commits a transaction of several shards", refuse)
        .needs(Needs::Cluster(&[Action::Internal]))
        .since("4.2")
        .flags(RowFlags::ADMIN_ONLY.union(RowFlags::LENIENT))
        .in_transaction(InTransaction::Statement);

/// The fields of both commands. `recoveryToken` is that of an earlier reply, and is ignored.
const ARGUMENTS: &[Argument] = &[Argument::document("recoveryToken")];

/// Commits the transaction. A repeated commit is not an error, because the client may not have
/// received the first answer.
fn run_commit(ctx: &CommandContext<'_>, request: &Request<'_>, _: &mut DocBuilder) -> Result<()> {
    request.arguments()?;
    let (store, op) = (&ctx.service.store, ctx.op);
    let again = transaction(ctx, request)?.commit(store, op)?;
    if again {
        ctx.service.sessions.transactions.retried_commands.add(1);
    }
    Ok(())
}

fn run_abort(ctx: &CommandContext<'_>, request: &Request<'_>, _: &mut DocBuilder) -> Result<()> {
    request.arguments()?;
    transaction(ctx, request)?.abort(ctx.op)
}

fn transaction<'t>(
    ctx: &'t CommandContext<'_>,
    request: &Request<'_>,
) -> Result<RefMut<'t, CheckedOut>> {
    ctx.transaction.map(RefCell::borrow_mut).ok_or_else(|| {
        let text = format!("{} must be run within a transaction", request.row.name);
        Error::new(ErrorCode::CommandFailed, text)
    })
}

fn refuse(_: &CommandContext<'_>, _: &Request<'_>, _: &mut DocBuilder) -> Result<()> {
    Err(Error::new(
        ErrorCode::ShardingStateNotInitialized,
        "Cannot accept sharding commands if sharding state has not been initialized with a shardIdentity document",
    ))
}
