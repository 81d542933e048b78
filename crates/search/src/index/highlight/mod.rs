//! `highlight`: the passages of a document in which a search found its terms.
//!
//! The text of a path is cut into sentences. Each sentence with a hit is a passage; the passages
//! with the greatest scores are returned, in their order in the text. The scores are those of
//! Lucene's highlighter.

mod matcher;
mod passages;

use mayfly_value::paths::{Hit, LeafArrays, visit_path_with};
use mayfly_value::{DocBuf, DocBuilder, RawDoc, RawValue};

use super::Index;
use crate::definition::{AnalyzerName, AutocompleteField, FieldType};
use crate::fields::FieldKind;
use crate::query::{HighlightOptions, Kind, Node, Query, WordPath};
use crate::text::analyze::Terms;
use crate::text::glob::Glob;
use matcher::Matchers;
use passages::passages;

/// A passage of a document with hits.
#[derive(Clone, Debug, PartialEq)]
pub struct Highlight {
    /// The path of the text.
    pub path: String,
    /// The name of the `multi` whose analyzer found the hits, if the query names one.
    pub multi: Option<String>,
    /// Greater for passages with more and rarer terms.
    pub score: f32,
    /// The text of the passage, cut into hits and what is between them.
    pub texts: Vec<HighlightText>,
}

/// A part of a passage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HighlightText {
    /// The text of this part.
    pub value: String,
    /// Whether the search found it.
    pub kind: TextKind,
}

/// The kind of a part of a passage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextKind {
    /// The search found it.
    Hit,
    /// It is between hits.
    Text,
}

impl Highlight {
    /// An item of the array that `{$meta: "searchHighlights"}` returns.
    pub fn to_document(&self) -> DocBuf {
        let mut out = DocBuilder::new();
        out.append("score", RawValue::Double(f64::from(self.score)));
        match &self.multi {
            None => _ = out.append("path", RawValue::String(&self.path)),
            Some(multi) => {
                out.start_document("path");
                out.append("value", RawValue::String(&self.path));
                out.append("multi", RawValue::String(multi)).end();
            }
        }
        out.start_array("texts");
        for text in &self.texts {
            let kind = match text.kind {
                TextKind::Hit => "hit",
                TextKind::Text => "text",
            };
            out.push_document();
            out.append("value", RawValue::String(&text.value));
            out.append("type", RawValue::String(kind)).end();
        }
        out.end();
        out.finish()
    }
}

/// How the text of a highlighted path becomes terms.
enum Analysis {
    Words(AnalyzerName),
    Parts(AutocompleteField),
}

impl Analysis {
    fn terms(&self, text: &str) -> Terms {
        let mut terms = Terms::default();
        match self {
            Analysis::Words(analyzer) => terms.add(*analyzer, text),
            Analysis::Parts(field) => terms.add_parts(field, text),
        }
        terms
    }
}

impl Index {
    /// The highlights of a document that a query found. Empty: the query asks for none, or its
    /// terms are in none of the paths.
    pub fn highlights(&self, query: &Query, document: RawDoc<'_>) -> Vec<Highlight> {
        let Kind::Search(search) = &query.kind else { return Vec::new() };
        let Some(options) = &search.highlight else { return Vec::new() };
        let mut matchers = Matchers::default();
        self.collect(&search.node, &mut matchers);
        let mut highlights = Vec::new();
        for (path, multi) in self.highlighted(options) {
            let Some(analysis) = self.analysis(&path, &multi, &search.node) else { continue };
            let texts = texts_at(document, &path, options.max_characters);
            let terms: Vec<Terms> = texts.iter().map(|text| analysis.terms(text)).collect();
            for (score, texts) in passages(&texts, &terms, &matchers, options.max_passages) {
                let multi = Some(multi.clone()).filter(|multi| !multi.is_empty());
                highlights.push(Highlight { path: path.clone(), multi, score, texts });
            }
        }
        highlights
    }

    /// The paths that the options name, each once.
    fn highlighted(&self, options: &HighlightOptions) -> Vec<(String, String)> {
        let mut paths: Vec<(String, String)> = Vec::new();
        for path in &options.paths {
            match path {
                WordPath::Path(path, multi) => paths.push((path.clone(), multi.clone())),
                WordPath::Wildcard(pattern) => {
                    let glob = Glob::new(pattern);
                    let table = self.table();
                    for (_, field) in table.text_fields() {
                        let (kind, path, multi) = &field.name;
                        if *kind == FieldKind::Words && multi.is_empty() && glob.matches(path) {
                            paths.push((path.clone(), String::new()));
                        }
                    }
                }
            }
        }
        let mut known = std::collections::HashSet::new();
        paths.retain(|path| known.insert(path.clone()));
        paths
    }

    /// Parts of words are highlighted where only `autocomplete` searches the path.
    fn analysis(&self, path: &str, multi: &str, node: &Node) -> Option<Analysis> {
        let types = self.definition.types_at(path);
        let parts = types.iter().find_map(|field_type| match field_type {
            FieldType::Autocomplete(field) => Some(field.clone()),
            _ => None,
        });
        let is_word = |field_type: &FieldType| match field_type {
            FieldType::String(field) => field.is_stored || !multi.is_empty(),
            _ => false,
        };
        let has_words = types.iter().any(is_word);
        let is_parts_only = multi.is_empty() && searches_only_parts(node, path);
        match parts {
            Some(field) if is_parts_only || !has_words => Some(Analysis::Parts(field)),
            _ if has_words => {
                self.definition.document_analyzer_at(path, multi).map(Analysis::Words)
            }
            _ => None,
        }
    }

