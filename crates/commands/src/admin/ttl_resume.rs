//! `ttlResume`: expiry goes on after the clock could not be trusted. An extension.

use mayfly_auth::Action;
use mayfly_base::Result;
use mayfly_value::DocBuilder;

use crate::crud::wrote;
use crate::{CommandContext, Needs, Request, Row, RowFlags};

pub(crate) const ROW: Row =
    Row::new("ttlResume", "Lets expiry go on by the clock as it is, after it was suspended", run)
        .needs(Needs::Cluster(&[Action::SetParameter]))
        .flags(RowFlags::ADMIN_ONLY.and(RowFlags::WRITE_CONCERN));

fn run(ctx: &mut CommandContext<'_>, request: &Request<'_>, reply: &mut DocBuilder) -> Result<()> {
    request.fields(&[])?;
    reply.append("wasSuspended", ctx.service.store.resume_expiry()?);
    wrote(ctx, request);
    Ok(())
}
