//! `ttlResume`: resumes expiry after it was suspended because the clock was not trusted. An
//! extension.

use mayfly_auth::Action;
use mayfly_base::Result;
use mayfly_value::DocBuilder;

use crate::context::{Command, CommandContext};
use crate::request::row::{RowFlags, Writes};
use crate::request::{Needs, Request};

pub(crate) const ROW: Command =
    Command::new("ttlResume", "Resumes expiry with the current clock after it was suspended", run)
        .needs(Needs::Cluster(&[Action::SetParameter]))
        .flags(RowFlags::ADMIN_ONLY)
        .writes(Writes::Settings);

fn run(ctx: &CommandContext<'_>, request: &Request<'_>, reply: &mut DocBuilder) -> Result<()> {
    request.arguments()?;
    reply.append("wasSuspended", ctx.service.store.resume_expiry()?);
    Ok(())
}
