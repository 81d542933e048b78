//! Collations: the order of strings by the rules of a language. Other types, and field names,
//! compare as without a collation.
//!
//! A [`Collation`] compares strings ([`crate::compare::compare_values_in`]) and derives keys from
//! them ([`crate::keys::append_value_in`]): bytes with the same order, equal for strings that
//! compare as equal. No collation (`locale: "simple"`) is the order of bytes.
//!
//! Keys are stored in indexes. Another version of the library's data may derive other keys, so its
//! version is pinned in the lock file, and a change of it needs a new format. Text is always
//! normalized before it is compared; `normalization` is stored and returned but has no effect.
//! Backwards accents exist only for languages without rules of their own.

mod locales;
mod parse;

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use icu_collator::options::{AlternateHandling, CaseLevel, CollatorOptions, MaxVariable, Strength};
use icu_collator::preferences::{CollationCaseFirst, CollationNumericOrdering};
use icu_collator::{CollatorBorrowed, CollatorPreferences};
use icu_locale_core::Locale;
use mayfly_base::{Error, Result, limits};

use crate::{DocBuf, DocBuilder, RawDoc, RawValue, ValueBuf};
pub use parse::FIELDS;
use parse::Options;

/// A collation other than the simple one.
pub struct Collation {
    /// The document with all options, as listings return it.
    document: DocBuf,
    collator: CollatorBorrowed<'static>,
    /// Strength 5: strings that are equal by all other levels compare by the code points of their
    /// normal form.
    compares_code_points: bool,
}

impl Collation {
    /// Checks a collation document; returns `None` for the simple collation. `path` is the name of
    /// the document in errors.
    ///
    /// # Errors
    /// 40414, 40415, 14 and 2 for its fields, 2 for an unknown locale, 9 for options of the simple
    /// one, 161 for another version, 238 for rules that are not implemented.
    pub fn parse(document: RawDoc<'_>, path: &str) -> Result<Option<Arc<Collation>>> {
        let Some(options) = Options::parse(document, path)? else { return Ok(None) };
        let collator = collator(&options)?;
        let compares_code_points = options.strength == 5;
        Ok(Some(Arc::new(Collation {
            document: options.document(),
            collator,
            compares_code_points,
        })))
    }

    /// The collation in a collection's or an index's stored options.
    ///
    /// # Errors
    /// Errors of [`Collation::parse`].
    pub fn of_options(options: RawDoc<'_>) -> Result<Option<Arc<Collation>>> {
        match options.get("collation") {
            Some(RawValue::Document(collation)) => Collation::parse(collation, "collation"),
            _ => Ok(None),
        }
    }

