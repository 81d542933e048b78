//! Stop words: words that are too frequent to be searched for.
//!
//! The English list was made for words that are split at apostrophes. Here they are not, so the
//! fragments are removed and missing contractions are added.

use std::collections::HashSet;
use std::sync::OnceLock;

use crate::language::{COUNT, Language};

/// Entries of the English list that are fragments of contractions, or useful in searches.
const NO_ENGLISH_STOP_WORDS: &[&str] = &[
    "ain", "aren", "can", "couldn", "d", "didn", "doesn", "don", "hadn", "hasn", "haven", "isn",
    "just", "ll", "m", "ma", "mightn", "mustn", "needn", "now", "o", "re", "s", "shan", "shouldn",
    "t", "ve", "wasn", "weren", "will", "won", "wouldn", "y",
];

/// Contractions and words missing in the English list.
const MORE_ENGLISH_STOP_WORDS: &[&str] = &[
    "can't", "cannot", "could", "here's", "how's", "i'd", "i'll", "i'm", "i've", "let's", "ought",
    "that's", "there's", "what's", "when's", "where's", "who's", "why's", "would",
];

/// The stop words of a language, in lower case.
pub(crate) fn stop_words(language: Language) -> &'static HashSet<&'static str> {
    static LISTS: [OnceLock<HashSet<&'static str>>; COUNT] = [const { OnceLock::new() }; COUNT];
    LISTS[language.place()].get_or_init(|| {
        let list = stop_words::lookup(language.stop_words_code()).unwrap_or_default();
        let mut words: HashSet<&'static str> = list.iter().copied().collect();
        if language == Language::ENGLISH {
            words.retain(|word| !NO_ENGLISH_STOP_WORDS.contains(word));
            words.extend(MORE_ENGLISH_STOP_WORDS);
        }
        words
    })
}
