//! A parsed text search.
//!
//! Words are alternatives. A word or a phrase after `-` must not occur; a phrase in quotation marks
//! must occur literally. The words of phrases are terms too, so that an index finds candidates for
//! them.

use std::collections::BTreeSet;

use mayfly_base::{Error, Result};
use mayfly_value::RawDoc;

use crate::spec::language;
use crate::{Analyzer, Language, Sensitivity, TextSpec};

/// Most terms of a search, and most excluded terms.
const MAX_TERMS: usize = 10_000;
/// Most phrases of one search.
const MAX_PHRASES: usize = 100;

/// The operands of `$text`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SearchOptions {
    /// The words and phrases to search for.
    pub search: String,
    /// The name of their language; `None` for the default of the index.
    pub language: Option<String>,
    /// Case and diacritic sensitivity.
    pub sensitivity: Sensitivity,
}

/// A parsed search for one index.
#[derive(Clone, Debug)]
pub struct TextSearch {
    language: Language,
    sensitivity: Sensitivity,
    /// The terms as stored in the index.
    terms: BTreeSet<String>,
    /// The terms as documents must contain them, with the sensitivity of the search.
    sensitive_terms: BTreeSet<String>,
    negated_terms: BTreeSet<String>,
    phrases: Vec<Phrase>,
    negated_phrases: Vec<Phrase>,
}

/// A phrase of the search.
#[derive(Clone, Debug)]
struct Phrase {
    written: String,
    /// The text folded by the search's sensitivity.
    folded: String,
}

/// The words and phrases of a search.
#[derive(Default)]
struct SplitSearch {
    words: String,
    negated_words: String,
    phrases: Vec<String>,
    negated_phrases: Vec<String>,
}

impl TextSearch {
    /// Parses a search for an index.
    ///
    /// # Errors
    /// 2 BadValue for an unknown language, and for too many terms or phrases.
    pub fn parse(options: &SearchOptions, spec: &TextSpec) -> Result<TextSearch> {
        let language = match options.language.as_deref() {
            None | Some("") => spec.default_language(),
            Some(name) => language(name)?,
        };
        let mut sensitivity = options.sensitivity;
        sensitivity.diacritics |= spec.keeps_diacritics();
        let split = split_search(&options.search);
        let plain = Analyzer::new(language);
        let phrase = |written: String| {
            let folded = sensitivity.folded(&written, language.case_folding()).into_owned();
            Phrase { written, folded }
        };
        let sensitive = Analyzer::new(language).sensitive(sensitivity);
        let search = TextSearch {
            language,
            sensitivity,
            terms: plain.terms(&split.words).collect(),
            sensitive_terms: sensitive.terms(&split.words).collect(),
            negated_terms: sensitive.terms(&split.negated_words).collect(),
            phrases: split.phrases.into_iter().map(phrase).collect(),
            negated_phrases: split.negated_phrases.into_iter().map(phrase).collect(),
        };
        search.check_size().map(|()| search)
    }

    fn check_size(&self) -> Result<()> {
        let phrases = self.phrases.len() + self.negated_phrases.len();
        if self.terms.len().max(self.negated_terms.len()) > MAX_TERMS {
            let text = format!("a text search may have at most {MAX_TERMS} terms");
            return Err(Error::bad_value(text));
        }
        if phrases > MAX_PHRASES {
            let text = format!("a text search may have at most {MAX_PHRASES} phrases");
            return Err(Error::bad_value(text));
        }
        Ok(())
    }

    /// The terms to look up in the index; a document without any of them does not match.
    pub fn terms(&self) -> &BTreeSet<String> {
        &self.terms
    }

    /// The terms for explain output.
    pub fn explain_terms(&self) -> &BTreeSet<String> {
        &self.sensitive_terms
    }

    /// The excluded terms.
    pub fn negated_terms(&self) -> &BTreeSet<String> {
        &self.negated_terms
    }

    /// The required phrases.
    pub fn phrases(&self) -> impl Iterator<Item = &str> {
        self.phrases.iter().map(|phrase| phrase.written.as_str())
    }

    /// The excluded phrases.
    pub fn negated_phrases(&self) -> impl Iterator<Item = &str> {
        self.negated_phrases.iter().map(|phrase| phrase.written.as_str())
    }

