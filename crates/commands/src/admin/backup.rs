//! `backup`: backs the data up into a repository, while clients write; `backupStatus`: the last and
//! the running backup. Extensions.

use mayfly_auth::Action;
use mayfly_base::{Error, ErrorCode, Result};
use mayfly_service::{BackupOutcome, BackupParent, BackupRequest};
use mayfly_value::arguments::{Argument, Form};
use mayfly_value::{DocBuilder, RawValue};

use crate::context::{Command, CommandContext};
use crate::request::row::{Expected, RowFlags};
use crate::request::{Needs, Request};

pub(super) const ROW: Command =
    Command::new("backup", "Backs up the data into a folder or an object store", run)
        .arguments(ARGUMENTS)
        .needs(Needs::Cluster(&[Action::Backup]))
        .flags(RowFlags::ADMIN_ONLY)
        .expected(Expected::Long);
pub(super) const STATUS: Command =
    Command::new("backupStatus", "Returns the last backup and the one that is running", run_status)
        .needs(Needs::Cluster(&[Action::ServerStatus]))
        .flags(RowFlags::ADMIN_ONLY);

const AUTO: &str = "auto";
const ARGUMENTS: &[Argument] = &[
    Argument::string("to").required(),
    Argument::new("parent", Form::Choice(&[AUTO, "none"])),
    Argument::whole("maxMBps").at_least(0).at_most(1_000_000),
];

fn run(ctx: &CommandContext<'_>, request: &Request<'_>, reply: &mut DocBuilder) -> Result<()> {
    let fields = request.arguments()?;
    let to = fields.string("to")?.unwrap_or_default();
    if to.is_empty() {
        let text = "'to' must name a folder or a URL under those of the server's configuration";
        return Err(Error::new(ErrorCode::InvalidOptions, text));
    }
    let parent = match fields.string("parent")?.unwrap_or(AUTO) {
        AUTO => BackupParent::Latest,
        _ => BackupParent::None,
    };
    let max_mb_per_second = fields.long("maxMBps")?.unwrap_or(0).try_into().unwrap_or(0);
    let request = BackupRequest { to: to.to_owned(), parent, max_mb_per_second };
    let began = ctx.op.monotonic_micros();
    let outcome = ctx.service.backups.back_up(ctx.op, &request)?;
    append(&outcome, reply);
    reply.append("millis", (ctx.op.monotonic_micros() - began) / 1000);
    Ok(())
}

fn append(outcome: &BackupOutcome, reply: &mut DocBuilder) {
    reply.append("id", outcome.id.as_str());
    reply.append("time", RawValue::Timestamp(outcome.time));
    reply.append("parent", outcome.parent.as_deref().map_or(RawValue::Null, RawValue::String));
    reply.append("files", outcome.files).append("reusedFiles", outcome.reused_files);
    reply.append("bytes", outcome.bytes).append("sentBytes", outcome.sent_bytes);
    reply.append("checkpointMicros", outcome.checkpoint_micros);
}

fn run_status(
    ctx: &CommandContext<'_>,
    request: &Request<'_>,
    reply: &mut DocBuilder,
) -> Result<()> {
    request.arguments()?;
    let now_ms = ctx.op.now_ms();
    if let Some(last) = ctx.service.store.recorded_backups()?.last() {
        reply.start_document("last").append("id", last.id.as_str()).append("to", last.to.as_str());
        reply.append("time", RawValue::Timestamp(last.time));
        reply.append("finished", RawValue::Date(last.finished_ms));
        reply.append("ageSecs", now_ms.saturating_sub(last.finished_ms).max(0) / 1000);
        reply.append("bytes", last.bytes).append("sentBytes", last.sent_bytes).end();
    }
    if let Some(archive) = ctx.service.backups.archive() {
        let settled = ctx.service.store.oplog().settled();
        // Without entries after it, the archive is up to date.
        let lag = match archive.archived >= settled {
            true => 0,
            false => (now_ms / 1000).saturating_sub((archive.archived >> 32) as i64).max(0),
        };
        reply.start_document("archive").append("to", archive.to.as_str());
        reply.append("archivedUpTo", RawValue::Timestamp(archive.archived));
        reply.append("lagSecs", lag).append("gaps", archive.gaps);
        if let Some(error) = &archive.error {
            reply.append("errmsg", error.as_str());
        }
        reply.end();
    }
    if let Some(running) = ctx.service.backups.running() {
        reply.start_document("running").append("opid", running.op_id);
        reply.append("to", running.to.as_str());
        reply.append("started", RawValue::Date(running.started_ms)).end();
    }
    if let Some(failed) = ctx.service.backups.failed() {
        reply.start_document("failed").append("to", failed.to.as_str());
        reply.append("at", RawValue::Date(failed.at_ms));
        reply.append("errmsg", failed.error.as_str()).end();
    }
    Ok(())
}
