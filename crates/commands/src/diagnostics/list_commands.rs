//! `listCommands`: the command table. What is not implemented yet is left out.

use mayfly_base::Result;
use mayfly_value::DocBuilder;

use crate::{CommandContext, Handler, Needs, Request, Row, RowFlags, registry};

pub(crate) const ROW: Row = Row::new("listCommands", "Lists the commands", run)
    .needs(Needs::Nothing)
    .flags(RowFlags::BEFORE_AUTH);

fn run(ctx: &mut CommandContext<'_>, request: &Request<'_>, doc: &mut DocBuilder) -> Result<()> {
    request.fields(&[])?;
    let for_tests = ctx.service.fail_points.are_enabled();
    let there = |row: &&&Row| {
        matches!(row.handler, Handler::Run(_)) && (for_tests || !row.flags.has(RowFlags::TEST_ONLY))
    };
    let mut rows: Vec<_> = registry::rows().iter().filter(there).collect();
    rows.sort_by_key(|row| row.name);
    doc.start_document("commands");
    for row in rows {
        doc.start_document(row.name);
        doc.append("help", row.help);
        doc.append("requiresAuth", !row.flags.has(RowFlags::BEFORE_AUTH));
        doc.append("secondaryOk", !row.flags.has(RowFlags::WRITE));
        doc.append("adminOnly", row.flags.has(RowFlags::ADMIN_ONLY));
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
