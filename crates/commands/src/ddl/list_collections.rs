//! `listCollections`.

use crate::request::arguments::CURSOR;
use mayfly_value::arguments::Argument;
use std::collections::VecDeque;

use mayfly_base::{Namespace, Result};
use mayfly_buckets::TimeSeries;
use mayfly_mql::{Matcher, ParseContext};
use mayfly_query::{Cursor, CursorSource};
use mayfly_storage::{Collection, OPLOG, View};
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue};

use crate::context::{Command, CommandContext};
use crate::crud::{FirstBatch, first_batch};
use crate::request::row::{Reads, RowFlags};
use crate::request::{Fields, Needs, Request};
use crate::rules::rights::demands;

pub(crate) const ROW: Command =
    Command::new("listCollections", "Lists the collections of a database", run)
        .arguments(ARGUMENTS)
        .needs(Needs::Demands(demands::list_collections))
        .since("3.0")
        .flags(RowFlags::STABLE)
        .reads(Reads::PREFERENCE.union(Reads::COMMITTED));
const ARGUMENTS: &[Argument] = &[
    Argument::document("filter"),
    Argument::flag("nameOnly"),
    Argument::flag("authorizedCollections").since("4.0"),
    Argument::fields("cursor", CURSOR),
    Argument::any("includePendingDrops"),
];

fn run(ctx: &CommandContext<'_>, request: &Request<'_>, reply: &mut DocBuilder) -> Result<()> {
    let fields = request.arguments()?;
    let name_only = fields.bool("nameOnly")?.unwrap_or(false);
    let own = fields.bool("authorizedCollections")?.unwrap_or(false);
    let is_shown = |name: &str| match ctx.authority.privileges() {
        Some(privileges) if own => privileges.touches_collection(request.db, name),
        Some(_) | None => true,
    };
    let filter = fields
        .document("filter")?
        .map(|filter| Matcher::parse(filter, &ParseContext::default()))
        .transpose()?;
    let size = cursor_batch_size(&fields, "listCollections.cursor")?;
    let ns = Namespace::new(request.db, "$cmd.listCollections")?;
    let store = &ctx.service.store;
    let views = store.views(ctx.store.view, request.db)?;
    let collections = match fields.document("filter")?.and_then(only_name) {
        // Drivers send this filter before they create a collection; it needs no scan of all
        // collections.
        Some(name) => match Namespace::new(request.db, name) {
            Ok(ns) => {
                let named =
                    store.time_series_named(ctx.store.view, &ns).map(|(buckets, _)| buckets);
                store.collection(ctx.store.view, &ns).or(named).into_iter().collect()
            }
            Err(_) => Vec::new(),
        },
        None => store.collections(Some(request.db)),
    };
    let series: Vec<_> =
        collections.iter().filter_map(|collection| series_entry(collection, name_only)).collect();
    let collections = collections.iter().map(|collection| entry(collection, name_only));
    let log = (request.db == "local").then(|| log_entry(ctx, name_only));
    let entries = collections
        .chain(log)
        .chain(series)
        .chain(views.iter().map(|view| view_entry(view, name_only)));
    let mut documents = VecDeque::new();
    for entry in entries {
        let name = entry.as_doc().get("name").and_then(RawValue::as_str);
        if !name.is_none_or(is_shown) {
            continue;
        }
        if filter.as_ref().map_or(Ok(true), |filter| filter.matches(entry.as_doc()))? {
            documents.push_back(entry);
        }
    }
    let cursor = Cursor::new(ns, CursorSource::Ready(documents));
    first_batch(ctx, cursor, FirstBatch { size, ..FirstBatch::default() }, reply)
}

/// The name, if the filter selects one by equality.
fn only_name(filter: RawDoc<'_>) -> Option<&str> {
    filter.get("name").and_then(|name| name.as_str())
}

/// `cursor: { batchSize }` of listing commands.
///
/// # Errors
/// 14, 40415, 51024.
pub(super) fn cursor_batch_size(fields: &Fields<'_>, path: &'static str) -> Result<Option<i64>> {
    match fields.document("cursor")? {
        // Listings are returned in one batch by default.
        None => Ok(Some(i64::MAX)),
        Some(cursor) => {
            let size = Fields::new(cursor, path).long("batchSize")?;
            Ok(size.or(Some(i64::MAX)))
        }
    }
}

