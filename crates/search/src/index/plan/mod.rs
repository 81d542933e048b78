//! Builds the query of one segment from the tree of operators.
//!
//! Conditions on values are sets of documents, which the sorted values of the segment give. Words
//! are queries of tantivy, with the statistics of all segments. All parts of a segment number their
//! documents in the same way.

mod function;
mod terms;
mod values;
mod words;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::sync::Arc;

use mayfly_base::{Error, Result};
use tantivy::query::{
    AllQuery, BooleanQuery, BoostQuery, ConstScoreQuery, DisjunctionMaxQuery, EmptyQuery, Occur,
    Query,
};

use super::Control;
use super::segment::Segment;
use super::view::Found;
use crate::Definition;
use crate::fields::FieldTable;
use crate::query::{Compound, Criteria, Fuzzy, Node, Score};
use crate::text::weight::{ScoredQuery, Statistics};
use crate::watch::Watch;
use function::FunctionQuery;
use terms::Expansion;
use words::WordField;

pub(super) use values::number_in;
pub(super) use words::WordField as PlannedField;

/// What the queries of all segments share.
pub(super) struct Planner<'p> {
    pub(super) definition: &'p Definition,
    pub(super) table: &'p FieldTable,
    pub(super) segments: Vec<Arc<Segment>>,
    pub(super) control: &'p dyn Control,
    /// Ends the scorers of the queries.
    pub(super) watch: Arc<Watch>,
    /// The documents of each segment that a search for vectors found, with their scores.
    pub(super) nearest: Vec<Found>,
    /// How many times as great a score can be as the bounds of the segment's postings say.
    pub(super) slack: Cell<f32>,
    statistics: RefCell<HashMap<StatisticsName, Arc<Statistics>>>,
    expansions: RefCell<HashMap<ExpansionName, Arc<Expansion>>>,
}

/// The number of a field, and the terms of a query on it.
type StatisticsName = (u16, Vec<String>);

/// The number of a field, the term that is expanded, and the options.
type ExpansionName = (u16, String, Fuzzy);

pub(super) fn failed(error: tantivy::TantivyError) -> Error {
    Error::internal(format!("the postings of a search index: {error}"))
}

pub(super) fn io_failed(error: std::io::Error) -> Error {
    Error::internal(format!("the postings of a search index: {error}"))
}

