//! The catalog of a router with one shard: which databases and collections clients have sharded.
//! Nothing else depends on it, because the only shard holds all documents.
//!
//! | collection | document |
//! |---|---|
//! | `config.databases` | `{ _id: database, primary: shard, version }` |
//! | `config.collections` | `{ _id: namespace, lastmodEpoch, lastMod, timestamp, uuid, key, unique, noBalance, timeseriesFields }` |
//! | `config.chunks` | `{ _id, uuid, min, max, shard, lastmod, onCurrentShardSince, history }`: one for each collection, from the least key to the greatest |
//! | `config.settings` | `{ _id: "balancer", mode, stopped }` |

use std::ops::ControlFlow;

use mayfly_base::{Namespace, Result};
use mayfly_storage::{
    Collection, Direction, ReadView, ScanLimit, ScanResult, Store, new_uuid, whole_range,
};
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue, new_object_id};
use mayfly_work::OpCtx;

use super::stored;
use crate::documents;

/// The name of the only shard.
pub const SHARD: &str = "mayflydb";

const DATABASES: &str = "databases";
const COLLECTIONS: &str = "collections";
const CHUNKS: &str = "chunks";
const BALANCER: (&str, &str) = ("settings", "balancer");

/// Records a database, unless it is recorded.
///
/// # Errors
/// Errors of the engine.
pub fn record_database(store: &Store, op: &OpCtx, db: &str) -> Result<()> {
    if stored::read(store, (DATABASES, db))?.is_some() {
        return Ok(());
    }
    let mut out = DocBuilder::new();
    out.append("_id", db).append("primary", SHARD).start_document("version");
    out.append("uuid", RawValue::uuid(&new_uuid()));
    out.append("timestamp", timestamp(op)).append("lastMod", 1).end();
    stored::put(store, op, (DATABASES, db), out.finish().as_doc())
}

/// The document of a sharded collection. A document of a dropped collection with the same name does
/// not count.
///
/// # Errors
/// Errors of the engine.
pub fn sharded(store: &Store, collection: &Collection) -> Result<Option<DocBuf>> {
    let found = stored::read(store, (COLLECTIONS, collection.namespace().as_str()))?;
    let uuid = collection.uuid();
    let uuid = RawValue::uuid(&uuid);
    Ok(found.filter(|document| document.as_doc().get("uuid") == Some(uuid)))
}

/// Records a collection as sharded by this key.
///
/// # Errors
/// Errors of the engine.
pub fn record_collection(
    store: &Store,
    op: &OpCtx,
    collection: &Collection,
    (key, unique): (RawDoc<'_>, Uniqueness),
) -> Result<()> {
    let (ns, uuid) = (collection.namespace(), collection.uuid());
    record_chunk(store, op, collection, key)?;
    let mut out = DocBuilder::new();
    out.append("_id", ns.as_str());
    out.append("lastmodEpoch", RawValue::ObjectId(new_object_id(op.now_ms())));
    out.append("lastMod", RawValue::Date(op.now_ms())).append("timestamp", timestamp(op));
    out.append("uuid", RawValue::uuid(&uuid)).append("key", key);
    out.append("unique", unique == Uniqueness::Unique).append("noBalance", false);
    if let Some(series) = collection.time_series() {
        out.append("timeseriesFields", &series.document());
    }
    stored::put(store, op, (COLLECTIONS, ns.as_str()), out.finish().as_doc())
}

/// The `_id` of the chunk of a collection. It is made of the collection's UUID, which finds the
/// chunk again.
fn chunk_id(uuid: &[u8]) -> RawValue<'static> {
    let mut id = [0; 12];
    id.iter_mut().zip(uuid).for_each(|(to, from)| *to = *from);
    RawValue::ObjectId(id)
}

/// Records the only chunk of a collection.
fn record_chunk(store: &Store, op: &OpCtx, collection: &Collection, key: RawDoc<'_>) -> Result<()> {
    let (uuid, since) = (collection.uuid(), timestamp(op));
    let mut out = DocBuilder::new();
    out.append("_id", chunk_id(&uuid));
    out.append("uuid", RawValue::uuid(&uuid));
    for (bound, value) in [("min", RawValue::MinKey), ("max", RawValue::MaxKey)] {
        out.start_document(bound);
        for field in key {
            out.append(field.name(), value);
        }
        out.end();
    }
    out.append("shard", SHARD).append("lastmod", RawValue::Timestamp(1 << 32));
    out.append("onCurrentShardSince", since).start_array("history").push_document();
    out.append("validAfter", since).append("shard", SHARD).end().end();
    let ns = Namespace::new("config", CHUNKS)?;
    documents::put(store, op, &ns, chunk_id(&uuid), out.finish().as_doc())
}

