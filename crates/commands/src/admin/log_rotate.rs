//! `logRotate`: the log goes on in a new file.

use mayfly_auth::Action;
use mayfly_base::{Error, ErrorCode, Result};
use mayfly_value::{DocBuilder, RawValue};

use crate::fields::whole_number;
use crate::{CommandContext, Needs, Request, Row, RowFlags};

pub(crate) const ROW: Row = Row::new("logRotate", "Begins a new log file", run)
    .needs(Needs::Cluster(&[Action::LogRotate]))
    .flags(RowFlags::ADMIN_ONLY);

fn run(ctx: &mut CommandContext<'_>, request: &Request<'_>, _: &mut DocBuilder) -> Result<()> {
    let fields = request.fields(&[])?;
    match request.target() {
        RawValue::String("server") => {}
        // There is no audit log to rotate.
        RawValue::String("audit") => return Ok(()),
        RawValue::String(other) => {
            let text = format!("Unknown log type '{other}'");
            return Err(Error::new(ErrorCode::NoSuchKey, text));
        }
        number if whole_number(number).is_some() => {}
        other => return Err(fields.wrong("logRotate", other, "[int, string]")),
    }
    ctx.service.log.rotate().map_err(|why| {
        let text = format!("Log rotation failed: {why}");
        Error::new(ErrorCode::FileRenameFailed, text)
    })
}
