//! The catalog: the collections, in memory as one immutable map that readers share, and in the byte
//! store as one document per collection.
//!
//! ```text
//! { ns, uuid, options, idIndex?: { id, ready, spec }, indexes: [ { id, ready, spec } ... ] }
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use mayfly_base::{Error, ErrorCode, Namespace, Result};
use mayfly_kv::{
    Direction, Engine, Guard, KeyRange, Keyspace, ScanEnd, ScanLimit, Txn, TxnOptions,
};
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue};
use mayfly_work::current;
use parking_lot::{Mutex, MutexGuard};

use crate::index::FilterCompiler;
use crate::index::spec::IndexSpec;
use crate::record::error::from_kv;
use crate::record::layout::catalog_key;
use crate::shared::Sequence;

use ranked::{Rank, Ranked};

mod attached;
mod capped;
mod collection;
mod core;
pub(crate) mod counts;
mod definitions;
mod feed;
mod held;
mod history;
mod id_hints;
mod index;
mod loaded;
mod open;
mod open_places;
mod policy;
pub(crate) mod ranked;
mod search;
mod state;
mod temporary;

pub use self::attached::{Attached, Settings};
pub use self::core::Core;
pub(crate) use self::definitions::{Definition, Definitions, Reader, changed};
pub(crate) use self::feed::{Feed, FeedRow, note_stored};
pub(crate) use self::history::PastSnapshot;

pub use self::history::History;
pub(crate) use self::id_hints::IdHints;
pub(crate) use self::open::OpenTransactionGuard;
pub(crate) use self::open_places::{OpenPlace, OpenPlaces};
pub use capped::Capped;
pub(crate) use capped::{CappedRuntime, id_index_spec, maintained};
pub(crate) use collection::ChangedState;
pub use collection::Collection;
pub(crate) use index::IndexRuntime;
pub use index::{Index, UseCounter, VisibleIndexes};
pub(crate) use loaded::Loaded;
pub(crate) use policy::{Policy, PolicySource, TimeToLive};
use search::decode_search;
pub use search::{SearchIndex, SearchVersion};
pub(crate) use search::{SearchIndexes, encode_search};
pub(crate) use state::CollectionState;
pub(crate) use temporary::{OF_AGGREGATION, OF_CONVERSION, is_temporary};

/// The format that this version writes.
const FORMAT: i32 = 3;
/// How many ids a reservation includes beyond the one that is needed.
const FURTHER_IDS: u64 = 63;
/// How often writing the format mark is retried.
const MAX_FORMAT_TRIES: usize = 100;

/// The map of namespaces. Each command looks names up in it several times.
pub(crate) type Namespaces = imbl::GenericHashMap<
    Namespace,
    Arc<Collection>,
    foldhash::fast::RandomState,
    imbl::shared_ptr::DefaultSharedPtr,
>;

/// The lock of all changes of definitions.
pub(crate) type CatalogLock<'c> = Ranked<MutexGuard<'c, ()>>;

/// The catalog in memory.
pub(crate) struct Catalog {
    map: ArcSwap<Namespaces>,
    /// The ids of collections and indexes.
    ids: Sequence,
    /// Held during every change; see [`Catalog::lock`].
    pub(crate) changing: Mutex<()>,
    /// Held while the ranges of dropped objects are cleared.
    pub(crate) sweeping: Mutex<()>,
    /// Dropped objects whose ranges wait for the sweeper.
    pub(crate) dropped: Mutex<Vec<u64>>,
    /// Settings of a higher layer, shared with every collection.
    pub(crate) settings: Arc<Settings>,
    /// Whether there has been a log-fed or a search index since the start. Servers without one look
    /// for none.
    pub(crate) may_be_log_fed: AtomicBool,
}

impl Catalog {
    /// Loads the catalog; an empty store gets a format mark.
    pub(crate) fn load(engine: &dyn Engine, filters: &dyn FilterCompiler) -> Result<Catalog> {
        check_format(engine)?;
        let txn = engine.begin(TxnOptions::READ_ONLY).map_err(from_kv)?;
        let mut map = Namespaces::default();
        let settings = Arc::default();
        for (id, bytes) in rows(&*txn, b'c')? {
            let collection = Arc::new(Loaded::parse(id, &bytes)?.collection(filters, &settings)?);
            map.insert(collection.namespace(), collection);
        }
        for (collection, list) in stored_search(&*txn, &map)? {
            collection.search.install(list);
        }
        let may_be_log_fed = AtomicBool::new(load_attributes(&*txn, &map)?);
        let dropped = rows(&*txn, b'd')?.into_iter().map(|(id, _)| id).collect();
        Ok(Catalog {
            map: ArcSwap::from_pointee(map),
            ids: Sequence::new(catalog_key::NEXT_ID.to_vec(), |_| FURTHER_IDS),
            changing: Mutex::new(()),
            sweeping: Mutex::new(()),
            dropped: Mutex::new(dropped),
            settings,
            may_be_log_fed,
        })
    }

