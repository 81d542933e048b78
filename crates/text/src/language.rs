//! The languages of text search, by their long and two-letter names.

use rust_stemmers::Algorithm;

use crate::fold::CaseFolding;

/// A language, or `none`: no stemming, no stop words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Language {
    place: u8,
}

struct Row {
    name: &'static str,
    code: &'static str,
    /// The code of its list of stop words.
    stop_words: &'static str,
    stemmer: Option<Algorithm>,
}

const fn row(name: &'static str, code: &'static str, stemmer: Algorithm) -> Row {
    Row { name, code, stop_words: code, stemmer: Some(stemmer) }
}

const ROWS: &[Row] = &[
    Row { name: "none", code: "none", stop_words: "", stemmer: None },
    row("danish", "da", Algorithm::Danish),
    row("dutch", "nl", Algorithm::Dutch),
    row("english", "en", Algorithm::English),
    row("finnish", "fi", Algorithm::Finnish),
    row("french", "fr", Algorithm::French),
    row("german", "de", Algorithm::German),
    row("hungarian", "hu", Algorithm::Hungarian),
    row("italian", "it", Algorithm::Italian),
    Row { stop_words: "no", ..row("norwegian", "nb", Algorithm::Norwegian) },
    row("portuguese", "pt", Algorithm::Portuguese),
    row("romanian", "ro", Algorithm::Romanian),
    row("russian", "ru", Algorithm::Russian),
    row("spanish", "es", Algorithm::Spanish),
    row("swedish", "sv", Algorithm::Swedish),
    row("turkish", "tr", Algorithm::Turkish),
];

/// Number of languages.
pub(crate) const COUNT: usize = ROWS.len();

impl Language {
    /// The language `none`: no stemming, no stop words.
    pub const NONE: Language = Language { place: 0 };

    /// The default language.
    pub const ENGLISH: Language = Language { place: 3 };

    /// The language with this name or code, in any case.
    pub fn find(name: &str) -> Option<Language> {
        let named =
            |row: &Row| row.name.eq_ignore_ascii_case(name) || row.code.eq_ignore_ascii_case(name);
        let place = ROWS.iter().position(named)?;
        Some(Language { place: place as u8 })
    }

    /// All languages in the order of their table, each once.
    pub fn all() -> impl Iterator<Item = Language> {
        (0..COUNT as u8).map(|place| Language { place })
    }

    fn row(self) -> &'static Row {
        &ROWS[usize::from(self.place)]
    }

    /// The long name.
    pub fn name(self) -> &'static str {
        self.row().name
    }

    pub(crate) fn place(self) -> usize {
        usize::from(self.place)
    }

    pub(crate) fn stop_words_code(self) -> &'static str {
        self.row().stop_words
    }

    pub(crate) fn stemmer(self) -> Option<Algorithm> {
        self.row().stemmer
    }

    /// Whether apostrophes are part of words, as in English.
    pub(crate) fn keeps_apostrophes(self) -> bool {
        self == Language::ENGLISH
    }

    pub(crate) fn case_folding(self) -> CaseFolding {
        match self.code() {
            "tr" => CaseFolding::Turkic,
            _ => CaseFolding::Common,
        }
    }

    fn code(self) -> &'static str {
        self.row().code
    }
}
