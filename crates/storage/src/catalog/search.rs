//! Search indexes in the catalog: their definitions, and the state of what a higher layer makes of
//! them. Storage does not know what such an index contains.
//!
//! ```text
//! catalog key                    value
//! s | id of the collection       { indexes: [ index ... ] }
//!                                index: { id, name, type, view?, versions: [ version ... ] }
//!                                version: { file, number, created, ready, definition,
//!                                           transformation? }
//! p | file of a version          positions, between which the log has no changes (`feed`)
//! ```
//!
//! An update of a definition adds a version. The version before it serves searches until the new
//! one is ready. Each version has files of its own, under an id that is never reused. A collection
//! keeps its search indexes when it is renamed. They are dropped with it. `$out` and
//! `convertToCapped` hand the definitions to the new collection, under new ids.
//!
//! A search index on a view is listed with the collection that the view reads, because it follows
//! that collection's part of the log. Each version notes the stages and the collation of the view
//! whose documents its files contain. See `ddl/search_views.rs`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue};
use parking_lot::{Mutex, RwLock};

use super::{Attached, Feed};

/// A search index of a collection.
#[derive(Clone)]
pub struct SearchIndex {
    /// The id that clients see: 24 hexadecimal digits.
    pub id: String,
    /// The name, unique among the indexes of the collection and of the views that read it.
    pub name: String,
    /// The type, `search` or `vectorSearch`.
    pub kind: String,
    /// The view that it is on, without the database; `None` for an index on the collection.
    pub view: Option<String>,
    /// The newest definition last. An older one is there until the newest is ready.
    pub versions: Vec<Arc<SearchVersion>>,
}

/// A definition of a search index, with the state of its files.
pub struct SearchVersion {
    /// The id of the files, which is never reused.
    pub file: u64,
    /// The number of the definition: 0 for the first one.
    pub number: i64,
    /// When the definition was made, in milliseconds since 1970.
    pub created_ms: i64,
    /// The definition as the client sent it.
    pub definition: DocBuf,
    /// The [`transformation`](crate::ResolvedView::transformation) of the view whose documents the
    /// files contain; `None` for the documents of the collection.
    pub transformation: Option<DocBuf>,
    /// Whether the files contain all documents once.
    pub(crate) ready: AtomicBool,
    pub(crate) dropped: AtomicBool,
    pub(crate) feed: Arc<Feed>,
    /// The open files, attached by a higher layer.
    pub files: Attached,
    /// Why the files cannot be used.
    failure: Mutex<Option<String>>,
}

impl SearchVersion {
    pub(crate) fn new(
        file: u64,
        number: i64,
        created_ms: i64,
        definition: DocBuf,
        transformation: Option<DocBuf>,
    ) -> SearchVersion {
        SearchVersion {
            file,
            number,
            created_ms,
            definition,
            transformation,
            ready: AtomicBool::new(false),
            dropped: AtomicBool::new(false),
            feed: Arc::new(Feed::of_files()),
            files: Attached::default(),
            failure: Mutex::new(None),
        }
    }

    /// Whether the files contained all documents once, so that searches may use them.
    pub fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Acquire) && !self.is_dropped()
    }

    /// Notes that the files contain all documents.
    pub(crate) fn mark_ready(&self) {
        self.ready.store(true, Ordering::Release);
    }

    /// Forgets that the files contained all documents: those of another server did.
    pub(crate) fn forget_ready(&self) {
        self.ready.store(false, Ordering::Release);
    }

    /// Whether the version, its index or its collection was dropped.
    pub fn is_dropped(&self) -> bool {
        self.dropped.load(Ordering::Acquire)
    }

    /// Whether all records have been read, in the present process or before.
    pub fn is_filled(&self) -> bool {
        self.feed.row().is_some_and(|row| row.filled)
    }

    /// Whether reading the records has begun.
    pub fn has_begun(&self) -> bool {
        self.feed.row().is_some()
    }

    /// Why the files cannot be used; `None` as long as they can.
    pub fn failure(&self) -> Option<String> {
        self.failure.lock().clone()
    }

    /// Notes why the files cannot be used. The follower leaves such a version alone.
    pub fn fail(&self, why: String) {
        *self.failure.lock() = Some(why);
    }

    /// Checks that the version is in use.
    ///
    /// # Errors
    /// 175 QueryPlanKilled when it was dropped.
    pub fn check_alive(&self) -> Result<()> {
        match self.is_dropped() {
            false => Ok(()),
            true => Err(Error::new(ErrorCode::QueryPlanKilled, "the search index was dropped")),
        }
    }
}