    /// Takes the lock of all changes; `wait` determines how the caller waits.
    pub(crate) fn lock_by<'c>(
        &'c self,
        wait: impl FnOnce(
            &mut dyn FnMut(Duration) -> Option<MutexGuard<'c, ()>>,
        ) -> Result<MutexGuard<'c, ()>>,
    ) -> Result<CatalogLock<'c>> {
        Ranked::take(Rank::Catalog, || wait(&mut |longest| self.changing.try_lock_for(longest)))
    }

    /// Takes the lock of all changes.
    ///
    /// # Errors
    /// Errors of the operation's deadline.
    pub(crate) fn lock(&self) -> Result<CatalogLock<'_>> {
        self.lock_by(|try_for| current::acquire(try_for))
    }

    /// The collection of this name.
    pub(crate) fn get(&self, ns: &Namespace) -> Option<Arc<Collection>> {
        self.map.load().get(ns).cloned()
    }

    /// The present map of all namespaces.
    pub(crate) fn all(&self) -> Arc<Namespaces> {
        self.map.load_full()
    }

    /// Checks that no other database has a name that differs from this one only by case.
    ///
    /// # Errors
    /// 13297 DatabaseDifferCase.
    pub(crate) fn check_case(&self, db: &str) -> Result<()> {
        let all = self.all();
        let mut other = None;
        for existing in all.keys().map(Namespace::db) {
            if existing == db {
                return Ok(());
            }
            if existing.eq_ignore_ascii_case(db) {
                other = Some(existing);
            }
        }
        match other {
            None => Ok(()),
            Some(other) => Err(Error::new(
                ErrorCode::DatabaseDifferCase,
                format!(
                    "db already exists with different case already have: [{other}] trying to create [{db}]"
                ),
            )),
        }
    }

    /// Publishes a changed map. The caller holds the lock of all changes.
    pub(crate) fn publish(&self, change: impl FnOnce(&mut Namespaces)) {
        let mut map = (*self.map.load_full()).clone();
        change(&mut map);
        self.map.store(Arc::new(map));
    }

    /// Loads what rows of their own say of the collections of the present map, except for search
    /// indexes.
    ///
    /// # Errors
    /// 301 DataCorruptionDetected, errors of the engine.
    pub(crate) fn load_attributes(&self, txn: &dyn Txn) -> Result<()> {
        if load_attributes(txn, &self.all())? {
            self.may_be_log_fed.store(true, Ordering::Release);
        }
        Ok(())
    }

    /// The greatest position of a log-fed or search index; 0 without any.
    pub(crate) fn last_fed(&self) -> u64 {
        if !self.may_be_log_fed.load(Ordering::Acquire) {
            return 0;
        }
        let all = self.all();
        let feeds = all.values().flat_map(|collection| collection.feeds());
        feeds.map(|(_, feed)| feed.last()).max().unwrap_or(0)
    }

    /// A new id, which is not used again even if the caller's transaction fails.
    ///
    /// # Errors
    /// As [`Sequence::take`].
    pub(crate) fn new_id(&self, engine: &dyn Engine) -> Result<u64> {
        self.ids.take(1, engine)
    }
}

/// Checks the format mark, or writes it. Another node may be doing the same.
fn check_format(engine: &dyn Engine) -> Result<()> {
    for _ in 0..MAX_FORMAT_TRIES {
        match try_format(engine) {
            Err(error) if error.code() == ErrorCode::WriteConflict => {}
            other => return other,
        }
    }
    try_format(engine)
}

fn try_format(engine: &dyn Engine) -> Result<()> {
    let mut found = None;
    engine
        .get_once(Keyspace::Catalog, catalog_key::FORMAT, &mut |value| {
            let format = RawDoc::new(value).and_then(|doc| doc.get("format"));
            found = Some(match format {
                Some(RawValue::Int32(format)) => format,
                _ => -1,
            });
        })
        .map_err(from_kv)?;
    match found {
        Some(FORMAT) => Ok(()),
        Some(newer) if newer > FORMAT => Err(Error::new(
            ErrorCode::UnsupportedFormat,
            format!(
                "the data was written in format {newer} by a newer server; this one reads {FORMAT}"
            ),
        )),
        Some(_) => Err(damaged("the catalog's format mark")),
        None => {
            let mut mark = DocBuilder::new();
            mark.append("format", FORMAT);
            let mut txn = engine.begin(TxnOptions::default()).map_err(from_kv)?;
            let bytes = mark.finish().into_bytes();
            txn.put(Keyspace::Catalog, catalog_key::FORMAT, &bytes, Guard::Checked)
                .map_err(from_kv)?;
            txn.commit().map_err(from_kv)
        }
    }
}

