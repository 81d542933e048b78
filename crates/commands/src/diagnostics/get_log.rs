//! `getLog`: the latest lines of the log.

use mayfly_auth::Action;
use mayfly_base::{Error, ErrorCode, Result};
use mayfly_value::arguments::error::mistyped;
use mayfly_value::{DocBuilder, RawValue};

use crate::context::{Command, CommandContext};
use crate::request::row::RowFlags;
use crate::request::{Needs, Request};

pub(crate) const ROW: Command = Command::new("getLog", "Returns the latest lines of the log", run)
    .needs(Needs::Cluster(&[Action::GetLog]))
    .flags(RowFlags::ADMIN_ONLY);

fn run(ctx: &CommandContext<'_>, request: &Request<'_>, doc: &mut DocBuilder) -> Result<()> {
    request.arguments()?;
    let (lines, total) = match request.target() {
        RawValue::String("*") => {
            doc.start_array("names").push("global").push("startupWarnings").end();
            return Ok(());
        }
        RawValue::String("global") => ctx.service.log.lines(),
        RawValue::String("startupWarnings") => {
            let lines = ctx.service.log.startup_warnings();
            let total = lines.len() as u64;
            (lines, total)
        }
        RawValue::String(other) => {
            let text = format!("No log named '{other}'");
            return Err(Error::new(ErrorCode::OperationFailed, text));
        }
        other => {
            return Err(mistyped(format!(
                "Argument to getLog must be of type String; found {other:?} of type {}",
                other.type_name()
            )));
        }
    };
    doc.append("totalLinesWritten", i32::try_from(total).unwrap_or(i32::MAX));
    doc.start_array("log");
    for line in &lines {
        doc.push(line.as_str());
    }
    doc.end();
    Ok(())
}
