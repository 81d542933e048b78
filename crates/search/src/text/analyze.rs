//! Analyzers: the terms of a text, with their positions.

use tantivy::tokenizer::Token;

use super::language::{Language, Trim, is_english_stop_word};
use super::words::{each_between_spaces, each_of_letters, each_standard_word, push_lower_case};
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
        let (first, start) = (self.next, text.as_ptr() as usize);
        self.next += each_term(analyzer, text, &mut String::new(), |count, word, term| {
            let offset_from = word.as_ptr() as usize - start;
            let offset_to = offset_from + word.len();
            let (text, position) = (term.to_owned(), first + count);
            self.tokens.push(Token { offset_from, offset_to, position, text, position_length: 1 });
        });
    }

    /// Adds the parts of a string's words that `autocomplete` indexes.
    pub(crate) fn add_parts(&mut self, field: &AutocompleteField, text: &str) {
        let (first, start) = (self.next, text.as_ptr() as usize);
        self.next += each_part(field, text, |count, word, text| {
            let offset_from = word.as_ptr() as usize - start;
            let offset_to = offset_from + word.len();
            let position = first + count;
            self.tokens.push(Token { offset_from, offset_to, position, text, position_length: 1 });
        });
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
}

/// Visits the terms of a text with the number of words before each, and its word in the text.
/// Returns the number of words. Each term is written to the buffer first.
pub(super) fn each_term<'t>(
    analyzer: AnalyzerName,
    text: &'t str,
    term: &mut String,
    mut visit: impl FnMut(usize, &'t str, &str),
) -> usize {
    let mut count = 0;
    each_word(analyzer.rule(), text, |word| {
        term.clear();
        if write_term(analyzer, word, term) {
            visit(count, word, term);
        }
        count += 1;
    });
    count
}

/// Visits the parts of the words of a text in the same way.
pub(super) fn each_part<'t>(
    field: &AutocompleteField,
    text: &'t str,
    mut visit: impl FnMut(usize, &'t str, String),
) -> usize {
    let analyzer = field.analyzer.unwrap_or(AnalyzerName::STANDARD);
    each_term(analyzer, text, &mut String::new(), |count, word, term| {
        parts(field, term).into_iter().for_each(|part| visit(count, word, part));
    })
}

/// Visits the words of a text, before they are changed.
fn each_word<'t>(rule: AnalyzerRule, text: &'t str, mut visit: impl FnMut(&'t str)) {
    match rule {
        AnalyzerRule::Keyword | AnalyzerRule::Unsupported => visit(text),
        AnalyzerRule::Whitespace => each_between_spaces(text, visit),
        AnalyzerRule::Simple | AnalyzerRule::Stop => each_of_letters(text, visit),
        AnalyzerRule::Standard | AnalyzerRule::Language => each_standard_word(text, visit),
    }
}

/// Appends the term that a word is indexed as; `false` for a stop word.
fn write_term(analyzer: AnalyzerName, word: &str, term: &mut String) -> bool {
    match analyzer.rule() {
        AnalyzerRule::Keyword | AnalyzerRule::Whitespace | AnalyzerRule::Unsupported => {
            term.push_str(word);
        }
        AnalyzerRule::Standard | AnalyzerRule::Simple => push_lower_case(word, term),
        AnalyzerRule::Stop => {
            push_lower_case(word, term);
            return !is_english_stop_word(term);
        }
        AnalyzerRule::Language => {
            let Some(language) = Language::of(analyzer.as_str()) else {
                push_lower_case(word, term);
                return true;
            };
            let word = language.lower_case(word);
            let word = trim(language.trim, &word);
            if language.is_stop_word(word) {
                return false;
            }
            term.push_str(&language.stem(word));
        }
    }
    true
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
