//! The specification of a text index: fields with weights, languages.

use std::collections::BTreeMap;

use mayfly_base::{Error, Result};
use mayfly_value::{Number, RawDoc, RawValue};

use crate::fields::visit_fields;
use crate::{Analyzer, Language, TermScores, TextField};

/// The name for all fields in the weights.
pub(crate) const WILDCARD: &str = "$**";

/// The parsed specification of a text index.
#[derive(Clone, Debug, PartialEq)]
pub struct TextSpec {
    /// Weights by path.
    pub(crate) weights: BTreeMap<String, f64>,
    /// Whether all strings are indexed.
    pub(crate) wildcard: bool,
    pub(crate) default_language: Language,
    /// The field of a document with the name of its language.
    pub(crate) language_override: String,
    /// Key fields before the terms.
    before: Vec<String>,
    /// Key fields after the terms.
    after: Vec<String>,
    version: i64,
}

/// The first version of text indexes whose searches ignore diacritics.
const IGNORES_DIACRITICS: i64 = 3;

impl TextSpec {
    /// Parses a stored specification: `{ key: { a: 1, _fts: "text", _ftsx: 1 }, weights: { ... },
    /// ... }`.
    ///
    /// # Errors
    /// 2 BadValue for an unknown language.
    pub fn parse(index: RawDoc<'_>) -> Result<TextSpec> {
        let document = |name: &str| index.get(name).and_then(RawValue::as_document);
        let text = |name: &str| match index.get(name) {
            Some(RawValue::String(text)) => Some(text),
            _ => None,
        };
        let (mut weights, mut wildcard) = (BTreeMap::new(), false);
        for weight in document("weights").unwrap_or(RawDoc::EMPTY) {
            match weight.name() {
                WILDCARD => wildcard = true,
                path => {
                    let number = Number::from_value(weight.value()).map_or(1.0, Number::to_f64);
                    weights.insert(path.to_owned(), number);
                }
            }
        }
        let (mut before, mut after, mut after_terms) = (Vec::new(), Vec::new(), false);
        for field in document("key").unwrap_or(RawDoc::EMPTY) {
            match field.name() {
                "_fts" | "_ftsx" => after_terms = true,
                path if after_terms => after.push(path.to_owned()),
                path => before.push(path.to_owned()),
            }
        }
        Ok(TextSpec {
            weights,
            wildcard,
            default_language: language(text("default_language").unwrap_or("english"))?,
            language_override: text("language_override").unwrap_or("language").to_owned(),
            before,
            after,
            version: index
                .get("textIndexVersion")
                .and_then(Number::from_value)
                .and_then(Number::to_i64_truncated)
                .unwrap_or(IGNORES_DIACRITICS),
        })
    }

    /// The version of the index. All versions have the same entries.
    pub fn version(&self) -> i64 {
        self.version
    }

    /// Whether every search distinguishes letters with and without diacritics.
    pub(crate) fn keeps_diacritics(&self) -> bool {
        self.version < IGNORES_DIACRITICS
    }

    /// The language of searches and documents that specify none.
    pub fn default_language(&self) -> Language {
        self.default_language
    }

    /// The key fields before the terms, which a search must restrict by equality.
    pub fn before(&self) -> &[String] {
        &self.before
    }

    /// The key fields after the terms.
    pub fn after(&self) -> &[String] {
        &self.after
    }

    /// Passes the indexed strings of a document to `see`.
    ///
    /// # Errors
    /// 17261, 17262 for a language that is not a string or unknown, errors of `see`.
    pub fn visit<'d>(
        &self,
        document: RawDoc<'d>,
        see: &mut dyn FnMut(TextField<'d>) -> Result<()>,
    ) -> Result<()> {
        visit_fields(self, document, see)
    }

    /// Computes the scores of a document's terms.
    ///
    /// # Errors
    /// Errors of [`TextSpec::visit`].
    pub fn score(&self, document: RawDoc<'_>) -> Result<TermScores> {
        let mut scores = TermScores::default();
        let mut analyzer = Analyzer::new(self.default_language);
        self.visit(document, &mut |field| {
            if analyzer.language() != field.language {
                analyzer = Analyzer::new(field.language);
            }
            scores.add(&analyzer, field.text, field.weight);
            Ok(())
        })?;
        Ok(scores)
    }
}

/// The language with this name.
///
/// # Errors
/// 2 BadValue for an unknown name.
pub(crate) fn language(name: &str) -> Result<Language> {
    Language::find(name).ok_or_else(|| {
        Error::bad_value(format!("unsupported language: \"{name}\" for text index version 3"))
    })
}