impl SearchIndex {
    /// The newest definition.
    pub fn latest(&self) -> Option<&Arc<SearchVersion>> {
        self.versions.last()
    }

    /// The version that searches use: the newest one that is ready.
    pub fn serving(&self) -> Option<&Arc<SearchVersion>> {
        self.versions.iter().rev().find(|version| version.is_ready())
    }

    /// The newest version that is ready and contains what a view with this transformation shows.
    /// After a change of the view, versions of before would find documents that it hides.
    pub fn serving_over(&self, transformation: Option<&DocBuf>) -> Option<&Arc<SearchVersion>> {
        let mut newest = self.versions.iter().rev();
        newest.find(|it| it.is_ready() && it.transformation.as_ref() == transformation)
    }

    fn append_to(&self, out: &mut DocBuilder) {
        out.append("id", &*self.id).append("name", &*self.name).append("type", &*self.kind);
        if let Some(view) = &self.view {
            out.append("view", &**view);
        }
        out.start_array("versions");
        for version in &self.versions {
            out.push_document();
            out.append("file", version.file as i64).append("number", version.number);
            out.append("created", RawValue::Date(version.created_ms));
            out.append("ready", version.ready.load(Ordering::Acquire));
            out.append("definition", &version.definition);
            if let Some(transformation) = &version.transformation {
                out.append("transformation", transformation);
            }
            out.end();
        }
        out.end();
    }

    fn decode(stored: RawDoc<'_>) -> Option<SearchIndex> {
        let text = |name: &str| stored.get(name).and_then(RawValue::as_str).map(str::to_owned);
        let versions = stored.get("versions")?.as_array()?;
        let version = |item: RawDoc<'_>| {
            let number = |name: &str| match item.get(name) {
                Some(RawValue::Int64(number)) => Some(number),
                _ => None,
            };
            let Some(RawValue::Date(created_ms)) = item.get("created") else { return None };
            let document = |name: &str| Some(item.get(name)?.as_document()?.to_owned());
            let (definition, transformation) =
                (document("definition")?, document("transformation"));
            let file = u64::try_from(number("file")?).ok()?;
            let number = number("number")?;
            let version = SearchVersion::new(file, number, created_ms, definition, transformation);
            let is_ready = item.get("ready") == Some(RawValue::Bool(true));
            version.ready.store(is_ready, Ordering::Release);
            Some(Arc::new(version))
        };
        let versions = versions.iter().map(|item| version(item.value().as_document()?));
        Some(SearchIndex {
            id: text("id")?,
            name: text("name")?,
            kind: text("type")?,
            view: text("view"),
            versions: versions.collect::<Option<Vec<_>>>().filter(|list| !list.is_empty())?,
        })
    }
}

/// The search indexes of a collection. Changes are made under the catalog's lock.
#[derive(Default)]
pub(crate) struct SearchIndexes {
    are_there: AtomicBool,
    list: RwLock<Arc<Vec<Arc<SearchIndex>>>>,
}

impl SearchIndexes {
    /// Whether there are any. Most collections have none, which costs one load to find out.
    #[inline]
    pub(crate) fn are_there(&self) -> bool {
        self.are_there.load(Ordering::Acquire)
    }