fn view_entry(view: &View, name_only: bool) -> DocBuf {
    let mut out = DocBuilder::new();
    out.append("name", view.name.as_str()).append("type", "view");
    if !name_only {
        out.append("options", &view.options);
        out.start_document("info").append("readOnly", true).end();
    }
    out.finish()
}

/// The entry of a time series, from its bucket collection.
fn series_entry(collection: &Collection, name_only: bool) -> Option<DocBuf> {
    collection.time_series()?;
    let buckets = collection.namespace();
    let mut out = DocBuilder::new();
    out.append("name", TimeSeries::name_of(&buckets)?).append("type", "timeseries");
    if !name_only {
        out.append("options", &collection.options());
        out.start_document("info").append("readOnly", false).end();
    }
    Some(out.finish())
}

/// The entry of the operation log, which is read like a capped collection.
fn log_entry(ctx: &CommandContext<'_>, name_only: bool) -> DocBuf {
    let mut out = DocBuilder::new();
    out.append("name", OPLOG.strip_prefix("local.").unwrap_or(OPLOG)).append("type", "collection");
    if !name_only {
        let size = ctx.service.store.oplog().limits().bytes;
        out.start_document("options").append("capped", true);
        out.append("size", i64::try_from(size).unwrap_or(i64::MAX)).append("autoIndexId", false);
        out.end().start_document("info").append("readOnly", false);
        // The log has the same UUID in every store.
        out.append("uuid", RawValue::uuid(LOG_UUID)).end();
    }
    out.finish()
}

/// The UUID (version 8) of the log.
const LOG_UUID: &[u8; 16] = b"local.\x8fo\x80plog.rs";

/// The validator of buckets in the reference. Buckets are stored in another form here, so it is
/// only listed.
fn buckets_validator(series: &TimeSeries) -> DocBuf {
    let mut out = DocBuilder::new();
    let of_type = |out: &mut DocBuilder, name: &str, bson_type: &str| {
        out.start_document(name).append("bsonType", bson_type).end();
    };
    let object = |out: &mut DocBuilder, required: &[&str]| {
        out.append("bsonType", "object").start_array("required");
        required.iter().for_each(|name| {
            out.push(*name);
        });
        out.end().start_document("properties");
    };
    out.start_document("$jsonSchema");
    object(&mut out, &["_id", "control", "data"]);
    of_type(&mut out, "_id", "objectId");
    out.start_document("control");
    object(&mut out, &["version", "min", "max"]);
    of_type(&mut out, "version", "number");
    for bound in ["min", "max"] {
        out.start_document(bound);
        object(&mut out, &[&series.fields.time]);
        of_type(&mut out, &series.fields.time, "date");
        out.end().end();
    }
    of_type(&mut out, "closed", "bool");
    out.start_document("count").append("bsonType", "number").append("minimum", 1).end();
    out.end().append("additionalProperties", false).end();
    of_type(&mut out, "data", "object");
    out.start_document("meta").end();
    out.end().append("additionalProperties", false).end();
    out.finish()
}

fn entry(collection: &Collection, name_only: bool) -> DocBuf {
    let mut out = DocBuilder::new();
    out.append("name", collection.namespace().collection()).append("type", "collection");
    if !name_only {
        if let Some(series) = collection.time_series() {
            out.start_document("options").append("validator", &buckets_validator(&series));
            out.append("clusteredIndex", true);
            out.append_all(collection.options().as_doc()).end();
        } else {
            out.append("options", &collection.options());
        }
        out.start_document("info").append("readOnly", false);
        out.append("uuid", RawValue::uuid(&collection.uuid())).end();
        let clustered = collection.options().as_doc().get("clusteredIndex").is_some()
            || collection.time_series().is_some();
        if let (false, Some(id_index)) = (clustered, collection.list_indexes().first()) {
            out.append("idIndex", id_index);
        }
    }
    out.finish()
}
