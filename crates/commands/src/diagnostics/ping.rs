//! `ping`: checks that the server responds.

use mayfly_base::Result;
use mayfly_value::DocBuilder;

use crate::context::{Command, CommandContext};
use crate::request::row::{InTransaction, RowFlags};
use crate::request::{Needs, Request};

pub(crate) const ROW: Command = Command::new("ping", "Checks that the server responds", run)
    .needs(Needs::Nothing)
    .flags(RowFlags::BEFORE_AUTH.union(RowFlags::STABLE))
    .in_transaction(InTransaction::Informational);

fn run(_: &CommandContext<'_>, request: &Request<'_>, _: &mut DocBuilder) -> Result<()> {
    request.arguments()?;
    Ok(())
}
