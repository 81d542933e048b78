//! The replica-set commands of a server that is in none.

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_value::DocBuilder;

use crate::{CommandContext, Request, Row, RowFlags};

const FLAGS: RowFlags = RowFlags::ADMIN_ONLY.and(RowFlags::LENIENT);

pub(crate) const GET_STATUS: Row =
    Row::new("replSetGetStatus", "Shows the state of the replica set", run).flags(FLAGS);
pub(crate) const GET_CONFIG: Row =
    Row::new("replSetGetConfig", "Shows the replica set's configuration", run)
        .since("3.0")
        .flags(FLAGS);
pub(crate) const INITIATE: Row =
    Row::new("replSetInitiate", "Begins a replica set", run_initiate).flags(FLAGS);

fn run(_: &mut CommandContext<'_>, _: &Request<'_>, _: &mut DocBuilder) -> Result<()> {
    Err(Error::new(ErrorCode::NoReplicationEnabled, "not running with --replSet"))
}

fn run_initiate(_: &mut CommandContext<'_>, _: &Request<'_>, _: &mut DocBuilder) -> Result<()> {
    let text = "This node was not started with replication enabled.";
    Err(Error::new(ErrorCode::NoReplicationEnabled, text))
}
