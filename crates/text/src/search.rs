//! A parsed search.
//!
//! Words in the search are alternatives; a word or a phrase with a `-` in front must not be there, a phrase in quotation
//! marks must, letter for letter. The words of phrases are terms, too, so that an index finds what may have them.

use std::collections::BTreeSet;

use mayfly_base::{Error, Result};
use mayfly_value::RawDoc;

use crate::spec::language;
use crate::{Analyzer, Language, Sensitivity, TextSpec};

/// Most terms that one search looks for, and most that it excludes.
const MAX_TERMS: usize = 10_000;
/// Most phrases of one search.
const MAX_PHRASES: usize = 100;

/// What a search says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SearchOptions {
    /// Words and phrases.
    pub search: String,
    /// The name of their language; nothing for that of the index.
    pub language: Option<String>,
    /// What it tells apart.
    pub sensitivity: Sensitivity,
}

/// A parsed search, for one index.
#[derive(Clone, Debug)]
pub struct TextSearch {
    language: Language,
    sensitivity: Sensitivity,
    /// As an index has them.
    terms: BTreeSet<String>,
    /// The same as documents must have them, where letters are told apart.
    sensitive_terms: BTreeSet<String>,
    negated_terms: BTreeSet<String>,
    phrases: Vec<Phrase>,
    negated_phrases: Vec<Phrase>,
}

/// A phrase.
#[derive(Clone, Debug)]
struct Phrase {
    written: String,
    /// Without what is not told apart.
    folded: String,
}

/// What a search is cut into.
#[derive(Default)]
struct Cut {
    words: String,
    negated_words: String,
    phrases: Vec<String>,
    negated_phrases: Vec<String>,
}

impl TextSearch {
    /// Reads a search for an index.
    ///
    /// # Errors
    /// 2 BadValue for a language that there is not, and for too many terms or phrases.
    pub fn parse(options: &SearchOptions, spec: &TextSpec) -> Result<TextSearch> {
        let language = match options.language.as_deref() {
            None | Some("") => spec.default_language(),
            Some(name) => language(name)?,
        };
        let cut = cut(&options.search);
        let plain = Analyzer::new(language);
        let phrase = |written: String| {
            let folded = options.sensitivity.folded(&written, language.is_turkish()).into_owned();
            Phrase { written, folded }
        };
        let sensitive = Analyzer::new(language).sensitive(options.sensitivity);
        let search = TextSearch {
            language,
            sensitivity: options.sensitivity,
            terms: plain.terms(&cut.words).collect(),
            sensitive_terms: sensitive.terms(&cut.words).collect(),
            negated_terms: sensitive.terms(&cut.negated_words).collect(),
            phrases: cut.phrases.into_iter().map(phrase).collect(),
            negated_phrases: cut.negated_phrases.into_iter().map(phrase).collect(),
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

    /// The terms that an index is asked for; whoever has none of them does not match.
    pub fn terms(&self) -> &BTreeSet<String> {
        &self.terms
    }

    /// The terms as they are shown.
    pub fn shown_terms(&self) -> &BTreeSet<String> {
        &self.sensitive_terms
    }

    /// Terms that must not be there.
    pub fn negated_terms(&self) -> &BTreeSet<String> {
        &self.negated_terms
    }

    /// Phrases that must be there.
    pub fn phrases(&self) -> impl Iterator<Item = &str> {
        self.phrases.iter().map(|phrase| phrase.written.as_str())
    }

    /// Phrases that must not be there.
    pub fn negated_phrases(&self) -> impl Iterator<Item = &str> {
        self.negated_phrases.iter().map(|phrase| phrase.written.as_str())
    }

    /// Whether the index alone says which documents match.
    pub fn is_exact(&self) -> bool {
        self.sensitivity == Sensitivity::default()
            && self.negated_terms.is_empty()
            && self.phrases.is_empty()
            && self.negated_phrases.is_empty()
    }

    /// Whether a document matches; what an index of this specification found has one of the terms already.
    ///
    /// # Errors
    /// Those of a document's languages.
    pub fn matches(&self, document: RawDoc<'_>, spec: &TextSpec, found: Found) -> Result<bool> {
        if found == Found::ByIndex && self.is_exact() {
            return Ok(true);
        }
        let mut seen = Seen {
            indexed: found == Found::ByIndex,
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
                self.look_at(field.text, &analyzers, &mut seen);
            }
            Ok(())
        })?;
        Ok(seen.indexed && seen.written && !seen.refused && seen.missing.is_empty())
    }

    fn look_at(&self, text: &str, analyzers: &(Analyzer, Analyzer), seen: &mut Seen<'_>) {
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
            let text = self.sensitivity.folded(text, self.language.is_turkish());
            seen.missing.retain(|phrase| !text.contains(&phrase.folded));
            let negated = |phrase: &Phrase| text.contains(&phrase.folded);
            seen.refused |= self.negated_phrases.iter().any(negated);
        }
    }

    /// As the index saw a document's words, and as the search looks at them: a stop word of the document's language may be
    /// a word of the search.
    fn analyzers(&self, language: Language) -> (Analyzer, Analyzer) {
        let own = Analyzer::new(language).sensitive(self.sensitivity).keeping_stop_words();
        (Analyzer::new(language), own)
    }
}

/// How somebody came upon a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// Under one of the search's terms.
    ByIndex,
    /// Otherwise.
    Otherwise,
}

/// What the strings of a document showed so far.
struct Seen<'s> {
    /// One of the terms as an index has it.
    indexed: bool,
    /// One of the terms as it is written.
    written: bool,
    /// Something that must not be there.
    refused: bool,
    missing: Vec<&'s Phrase>,
}

/// Cuts a search into words and phrases.
fn cut(search: &str) -> Cut {
    let mut cut = Cut::default();
    let (mut negated, mut behind_space) = (false, true);
    let mut phrase: Option<usize> = None;
    for (at, letter) in search.char_indices() {
        match letter {
            '"' => match phrase.take() {
                // What is negated is so up to the next white space.
                Some(start) => {
                    let found = search[start..at].to_owned();
                    let list = if negated { &mut cut.negated_phrases } else { &mut cut.phrases };
                    if !found.is_empty() {
                        list.push(found);
                    }
                }
                None => {
                    negated &= !behind_space;
                    phrase = Some(at + 1);
                }
            },
            '-' if phrase.is_none() && behind_space => negated = true,
            letter if letter.is_whitespace() => {}
            letter => {
                negated &= phrase.is_some() || !behind_space;
                match (negated, phrase) {
                    (true, Some(_)) => {}
                    (true, None) => cut.negated_words.push(letter),
                    (false, _) => cut.words.push(letter),
                }
                behind_space = false;
                continue;
            }
        }
        // A delimiter: the word is over.
        behind_space = letter.is_whitespace();
        for words in [&mut cut.words, &mut cut.negated_words] {
            if !words.is_empty() && !words.ends_with(' ') {
                words.push(' ');
            }
        }
    }
    cut
}
