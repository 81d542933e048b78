//! Phrases: documents with all terms at their places, or near to them, with Lucene's scores.
//!
//! The weight of a phrase is the sum of the weights of its terms, one that stands twice counts
//! twice. Without slop its frequency is the number of places where it stands. With slop each match
//! counts less the more its words are moved ([`super::sloppy`]).

use std::sync::Arc;

use tantivy::fieldnorm::FieldNormReader;
use tantivy::index::SegmentReader;
use tantivy::postings::{Postings, SegmentPostings};
use tantivy::query::{EmptyScorer, EnableScoring, Explanation, Query, Scorer, Weight};
use tantivy::schema::IndexRecordOption;
use tantivy::{DocId, DocSet, Score, TERMINATED, Term};

use super::sloppy::{Sloppy, Slot};
use super::weight::{B, K1, Statistics};
use crate::watch::Watch;

/// The steps of [`Watch::take`] to read the positions of a document.
const STEPS: usize = 16;

/// A phrase of at least two terms of one field.
#[derive(Clone, Debug)]
pub(crate) struct PhraseQuery {
    /// The terms with their places in the phrase.
    pub(crate) terms: Arc<Vec<(usize, Term)>>,
    pub(crate) slop: u32,
    pub(crate) statistics: Arc<Statistics>,
    pub(crate) watch: Arc<Watch>,
}

impl Query for PhraseQuery {
    fn weight(&self, scoring: EnableScoring<'_>) -> tantivy::Result<Box<dyn Weight>> {
        let factors = scoring.is_scoring_enabled().then(|| {
            let idf = self.terms.iter().map(|(_, term)| self.statistics.idf(term)).sum();
            let average = self.statistics.average_length();
            let norm = |id: usize| {
                let length = FieldNormReader::id_to_fieldnorm(id as u8) as f32;
                K1 * (1.0 - B + B * length / average)
            };
            Factors { idf, norms: Arc::new(std::array::from_fn(norm)) }
        });
        Ok(Box::new(PhraseWeight { query: self.clone(), factors }))
    }
}

/// The parts of the scores of all documents.
#[derive(Clone)]
struct Factors {
    idf: f32,
    /// What is added to the frequency, by the encoded length of the field.
    norms: Arc<[f32; 256]>,
}

struct PhraseWeight {
    query: PhraseQuery,
    /// `None`: no scores are asked for.
    factors: Option<Factors>,
}

impl Weight for PhraseWeight {
    fn scorer(&self, reader: &SegmentReader, boost: Score) -> tantivy::Result<Box<dyn Scorer>> {
        let PhraseQuery { terms, slop, watch, .. } = &self.query;
        let Some(field) = terms.first().map(|(_, term)| term.field()) else {
            return Ok(Box::new(EmptyScorer));
        };
        let index = reader.inverted_index(field)?;
        let mut known: Vec<(&Term, SegmentPostings)> = Vec::new();
        for (_, term) in terms.iter() {
            if known.iter().all(|(other, _)| *other != term) {
                let option = IndexRecordOption::WithFreqsAndPositions;
                match index.read_postings(term, option)? {
                    Some(postings) => known.push((term, postings)),
                    None => return Ok(Box::new(EmptyScorer)),
                }
            }
        }
        // The rarest term leads.
        known.sort_by_key(|(_, postings)| postings.doc_freq());
        let first = terms.first().map_or(0, |(place, _)| *place);
        let slot = |(place, term): &(usize, Term)| Slot {
            list: known.iter().position(|(other, _)| *other == term).unwrap_or(0),
            offset: (place - first) as i32,
        };
        let slots: Vec<Slot> = terms.iter().map(slot).collect();
        let lengths = match &self.factors {
            Some(_) => reader.fieldnorms_readers().get_field(field)?,
            None => None,
        };
        let lists: Vec<SegmentPostings> = known.into_iter().map(|(_, postings)| postings).collect();
        let mut scorer = PhraseScorer {
            positions: vec![Vec::new(); lists.len()],
            lists,
            matcher: match slop {
                0 => Matcher::exact(slots),
                slop => Matcher::Sloppy(Sloppy::new(slots, *slop)),
            },
            document: 0,
            frequency: 0.0,
            factors: self.factors.clone(),
            lengths: lengths.unwrap_or_else(|| FieldNormReader::constant(reader.max_doc(), 1)),
            boost,
            watch: watch.clone(),
        };
        scorer.find(0);
        Ok(Box::new(scorer))
    }

