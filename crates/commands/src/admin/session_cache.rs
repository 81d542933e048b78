//! `refreshLogicalSessionCacheNow` and `reapLogicalSessionCacheNow`: run the periodic tasks of
//! sessions at once.
//!
//! Sessions are kept in the memory of this server only, so a refresh has nothing to synchronize and
//! only removes sessions that have timed out. Reaping also removes their stored statements.

use mayfly_base::Result;
use mayfly_value::DocBuilder;

use crate::context::{Command, CommandContext};
use crate::request::row::Expected;
use crate::request::{Needs, Request};

pub(super) const REFRESH: Command =
    Command::new("refreshLogicalSessionCacheNow", "Refreshes sessions at once", run_refresh)
        .needs(Needs::Nothing)
        .since("3.6");
pub(super) const REAP: Command =
    Command::new("reapLogicalSessionCacheNow", "Removes sessions that have timed out", run_reap)
        .needs(Needs::Nothing)
        .since("3.6")
        .expected(Expected::Long);

fn run_refresh(ctx: &CommandContext<'_>, request: &Request<'_>, _: &mut DocBuilder) -> Result<()> {
    request.arguments()?;
    ctx.service.sessions.count(ctx.service.clock.now_ms());
    Ok(())
}

fn run_reap(ctx: &CommandContext<'_>, request: &Request<'_>, _: &mut DocBuilder) -> Result<()> {
    request.arguments()?;
    ctx.service.sessions.count(ctx.service.clock.now_ms());
    ctx.service.store.sweep_statements()
}