/// Gives the document of a renamed collection its new name. That of a dropped target is replaced or
/// removed.
///
/// # Errors
/// Errors of the engine.
pub fn rename_collection(
    store: &Store,
    op: &OpCtx,
    from: &Namespace,
    to: &Namespace,
) -> Result<()> {
    forget_collection(store, op, to)?;
    let Some(before) = stored::read(store, (COLLECTIONS, from.as_str()))? else { return Ok(()) };
    let renamed = store.collection(&ReadView::now(), to);
    let uuid = before.as_doc().get("uuid");
    let is_kept =
        renamed.is_some_and(|collection| uuid == Some(RawValue::uuid(&collection.uuid())));
    // A collection that moves to another database is a copy with a UUID of its own.
    if is_kept {
        let mut out = DocBuilder::new();
        out.append("_id", to.as_str());
        for field in before.as_doc().iter().filter(|field| field.name() != "_id") {
            out.append_element(field);
        }
        stored::put(store, op, (COLLECTIONS, to.as_str()), out.finish().as_doc())?;
        let collections = Namespace::new("config", COLLECTIONS)?;
        return documents::remove(store, op, &collections, from.as_str());
    }
    forget_collection(store, op, from)
}

/// Whether a shard key is unique.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Uniqueness {
    /// Two documents cannot have the same key.
    Unique,
    /// Documents may have the same key.
    Shared,
}

/// Removes the documents of a collection that was dropped.
///
/// # Errors
/// Errors of the engine.
pub fn forget_collection(store: &Store, op: &OpCtx, ns: &Namespace) -> Result<()> {
    forget(store, op, ns.as_str())
}

fn forget(store: &Store, op: &OpCtx, name: &str) -> Result<()> {
    let Some(document) = stored::read(store, (COLLECTIONS, name))? else { return Ok(()) };
    if let Some(RawValue::Binary { bytes, .. }) = document.as_doc().get("uuid") {
        documents::remove(store, op, &Namespace::new("config", CHUNKS)?, chunk_id(bytes))?;
    }
    documents::remove(store, op, &Namespace::new("config", COLLECTIONS)?, name)
}

/// Removes the documents of a database that was dropped.
///
/// # Errors
/// Errors of the engine.
pub fn forget_database(store: &Store, op: &OpCtx, db: &str) -> Result<()> {
    let collections = Namespace::new("config", COLLECTIONS)?;
    if let Some(collection) = store.collection(&ReadView::now(), &collections) {
        for name in names_below(store, &collection, &[db, "."].concat())? {
            forget(store, op, &name)?;
        }
    }
    documents::remove(store, op, &Namespace::new("config", DATABASES)?, db)
}

/// The ids in a collection that begin with this prefix.
fn names_below(store: &Store, collection: &Collection, prefix: &str) -> Result<Vec<String>> {
    let snapshot = store.snapshot(&ReadView::now())?;
    let (direction, mut range, mut names) = (Direction::Forward, whole_range(), Vec::new());
    loop {
        let scanned = snapshot.scan_records(
            collection,
            &range,
            direction,
            ScanLimit::NONE,
            &mut |_, document| {
                let name = document.get("_id").and_then(RawValue::as_str);
                names.extend(name.filter(|name| name.starts_with(prefix)).map(str::to_owned));
                Ok(ControlFlow::Continue(()))
            },
        )?;
        match scanned {
            ScanResult::Exhausted => return Ok(names),
            ScanResult::Paused(last) => range = range.after(&last, direction),
        }
    }
}

/// Whether the balancer was started; it has nothing to do.
///
/// # Errors
/// Errors of the engine.
pub fn balancer_runs(store: &Store) -> Result<bool> {
    let stored = stored::read(store, BALANCER)?;
    let mode = stored.as_ref().and_then(|document| document.as_doc().get("mode"));
    Ok(mode == Some(RawValue::String("full")))
}

/// Records whether the balancer runs.
///
/// # Errors
/// Errors of the engine.
pub fn record_balancer(store: &Store, op: &OpCtx, mode: BalancerMode) -> Result<()> {
    let mut out = DocBuilder::new();
    out.append("_id", BALANCER.1);
    match mode {
        BalancerMode::Full => out.append("mode", "full").append("stopped", false),
        BalancerMode::Off => out.append("mode", "off").append("stopped", true),
    };
    stored::put(store, op, BALANCER, out.finish().as_doc())
}

/// The mode of the balancer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BalancerMode {
    /// It may run.
    Full,
    /// It is stopped.
    Off,
}

fn timestamp(op: &OpCtx) -> RawValue<'static> {
    let seconds = u64::try_from(op.now_ms() / 1000).unwrap_or(0);
    RawValue::Timestamp(seconds << 32 | 1)
}
