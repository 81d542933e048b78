//! What is known about a document beside its fields: the score of a text search, the distance of a geo search.
//!
//! Whoever finds a document notes it as a small document, `{ textScore: 1.5 }`, under the names that `$meta` uses. It then
//! travels beside the document: an argument of an executor's sink, a part of a sorter's rows, and in a pipeline the
//! [`InFlight`] of the stages' context. A pipeline is synchronous: the document that one stage shows to the next is the
//! only one on its way. So stages that hand results on at once need do nothing. Those that keep documents keep the
//! metadata with them and set it again before they show one; what is not set again is lost, as it is meant to be behind
//! `$group`. Queries without metadata pay a test for nothing.

use std::cell::RefCell;
use std::sync::Arc;

use mayfly_expr::{Frame, Scope};
use mayfly_mql::Matcher;
use mayfly_value::{DocBuf, RawDoc};

/// The key of the index that led to the document.
pub(crate) const INDEX_KEY: &str = "indexKey";

/// The key of the document's record.
pub(crate) const RECORD_ID: &str = "recordId";

/// The score of a text search.
pub(crate) const TEXT_SCORE: &str = "textScore";

/// The distance from the point of a geo search, in its unit.
pub(crate) const GEO_NEAR_DISTANCE: &str = "geoNearDistance";

/// The place that the distance is of.
pub(crate) const GEO_NEAR_POINT: &str = "geoNearPoint";

/// What a geo search tells.
pub(crate) const GEO_NEAR: &[&str] = &[GEO_NEAR_DISTANCE, GEO_NEAR_POINT];

/// What is known about one document.
#[derive(Clone, Debug, Default)]
pub struct Metadata(Option<Arc<DocBuf>>);

impl Metadata {
    /// Nothing is known.
    pub const NONE: Metadata = Metadata(None);

    /// This is known.
    pub fn new(notes: DocBuf) -> Metadata {
        Metadata(Some(Arc::new(notes)))
    }

    /// Whether nothing is known.
    pub fn is_none(&self) -> bool {
        self.0.is_none()
    }

    /// As `$meta` reads it.
    pub fn as_doc(&self) -> Option<RawDoc<'_>> {
        self.0.as_deref().map(DocBuf::as_doc)
    }

    /// The document with what is known about it, for expressions.
    pub fn frame<'a>(&'a self, document: RawDoc<'a>) -> Frame<'a> {
        Frame::new(document).with_metadata(self.as_doc())
    }
}

/// What is known about the document that is on its way through a pipeline.
#[derive(Debug, Default)]
pub(crate) struct InFlight(RefCell<Metadata>);

impl InFlight {
    /// Of the document that came last.
    pub(crate) fn get(&self) -> Metadata {
        self.0.borrow().clone()
    }

    /// Of the document that comes next.
    pub(crate) fn set(&self, metadata: &Metadata) {
        let mut have = self.0.borrow_mut();
        if !(have.is_none() && metadata.is_none()) {
            *have = metadata.clone();
        }
    }

    /// Nothing is known about documents that come next.
    pub(crate) fn clear(&self) {
        self.set(&Metadata::NONE);
    }
}

/// What the documents that a filter finds have: the names for `$meta`.
pub(crate) fn given_by(matcher: &Matcher) -> &'static [&'static str] {
    match matcher.text() {
        Some(_) => &[TEXT_SCORE],
        None if matcher.seeks_by_distance() => GEO_NEAR,
        None => &[],
    }
}

/// The scope behind a filter.
pub(crate) fn scope_behind(scope: Scope, matcher: &Matcher) -> Scope {
    given_by(matcher).iter().fold(scope, |scope, name| scope.with_metadata(name))
}
