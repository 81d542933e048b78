//! `listIndexes`.

use crate::request::arguments::CURSOR;
use mayfly_value::arguments::Argument;
use std::collections::VecDeque;

use mayfly_auth::Action;
use mayfly_base::{Error, ErrorCode, Result};
use mayfly_query::{Cursor, CursorSource};
use mayfly_storage::OPLOG;
use mayfly_value::DocBuilder;

use super::list_collections::cursor_batch_size;
use crate::context::{Command, CommandContext};
use crate::crud::{FirstBatch, first_batch};
use crate::request::row::{Reads, RowFlags};
use crate::request::{Needs, Request};

pub(crate) const ROW: Command =
    Command::new("listIndexes", "Lists the indexes of a collection", run)
        .arguments(ARGUMENTS)
        .needs(Needs::Collection(&[Action::ListIndexes]))
        .since("3.0")
        .flags(RowFlags::STABLE)
        .reads(Reads::PREFERENCE.union(Reads::COMMITTED));
const ARGUMENTS: &[Argument] = &[
    Argument::fields("cursor", CURSOR),
    Argument::flag("includeBuildUUIDs").unstable(),
    Argument::flag("includeIndexBuildInfo").unstable(),
];

fn run(ctx: &CommandContext<'_>, request: &Request<'_>, reply: &mut DocBuilder) -> Result<()> {
    let fields = request.arguments()?;
    let ns = request.namespace()?;
    let size = cursor_batch_size(&fields, "listIndexes.cursor")?;
    if fields.bool("includeBuildUUIDs")? == Some(true)
        && fields.bool("includeIndexBuildInfo")? == Some(true)
    {
        let text = "includeBuildUUIDs and includeIndexBuildInfo cannot be used together";
        return Err(Error::new(ErrorCode::InvalidOptions, text));
    }
    let store = &ctx.service.store;
    if ns.as_str() == OPLOG {
        // The log has no indexes.
        let cursor = Cursor::new(ns, CursorSource::Ready(VecDeque::new()));
        return first_batch(ctx, cursor, FirstBatch { size, ..FirstBatch::default() }, reply);
    }
    if store.collection(ctx.store.view, &ns).is_none()
        && let Some((buckets, _)) = store.time_series_named(ctx.store.view, &ns)
    {
        let shown = buckets.list_measurement_indexes();
        let cursor = Cursor::new(ns, CursorSource::Ready(shown.into()));
        return first_batch(ctx, cursor, FirstBatch { size, ..FirstBatch::default() }, reply);
    }
    let Some(collection) = ctx.store.collection(&ns) else {
        ctx.service.store.check_no_view(ctx.store.view, &ns)?;
        return Err(Error::new(ErrorCode::NamespaceNotFound, format!("ns does not exist: {ns}")));
    };
    let cursor = Cursor::new(ns, CursorSource::Ready(collection.list_indexes().into()));
    first_batch(ctx, cursor, FirstBatch { size, ..FirstBatch::default() }, reply)
}
