//! `refreshLogicalSessionCacheNow` and `reapLogicalSessionCacheNow`: what happens to sessions by itself, at once.
//!
//! Sessions are kept in memory, and this server is the only one that keeps them: a refresh has nobody to tell, and only lets
//! those go that have timed out. Reaping does that, too, and removes what timed out sessions have written down.

use mayfly_base::Result;
use mayfly_value::DocBuilder;

use crate::context::{Command, CommandContext};
use crate::request::row::Expected;
use crate::request::{Needs, Request};

pub(super) const REFRESH: Command =
    Command::new("refreshLogicalSessionCacheNow", "Refreshes the sessions at once", run_refresh)
        .needs(Needs::Nothing)
        .since("3.6");
pub(super) const REAP: Command =
    Command::new("reapLogicalSessionCacheNow", "Removes sessions that timed out", run_reap)
        .needs(Needs::Nothing)
        .since("3.6")
        .expected(Expected::Long);

fn run_refresh(ctx: &CommandContext<'_>, request: &Request<'_>, _: &mut DocBuilder) -> Result<()> {
    request.fields(&[])?;
    ctx.service.sessions.count(ctx.service.clock.now_ms());
    Ok(())
}

fn run_reap(ctx: &CommandContext<'_>, request: &Request<'_>, _: &mut DocBuilder) -> Result<()> {
    request.fields(&[])?;
    ctx.service.sessions.count(ctx.service.clock.now_ms());
    ctx.service.store.sweep_statements()
}
