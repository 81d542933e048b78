//! `ttlStatus`: the state of all TTL policies (expiry contract, section 9). An extension.

use mayfly_auth::Action;
use mayfly_base::Result;
use mayfly_value::DocBuilder;

use crate::context::{Command, CommandContext};
use crate::request::row::{Expected, RowFlags};
use crate::request::{Needs, Request};

pub(crate) const ROW: Command =
    Command::new("ttlStatus", "Returns the state of each TTL policy", run)
        .needs(Needs::Cluster(&[Action::ServerStatus]))
        .flags(RowFlags::ADMIN_ONLY)
        .expected(Expected::Long);

fn run(ctx: &CommandContext<'_>, request: &Request<'_>, reply: &mut DocBuilder) -> Result<()> {
    request.arguments()?;
    ctx.service.store.append_ttl_status(ctx.op, reply)
}
