//! The panels of the disk: what takes its space, the largest collections, and unused indexes.

use mayfly_value::{RawDoc, RawValue};
use serde_json::{Value, json};

use super::{Place, aggregate, documents, first_batch, long};
use crate::http::json::object;
use crate::http::peer::Peer;
use crate::http::run::{CommandError, Reader, command};
use crate::http::site::Site;

/// The most collections that are read.
const MAX_COLLECTIONS: usize = 2000;
/// The most collections and unused indexes that are sent.
const MAX_SENT: usize = 50;

/// The space of the disk, by use.
pub(super) fn disk(_: &Site, _: &Peer, reader: &Reader, _: &Place) -> Result<Value, CommandError> {
    let status = command("admin", "serverStatus", 1, |doc| {
        for section in super::OMITTED {
            doc.append(section, 0);
        }
    });
    let reply = reader.run(&status)?;
    let of = |name: &str| match reply.as_doc().get(name) {
        Some(RawValue::Document(section)) => object(section),
        _ => Value::Null,
    };
    let (engine, disk, search) = (of("storageEngine"), of("diskSpace"), of("search"));
    Ok(json!({ "engine": engine, "disk": disk, "search": search }))
}

/// The largest collections, and indexes that no plan has used since the start.
pub(super) fn collections(
    site: &Site,
    _: &Peer,
    reader: &Reader,
    _: &Place,
) -> Result<Value, CommandError> {
    let mut found = Found::default();
    let databases = reader.run(&command("admin", "listDatabases", 1, |doc| {
        doc.append("nameOnly", true);
    }))?;
    for database in documents(databases.as_doc(), "databases") {
        let Some(RawValue::String(db)) = database.get("name") else { continue };
        let listed = reader.run(&command(db, "listCollections", 1, |doc| {
            doc.append("nameOnly", true).append("authorizedCollections", true);
            doc.start_document("filter").append("type", "collection").end();
            doc.start_document("cursor").append("batchSize", 10_000).end();
        }));
        let Ok(listed) = listed else {
            found.refused += 1;
            continue;
        };
        for collection in first_batch(listed.as_doc()) {
            if site.service.shutdown.has_begun() {
                return Ok(Value::Null);
            }
            if let Some(RawValue::String(name)) = collection.get("name") {
                found.add(reader, db, name);
            }
        }
    }
    Ok(found.into_json())
}

#[derive(Default)]
struct Found {
    read: usize,
    /// Collections beyond the limit.
    omitted: usize,
    /// Collections and databases that the user has no right to.
    refused: usize,
    collections: Vec<(i64, Value)>,
    unused: Vec<(i64, Value)>,
}

impl Found {
    fn add(&mut self, reader: &Reader, db: &str, name: &str) {
        if self.read >= MAX_COLLECTIONS {
            self.omitted += 1;
            return;
        }
        self.read += 1;
        let stats = reader.run(&aggregate(db, Some(name), |doc| {
            doc.push_document().start_document("$collStats");
            doc.start_document("storageStats").end().end().end();
        }));
        let Ok(stats) = stats else {
            self.refused += 1;
            return;
        };
        let Some(RawValue::Document(stats)) =
            first_batch(stats.as_doc()).next().and_then(|doc| doc.get("storageStats"))
        else {
            return;
        };
        let of = |field: &str| long(stats, field).unwrap_or(0);
        let ns = format!("{db}.{name}");
        let bytes = of("storageSize") + of("totalIndexSize");
        self.collections.push((
            bytes,
            json!({
                "ns": ns, "documents": of("count"), "bytes": of("storageSize"),
                "indexBytes": of("totalIndexSize"), "indexes": of("nindexes"),
            }),
        ));
        // The server's own collections have the indexes that it needs.
        if of("nindexes") > 1 && !matches!(db, "admin" | "config" | "local") {
            self.add_unused(reader, (db, name, &ns), stats);
        }
    }

    fn add_unused(
        &mut self,
        reader: &Reader,
        (db, name, ns): (&str, &str, &str),
        stats: RawDoc<'_>,
    ) {
        let sizes = stats.get("indexSizes").and_then(RawValue::as_document);
        let used = reader.run(&aggregate(db, Some(name), |doc| {
            doc.push_document().start_document("$indexStats").end().end();
        }));
        let Ok(used) = used else { return };
        for index in first_batch(used.as_doc()) {
            let Some(RawValue::String(index_name)) = index.get("name") else { continue };
            let spec = index.get("spec").and_then(RawValue::as_document).unwrap_or(RawDoc::EMPTY);
            let accesses = index.get("accesses").and_then(RawValue::as_document);
            let count = accesses.and_then(|it| long(it, "ops"));
            let is_needed = index_name == "_id_"
                || spec.get("unique") == Some(RawValue::Bool(true))
                || spec.get("expireAfterSeconds").is_some();
            if is_needed || count != Some(0) {
                continue;
            }
            let bytes = sizes.and_then(|sizes| long(sizes, index_name)).unwrap_or(0);
            self.unused.push((bytes, json!({ "ns": ns, "index": index_name, "bytes": bytes })));
        }
    }

    fn into_json(self) -> Value {
        let total = self.collections.len();
        json!({
            "collections": largest(self.collections), "unused": largest(self.unused),
            "total": total, "omitted": self.omitted, "refused": self.refused,
        })
    }
}

fn largest(mut of: Vec<(i64, Value)>) -> Vec<Value> {
    of.sort_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
    of.truncate(MAX_SENT);
    of.into_iter().map(|(_, value)| value).collect()
}
