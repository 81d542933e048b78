//! Commands about the state of a replica set's member: `replSetStepUp`, `replSetMaintenance`,
//! `replSetGetRBID`.

use mayfly_auth::Action;
use mayfly_base::{Error, ErrorCode, Result};
use mayfly_value::DocBuilder;

use super::replication::set;
use crate::context::{Command, CommandContext};
use crate::request::row::RowFlags;
use crate::request::{Needs, Request};

pub(super) const STEP_UP: Command =
    Command::new("replSetStepUp", "Makes this member the primary", run_step_up)
        .needs(Needs::Cluster(&[Action::ReplSetStateChange]))
        .since("3.6")
        .flags(RowFlags::ADMIN_ONLY.union(RowFlags::LENIENT));
pub(super) const MAINTENANCE: Command =
    Command::new("replSetMaintenance", "Puts a secondary into maintenance", run_maintenance)
        .needs(Needs::Cluster(&[Action::ReplSetStateChange]))
        .flags(RowFlags::ADMIN_ONLY.union(RowFlags::LENIENT));
pub(super) const GET_RBID: Command =
    Command::new("replSetGetRBID", "Returns the number of rollbacks", run_rbid)
        .needs(Needs::Cluster(&[Action::ReplSetGetStatus]))
        .flags(RowFlags::ADMIN_ONLY.union(RowFlags::LENIENT));

/// The only member of a set is elected at once. On the primary the command has no effect. A
/// secondary becomes the primary only when the primary is gone.
fn run_step_up(ctx: &CommandContext<'_>, _: &Request<'_>, _: &mut DocBuilder) -> Result<()> {
    set(ctx)?;
    ctx.service.store.step_up();
    match ctx.service.is_primary() {
        true => Ok(()),
        false => {
            let text = "Election failed: another server owns the store.";
            Err(Error::new(ErrorCode::CommandFailed, text))
        }
    }
}

fn run_maintenance(ctx: &CommandContext<'_>, _: &Request<'_>, _: &mut DocBuilder) -> Result<()> {
    set(ctx)?;
    if ctx.service.is_primary() {
        let text = "primaries can't modify maintenance mode";
        return Err(Error::new(ErrorCode::NotSecondary, text));
    }
    Err(Error::not_implemented("the maintenance mode of a secondary"))
}

/// Without other members there is no rollback: the number keeps its first value.
fn run_rbid(ctx: &CommandContext<'_>, _: &Request<'_>, reply: &mut DocBuilder) -> Result<()> {
    set(ctx)?;
    reply.append("rbid", 1);
    Ok(())
}
