//! `commitTransaction` and `abortTransaction`; and what only shards do, which this server is not.

use mayfly_auth::Action;
use mayfly_base::{Error, ErrorCode, Result};
use mayfly_service::CheckedOut;
use mayfly_value::{DocBuilder, RawValue};

use crate::crud::wrote;
use crate::fields::wrong_type;
use crate::{CommandContext, Needs, Request, Row, RowFlags};

const FLAGS: RowFlags = RowFlags::ADMIN_ONLY.and(RowFlags::WRITE_CONCERN).and(RowFlags::MAY_BLOCK);

pub(crate) const COMMIT: Row =
    Row::new("commitTransaction", "Commits a transaction of several statements", run_commit)
        .needs(Needs::Nothing)
        .since("4.0")
        .flags(FLAGS);
pub(crate) const ABORT: Row =
    Row::new("abortTransaction", "Aborts a transaction of several statements", run_abort)
        .needs(Needs::Nothing)
        .since("4.0")
        .flags(FLAGS);
pub(crate) const PREPARE: Row =
    Row::new("prepareTransaction", "Prepares a transaction on a shard", refuse)
        .needs(Needs::Cluster(&[Action::Internal]))
        .since("4.2")
        .flags(RowFlags::ADMIN_ONLY.and(RowFlags::LENIENT));
pub(crate) const COORDINATE: Row =
    Row::new("coordinateCommitTransaction", "Commits a transaction of several shards", refuse)
        .needs(Needs::Cluster(&[Action::Internal]))
        .since("4.2")
        .flags(RowFlags::ADMIN_ONLY.and(RowFlags::LENIENT));

/// Commits; once more is no error: the client may not have seen the first answer. Routers hand out a `recoveryToken` that says
/// which shard knows the outcome. Here there is one server that does, so that nobody needs one, and one that comes is left alone.
fn run_commit(
    ctx: &mut CommandContext<'_>,
    request: &Request<'_>,
    _: &mut DocBuilder,
) -> Result<()> {
    check_fields(request)?;
    let (store, op) = (&ctx.service.store, ctx.op);
    let again = transaction(&mut ctx.transaction, request)?.commit(store, op)?;
    if again {
        ctx.service.sessions.transactions.retried_commands.add(1);
    }
    wrote(ctx, request);
    Ok(())
}

fn run_abort(
    ctx: &mut CommandContext<'_>,
    request: &Request<'_>,
    _: &mut DocBuilder,
) -> Result<()> {
    check_fields(request)?;
    let op = ctx.op;
    transaction(&mut ctx.transaction, request)?.abort(op)
}

fn check_fields(request: &Request<'_>) -> Result<()> {
    let fields = request.fields(&["recoveryToken"])?;
    match fields.get("recoveryToken") {
        None | Some(RawValue::Document(_)) => Ok(()),
        Some(other) => {
            let path = format!("{}.recoveryToken", request.row.name);
            Err(wrong_type(&path, other, "object"))
        }
    }
}

fn transaction<'t>(
    session: &'t mut Option<CheckedOut>,
    request: &Request<'_>,
) -> Result<&'t mut CheckedOut> {
    session.as_mut().ok_or_else(|| {
        let text = format!("{} must be run within a transaction", request.row.name);
        Error::new(ErrorCode::CommandFailed, text)
    })
}

fn refuse(_: &mut CommandContext<'_>, _: &Request<'_>, _: &mut DocBuilder) -> Result<()> {
    Err(Error::new(
        ErrorCode::ShardingStateNotInitialized,
        "Cannot accept sharding commands if sharding state has not been initialized with a shardIdentity document",
    ))
}