    /// The document with all options, as listings return it.
    pub fn document(&self) -> RawDoc<'_> {
        self.document.as_doc()
    }

    /// Compares two strings.
    pub fn compare(&self, left: &str, right: &str) -> Ordering {
        if self.compares_code_points && left != right {
            return self.compare_by_keys(left, right);
        }
        self.collator.compare(left, right)
    }

    /// The library's comparison skips the common prefix of two strings before it normalizes them. A
    /// combining mark after the prefix can belong before a mark within it, so the order would
    /// differ from that of the keys.
    fn compare_by_keys(&self, left: &str, right: &str) -> Ordering {
        let [mut of_left, mut of_right] = [Vec::new(), Vec::new()];
        self.append_key(left, &mut of_left);
        self.append_key(right, &mut of_right);
        of_left.cmp(&of_right)
    }

    /// Appends the string's key. It may contain any byte.
    pub fn append_key(&self, text: &str, out: &mut Vec<u8>) {
        match self.collator.write_sort_key_to(text, out) {
            Ok(()) => {}
            Err(never) => match never {},
        }
    }

    /// The key in hexadecimal digits, as clients see it.
    pub fn key_hex(&self, text: &str) -> String {
        use fmt::Write;
        let mut key = Vec::new();
        self.append_key(text, &mut key);
        let mut shown = String::from("0x");
        for byte in key {
            let _ = write!(shown, "{byte:02X}");
        }
        shown
    }

    /// A value as an index with this collation contains it. A key in hexadecimal digits takes the
    /// place of each string, because the bytes of a key are not a valid string.
    pub fn indexed(&self, value: RawValue<'_>) -> ValueBuf {
        self.indexed_at(value, 0)
    }

    fn indexed_at(&self, value: RawValue<'_>, depth: usize) -> ValueBuf {
        let nests = depth < limits::MAX_BSON_DEPTH;
        match value {
            RawValue::String(text) | RawValue::Symbol(text) => {
                RawValue::String(&self.key_hex(text)).to_owned()
            }
            RawValue::Document(inner) if nests => {
                let mut out = DocBuilder::new();
                for element in inner {
                    out.append(element.name(), &self.indexed_at(element.value(), depth + 1));
                }
                RawValue::Document(out.finish().as_doc()).to_owned()
            }
            RawValue::Array(items) if nests => {
                let mut out = DocBuilder::new_array();
                for item in items {
                    out.push(&self.indexed_at(item.value(), depth + 1));
                }
                RawValue::Array(out.finish().as_doc()).to_owned()
            }
            other => other.to_owned(),
        }
    }

    /// Whether a collation can affect the comparison of this value.
    pub fn concerns(value: RawValue<'_>) -> bool {
        matches!(
            value,
            RawValue::String(_) | RawValue::Symbol(_) | RawValue::Document(_) | RawValue::Array(_)
        )
    }
}

/// Whether two collations, or none, order strings the same way.
pub fn same_collation(left: Option<&Arc<Collation>>, right: Option<&Arc<Collation>>) -> bool {
    match (left, right) {
        (None, None) => true,
        (Some(left), Some(right)) => Arc::ptr_eq(left, right) || left == right,
        _ => false,
    }
}

impl PartialEq for Collation {
    fn eq(&self, other: &Collation) -> bool {
        self.document.as_bytes() == other.document.as_bytes()
    }
}

impl Eq for Collation {}

impl fmt::Debug for Collation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Collation({:?})", self.document)
    }
}

fn collator(options: &Options) -> Result<CollatorBorrowed<'static>> {
    let missing = || Error::not_implemented(format_args!("the collation {:?}", options.locale));
    let tag = match (options.backwards, options.tag.as_str()) {
        (false, tag) => tag,
        // The library has one collation with backwards accents, and no other rules in it.
        (true, "und" | "de") => "fr-CA",
        (true, _) => {
            return Err(Error::not_implemented(format_args!(
                "the collation option 'backwards' for the locale {:?}",
                options.locale
            )));
        }
    };
    let locale: Locale = tag.parse().map_err(|_| missing())?;
    let mut preferences = CollatorPreferences::from(&locale);
    preferences.case_first = Some(match options.case_first {
        "upper" => CollationCaseFirst::Upper,
        "lower" => CollationCaseFirst::Lower,
        _ => CollationCaseFirst::False,
    });
    preferences.numeric_ordering = Some(match options.numeric_ordering {
        true => CollationNumericOrdering::True,
        false => CollationNumericOrdering::False,
    });
    let mut settings = CollatorOptions::default();
    settings.strength = Some(match options.strength {
        1 => Strength::Primary,
        2 => Strength::Secondary,
        4 => Strength::Quaternary,
        5 => Strength::Identical,
        _ => Strength::Tertiary,
    });
    settings.case_level = Some(if options.case_level { CaseLevel::On } else { CaseLevel::Off });
    settings.alternate_handling = Some(match options.alternate {
        "shifted" => AlternateHandling::Shifted,
        _ => AlternateHandling::NonIgnorable,
    });
    settings.max_variable = Some(match options.max_variable {
        "space" => MaxVariable::Space,
        _ => MaxVariable::Punctuation,
    });
    CollatorBorrowed::try_new(preferences, settings).map_err(|_| missing())
}

#[cfg(test)]
mod tests;
