//! Searches: the pages of hits that a caller reads.

use mayfly_base::Result;
use mayfly_value::DocBuf;

use super::score_details::ScoreDetails;
use super::{Control, Index};
use crate::query::{Kind, Query, SortField, SortKey, token};

/// A document that a search found.
#[derive(Clone, Debug, PartialEq)]
pub struct Hit {
    /// The key by which the caller reads the document.
    pub record_key: Vec<u8>,
    /// The time of the version that was found.
    pub version_ms: i64,
    /// The score, greater for more similar vectors and for better matches.
    pub score: f32,
    /// The fields that the index keeps, if the query returns them.
    pub stored_source: Option<DocBuf>,
    /// The explanation of the score, if the query asks for it.
    pub score_details: Option<ScoreDetails>,
    /// The rank of a search with a sort. Empty: hits are ranked by their scores.
    pub(super) rank: Vec<u8>,
    /// The checksum of the sort.
    pub(super) order: u32,
}

impl Hit {
    /// Makes the rank of a search with `searchBefore` that of the query's own order.
    pub(super) fn turn_rank(&mut self, sort: &[SortField]) {
        match sort.is_empty() {
            true => self.rank.clear(),
            false => self.rank.iter_mut().for_each(|byte| *byte = !*byte),
        }
    }

    /// The token for `searchAfter` and `searchBefore` of a search with the same sort.
    pub fn sequence_token(&self) -> String {
        if !self.rank.is_empty() {
            return token(self.order, &self.rank, &self.record_key);
        }
        let mut rank = Vec::new();
        BY_SCORE.append_score(&mut rank, self.score);
        token(self.order, &rank, &self.record_key)
    }
}

/// The order of searches without a sort.
const BY_SCORE: SortField = SortField { by: SortKey::Score, is_descending: true };

/// The end of a page: what is needed to find the next one.
#[derive(Clone, Debug, PartialEq)]
pub struct Cursor {
    pub(super) score: f32,
    pub(super) rank: Vec<u8>,
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

impl Page {
    /// A page of at most `size` hits after a cursor.
    pub(super) fn new(hits: Vec<Hit>, after: Option<&Cursor>, size: usize) -> Page {
        let seen = after.map_or(0, |after| after.seen) + hits.len();
        let next = hits.last().filter(|_| hits.len() == size).map(|last| Cursor {
            score: last.score,
            rank: last.rank.clone(),
            record_key: last.record_key.clone(),
            seen,
        });
        Page { hits, next }
    }
}

impl Index {
    /// The best hits of a query after a cursor, at most `size`.
    ///
    /// # Errors
    /// Errors of [`Control::check`], and code 8 for a pattern that needs too much work.
    pub fn search(
        &self,
        query: &Query,
        after: Option<&Cursor>,
        size: usize,
        control: &dyn Control,
    ) -> Result<Page> {
        match &query.kind {
            Kind::Vector(vector) => self.search_vectors(query, vector, after, size, control),
            Kind::Search(search) => self.search_text(query, search, after, size, control),
        }
    }
}