    /// Collects what the operators search for. Clauses that must not match are left out.
    fn collect(&self, node: &Node, matchers: &mut Matchers) {
        match node {
            Node::Compound(compound) => {
                let clauses = [&compound.must, &compound.should, &compound.filter];
                clauses.into_iter().flatten().for_each(|node| self.collect(node, matchers));
            }
            Node::Scored(node, _) => self.collect(node, matchers),
            Node::Words { paths, queries, fuzzy, .. } => {
                self.each_terms(paths, queries, |terms| matchers.add_terms(&terms, *fuzzy));
            }
            Node::Phrase { paths, queries, slop } => {
                self.each_terms(paths, queries, |terms| matchers.add_phrase(terms, *slop));
            }
            Node::Parts { path, queries, fuzzy, .. } => {
                for field_type in self.definition.types_at(path) {
                    let FieldType::Autocomplete(field) = field_type else { continue };
                    for query in queries {
                        let mut terms = Terms::default();
                        terms.add(field.analyzer.unwrap_or(AnalyzerName::STANDARD), query);
                        terms.cut(field);
                        matchers.add_terms(&terms, *fuzzy);
                    }
                }
            }
            Node::Pattern { patterns, .. } => {
                for pattern in patterns {
                    matchers.add_pattern(&pattern.written);
                    pattern.lower.iter().for_each(|lower| matchers.add_pattern(lower));
                }
            }
            Node::All | Node::Values { .. } | Node::Near { .. } | Node::Nearest(_) => {}
        }
    }

    /// The terms of queries by the analyzers of all paths.
    fn each_terms(&self, paths: &[WordPath], queries: &[String], mut add: impl FnMut(Terms)) {
        let mut analyzers: Vec<AnalyzerName> = Vec::new();
        for path in paths {
            match path {
                WordPath::Path(path, multi) => {
                    analyzers.extend(self.definition.analyzer_at(path, multi));
                }
                WordPath::Wildcard(pattern) => {
                    let glob = Glob::new(pattern);
                    for (_, field) in self.table().text_fields() {
                        let (kind, path, multi) = &field.name;
                        if *kind == FieldKind::Words && multi.is_empty() && glob.matches(path) {
                            analyzers.extend(self.definition.analyzer_at(path, ""));
                        }
                    }
                }
            }
        }
        let mut known = std::collections::HashSet::new();
        analyzers.retain(|analyzer| known.insert(*analyzer));
        for analyzer in analyzers {
            for query in queries {
                let mut terms = Terms::default();
                terms.add(analyzer, query);
                add(terms);
            }
        }
    }
}

/// Whether `autocomplete` searches a path and no other operator does.
fn searches_only_parts(node: &Node, path: &str) -> bool {
    let (mut parts, mut words) = (false, false);
    visit_paths(node, path, &mut parts, &mut words);
    parts && !words
}

fn visit_paths(node: &Node, path: &str, parts: &mut bool, words: &mut bool) {
    match node {
        Node::Compound(compound) => {
            let clauses = [&compound.must, &compound.should, &compound.filter, &compound.must_not];
            clauses.into_iter().flatten().for_each(|node| visit_paths(node, path, parts, words));
        }
        Node::Scored(node, _) => visit_paths(node, path, parts, words),
        Node::Parts { path: other, .. } => *parts |= other == path,
        Node::Words { paths, .. } | Node::Phrase { paths, .. } | Node::Pattern { paths, .. } => {
            *words |= paths.iter().any(|other| match other {
                WordPath::Path(other, _) => other == path,
                WordPath::Wildcard(pattern) => Glob::new(pattern).matches(path),
            });
        }
        Node::All | Node::Values { .. } | Node::Near { .. } | Node::Nearest(_) => {}
    }
}

/// The strings at a path, up to a number of characters in all.
fn texts_at(document: RawDoc<'_>, path: &str, most: usize) -> Vec<String> {
    let parts: Vec<&str> = path.split('.').collect();
    let (mut texts, mut rest) = (Vec::new(), most);
    let mut add = |value: RawValue<'_>| add_texts(value, &mut rest, &mut texts, 0);
    let _ = visit_path_with(document, &parts, LeafArrays::Keep, &mut |hit| {
        if let Hit::Value(value, _) = hit {
            add(value);
        }
        std::ops::ControlFlow::Continue(())
    });
    texts
}

fn add_texts(value: RawValue<'_>, rest: &mut usize, texts: &mut Vec<String>, depth: usize) {
    match value {
        RawValue::String(text) if *rest > 0 => {
            let kept: String = text.chars().take(*rest).collect();
            *rest -= kept.chars().count();
            texts.push(kept);
        }
        RawValue::Array(items) if depth < crate::limits::MAX_DEPTH => {
            items.iter().for_each(|item| add_texts(item.value(), rest, texts, depth + 1));
        }
        _ => {}
    }
}
