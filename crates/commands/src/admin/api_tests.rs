//! Commands with which drivers test versions of the stable API. They exist only on a server with
//! test commands, and do nothing.

use mayfly_base::Result;
use mayfly_value::DocBuilder;

use super::fail_point::check_for_tests;
use crate::context::{Command, CommandContext};
use crate::request::row::RowFlags;
use crate::request::{Needs, Request};

/// The row of a test command.
const fn row(name: &'static str, help: &'static str, flags: RowFlags) -> Command {
    Command::new(name, help, run)
        .needs(Needs::Nothing)
        .since("5.0")
        .flags(RowFlags::TEST_ONLY.union(flags))
}

pub(super) const DEPRECATION: Command = row(
    "testDeprecation",
    "For tests: is deprecated in version 1 of the stable API",
    RowFlags::STABLE.union(RowFlags::DEPRECATED),
);
pub(super) const REMOVAL: Command =
    row("testRemoval", "For tests: belongs to version 1 of the stable API", RowFlags::STABLE);
pub(super) const VERSION_2: Command =
    row("testVersion2", "For tests: does not belong to version 1 of the API", RowFlags::empty());
pub(super) const VERSIONS_1_AND_2: Command = row(
    "testVersions1And2",
    "For tests: belongs to version 1 of the stable API and to the next",
    RowFlags::STABLE,
);

fn run(ctx: &CommandContext<'_>, request: &Request<'_>, _: &mut DocBuilder) -> Result<()> {
    check_for_tests(ctx, request)?;
    request.arguments().map(|_| ())
}
