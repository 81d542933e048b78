//! Searches over open files.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_query::{SearchHit, SearchHits, SearchKind, Searched, Searcher, WantedOfHits};
use mayfly_search::{Control, Cursor, Hit, Query, ScoreDetails, SharedCheck};
use mayfly_storage::{Collection, SearchIndex, SearchVersion, StoreSession};
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue};

use super::{OpenSearch, SearchIndexes};

/// The name of an index that a stage does not name.
const DEFAULT_NAME: &str = "default";

/// The number of hits in a page: the first one, and the largest, with keys only and with stored
/// fields or explanations. Each page is a search of its own, so that long results need large pages.
const FIRST_PAGE: usize = 32;
const LARGEST_PAGE: usize = 8_192;
const LARGEST_FULL_PAGE: usize = 512;

/// How often a search goes on with another version of its index, before it ends with an error.
const MOST_REPLACED: u32 = 10;

impl Searcher for SearchIndexes {
    fn start(
        &self,
        session: StoreSession<'_>,
        searched: &Searched,
        kind: SearchKind,
        spec: RawDoc<'_>,
        wanted: WantedOfHits,
    ) -> Result<Option<Box<dyn SearchHits>>> {
        let name = match spec.get("index") {
            None | Some(RawValue::Null) => DEFAULT_NAME,
            Some(RawValue::String(name)) => name,
            Some(_) => return Err(refused("\"index\" must be a string")),
        };
        // Before the index is looked up: a secondary may have learnt of another definition.
        let needed = session.store.newest_write()?;
        let Some(open) = self.await_files(session, searched, name, needed)? else {
            return Ok(None);
        };
        self.searches.add(1);
        let query = match kind {
            SearchKind::Vector => Query::parse_vector_search(spec, &open.definition)?,
            SearchKind::Search | SearchKind::Meta => Query::parse_search(spec, &open.definition)?,
        };
        let size = query.limit().or(wanted.documents).unwrap_or(FIRST_PAGE);
        let is_full = query.returns_stored_source() || spec.get("scoreDetails").is_some();
        let largest = if is_full { LARGEST_FULL_PAGE } else { LARGEST_PAGE };
        let (collection, size) = (searched.collection.clone(), size.clamp(1, largest));
        let (after, is_over) = (None, false);
        Ok(Some(Box::new(Hits { open, collection, query, wanted, after, size, largest, is_over })))
    }
}

/// The index of this name on what is searched.
fn named(Searched { collection, view }: &Searched, name: &str) -> Option<Arc<SearchIndex>> {
    let indexes = collection.search_indexes();
    let on = view.as_ref().map(|view| view.ns.collection());
    let mut own = indexes.iter().filter(|index| index.view.as_deref() == on);
    own.find(|index| index.name == name).cloned()
}

/// Whether a version was dropped since the index was looked up.
fn is_outdated(index: &SearchIndex) -> bool {
    index.versions.iter().any(|version| version.is_dropped())
}

impl SearchIndexes {
    /// The files that serve searches of this index, when they have every write up to this
    /// timestamp; `None` without such an index. If a newer version replaces the one that the search
    /// waits for, the search continues with the newer one.
    fn await_files(
        &self,
        session: StoreSession<'_>,
        searched: &Searched,
        name: &str,
        needed: u64,
    ) -> Result<Option<Arc<OpenSearch>>> {
        let mut replaced = 0;
        loop {
            let Some(index) = named(searched, name) else { return Ok(None) };
            let found = self.await_version(session, searched, &index, needed).and_then(|version| {
                version.files.get::<OpenSearch>().ok_or_else(|| not_ready(&index))
            });
            match found {
                Err(_) if replaced < MOST_REPLACED && is_outdated(&index) => {
                    searched.collection.check_alive()?;
                    session.op.check()?;
                    replaced += 1;
                }
                found => return found.map(Some),
            }
        }
    }

