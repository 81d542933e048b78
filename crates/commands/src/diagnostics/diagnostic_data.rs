//! `getDiagnosticData`: the current metrics for monitoring in one reply. Nothing is sampled in the
//! background.

use mayfly_auth::Action;
use mayfly_base::Result;
use mayfly_value::{DocBuilder, RawValue};

use super::server_status;
use crate::context::{Command, CommandContext};
use crate::request::row::RowFlags;
use crate::request::{Needs, Request};

pub(super) const ROW: Command =
    Command::new("getDiagnosticData", "Returns the server's metrics in one document", run)
        .needs(Needs::Cluster(&[Action::ServerStatus, Action::ReplSetGetStatus]))
        .since("3.4")
        .flags(RowFlags::ADMIN_ONLY);

fn run(ctx: &CommandContext<'_>, request: &Request<'_>, reply: &mut DocBuilder) -> Result<()> {
    request.arguments()?;
    let now = |ctx: &CommandContext<'_>| RawValue::Date(ctx.service.clock.now_ms());
    reply.start_document("data").append("start", now(ctx));
    reply.start_document("serverStatus").append("start", now(ctx));
    server_status::append(ctx, request, reply);
    reply.append("end", now(ctx)).end();
    reply.append("end", now(ctx)).end();
    Ok(())
}
