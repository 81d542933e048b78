//! Terms of the index that a query describes: by patterns, or by their distance from a term.

use std::collections::BTreeMap;
use std::sync::Arc;

use mayfly_base::Result;
use tantivy::postings::TermInfo;
use tantivy::query::{BooleanQuery, BoostQuery, DfaWrapper, EmptyQuery, FuzzyTermQuery, Query};
use tantivy::schema::IndexRecordOption;
use tantivy::termdict::TermStreamer;
use tantivy::{DocSet, InvertedIndexReader, TERMINATED, Term};

use super::{Planner, WordField, failed, io_failed};
use crate::fault::refused;
use crate::filter::BitSet;
use crate::index::Control;
use crate::index::segment::Segment;
use crate::limits::MAX_NEAR_TERMS;
use crate::query::{CasedPattern, Criteria, Fuzzy, Pattern, WordPath};
use crate::text::Postings;
use crate::text::analyze::Terms;
use crate::text::fuzzy::FuzzyTerm;
use crate::text::weight::{ScoredQuery, SetQuery, Statistics};

/// Most terms of a segment that a pattern is compared with.
const MAX_COMPARED: usize = 1_000_000;

/// Longest term, in bytes, for which an automaton is made.
const MAX_AUTOMATON: usize = 64;

/// Work between two calls of the check: characters that are compared, and documents of terms.
const BLOCK: usize = 1 << 20;

/// The work of [`BLOCK`] for each term, besides its characters.
const TERM: usize = 64;

/// The terms of an index that are near to a term of a query, with the shares of their scores.
pub(in crate::index) struct Expansion {
    pub(in crate::index) terms: Vec<(String, f32)>,
    pub(in crate::index) statistics: Arc<Statistics>,
}

/// Calls the check of a control between blocks of work.
struct Blocks<'c> {
    control: &'c dyn Control,
    work: usize,
}

impl<'c> Blocks<'c> {
    fn new(control: &'c dyn Control) -> Blocks<'c> {
        Blocks { control, work: BLOCK }
    }

    /// Adds work that is done next.
    fn add(&mut self, work: usize) -> Result<()> {
        self.work = self.work.saturating_add(work);
        if self.work < BLOCK {
            return Ok(());
        }
        self.work = 0;
        self.control.check()
    }
}

/// Adds the documents with a term.
fn insert_documents(
    index: &InvertedIndexReader,
    term: &TermInfo,
    selected: &mut BitSet,
    blocks: &mut Blocks<'_>,
) -> Result<()> {
    blocks.add(term.doc_freq as usize)?;
    let documents = index.read_postings_from_terminfo(term, IndexRecordOption::Basic);
    let mut documents = documents.map_err(io_failed)?;
    while documents.doc() != TERMINATED {
        selected.insert(documents.doc() as usize);
        documents.advance();
    }
    Ok(())
}

impl Planner<'_> {
    /// The documents with terms that patterns match. Each pattern adds 1 to the score for each
    /// field.
    pub(super) fn patterns(
        &self,
        paths: &[WordPath],
        patterns: &[CasedPattern],
        segment: &Segment,
    ) -> Result<Box<dyn Query>> {
        let Some(postings) = segment.postings() else { return Ok(Box::new(EmptyQuery)) };
        let fields = self.word_fields(paths, segment);
        if let ([field], [pattern]) = (&fields[..], patterns) {
            let mut selected = BitSet::new(segment.len());
            self.pattern(postings, field, pattern.of(field.analyzer), &mut selected)?;
            return Ok(Box::new(SetQuery(Arc::new(selected), self.watch.clone())));
        }
        let mut counts = vec![0_u32; segment.len()];
        for field in &fields {
            for pattern in patterns {
                let mut selected = BitSet::new(segment.len());
                self.pattern(postings, field, pattern.of(field.analyzer), &mut selected)?;
                let mut next = selected.next(0);
                while let Some(document) = next {
                    counts[document] += 1;
                    next = selected.next(document + 1);
                }
            }
        }
        let found = (0..).zip(counts).filter(|(_, count)| *count > 0);
        let scores = found.map(|(document, count)| (document, count as f32)).collect();
        Ok(Box::new(ScoredQuery(Arc::new(scores), self.watch.clone())))
    }

