//! Converts words to terms.

use std::borrow::Cow;

use rust_stemmers::Stemmer;

use crate::fold::{without_case, without_diacritics};
use crate::stop_words::stop_words;
use crate::{Language, Sensitivity, words};

/// Longer words are not stemmed: they are not words of a language.
const MAX_STEMMED_BYTES: usize = 256;

/// Converts the words of one language to terms.
pub struct Analyzer {
    language: Language,
    stemmer: Option<Stemmer>,
    sensitivity: Sensitivity,
    keeps_stop_words: bool,
}

impl Analyzer {
    /// The analyzer of indexes: case and diacritics are ignored, stop words are omitted.
    pub fn new(language: Language) -> Analyzer {
        let stemmer = language.stemmer().map(Stemmer::create);
        let sensitivity = Sensitivity::default();
        Analyzer { language, stemmer, sensitivity, keeps_stop_words: false }
    }

    /// The same with case-sensitive or diacritic-sensitive terms.
    #[must_use]
    pub fn sensitive(self, sensitivity: Sensitivity) -> Analyzer {
        Analyzer { sensitivity, ..self }
    }

    /// The same with stop words.
    #[must_use]
    pub fn keeping_stop_words(self) -> Analyzer {
        Analyzer { keeps_stop_words: true, ..self }
    }

    /// The language of the words.
    pub fn language(&self) -> Language {
        self.language
    }

    /// The terms of a text in their order, including repetitions.
    pub fn terms<'a>(&'a self, text: &'a str) -> impl Iterator<Item = String> + 'a {
        words(text, self.language).filter_map(|word| self.term(word))
    }

    /// The term of a word; `None` for a stop word.
    pub(crate) fn term(&self, word: &str) -> Option<String> {
        let lower = without_case(word, self.language.case_folding());
        if !self.keeps_stop_words && stop_words(self.language).contains(&*lower) {
            return None;
        }
        let word = if self.sensitivity.case { Cow::Borrowed(word) } else { lower };
        let stem = match &self.stemmer {
            Some(stemmer) if word.len() <= MAX_STEMMED_BYTES => stemmer.stem(&word),
            _ => Cow::Borrowed(&*word),
        };
        let term = match self.sensitivity.diacritics {
            true => stem.into_owned(),
            false => match without_diacritics(&stem) {
                Cow::Borrowed(_) => stem.into_owned(),
                Cow::Owned(plain) => plain,
            },
        };
        (!term.is_empty()).then_some(term)
    }
}
