//! `balancerStatus`: answered like a router. The balancer has no shards to balance.

use mayfly_base::Result;
use mayfly_service::sharding;
use mayfly_value::DocBuilder;

use super::sharding::check_router;
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
    check_router(ctx, request)?;
    let runs = sharding::balancer_runs(&ctx.service.store)?;
    reply.append("mode", if runs { "full" } else { "off" }).append("inBalancerRound", false);
    reply.append("numBalancerRounds", 0i64);
    Ok(())
}
