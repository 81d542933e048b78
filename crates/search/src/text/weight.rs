//! Queries of tantivy with our own parts: statistics of all segments, and sets of documents.

use std::collections::HashMap;
use std::sync::Arc;

use tantivy::index::SegmentReader;
use tantivy::query::Bm25StatisticsProvider;
use tantivy::query::{BoostWeight, ConstScorer, EnableScoring, Explanation, Query, Scorer, Weight};
use tantivy::schema::Field;
use tantivy::{DocId, DocSet, Score, TERMINATED, Term};

use crate::filter::BitSet;

/// tantivy multiplies scores by k1 + 1, Lucene does not.
const LUCENE: Score = 1.0 / 2.2;

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

impl Bm25StatisticsProvider for Statistics {
    fn total_num_tokens(&self, _field: Field) -> tantivy::Result<u64> {
        Ok(self.words)
    }

    fn total_num_docs(&self) -> tantivy::Result<u64> {
        let most = self.terms.values().copied().max().unwrap_or(0);
        Ok(self.documents.max(most))
    }

    fn doc_freq(&self, term: &Term) -> tantivy::Result<u64> {
        Ok(self.terms.get(term).copied().unwrap_or(0))
    }
}

/// A query on one field, with the statistics of the field and the scores of Lucene.
#[derive(Clone, Debug)]
pub(crate) struct FieldQuery<Q: Query + Clone> {
    pub(crate) query: Q,
    pub(crate) statistics: Arc<Statistics>,
}

impl<Q: Query + Clone> Query for FieldQuery<Q> {
    fn weight(&self, scoring: EnableScoring<'_>) -> tantivy::Result<Box<dyn Weight>> {
        match scoring.searcher() {
            Some(searcher) if scoring.is_scoring_enabled() => {
                let own: &dyn Bm25StatisticsProvider = &*self.statistics;
                let scoring = EnableScoring::enabled_from_statistics_provider(own, searcher);
                let weight = self.query.weight(scoring)?;
                // This changes the weight of the terms; nothing is added to their scorers.
                Ok(Box::new(BoostWeight::new(weight, LUCENE)))
            }
            _ => self.query.weight(scoring),
        }
    }
}

/// A set of documents, each with the score 1.
#[derive(Clone, Debug)]
pub(crate) struct SetQuery(pub(crate) Arc<BitSet>);

impl Query for SetQuery {
    fn weight(&self, _scoring: EnableScoring<'_>) -> tantivy::Result<Box<dyn Weight>> {
        Ok(Box::new(SetWeight(self.0.clone())))
    }
}

struct SetWeight(Arc<BitSet>);

impl Weight for SetWeight {
    fn scorer(&self, _reader: &SegmentReader, boost: Score) -> tantivy::Result<Box<dyn Scorer>> {
        Ok(Box::new(ConstScorer::new(SetDocuments::new(self.0.clone()), boost)))
    }

    fn explain(&self, _reader: &SegmentReader, _document: DocId) -> tantivy::Result<Explanation> {
        Ok(Explanation::new("a set of documents", 1.0))
    }
}

/// The documents of a set, in their order.
struct SetDocuments {
    set: Arc<BitSet>,
    document: DocId,
}

impl SetDocuments {
    fn new(set: Arc<BitSet>) -> SetDocuments {
        let document = next(&set, 0);
        SetDocuments { set, document }
    }
}

fn next(set: &BitSet, from: usize) -> DocId {
    set.next(from).map_or(TERMINATED, |number| number as DocId)
}

impl DocSet for SetDocuments {
    fn advance(&mut self) -> DocId {
        if self.document != TERMINATED {
            self.document = next(&self.set, self.document as usize + 1);
        }
        self.document
    }

    fn seek(&mut self, target: DocId) -> DocId {
        if self.document < target {
            self.document = next(&self.set, target as usize);
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
pub(crate) struct ScoredQuery(pub(crate) Arc<Vec<(DocId, Score)>>);

impl Query for ScoredQuery {
    fn weight(&self, _scoring: EnableScoring<'_>) -> tantivy::Result<Box<dyn Weight>> {
        Ok(Box::new(ScoredWeight(self.0.clone())))
    }
}

struct ScoredWeight(Arc<Vec<(DocId, Score)>>);

impl Weight for ScoredWeight {
    fn scorer(&self, _reader: &SegmentReader, boost: Score) -> tantivy::Result<Box<dyn Scorer>> {
        Ok(Box::new(ScoredDocuments { documents: self.0.clone(), at: 0, boost }))
    }

    fn explain(&self, _reader: &SegmentReader, _document: DocId) -> tantivy::Result<Explanation> {
        Ok(Explanation::new("a document with a score", 1.0))
    }
}

struct ScoredDocuments {
    documents: Arc<Vec<(DocId, Score)>>,
    at: usize,
    boost: Score,
}

impl DocSet for ScoredDocuments {
    fn advance(&mut self) -> DocId {
        self.at += 1;
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
