//! `$search`, `$searchMeta` and `$vectorSearch`: documents from a search index. Manual: "$search
//! (Atlas Search)", "$vectorSearch".
//!
//! The first stage of a pipeline is replaced by a [`RunningSource`]: the server's [`Searcher`]
//! finds the keys of documents, the best ones first, and each document is read in the view of the
//! command before it is shown. So a document that has expired, or that the view does not have, is
//! left out, and the search goes on. The index is asked for pages; between batches, its position
//! and the keys of one page are kept.
//!
//! On a view, the search uses an index on the view, and each document is shown as the view shows
//! it. The stages of the view are therefore no part of the pipeline.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::sync::Arc;

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_storage::{Collection, IdKey, ResolvedView, StoreSession};
use mayfly_value::arguments::error::mistyped;
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue};

use super::source::{MemorySource, RunningSource};
use super::window::Limit;
use super::{Next, PipelineContext, Running, Stage, StageContext, Step};
use crate::exec::Flow;
use crate::language::SearchedView;
use crate::language::metadata::{
    Metadata, SEARCH_HIGHLIGHTS, SEARCH_META, SEARCH_SCORE, SEARCH_SCORE_DETAILS,
    SEARCH_SEQUENCE_TOKEN, VECTOR_SEARCH_SCORE,
};
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
            SearchKind::Search => &[
                SEARCH_SCORE,
                SEARCH_HIGHLIGHTS,
                SEARCH_SCORE_DETAILS,
                SEARCH_SEQUENCE_TOKEN,
                SEARCH_META,
            ],
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
    /// The fields that the index keeps, if the search returns them instead of the document.
    pub stored: Option<DocBuf>,
    /// The explanation of the score, if the search asks for it.
    pub details: Option<DocBuf>,
    /// The token after which a later search goes on, if [`WantedOfHits`] says so.
    pub token: Option<String>,
}

/// What the stages after a search need of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WantedOfHits {
    /// The number of documents that are read, if it is known.
    pub documents: Option<usize>,
    /// Whether the stages read tokens.
    pub tokens: bool,
    /// Whether the stages read the metadata of the whole search.
    pub metadata: bool,
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

    /// The document of `$searchMeta`: the number of results, and facets.
    ///
    /// # Errors
    /// As [`SearchHits::page`].
    fn metadata(&self, session: StoreSession<'_>) -> Result<DocBuf>;

    /// The array of highlights of a document; `None` if the search asks for none.
    fn highlights(&self, document: RawDoc<'_>) -> Option<DocBuf>;

    /// How the search runs, for explain.
    fn explain(&self) -> DocBuf;
}

/// The documents that a search is over.
#[derive(Clone)]
pub struct Searched {
    /// The collection whose documents the index contains.
    pub collection: Arc<Collection>,
    /// The view whose documents are searched; `None` for those of the collection.
    pub view: Option<Arc<ResolvedView>>,
}

/// The part of the server that has the search indexes.
pub trait Searcher: Debug + Send + Sync {
    /// Starts a search over a collection or a view. The index has every write that was acknowledged
    /// before. `None`: there is no such index, so that there are no results.
    ///
    /// # Errors
    /// 8 for a faulty search, and for an index that is being built; errors of the operation's
    /// deadline.
    fn start(
        &self,
        session: StoreSession<'_>,
        searched: &Searched,
        kind: SearchKind,
        spec: RawDoc<'_>,
        wanted: WantedOfHits,
    ) -> Result<Option<Box<dyn SearchHits>>>;
}

/// A parsed stage.
#[derive(Clone, Debug)]
pub(crate) struct Search {
    kind: SearchKind,
    spec: DocBuf,
    /// The view that the pipeline is over, and its stages if search indexes can be on it.
    view: Option<(Arc<ResolvedView>, Result<SearchedView>)>,
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
    Ok(Box::new(Search { kind, spec: spec.to_owned(), view: None }))
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
    /// The name of the stage.
    pub(crate) fn name(&self) -> &'static str {
        self.kind.stage()
    }

    /// Searches a view instead of a collection.
    pub(crate) fn set_view(&mut self, view: Arc<ResolvedView>, stages: Result<SearchedView>) {
        self.view = Some((view, stages));
    }

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
        let mut written = later.iter().filter_map(Step::written);
        let wanted = WantedOfHits {
            documents: later.first().and_then(Step::get::<Limit>).map(|limit| limit.0 as usize),
            tokens: written.clone().any(|spec| mentions(spec, SEARCH_SEQUENCE_TOKEN)),
            metadata: self.kind == SearchKind::Meta
                || written.any(|spec| mentions(spec, "$$SEARCH_META")),
        };
        let spec = self.spec.as_doc();
        let view = self.view.as_ref().map(|(view, _)| view);
        let searched = collection.map(|collection| Searched { collection, view: view.cloned() });
        let hits = match &searched {
            Some(searched) => searcher.start(session, searched, self.kind, spec, wanted)?,
            None => None,
        };
        let Some((hits, searched)) = hits.zip(searched) else {
            return Ok(match self.kind {
                SearchKind::Meta => MemorySource::boxed([nothing(spec)]),
                SearchKind::Search | SearchKind::Vector => MemorySource::boxed(VecDeque::new()),
            });
        };
        let meta = match wanted.metadata {
            true => Some(hits.metadata(session)?),
            false => None,
        };
        match (self.kind, meta) {
            (SearchKind::Meta, Some(meta)) => Ok(MemorySource::boxed([meta])),
            (kind, meta) => {
                let stages = self.view.as_ref().map(|(_, stages)| stages.clone()).transpose()?;
                Ok(Box::new(Found::new((hits, searched.collection, stages), kind, meta)))
            }
        }
    }
}