    /// The version that serves searches, when it has every write up to this timestamp.
    fn await_version(
        &self,
        session: StoreSession<'_>,
        Searched { collection, view }: &Searched,
        index: &SearchIndex,
        needed: u64,
    ) -> Result<Arc<SearchVersion>> {
        let transformation = view.as_ref().map(|view| view.transformation());
        let latest = index.latest().and_then(|version| version.transformation.as_ref());
        if let Some(view) = view
            && latest != transformation.as_ref()
        {
            session.store.note_view_changed(&view.ns);
        }
        let Some(version) = index.serving_over(transformation.as_ref()).cloned() else {
            return Err(not_ready(index));
        };
        let millis = u64::try_from(self.wait_millis.load(Ordering::Relaxed)).unwrap_or(0);
        let longest = Duration::from_millis(millis);
        let is_current =
            session.store.await_search(session.op, collection, &version, (needed, longest))?;
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

/// The hits of one search.
struct Hits {
    open: Arc<OpenSearch>,
    collection: Arc<Collection>,
    query: Query,
    wanted: WantedOfHits,
    after: Option<Cursor>,
    size: usize,
    /// The largest size of a page.
    largest: usize,
    is_over: bool,
}

fn of_operation(session: StoreSession<'_>) -> SharedCheck {
    let op = session.op.clone();
    Arc::new(move || op.check())
}

/// Ends a search with its operation. Hidden documents are recognised when they are read.
struct OfOperation<'o>(StoreSession<'o>);

impl Control for OfOperation<'_> {
    fn check(&self) -> Result<()> {
        self.0.op.check()
    }

    fn shared_check(&self) -> SharedCheck {
        of_operation(self.0)
    }

    fn is_hidden(&self, _: &[u8]) -> bool {
        false
    }
}

/// Ends a count with its operation, and leaves out documents that a policy hides.
struct OfVisible<'o> {
    session: StoreSession<'o>,
    collection: &'o Collection,
    /// Why a document could not be read.
    failure: RefCell<Option<Error>>,
}

impl Control for OfVisible<'_> {
    fn check(&self) -> Result<()> {
        self.failure.borrow().clone().map_or(Ok(()), Err)?;
        self.session.op.check()
    }

    fn shared_check(&self) -> SharedCheck {
        of_operation(self.session)
    }

    fn is_hidden(&self, id_key: &[u8]) -> bool {
        if !self.collection.hides_expired() {
            return false;
        }
        // Reads may take long, with data in another process. After an error nothing is counted.
        if let Err(error) = self.check() {
            *self.failure.borrow_mut() = Some(error);
            return true;
        }
        let (store, view) = (self.session.store, self.session.view);
        match store.read_by_id(view, self.collection, id_key, |_, _| ()) {
            Ok(found) => found.is_none(),
            Err(error) => {
                *self.failure.borrow_mut() = Some(error);
                true
            }
        }
    }
}

impl SearchHits for Hits {
    fn page(&mut self, session: StoreSession<'_>) -> Result<Vec<SearchHit>> {
        if self.is_over {
            return Ok(Vec::new());
        }
        let control = OfOperation(session);
        let index = &self.open.index;
        let page = index.search(&self.query, self.after.as_ref(), self.size, &control)?;
        self.is_over = page.next.is_none();
        self.after = page.next;
        self.size = (2 * self.size).min(self.largest);
        let hit = |hit: Hit| SearchHit {
            score: f64::from(hit.score),
            token: self.wanted.tokens.then(|| hit.sequence_token()),
            details: hit.score_details.as_ref().map(ScoreDetails::to_document),
            stored: hit.stored_source,
            id_key: hit.record_key,
        };
        Ok(page.hits.into_iter().map(hit).collect())
    }

    fn limit(&self) -> Option<usize> {
        self.query.limit()
    }

    fn metadata(&self, session: StoreSession<'_>) -> Result<DocBuf> {
        let failure = RefCell::new(None);
        let control = OfVisible { session, collection: &self.collection, failure };
        let metadata = self.open.index.metadata(&self.query, &control)?;
        control.check()?;
        Ok(metadata)
    }

    fn highlights(&self, document: RawDoc<'_>) -> Option<DocBuf> {
        if !self.query.returns_highlights() {
            return None;
        }
        let mut out = DocBuilder::new_array();
        for highlight in self.open.index.highlights(&self.query, document) {
            out.push(&highlight.to_document());
        }
        Some(out.finish())
    }

    fn explain(&self) -> DocBuf {
        self.open.index.explain(&self.query)
    }
}
