//! A text search as stages: scans of the terms, their union or the sum of scores for each record,
//! and the residual filter.

use mayfly_value::{DocBuf, DocBuilder, ValueBuf};

use super::filter::{joined, parts};
use super::node::{Node, number};
use crate::exec::Counters;
use crate::plan::TextAccess;

/// Limit on the scans that are shown, which all look alike.
const MOST_SHOWN: usize = 100;

/// The stages of a search. The scores are summed up only if the query uses them.
pub(super) fn text_match(
    text: &TextAccess,
    (conditions, uses_score): (&[DocBuf], bool),
    counted: &Counters,
) -> Node {
    let search = &text.search.search;
    let stage = Node::new("TEXT_MATCH").with(|out| {
        out.start_document("indexPrefix");
        for (path, value) in text.search.spec.before().iter().zip(&text.prefix) {
            out.append(path, ValueBuf::as_raw(value));
        }
        out.end();
        out.append("indexName", text.index.spec.name());
        out.start_document("parsedTextQuery");
        list("terms", search.explain_terms().iter().map(String::as_str), out);
        list("negatedTerms", search.negated_terms().iter().map(String::as_str), out);
        list("phrases", search.phrases(), out);
        list("negatedPhrases", search.negated_phrases(), out);
        out.end();
        out.append("textIndexVersion", number(text.search.spec.version().unsigned_abs()));
    });
    let rejected = number(counted.documents.saturating_sub(counted.returned));
    let stage = stage.did(counted.returned, counted.documents, counted.over).counting(|out| {
        out.append("docsRejected", rejected);
    });
    stage.over(match uses_score {
        true => text_or(text, conditions, counted),
        false => fetched_or(text, conditions, counted),
    })
}

fn list<'s>(name: &str, items: impl Iterator<Item = &'s str>, out: &mut DocBuilder) {
    out.start_array(name);
    for item in items {
        out.push(item);
    }
    out.end();
}

/// The union of the scans without scores, and the documents that it finds.
fn fetched_or(text: &TextAccess, conditions: &[DocBuf], counted: &Counters) -> Node {
    let found = counted.documents;
    let union = Node::new("OR").did(found, counted.keys, counted.over).counting(|out| {
        let tested = counted.keys;
        out.append("dupsTested", number(tested));
        out.append("dupsDropped", number(tested.saturating_sub(found)));
    });
    let union = union.inputs(scans(text, counted));
    Node::new("FETCH")
        .filtered(residual(text, conditions))
        .did(found, found, counted.over)
        .counting(|out| {
            out.append("docsExamined", number(found)).append("alreadyHasObj", 0);
        })
        .over(union)
}

/// The conditions that the index does not answer.
fn residual(text: &TextAccess, conditions: &[DocBuf]) -> DocBuf {
    let answered = |condition: &DocBuf| match parts(condition.as_doc()) {
        Some(("", "$text", _)) => true,
        Some((path, "$eq", _)) => text.search.spec.before().iter().any(|before| before == path),
        _ => false,
    };
    let rest: Vec<DocBuf> =
        conditions.iter().filter(|condition| !answered(condition)).cloned().collect();
    joined(&rest)
}

/// The scans, the sum of scores for each record, and the documents.
fn text_or(text: &TextAccess, conditions: &[DocBuf], counted: &Counters) -> Node {
    Node::new("TEXT_OR")
        .filtered(residual(text, conditions))
        .did(counted.documents, counted.keys, counted.over)
        .counting(|out| {
            out.append("docsExamined", number(counted.documents));
        })
        .inputs(scans(text, counted))
}

fn scans(text: &TextAccess, counted: &Counters) -> Vec<Node> {
    text.terms.iter().take(MOST_SHOWN).map(|_| scan(text, counted)).collect()
}

/// Counters exist for all terms together, so they are shown only if there is one term.
fn scan(text: &TextAccess, counted: &Counters) -> Node {
    let only = text.terms.len() == 1;
    let spec = &text.index.spec;
    let keys = if only { counted.keys } else { 0 };
    let stage = Node::new("IXSCAN").with(|out| {
        out.append("keyPattern", spec.key()).append("indexName", spec.name());
        out.append("isMultiKey", true);
        out.append("isUnique", spec.unique()).append("isSparse", spec.sparse());
        out.append("isPartial", text.index.is_partial()).append("indexVersion", 2);
        out.append("direction", "forward").start_document("indexBounds").end();
    });
    stage.did(keys, keys, counted.over).counting(|out| {
        out.append("keysExamined", number(keys)).append("seeks", 1);
        out.append("dupsTested", number(keys)).append("dupsDropped", 0);
    })
}
