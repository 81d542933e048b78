//! `setUserWriteBlockMode`: blocks writes of clients to their databases. Manual:
//! "setUserWriteBlockMode".

use mayfly_auth::Action;
use mayfly_base::{Error, ErrorCode, Result};
use mayfly_service::write_block::{REASONS, UNSPECIFIED, set};
use mayfly_value::arguments::Argument;
use mayfly_value::{DocBuilder, RawValue};

use crate::context::{Command, CommandContext};
use crate::request::row::{Expected, RowFlags, Writes};
use crate::request::{Needs, Request};

pub(super) const ROW: Command =
    Command::new("setUserWriteBlockMode", "Blocks writes of users, or allows them", run)
        .arguments(&[Argument::any("global"), Argument::string("reason")])
        .needs(Needs::Cluster(&[Action::SetUserWriteBlockMode]))
        .since("6.0")
        .flags(RowFlags::ADMIN_ONLY)
        .writes(Writes::Settings)
        .expected(Expected::Long);

fn run(ctx: &CommandContext<'_>, request: &Request<'_>, _: &mut DocBuilder) -> Result<()> {
    let fields = request.arguments()?;
    let global = match fields.required("global")? {
        RawValue::Bool(global) => global,
        other => return Err(fields.wrong("global", other, "bool")),
    };
    let reason = fields.string("reason")?.unwrap_or(UNSPECIFIED);
    let Some(reason) = REASONS.iter().find(|known| **known == reason) else {
        let path = fields.path_of("reason");
        return Err(Error::bad_value(format!(
            "Enumeration value '{reason}' for field '{path}' is not a valid value."
        )));
    };
    let store = &ctx.service.store;
    if let Some(current) = store.user_writes_blocked()
        && current != *reason
    {
        return Err(Error::new(
            ErrorCode::IllegalOperation,
            format!(
                "Cannot change the blocking of user writes for another reason than they were blocked for \
                 (current: {current}, reason: {reason})"
            ),
        ));
    }
    if global != store.user_writes_blocked().is_some() {
        set(store, ctx.op, global.then_some(*reason))?;
        tracing::warn!(blocked = global, reason, "user writes were blocked or allowed");
    }
    Ok(())
}
