//! The languages of analyzers: a row for each stemmer and its list of stop words.
//!
//! The stemmers are those of Snowball, English has Porter's older one. The reference has lighter
//! stemmers of its own for German, French, Italian, Portuguese and Spanish.

use std::collections::HashSet;
use std::sync::OnceLock;

use frostem::{Algorithm, Stemmer};

use super::words::lower_case;

/// The stop words of `lucene.stop` and of `lucene.english`.
const ENGLISH_STOP_WORDS: &[&str] = &[
    "a", "an", "and", "are", "as", "at", "be", "but", "by", "for", "if", "in", "into", "is", "it",
    "no", "not", "of", "on", "or", "such", "that", "the", "their", "then", "there", "these",
    "they", "this", "to", "was", "will", "with",
];

/// What is removed from a word before it is stemmed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Trim {
    Nothing,
    /// The English possessive `'s`.
    Possessive,
    /// An article before an apostrophe.
    Elision(&'static [&'static str]),
    /// Everything from an apostrophe on.
    Suffix,
}

pub(super) struct Language {
    name: &'static str,
    /// The code of its list of stop words.
    stop_words: &'static str,
    pub(super) trim: Trim,
    stemmer: Algorithm,
}

const fn row(name: &'static str, stop_words: &'static str, stemmer: Algorithm) -> Language {
    Language { name, stop_words, trim: Trim::Nothing, stemmer }
}

const FRENCH: &[&str] =
    &["l", "m", "t", "qu", "n", "s", "j", "d", "c", "jusqu", "quoiqu", "lorsqu", "puisqu"];
const ITALIAN: &[&str] = &[
    "c", "l", "all", "dall", "dell", "nell", "sull", "coll", "pell", "gl", "agl", "dagl", "degl",
    "negl", "sugl", "un", "m", "t", "s", "v", "d",
];

const ROWS: &[Language] = &[
    row("lucene.arabic", "ar", Algorithm::Arabic),
    row("lucene.danish", "da", Algorithm::Danish),
    row("lucene.dutch", "nl", Algorithm::Dutch),
    Language { trim: Trim::Possessive, ..row("lucene.english", "", Algorithm::Porter) },
    row("lucene.finnish", "fi", Algorithm::Finnish),
    Language { trim: Trim::Elision(FRENCH), ..row("lucene.french", "fr", Algorithm::French) },
    row("lucene.german", "de", Algorithm::German),
    row("lucene.greek", "el", Algorithm::Greek),
    row("lucene.hungarian", "hu", Algorithm::Hungarian),
    Language { trim: Trim::Elision(ITALIAN), ..row("lucene.italian", "it", Algorithm::Italian) },
    row("lucene.norwegian", "no", Algorithm::Norwegian),
    row("lucene.portuguese", "pt", Algorithm::Portuguese),
    row("lucene.romanian", "ro", Algorithm::Romanian),
    row("lucene.russian", "ru", Algorithm::Russian),
    row("lucene.spanish", "es", Algorithm::Spanish),
    row("lucene.swedish", "sv", Algorithm::Swedish),
    Language { trim: Trim::Suffix, ..row("lucene.turkish", "tr", Algorithm::Turkish) },
];

impl Language {
    /// The language of an analyzer.
    pub(super) fn of(analyzer: &str) -> Option<&'static Language> {
        ROWS.iter().find(|row| row.name == analyzer)
    }

    /// A word in lower case. In Turkish, I and the dotted i are letters of their own.
    pub(super) fn lower_case(&self, word: &str) -> String {
        match self.trim {
            Trim::Suffix => lower_case(&word.replace('I', "ı").replace('İ', "i")),
            _ => lower_case(word),
        }
    }

    pub(super) fn is_stop_word(&self, word: &str) -> bool {
        static LISTS: [OnceLock<HashSet<&'static str>>; ROWS.len()] =
            [const { OnceLock::new() }; ROWS.len()];
        let place = ROWS.iter().position(|row| row.name == self.name).unwrap_or(0);
        let list = LISTS[place].get_or_init(|| match self.stop_words {
            "" => ENGLISH_STOP_WORDS.iter().copied().collect(),
            code => stop_words::lookup(code).unwrap_or_default().iter().copied().collect(),
        });
        list.contains(word)
    }

    pub(super) fn stem(&self, word: &str) -> String {
        let stemmer = Stemmer::new(self.stemmer);
        match self.stemmer {
            Algorithm::Porter if word.chars().count() <= 2 => word.to_owned(),
            Algorithm::Porter => match porter_ending(word) {
                Some(word) => stemmer.stem(&word).into_owned(),
                None => stemmer.stem(word).into_owned(),
            },
            _ => stemmer.stem(word).into_owned(),
        }
    }
}

/// Replaces the endings that Porter's own program, and so Lucene, has in addition to those of the
/// stemmer: `bli` becomes `ble` and `logi` becomes `log`. Earlier rules change the other endings of
/// words to `i`.
fn porter_ending(word: &str) -> Option<String> {
    const ENDINGS: [&str; 8] = ["ies", "ied", "ying", "yed", "ys", "is", "y", "i"];
    let start = ENDINGS.iter().find_map(|ending| word.strip_suffix(ending))?;
    let (stem, ending) = match start.strip_suffix("bl") {
        Some(stem) => (stem, "ble"),
        None => (start.strip_suffix("log")?, "log"),
    };
    has_measure(stem).then(|| format!("{stem}{ending}"))
}

/// Whether a vowel of the word is before a consonant: Porter's measure is not 0.
fn has_measure(stem: &str) -> bool {
    let mut is_after_vowel = false;
    let mut is_after_consonant = false;
    for letter in stem.chars() {
        let is_vowel = match letter {
            'a' | 'e' | 'i' | 'o' | 'u' => true,
            // A `y` after a consonant is a vowel.
            'y' => is_after_consonant,
            _ => false,
        };
        if is_after_vowel && !is_vowel {
            return true;
        }
        (is_after_vowel, is_after_consonant) = (is_vowel, !is_vowel);
    }
    false
}

/// Whether `lucene.stop` leaves a word out.
pub(super) fn is_english_stop_word(word: &str) -> bool {
    ENGLISH_STOP_WORDS.contains(&word)
}
