//! What a search is looking for, compared with the terms of a text.

use std::cell::RefCell;
use std::collections::BTreeSet;

use tantivy::tokenizer::Token;

use crate::query::{Fuzzy, Pattern};
use crate::text::analyze::Terms;
use crate::text::fuzzy::FuzzyTerm;
use crate::text::glob::Glob;
use crate::text::regex::Matcher;

/// The terms, patterns and phrases of a query.
#[derive(Default)]
pub(super) struct Matchers {
    terms: BTreeSet<String>,
    near: Vec<FuzzyTerm>,
    globs: Vec<Glob>,
    regexes: Vec<RefCell<Matcher>>,
    phrases: Vec<(Terms, u32)>,
}

impl Matchers {
    pub(super) fn add_terms(&mut self, terms: &Terms, fuzzy: Option<Fuzzy>) {
        for token in &terms.tokens {
            match fuzzy {
                Some(fuzzy) => {
                    self.near.push(FuzzyTerm::new(&token.text, fuzzy.max_edits, fuzzy.prefix));
                }
                None => _ = self.terms.insert(token.text.clone()),
            }
        }
    }

    pub(super) fn add_phrase(&mut self, terms: Terms, slop: u32) {
        match terms.tokens.as_slice() {
            [] => {}
            [token] => _ = self.terms.insert(token.text.clone()),
            _ => self.phrases.push((terms, slop)),
        }
    }

    pub(super) fn add_pattern(&mut self, pattern: &Pattern) {
        match pattern {
            Pattern::Glob(glob) => self.globs.push(glob.clone()),
            Pattern::Regex(regex) => self.regexes.push(RefCell::new(regex.matcher())),
        }
    }

    /// The tokens of a text that are hits.
    pub(super) fn hits(&self, tokens: &[Token]) -> Vec<usize> {
        let mut hits: BTreeSet<usize> = BTreeSet::new();
        for (at, token) in tokens.iter().enumerate() {
            if self.matches(&token.text) {
                hits.insert(at);
            }
        }
        for (phrase, slop) in &self.phrases {
            add_phrase_hits(&phrase.tokens, *slop, tokens, &mut hits);
        }
        hits.into_iter().collect()
    }

    fn matches(&self, term: &str) -> bool {
        self.terms.contains(term)
            || self.near.iter().any(|near| near.distance(term).is_some())
            || self.globs.iter().any(|glob| glob.matches(term))
            || self.regexes.iter().any(|regex| regex.borrow_mut().matches(term) == Some(true))
    }
}

/// Adds the tokens of a text that are those of the phrase, in its order and near enough.
fn add_phrase_hits(phrase: &[Token], slop: u32, tokens: &[Token], hits: &mut BTreeSet<usize>) {
    let Some(first) = phrase.first() else { return };
    for (start, token) in tokens.iter().enumerate() {
        if token.text != first.text {
            continue;
        }
        let (mut found, mut moved) = (vec![start], 0);
        for wanted in &phrase[1..] {
            let place = token.position + (wanted.position - first.position) + moved;
            let rest = (slop as usize).saturating_sub(moved);
            let last = *found.last().unwrap_or(&start);
            let places = place..=place.saturating_add(rest);
            let next = tokens
                .iter()
                .enumerate()
                .skip(last + 1)
                .take_while(|(_, token)| token.position <= *places.end())
                .find(|(_, token)| token.text == wanted.text && places.contains(&token.position));
            let Some((at, token)) = next else { break };
            moved += token.position - place;
            found.push(at);
        }
        if found.len() == phrase.len() {
            hits.extend(found);
        }
    }
}
