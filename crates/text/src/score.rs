//! How much a document is about a term.
//!
//! Each string gives each of its terms a score that grows with the number of its occurrences, each counting half of the one
//! before, and with its share of the string's words; a string that is nothing but the term gives a tenth more. Weights
//! multiply, strings add up.

use std::collections::{BTreeMap, HashMap};

use md5::{Digest, Md5};

use crate::{Analyzer, words};

/// What a string adds when it is the term itself.
const WHOLE_STRING_FACTOR: f64 = 1.1;

/// Longest term that is stored as it is.
const MAX_TERM_BYTES: usize = 256;

/// Scores of the terms of a document.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TermScores(BTreeMap<String, f64>);

impl TermScores {
    /// Adds the terms of a string.
    pub fn add(&mut self, analyzer: &Analyzer, text: &str, weight: f64) {
        // Words come again more often than not; each is analysed once.
        let mut occurrences: HashMap<&str, u32> = HashMap::new();
        for word in words(text, analyzer.language()) {
            *occurrences.entry(word).or_default() += 1;
        }
        let mut terms: BTreeMap<String, f64> = BTreeMap::new();
        for (word, count) in occurrences {
            if let Some(term) = analyzer.term(word) {
                *terms.entry(term).or_default() += f64::from(count);
            }
        }
        let words: f64 = terms.values().sum();
        for (term, count) in terms {
            let share = 0.5 * count / words + 0.5;
            // 1, and a half, and a quarter, and so on.
            let frequency = 2.0 - (1.0 - count).exp2();
            let whole = text.len() == term.len() && text.eq_ignore_ascii_case(&term);
            let factor = if whole { WHOLE_STRING_FACTOR } else { 1.0 };
            *self.0.entry(term).or_default() += weight * frequency * share * factor;
        }
    }

    /// The terms in their order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, f64)> {
        self.0.iter().map(|(term, score)| (term.as_str(), *score))
    }

    /// The score of a term; 0 when there is none.
    pub fn of(&self, term: &str) -> f64 {
        self.0.get(term).copied().unwrap_or_default()
    }

    /// How many terms there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is no term.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The term as an index has it: a long one is its beginning and a hash.
pub fn stored_term(term: &str) -> std::borrow::Cow<'_, str> {
    if term.len() <= MAX_TERM_BYTES {
        return term.into();
    }
    let hash = Md5::digest(term.as_bytes());
    let hex: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
    let mut end = MAX_TERM_BYTES - hex.len();
    while !term.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}{hex}", &term[..end]).into()
}
