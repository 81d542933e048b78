//! Query settings: what administrators specify for queries of one shape. They are stored in one
//! document of the database `config`, as in the reference, and are read at startup.
//!
//! ```text
//! config.clusterParameters   { _id: "querySettings", clusterParameterTime,
//!                              settingsArray: [ { queryShapeHash, settings, representativeQuery? } ... ] }
//! ```
//!
//! A command on a collection without settings only does one load. For other collections, the
//! command's shape is computed and looked up.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use mayfly_base::{Error, ErrorCode, Namespace, Result, limits};
use mayfly_query::{AllowedBy, AllowedIndexes, Hint, IndexHints, QueryShape, QueryShapeHash};
use mayfly_storage::Store;
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue};
use mayfly_work::OpCtx;
use parking_lot::{Mutex, RwLock};

use super::stored::{put, read};

const STORED: (&str, &str) = ("clusterParameters", "querySettings");

/// The settings for queries of one shape.
#[derive(Clone, Debug)]
pub struct QuerySetting {
    /// The hash of the shape.
    pub hash: QueryShapeHash,
    /// The settings as they were sent.
    pub settings: DocBuf,
    /// A query of the shape, with its `$db`, if known.
    pub query: Option<DocBuf>,
    /// Whether such queries are refused.
    pub reject: bool,
    /// The indexes that they may use; `None` for all.
    pub hints: Option<Arc<IndexHints>>,
}

impl QuerySetting {
    /// Reads the settings.
    ///
    /// # Errors
    /// 8727500 and 8727501 without a namespace, 7746608 for two lists of one collection; errors of
    /// the hints.
    pub fn new(hash: QueryShapeHash, settings: DocBuf, query: Option<DocBuf>) -> Result<Self> {
        let reject = settings.as_doc().get("reject") == Some(RawValue::Bool(true));
        let hints = hints(settings.as_doc())?;
        let hints = (!hints.is_empty()).then(|| Arc::new(hints));
        Ok(QuerySetting { hash, settings, query, reject, hints })
    }

    /// The command's name, collection and body.
    fn command(&self) -> Option<(&str, Namespace, RawDoc<'_>)> {
        let body = self.query.as_ref()?.as_doc();
        let first = body.iter().next()?;
        let ns = namespace_of(body.get("$db")?.as_str()?, first.value())?;
        Some((first.name(), ns, body))
    }

    /// The shape, if a query of it is known.
    pub fn shape(&self) -> Option<QueryShape> {
        let (name, ns, body) = self.command()?;
        QueryShape::of(name, &ns, body)
    }

    /// Appends the fields as in `setQuerySettings` and `$querySettings`.
    pub fn append_to(&self, out: &mut DocBuilder) {
        out.append("queryShapeHash", self.hash.to_string().as_str());
        out.append("settings", &self.settings);
        if let Some(query) = &self.query {
            out.append("representativeQuery", query);
        }
    }
}

/// The namespace in a command's first value; that of a collectionless aggregate for a number.
pub fn namespace_of(db: &str, target: RawValue<'_>) -> Option<Namespace> {
    match target {
        RawValue::String(collection) => Namespace::new(db, collection).ok(),
        number if number.is_number() => Namespace::new(db, "$cmd.aggregate").ok(),
        _ => None,
    }
}

/// The `indexHints` of settings: a list, or one of them.
fn hints(settings: RawDoc<'_>) -> Result<IndexHints> {
    let mut hints = IndexHints::default();
    match settings.get("indexHints") {
        Some(RawValue::Document(only)) => add_hint(only, &mut hints)?,
        Some(RawValue::Array(list)) => {
            for item in list.iter().filter_map(|item| item.value().as_document()) {
                add_hint(item, &mut hints)?;
            }
        }
        _ => {}
    }
    Ok(hints)
}

fn add_hint(hint: RawDoc<'_>, hints: &mut IndexHints) -> Result<()> {
    let ns = hint.get("ns").and_then(RawValue::as_document).unwrap_or(RawDoc::EMPTY);
    let part = |name: &str, code: i32| {
        let text = format!("invalid index hint: 'ns.{name}' field is missing");
        let part = ns.get(name).and_then(|part| part.as_str());
        part.ok_or_else(|| Error::new(ErrorCode(code), text))
    };
    let ns = Namespace::new(part("db", 8727500)?, part("coll", 8727501)?)?;
    let mut allowed = AllowedIndexes::none(AllowedBy::QuerySettings);
    if let Some(RawValue::Array(items)) = hint.get("allowedIndexes") {
        for item in items {
            if let Some(hint) = Hint::parse(item.value())? {
                allowed.allow(hint);
            }
        }
    }
    let shown = ns.as_str().to_owned();
    match hints.add(ns, allowed) {
        true => Ok(()),
        false => {
            let text = format!("Collection '{shown}' has already index hints specified");
            Err(Error::new(ErrorCode(7746608), text))
        }
    }
}

