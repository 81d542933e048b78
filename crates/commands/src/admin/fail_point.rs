//! `configureFailPoint` and `waitForFailPoint`: make the server fail, for tests. They exist only on
//! a server that was started with `enableTestCommands`.

use mayfly_value::arguments::Argument;
use std::time::Duration;

use mayfly_auth::Action;
use mayfly_base::{Error, ErrorCode, Result};
use mayfly_service::FailPoint;
use mayfly_service::fail_points::Mode;
use mayfly_value::{DocBuilder, RawDoc, RawValue};
use mayfly_work::current;

use crate::context::{Command, CommandContext};
use crate::request::row::RowFlags;
use crate::request::{Fields, Needs, Request, no_such_command};

// Not marked as commands of `admin` only: without `enableTestCommands` they do not exist on any
// database.
pub(super) const CONFIGURE: Command = Command::new(
    "configureFailPoint",
    "Makes the server fail at one of its fail points",
    run_configure,
)
.arguments(&[Argument::any("mode"), Argument::document("data")])
.needs(Needs::Cluster(&[Action::SetParameter]))
.flags(RowFlags::TEST_ONLY.union(RowFlags::NEVER_FAILS));
pub(super) const WAIT: Command = Command::new(
    "waitForFailPoint",
    "Waits until a fail point has fired a number of times",
    run_wait,
)
.arguments(&[Argument::whole("timesEntered").required()])
.needs(Needs::Cluster(&[Action::SetParameter]))
.since("4.4")
.flags(RowFlags::TEST_ONLY);

/// The interval at which a waiting command checks the fail point.
const CHECK_INTERVAL: Duration = Duration::from_millis(5);

/// Checks that the command exists: only on a server with test commands.
///
/// # Errors
/// 59 CommandNotFound.
pub(super) fn check_for_tests(ctx: &CommandContext<'_>, request: &Request<'_>) -> Result<()> {
    match ctx.service.fail_points.are_enabled() {
        true => Ok(()),
        false => Err(no_such_command(request.name)),
    }
}

/// Checks that the command exists and runs on `admin`.
fn check_allowed(ctx: &CommandContext<'_>, request: &Request<'_>) -> Result<()> {
    check_for_tests(ctx, request)?;
    if request.db != "admin" {
        let text = format!("{} may only be run against the admin database.", request.row.name);
        return Err(Error::new(ErrorCode::Unauthorized, text));
    }
    Ok(())
}

/// The fail point in the command's own value.
fn point(request: &Request<'_>, fields: &Fields<'_>) -> Result<FailPoint> {
    match request.target() {
        RawValue::String(name) => FailPoint::named(name),
        other => Err(fields.wrong(request.row.name, other, "string")),
    }
}

fn run_configure(
    ctx: &CommandContext<'_>,
    request: &Request<'_>,
    reply: &mut DocBuilder,
) -> Result<()> {
    check_allowed(ctx, request)?;
    let fields = request.arguments()?;
    let point = point(request, &fields)?;
    let mode = Mode::parse(fields.get("mode"))?;
    let data = fields.document("data")?.map(RawDoc::to_owned);
    tracing::warn!(point = ?point, mode = ?mode, "a fail point was set");
    reply.append("count", ctx.service.fail_points.set(point, mode, data));
    Ok(())
}

fn run_wait(ctx: &CommandContext<'_>, request: &Request<'_>, _: &mut DocBuilder) -> Result<()> {
    check_allowed(ctx, request)?;
    let fields = request.arguments()?;
    let point = point(request, &fields)?;
    let times = fields.long("timesEntered")?.ok_or_else(|| fields.missing("timesEntered"))?;
    if request.generic.max_time_ms == 0 {
        let text = "waitForFailPoint needs maxTimeMS";
        return Err(Error::new(ErrorCode::InvalidOptions, text));
    }
    current::wait(|| {
        while ctx.service.fail_points.entered(point) < times {
            ctx.op.check()?;
            std::thread::sleep(CHECK_INTERVAL);
        }
        Ok(())
    })
}
