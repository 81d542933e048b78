//! Passages: the sentences of a text with hits, and their scores.

use std::collections::BTreeMap;
use std::ops::Range;

use tantivy::tokenizer::Token;
use unicode_segmentation::UnicodeSegmentation;

use super::matcher::Matchers;
use super::{HighlightText, TextKind};
use crate::text::analyze::Terms;

/// The parameters of the scores: those of BM25, with the length of a usual sentence.
const K1: f32 = 1.2;
const B: f32 = 0.75;
const PIVOT: f32 = 87.0;

/// A sentence with hits.
struct Passage<'t> {
    text: &'t str,
    /// The place of the sentence in all texts, in UTF-16 units, as Lucene counts.
    start: usize,
    /// The places of the hits in the sentence.
    hits: Vec<Range<usize>>,
    /// How often each term was found in the sentence.
    terms: BTreeMap<&'t str, usize>,
}

/// The passages with the greatest scores, in their order in the texts.
pub(super) fn passages(
    texts: &[String],
    terms: &[Terms],
    matchers: &Matchers,
    most: usize,
) -> Vec<(f32, Vec<HighlightText>)> {
    let mut passages: Vec<Passage<'_>> = Vec::new();
    let mut start = 0;
    for (text, terms) in texts.iter().zip(terms) {
        let hits: Vec<&Token> =
            matchers.hits(&terms.tokens).into_iter().map(|at| &terms.tokens[at]).collect();
        find_passages(text, start, &hits, &mut passages);
        // Lucene puts one character between two texts.
        start += units(text) + 1;
    }
    let length = start.saturating_sub(1);
    let mut totals: BTreeMap<&str, usize> = BTreeMap::new();
    for passage in &passages {
        for (term, count) in &passage.terms {
            *totals.entry(term).or_default() += count;
        }
    }
    let score =
        |passage: Passage<'_>| (passage.score(length, &totals), passage.start, passage.cut());
    let mut scored: Vec<(f32, usize, Vec<HighlightText>)> =
        passages.into_iter().map(score).collect();
    scored.sort_by(|left, right| right.0.total_cmp(&left.0).then(left.1.cmp(&right.1)));
    scored.truncate(most);
    scored.sort_by_key(|passage| passage.1);
    scored.into_iter().map(|(score, _, texts)| (score, texts)).collect()
}

fn units(text: &str) -> usize {
    text.chars().map(char::len_utf16).sum()
}

fn find_passages<'t>(
    text: &'t str,
    start: usize,
    hits: &[&'t Token],
    passages: &mut Vec<Passage<'t>>,
) {
    for (offset, sentence) in text.split_sentence_bound_indices() {
        let range = offset..offset + sentence.len();
        let inside: Vec<&&Token> =
            hits.iter().filter(|token| range.contains(&token.offset_from)).collect();
        if inside.is_empty() {
            continue;
        }
        let mut passage = Passage {
            text: sentence,
            start: start + units(&text[..offset]),
            hits: Vec::new(),
            terms: BTreeMap::new(),
        };
        for token in inside {
            let end = token.offset_to.min(range.end) - offset;
            passage.hits.push(token.offset_from - offset..end);
            *passage.terms.entry(token.text.as_str()).or_default() += 1;
        }
        passages.push(passage);
    }
}

impl Passage<'_> {
    /// The score: rare terms, short sentences and those near to the beginning count more.
    fn score(&self, length: usize, totals: &BTreeMap<&str, usize>) -> f32 {
        let documents = 1.0 + length as f32 / PIVOT;
        let norm = K1 * (1.0 - B + B * units(self.text) as f32 / PIVOT);
        let term = |(term, count): (&&str, &usize)| {
            let total = totals.get(term).copied().unwrap_or(*count) as f32;
            let weight = (K1 + 1.0) * (1.0 + (documents + 0.5) / (total + 0.5)).ln();
            weight * (*count as f32 / (*count as f32 + norm))
        };
        let sum: f32 = self.terms.iter().map(term).sum();
        sum * (1.0 + 1.0 / (PIVOT + self.start as f32).ln())
    }

    /// The sentence, cut at the hits. Hits that touch each other are one.
    fn cut(&self) -> Vec<HighlightText> {
        let mut hits = self.hits.clone();
        hits.sort_by_key(|hit| (hit.start, hit.end));
        let mut merged: Vec<Range<usize>> = Vec::new();
        for hit in hits {
            match merged.last_mut() {
                Some(last) if hit.start <= last.end => last.end = last.end.max(hit.end),
                _ => merged.push(hit),
            }
        }
        let (mut texts, mut at) = (Vec::new(), 0);
        let mut add = |range: Range<usize>, kind| {
            if let Some(value) = self.text.get(range).filter(|value| !value.is_empty()) {
                texts.push(HighlightText { value: value.to_owned(), kind });
            }
        };
        for hit in merged {
            add(at..hit.start, TextKind::Text);
            at = hit.end;
            add(hit, TextKind::Hit);
        }
        add(at..self.text.len(), TextKind::Text);
        texts
    }
}
