//! The names of analyzers. A row says how the analyzer finds words, and whether this server has
//! it.

use mayfly_base::Result;

use crate::fault::FieldPath;

/// An analyzer that this server has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AnalyzerName {
    row: u8,
}

/// The way in which an analyzer finds words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnalyzerRule {
    /// Words by the rules of Unicode, in lower case.
    Standard,
    /// Runs of letters, in lower case.
    Simple,
    /// Runs of characters that are not white space.
    Whitespace,
    /// The whole text.
    Keyword,
    /// Runs of letters in lower case, without the English stop words.
    Stop,
    /// The words of a language, with its stop words and its stemmer.
    Language,
    /// A name of the reference that this server does not have.
    Unsupported,
}

use AnalyzerRule::{Keyword, Language, Simple, Standard, Stop, Unsupported, Whitespace};

const ROWS: &[(&str, AnalyzerRule)] = &[
    ("lucene.standard", Standard),
    ("lucene.simple", Simple),
    ("lucene.whitespace", Whitespace),
    ("lucene.keyword", Keyword),
    ("lucene.stop", Stop),
    ("lucene.arabic", Language),
    ("lucene.armenian", Unsupported),
    ("lucene.basque", Unsupported),
    ("lucene.bengali", Unsupported),
    ("lucene.brazilian", Unsupported),
    ("lucene.bulgarian", Unsupported),
    ("lucene.catalan", Unsupported),
    ("lucene.chinese", Unsupported),
    ("lucene.cjk", Unsupported),
    ("lucene.czech", Unsupported),
    ("lucene.danish", Language),
    ("lucene.dutch", Language),
    ("lucene.english", Language),
    ("lucene.finnish", Language),
    ("lucene.french", Language),
    ("lucene.galician", Unsupported),
    ("lucene.german", Language),
    ("lucene.greek", Language),
    ("lucene.hindi", Unsupported),
    ("lucene.hungarian", Language),
    ("lucene.indonesian", Unsupported),
    ("lucene.irish", Unsupported),
    ("lucene.italian", Language),
    ("lucene.japanese", Unsupported),
    ("lucene.korean", Unsupported),
    ("lucene.kuromoji", Unsupported),
    ("lucene.latvian", Unsupported),
    ("lucene.lithuanian", Unsupported),
    ("lucene.morfologik", Unsupported),
    ("lucene.nori", Unsupported),
    ("lucene.norwegian", Language),
    ("lucene.persian", Unsupported),
    ("lucene.polish", Unsupported),
    ("lucene.portuguese", Language),
    ("lucene.romanian", Language),
    ("lucene.russian", Language),
    ("lucene.smartcn", Unsupported),
    ("lucene.sorani", Unsupported),
    ("lucene.spanish", Language),
    ("lucene.swedish", Language),
    ("lucene.thai", Unsupported),
    ("lucene.turkish", Language),
    ("lucene.ukrainian", Unsupported),
];

impl AnalyzerName {
    /// Whether all terms are in lower case.
    pub(crate) fn makes_lower_case(self) -> bool {
        !matches!(self.rule(), Keyword | Whitespace | Unsupported)
    }

    /// The analyzer of fields that name none.
    pub const STANDARD: AnalyzerName = AnalyzerName { row: 0 };

    /// The name as definitions contain it.
    pub fn as_str(self) -> &'static str {
        ROWS[self.row as usize].0
    }

    /// The way in which it finds words.
    pub fn rule(self) -> AnalyzerRule {
        ROWS[self.row as usize].1
    }

    /// The analyzer with this name.
    ///
    /// # Errors
    /// Code 8 for a name that does not exist or that this server does not have.
    pub(crate) fn find(path: &FieldPath, name: &str) -> Result<AnalyzerName> {
        match ROWS.iter().position(|row| row.0 == name) {
            Some(row) if ROWS[row].1 == Unsupported => {
                Err(path.not_supported(&format!("the analyzer \"{name}\"")))
            }
            Some(row) => Ok(AnalyzerName { row: row as u8 }),
            None => Err(path.refuse(format_args!("references the unknown analyzer \"{name}\""))),
        }
    }
}
