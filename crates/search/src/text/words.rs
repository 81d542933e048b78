//! The words of a text as Lucene's tokenizers find them, before they are changed.
//!
//! The standard tokenizer follows the word boundaries of Unicode, with rules of its own: letters of
//! the scripts of South East Asia, which have no spaces between words, stay together; pictographs
//! are words; marks and numerals without a decimal digit are none.

use unicode_properties::{
    GeneralCategory, GeneralCategoryGroup, UnicodeEmoji, UnicodeGeneralCategory,
};
use unicode_segmentation::UnicodeSegmentation;

/// Longest word, in units of UTF-16; a longer one is cut into several.
const MAX_WORD: usize = 255;

/// The letters of South East Asia whose words are not found by their characters (the class `SA` of
/// the line breaking of Unicode), as ranges.
const WITHOUT_SPACES: &[(char, char)] = &[
    ('\u{0E01}', '\u{0E3A}'),
    ('\u{0E40}', '\u{0E4E}'),
    ('\u{0E81}', '\u{0ECE}'),
    ('\u{0EDC}', '\u{0EDF}'),
    ('\u{1000}', '\u{103F}'),
    ('\u{1050}', '\u{108F}'),
    ('\u{109A}', '\u{109F}'),
    ('\u{1780}', '\u{17D3}'),
    ('\u{17D7}', '\u{17D7}'),
    ('\u{17DC}', '\u{17DD}'),
    ('\u{1950}', '\u{1974}'),
    ('\u{1980}', '\u{19C9}'),
    ('\u{19DE}', '\u{19DF}'),
    ('\u{1A20}', '\u{1A7C}'),
    ('\u{1AA0}', '\u{1AAD}'),
    ('\u{A9E0}', '\u{A9EF}'),
    ('\u{A9FA}', '\u{A9FE}'),
    ('\u{AA60}', '\u{AAC2}'),
    ('\u{AADB}', '\u{AADF}'),
    ('\u{11700}', '\u{1172B}'),
];

/// Visits the words of the standard tokenizer.
pub(super) fn each_standard_word<'t>(text: &'t str, visit: impl FnMut(&'t str)) {
    if text.is_ascii() {
        return cut(text.unicode_words(), Cut::Before, visit);
    }
    let mut words: Vec<(usize, usize)> = Vec::new();
    // The end of the last part without spaces.
    let mut open = None;
    for (at, part) in text.split_word_bound_indices() {
        let end = at + part.len();
        if part.starts_with(is_without_spaces) {
            match words.last_mut() {
                Some(word) if open == Some(at) => word.1 = end,
                _ => words.push((at, end)),
            }
            open = Some(end);
        } else if is_word(part) {
            words.push((at, end));
        }
    }
    cut(words.into_iter().map(|(from, to)| &text[from..to]), Cut::Before, visit);
}

/// Visits the words between white space.
pub(super) fn each_between_spaces<'t>(text: &'t str, visit: impl FnMut(&'t str)) {
    cut(text.split(is_space).filter(|word| !word.is_empty()), Cut::After, visit);
}

/// Visits the longest sequences of letters.
pub(super) fn each_of_letters<'t>(text: &'t str, visit: impl FnMut(&'t str)) {
    let words = text.split(|letter| !is_letter(letter)).filter(|word| !word.is_empty());
    cut(words, Cut::After, visit);
}

/// Whether the character that reaches the greatest length belongs to the part before, if it is one
/// of two units that passes it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cut {
    Before,
    After,
}

/// Cuts words that are too long.
fn cut<'t>(words: impl Iterator<Item = &'t str>, rule: Cut, mut visit: impl FnMut(&'t str)) {
    for word in words {
        // No character has more units of UTF-16 than bytes.
        if word.len() < MAX_WORD {
            visit(word);
            continue;
        }
        let (mut from, mut length) = (0, 0);
        for (at, letter) in word.char_indices() {
            let units = letter.len_utf16();
            let is_full = match rule {
                Cut::Before => length + units > MAX_WORD,
                Cut::After => length >= MAX_WORD,
            };
            if is_full {
                visit(&word[from..at]);
                (from, length) = (at, 0);
            }
            length += units;
        }
        visit(&word[from..]);
    }
}

fn is_without_spaces(letter: char) -> bool {
    letter >= '\u{0E01}'
        && WITHOUT_SPACES.iter().any(|(first, last)| (*first..=*last).contains(&letter))
}

/// Whether a part between two boundaries is a word.
fn is_word(part: &str) -> bool {
    part.chars().any(is_letter_or_digit) || is_pictograph(part)
}

fn is_letter_or_digit(letter: char) -> bool {
    if letter.is_ascii() {
        return letter.is_ascii_alphanumeric();
    }
    match letter.general_category_group() {
        GeneralCategoryGroup::Mark => false,
        GeneralCategoryGroup::Number if !letter.is_alphabetic() => {
            letter.general_category() == GeneralCategory::DecimalNumber
        }
        _ => letter.is_alphanumeric(),
    }
}

/// Whether a part is a pictograph, with its marks, or a flag of two letters.
fn is_pictograph(part: &str) -> bool {
    let is_flag = |letter: char| ('\u{1F1E6}'..='\u{1F1FF}').contains(&letter);
    let mut letters = part.chars();
    match letters.next() {
        Some(first) if is_flag(first) => letters.any(is_flag),
        Some(first) => !first.is_ascii() && first.is_emoji_char(),
        None => false,
    }
}

/// White space of Java: not the spaces at which no line is broken.
fn is_space(letter: char) -> bool {
    match letter {
        '\u{1C}'..='\u{1F}' => true,
        '\u{85}' | '\u{A0}' | '\u{2007}' | '\u{202F}' => false,
        letter => letter.is_whitespace(),
    }
}

fn is_letter(letter: char) -> bool {
    match letter.is_ascii() {
        true => letter.is_ascii_alphabetic(),
        false => letter.general_category_group() == GeneralCategoryGroup::Letter,
    }
}

/// The lower case of a text, one character for each, as Lucene's filter makes it. The last sigma of
/// a word is like others.
pub(crate) fn lower_case(text: &str) -> String {
    let mut lower = String::with_capacity(text.len());
    push_lower_case(text, &mut lower);
    lower
}

/// Appends the lower case of a text.
pub(super) fn push_lower_case(text: &str, out: &mut String) {
    if text.is_ascii() {
        let start = out.len();
        out.push_str(text);
        out[start..].make_ascii_lowercase();
        return;
    }
    let lower = |letter: char| {
        let mut lower = letter.to_lowercase();
        // Only the capital I with a dot has a lower case of two characters, i and the dot.
        lower.next().unwrap_or(letter)
    };
    out.extend(text.chars().map(lower));
}
