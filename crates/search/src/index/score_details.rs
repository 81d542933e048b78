//! `scoreDetails`: how the score of a hit was computed, in the words of Lucene.

use std::sync::Arc;

use mayfly_base::Result;
use mayfly_value::{DocBuf, DocBuilder, RawValue};
use tantivy::{DocSet, Term};

use super::Part;
use super::plan::{PlannedField, Planner, failed, io_failed};
use super::search::Hit;
use super::view::View;
use crate::definition::ScoreFunction;
use crate::query::{Compound, Criteria, Fuzzy, Node, Score, WordPath};
use crate::text::analyze::Terms;
use crate::text::weight::{B, K1, Statistics, idf};

/// A part of a score: its value, what it is, and the parts of which it was computed.
#[derive(Clone, Debug, PartialEq)]
pub struct ScoreDetails {
    /// The value of this part.
    pub value: f32,
    /// What it is.
    pub description: String,
    /// The parts of which it was computed.
    pub details: Vec<ScoreDetails>,
}

impl ScoreDetails {
    fn new(value: f32, description: impl Into<String>, details: Vec<ScoreDetails>) -> ScoreDetails {
        ScoreDetails { value, description: description.into(), details }
    }

    fn leaf(value: f32, description: &str) -> ScoreDetails {
        ScoreDetails::new(value, description, Vec::new())
    }

    /// The document that `{$meta: "searchScoreDetails"}` returns.
    pub fn to_document(&self) -> DocBuf {
        let mut out = DocBuilder::new();
        self.append(&mut out);
        out.finish()
    }

    fn append(&self, out: &mut DocBuilder) {
        out.append("value", RawValue::Double(f64::from(self.value)));
        out.append("description", RawValue::String(&self.description));
        out.start_array("details");
        for detail in &self.details {
            out.push_document();
            detail.append(out);
            out.end();
        }
        out.end();
    }
}

/// The hit whose score is explained.
struct Explained<'e> {
    view: &'e View,
    planner: &'e Planner<'e>,
    part: &'e Part,
    document: u32,
}

impl View {
    /// The details of a hit's score.
    pub(super) fn score_details(
        &self,
        planner: &Planner<'_>,
        node: &Node,
        hit: &Hit,
    ) -> Result<ScoreDetails> {
        let find = |part: &&Part| part.find(&hit.record_key).is_some();
        let Some(part) = self.parts.iter().find(find) else {
            return Ok(ScoreDetails::leaf(hit.score, "no details"));
        };
        let document = part.find(&hit.record_key).unwrap_or(0) as u32;
        let explained = Explained { view: self, planner, part, document };
        let details = explained.details(node, 1.0)?;
        // The sum of the parts may differ from the score in its last bits.
        Ok(match details {
            Some(details) => ScoreDetails { value: hit.score, ..details },
            None => ScoreDetails::leaf(hit.score, "no details"),
        })
    }
}

