//! Searches over open files.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_query::{SearchHit, SearchHits, SearchKind, Searcher};
use mayfly_search::{Control, Cursor, Query};
use mayfly_storage::{Collection, SearchIndex, SearchVersion, StoreSession};
use mayfly_value::{Number, RawDoc, RawValue};

use super::{OpenSearch, SearchIndexes};

/// The name of an index that a stage does not name.
const DEFAULT_NAME: &str = "default";

/// The number of hits in a page: the first one, and the largest.
const FIRST_PAGE: usize = 32;
const LARGEST_PAGE: usize = 512;

/// Results are counted exactly up to this number, unless the search says otherwise.
const COUNTED: usize = 1_000;

impl Searcher for SearchIndexes {
    fn start(
        &self,
        session: StoreSession<'_>,
        collection: &Arc<Collection>,
        kind: SearchKind,
        spec: RawDoc<'_>,
    ) -> Result<Option<Box<dyn SearchHits>>> {
        let name = match spec.get("index") {
            None | Some(RawValue::Null) => DEFAULT_NAME,
            Some(RawValue::String(name)) => name,
            Some(_) => return Err(refused("\"index\" must be a string")),
        };
        let indexes = collection.search_indexes();
        let Some(index) = indexes.iter().find(|index| index.name == name) else {
            return Ok(None);
        };
        self.searches.add(1);
        let version = self.await_version(session, collection, index)?;
        let open = version.files.get::<OpenSearch>().ok_or_else(|| not_ready(index))?;
        let query = match kind {
            SearchKind::Vector => Query::parse_vector_search(spec, &open.definition)?,
            SearchKind::Search | SearchKind::Meta => Query::parse_search(spec, &open.definition)?,
        };
        let counted = counted_up_to(spec);
        Ok(Some(Box::new(Hits {
            open,
            query,
            after: None,
            size: FIRST_PAGE,
            is_over: false,
            counted,
        })))
    }
}

impl SearchIndexes {
    /// The version that serves searches, when it has every write that was acknowledged before.
    fn await_version(
        &self,
        session: StoreSession<'_>,
        collection: &Collection,
        index: &SearchIndex,
    ) -> Result<Arc<SearchVersion>> {
        let Some(version) = index.serving().cloned() else { return Err(not_ready(index)) };
        let millis = u64::try_from(self.wait_millis.load(Ordering::Relaxed)).unwrap_or(0);
        let longest = Duration::from_millis(millis);
        let is_current = session.store.await_search(session.op, collection, &version, longest)?;
        if !version.is_filled() {
            return Err(not_ready(index));
        }
        if !is_current {
            self.late.add(1);
        }
        Ok(version)
    }
}

fn refused(text: impl Into<String>) -> Error {
    Error::new(ErrorCode::UnknownError, text)
}

fn not_ready(index: &SearchIndex) -> Error {
    let failure = index.latest().and_then(|version| version.failure());
    match failure {
        Some(why) => refused(format!("the search index {} cannot be used: {why}", index.name)),
        None => {
            refused(format!("cannot query search index {} while in state INITIAL_SYNC", index.name))
        }
    }
}

/// The number of results that are counted; `None` for all.
fn counted_up_to(spec: RawDoc<'_>) -> Option<usize> {
    let count = spec.get("count").and_then(RawValue::as_document);
    let count = count.unwrap_or(RawDoc::EMPTY);
    if count.get("type") == Some(RawValue::String("total")) {
        return None;
    }
    let threshold = count.get("threshold").and_then(Number::from_value);
    Some(threshold.map_or(COUNTED, |threshold| threshold.to_f64() as usize))
}

/// The hits of one search.
struct Hits {
    open: Arc<OpenSearch>,
    query: Query,
    after: Option<Cursor>,
    size: usize,
    is_over: bool,
    counted: Option<usize>,
}

/// Ends a search with its operation. Hidden documents are recognised when they are read.
struct OfOperation<'o>(StoreSession<'o>);

impl Control for OfOperation<'_> {
    fn check(&self) -> Result<()> {
        self.0.op.check()
    }

    fn is_hidden(&self, _: &[u8]) -> bool {
        false
    }
}

impl SearchHits for Hits {
    fn page(&mut self, session: StoreSession<'_>) -> Result<Vec<SearchHit>> {
        if self.is_over {
            return Ok(Vec::new());
        }
        let control = OfOperation(session);
        let size = self.size.min(self.query.limit().unwrap_or(usize::MAX).max(1));
        let page = self.open.index.search(&self.query, self.after.as_ref(), size, &control)?;
        self.is_over = page.next.is_none();
        self.after = page.next;
        self.size = (2 * self.size).min(LARGEST_PAGE);
        let hits = page.hits.into_iter();
        Ok(hits
            .map(|hit| SearchHit { id_key: hit.record_key, score: f64::from(hit.score) })
            .collect())
    }

    fn limit(&self) -> Option<usize> {
        self.query.limit()
    }

    fn counted_up_to(&self) -> Option<usize> {
        self.counted
    }
}
