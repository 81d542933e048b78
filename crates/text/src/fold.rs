//! Letters that count as the same: upper and lower case, with and without diacritics.

use std::borrow::Cow;

use icu_casemap::{CaseMapper, CaseMapperBorrowed};
use icu_normalizer::{ComposingNormalizerBorrowed, DecomposingNormalizerBorrowed};
use icu_properties::props::Diacritic;
use icu_properties::{CodePointSetData, CodePointSetDataBorrowed};

/// What a search tells apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sensitivity {
    /// Upper and lower case.
    pub case: bool,
    /// Letters with and without diacritics.
    pub diacritics: bool,
}

const CASES: CaseMapperBorrowed<'static> = CaseMapper::new();
const DIACRITICS: CodePointSetDataBorrowed<'static> = CodePointSetData::new::<Diacritic>();
const DECOMPOSED: DecomposingNormalizerBorrowed<'static> = DecomposingNormalizerBorrowed::new_nfd();
const COMPOSED: ComposingNormalizerBorrowed<'static> = ComposingNormalizerBorrowed::new_nfc();

/// In one case; Turkish tells the i with and without a dot apart.
pub(crate) fn without_case(text: &str, turkish: bool) -> Cow<'_, str> {
    if text.is_ascii() && !turkish {
        return match text.bytes().any(|byte| byte.is_ascii_uppercase()) {
            true => Cow::Owned(text.to_ascii_lowercase()),
            false => Cow::Borrowed(text),
        };
    }
    let fold = |letter| match turkish {
        true => CASES.simple_fold_turkic(letter),
        // Without its dot it would stay a capital letter.
        false if letter == '\u{130}' => 'i',
        false => CASES.simple_fold(letter),
    };
    Cow::Owned(text.chars().map(fold).collect())
}

/// Letters without their diacritics.
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
    /// A text in which everything that is not told apart is the same.
    pub(crate) fn folded(self, text: &str, turkish: bool) -> Cow<'_, str> {
        let text = match self.case {
            true => Cow::Borrowed(text),
            false => without_case(text, turkish),
        };
        if self.diacritics || text.is_ascii() {
            return text;
        }
        Cow::Owned(without_diacritics(&text).into_owned())
    }
}
