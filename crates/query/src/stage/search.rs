//! `$search`, `$searchMeta` and `$vectorSearch`: documents from a search index. Manual: "$search
//! (Atlas Search)", "$vectorSearch".
//!
//! The first stage of a pipeline is replaced by a [`RunningSource`]: the server's [`Searcher`]
//! finds the keys of documents, the best ones first, and each document is read in the view of the
//! command before it is shown. So a document that has expired, or that the view does not have, is
//! left out, and the search goes on. The index is asked for pages; between batches, its position
//! and the keys of one page are kept.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::sync::Arc;

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_storage::{Collection, IdKey, StoreSession};
use mayfly_value::arguments::error::mistyped;
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue};

use super::source::{MemorySource, RunningSource};
use super::{Next, PipelineContext, Running, Stage, StageContext, Step};
use crate::exec::Flow;
use crate::language::metadata::{Metadata, SEARCH_META, SEARCH_SCORE, VECTOR_SEARCH_SCORE};
use crate::language::validator::mentions;

/// The stage of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SearchKind {
    /// `$search`: documents with scores.
    Search,
    /// `$searchMeta`: one document about the results.
    Meta,
    /// `$vectorSearch`: documents whose vectors are near.
    Vector,
}

impl SearchKind {
    /// The name of the stage.
    pub fn stage(self) -> &'static str {
        match self {
            SearchKind::Search => "$search",
            SearchKind::Meta => "$searchMeta",
            SearchKind::Vector => "$vectorSearch",
        }
    }

    /// The metadata that results have.
    fn metadata(self) -> &'static [&'static str] {
        match self {
            SearchKind::Search => &[SEARCH_SCORE, SEARCH_META],
            SearchKind::Meta => &[SEARCH_META],
            SearchKind::Vector => &[VECTOR_SEARCH_SCORE],
        }
    }
}

/// A document that a search has found.
pub struct SearchHit {
    /// The ordered key of its `_id`.
    pub id_key: IdKey,
    /// The score of the document.
    pub score: f64,
}

/// The hits of one search, the best first.
pub trait SearchHits: Send {
    /// The next hits; none at the end.
    ///
    /// # Errors
    /// Errors of the index and of the operation's deadline.
    fn page(&mut self, session: StoreSession<'_>) -> Result<Vec<SearchHit>>;

    /// The most documents that the stage returns, if it has a limit.
    fn limit(&self) -> Option<usize>;

    /// The number of documents up to which results are counted for the metadata; `None` for all.
    fn counted_up_to(&self) -> Option<usize>;
}

/// The part of the server that has the search indexes.
pub trait Searcher: Debug + Send + Sync {
    /// Starts a search over a collection. The index has every write that was acknowledged before.
    /// `None`: there is no such index, so that there are no results.
    ///
    /// # Errors
    /// 8 for a faulty search, and for an index that is being built; errors of the operation's
    /// deadline.
    fn start(
        &self,
        session: StoreSession<'_>,
        collection: &Arc<Collection>,
        kind: SearchKind,
        spec: RawDoc<'_>,
    ) -> Result<Option<Box<dyn SearchHits>>>;
}

/// A parsed stage.
#[derive(Clone, Debug)]
pub(crate) struct Search {
    kind: SearchKind,
    spec: DocBuf,
}

/// Parses a stage of a kind. The specification is checked against the definition of its index when
/// the search starts.
pub(crate) fn parse(
    kind: SearchKind,
    value: RawValue<'_>,
    _: &PipelineContext<'_>,
) -> Result<Box<dyn Stage>> {
    let RawValue::Document(spec) = value else {
        let (stage, found) = (kind.stage(), value.type_name());
        return Err(mistyped(format!("{stage} value must be an object. Found: {found}")));
    };
    Ok(Box::new(Search { kind, spec: spec.to_owned() }))
}

impl Stage for Search {
    fn start(self: Box<Self>) -> Box<dyn Running> {
        Box::new(Misplaced)
    }

    fn gives_metadata(&self) -> &'static [&'static str] {
        self.kind.metadata()
    }
}

/// The stage where it is not the first one, which parsing has refused.
struct Misplaced;

impl Running for Misplaced {
    fn push(&mut self, _: &StageContext<'_>, _: RawDoc<'_>, _: &mut Next<'_>) -> Result<Flow> {
        Err(Error::internal("a search runs at the start of a pipeline only"))
    }
}

