//! Splits strings into words at white space, dashes, hyphens, quotation marks, and punctuation, as
//! defined by Unicode properties, and at NUL.

use icu_properties::props::{
    Dash, Hyphen, PatternSyntax, QuotationMark, TerminalPunctuation, WhiteSpace,
};
use icu_properties::{CodePointSetData, CodePointSetDataBorrowed};

use crate::Language;

const DELIMITERS: [CodePointSetDataBorrowed<'static>; 6] = [
    CodePointSetData::new::<WhiteSpace>(),
    CodePointSetData::new::<PatternSyntax>(),
    CodePointSetData::new::<Dash>(),
    CodePointSetData::new::<Hyphen>(),
    CodePointSetData::new::<QuotationMark>(),
    CodePointSetData::new::<TerminalPunctuation>(),
];

/// The only character that Unicode classifies both as a letter and as a delimiter.
pub(crate) const VERTICAL_TILDE: char = '\u{2e2f}';

pub(crate) fn has_delimiting_property(letter: char) -> bool {
    DELIMITERS.iter().any(|set| set.contains(letter))
}

fn is_delimiter(letter: char, language: Language) -> bool {
    match letter {
        '\'' => !language.keeps_apostrophes(),
        '_' => false,
        letter if letter.is_ascii() => {
            letter.is_ascii_punctuation()
                || matches!(letter, '\x0b' | '\0')
                || letter.is_ascii_whitespace()
        }
        // A fast test: letters are not delimiters, with one exception.
        letter if letter.is_alphabetic() && letter != VERTICAL_TILDE => false,
        letter => has_delimiting_property(letter),
    }
}

/// The words of a text, unchanged.
pub fn words(text: &str, language: Language) -> impl Iterator<Item = &str> {
    text.split(move |letter| is_delimiter(letter, language)).filter(|word| !word.is_empty())
}
