//! Information about the connection and the startup options: `connectionStatus`, `whatsmyuri`,
//! `_isSelf`, `isdbgrid`, `getCmdLineOpts`.

use mayfly_auth::Action;
use mayfly_base::Result;
use mayfly_value::arguments::Argument;
use mayfly_value::{DocBuilder, RawValue};

use crate::access::authenticate::{self, StatusDetail};
use crate::context::{Command, CommandContext};
use crate::request::row::{InTransaction, RowFlags};
use crate::request::{Needs, Request};

pub(crate) const FEATURES: Command =
    Command::new("features", "Returns features of the process", run_features)
        .needs(Needs::Nothing)
        .flags(RowFlags::LENIENT);
pub(crate) const CONNECTION_STATUS: Command =
    Command::new("connectionStatus", "Returns the user of this connection", run_status)
        .arguments(&[Argument::flag("showPrivileges")])
        .needs(Needs::Nothing)
        .flags(RowFlags::BEFORE_AUTH)
        .in_transaction(InTransaction::Informational);
pub(crate) const WHATS_MY_URI: Command =
    Command::new("whatsmyuri", "Returns the client's address", run_uri)
        .needs(Needs::Nothing)
        .flags(RowFlags::BEFORE_AUTH.union(RowFlags::LENIENT));
pub(crate) const IS_SELF: Command = Command::new(
    "_isSelf",
    "Returns an identifier of the process, by which a member of a replica set recognizes its address",
    run_self,
)
.needs(Needs::Nothing)
.flags(RowFlags::BEFORE_AUTH.union(RowFlags::LENIENT));
pub(crate) const IS_DB_GRID: Command =
    Command::new("isdbgrid", "Reports that the server answers like a router", run_router)
        .needs(Needs::Nothing)
        .flags(RowFlags::BEFORE_AUTH.union(RowFlags::LENIENT));
pub(crate) const CMD_LINE_OPTS: Command = Command::new(
    "getCmdLineOpts",
    "Returns the options with which the server was started",
    run_options,
)
.needs(Needs::Cluster(&[Action::GetCmdLineOpts]))
.flags(RowFlags::ADMIN_ONLY);

fn run_status(ctx: &CommandContext<'_>, request: &Request<'_>, doc: &mut DocBuilder) -> Result<()> {
    let fields = request.arguments()?;
    let detail = match fields.bool("showPrivileges")? {
        Some(true) => StatusDetail::Privileges,
        Some(false) | None => StatusDetail::Roles,
    };
    authenticate::append_status(ctx, detail, doc)?;
    doc.append("uuid", RawValue::uuid(&connection_uuid(ctx)));
    Ok(())
}

/// An identifier of the connection: that of the process, and the number of the connection.
fn connection_uuid(ctx: &CommandContext<'_>) -> [u8; 16] {
    let mut uuid = [0; 16];
    uuid[..12].copy_from_slice(&ctx.service.topology.process_id());
    uuid[12..].copy_from_slice(&(ctx.connection.id as u32).to_be_bytes());
    // Version 8, which is for identifiers of this kind.
    uuid[6] = uuid[6] & 0x0F | 0x80;
    uuid[8] = uuid[8] & 0x3F | 0x80;
    uuid
}

fn run_uri(ctx: &CommandContext<'_>, _: &Request<'_>, doc: &mut DocBuilder) -> Result<()> {
    doc.append("you", &*ctx.connection.client);
    Ok(())
}

/// A number that is unique to the process: two addresses with the same answer lead to the same
/// server.
fn run_self(ctx: &CommandContext<'_>, _: &Request<'_>, doc: &mut DocBuilder) -> Result<()> {
    doc.append("id", RawValue::ObjectId(ctx.service.topology.process_id()));
    Ok(())
}

/// Only routers have this command; tools send it if they do not use `hello`.
fn run_router(ctx: &CommandContext<'_>, _: &Request<'_>, doc: &mut DocBuilder) -> Result<()> {
    doc.append("isdbgrid", 1.0).append("hostname", ctx.service.host.as_str());
    Ok(())
}

fn run_options(
    ctx: &CommandContext<'_>,
    request: &Request<'_>,
    doc: &mut DocBuilder,
) -> Result<()> {
    request.arguments()?;
    let command_line = &ctx.service.command_line;
    doc.start_array("argv");
    for word in &command_line.argv {
        doc.push(word.as_str());
    }
    doc.end();
    doc.append("parsed", &command_line.parsed);
    Ok(())
}

/// The reference returns the machine part of its ObjectIds, and whether scripts use UTF-8.
fn run_features(ctx: &CommandContext<'_>, _: &Request<'_>, reply: &mut DocBuilder) -> Result<()> {
    reply.start_document("js").append("utf8", true).end();
    let [.., a, b, c] = ctx.service.topology.process_id();
    reply.append("oidMachine", i32::from_be_bytes([0, a, b, c]));
    Ok(())
}
