//! Builds the query of one segment from the tree of operators.
//!
//! Conditions on values are sets of documents, which the sorted values of the segment give. Words
//! are queries of tantivy, with the statistics of all segments. All parts of a segment number their
//! documents in the same way.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use mayfly_base::{Error, Result};
use mayfly_value::keys::{TypeBits, TypeBitsReader, decode_value};
use mayfly_value::{RawValue, SortOrder};
use tantivy::query::{
    AllQuery, BooleanQuery, BoostQuery, ConstScoreQuery, EmptyQuery, Occur, PhraseQuery, Query,
    TermQuery,
};
use tantivy::schema::{Field, IndexRecordOption};
use tantivy::{DocSet, TERMINATED, Term};

use super::segment::Segment;
use crate::Definition;
use crate::definition::{
    AnalyzerName, AutocompleteField, FieldType, PostingsDetail, ScoreFunction,
};
use crate::fields::{FieldKind, FieldTable};
use crate::filter::{BitSet, Test};
use crate::limits::MAX_CLAUSES;
use crate::query::{Compound, Criteria, Node, Score, WordPath};
use crate::text::Postings;
use crate::text::analyze::Terms;
use crate::text::glob::Glob;
use crate::text::weight::{FieldQuery, ScoredQuery, SetQuery, Statistics};

/// What the queries of all segments share.
pub(super) struct Planner<'p> {
    pub(super) definition: &'p Definition,
    pub(super) table: &'p FieldTable,
    pub(super) segments: Vec<&'p Segment>,
    statistics: RefCell<HashMap<StatisticsName, Arc<Statistics>>>,
}

/// The number of a field, and the terms of a query on it.
type StatisticsName = (u16, Vec<String>);

/// Most terms of a segment that a pattern is compared with.
const MAX_TERMS: usize = 1_000_000;

pub(super) fn failed(error: tantivy::TantivyError) -> Error {
    Error::internal(format!("the postings of a search index: {error}"))
}

fn io_failed(error: std::io::Error) -> Error {
    Error::internal(format!("the postings of a search index: {error}"))
}

impl<'p> Planner<'p> {
    pub(super) fn new(
        definition: &'p Definition,
        table: &'p FieldTable,
        segments: Vec<&'p Segment>,
    ) -> Planner<'p> {
        Planner { definition, table, segments, statistics: RefCell::default() }
    }

    /// The query of a segment.
    pub(super) fn build(&self, node: &Node, segment: &Segment) -> Result<Box<dyn Query>> {
        match node {
            Node::Words { paths, queries, criteria } => {
                let fields = self.word_fields(paths, segment);
                self.each_text(&fields, queries, |field, terms| self.terms(field, terms, *criteria))
            }
            Node::Phrase { paths, queries, slop } => {
                let fields = self.word_fields(paths, segment);
                self.each_text(&fields, queries, |field, terms| self.phrase(field, terms, *slop))
            }
            Node::Parts { path, queries, criteria } => {
                let field = self.parts_field(path, segment);
                let fields: Vec<WordField> = field.into_iter().collect();
                self.each_text(&fields, queries, |field, terms| match criteria {
                    Criteria::Sequence => self.phrase(field, terms, 0),
                    criteria => self.terms(field, terms, *criteria),
                })
            }
            Node::Pattern { paths, patterns } => self.patterns(paths, patterns, segment),
            Node::Values { paths, test } => Ok(Box::new(self.values(paths, test, segment))),
            Node::Near { paths, origin, pivot, is_date } => {
                Ok(Box::new(self.near(paths, (*origin, *pivot), *is_date, segment)))
            }
            Node::Compound(compound) => self.compound(compound, segment),
            Node::Scored(inner, score) => {
                let inner = self.build(inner, segment)?;
                Ok(match score {
                    Score::Boost(boost) => Box::new(BoostQuery::new(inner, *boost)),
                    Score::Constant(score) => Box::new(ConstScoreQuery::new(inner, *score)),
                })
            }
        }
    }

    fn compound(&self, compound: &Compound, segment: &Segment) -> Result<Box<dyn Query>> {
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
        for node in &compound.should {
            clauses.push((Occur::Should, self.build(node, segment)?));
        }
        if !has_required && compound.should.is_empty() {
            clauses.push((Occur::Must, Box::new(ConstScoreQuery::new(Box::new(AllQuery), 0.0))));
        }
        let default = usize::from(!has_required && !compound.should.is_empty());
        let minimum = compound.minimum.unwrap_or(0).max(default);
        Ok(Box::new(BooleanQuery::with_minimum_required_clauses(clauses, minimum)))
    }
}

