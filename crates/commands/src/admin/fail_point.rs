//! `configureFailPoint`: makes the server fail, for tests. Only a server that was started with `enableTestCommands` knows it.

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_service::FailPoint;
use mayfly_service::fail_points::Mode;
use mayfly_value::{DocBuilder, RawDoc, RawValue};

use crate::{CommandContext, Request, Row, RowFlags};

// Not marked as one of `admin` alone: where it does not exist, it does so on no database.
pub(super) const ROW: Row =
    Row::new("configureFailPoint", "Makes the server fail at one of its fail points", run)
        .flags(RowFlags::TEST_ONLY);

fn run(ctx: &mut CommandContext<'_>, request: &Request<'_>, reply: &mut DocBuilder) -> Result<()> {
    let points = &ctx.service.fail_points;
    if !points.are_enabled() {
        let text = format!("no such command: '{}'", request.name);
        return Err(Error::new(ErrorCode::CommandNotFound, text));
    }
    if request.db != "admin" {
        let text = "configureFailPoint may only be run against the admin database.";
        return Err(Error::new(ErrorCode::Unauthorized, text));
    }
    let fields = request.fields(&["mode", "data"])?;
    let point = match request.target() {
        RawValue::String(name) => FailPoint::named(name)?,
        other => return Err(fields.wrong("configureFailPoint", other, "string")),
    };
    let mode = Mode::parse(fields.get("mode"))?;
    let data = fields.document("data")?.map(RawDoc::to_owned);
    tracing::warn!(point = ?point, mode = ?mode, "a fail point was set");
    reply.append("count", points.set(point, mode, data));
    Ok(())
}
