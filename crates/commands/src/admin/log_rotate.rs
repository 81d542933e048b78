//! `logRotate`: continues the log in a new file.

use mayfly_auth::Action;
use mayfly_base::{Error, ErrorCode, Result};
use mayfly_service::{Actor, LogRotation};
use mayfly_value::{DocBuilder, RawValue};

use crate::context::{Command, CommandContext};
use crate::request::row::RowFlags;
use crate::request::{Needs, Request};
use mayfly_value::arguments::convert::whole_number;

pub(crate) const ROW: Command = Command::new("logRotate", "Rotates the log", run)
    .needs(Needs::Cluster(&[Action::LogRotate]))
    .flags(RowFlags::ADMIN_ONLY);

fn run(ctx: &CommandContext<'_>, request: &Request<'_>, _: &mut DocBuilder) -> Result<()> {
    let fields = request.arguments()?;
    let (server, audit) = match request.target() {
        RawValue::String("server") => (true, false),
        RawValue::String("audit") if ctx.service.audit.is_on() => (false, true),
        RawValue::String(other) => {
            let text = format!("Unknown log type '{other}'");
            return Err(Error::new(ErrorCode::NoSuchKey, text));
        }
        RawValue::Bool(_) => (true, true),
        number if whole_number(number).is_some() => (true, true),
        other => return Err(fields.wrong("logRotate", other, "[int, string]")),
    };
    let failed = |why| {
        let text = format!("Log rotation failed: {why}");
        Error::new(ErrorCode::FileRenameFailed, text)
    };
    let how = LogRotation::Configured;
    // Both are rotated even if the first fails; the reply has the first error.
    let rotated = if server { ctx.service.log.rotate(how) } else { Ok(()) };
    let actor = Actor::Client(ctx.connection);
    let audit = if audit { ctx.service.rotate_audit(actor, how) } else { Ok(()) };
    rotated.and(audit).map_err(failed)
}