    /// Whether the index alone determines the matching documents.
    pub fn is_exact(&self) -> bool {
        self.sensitivity == Sensitivity::default()
            && self.negated_terms.is_empty()
            && self.phrases.is_empty()
            && self.negated_phrases.is_empty()
    }

    /// Whether a document matches. One found by an index contains one of the terms already.
    ///
    /// # Errors
    /// Errors of the document's languages.
    pub fn matches(&self, document: RawDoc<'_>, spec: &TextSpec, found: FoundBy) -> Result<bool> {
        if found == FoundBy::ByIndex && self.is_exact() {
            return Ok(true);
        }
        let mut seen = MatchState {
            indexed: found == FoundBy::ByIndex,
            written: self.sensitivity == Sensitivity::default(),
            refused: false,
            missing: self.phrases.iter().collect(),
        };
        let mut analyzers = self.analyzers(spec.default_language());
        spec.visit(document, &mut |field| {
            if !seen.refused {
                if analyzers.0.language() != field.language {
                    analyzers = self.analyzers(field.language);
                }
                self.match_string(field.text, &analyzers, &mut seen);
            }
            Ok(())
        })?;
        Ok(seen.indexed && seen.written && !seen.refused && seen.missing.is_empty())
    }

    fn match_string(
        &self,
        text: &str,
        analyzers: &(Analyzer, Analyzer),
        seen: &mut MatchState<'_>,
    ) {
        if !seen.indexed {
            seen.indexed = analyzers.0.terms(text).any(|term| self.terms.contains(&term));
        }
        if !seen.written || !self.negated_terms.is_empty() {
            for term in analyzers.1.terms(text) {
                seen.written |= self.sensitive_terms.contains(&term);
                seen.refused |= self.negated_terms.contains(&term);
            }
        }
        if !seen.missing.is_empty() || !self.negated_phrases.is_empty() {
            let text = self.sensitivity.folded(text, self.language.case_folding());
            seen.missing.retain(|phrase| !text.contains(&phrase.folded));
            let negated = |phrase: &Phrase| text.contains(&phrase.folded);
            seen.refused |= self.negated_phrases.iter().any(negated);
        }
    }

    /// Two analyzers: that of the index, and that of the search, which keeps stop words: a stop
    /// word of the document's language may be a word of the search.
    fn analyzers(&self, language: Language) -> (Analyzer, Analyzer) {
        let own = Analyzer::new(language).sensitive(self.sensitivity).keeping_stop_words();
        (Analyzer::new(language), own)
    }
}

/// How a document was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FoundBy {
    /// By an index entry of one of the search's terms.
    ByIndex,
    /// By any other plan.
    Otherwise,
}

/// The state of matching the strings of a document.
struct MatchState<'s> {
    /// A term in its indexed form occurred.
    indexed: bool,
    /// A term in its sensitive form occurred.
    written: bool,
    /// An excluded term or phrase occurred.
    refused: bool,
    missing: Vec<&'s Phrase>,
}

/// Splits a search into words and phrases.
fn split_search(search: &str) -> SplitSearch {
    let mut split = SplitSearch::default();
    let (mut negated, mut after_space) = (false, true);
    let mut phrase: Option<usize> = None;
    for (at, letter) in search.char_indices() {
        match letter {
            '"' => match phrase.take() {
                // A negation extends to the next white space.
                Some(start) => {
                    let found = search[start..at].to_owned();
                    let list =
                        if negated { &mut split.negated_phrases } else { &mut split.phrases };
                    if !found.is_empty() {
                        list.push(found);
                    }
                }
                None => {
                    negated &= !after_space;
                    phrase = Some(at + 1);
                }
            },
            '-' if phrase.is_none() && after_space => negated = true,
            letter if letter.is_whitespace() => {}
            letter => {
                negated &= phrase.is_some() || !after_space;
                match (negated, phrase) {
                    (true, Some(_)) => {}
                    (true, None) => split.negated_words.push(letter),
                    (false, _) => split.words.push(letter),
                }
                after_space = false;
                continue;
            }
        }
        // A delimiter ends the word.
        after_space = letter.is_whitespace();
        for words in [&mut split.words, &mut split.negated_words] {
            if !words.is_empty() && !words.ends_with(' ') {
                words.push(' ');
            }
        }
    }
    split
}
