//! `ttlStatus`: the state of all TTL policies (expiry contract, section 9). An extension.
//! `ttlStatus: {dueLimit: 10000}` limits the count of each policy's due documents.

use mayfly_auth::Action;
use mayfly_base::Result;
use mayfly_storage::ttl::DueCount;
use mayfly_value::arguments::{Argument, Fields};
use mayfly_value::{DocBuilder, RawValue};

use crate::context::{Command, CommandContext};
use crate::request::row::{Expected, RowFlags};
use crate::request::{Needs, Request};

pub(crate) const ROW: Command =
    Command::new("ttlStatus", "Returns the state of each TTL policy", run)
        .needs(Needs::Cluster(&[Action::ServerStatus]))
        .flags(RowFlags::ADMIN_ONLY)
        .expected(Expected::Long);

/// The fields of the command's value, if it is a document.
const OPTIONS: &[Argument] = &[Argument::whole("dueLimit").at_least(1)];

fn run(ctx: &CommandContext<'_>, request: &Request<'_>, reply: &mut DocBuilder) -> Result<()> {
    request.arguments()?;
    let limit = match request.target() {
        RawValue::Document(options) => {
            Fields::read(options, "ttlStatus", OPTIONS)?.long("dueLimit")?
        }
        _ => None,
    };
    let limit = limit.map(|limit| usize::try_from(limit).unwrap_or(usize::MAX));
    let count = limit.map_or(DueCount::All, DueCount::UpTo);
    ctx.service.store.append_ttl_status(ctx.op, count, reply)
}