impl Search {
    /// Starts the search over a collection; without one there are no results. `later` are the
    /// stages that follow.
    ///
    /// # Errors
    /// 31082 SearchNotEnabled without a searcher; errors of the search.
    pub(crate) fn start_over(
        &self,
        session: StoreSession<'_>,
        collection: Option<Arc<Collection>>,
        searcher: Option<&Arc<dyn Searcher>>,
        later: &[Step],
    ) -> Result<Box<dyn RunningSource>> {
        let Some(searcher) = searcher else {
            let text = "Using $search and $vectorSearch aggregation stages requires additional configuration.";
            return Err(Error::new(ErrorCode(31082), text));
        };
        let hits = match &collection {
            Some(found) => searcher.start(session, found, self.kind, self.spec.as_doc())?,
            None => None,
        };
        match (self.kind, hits.zip(collection)) {
            (SearchKind::Meta, None) => Ok(MemorySource::boxed([about(0, self.counts_all())])),
            (_, None) => Ok(MemorySource::boxed(VecDeque::new())),
            (SearchKind::Meta, Some((hits, collection))) => {
                let mut found = Found::new(hits, collection, self.kind);
                let count = found.count(session)?;
                Ok(MemorySource::boxed([about(count, self.counts_all())]))
            }
            (_, Some((hits, collection))) => {
                let mut found = Found::new(hits, collection.clone(), self.kind);
                let mut later = later.iter().filter_map(Step::written);
                if later.any(|spec| mentions(spec, "$$SEARCH_META")) {
                    found.meta = Some(self.meta(session, collection, searcher)?);
                }
                Ok(Box::new(found))
            }
        }
    }

    /// The value of `$$SEARCH_META`, by a search of its own.
    fn meta(
        &self,
        session: StoreSession<'_>,
        collection: Arc<Collection>,
        searcher: &Arc<dyn Searcher>,
    ) -> Result<DocBuf> {
        let hits = searcher.start(session, &collection, self.kind, self.spec.as_doc())?;
        let count = match hits {
            Some(hits) => Found::new(hits, collection, self.kind).count(session)?,
            None => 0,
        };
        Ok(about(count, self.counts_all()))
    }

    /// Whether the specification asks for an exact count.
    fn counts_all(&self) -> bool {
        let count = self.spec.as_doc().get("count").and_then(RawValue::as_document);
        count.and_then(|count| count.get("type")) == Some(RawValue::String("total"))
    }
}

/// The document of `$searchMeta` and the value of `$$SEARCH_META`.
fn about(count: usize, is_total: bool) -> DocBuf {
    let mut out = DocBuilder::new();
    let name = if is_total { "total" } else { "lowerBound" };
    out.start_document("count").append(name, i64::try_from(count).unwrap_or(i64::MAX)).end();
    out.finish()
}

/// The results of a search.
struct Found {
    hits: Box<dyn SearchHits>,
    collection: Arc<Collection>,
    kind: SearchKind,
    /// Hits whose documents were not read yet.
    page: VecDeque<SearchHit>,
    /// The number of documents that may still be returned.
    left: usize,
    is_over: bool,
    /// The value of `$$SEARCH_META`, if the pipeline reads it.
    meta: Option<DocBuf>,
}

impl Found {
    fn new(hits: Box<dyn SearchHits>, collection: Arc<Collection>, kind: SearchKind) -> Found {
        let left = hits.limit().unwrap_or(usize::MAX);
        let (page, is_over) = (VecDeque::new(), left == 0);
        Found { hits, collection, kind, page, left, is_over, meta: None }
    }

    /// The next hit with its document.
    fn read(&mut self, session: StoreSession<'_>) -> Result<Option<(DocBuf, f64)>> {
        self.collection.check_alive()?;
        while !self.is_over {
            let Some(hit) = self.page.pop_front() else {
                self.page = self.hits.page(session)?.into();
                self.is_over = self.page.is_empty();
                continue;
            };
            session.op.check()?;
            let read = |_: &[u8], document: RawDoc<'_>| document.to_owned();
            let (store, view) = (session.store, session.view);
            let found = store.read_by_id(view, &self.collection, &hit.id_key, read)?;
            if let Some(document) = found {
                self.left = self.left.saturating_sub(1);
                self.is_over = self.left == 0;
                return Ok(Some((document, hit.score)));
            }
        }
        Ok(None)
    }

    /// The number of results, up to the number that is to be counted.
    fn count(&mut self, session: StoreSession<'_>) -> Result<usize> {
        let most = self.hits.counted_up_to().unwrap_or(usize::MAX);
        let mut count = 0;
        while count < most && self.read(session)?.is_some() {
            count += 1;
        }
        Ok(count)
    }
}

impl RunningSource for Found {
    fn next(&mut self, session: StoreSession<'_>) -> Result<Option<(DocBuf, Metadata)>> {
        let Some((document, score)) = self.read(session)? else { return Ok(None) };
        let mut notes = DocBuilder::new();
        let name = match self.kind {
            SearchKind::Vector => VECTOR_SEARCH_SCORE,
            SearchKind::Search | SearchKind::Meta => SEARCH_SCORE,
        };
        notes.append(name, score);
        if let Some(meta) = &self.meta {
            notes.append(SEARCH_META, meta);
        }
        Ok(Some((document, Metadata::new(notes.finish()))))
    }

    fn is_over(&self) -> bool {
        self.is_over
    }
}
