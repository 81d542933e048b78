//! `listDatabases`.

use std::collections::BTreeMap;

use mayfly_base::Result;
use mayfly_mql::{Matcher, ParseContext};
use mayfly_value::DocBuilder;

use crate::{CommandContext, Request, Row, RowFlags};

pub(crate) const ROW: Row =
    Row::new("listDatabases", "Lists databases", run).flags(RowFlags::ADMIN_ONLY);

fn run(ctx: &mut CommandContext<'_>, request: &Request<'_>, reply: &mut DocBuilder) -> Result<()> {
    let fields = request.fields(&["nameOnly", "filter", "authorizedDatabases"])?;
    let name_only = fields.bool("nameOnly")?.unwrap_or(false);
    fields.bool("authorizedDatabases")?;
    let filter = fields
        .document("filter")?
        .map(|filter| Matcher::parse(filter, &ParseContext::default()))
        .transpose()?;
    let store = &ctx.service.store;
    let mut sizes: BTreeMap<String, i64> = BTreeMap::new();
    for collection in store.collections(None) {
        let size = sizes.entry(collection.namespace().db().to_owned()).or_default();
        if !name_only {
            *size += store.data_bytes(&collection);
        }
    }
    let mut total = 0;
    reply.start_array("databases");
    for (name, size) in sizes {
        let mut database = DocBuilder::new();
        database.append("name", name.as_str());
        if !name_only {
            database.append("sizeOnDisk", size).append("empty", false);
        }
        let database = database.finish();
        if filter.as_ref().is_none_or(|filter| filter.matches(database.as_doc())) {
            total += size;
            reply.push(&database);
        }
    }
    reply.end();
    if !name_only {
        reply.append("totalSize", total).append("totalSizeMb", total / (1024 * 1024));
    }
    Ok(())
}
