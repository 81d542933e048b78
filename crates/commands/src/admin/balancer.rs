//! `balancerStatus`: answered like a router. The balancer has no shards to balance.

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_value::DocBuilder;

use crate::context::{Command, CommandContext};
use crate::request::row::RowFlags;
use crate::request::{Needs, Request};
use crate::rules::rights::demands;

pub(super) const STATUS: Command =
    Command::new("balancerStatus", "Returns the state of the balancer", run)
        .needs(Needs::Demands(demands::config_settings))
        .since("3.4")
        .flags(RowFlags::ADMIN_ONLY);

fn run(ctx: &CommandContext<'_>, request: &Request<'_>, reply: &mut DocBuilder) -> Result<()> {
    request.arguments()?;
    if ctx.service.replica_set.get().is_some() {
        let text = "no such command: 'balancerStatus'";
        return Err(Error::new(ErrorCode::CommandNotFound, text));
    }
    reply.append("mode", "off").append("inBalancerRound", false);
    reply.append("numBalancerRounds", 0i64);
    Ok(())
}
