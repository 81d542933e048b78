//! The collation document: its fields, their defaults, and invalid combinations.

use mayfly_base::{Error, ErrorCode, Result};

use super::OPTIONS;
use super::locales::{self, LocaleLookup};
use crate::shell::Shell;
use crate::{DocBuf, DocBuilder, Number, RawDoc, RawValue};

/// The version of the rules that the reference reports.
const VERSION: &str = "57.1";

/// All options of a collation other than the simple one.
pub(super) struct Options {
    pub(super) locale: String,
    /// The library's name for the locale.
    pub(super) tag: String,
    pub(super) case_level: bool,
    pub(super) case_first: &'static str,
    pub(super) strength: i32,
    pub(super) numeric_ordering: bool,
    pub(super) alternate: &'static str,
    pub(super) max_variable: &'static str,
    pub(super) normalization: bool,
    pub(super) backwards: bool,
}

impl Options {
    /// Reads and checks the document; returns `None` for the simple collation.
    pub(super) fn parse(document: RawDoc<'_>, path: &str) -> Result<Option<Options>> {
        let fields = Fields { document, path };
        fields.check_names()?;
        let locale = fields.string("locale")?.ok_or_else(|| {
            let text = format!("BSON field '{path}.locale' is missing but a required field");
            Error::new(ErrorCode(40414), text)
        })?;
        let defaults = locales::defaults(locale);
        let case_first = fields.choice("caseFirst", &["off", "upper", "lower"])?;
        let alternate = fields.choice("alternate", &["non-ignorable", "shifted"])?;
        let max_variable = fields.choice("maxVariable", &["punct", "space"])?;
        let mut options = Options {
            locale: locale.to_owned(),
            tag: String::new(),
            case_level: fields.flag("caseLevel")?.unwrap_or(false),
            case_first: case_first.unwrap_or(defaults.case_first),
            strength: fields.strength()?.unwrap_or(3),
            numeric_ordering: fields.flag("numericOrdering")?.unwrap_or(false),
            alternate: alternate.unwrap_or(defaults.alternate),
            max_variable: max_variable.unwrap_or("punct"),
            normalization: fields.flag("normalization")?.unwrap_or(defaults.normalization),
            backwards: fields.flag("backwards")?.unwrap_or(defaults.backwards),
        };
        let version = fields.string("version")?;
        if locale == "simple" {
            return match document.iter().count() {
                1 => Ok(None),
                _ => Err(Error::failed_to_parse(format!(
                    "If locale=simple, no other fields should be present in: {}",
                    Shell(document)
                ))),
            };
        }
        options.tag = match locales::find(locale) {
            LocaleLookup::Tag(tag) => tag,
            LocaleLookup::Missing => {
                return Err(Error::not_implemented(format_args!("the collation {locale:?}")));
            }
            LocaleLookup::Unknown => {
                let text = format!("Field 'locale' is invalid in: {}", Shell(document));
                return Err(Error::bad_value(text));
            }
        };
        check_version(version, document)?;
        options.check()?;
        Ok(Some(options))
    }

    /// Rejects options that have no effect in combination with others.
    fn check(&self) -> Result<()> {
        if self.backwards && self.strength == 1 {
            return Err(Error::bad_value("'backwards' is invalid with 'strength' of 1"));
        }
        if self.case_first != "off" && !self.case_level && self.strength <= 2 {
            return Err(Error::bad_value(
                "'caseFirst' is invalid unless 'caseLevel' is on or 'strength' is greater than 2",
            ));
        }
        Ok(())
    }

    /// The document with all options, as listings return it.
    pub(super) fn document(&self) -> DocBuf {
        let mut out = DocBuilder::new();
        out.append("locale", self.locale.as_str());
        out.append("caseLevel", self.case_level).append("caseFirst", self.case_first);
        out.append("strength", self.strength).append("numericOrdering", self.numeric_ordering);
        out.append("alternate", self.alternate).append("maxVariable", self.max_variable);
        out.append("normalization", self.normalization).append("backwards", self.backwards);
        out.append("version", VERSION);
        out.finish()
    }
}

fn check_version(version: Option<&str>, document: RawDoc<'_>) -> Result<()> {
    match version {
        None | Some(VERSION) => Ok(()),
        Some(other) => Err(Error::new(
            ErrorCode::IncompatibleCollationVersion,
            format!(
                "Requested collation version {other} but the only available collator version was {VERSION}. \
                 Requested collation spec: {}",
                Shell(document)
            ),
        )),
    }
}

/// The document, and its name in errors.
struct Fields<'a, 'p> {
    document: RawDoc<'a>,
    path: &'p str,
}

impl<'a> Fields<'a, '_> {
    fn check_names(&self) -> Result<()> {
        let path = self.path;
        for (at, element) in self.document.iter().enumerate() {
            let name = element.name();
            if !OPTIONS.contains(&name) {
                let text = format!("BSON field '{path}.{name}' is an unknown field.");
                return Err(Error::new(ErrorCode(40415), text));
            }
            if self.document.iter().take(at).any(|before| before.name() == name) {
                let text = format!("BSON field '{path}.{name}' is a duplicate field");
                return Err(Error::new(ErrorCode(40413), text));
            }
        }
        Ok(())
    }

    fn get(&self, name: &str) -> Option<RawValue<'a>> {
        let present = |value: &RawValue<'a>| !matches!(value, RawValue::Null | RawValue::Undefined);
        self.document.get(name).filter(present)
    }

    fn wrong(&self, name: &str, value: RawValue<'_>, expected: &str) -> Error {
        let types = if expected.starts_with('[') { "types" } else { "type" };
        Error::type_mismatch(format!(
            "BSON field '{}.{name}' is the wrong type '{}', expected {types} '{expected}'",
            self.path,
            value.type_name()
        ))
    }

    fn string(&self, name: &str) -> Result<Option<&'a str>> {
        match self.get(name) {
            None => Ok(None),
            Some(RawValue::String(text)) => Ok(Some(text)),
            Some(other) => Err(self.wrong(name, other, "string")),
        }
    }

    fn flag(&self, name: &str) -> Result<Option<bool>> {
        match self.get(name) {
            None => Ok(None),
            Some(RawValue::Bool(flag)) => Ok(Some(flag)),
            Some(other) => Err(self.wrong(name, other, "bool")),
        }
    }

    fn not_a_value(&self, name: &str, given: &str) -> Error {
        let path = self.path;
        Error::bad_value(format!(
            "Enumeration value '{given}' for field '{path}.{name}' is not a valid value."
        ))
    }

    /// A field with one of these words as its value.
    fn choice(&self, name: &str, words: &[&'static str]) -> Result<Option<&'static str>> {
        let Some(given) = self.string(name)? else { return Ok(None) };
        match words.iter().find(|word| **word == given) {
            Some(word) => Ok(Some(word)),
            None => Err(self.not_a_value(name, given)),
        }
    }

    fn strength(&self) -> Result<Option<i32>> {
        let Some(value) = self.get("strength") else { return Ok(None) };
        let Some(number) = Number::from_value(value) else {
            return Err(self.wrong("strength", value, "[long, int, decimal, double]"));
        };
        match number.to_i64_exact() {
            Some(strength @ 1..=5) => Ok(Some(strength as i32)),
            Some(other) => Err(self.not_a_value("strength", &other.to_string())),
            None => Err(self.not_a_value("strength", &number.to_f64().to_string())),
        }
    }
}
