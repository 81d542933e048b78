//! `ping`: whether anybody is there.

use mayfly_base::Result;
use mayfly_value::DocBuilder;

use crate::{CommandContext, Needs, Request, Row, RowFlags};

pub(crate) const ROW: Row = Row::new("ping", "Checks that the server responds", run)
    .needs(Needs::Nothing)
    .flags(RowFlags::BEFORE_AUTH);

fn run(_: &mut CommandContext<'_>, request: &Request<'_>, _: &mut DocBuilder) -> Result<()> {
    request.fields(&[])?;
    Ok(())
}
