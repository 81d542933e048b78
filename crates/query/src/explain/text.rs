//! A text search as stages: scans of the terms, the sum of scores for each record, and the residual
//! filter.

use mayfly_value::{DocBuf, DocBuilder, ValueBuf};

use super::filter::{joined, parts};
use super::node::{Node, number};
use crate::exec::Counters;
use crate::plan::TextAccess;

/// Limit on the scans that are shown, which all look alike.
const MOST_SHOWN: usize = 100;

pub(super) fn text_match(text: &TextAccess, conditions: &[DocBuf], counted: &Counters) -> Node {
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
    stage.over(text_or(text, conditions, counted))
}

fn list<'s>(name: &str, items: impl Iterator<Item = &'s str>, out: &mut DocBuilder) {
    out.start_array(name);
    for item in items {
        out.push(item);
    }
    out.end();
}

fn text_or(text: &TextAccess, conditions: &[DocBuf], counted: &Counters) -> Node {
    // Conditions that the index answers.
    let answered = |condition: &DocBuf| match parts(condition.as_doc()) {
        Some(("", "$text", _)) => true,
        Some((path, "$eq", _)) => text.search.spec.before().iter().any(|before| before == path),
        _ => false,
    };
    let rest: Vec<DocBuf> =
        conditions.iter().filter(|condition| !answered(condition)).cloned().collect();
    let mut stage = Node::new("TEXT_OR")
        .filtered(joined(&rest))
        .did(counted.documents, counted.keys, counted.over)
        .counting(|out| {
            out.append("docsExamined", number(counted.documents));
        });
    stage.inputs = text.terms.iter().take(MOST_SHOWN).map(|_| scan(text, counted)).collect();
    stage
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
