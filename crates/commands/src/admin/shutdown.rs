//! `shutdown`: a clean stop, as after a SIGTERM.

use mayfly_auth::Action;
use mayfly_base::Result;
use mayfly_service::Actor;
use mayfly_value::DocBuilder;
use mayfly_value::arguments::Argument;

use crate::context::{Command, CommandContext};
use crate::request::row::RowFlags;
use crate::request::{Needs, Request};

pub(crate) const ROW: Command = Command::new("shutdown", "Stops the server", run)
    .arguments(&[Argument::flag("force"), Argument::whole("timeoutSecs")])
    .needs(Needs::Cluster(&[Action::Shutdown]))
    .flags(RowFlags::ADMIN_ONLY);

fn run(ctx: &CommandContext<'_>, request: &Request<'_>, _: &mut DocBuilder) -> Result<()> {
    let fields = request.arguments()?;
    // All members read one store, so there is nothing to force and none to wait for; only the types
    // are checked.
    fields.bool("force")?;
    fields.long("timeoutSecs")?;
    tracing::info!(client = &*ctx.connection.client, "a client requested a shutdown");
    ctx.service.audit_stop(Actor::Client(ctx.connection));
    ctx.effects.close_connection();
    ctx.service.shutdown.request();
    Ok(())
}
