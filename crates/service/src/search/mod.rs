//! Search indexes of the running server: their open files, and searches over them.
//!
//! ```text
//!  follow/search.rs --documents--> OpenSearch <--pages of hits-- Searcher <-- $search,
//!        | position                    |                                      $vectorSearch
//!        v                             v
//!  storage: SearchVersion      dbpath/search/<file>/ (crate `search`)
//! ```
//!
//! An index is derived from its collection. Files that are damaged, of another format, or older
//! than the part of the log that is kept, are emptied and filled again, with a line in the log.

mod check;
mod hits;
mod open;

use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::AtomicI64;

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_search::{Definition, IndexKind};
use mayfly_storage::Store;
use mayfly_value::RawDoc;

use crate::counters::metrics::Counter;

pub use check::{CheckedSearch, SearchCheck};
pub(crate) use open::{Followed, OpenSearch, of_index};

/// The default of `searchWaitMillis`.
const WAIT_MILLIS: i64 = 1_000;

/// What all search indexes of a server have in common.
#[derive(Debug)]
pub struct SearchIndexes {
    /// The folder of all files; unset if data is in memory only.
    pub(crate) folder: OnceLock<PathBuf>,
    /// The longest time that a search waits for the newest writes, in milliseconds.
    pub wait_millis: AtomicI64,
    /// Searches that were started.
    pub searches: Counter,
    /// Searches that went on without the newest writes, because the index was too slow.
    pub late: Counter,
    /// Times that an index was filled again because its files could not be used.
    pub rebuilds: Counter,
}

impl Default for SearchIndexes {
    fn default() -> SearchIndexes {
        SearchIndexes {
            folder: OnceLock::new(),
            wait_millis: AtomicI64::new(WAIT_MILLIS),
            searches: Counter::default(),
            late: Counter::default(),
            rebuilds: Counter::default(),
        }
    }
}

impl SearchIndexes {
    /// Sets the folder of all files, before the first index is opened.
    pub fn keep_in(&self, folder: PathBuf) {
        let _ = self.folder.set(folder);
    }
}

/// Sums over all search indexes of a store.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SearchTotals {
    pub(crate) indexes: u64,
    /// Indexes whose newest definition is not ready.
    pub(crate) building: u64,
    pub(crate) documents: u64,
    pub(crate) file_bytes: u64,
    pub(crate) memory_bytes: u64,
}

impl SearchTotals {
    pub(crate) fn of(store: &Store) -> SearchTotals {
        let mut totals = SearchTotals::default();
        for index in store.search_indexes() {
            totals.indexes += 1;
            totals.building += u64::from(!index.latest().is_some_and(|it| it.is_ready()));
            for version in &index.versions {
                let Some(open) = version.files.get::<OpenSearch>() else { continue };
                let sizes = open.index.sizes();
                totals.documents += sizes.documents;
                totals.file_bytes += sizes.file_bytes;
                totals.memory_bytes += sizes.memory_bytes;
            }
        }
        totals
    }
}

/// The kind of an index by the name of its type.
///
/// # Errors
/// 8 for another name.
pub fn index_kind(name: &str) -> Result<IndexKind> {
    match name {
        "search" => Ok(IndexKind::Search),
        "vectorSearch" => Ok(IndexKind::VectorSearch),
        _ => {
            let text = format!("\"type\" must be one of [search, vectorSearch], found \"{name}\"");
            Err(Error::new(ErrorCode::UnknownError, text))
        }
    }
}

/// The type of an index by its definition, for a request without one: a definition with a list of
/// fields is of the type `vectorSearch`.
pub fn type_of_definition(definition: RawDoc<'_>) -> &'static str {
    match definition.get("fields").is_some_and(|fields| fields.as_array().is_some()) {
        true => "vectorSearch",
        false => "search",
    }
}

/// Checks a definition.
///
/// # Errors
/// 8, with the path of the field in the text.
pub fn check_definition(definition: RawDoc<'_>, kind: IndexKind) -> Result<()> {
    Definition::parse(definition, kind).map(drop)
}
