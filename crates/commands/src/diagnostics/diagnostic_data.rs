//! `getDiagnosticData`: the current metrics for monitoring in one reply. Nothing is sampled in the
//! background.

use mayfly_auth::Action;
use mayfly_base::Result;
use mayfly_service::system::{Numbers, SystemMetrics};
use mayfly_storage::OPLOG;
use mayfly_value::{DocBuilder, RawValue};

use super::coll_stats::append_log;
use super::member::append_set_status;
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
    reply.start_document("data").append("start", now(ctx));
    section(ctx, "serverStatus", reply, |reply| {
        server_status::append(ctx, request, reply);
        Ok(())
    })?;
    if let Some(set) = ctx.service.replica_set.get() {
        section(ctx, "replSetGetStatus", reply, |reply| {
            append_set_status(ctx, set, reply);
            Ok(())
        })?;
    }
    section(ctx, "local.oplog.rs.stats", reply, |reply| {
        reply.append("ns", OPLOG);
        append_log(ctx, 1, reply)
    })?;
    section(ctx, "systemMetrics", reply, |reply| {
        append_system(&SystemMetrics::now(), reply);
        Ok(())
    })?;
    reply.append("end", now(ctx)).end();
    Ok(())
}

fn now(ctx: &CommandContext<'_>) -> RawValue<'static> {
    RawValue::Date(ctx.service.clock.now_ms())
}

/// Appends a document with the times at which it was begun and finished.
fn section(
    ctx: &CommandContext<'_>,
    name: &str,
    reply: &mut DocBuilder,
    append: impl FnOnce(&mut DocBuilder) -> Result<()>,
) -> Result<()> {
    reply.start_document(name).append("start", now(ctx));
    append(reply)?;
    reply.append("end", now(ctx)).end();
    Ok(())
}

fn append_system(system: &SystemMetrics, doc: &mut DocBuilder) {
    for (name, numbers) in
        [("cpu", &system.cpu), ("memory", &system.memory), ("vmstat", &system.vmstat)]
    {
        append_numbers(name, numbers, doc);
    }
    doc.start_document("disks");
    system.disks.iter().for_each(|(name, numbers)| append_numbers(name, numbers, doc));
    doc.end();
}

fn append_numbers(name: &str, numbers: &Numbers, doc: &mut DocBuilder) {
    doc.start_document(name);
    for (name, number) in numbers {
        doc.append(name, *number);
    }
    doc.end();
}
