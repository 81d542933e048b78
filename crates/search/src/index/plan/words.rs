//! The text fields of a segment, and the queries of their words.

use std::sync::Arc;

use mayfly_base::Result;
use tantivy::Term;
use tantivy::query::{BooleanQuery, ConstScoreQuery, EmptyQuery, Query};
use tantivy::schema::{Field, IndexRecordOption};

use super::{Planner, failed, io_failed};
use crate::definition::{
    AnalyzerName, AutocompleteField, FieldType, PostingsDetail, ScoreFunction,
};
use crate::fault::refused;
use crate::fields::FieldKind;
use crate::index::segment::Segment;
use crate::limits::{MAX_CLAUSES, MAX_TERMS};
use crate::query::{Criteria, WordPath};
use crate::text::Postings;
use crate::text::analyze::Terms;
use crate::text::glob::Glob;
use crate::text::phrase::PhraseQuery;
use crate::text::weight::{Statistics, TermScoreQuery};

/// A text field of a segment.
#[derive(Clone)]
pub(in crate::index) struct WordField {
    pub(in crate::index) number: u16,
    pub(in crate::index) field: Field,
    pub(super) analyzer: AnalyzerName,
    pub(in crate::index) score: ScoreFunction,
    detail: PostingsDetail,
    /// The average length of the field for which the segment has the greatest scores of its blocks
    /// of documents; `None`: it has none.
    bounds: Option<f32>,
    /// The options of a field with parts of words.
    parts: Option<AutocompleteField>,
}

impl WordField {
    /// The terms of a query on the field.
    pub(in crate::index) fn terms_of(&self, query: &str) -> Terms {
        let mut terms = Terms::default();
        terms.add(self.analyzer, query);
        if let Some(parts) = &self.parts {
            terms.cut(parts);
        }
        terms.tokens.truncate(MAX_CLAUSES);
        terms
    }

    /// What postings of the field are read for scores.
    pub(in crate::index) fn option(&self) -> IndexRecordOption {
        match self.detail {
            PostingsDetail::Documents => IndexRecordOption::Basic,
            _ => IndexRecordOption::WithFreqs,
        }
    }
}

/// The average length for which tantivy found the greatest score of each block: it divides by the
/// number of all documents of the segment.
fn bounds(segment: &Segment, field: Field) -> Option<f32> {
    let reader = &segment.postings()?.reader;
    reader.get_fieldnorms_reader(field).ok()?;
    let words = reader.inverted_index(field).ok()?.total_num_tokens();
    Some(words as f32 / reader.max_doc() as f32)
}

