//! `listCommands`: the implemented commands.

use mayfly_base::Result;
use mayfly_value::DocBuilder;

use crate::context::{Command, CommandContext, Handler};
use crate::request::row::RowFlags;
use crate::request::{Needs, Request};

pub(crate) const ROW: Command = Command::new("listCommands", "Lists the commands", run)
    .needs(Needs::Nothing)
    .flags(RowFlags::BEFORE_AUTH.union(RowFlags::LENIENT));

fn run(ctx: &CommandContext<'_>, request: &Request<'_>, doc: &mut DocBuilder) -> Result<()> {
    request.arguments()?;
    let for_tests = ctx.service.fail_points.are_enabled();
    let there = |command: &&&Command| {
        matches!(command.handler, Handler::Run(_))
            && (for_tests || !command.row.flags.contains(RowFlags::TEST_ONLY))
    };
    let commands = ctx.commands.commands().iter().filter(there);
    let mut rows: Vec<_> = commands.map(|command| &command.row).collect();
    rows.sort_by_key(|row| row.name);
    doc.start_document("commands");
    for row in rows {
        doc.start_document(row.name);
        doc.append("help", row.help);
        doc.append("requiresAuth", !row.flags.contains(RowFlags::BEFORE_AUTH));
        doc.append("secondaryOk", !row.writes.is_documents());
        doc.append("adminOnly", row.flags.contains(RowFlags::ADMIN_ONLY));
        doc.start_array("apiVersions");
        if row.flags.contains(RowFlags::STABLE) {
            doc.push("1");
        }
        doc.end().start_array("deprecatedApiVersions");
        if row.flags.contains(RowFlags::DEPRECATED) {
            doc.push("1");
        }
        doc.end();
        doc.start_array("aliases");
        for alias in row.aliases {
            doc.push(*alias);
        }
        doc.end();
        doc.end();
    }
    doc.end();
    Ok(())
}