/// The document of `$searchMeta` without an index.
fn nothing(spec: RawDoc<'_>) -> DocBuf {
    let count = spec.get("count").and_then(RawValue::as_document);
    let kind = count.and_then(|count| count.get("type"));
    let is_total = kind == Some(RawValue::String("total"));
    let mut out = DocBuilder::new();
    out.start_document("count").append(if is_total { "total" } else { "lowerBound" }, 0_i64).end();
    out.finish()
}

/// The results of a search.
struct Found {
    hits: Box<dyn SearchHits>,
    collection: Arc<Collection>,
    /// The view whose documents are shown.
    view: Option<SearchedView>,
    kind: SearchKind,
    /// Hits whose documents were not read yet.
    page: VecDeque<SearchHit>,
    /// The number of documents that may still be returned.
    left: usize,
    is_over: bool,
    returned: u64,
    /// The value of `$$SEARCH_META`, if the pipeline reads it.
    meta: Option<DocBuf>,
}

impl Found {
    fn new(
        (hits, collection, view): (Box<dyn SearchHits>, Arc<Collection>, Option<SearchedView>),
        kind: SearchKind,
        meta: Option<DocBuf>,
    ) -> Found {
        let left = hits.limit().unwrap_or(usize::MAX);
        let (page, is_over) = (VecDeque::new(), left == 0);
        Found { hits, collection, view, kind, page, left, is_over, returned: 0, meta }
    }

    /// The document of a key as the command's view has it, and as the searched view shows it.
    fn shown(&self, session: StoreSession<'_>, id_key: &[u8]) -> Result<Option<DocBuf>> {
        let read = |_: &[u8], document: RawDoc<'_>| document.to_owned();
        let found = session.store.read_by_id(session.view, &self.collection, id_key, read)?;
        match (&self.view, found) {
            (Some(view), Some(found)) => view.show(found.as_doc()),
            (_, found) => Ok(found),
        }
    }

    /// The next hit that is visible, with its document.
    fn read(&mut self, session: StoreSession<'_>) -> Result<Option<(SearchHit, DocBuf)>> {
        self.collection.check_alive()?;
        while !self.is_over {
            let Some(hit) = self.page.pop_front() else {
                self.page = self.hits.page(session)?.into();
                self.is_over = self.page.is_empty();
                continue;
            };
            session.op.check()?;
            if let Some(document) = self.shown(session, &hit.id_key)? {
                self.left = self.left.saturating_sub(1);
                self.is_over = self.left == 0;
                self.returned += 1;
                return Ok(Some((hit, document)));
            }
        }
        Ok(None)
    }

    /// The metadata of a hit.
    fn notes(&self, hit: &SearchHit, document: RawDoc<'_>) -> Metadata {
        let mut notes = DocBuilder::new();
        if self.kind == SearchKind::Vector {
            notes.append(VECTOR_SEARCH_SCORE, hit.score);
            return Metadata::new(notes.finish());
        }
        notes.append(SEARCH_SCORE, hit.score);
        if let Some(highlights) = self.hits.highlights(document) {
            notes.append(SEARCH_HIGHLIGHTS, RawValue::Array(highlights.as_doc()));
        }
        if let Some(details) = &hit.details {
            notes.append(SEARCH_SCORE_DETAILS, details);
        }
        if let Some(token) = &hit.token {
            notes.append(SEARCH_SEQUENCE_TOKEN, &**token);
        }
        if let Some(meta) = &self.meta {
            notes.append(SEARCH_META, meta);
        }
        Metadata::new(notes.finish())
    }
}

impl RunningSource for Found {
    fn next(&mut self, session: StoreSession<'_>) -> Result<Option<(DocBuf, Metadata)>> {
        let Some((mut hit, document)) = self.read(session)? else { return Ok(None) };
        let notes = self.notes(&hit, document.as_doc());
        Ok(Some((hit.stored.take().unwrap_or(document), notes)))
    }

    fn is_over(&self) -> bool {
        self.is_over
    }

    fn explain(&self) -> Option<(DocBuf, u64)> {
        Some((self.hits.explain(), self.returned))
    }
}
