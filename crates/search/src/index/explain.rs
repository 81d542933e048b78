//! `explain`: the operators of a query, and the parts of the index that it reads.

use mayfly_value::{DocBuf, DocBuilder, RawValue};

use super::Index;
use crate::filter::Test;
use crate::query::{Compound, Kind, Node, Pattern, Query, Score, VectorQuery, WordPath};

impl Index {
    /// A document that describes how a query is run.
    pub fn explain(&self, query: &Query) -> DocBuf {
        let mut out = DocBuilder::new();
        out.start_document("query");
        match &query.kind {
            Kind::Vector(vector) => append_vector(&mut out, vector),
            Kind::Search(search) => append_node(&mut out, &search.node),
        }
        out.end();
        if let Kind::Search(search) = &query.kind {
            let sort = if search.sort.is_empty() { "score" } else { "values" };
            out.append("sort", RawValue::String(sort));
            if !search.facets.is_empty() {
                out.append("facets", RawValue::Int32(search.facets.len() as i32));
            }
        }
        let sizes = self.sizes();
        out.start_document("index");
        for (name, number) in [
            ("documents", sizes.documents),
            ("deletedDocuments", sizes.deleted),
            ("documentsInMemory", sizes.uncommitted),
            ("fileBytes", sizes.file_bytes),
            ("memoryBytes", sizes.memory_bytes),
        ] {
            out.append(name, RawValue::Int64(number as i64));
        }
        out.end();
        self.append_segments(&mut out, query);
        out.finish()
    }

    fn append_segments(&self, out: &mut DocBuilder, query: &Query) {
        let parts = self.state.read().parts.clone();
        out.start_array("segments");
        for part in &parts {
            out.push_document();
            out.append("documents", RawValue::Int64(part.live() as i64));
            out.append("deletedDocuments", RawValue::Int64(part.deleted.count() as i64));
            if let Kind::Vector(vector) = &query.kind {
                let mut fields = self.definition.vectors.iter().enumerate();
                let field = fields.find(|(_, field)| field.path == vector.path);
                let element = vector.probe.vector.element;
                let vectors =
                    field.and_then(|(at, field)| part.segment.vectors(at, field, element));
                let count = vectors.map_or(0, |vectors| vectors.len());
                out.append("vectors", RawValue::Int64(count as i64));
                let has_graph = vectors.is_some_and(|vectors| vectors.graph.is_some());
                out.append("hasGraph", RawValue::Bool(has_graph));
            }
            out.end();
        }
        out.end();
    }
}

fn append_vector(out: &mut DocBuilder, vector: &VectorQuery) {
    out.append("type", RawValue::String("vectorSearch"));
    out.append("path", RawValue::String(&vector.path));
    match vector.candidates {
        Some(candidates) => _ = out.append("numCandidates", RawValue::Int64(candidates as i64)),
        None => _ = out.append("exact", RawValue::Bool(true)),
    }
    if vector.filter.is_some() {
        out.append("hasFilter", RawValue::Bool(true));
    }
}

/// Appends the type of an operator, its paths, and what it searches for.
fn append_node(out: &mut DocBuilder, node: &Node) {
    let mut head = |name: &str| _ = out.append("type", RawValue::String(name));
    match node {
        Node::All => head("allDocuments"),
        Node::Words { paths, queries, fuzzy, .. } => {
            head("text");
            append_paths(out, paths);
            append_strings(out, "query", queries.iter().map(String::as_str));
            if let Some(fuzzy) = fuzzy {
                out.append("maxEdits", RawValue::Int32(fuzzy.max_edits as i32));
            }
        }
        Node::Phrase { paths, queries, slop } => {
            head("phrase");
            append_paths(out, paths);
            append_strings(out, "query", queries.iter().map(String::as_str));
            out.append("slop", RawValue::Int64(i64::from(*slop)));
        }
        Node::Parts { path, queries, .. } => {
            head("autocomplete");
            append_strings(out, "path", [path.as_str()]);
            append_strings(out, "query", queries.iter().map(String::as_str));
        }
        Node::Pattern { paths, patterns } => {
            let is_regex =
                patterns.iter().all(|pattern| matches!(pattern.written, Pattern::Regex(_)));
            head(if is_regex { "regex" } else { "wildcard" });
            append_paths(out, paths);
        }
        Node::Values { paths, test } => {
            head(match test {
                Test::In(_) => "in",
                Test::Range(_) => "range",
                Test::Exists => "exists",
            });
            append_strings(out, "path", paths.iter().map(String::as_str));
        }
        Node::Near { paths, origin, pivot, .. } => {
            head("near");
            append_strings(out, "path", paths.iter().map(String::as_str));
            out.append("origin", RawValue::Double(*origin));
            out.append("pivot", RawValue::Double(*pivot));
        }
        Node::Nearest(nearest) => {
            head("vectorSearch");
            let paths = nearest.queries.iter().map(|query| query.path.as_str());
            append_strings(out, "path", paths);
            out.append("limit", RawValue::Int64(nearest.limit as i64));
        }
        Node::Compound(compound) => {
            head("compound");
            append_compound(out, compound);
        }
        Node::Scored(inner, score) => {
            append_node(out, inner);
            out.append(
                "score",
                RawValue::String(match score {
                    Score::Boost(_) | Score::PathBoost(_) => "boost",
                    Score::Constant(_) => "constant",
                    Score::Function(_) => "function",
                }),
            );
        }
    }
}

fn append_compound(out: &mut DocBuilder, compound: &Compound) {
    for (name, clauses) in [
        ("must", &compound.must),
        ("mustNot", &compound.must_not),
        ("should", &compound.should),
        ("filter", &compound.filter),
    ] {
        if clauses.is_empty() {
            continue;
        }
        out.start_array(name);
        for node in clauses {
            out.push_document();
            append_node(out, node);
            out.end();
        }
        out.end();
    }
}

fn append_paths(out: &mut DocBuilder, paths: &[WordPath]) {
    let name = |path: &WordPath| match path {
        WordPath::Path(path, multi) if multi.is_empty() => path.clone(),
        WordPath::Path(path, multi) => format!("{path} (multi: {multi})"),
        WordPath::Wildcard(pattern) => pattern.clone(),
    };
    let names: Vec<String> = paths.iter().map(name).collect();
    append_strings(out, "path", names.iter().map(String::as_str));
}

fn append_strings<'s>(
    out: &mut DocBuilder,
    name: &str,
    strings: impl IntoIterator<Item = &'s str>,
) {
    out.start_array(name);
    for text in strings {
        out.push(RawValue::String(text));
    }
    out.end();
}