    /// The present indexes.
    pub(crate) fn all(&self) -> Arc<Vec<Arc<SearchIndex>>> {
        self.list.read().clone()
    }

    /// Replaces the indexes. Versions that are not among the new ones are dropped.
    pub(crate) fn install(&self, list: Vec<Arc<SearchIndex>>) {
        let kept: Vec<u64> = files_of(&list).map(|version| version.file).collect();
        let mut present = self.list.write();
        files_of(&present).filter(|version| !kept.contains(&version.file)).for_each(|version| {
            version.dropped.store(true, Ordering::Release);
            version.files.clear();
        });
        self.are_there.store(!list.is_empty(), Ordering::Release);
        *present = Arc::new(list);
    }

    /// All versions.
    pub(crate) fn versions(&self) -> Vec<Arc<SearchVersion>> {
        match self.are_there() {
            true => files_of(&self.all()).cloned().collect(),
            false => Vec::new(),
        }
    }
}

fn files_of(list: &[Arc<SearchIndex>]) -> impl Iterator<Item = &Arc<SearchVersion>> {
    list.iter().flat_map(|index| &index.versions)
}

/// The catalog row of these indexes.
pub(crate) fn encode_search(list: &[Arc<SearchIndex>]) -> DocBuf {
    let mut out = DocBuilder::new();
    out.start_array("indexes");
    for index in list {
        out.push_document();
        index.append_to(&mut out);
        out.end();
    }
    out.finish()
}

/// The indexes in a catalog row; `None` for an unreadable one.
pub(crate) fn decode_search(row: &[u8]) -> Option<Vec<Arc<SearchIndex>>> {
    let indexes = RawDoc::new(row)?.get("indexes")?.as_array()?;
    let decode = |item: RawDoc<'_>| SearchIndex::decode(item).map(Arc::new);
    indexes.iter().map(|item| decode(item.value().as_document()?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_round_trip() {
        let transformation = Some(encode_search(&[]));
        let version =
            SearchVersion::new(7, 2, 1_800_000_000_000, DocBuf::empty(), transformation.clone());
        version.ready.store(true, Ordering::Release);
        let (id, name, kind) = ("a1".to_owned(), "default".to_owned(), "search".to_owned());
        let view = Some("w".to_owned());
        let index = SearchIndex { id, name, kind, view, versions: vec![Arc::new(version)] };
        let row = encode_search(&[Arc::new(index)]);
        let read = decode_search(row.as_bytes()).unwrap();
        assert_eq!(
            (&*read[0].name, &*read[0].kind, read[0].versions[0].file),
            ("default", "search", 7)
        );
        assert!(read[0].serving().is_some());
        assert_eq!(read[0].view.as_deref(), Some("w"));
        assert!(read[0].serving_over(transformation.as_ref()).is_some());
        assert!(read[0].serving_over(None).is_none());
        assert_eq!(encode_search(&read), row);
        assert!(decode_search(&row.as_bytes()[1..]).is_none());
        assert!(decode_search(DocBuf::empty().as_bytes()).is_none());
    }

    #[test]
    fn what_is_replaced_is_dropped() {
        let index = |file| {
            let version = Arc::new(SearchVersion::new(file, 0, 0, DocBuf::empty(), None));
            let (id, name, kind) = (String::new(), "a".to_owned(), "search".to_owned());
            Arc::new(SearchIndex { id, name, kind, view: None, versions: vec![version] })
        };
        let (first, second) = (index(1), index(2));
        let indexes = SearchIndexes::default();
        assert!(!indexes.are_there());
        indexes.install(vec![first.clone(), second.clone()]);
        indexes.install(vec![second.clone()]);
        assert!(first.versions[0].is_dropped() && !second.versions[0].is_dropped());
        indexes.install(Vec::new());
        assert!(second.versions[0].is_dropped() && !indexes.are_there());
    }
}
