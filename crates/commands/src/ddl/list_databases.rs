//! `listDatabases`.
//!
//! `admin`, `config` and `local` are always listed, even if they are empty; the log is part of
//! `local`.

use mayfly_value::arguments::Argument;
use std::collections::BTreeMap;

use mayfly_auth::{Action, Target};
use mayfly_base::Result;
use mayfly_mql::{Matcher, ParseContext};
use mayfly_service::Service;
use mayfly_value::{DocBuilder, RawValue};

use crate::context::{Command, CommandContext};
use crate::request::row::{Reads, RowFlags};
use crate::request::{Needs, Request};
use crate::rules::rights::demands;

pub(crate) const ROW: Command = Command::new("listDatabases", "Lists databases", run)
    .arguments(ARGUMENTS)
    .needs(Needs::Demands(demands::list_databases))
    .flags(RowFlags::ADMIN_ONLY.union(RowFlags::STABLE))
    .reads(Reads::PREFERENCE);

/// The entry of a database.
#[derive(Default)]
struct DatabaseEntry {
    collections: usize,
    bytes: u64,
}
const ARGUMENTS: &[Argument] = &[
    Argument::flag("nameOnly"),
    Argument::document("filter"),
    Argument::flag("authorizedDatabases").since("4.0.5"),
];

fn run(ctx: &CommandContext<'_>, request: &Request<'_>, reply: &mut DocBuilder) -> Result<()> {
    let fields = request.arguments()?;
    let name_only = fields.bool("nameOnly")?.unwrap_or(false);
    if let Some(value) = fields.get("authorizedDatabases")
        && !matches!(value, RawValue::Bool(_))
    {
        return Err(fields.wrong("authorizedDatabases", value, "bool"));
    }
    // Clients without the right to list all databases get those in which they can read something.
    let own = fields.bool("authorizedDatabases")?.unwrap_or(false)
        || !ctx.authority.allows(Target::Cluster, Action::ListDatabases);
    let is_shown = |name: &str| match ctx.authority.privileges() {
        Some(privileges) if own => privileges.touches_database(name, Action::Find),
        Some(_) | None => true,
    };
    let filter = fields
        .document("filter")?
        .map(|filter| Matcher::parse(filter, &ParseContext::default()))
        .transpose()?;
    let mut total = 0;
    reply.start_array("databases");
    for (name, found) in databases(ctx.service, name_only)? {
        if !is_shown(&name) {
            continue;
        }
        let mut database = DocBuilder::new();
        database.append("name", name.as_str());
        let size = i64::try_from(found.bytes).unwrap_or(i64::MAX);
        if !name_only {
            let empty = found.collections == 0 && size == 0;
            database.append("sizeOnDisk", size).append("empty", empty);
        }
        let database = database.finish();
        if filter.as_ref().map_or(Ok(true), |filter| filter.matches(database.as_doc()))? {
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

/// The size of a database that holds only documents of the server.
const LEAST_BYTES: u64 = 4096;

/// All databases by name, with their sizes unless `name_only` is set.
fn databases(service: &Service, name_only: bool) -> Result<BTreeMap<String, DatabaseEntry>> {
    let store = &service.store;
    let always =
        ["admin", "config", "local"].map(|name| (name.to_owned(), DatabaseEntry::default()));
    let mut databases = BTreeMap::from(always);
    for collection in store.collections(None) {
        let found = databases.entry(collection.namespace().db().to_owned()).or_default();
        found.collections += 1;
        if !name_only {
            found.bytes += store.engine_bytes(&collection)?;
        }
    }
    // In the reference these databases hold the version document and the sessions, so they are
    // never empty.
    for name in ["admin", "config"] {
        if let (Some(found), false) = (databases.get_mut(name), name_only) {
            found.collections += 1;
            found.bytes = found.bytes.max(LEAST_BYTES);
        }
    }
    if let (Some(local), false) = (databases.get_mut("local"), name_only) {
        local.collections += 1;
        local.bytes += store.oplog_bytes()?;
    }
    Ok(databases)
}
