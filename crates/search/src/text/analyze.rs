//! Analyzers: the terms of a text, with their positions.

use std::collections::HashSet;

use tantivy::tokenizer::Token;

use super::language::{Language, Trim, is_english_stop_word};
use super::words::{between_spaces, letters, lower_case, standard_words};
use crate::definition::{AnalyzerName, AnalyzerRule, AutocompleteField, Grams};

/// The terms of strings that stand in the same field, one string after another, as if all were one:
/// a phrase can begin in one item of an array and end in the next one, as in the reference.
#[derive(Clone, Debug, Default)]
pub(crate) struct Terms {
    pub(crate) tokens: Vec<Token>,
    /// The position of the next string's first word.
    next: usize,
}

impl Terms {
    /// Adds the terms of a string.
    pub(crate) fn add(&mut self, analyzer: AnalyzerName, text: &str) {
        let first = self.next;
        for (count, word) in words(analyzer.rule(), text).into_iter().enumerate() {
            let position = first + count;
            self.next = position + 1;
            if let Some(term) = term(analyzer, word.1) {
                self.push(term, position, word);
            }
        }
    }

    /// Adds the parts of a string's words that `autocomplete` indexes.
    pub(crate) fn add_parts(&mut self, field: &AutocompleteField, text: &str) {
        let analyzer = field.analyzer.unwrap_or(AnalyzerName::STANDARD);
        let first = self.next;
        for (count, word) in words(analyzer.rule(), text).into_iter().enumerate() {
            let position = first + count;
            self.next = position + 1;
            let Some(term) = term(analyzer, word.1) else { continue };
            for part in parts(field, &term) {
                self.push(part, position, word);
            }
        }
    }

    /// Cuts the terms of a query to the longest parts that `autocomplete` indexes.
    pub(crate) fn cut(&mut self, field: &AutocompleteField) {
        for token in &mut self.tokens {
            let letters = token.text.chars().take(field.lengths.1);
            token.text = match field.folds_diacritics {
                true => letters.map(fold).collect(),
                false => letters.collect(),
            };
        }
    }

    /// Keeps each term once, for a field without frequencies: its length is the number of different
    /// terms.
    pub(crate) fn keep_once(&mut self) {
        let mut known = HashSet::new();
        self.tokens.retain(|token| known.insert(token.text.clone()));
    }

    fn push(&mut self, text: String, position: usize, (offset_from, word): (usize, &str)) {
        let offset_to = offset_from + word.len();
        self.tokens.push(Token { offset_from, offset_to, position, text, position_length: 1 });
    }
}

/// The words of a text, with their offsets, before they are changed.
fn words(rule: AnalyzerRule, text: &str) -> Vec<(usize, &str)> {
    let offset = |word: &str| word.as_ptr() as usize - text.as_ptr() as usize;
    let words: Vec<&str> = match rule {
        AnalyzerRule::Keyword | AnalyzerRule::Unsupported => vec![text],
        AnalyzerRule::Whitespace => between_spaces(text),
        AnalyzerRule::Simple | AnalyzerRule::Stop => letters(text),
        AnalyzerRule::Standard | AnalyzerRule::Language => standard_words(text),
    };
    words.into_iter().map(|word| (offset(word), word)).collect()
}

/// The term that a word is indexed as; `None` for a stop word.
fn term(analyzer: AnalyzerName, word: &str) -> Option<String> {
    match analyzer.rule() {
        AnalyzerRule::Keyword | AnalyzerRule::Whitespace | AnalyzerRule::Unsupported => {
            Some(word.to_owned())
        }
        AnalyzerRule::Standard | AnalyzerRule::Simple => Some(lower_case(word)),
        AnalyzerRule::Stop => Some(lower_case(word)).filter(|word| !is_english_stop_word(word)),
        AnalyzerRule::Language => {
            let Some(language) = Language::of(analyzer.as_str()) else {
                return Some(lower_case(word));
            };
            let word = language.lower_case(word);
            let word = trim(language.trim, &word);
            (!language.is_stop_word(word)).then(|| language.stem(word))
        }
    }
}

const APOSTROPHES: &[char] = &['\'', '\u{2019}', '\u{FF07}'];

fn trim(rule: Trim, word: &str) -> &str {
    match rule {
        Trim::Nothing => word,
        Trim::Possessive => {
            match word.strip_suffix('s').and_then(|w| w.strip_suffix(APOSTROPHES)) {
                Some(trimmed) => trimmed,
                None => word,
            }
        }
        Trim::Elision(articles) => match word.split_once(APOSTROPHES) {
            Some((article, rest)) if articles.contains(&article) => rest,
            _ => word,
        },
        Trim::Suffix => word.split(APOSTROPHES).next().unwrap_or(word),
    }
}

/// The parts of a term that `autocomplete` indexes.
fn parts(field: &AutocompleteField, term: &str) -> Vec<String> {
    let letters: Vec<char> = match field.folds_diacritics {
        true => term.chars().map(fold).collect(),
        false => term.chars().collect(),
    };
    let (least, most) = field.lengths;
    let count = letters.len();
    let part = |from: usize, to: usize| letters[from..to].iter().collect::<String>();
    let lengths = least..=most.min(count);
    match field.grams {
        Grams::Edge => lengths.map(|length| part(0, length)).collect(),
        Grams::RightEdge => lengths.map(|length| part(count - length, count)).collect(),
        Grams::Every => lengths
            .flat_map(|length| (0..=count - length).map(move |from| (from, from + length)))
            .map(|(from, to)| part(from, to))
            .collect(),
    }
}

/// A Latin letter without its accent.
fn fold(letter: char) -> char {
    const FROM: &str =
        "àáâãäåçèéêëìíîïñòóôõöøùúûüýÿāăąćĉċčďēĕėęěĝğġģĥĩīĭįĵķĺļľńņňōŏőŕŗřśŝşšţťũūŭůűųŵŷźżž";
    const TO: &str =
        "aaaaaaceeeeiiiinoooooouuuuyyaaaccccdeeeeegggghiiiijklllnnnooorrrssssttuuuuuuwyzzz";
    let at = FROM.chars().position(|other| other == letter);
    at.and_then(|at| TO.chars().nth(at)).unwrap_or(letter)
}