impl Explained<'_> {
    /// The score that an operator alone gives the document; `None`: it does not match.
    fn score(&self, node: &Node) -> Result<Option<f32>> {
        let Some(postings) = self.part.segment.postings() else { return Ok(None) };
        let weight = self.view.weight(self.planner, node, self.part)?;
        let mut documents = weight.scorer(&postings.reader, 1.0).map_err(failed)?;
        if documents.doc() < self.document {
            documents.seek(self.document);
        }
        self.planner.watch.result()?;
        Ok((documents.doc() == self.document).then(|| documents.score()))
    }

    /// The details of an operator, whose score is multiplied by `boost`.
    fn details(&self, node: &Node, boost: f32) -> Result<Option<ScoreDetails>> {
        let Some(score) = self.score(node)? else { return Ok(None) };
        let value = score * boost;
        let details = match node {
            Node::All => ScoreDetails::leaf(value, "*:*"),
            Node::Words { paths, queries, fuzzy, .. } => {
                let fields = self.planner.word_fields(paths, &self.part.segment);
                match fuzzy {
                    Some(fuzzy) => self.near_terms(&fields, queries, *fuzzy, value, boost)?,
                    None => self.texts(&fields, queries, value, boost)?,
                }
            }
            Node::Parts { path, queries, criteria, fuzzy } => {
                self.parts(path, queries, (*criteria, *fuzzy), value, boost)?
            }
            Node::Phrase { paths, queries, slop } => {
                self.phrases(paths, queries, *slop, (value, boost))?
            }
            Node::Pattern { .. } => constant(value, "terms that match a pattern"),
            Node::Values { paths, .. } => constant(value, &paths.join(", ")),
            Node::Near { origin, pivot, .. } => near(value, boost, *origin, *pivot),
            Node::Nearest(nearest) => {
                ScoreDetails::leaf(value, &format!("within top {} docs", nearest.limit))
            }
            Node::Compound(compound) => self.compound(compound, value, boost)?,
            Node::Scored(inner, Score::Boost(factor)) => {
                return self.details(inner, boost * factor);
            }
            Node::Scored(_, Score::Constant(_)) => constant(value, "a constant"),
            Node::Scored(inner, Score::PathBoost(path)) => {
                let numbers = self.planner.numbers(path, &self.part.segment)?;
                let number = numbers.of(self.document) as f32;
                let factor = ScoreDetails::leaf(number, &format!("double({})", path.path));
                let inner = self.details(inner, 1.0)?;
                let details = inner.into_iter().chain([factor]).collect();
                ScoreDetails::new(value, "FunctionScoreQuery, product of:", details)
            }
            Node::Scored(inner, Score::Function(_)) => {
                let details = self.details(inner, 1.0)?.into_iter().collect();
                ScoreDetails::new(value, "FunctionScoreQuery, computed from:", details)
            }
        };
        Ok(Some(details))
    }

    fn compound(&self, compound: &Compound, value: f32, boost: f32) -> Result<ScoreDetails> {
        let mut details = Vec::new();
        for node in &compound.must {
            details.extend(self.details(node, boost)?);
        }
        for node in &compound.filter {
            let inner = self.details(node, 1.0)?.into_iter();
            let parts = [ScoreDetails::leaf(0.0, "# clause")].into_iter().chain(inner).collect();
            let text = "match on required clause, product of:";
            details.push(ScoreDetails::new(0.0, text, parts));
        }
        let mut should = Vec::new();
        for node in &compound.should {
            should.extend(self.details(node, boost)?);
        }
        match compound.dismax {
            Some(tie_breaker) if compound.should.len() > 1 && !should.is_empty() => {
                let greatest = should.iter().map(|part| part.value).fold(0.0, f32::max);
                let sum: f32 = should.iter().map(|part| part.value).sum();
                let score = greatest + tie_breaker * (sum - greatest);
                let text = format!("max plus {tie_breaker} times others of:");
                details.push(ScoreDetails::new(score, text, should));
            }
            _ => details.extend(should),
        }
        Ok(ScoreDetails::new(value, "sum of:", details))
    }

    /// The details of the terms that are in the document.
    fn texts(
        &self,
        fields: &[PlannedField],
        queries: &[String],
        value: f32,
        boost: f32,
    ) -> Result<ScoreDetails> {
        let mut details = Vec::new();
        for field in fields {
            for query in queries {
                let terms = field.terms_of(query);
                if terms.tokens.is_empty() {
                    continue;
                }
                let statistics = self.planner.statistics(field, &terms)?;
                details.extend(self.terms(field, &terms, &statistics, boost)?);
            }
        }
        Ok(ScoreDetails::new(value, "sum of:", details))
    }

    fn parts(
        &self,
        path: &str,
        queries: &[String],
        (criteria, fuzzy): (Criteria, Option<Fuzzy>),
        value: f32,
        boost: f32,
    ) -> Result<ScoreDetails> {
        let segment = &self.part.segment;
        if fuzzy.is_some() || criteria == Criteria::Sequence {
            let text = format!("$type:autocomplete/{path} and whole words");
            return Ok(ScoreDetails::leaf(value, &text));
        }
        let mut fields: Vec<PlannedField> =
            self.planner.parts_field(path, segment).into_iter().collect();
        fields.extend(self.planner.whole_word_fields(path, criteria, segment));
        self.texts(&fields, queries, value, boost)
    }

    /// The name of a field in descriptions.
    fn name(&self, field: &PlannedField) -> String {
        let field = self.planner.table.iter().find(|(number, _)| *number == field.number);
        match field.map(|(_, field)| &field.name) {
            Some((crate::fields::FieldKind::Parts, path, _)) => {
                format!("$type:autocomplete/{path}")
            }
            Some((_, path, multi)) if multi.is_empty() => format!("$type:string/{path}"),
            Some((_, path, multi)) => format!("$multi/{path}.{multi}"),
            None => String::new(),
        }
    }

    /// The details of each term of a text that is in the document.
    fn terms(
        &self,
        field: &PlannedField,
        terms: &Terms,
        statistics: &Arc<Statistics>,
        boost: f32,
    ) -> Result<Vec<ScoreDetails>> {
        let mut details = Vec::new();
        for token in &terms.tokens {
            details.extend(self.term(field, &token.text, statistics, boost)?);
        }
        if field.score == ScoreFunction::Boolean && !details.is_empty() {
            return Ok(vec![constant(boost, &self.name(field))]);
        }
        Ok(details)
    }

    /// The details of the terms of the document that are near to those of a query.
    fn near_terms(
        &self,
        fields: &[PlannedField],
        queries: &[String],
        fuzzy: Fuzzy,
        value: f32,
        boost: f32,
    ) -> Result<ScoreDetails> {
        let mut details = Vec::new();
        for field in fields {
            for query in queries {
                let mut found = Vec::new();
                for token in &field.terms_of(query).tokens {
                    let expansion = self.planner.expand(field, &token.text, fuzzy)?;
                    for (text, share) in &expansion.terms {
                        let boost = boost * share;
                        found.extend(self.term(field, text, &expansion.statistics, boost)?);
                    }
                }
                if field.score == ScoreFunction::Boolean && !found.is_empty() {
                    found = vec![constant(boost, &self.name(field))];
                }
                details.extend(found);
            }
        }
        Ok(ScoreDetails::new(value, "sum of:", details))
    }

    /// The details of phrases.
    fn phrases(
        &self,
        paths: &[WordPath],
        queries: &[String],
        slop: u32,
        (value, boost): (f32, f32),
    ) -> Result<ScoreDetails> {
        let mut details = Vec::new();
        for field in self.planner.word_fields(paths, &self.part.segment) {
            let names = self.planner.table.iter().find(|(number, _)| *number == field.number);
            let Some((_, known)) = names else { continue };
            let path = WordPath::Path(known.name.1.clone(), known.name.2.clone());
            for query in queries {
                let (paths, queries) = (vec![path.clone()], vec![query.clone()]);
                let Some(score) = self.score(&Node::Phrase { paths, queries, slop })? else {
                    continue;
                };
                let name = self.name(&field);
                let text = format!("{name}:\"{query}\" [BM25Similarity], result of:");
                let inner = self.phrase_counts(&field, query)?;
                details.push(ScoreDetails::new(score * boost, text, inner));
            }
        }
        Ok(ScoreDetails::new(value, "sum of:", details))
    }

    /// The parts of a phrase's score that do not depend on where it is.
    fn phrase_counts(&self, field: &PlannedField, query: &str) -> Result<Vec<ScoreDetails>> {
        let terms = field.terms_of(query);
        let statistics = self.planner.statistics(field, &terms)?;
        let idf = |token: &tantivy::tokenizer::Token| {
            let term = Term::from_field_text(field.field, &token.text);
            let holding = statistics.terms.get(&term).copied().unwrap_or(0);
            idf_details(statistics.documents, holding)
        };
        let parts: Vec<ScoreDetails> = terms.tokens.iter().map(idf).collect();
        let sum = parts.iter().map(|part| part.value).sum();
        Ok(vec![ScoreDetails::new(sum, "idf, sum of:", parts)])
    }

    /// The details of a term, if it is in the document.
    fn term(
        &self,
        field: &PlannedField,
        text: &str,
        statistics: &Statistics,
        boost: f32,
    ) -> Result<Option<ScoreDetails>> {
        let Some(postings) = self.part.segment.postings() else { return Ok(None) };
        let index = postings.reader.inverted_index(field.field).map_err(failed)?;
        let term = Term::from_field_text(field.field, text);
        let found = index.read_postings(&term, field.option()).map_err(io_failed)?;
        let Some(mut documents) = found else { return Ok(None) };
        if documents.doc() < self.document {
            documents.seek(self.document);
        }
        if documents.doc() != self.document {
            return Ok(None);
        }
        let length = match postings.reader.get_fieldnorms_reader(field.field) {
            Ok(lengths) => lengths.fieldnorm(self.document) as f32,
            Err(_) => 1.0,
        };
        let counts = Counts {
            documents: statistics.documents,
            holding: statistics.terms.get(&term).copied().unwrap_or(0),
            frequency: tantivy::postings::Postings::term_freq(&documents) as f32,
            length,
            average: statistics.average_length(),
        };
        let score = counts.score(boost);
        let text = format!("{}:{text} [BM25Similarity], result of:", self.name(field));
        Ok(Some(ScoreDetails::new(score.value, text, vec![score])))
    }
}

