//! Searches: the pages of hits that a caller reads.

use mayfly_base::Result;

use super::{Control, Index};
use crate::query::{Kind, Query};

/// A document that a search found.
#[derive(Clone, Debug, PartialEq)]
pub struct Hit {
    /// The key by which the caller reads the document.
    pub record_key: Vec<u8>,
    /// The time of the version that was found.
    pub version_ms: i64,
    /// The score, greater for more similar vectors.
    pub score: f32,
}

/// The end of a page: what is needed to find the next one.
#[derive(Clone, Debug, PartialEq)]
pub struct Cursor {
    pub(super) score: f32,
    pub(super) record_key: Vec<u8>,
    /// The number of hits up to here.
    pub(super) seen: usize,
}

/// Some hits, the best ones first.
#[derive(Clone, Debug, PartialEq)]
pub struct Page {
    /// The hits, without those of earlier pages.
    pub hits: Vec<Hit>,
    /// The way to the next page. `None`: there are no more hits.
    pub next: Option<Cursor>,
}

impl Index {
    /// The best hits of a query after a cursor, at most `size`.
    ///
    /// # Errors
    /// Errors of [`Control::check`].
    pub fn search(
        &self,
        query: &Query,
        after: Option<&Cursor>,
        size: usize,
        control: &dyn Control,
    ) -> Result<Page> {
        match &query.kind {
            Kind::Vector(vector) => self.search_vectors(vector, after, size, control),
            Kind::Search(node) => self.search_text(node, after, size, control),
        }
    }
}
