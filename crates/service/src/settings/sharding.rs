//! The catalog of a router with one shard: which databases and collections clients have sharded.
//! Nothing else depends on it, because the only shard holds all documents.
//!
//! | collection | document |
//! |---|---|
//! | `config.databases` | `{ _id: database, primary: shard, version }` |
//! | `config.collections` | `{ _id: namespace, lastmodEpoch, lastMod, timestamp, uuid, key, unique, noBalance }` |
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
    out.append("uuid", RawValue::Binary { subtype: 4, bytes: &new_uuid() });
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
    let uuid = RawValue::Binary { subtype: 4, bytes: &uuid };
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
    let mut out = DocBuilder::new();
    out.append("_id", ns.as_str());
    out.append("lastmodEpoch", RawValue::ObjectId(new_object_id(op.now_ms())));
    out.append("lastMod", RawValue::Date(op.now_ms())).append("timestamp", timestamp(op));
    out.append("uuid", RawValue::Binary { subtype: 4, bytes: &uuid }).append("key", key);
    out.append("unique", unique == Uniqueness::Unique).append("noBalance", false);
    stored::put(store, op, (COLLECTIONS, ns.as_str()), out.finish().as_doc())
}

/// Whether a shard key is unique.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Uniqueness {
    /// Two documents cannot have the same key.
    Unique,
    /// Documents may have the same key.
    Shared,
}

/// Removes the document of a collection that was dropped.
///
/// # Errors
/// Errors of the engine.
pub fn forget_collection(store: &Store, op: &OpCtx, ns: &Namespace) -> Result<()> {
    documents::remove(store, op, &Namespace::new("config", COLLECTIONS)?, ns.as_str())
}

/// Removes the documents of a database that was dropped.
///
/// # Errors
/// Errors of the engine.
pub fn forget_database(store: &Store, op: &OpCtx, db: &str) -> Result<()> {
    let collections = Namespace::new("config", COLLECTIONS)?;
    if let Some(collection) = store.collection(&ReadView::now(), &collections) {
        for name in names_below(store, &collection, &[db, "."].concat())? {
            documents::remove(store, op, &collections, &name)?;
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
