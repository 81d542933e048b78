//! Queries of tantivy with our own parts: statistics of all segments, and sets of documents.

use std::collections::HashMap;
use std::sync::Arc;

use tantivy::index::SegmentReader;
use tantivy::query::Bm25StatisticsProvider;
use tantivy::query::{
    BoostWeight, ConstScorer, EnableScoring, Explanation, Query, Scorer, TermQuery, Weight,
};
use tantivy::schema::{Field, IndexRecordOption};
use tantivy::{DocId, DocSet, Score, TERMINATED, Term};

use crate::filter::BitSet;
use crate::watch::{Watch, WatchedWeight};

/// The parameters of BM25.
pub(crate) const K1: f32 = 1.2;
pub(crate) const B: f32 = 0.75;

/// The statistics of one field in all segments.
#[derive(Clone, Debug, Default)]
pub(crate) struct Statistics {
    /// The number of documents with the field.
    pub(crate) documents: u64,
    /// The number of all words of the field.
    pub(crate) words: u64,
    /// The number of documents with each term.
    pub(crate) terms: HashMap<Term, u64>,
}

impl Statistics {
    /// The rarity of a term. It is computed in double precision: for a term that most documents
    /// have, it is a small difference of 1.
    pub(crate) fn idf(&self, term: &Term) -> f32 {
        let holding = self.terms.get(term).copied().unwrap_or(0);
        idf(self.all_documents(), holding)
    }

    /// The average number of words of the field.
    pub(crate) fn average_length(&self) -> f32 {
        self.words as f32 / self.all_documents().max(1) as f32
    }

    /// The number of documents with the field. Segments without lengths may count too few.
    fn all_documents(&self) -> u64 {
        let most = self.terms.values().copied().max().unwrap_or(0);
        self.documents.max(most)
    }
}

/// The rarity of a term that `holding` of all `documents` have.
pub(crate) fn idf(documents: u64, holding: u64) -> f32 {
    let (documents, holding) = (documents as f64, holding as f64);
    (1.0 + (documents - holding + 0.5) / (holding + 0.5)).ln() as f32
}

/// The statistics that tantivy gets: no document has the term. Its own rarities of frequent terms
/// are not exact, so it computes that of a rare term, and the boost of the query replaces it.
impl Bm25StatisticsProvider for Statistics {
    fn total_num_tokens(&self, _field: Field) -> tantivy::Result<u64> {
        Ok(self.words)
    }

    fn total_num_docs(&self) -> tantivy::Result<u64> {
        Ok(self.all_documents())
    }

    fn doc_freq(&self, _term: &Term) -> tantivy::Result<u64> {
        Ok(0)
    }
}

/// The documents with a term, with the statistics of its field and the scores of Lucene.
#[derive(Clone, Debug)]
pub(crate) struct TermScoreQuery {
    pub(crate) term: Term,
    pub(crate) option: IndexRecordOption,
    pub(crate) statistics: Arc<Statistics>,
    pub(crate) watch: Arc<Watch>,
}

impl Query for TermScoreQuery {
    fn weight(&self, scoring: EnableScoring<'_>) -> tantivy::Result<Box<dyn Weight>> {
        let inner = self.uncounted_weight(scoring)?;
        Ok(Box::new(WatchedWeight { inner, watch: self.watch.clone() }))
    }
}

impl TermScoreQuery {
    fn uncounted_weight(&self, scoring: EnableScoring<'_>) -> tantivy::Result<Box<dyn Weight>> {
        let query = TermQuery::new(self.term.clone(), self.option);
        match scoring.searcher() {
            Some(searcher) if scoring.is_scoring_enabled() => {
                let own: &dyn Bm25StatisticsProvider = &*self.statistics;
                let scoring = EnableScoring::enabled_from_statistics_provider(own, searcher);
                let weight = query.weight(scoring)?;
                // tantivy multiplies scores by k1 + 1, Lucene does not. This changes the weight of
                // the term; nothing is added to its scorer.
                let of_tantivy = idf(self.statistics.all_documents(), 0) * (K1 + 1.0);
                let boost = self.statistics.idf(&self.term) / of_tantivy;
                Ok(Box::new(BoostWeight::new(weight, boost)))
            }
            _ => query.weight(scoring),
        }
    }
}