/// A text field of a segment.
#[derive(Clone)]
struct WordField {
    number: u16,
    field: Field,
    analyzer: AnalyzerName,
    score: ScoreFunction,
    detail: PostingsDetail,
    /// The options of a field with parts of words.
    parts: Option<AutocompleteField>,
}

impl Planner<'_> {
    /// The text fields of a segment that paths name.
    fn word_fields(&self, paths: &[WordPath], segment: &Segment) -> Vec<WordField> {
        let mut found: Vec<WordField> = Vec::new();
        let known = segment.postings().map_or(0, Postings::fields);
        for path in paths {
            let fields: Vec<(u16, &str, &str)> = match path {
                WordPath::Path(path, multi) => {
                    let number = self.table.find(FieldKind::Words, path, multi);
                    number
                        .map(|number| (number, path.as_str(), multi.as_str()))
                        .into_iter()
                        .collect()
                }
                WordPath::Wildcard(pattern) => {
                    let glob = Glob::new(pattern);
                    let words = self.table.text_fields().filter(|(_, field)| {
                        field.name.0 == FieldKind::Words && field.name.2.is_empty()
                    });
                    words
                        .filter(|(_, field)| glob.matches(&field.name.1))
                        .map(|(number, field)| (number, field.name.1.as_str(), ""))
                        .collect()
                }
            };
            for (number, path, multi) in fields {
                let is_new = found.iter().all(|field| field.number != number);
                if is_new && usize::from(number) < known {
                    found.extend(self.word_field(number, path, multi));
                }
            }
        }
        found.truncate(MAX_CLAUSES);
        found
    }

    fn word_field(&self, number: u16, path: &str, multi: &str) -> Option<WordField> {
        let analyzer = self.definition.analyzer_at(path, multi)?;
        let of = |field_type: &FieldType| match field_type {
            FieldType::String(field) if multi.is_empty() => Some((field.score, field.detail)),
            FieldType::String(field) => {
                field.multi.get(multi).map(|field| (field.score, field.detail))
            }
            _ => None,
        };
        let (score, detail) = self.definition.types_at(path).iter().find_map(of)?;
        let field = Field::from_field_id(self.table.text_number(number)?);
        Some(WordField { number, field, analyzer, score, detail, parts: None })
    }

    fn parts_field(&self, path: &str, segment: &Segment) -> Option<WordField> {
        let number = self.table.find(FieldKind::Parts, path, "")?;
        let known = segment.postings().map_or(0, Postings::fields);
        let of = |field_type: &FieldType| match field_type {
            FieldType::Autocomplete(field) => Some(field.clone()),
            _ => None,
        };
        let parts = self.definition.types_at(path).iter().find_map(of)?;
        let field = Field::from_field_id(self.table.text_number(number)?);
        (usize::from(number) < known).then_some(WordField {
            number,
            field,
            analyzer: parts.analyzer.unwrap_or(AnalyzerName::STANDARD),
            score: parts.score,
            detail: PostingsDetail::Positions,
            parts: Some(parts),
        })
    }

    /// The queries of all fields and texts; one that matches is enough.
    fn each_text(
        &self,
        fields: &[WordField],
        queries: &[String],
        build: impl Fn(&WordField, &Terms) -> Result<Box<dyn Query>>,
    ) -> Result<Box<dyn Query>> {
        let mut alternatives: Vec<Box<dyn Query>> = Vec::new();
        for field in fields {
            for query in queries {
                let mut terms = Terms::default();
                terms.add(field.analyzer, query);
                if let Some(parts) = &field.parts {
                    terms.cut(parts);
                }
                terms.tokens.truncate(MAX_CLAUSES);
                if terms.tokens.is_empty() {
                    continue;
                }
                let built = build(field, &terms)?;
                alternatives.push(match field.score {
                    ScoreFunction::Bm25 => built,
                    ScoreFunction::Boolean => Box::new(ConstScoreQuery::new(built, 1.0)),
                });
            }
        }
        Ok(match alternatives.len() {
            0 => Box::new(EmptyQuery),
            1 => alternatives.remove(0),
            _ => Box::new(BooleanQuery::union(alternatives)),
        })
    }

    fn terms(
        &self,
        field: &WordField,
        terms: &Terms,
        criteria: Criteria,
    ) -> Result<Box<dyn Query>> {
        let statistics = self.statistics(field, terms)?;
        let option = match field.detail {
            PostingsDetail::Documents => IndexRecordOption::Basic,
            _ => IndexRecordOption::WithFreqs,
        };
        let mut queries: Vec<Box<dyn Query>> = Vec::new();
        for token in &terms.tokens {
            let term = Term::from_field_text(field.field, &token.text);
            let query = TermQuery::new(term, option);
            queries.push(Box::new(FieldQuery { query, statistics: statistics.clone() }));
        }
        Ok(match (queries.len(), criteria) {
            (1, _) => queries.remove(0),
            (_, Criteria::Any) => Box::new(BooleanQuery::union(queries)),
            _ => Box::new(BooleanQuery::intersection(queries)),
        })
    }

    fn phrase(&self, field: &WordField, terms: &Terms, slop: u32) -> Result<Box<dyn Query>> {
        let statistics = self.statistics(field, terms)?;
        let term = |text: &str| Term::from_field_text(field.field, text);
        if let [token] = terms.tokens.as_slice() {
            let query = TermQuery::new(term(&token.text), IndexRecordOption::WithFreqs);
            return Ok(Box::new(FieldQuery { query, statistics }));
        }
        if field.detail != PostingsDetail::Positions {
            let text = "phrase needs a field that is indexed with positions or offsets";
            return Err(crate::fault::refused(text));
        }
        let places: Vec<(usize, Term)> =
            terms.tokens.iter().map(|token| (token.position, term(&token.text))).collect();
        let query = PhraseQuery::new_with_offset_and_slop(places, slop);
        Ok(Box::new(FieldQuery { query, statistics }))
    }

    /// The statistics of a field and of these terms in all segments.
    fn statistics(&self, field: &WordField, terms: &Terms) -> Result<Arc<Statistics>> {
        let texts: Vec<String> = terms.tokens.iter().map(|token| token.text.clone()).collect();
        let name = (field.number, texts);
        if let Some(known) = self.statistics.borrow().get(&name) {
            return Ok(known.clone());
        }
        let mut statistics = Statistics::default();
        for segment in &self.segments {
            let Some(postings) = segment.postings() else { continue };
            if usize::from(field.number) >= postings.fields() {
                continue;
            }
            statistics.documents += u64::from(postings.count(field.number));
            let index = postings.reader.inverted_index(field.field).map_err(failed)?;
            statistics.words += index.total_num_tokens();
            for text in &name.1 {
                let term = Term::from_field_text(field.field, text);
                let count = u64::from(index.doc_freq(&term).map_err(io_failed)?);
                *statistics.terms.entry(term).or_default() += count;
            }
        }
        // A term that stands twice in the query was counted twice.
        for (term, count) in &mut statistics.terms {
            let times =
                name.1.iter().filter(|text| Term::from_field_text(field.field, text) == *term);
            *count /= times.count().max(1) as u64;
        }
        let statistics = Arc::new(statistics);
        self.statistics.borrow_mut().insert(name, statistics.clone());
        Ok(statistics)
    }

    /// The documents with a term that one of the patterns matches.
    fn patterns(
        &self,
        paths: &[WordPath],
        patterns: &[String],
        segment: &Segment,
    ) -> Result<Box<dyn Query>> {
        let mut selected = BitSet::new(segment.len());
        let Some(postings) = segment.postings() else { return Ok(Box::new(EmptyQuery)) };
        for field in self.word_fields(paths, segment) {
            let index = postings.reader.inverted_index(field.field).map_err(failed)?;
            for pattern in patterns {
                let glob = Glob::new(pattern);
                let prefix = glob.prefix();
                let mut terms =
                    index.terms().range().ge(prefix.as_bytes()).into_stream().map_err(io_failed)?;
                let mut count = 0;
                while terms.advance() && count < MAX_TERMS {
                    count += 1;
                    let Ok(term) = std::str::from_utf8(terms.key()) else { continue };
                    if !term.starts_with(&prefix) {
                        break;
                    }
                    if !glob.matches(term) {
                        continue;
                    }
                    let option = IndexRecordOption::Basic;
                    let mut documents = index
                        .read_postings_from_terminfo(terms.value(), option)
                        .map_err(io_failed)?;
                    while documents.doc() != TERMINATED {
                        selected.insert(documents.doc() as usize);
                        documents.advance();
                    }
                }
            }
        }
        Ok(Box::new(SetQuery(Arc::new(selected))))
    }

    fn values(&self, paths: &[String], test: &Test, segment: &Segment) -> SetQuery {
        let mut selected = BitSet::new(segment.len());
        for path in paths {
            let number = self.table.find(FieldKind::Values, path, "");
            let column = number.and_then(|number| segment.column(usize::from(number)));
            if let Some(column) = column {
                test.select(&column, &mut selected);
            }
        }
        SetQuery(Arc::new(selected))
    }

    /// The documents with a number or a date, scored by `pivot / (pivot + distance)`. Of several
    /// values of a document the nearest counts.
    fn near(
        &self,
        paths: &[String],
        (origin, pivot): (f64, f64),
        is_date: bool,
        segment: &Segment,
    ) -> ScoredQuery {
        let mut scores: HashMap<u32, f32> = HashMap::new();
        for path in paths {
            let number = self.table.find(FieldKind::Values, path, "");
            let column = number.and_then(|number| segment.column(usize::from(number)));
            let Some(column) = column else { continue };
            for at in 0..column.len() {
                let Some(value) = number_in(column.key(at), is_date) else { continue };
                let score = (pivot / (pivot + (value - origin).abs())) as f32;
                for document in column.list(at) {
                    let best = scores.entry(document).or_insert(score);
                    *best = best.max(score);
                }
            }
        }
        let mut scores: Vec<(u32, f32)> = scores.into_iter().collect();
        scores.sort_unstable_by_key(|score| score.0);
        ScoredQuery(Arc::new(scores))
    }
}

/// The number, or the milliseconds of the date, in a key.
fn number_in(key: &[u8], is_date: bool) -> Option<f64> {
    let bits = TypeBits::new();
    let mut bits = TypeBitsReader::new(bits.as_bytes());
    let (value, _) = decode_value(key, SortOrder::Ascending, &mut bits)?;
    match value.as_raw() {
        RawValue::Date(time) if is_date => Some(time as f64),
        RawValue::Int32(number) if !is_date => Some(f64::from(number)),
        RawValue::Int64(number) if !is_date => Some(number as f64),
        RawValue::Double(number) if !is_date && !number.is_nan() => Some(number),
        _ => None,
    }
}
