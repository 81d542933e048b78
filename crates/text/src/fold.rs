//! Folding of letters: case, and diacritics.

use std::borrow::Cow;

use icu_casemap::{CaseMapper, CaseMapperBorrowed};
use icu_normalizer::{ComposingNormalizerBorrowed, DecomposingNormalizerBorrowed};
use icu_properties::props::Diacritic;
use icu_properties::{CodePointSetData, CodePointSetDataBorrowed};

/// The differences between letters that a search respects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sensitivity {
    /// Upper and lower case are different.
    pub case: bool,
    /// Letters with and without diacritics are different.
    pub diacritics: bool,
}

const CASES: CaseMapperBorrowed<'static> = CaseMapper::new();
const DIACRITICS: CodePointSetDataBorrowed<'static> = CodePointSetData::new::<Diacritic>();
const DECOMPOSED: DecomposingNormalizerBorrowed<'static> = DecomposingNormalizerBorrowed::new_nfd();
const COMPOSED: ComposingNormalizerBorrowed<'static> = ComposingNormalizerBorrowed::new_nfc();

/// How a language folds upper and lower case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CaseFolding {
    /// The folding that most languages share.
    Common,
    /// The folding of Turkish, which distinguishes the i with and without a dot.
    Turkic,
}

/// Folds the case.
pub(crate) fn without_case(text: &str, folding: CaseFolding) -> Cow<'_, str> {
    if text.is_ascii() && folding == CaseFolding::Common {
        return match text.bytes().any(|byte| byte.is_ascii_uppercase()) {
            true => Cow::Owned(text.to_ascii_lowercase()),
            false => Cow::Borrowed(text),
        };
    }
    let fold = |letter| match folding {
        CaseFolding::Turkic => CASES.simple_fold_turkic(letter),
        // The simple folding would leave it a capital letter.
        CaseFolding::Common if letter == '\u{130}' => 'i',
        CaseFolding::Common => CASES.simple_fold(letter),
    };
    Cow::Owned(text.chars().map(fold).collect())
}

/// Removes diacritics.
pub(crate) fn without_diacritics(text: &str) -> Cow<'_, str> {
    if text.is_ascii() {
        return Cow::Borrowed(text);
    }
    let is_plain = |text: &str| !text.chars().any(|letter| DIACRITICS.contains(letter));
    if DECOMPOSED.is_normalized(text) && is_plain(text) {
        return Cow::Borrowed(text);
    }
    let plain = DECOMPOSED.normalize(text);
    let plain: String = plain.chars().filter(|letter| !DIACRITICS.contains(*letter)).collect();
    match COMPOSED.is_normalized(&plain) {
        true => Cow::Owned(plain),
        false => Cow::Owned(COMPOSED.normalize(&plain).into_owned()),
    }
}

impl Sensitivity {
    /// Folds a text, so that texts compare as equal unless they differ in a respected way.
    pub(crate) fn folded(self, text: &str, folding: CaseFolding) -> Cow<'_, str> {
        let text = match self.case {
            true => Cow::Borrowed(text),
            false => without_case(text, folding),
        };
        if self.diacritics || text.is_ascii() {
            return text;
        }
        Cow::Owned(without_diacritics(&text).into_owned())
    }
}