impl Planner<'_> {
    /// The query of a term.
    pub(super) fn term(
        &self,
        field: &WordField,
        text: &str,
        statistics: &Arc<Statistics>,
    ) -> TermScoreQuery {
        let average = statistics.average_length();
        // The greatest score of a block is that of one document. For another average length another
        // document can have a greater one, but no more than this many times as great.
        let slack = match field.bounds {
            Some(bounds) => (average / bounds).max(bounds / average),
            None => f32::INFINITY,
        };
        self.slack.set(self.slack.get().max(slack));
        let term = Term::from_field_text(field.field, text);
        self.watch.add_term(statistics.terms.get(&term).copied().unwrap_or(0));
        TermScoreQuery {
            term,
            option: field.option(),
            statistics: statistics.clone(),
            watch: self.watch.clone(),
        }
    }

    /// The text fields of a segment that paths name.
    pub(in crate::index) fn word_fields(
        &self,
        paths: &[WordPath],
        segment: &Segment,
    ) -> Vec<WordField> {
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
                    found.extend(self.word_field((number, path, multi), segment));
                }
            }
        }
        found.truncate(MAX_CLAUSES);
        found
    }

    fn word_field(
        &self,
        (number, path, multi): (u16, &str, &str),
        segment: &Segment,
    ) -> Option<WordField> {
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
        let bounds = bounds(segment, field);
        Some(WordField { number, field, analyzer, score, detail, bounds, parts: None })
    }

    /// The field with the whole words of a path that `autocomplete` searches. A sequence of words
    /// needs positions.
    pub(in crate::index) fn whole_word_fields(
        &self,
        path: &str,
        criteria: Criteria,
        segment: &Segment,
    ) -> Vec<WordField> {
        let path = WordPath::Path(path.to_owned(), String::new());
        let mut fields = self.word_fields(std::slice::from_ref(&path), segment);
        fields.retain(|field| {
            criteria != Criteria::Sequence || field.detail == PostingsDetail::Positions
        });
        fields
    }

    pub(in crate::index) fn parts_field(&self, path: &str, segment: &Segment) -> Option<WordField> {
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
            bounds: bounds(segment, field),
            parts: Some(parts),
        })
    }

    /// The queries of all fields and texts; one that matches is enough.
    pub(super) fn each_text(
        &self,
        fields: &[WordField],
        queries: &[String],
        build: impl Fn(&WordField, &Terms) -> Result<Box<dyn Query>>,
    ) -> Result<Box<dyn Query>> {
        let mut alternatives: Vec<Box<dyn Query>> = Vec::new();
        let mut count = 0;
        for field in fields {
            for query in queries {
                let terms = field.terms_of(query);
                count += terms.tokens.len();
                if count > MAX_TERMS {
                    let text = format!("an operator searches for more than {MAX_TERMS} terms");
                    return Err(refused(text));
                }
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

    pub(super) fn terms(
        &self,
        field: &WordField,
        terms: &Terms,
        criteria: Criteria,
    ) -> Result<Box<dyn Query>> {
        let statistics = self.statistics(field, terms)?;
        let mut queries: Vec<Box<dyn Query>> = Vec::new();
        for token in &terms.tokens {
            queries.push(Box::new(self.term(field, &token.text, &statistics)));
        }
        Ok(match (queries.len(), criteria) {
            (1, _) => queries.remove(0),
            (_, Criteria::Any) => Box::new(BooleanQuery::union(queries)),
            _ => Box::new(BooleanQuery::intersection(queries)),
        })
    }

    pub(super) fn phrase(
        &self,
        field: &WordField,
        terms: &Terms,
        slop: u32,
    ) -> Result<Box<dyn Query>> {
        let statistics = self.statistics(field, terms)?;
        if let [token] = terms.tokens.as_slice() {
            return Ok(Box::new(self.term(field, &token.text, &statistics)));
        }
        if field.detail != PostingsDetail::Positions {
            let text = "phrase needs a field that is indexed with positions or offsets";
            return Err(crate::fault::refused(text));
        }
        let term = |text: &str| Term::from_field_text(field.field, text);
        let places: Vec<(usize, Term)> =
            terms.tokens.iter().map(|token| (token.position, term(&token.text))).collect();
        let (terms, watch) = (Arc::new(places), self.watch.clone());
        Ok(Box::new(PhraseQuery { terms, slop, statistics, watch }))
    }

    /// The statistics of a field and of these terms in all segments.
    pub(in crate::index) fn statistics(
        &self,
        field: &WordField,
        terms: &Terms,
    ) -> Result<Arc<Statistics>> {
        let texts: Vec<&str> = terms.tokens.iter().map(|token| token.text.as_str()).collect();
        self.statistics_of(field, &texts)
    }

    /// The statistics of a field and of these terms in all segments.
    pub(super) fn statistics_of(
        &self,
        field: &WordField,
        texts: &[&str],
    ) -> Result<Arc<Statistics>> {
        let name = (field.number, texts.iter().map(|text| (*text).to_owned()).collect());
        if let Some(known) = self.statistics.borrow().get(&name) {
            return Ok(known.clone());
        }
        let mut statistics = Statistics::default();
        for segment in &self.segments {
            self.control.check()?;
            let Some(postings) = segment.postings() else { continue };
            if usize::from(field.number) >= postings.fields() {
                continue;
            }
            let count = postings.count(field.number);
            statistics.documents += u64::from(count.documents);
            statistics.words += count.words;
            let index = postings.reader.inverted_index(field.field).map_err(failed)?;
            for text in texts {
                let term = Term::from_field_text(field.field, text);
                let count = u64::from(index.doc_freq(&term).map_err(io_failed)?);
                *statistics.terms.entry(term).or_default() += count;
            }
        }
        // A term that stands twice in the query was counted twice.
        for (term, count) in &mut statistics.terms {
            let times =
                texts.iter().filter(|text| Term::from_field_text(field.field, text) == *term);
            *count /= times.count().max(1) as u64;
        }
        let statistics = Arc::new(statistics);
        self.statistics.borrow_mut().insert(name, statistics.clone());
        Ok(statistics)
    }
}