    fn explain(&self, _reader: &SegmentReader, _document: DocId) -> tantivy::Result<Explanation> {
        Ok(Explanation::new("a phrase", 1.0))
    }
}

/// How the places of a document are compared with the phrase.
enum Matcher {
    Exact { slots: Vec<Slot>, places: Vec<i32> },
    Sloppy(Sloppy),
}

impl Matcher {
    fn exact(mut slots: Vec<Slot>) -> Matcher {
        slots.sort_by_key(|slot| slot.list);
        Matcher::Exact { slots, places: Vec::new() }
    }

    /// The frequency of the phrase, by the positions of its terms.
    fn frequency(&mut self, positions: &[Vec<u32>], watch: &Watch) -> f32 {
        match self {
            Matcher::Exact { slots, places } => {
                places.clear();
                let Some((first, others)) = slots.split_first() else { return 0.0 };
                let start = |slot: &Slot, position: &u32| *position as i32 - slot.offset;
                places.extend(positions[first.list].iter().map(|place| start(first, place)));
                for slot in others {
                    if watch.take(positions[slot.list].len()) {
                        return 0.0;
                    }
                    let mut rest = positions[slot.list].iter().map(|place| start(slot, place));
                    let mut next = rest.next();
                    places.retain(|place| {
                        while next.is_some_and(|next| next < *place) {
                            next = rest.next();
                        }
                        next == Some(*place)
                    });
                }
                places.len() as f32
            }
            Matcher::Sloppy(sloppy) => sloppy.frequency(positions, watch),
        }
    }
}

struct PhraseScorer {
    /// The postings of each different term, the rarest one first.
    lists: Vec<SegmentPostings>,
    /// The positions of each different term in a document.
    positions: Vec<Vec<u32>>,
    matcher: Matcher,
    document: DocId,
    /// The frequency of the phrase in this document.
    frequency: f32,
    factors: Option<Factors>,
    lengths: FieldNormReader,
    boost: Score,
    watch: Arc<Watch>,
}

impl PhraseScorer {
    /// Goes to the first document from `target` on that has the phrase.
    fn find(&mut self, mut target: DocId) -> DocId {
        loop {
            target = self.align(target);
            self.document = target;
            if target == TERMINATED {
                return TERMINATED;
            }
            let mut work = STEPS;
            for (list, positions) in self.lists.iter_mut().zip(&mut self.positions) {
                list.positions(positions);
                work += positions.len();
            }
            if self.watch.take(work) {
                self.document = TERMINATED;
                return TERMINATED;
            }
            self.frequency = self.matcher.frequency(&self.positions, &self.watch);
            if self.frequency > 0.0 {
                return target;
            }
            target += 1;
        }
    }

    /// Goes to the first document from `target` on that has all terms.
    fn align(&mut self, mut target: DocId) -> DocId {
        let mut at = 0;
        while at < self.lists.len() {
            if self.watch.take(1) {
                return TERMINATED;
            }
            let list = &mut self.lists[at];
            let found = if list.doc() < target { list.seek(target) } else { list.doc() };
            if found == TERMINATED {
                return TERMINATED;
            }
            at = match found == target {
                true => at + 1,
                // The others must come to the same document.
                false if at == 0 => 1,
                false => 0,
            };
            target = found;
        }
        target
    }
}

impl DocSet for PhraseScorer {
    fn advance(&mut self) -> DocId {
        if self.document == TERMINATED { TERMINATED } else { self.find(self.document + 1) }
    }

    fn seek(&mut self, target: DocId) -> DocId {
        if self.document < target { self.find(target) } else { self.document }
    }

    fn doc(&self) -> DocId {
        self.document
    }

    fn size_hint(&self) -> u32 {
        // Few documents with all terms have them side by side.
        self.lists.first().map_or(0, |list| list.size_hint() / 10)
    }

    fn cost(&self) -> u64 {
        // To compare the positions costs more than to find the next document.
        u64::from(self.lists.first().map_or(0, DocSet::size_hint)) * 10 * self.lists.len() as u64
    }
}

impl Scorer for PhraseScorer {
    fn score(&mut self) -> Score {
        let Some(factors) = &self.factors else { return 1.0 };
        let norm = factors.norms[usize::from(self.lengths.fieldnorm_id(self.document))];
        self.boost * factors.idf * self.frequency / (self.frequency + norm)
    }
}