/// All query settings, ordered by the hash of their shape.
pub type Entries = BTreeMap<QueryShapeHash, Arc<QuerySetting>>;

/// The settings, and the namespaces of their queries.
#[derive(Default)]
struct Installed {
    entries: Entries,
    namespaces: BTreeSet<Namespace>,
}

/// The query settings of a server.
#[derive(Default)]
pub struct QuerySettings {
    any: AtomicBool,
    installed: RwLock<Arc<Installed>>,
    /// Held while they are changed.
    changing: Mutex<()>,
}

impl QuerySettings {
    /// Reads the stored settings.
    ///
    /// # Errors
    /// Errors of the engine.
    pub(crate) fn load(store: &Store) -> Result<QuerySettings> {
        let settings = QuerySettings::default();
        let stored = read(store, STORED)?;
        let list = stored.as_ref().and_then(|stored| stored.as_doc().get("settingsArray"));
        let Some(RawValue::Array(list)) = list else { return Ok(settings) };
        let mut entries = Entries::new();
        for item in list.iter().filter_map(|item| item.value().as_document()) {
            match stored_setting(item) {
                Some(setting) => drop(entries.insert(setting.hash, Arc::new(setting))),
                None => tracing::warn!("query settings in config.clusterParameters cannot be read"),
            }
        }
        settings.install(entries);
        Ok(settings)
    }

    /// Takes over settings that were loaded.
    pub(crate) fn adopt(&self, loaded: &QuerySettings) {
        self.install(loaded.installed.read().entries.clone());
    }

    fn install(&self, entries: Entries) {
        let any = !entries.is_empty();
        let commands = entries.values().filter_map(|setting| setting.command());
        let namespaces = commands.map(|(_, ns, _)| ns).collect();
        *self.installed.write() = Arc::new(Installed { entries, namespaces });
        self.any.store(any, Ordering::Relaxed);
    }

    /// Whether there are any query settings.
    #[inline]
    pub fn any(&self) -> bool {
        self.any.load(Ordering::Relaxed)
    }

    /// All query settings.
    pub fn all(&self) -> Vec<Arc<QuerySetting>> {
        self.installed.read().entries.values().cloned().collect()
    }

    /// The settings that apply to a command on this namespace.
    pub fn of(&self, name: &str, ns: &Namespace, body: RawDoc<'_>) -> Option<Arc<QuerySetting>> {
        if !self.any() {
            return None;
        }
        let installed = self.installed.read().clone();
        if !installed.namespaces.contains(ns) {
            return None;
        }
        installed.entries.get(&QueryShape::of(name, ns, body)?.hash()).cloned()
    }

    /// Changes the settings, in the store first.
    ///
    /// # Errors
    /// 10334 BSONObjectTooLarge, errors of `change` and of the engine; the settings stay as they
    /// were.
    pub fn change(
        &self,
        store: &Store,
        op: &OpCtx,
        change: impl FnOnce(&mut Entries) -> Result<()>,
    ) -> Result<()> {
        let _changing = self.changing.lock();
        let mut entries = self.installed.read().entries.clone();
        change(&mut entries)?;
        let mut out = DocBuilder::new();
        out.append("_id", STORED.1);
        out.append("clusterParameterTime", RawValue::Timestamp(store.new_timestamp()));
        out.start_array("settingsArray");
        for setting in entries.values() {
            setting.append_to(out.push_document());
            out.end();
        }
        out.end();
        let document = out.finish();
        if document.as_doc().as_bytes().len() > limits::MAX_USER_DOCUMENT_BYTES {
            let text = "the query settings are larger than a document may be";
            return Err(Error::new(ErrorCode::BSONObjectTooLarge, text));
        }
        put(store, op, STORED, document.as_doc())?;
        self.install(entries);
        Ok(())
    }
}

/// Reads an entry of the stored list. If its query is known, its hash is computed again, because an
/// older version may have computed shapes differently.
fn stored_setting(item: RawDoc<'_>) -> Option<QuerySetting> {
    let document =
        |name: &str| item.get(name).and_then(RawValue::as_document).map(RawDoc::to_owned);
    let hash = QueryShapeHash::parse(item.get("queryShapeHash")?.as_str()?)?;
    let setting = QuerySetting::new(hash, document("settings")?, document("representativeQuery"));
    let mut setting = setting.ok()?;
    if let Some(shape) = setting.shape() {
        setting.hash = shape.hash();
    }
    Some(setting)
}
