//! `shutdown`: the same clean stop as a SIGTERM.

use mayfly_auth::Action;
use mayfly_base::Result;
use mayfly_service::Actor;
use mayfly_value::DocBuilder;

use crate::{CommandContext, Needs, Request, Row, RowFlags};

pub(crate) const ROW: Row = Row::new("shutdown", "Stops the server", run)
    .needs(Needs::Cluster(&[Action::Shutdown]))
    .flags(RowFlags::ADMIN_ONLY);

fn run(ctx: &mut CommandContext<'_>, request: &Request<'_>, _: &mut DocBuilder) -> Result<()> {
    request.fields(&["force", "timeoutSecs"])?;
    tracing::info!(client = &*ctx.connection.client, "shutdown was asked for");
    ctx.service.audit_stop(Actor::Client(ctx.connection));
    ctx.close_connection = true;
    ctx.service.shutdown.request();
    Ok(())
}