impl<'p> Planner<'p> {
    pub(super) fn new(
        definition: &'p Definition,
        table: &'p FieldTable,
        segments: Vec<Arc<Segment>>,
        control: &'p dyn Control,
    ) -> Planner<'p> {
        Planner {
            definition,
            table,
            segments,
            control,
            watch: Arc::new(Watch::new(control.shared_check())),
            nearest: Vec::new(),
            slack: Cell::new(1.0),
            statistics: RefCell::default(),
            expansions: RefCell::default(),
        }
    }

    /// The query of a segment.
    pub(super) fn query(&self, node: &Node, segment: &Arc<Segment>) -> Result<Box<dyn Query>> {
        self.watch.begin(segment.len());
        self.build(node, segment)
    }

    fn build(&self, node: &Node, segment: &Arc<Segment>) -> Result<Box<dyn Query>> {
        self.control.check()?;
        match node {
            Node::All => Ok(Box::new(AllQuery)),
            Node::Words { paths, queries, criteria, fuzzy } => {
                let fields = self.word_fields(paths, segment);
                self.each_text(&fields, queries, |field, terms| match fuzzy {
                    Some(fuzzy) => self.fuzzy_terms(field, terms, *criteria, *fuzzy),
                    None => self.terms(field, terms, *criteria),
                })
            }
            Node::Phrase { paths, queries, slop } => {
                let fields = self.word_fields(paths, segment);
                self.each_text(&fields, queries, |field, terms| self.phrase(field, terms, *slop))
            }
            Node::Parts { path, queries, criteria, fuzzy } => {
                let field = self.parts_field(path, segment);
                let fields: Vec<WordField> = field.into_iter().collect();
                let parts =
                    self.each_text(&fields, queries, |field, terms| match (fuzzy, criteria) {
                        (Some(fuzzy), criteria) => {
                            self.fuzzy_parts(field, terms, *criteria, *fuzzy, segment)
                        }
                        (None, Criteria::Sequence) => self.phrase(field, terms, 0),
                        (None, criteria) => self.terms(field, terms, *criteria),
                    })?;
                self.with_whole_words(parts, path, queries, *criteria, segment)
            }
            Node::Pattern { paths, patterns } => self.patterns(paths, patterns, segment),
            Node::Values { paths, test } => Ok(Box::new(self.values(paths, test, segment)?)),
            Node::Near { paths, origin, pivot, kind } => {
                Ok(Box::new(self.near(paths, (*origin, *pivot), *kind, segment)?))
            }
            Node::Nearest(_) => Ok(match self.nearest_in(segment) {
                Some(found) => Box::new(ScoredQuery(found, self.watch.clone())),
                None => Box::new(EmptyQuery),
            }),
            Node::Compound(compound) => self.compound(compound, segment),
            Node::Scored(inner, score) => {
                let inner = self.build(inner, segment)?;
                self.scored(inner, score, segment)
            }
        }
    }

    /// Adds the scores of whole words to those of parts of words, if the path has both.
    fn with_whole_words(
        &self,
        parts: Box<dyn Query>,
        path: &str,
        queries: &[String],
        criteria: Criteria,
        segment: &Segment,
    ) -> Result<Box<dyn Query>> {
        let fields = self.whole_word_fields(path, criteria, segment);
        if fields.is_empty() {
            return Ok(parts);
        }
        let words = self.each_text(&fields, queries, |field, terms| match criteria {
            Criteria::Sequence => self.phrase(field, terms, 0),
            criteria => self.terms(field, terms, criteria),
        })?;
        Ok(Box::new(BooleanQuery::new(vec![(Occur::Must, parts), (Occur::Should, words)])))
    }

    fn scored(
        &self,
        inner: Box<dyn Query>,
        score: &Score,
        segment: &Arc<Segment>,
    ) -> Result<Box<dyn Query>> {
        Ok(match score {
            Score::Boost(boost) => Box::new(BoostQuery::new(inner, *boost)),
            Score::Constant(score) => Box::new(ConstScoreQuery::new(inner, *score)),
            Score::PathBoost(path) => {
                let numbers = self.numbers(path, segment)?;
                Box::new(FunctionQuery::path_boost(inner, numbers, &self.watch))
            }
            Score::Function(expression) => {
                let function = self.function(expression, segment)?;
                Box::new(FunctionQuery::new(inner, function, &self.watch))
            }
        })
    }

    /// The documents of a segment that the search for vectors found.
    pub(super) fn nearest_in(&self, segment: &Arc<Segment>) -> Option<Found> {
        let at = self.segments.iter().position(|other| Arc::ptr_eq(other, segment))?;
        self.nearest.get(at).cloned()
    }

    fn compound(&self, compound: &Compound, segment: &Arc<Segment>) -> Result<Box<dyn Query>> {
        let mut clauses: Vec<(Occur, Box<dyn Query>)> = Vec::new();
        for node in &compound.must {
            clauses.push((Occur::Must, self.build(node, segment)?));
        }
        for node in &compound.filter {
            let inner = self.build(node, segment)?;
            clauses.push((Occur::Must, Box::new(ConstScoreQuery::new(inner, 0.0))));
        }
        let has_required = !clauses.is_empty();
        for node in &compound.must_not {
            clauses.push((Occur::MustNot, self.build(node, segment)?));
        }
        let mut should = Vec::new();
        for node in &compound.should {
            should.push(self.build(node, segment)?);
        }
        match compound.dismax {
            Some(tie_breaker) if should.len() > 1 => {
                let query = DisjunctionMaxQuery::with_tie_breaker(should, tie_breaker);
                clauses.push((Occur::Should, Box::new(query)));
            }
            _ => clauses.extend(should.into_iter().map(|query| (Occur::Should, query))),
        }
        if !has_required && compound.should.is_empty() {
            clauses.push((Occur::Must, Box::new(ConstScoreQuery::new(Box::new(AllQuery), 0.0))));
        }
        let default = usize::from(!has_required && !compound.should.is_empty());
        let minimum = compound.minimum.unwrap_or(0).max(default);
        Ok(Box::new(BooleanQuery::with_minimum_required_clauses(clauses, minimum)))
    }
}
