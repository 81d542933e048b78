//! Who is connected and how the server was started: `connectionStatus`, `whatsmyuri`, `isdbgrid`,
//! `getCmdLineOpts`.

use mayfly_base::Result;
use mayfly_value::DocBuilder;

use crate::{CommandContext, Request, Row, RowFlags};

pub(crate) const CONNECTION_STATUS: Row =
    Row::new("connectionStatus", "Tells who is logged in on this connection", run_status)
        .flags(RowFlags::BEFORE_AUTH);
pub(crate) const WHATS_MY_URI: Row =
    Row::new("whatsmyuri", "Tells the client's own address", run_uri)
        .flags(RowFlags::BEFORE_AUTH.and(RowFlags::LENIENT));
pub(crate) const IS_DB_GRID: Row = Row::new("isdbgrid", "Tells that this is a router", run_router)
    .flags(RowFlags::BEFORE_AUTH.and(RowFlags::LENIENT));
pub(crate) const CMD_LINE_OPTS: Row =
    Row::new("getCmdLineOpts", "Tells how the server was started", run_options)
        .flags(RowFlags::ADMIN_ONLY);

fn run_status(
    _: &mut CommandContext<'_>,
    request: &Request<'_>,
    doc: &mut DocBuilder,
) -> Result<()> {
    let fields = request.fields(&["showPrivileges"])?;
    doc.start_document("authInfo");
    doc.start_array("authenticatedUsers").end();
    doc.start_array("authenticatedUserRoles").end();
    if fields.bool("showPrivileges")? == Some(true) {
        doc.start_array("authenticatedUserPrivileges").end();
    }
    doc.end();
    Ok(())
}

fn run_uri(ctx: &mut CommandContext<'_>, _: &Request<'_>, doc: &mut DocBuilder) -> Result<()> {
    doc.append("you", &*ctx.connection.client);
    Ok(())
}

/// What routers answer and others do not know; tools ask it where they do not look at `hello`.
fn run_router(ctx: &mut CommandContext<'_>, _: &Request<'_>, doc: &mut DocBuilder) -> Result<()> {
    doc.append("isdbgrid", 1.0).append("hostname", ctx.service.host.as_str());
    Ok(())
}

fn run_options(
    ctx: &mut CommandContext<'_>,
    request: &Request<'_>,
    doc: &mut DocBuilder,
) -> Result<()> {
    request.fields(&[])?;
    let command_line = &ctx.service.command_line;
    doc.start_array("argv");
    for word in &command_line.argv {
        doc.push(word.as_str());
    }
    doc.end();
    doc.append("parsed", &command_line.parsed);
    Ok(())
}
