//! Commands that return little on a single server: `connPoolStats`, `lockInfo`.

use mayfly_auth::Action;
use mayfly_base::Result;
use mayfly_value::arguments::Argument;
use mayfly_value::{DocBuilder, RawDoc};

use crate::context::{Command, CommandContext};
use crate::request::row::RowFlags;
use crate::request::{Needs, Request};

pub(crate) const CONN_POOL_STATS: Command =
    Command::new("connPoolStats", "Returns the connections to other servers", run_pools)
        .needs(Needs::Cluster(&[Action::ConnPoolStats]))
        .flags(RowFlags::LENIENT);
pub(crate) const LOCK_INFO: Command =
    Command::new("lockInfo", "Lists locks that are held", run_locks)
        .arguments(&[Argument::any("includeStorageEngineDump")])
        .needs(Needs::Cluster(&[Action::ServerStatus]))
        .since("3.4")
        .flags(RowFlags::ADMIN_ONLY);

fn run_pools(_: &CommandContext<'_>, request: &Request<'_>, doc: &mut DocBuilder) -> Result<()> {
    request.arguments()?;
    doc.append("numClientConnections", 0).append("numAScopedConnections", 0);
    for name in ["totalInUse", "totalAvailable", "totalLeased", "totalCreated", "totalRefreshing"] {
        doc.append(name, 0);
    }
    doc.append("totalRefreshed", 0);
    for name in ["pools", "hosts", "replicaSets"] {
        doc.append(name, RawDoc::EMPTY);
    }
    Ok(())
}

/// The name of the lock that `fsync` holds.
const GLOBAL_LOCK: &str = "{2305843009213693953: Global, 1}";

fn run_locks(ctx: &CommandContext<'_>, request: &Request<'_>, doc: &mut DocBuilder) -> Result<()> {
    request.arguments()?;
    // Other locks are only held briefly, inside the store.
    doc.start_array("lockInfo");
    if ctx.service.store.fsync_lock.count() > 0 {
        doc.push_document().append("resourceId", GLOBAL_LOCK).start_array("granted");
        doc.push_document().append("mode", "S").append("debugInfo", "fsync").end().end();
        doc.start_array("pending").end().end();
    }
    doc.end();
    Ok(())
}