    /// Adds the documents with a term that a pattern matches.
    fn pattern(
        &self,
        postings: &Postings,
        field: &WordField,
        pattern: &Pattern,
        selected: &mut BitSet,
    ) -> Result<()> {
        match pattern {
            Pattern::Glob(glob) => {
                let matches = |term: &str| Ok(glob.matches(term));
                self.select(postings, field, (&glob.prefix(), glob.len()), matches, selected)
            }
            Pattern::Regex(regex) => {
                let mut matcher = regex.matcher();
                let matches = |term: &str| {
                    matcher.matches(term).ok_or_else(|| {
                        let source = regex.source();
                        let text = "the regular expression";
                        refused(format!("{text} \"{source}\" has too many states"))
                    })
                };
                self.select(postings, field, (&regex.prefix(), 1), matches, selected)
            }
        }
    }

    /// Adds the documents with a term that begins with a prefix and is accepted. `cost` is the work
    /// to compare one character at most.
    fn select(
        &self,
        postings: &Postings,
        field: &WordField,
        (prefix, cost): (&str, usize),
        mut accepts: impl FnMut(&str) -> Result<bool>,
        selected: &mut BitSet,
    ) -> Result<()> {
        let index = postings.reader.inverted_index(field.field).map_err(failed)?;
        let range = index.terms().range().ge(prefix.as_bytes());
        let mut terms = range.into_stream().map_err(io_failed)?;
        let (mut count, mut blocks) = (0, Blocks::new(self.control));
        while terms.advance() && count < MAX_COMPARED {
            count += 1;
            blocks.add(TERM + terms.key().len().saturating_mul(cost))?;
            let Ok(term) = std::str::from_utf8(terms.key()) else { continue };
            if !term.starts_with(prefix) {
                break;
            }
            if accepts(term)? {
                insert_documents(&index, terms.value(), selected, &mut blocks)?;
            }
        }
        Ok(())
    }

    /// The documents with parts of words that are near to the terms. All have the score 1 for each
    /// term, as in the reference.
    pub(super) fn fuzzy_parts(
        &self,
        field: &WordField,
        terms: &Terms,
        criteria: Criteria,
        fuzzy: Fuzzy,
        segment: &Segment,
    ) -> Result<Box<dyn Query>> {
        let Some(postings) = segment.postings() else { return Ok(Box::new(EmptyQuery)) };
        let mut queries: Vec<Box<dyn Query>> = Vec::new();
        for token in &terms.tokens {
            let near = FuzzyTerm::new(&token.text, fuzzy.max_edits, fuzzy.prefix);
            let mut selected = BitSet::new(segment.len());
            let index = postings.reader.inverted_index(field.field).map_err(failed)?;
            let mut blocks = Blocks::new(self.control);
            self.each_near(postings, field, &near, |_, _, info| {
                insert_documents(&index, info, &mut selected, &mut blocks)
            })?;
            queries.push(Box::new(SetQuery(Arc::new(selected), self.watch.clone())));
        }
        Ok(Box::new(match criteria {
            Criteria::Any => BooleanQuery::union(queries),
            Criteria::All | Criteria::Sequence => BooleanQuery::intersection(queries),
        }))
    }

    /// The documents with terms that are near to those of a query.
    pub(super) fn fuzzy_terms(
        &self,
        field: &WordField,
        terms: &Terms,
        criteria: Criteria,
        fuzzy: Fuzzy,
    ) -> Result<Box<dyn Query>> {
        let mut queries: Vec<Box<dyn Query>> = Vec::new();
        // A term that stands several times in the query counts several times.
        let mut times: BTreeMap<&str, f32> = BTreeMap::new();
        terms.tokens.iter().for_each(|token| *times.entry(&token.text).or_default() += 1.0);
        for (text, times) in times {
            let expansion = self.expand(field, text, fuzzy)?;
            let mut near: Vec<Box<dyn Query>> = Vec::new();
            for (text, boost) in &expansion.terms {
                let query = self.term(field, text, &expansion.statistics);
                near.push(Box::new(BoostQuery::new(Box::new(query), *boost * times)));
            }
            queries.push(match near.len() {
                0 => Box::new(EmptyQuery),
                1 => near.remove(0),
                _ => Box::new(BooleanQuery::union(near)),
            });
        }
        Ok(match (queries.len(), criteria) {
            (1, _) => queries.remove(0),
            (_, Criteria::Any) => Box::new(BooleanQuery::union(queries)),
            _ => Box::new(BooleanQuery::intersection(queries)),
        })
    }