/// All catalog rows with this first byte: id and value.
pub(crate) fn rows(txn: &dyn Txn, kind: u8) -> Result<Vec<(u64, Vec<u8>)>> {
    let mut rows = Vec::new();
    let mut range = KeyRange::prefix(&[kind]);
    // An engine may end a page early.
    while !range.is_empty() {
        let end = txn.scan(
            Keyspace::Catalog,
            &range,
            Direction::Forward,
            ScanLimit::ALL,
            &mut |key, value| {
                if let Some(id) = catalog_key::id_of(key) {
                    rows.push((id, value.to_vec()));
                }
                std::ops::ControlFlow::Continue(())
            },
        );
        match end.map_err(from_kv)? {
            ScanEnd::Exhausted => break,
            ScanEnd::More { last_key } => range = range.after(&last_key, Direction::Forward),
        }
    }
    Ok(rows)
}

/// Loads multikey bits and positions. Returns whether there are log-fed or search
/// indexes.
fn load_attributes(txn: &dyn Txn, map: &Namespaces) -> Result<bool> {
    load_multikey(txn, map)?;
    load_feeds(txn, map)
}

fn load_multikey(txn: &dyn Txn, map: &Namespaces) -> Result<()> {
    let marks: std::collections::HashMap<u64, Vec<u8>> = rows(txn, b'm')?.into_iter().collect();
    for collection in map.values() {
        for index in collection.indexes() {
            let mask = marks.get(&index.id).and_then(|bytes| bytes.as_slice().try_into().ok());
            let mask = mask.map_or(0, u32::from_le_bytes);
            index.runtime.multikey.store(mask, Ordering::Release);
            index.runtime.multikey_stored.store(mask, Ordering::Release);
        }
    }
    Ok(())
}

/// A collection, and its search indexes in the catalog.
pub(crate) type StoredSearch = (Arc<Collection>, Vec<Arc<SearchIndex>>);

/// The search indexes that rows of their own list for the collections of a map.
///
/// # Errors
/// 301 DataCorruptionDetected.
pub(crate) fn stored_search(txn: &dyn Txn, map: &Namespaces) -> Result<Vec<StoredSearch>> {
    let rows: std::collections::HashMap<u64, Vec<u8>> = rows(txn, b's')?.into_iter().collect();
    let list = |collection: &Arc<Collection>| {
        let list = match rows.get(&collection.id()) {
            Some(row) => {
                decode_search(row).ok_or_else(|| damaged("search indexes in the catalog"))?
            }
            None => Vec::new(),
        };
        Ok((collection.clone(), list))
    };
    map.values().map(list).collect()
}

/// Loads the positions of log-fed and search indexes; returns whether there are such indexes.
fn load_feeds(txn: &dyn Txn, map: &Namespaces) -> Result<bool> {
    let feeds: Vec<_> = map.values().flat_map(|collection| collection.feeds()).collect();
    for (id, value) in if feeds.is_empty() { Vec::new() } else { rows(txn, b'p')? } {
        let feed = feeds.iter().find(|(of, _)| *of == id).map(|(_, feed)| feed);
        if let Some(feed) = feed {
            feed.note_loaded(&value);
        }
    }
    Ok(!feeds.is_empty())
}

/// The catalog document of a collection in this state.
pub(crate) fn encode_collection(
    ns: &Namespace,
    uuid: &[u8; 16],
    state: &CollectionState,
) -> DocBuf {
    let mut doc = DocBuilder::new();
    doc.append("ns", ns.as_str()).append("uuid", RawValue::uuid(uuid));
    doc.append("options", &state.options);
    if let Some(index) = &state.id_index {
        doc.start_document("idIndex");
        append_index(&mut doc, index);
        doc.end();
    }
    doc.start_array("indexes");
    for index in &state.indexes {
        doc.push_document();
        append_index(&mut doc, index);
        doc.end();
    }
    doc.finish()
}

fn append_index(doc: &mut DocBuilder, index: &Index) {
    doc.append("id", index.id as i64);
    doc.append("ready", index.runtime.ready.load(Ordering::Acquire));
    doc.append("spec", index.spec.document());
}

/// An index that is not ready yet.
pub(crate) fn new_index(id: u64, spec: IndexSpec, filters: &dyn FilterCompiler) -> Result<Index> {
    let compile = |filter| filters.compile(filter, spec.collation());
    let filter = spec.partial_filter().map(compile).transpose()?;
    let feed = spec.is_log_fed().then(Arc::default);
    Ok(Index { id, spec, filter, runtime: Arc::new(IndexRuntime { feed, ..Default::default() }) })
}

fn damaged(what: &str) -> Error {
    Error::new(ErrorCode::DataCorruptionDetected, format!("{what} cannot be read"))
}