/// The rarity of a term.
fn idf_details(documents: u64, holding: u64) -> ScoreDetails {
    let idf = idf(documents, holding);
    let details = vec![
        ScoreDetails::leaf(holding as f32, "n, number of documents containing term"),
        ScoreDetails::leaf(documents as f32, "N, total number of documents with field"),
    ];
    let text = "idf, computed as log(1 + (N - n + 0.5) / (n + 0.5)) from:";
    ScoreDetails::new(idf, text, details)
}

/// The numbers of which BM25 computes the score of a term.
struct Counts {
    documents: u64,
    holding: u64,
    frequency: f32,
    length: f32,
    average: f32,
}

impl Counts {
    fn score(&self, boost: f32) -> ScoreDetails {
        let leaf = ScoreDetails::leaf;
        let Counts { documents, holding, frequency, length, average } = self;
        let idf = idf_details(*documents, *holding);
        let tf = frequency / (frequency + K1 * (1.0 - B + B * length / average));
        let tf_details = vec![
            leaf(*frequency, "freq, occurrences of term within document"),
            leaf(K1, "k1, term saturation parameter"),
            leaf(B, "b, length normalization parameter"),
            leaf(*length, "dl, length of field"),
            leaf(*average, "avgdl, average length of field"),
        ];
        let mut details = Vec::new();
        if boost != 1.0 {
            details.push(leaf(boost, "boost"));
        }
        let value = boost * idf.value * tf;
        details.push(idf);
        let text = "tf, computed as freq / (freq + k1 * (1 - b + b * dl / avgdl)) from:";
        details.push(ScoreDetails::new(tf, text, tf_details));
        let text = format!("score(freq={frequency:.1}), computed as boost * idf * tf from:");
        ScoreDetails::new(value, text, details)
    }
}

fn constant(value: f32, what: &str) -> ScoreDetails {
    ScoreDetails::leaf(value, &format!("ConstantScore({what})"))
}

fn near(value: f32, weight: f32, origin: f64, pivot: f64) -> ScoreDetails {
    let text = "Distance score, computed as weight * pivotDistance / (pivotDistance + abs(value - \
                origin)) from:";
    let details = vec![
        ScoreDetails::leaf(weight, "weight"),
        ScoreDetails::leaf(pivot as f32, "pivotDistance"),
        ScoreDetails::leaf(origin as f32, "origin"),
    ];
    ScoreDetails::new(value, text, details)
}
