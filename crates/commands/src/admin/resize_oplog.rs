//! `replSetResizeOplog`: changes the size and the minimum retention of the operation log.
//!
//! The reference accepts no size below 990 MB. This server accepts any size from 1 MB, as
//! `oplogSizeMB` does: on a small or full disk, a smaller log frees space. The size persists over a
//! restart, the retention does not, as in the reference.

use mayfly_auth::Action;
use mayfly_base::{Error, ErrorCode, Result};
use mayfly_value::arguments::Argument;
use mayfly_value::{DocBuilder, Number};

use crate::context::{Command, CommandContext};
use crate::request::Fields;
use crate::request::row::RowFlags;
use crate::request::{Needs, Request};

pub(super) const ROW: Command =
    Command::new("replSetResizeOplog", "Changes the size and retention of the operation log", run)
        .arguments(&[Argument::number("size"), Argument::number("minRetentionHours").since("4.4")])
        .needs(Needs::Cluster(&[Action::ReplSetResizeOplog]))
        .since("3.6")
        .flags(RowFlags::ADMIN_ONLY);

/// A petabyte, in megabytes.
const MOST_MB: f64 = (1u64 << 30) as f64;
const HOUR_MS: f64 = 3_600_000.0;
/// A century, longer than any log.
const MOST_HOURS: f64 = 876_600.0;

fn run(ctx: &CommandContext<'_>, request: &Request<'_>, _: &mut DocBuilder) -> Result<()> {
    let fields = request.arguments()?;
    let size = number(&fields, "size", 1.0)?;
    let hours = number(&fields, "minRetentionHours", 0.0)?;
    if let Some(size) = size.filter(|size| *size > MOST_MB) {
        return Err(out_of_range("size", "<=", MOST_MB, size));
    }
    if size.is_none() && hours.is_none() {
        let text = "Either size or minRetentionHours must be specified";
        return Err(Error::new(ErrorCode::InvalidOptions, text));
    }
    let store = &ctx.service.store;
    let mut limits = store.oplog().limits();
    if let Some(size) = size {
        limits.bytes = (size * f64::from(1 << 20)) as u64;
    }
    if let Some(hours) = hours {
        limits.retention_ms = (hours.min(MOST_HOURS) * HOUR_MS) as i64;
    }
    store.resize_oplog(limits)
}

fn number(fields: &Fields<'_>, name: &str, least: f64) -> Result<Option<f64>> {
    let number = fields.get(name).and_then(Number::from_value).map(Number::to_f64);
    let Some(number) = number else { return Ok(None) };
    match number >= least {
        true => Ok(Some(number)),
        false => Err(out_of_range(name, ">=", least, number)),
    }
}

fn out_of_range(name: &str, how: &str, bound: f64, number: f64) -> Error {
    let text = format!("BSON field '{name}' value must be {how} {bound}, actual value '{number}'");
    Error::new(ErrorCode::BadValue, text)
}
