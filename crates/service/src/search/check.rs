//! Compares search indexes with the documents of their collection, for `validate`.

use std::sync::Arc;

use mayfly_search::Contents;
use mayfly_storage::{Collection, FilesCheck, SearchVersion};
use mayfly_value::RawDoc;

use super::OpenSearch;

/// What a comparison of one search index found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckedSearch {
    /// The name of the index.
    pub name: String,
    /// The number of documents in the index.
    pub documents: u64,
    /// Documents of the collection that are not in the index and should be.
    pub missing: u64,
    /// Documents of the index that are not in the collection, or have no field that the index
    /// contains, or are there twice.
    pub extra: u64,
    /// Documents that the index has in another version.
    pub outdated: u64,
}

impl CheckedSearch {
    /// Whether the index agrees with the collection.
    pub fn is_valid(&self) -> bool {
        self.missing == 0 && self.extra == 0 && self.outdated == 0
    }
}

/// The comparison of a collection's search indexes. Those that are being built, or cannot follow
/// the writes, are not compared.
pub struct SearchCheck {
    /// The versions of the indexes that serve searches, and the names of the indexes.
    versions: Vec<Arc<SearchVersion>>,
    names: Vec<String>,
    compared: Vec<Compared>,
}

/// A version that is compared.
struct Compared {
    open: Arc<OpenSearch>,
    contents: Contents,
    /// The documents of the collection that were found in the index.
    found: u64,
    result: CheckedSearch,
}

impl SearchCheck {
    /// A comparison of the search indexes that a collection has now.
    pub fn new(collection: &Collection) -> SearchCheck {
        let indexes = collection.search_indexes();
        let serving = indexes.iter().filter_map(|index| Some((index.serving()?, index)));
        let usable =
            serving.filter(|(version, _)| version.is_ready() && version.failure().is_none());
        let (versions, names) =
            usable.map(|(version, index)| (version.clone(), index.name.clone())).unzip();
        SearchCheck { versions, names, compared: Vec::new() }
    }

    /// What was found, once all documents were compared.
    pub fn finish(self) -> Vec<CheckedSearch> {
        let result = |compared: Compared| {
            let documents = compared.contents.len() as u64;
            let extra = compared.result.extra + documents.saturating_sub(compared.found);
            CheckedSearch { documents, extra, ..compared.result }
        };
        self.compared.into_iter().map(result).collect()
    }
}

impl FilesCheck for SearchCheck {
    fn versions(&self) -> &[Arc<SearchVersion>] {
        &self.versions
    }

    fn keep(&mut self, current: &[Arc<SearchVersion>]) {
        for (version, name) in self.versions.iter().zip(&self.names) {
            let is_current = current.iter().any(|other| Arc::ptr_eq(other, version));
            let Some(open) = version.files.get::<OpenSearch>().filter(|_| is_current) else {
                continue;
            };
            let result = CheckedSearch { name: name.clone(), ..CheckedSearch::default() };
            let contents = open.index.contents();
            self.compared.push(Compared { open, contents, found: 0, result });
        }
    }

    fn document(&mut self, id_key: &[u8], modified_ms: i64, document: RawDoc<'_>) {
        for Compared { open, contents, found, result } in &mut self.compared {
            let mut versions = contents.versions(id_key);
            let version = versions.next();
            *found += u64::from(version.is_some());
            // Further versions stay among those that no document has.
            match (version, open.contains(document)) {
                (None, true) => result.missing += 1,
                (Some(_), false) => result.extra += 1,
                (Some(version), true) if version != modified_ms => result.outdated += 1,
                (Some(_), true) | (None, false) => {}
            }
        }
    }
}
