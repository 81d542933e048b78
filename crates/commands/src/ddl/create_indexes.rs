//! `createIndexes`.

use mayfly_base::{Error, Result};
use mayfly_value::{DocBuilder, RawDoc};

use super::wrote;
use crate::crud::check_writable;
use crate::{CommandContext, Request, Row, RowFlags};

pub(crate) const ROW: Row = Row::new("createIndexes", "Creates indexes", run)
    .flags(RowFlags::WRITE_CONCERN.and(RowFlags::MAY_BLOCK));

fn run(ctx: &mut CommandContext<'_>, request: &Request<'_>, reply: &mut DocBuilder) -> Result<()> {
    let fields = request.fields(&[
        "indexes",
        "ignoreUnknownIndexOptions",
        "commitQuorum",
        "v",
        "dryRun",
        "onConflict",
    ])?;
    let ns = request.namespace()?;
    for extension in ["dryRun", "onConflict"] {
        if fields.get(extension).is_some() {
            return Err(Error::not_implemented(format_args!("the argument '{extension}'")));
        }
    }
    let ignore_unknown = fields.bool("ignoreUnknownIndexOptions")?.unwrap_or(false);
    let Some(specs) = request.documents("indexes")? else {
        return Err(fields.missing("indexes"));
    };
    let specs: Vec<RawDoc<'_>> = specs.collect();
    if specs.is_empty() {
        return Err(Error::bad_value("Must specify at least one index to create"));
    }
    check_writable(&ns)?;
    let result = ctx.service.store.create_indexes(ctx.op, &ns, &specs, ignore_unknown)?;
    reply.append("numIndexesBefore", result.before).append("numIndexesAfter", result.after);
    reply.append("createdCollectionAutomatically", result.created_collection);
    if !result.notes.is_empty() {
        for note in &result.notes {
            tracing::debug!(namespace = %ns, note, "createIndexes");
        }
        reply.append("note", result.notes.join("\n\n").as_str());
    }
    wrote(ctx, request);
    Ok(())
}
