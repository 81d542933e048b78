//! Relevance scores of terms.
//!
//! Each string gives each of its terms a score that increases with the number of occurrences, each
//! counting half of the previous one, and with the term's share of the string's words; a string
//! that equals the term scores a tenth more. The score is multiplied by the weight and summed over
//! the strings.

use std::collections::{BTreeMap, HashMap};

use md5::{Digest, Md5};

use crate::{Analyzer, words};

/// The factor for a string that equals the term.
const WHOLE_STRING_FACTOR: f64 = 1.1;

/// Longest term that is stored without a hash.
const MAX_TERM_BYTES: usize = 256;

/// Scores of the terms of a document.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TermScores(BTreeMap<String, f64>);

impl TermScores {
    /// Adds the terms of a string.
    pub fn add(&mut self, analyzer: &Analyzer, text: &str, weight: f64) {
        // Words are often repeated; each is analyzed once.
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
            // 1 + 1/2 + 1/4 + ...
            let frequency = 2.0 - (1.0 - count).exp2();
            let whole = text.len() == term.len() && text.eq_ignore_ascii_case(&term);
            let factor = if whole { WHOLE_STRING_FACTOR } else { 1.0 };
            *self.0.entry(term).or_default() += weight * frequency * share * factor;
        }
    }

    /// The terms in their order, with their scores.
    pub fn iter(&self) -> impl Iterator<Item = (&str, f64)> {
        self.0.iter().map(|(term, score)| (term.as_str(), *score))
    }

    /// The score of a term; 0 when it does not occur.
    pub fn of(&self, term: &str) -> f64 {
        self.0.get(term).copied().unwrap_or_default()
    }

    /// Number of terms.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are no terms.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The term as stored in an index: a long one is replaced by a prefix and a hash.
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