/// A set of documents, each with the score 1.
#[derive(Clone, Debug)]
pub(crate) struct SetQuery(pub(crate) Arc<BitSet>, pub(crate) Arc<Watch>);

impl Query for SetQuery {
    fn weight(&self, _scoring: EnableScoring<'_>) -> tantivy::Result<Box<dyn Weight>> {
        Ok(Box::new(SetWeight(self.0.clone(), self.1.clone())))
    }
}

struct SetWeight(Arc<BitSet>, Arc<Watch>);

impl Weight for SetWeight {
    fn scorer(&self, _reader: &SegmentReader, boost: Score) -> tantivy::Result<Box<dyn Scorer>> {
        Ok(Box::new(ConstScorer::new(SetDocuments::new(self.0.clone(), self.1.clone()), boost)))
    }

    fn explain(&self, _reader: &SegmentReader, _document: DocId) -> tantivy::Result<Explanation> {
        Ok(Explanation::new("a set of documents", 1.0))
    }
}

/// The documents of a set, in their order.
struct SetDocuments {
    set: Arc<BitSet>,
    watch: Arc<Watch>,
    document: DocId,
}

impl SetDocuments {
    fn new(set: Arc<BitSet>, watch: Arc<Watch>) -> SetDocuments {
        let mut documents = SetDocuments { set, watch, document: 0 };
        documents.document = documents.next(0);
        documents
    }

    fn next(&self, from: DocId) -> DocId {
        if self.watch.take(1) {
            return TERMINATED;
        }
        self.set.next(from as usize).map_or(TERMINATED, |number| number as DocId)
    }
}

impl DocSet for SetDocuments {
    fn advance(&mut self) -> DocId {
        if self.document != TERMINATED {
            self.document = self.next(self.document + 1);
        }
        self.document
    }

    fn seek(&mut self, target: DocId) -> DocId {
        if self.document < target {
            self.document = self.next(target);
        }
        self.document
    }

    fn doc(&self) -> DocId {
        self.document
    }

    fn size_hint(&self) -> u32 {
        self.set.count() as u32
    }
}

/// Documents with a score each.
#[derive(Clone, Debug)]
pub(crate) struct ScoredQuery(pub(crate) Arc<Vec<(DocId, Score)>>, pub(crate) Arc<Watch>);

impl Query for ScoredQuery {
    fn weight(&self, _scoring: EnableScoring<'_>) -> tantivy::Result<Box<dyn Weight>> {
        Ok(Box::new(ScoredWeight(self.clone())))
    }
}

struct ScoredWeight(ScoredQuery);

impl Weight for ScoredWeight {
    fn scorer(&self, _reader: &SegmentReader, boost: Score) -> tantivy::Result<Box<dyn Scorer>> {
        let ScoredQuery(documents, watch) = self.0.clone();
        Ok(Box::new(ScoredDocuments { documents, watch, at: 0, boost }))
    }

    fn explain(&self, _reader: &SegmentReader, _document: DocId) -> tantivy::Result<Explanation> {
        Ok(Explanation::new("a document with a score", 1.0))
    }
}

struct ScoredDocuments {
    documents: Arc<Vec<(DocId, Score)>>,
    watch: Arc<Watch>,
    at: usize,
    boost: Score,
}

impl DocSet for ScoredDocuments {
    fn advance(&mut self) -> DocId {
        self.at = if self.watch.take(1) { self.documents.len() } else { self.at + 1 };
        self.doc()
    }

    fn seek(&mut self, target: DocId) -> DocId {
        if self.watch.take(1) {
            self.at = self.documents.len();
        }
        let rest = self.documents.get(self.at..).unwrap_or_default();
        self.at += rest.partition_point(|document| document.0 < target);
        self.doc()
    }

    fn doc(&self) -> DocId {
        self.documents.get(self.at).map_or(TERMINATED, |document| document.0)
    }

    fn size_hint(&self) -> u32 {
        self.documents.len() as u32
    }
}

impl Scorer for ScoredDocuments {
    fn score(&mut self) -> Score {
        self.documents.get(self.at).map_or(0.0, |document| document.1) * self.boost
    }
}
