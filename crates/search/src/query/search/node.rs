//! The tree of operators.

use std::sync::Arc;

use super::score::Score;
use crate::definition::AnalyzerName;
use crate::filter::Test;
use crate::query::VectorQuery;
use crate::text::glob::Glob;
use crate::text::regex::Regex;

/// The fields that an operator searches for words.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum WordPath {
    /// A path, and the name of its `multi` or nothing.
    Path(String, String),
    /// All paths that a pattern with `*` matches.
    Wildcard(String),
}

/// Which terms of a query must be in a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Criteria {
    Any,
    All,
    /// All, one after another.
    Sequence,
}

/// The terms that are near enough to a term of the query.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Fuzzy {
    /// The most characters that are changed, inserted, removed, or swapped with the next one.
    pub(crate) max_edits: usize,
    /// The number of characters at the beginning that must be the same.
    pub(crate) prefix: usize,
    /// The most terms of the index that are searched for each term of the query.
    pub(crate) max_expansions: usize,
}

/// The values that are numbers in scores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NumberKind {
    Number,
    /// Dates, as milliseconds.
    Date,
}

/// A pattern that whole terms match.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Pattern {
    /// `wildcard`.
    Glob(Glob),
    /// `regex`.
    Regex(Arc<Regex>),
}

/// A pattern as it was written, and in lower case for fields whose terms are in lower case.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CasedPattern {
    pub(crate) written: Pattern,
    /// `None`: it is the same.
    pub(crate) lower: Option<Pattern>,
}

impl CasedPattern {
    /// The pattern for the terms of an analyzer.
    pub(crate) fn of(&self, analyzer: AnalyzerName) -> &Pattern {
        match &self.lower {
            Some(lower) if analyzer.makes_lower_case() => lower,
            _ => &self.written,
        }
    }
}

/// `vectorSearch`, `knnBeta`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Nearest {
    /// The searches, one for each path. Their filter is here.
    pub(crate) queries: Vec<VectorQuery>,
    pub(crate) filter: Option<Node>,
    /// The most documents that are found.
    pub(crate) limit: usize,
}

/// A tree of operators.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Node {
    /// All documents, with the score 1. It stands for the missing operator of a collector.
    All,
    /// `text`.
    Words { paths: Vec<WordPath>, queries: Vec<String>, criteria: Criteria, fuzzy: Option<Fuzzy> },
    /// `phrase`, with the greatest distance that words may be moved.
    Phrase { paths: Vec<WordPath>, queries: Vec<String>, slop: u32 },
    /// `autocomplete`.
    Parts { path: String, queries: Vec<String>, criteria: Criteria, fuzzy: Option<Fuzzy> },
    /// `wildcard`, `regex`: terms that one of the patterns matches, with the score 1 for each path
    /// and pattern.
    Pattern { paths: Vec<WordPath>, patterns: Vec<CasedPattern> },
    /// `equals`, `in`, `range`, `exists`: one of the paths has such a value.
    Values { paths: Vec<String>, test: Test },
    /// `near`: values of the origin's type, scored by their distance.
    Near { paths: Vec<String>, origin: f64, pivot: f64, kind: NumberKind },
    /// `vectorSearch`, `knnBeta`: the documents with the nearest vectors.
    Nearest(Box<Nearest>),
    /// `compound`.
    Compound(Compound),
    /// An operator with another score.
    Scored(Box<Node>, Score),
}

/// The clauses of `compound`.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Compound {
    pub(crate) must: Vec<Node>,
    pub(crate) must_not: Vec<Node>,
    pub(crate) should: Vec<Node>,
    pub(crate) filter: Vec<Node>,
    pub(crate) minimum: Option<usize>,
    /// The part of the scores of other `should` clauses that is added to the greatest one; `None`:
    /// all scores are added.
    pub(crate) dismax: Option<f32>,
}