    /// The terms of all segments that are near to a term: those with the greatest shares, and of
    /// equal shares the least terms. All have the number of documents of the most frequent one, so
    /// that a rare misspelling does not have the greatest score.
    pub(in crate::index) fn expand(
        &self,
        field: &WordField,
        text: &str,
        fuzzy: Fuzzy,
    ) -> Result<Arc<Expansion>> {
        let name = (field.number, text.to_owned(), fuzzy);
        if let Some(known) = self.expansions.borrow().get(&name) {
            return Ok(known.clone());
        }
        let near = FuzzyTerm::new(text, fuzzy.max_edits, fuzzy.prefix);
        let mut found: BTreeMap<String, f32> = BTreeMap::new();
        for segment in &self.segments {
            let Some(postings) = segment.postings() else { continue };
            if usize::from(field.number) < postings.fields() {
                self.each_near(postings, field, &near, |term, distance, _| {
                    found.insert(term.to_owned(), near.boost(term, distance));
                    Ok(())
                })?;
            }
        }
        let mut terms: Vec<(String, f32)> = found.into_iter().collect();
        // The sort keeps the order of terms with equal shares.
        terms.sort_by(|left, right| right.1.total_cmp(&left.1));
        terms.truncate(fuzzy.max_expansions);
        terms.iter_mut().for_each(|(_, boost)| *boost = boost.max(0.0));
        let known = self.expansions.borrow();
        let count: usize = known.values().map(|expansion| expansion.terms.len()).sum();
        drop(known);
        if count + terms.len() > MAX_NEAR_TERMS {
            let text = format!("a fuzzy search has more than {MAX_NEAR_TERMS} terms");
            return Err(refused(text));
        }
        let texts: Vec<&str> = terms.iter().map(|term| term.0.as_str()).collect();
        let mut statistics = Statistics::clone(&*self.statistics_of(field, &texts)?);
        let most = statistics.terms.values().copied().max().unwrap_or(0);
        statistics.terms.values_mut().for_each(|count| *count = most);
        let expansion = Arc::new(Expansion { terms, statistics: Arc::new(statistics) });
        self.expansions.borrow_mut().insert(name, expansion.clone());
        Ok(expansion)
    }

    /// Visits the terms of a segment that are near to a term, with their distances.
    fn each_near(
        &self,
        postings: &Postings,
        field: &WordField,
        near: &FuzzyTerm,
        mut visit: impl FnMut(&str, usize, &TermInfo) -> Result<()>,
    ) -> Result<()> {
        let index = postings.reader.inverted_index(field.field).map_err(failed)?;
        let term = Term::from_field_text(field.field, near.text());
        let query = FuzzyTermQuery::new(term, near.max_edits() as u8, true);
        // The automaton leads only to terms that may be near. That of a long term is large.
        let mut terms = match near.text().len() <= MAX_AUTOMATON {
            true => {
                let automaton = query.automaton().map_err(failed)?;
                Streamer::Automaton(
                    index.terms().search(automaton).into_stream().map_err(io_failed)?,
                )
            }
            false => {
                let range = index.terms().range().ge(near.prefix().as_bytes());
                Streamer::Range(range.into_stream().map_err(io_failed)?)
            }
        };
        let (mut count, mut blocks) = (0, Blocks::new(self.control));
        while let Some((key, info)) = terms.next().filter(|_| count < MAX_COMPARED) {
            count += 1;
            blocks.add(TERM + key.len().saturating_mul(near.text().len()))?;
            let Ok(term) = std::str::from_utf8(key) else { continue };
            if let Some(distance) = near.distance(term) {
                visit(term, distance, info)?;
            }
        }
        Ok(())
    }
}

/// The terms of a segment: those that an automaton accepts, or those from a prefix on.
enum Streamer<'a> {
    Automaton(TermStreamer<'a, DfaWrapper>),
    Range(TermStreamer<'a>),
}

impl Streamer<'_> {
    fn next(&mut self) -> Option<(&[u8], &TermInfo)> {
        match self {
            Streamer::Automaton(terms) => terms.next(),
            Streamer::Range(terms) => terms.next(),
        }
    }
}
