//! Metadata of documents: the score of a text search, the distance of a geo search.
//!
//! The search creates the metadata as a small document, `{ textScore: 1.5 }`, with the names that
//! `$meta` uses. It is passed along with the document: as an argument of an executor's sink, as a
//! part of a sorter's rows, and in a pipeline as the [`CurrentMetadata`] of the stages' context. A
//! pipeline is synchronous: only one document at a time is passed between stages. Stages that pass
//! results on at once therefore need no code for metadata. Stages that buffer documents store the
//! metadata with them, and set it again before they pass a document on; metadata that is not set
//! again is lost, as intended after `$group`. Queries without metadata pay one test per document.

use std::cell::RefCell;
use std::sync::Arc;

use mayfly_expr::{Frame, Scope};
use mayfly_mql::Matcher;
use mayfly_value::{DocBuf, RawDoc};

/// The index key that led to the document.
pub(crate) const INDEX_KEY: &str = "indexKey";

/// The values by which a document was sorted, as an array.
pub(crate) const SORT_KEY: &str = "sortKey";

/// The record key of the document.
pub(crate) const RECORD_ID: &str = "recordId";

/// The score of a text search.
pub(crate) const TEXT_SCORE: &str = "textScore";

/// The score of `$search`.
pub(crate) const SEARCH_SCORE: &str = "searchScore";

/// The passages of a document in which `$search` found its terms.
pub(crate) const SEARCH_HIGHLIGHTS: &str = "searchHighlights";

/// The explanation of the score of `$search`.
pub(crate) const SEARCH_SCORE_DETAILS: &str = "searchScoreDetails";

/// The token after which a later `$search` goes on.
pub(crate) const SEARCH_SEQUENCE_TOKEN: &str = "searchSequenceToken";

/// The value of `$$SEARCH_META`.
pub(crate) const SEARCH_META: &str = "searchMeta";

/// The score of `$vectorSearch`.
pub(crate) const VECTOR_SEARCH_SCORE: &str = "vectorSearchScore";

/// The distance from the point of a geo search, in its unit.
pub(crate) const GEO_NEAR_DISTANCE: &str = "geoNearDistance";

/// The geometry to which the distance was measured.
pub(crate) const GEO_NEAR_POINT: &str = "geoNearPoint";

/// The metadata of a geo search.
pub(crate) const GEO_NEAR: &[&str] = &[GEO_NEAR_DISTANCE, GEO_NEAR_POINT];

/// The metadata of one document.
#[derive(Clone, Debug, Default)]
pub struct Metadata(Option<Arc<DocBuf>>);

impl Metadata {
    /// Metadata of a document that has none.
    pub const NONE: Metadata = Metadata(None);

    /// Creates metadata from a document with the names of `$meta`.
    pub fn new(notes: DocBuf) -> Metadata {
        Metadata(Some(Arc::new(notes)))
    }

    /// Whether there is no metadata.
    pub fn is_none(&self) -> bool {
        self.0.is_none()
    }

    /// The document that `$meta` reads.
    pub fn as_doc(&self) -> Option<RawDoc<'_>> {
        self.0.as_deref().map(DocBuf::as_doc)
    }

    /// The evaluation frame of a document with its metadata.
    pub fn frame<'a>(&'a self, document: RawDoc<'a>) -> Frame<'a> {
        Frame::new(document).with_metadata(self.as_doc())
    }
}

/// The metadata of the document that is passed through a pipeline.
#[derive(Debug, Default)]
pub(crate) struct CurrentMetadata(RefCell<Metadata>);

impl CurrentMetadata {
    /// The metadata of the current document.
    pub(crate) fn get(&self) -> Metadata {
        self.0.borrow().clone()
    }

    /// Sets the metadata of the next document.
    pub(crate) fn set(&self, metadata: &Metadata) {
        let mut have = self.0.borrow_mut();
        if !(have.is_none() && metadata.is_none()) {
            *have = metadata.clone();
        }
    }

    /// Clears the metadata of the next documents.
    pub(crate) fn clear(&self) {
        self.set(&Metadata::NONE);
    }
}

/// The metadata that a filter's results have, as names of `$meta`.
pub(crate) fn given_by(matcher: &Matcher) -> &'static [&'static str] {
    match matcher.text() {
        Some(_) => &[TEXT_SCORE],
        None if matcher.seeks_by_distance() => GEO_NEAR,
        None => &[],
    }
}

/// The scope of the stages after a filter.
pub(crate) fn scope_after(scope: Scope, matcher: &Matcher) -> Scope {
    given_by(matcher).iter().fold(scope, |scope, name| scope.with_metadata(name))
}
