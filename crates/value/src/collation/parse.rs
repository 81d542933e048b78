//! The collation document: its fields, their defaults, and invalid combinations.

use mayfly_base::{Error, ErrorCode, Result};

use super::locales::{self, LocaleLookup};
use crate::arguments::{Argument, Fields, Path, error};
use crate::shell::Shell;
use crate::{DocBuf, DocBuilder, RawDoc};

/// The version of the rules that the reference reports.
const VERSION: &str = "57.1";

const CASE_FIRST: &[&str] = &["off", "upper", "lower"];
const ALTERNATE: &[&str] = &["non-ignorable", "shifted"];
const MAX_VARIABLE: &[&str] = &["punct", "space"];

/// The fields of a collation. Manual: "Collation", "Collation Document".
pub const FIELDS: &[Argument] = &[
    Argument::string("locale").required(),
    Argument::bool("caseLevel"),
    Argument::choice("caseFirst", CASE_FIRST),
    Argument::whole("strength"),
    Argument::bool("numericOrdering"),
    Argument::choice("alternate", ALTERNATE),
    Argument::choice("maxVariable", MAX_VARIABLE),
    Argument::bool("normalization"),
    Argument::bool("backwards").null_is_value(),
    Argument::string("version"),
];

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
        let fields = Fields::read(document, path, FIELDS)?;
        let locale = fields.string("locale")?.ok_or_else(|| fields.missing("locale"))?;
        let defaults = locales::defaults(locale);
        let choice = |name: &str, words: &[&'static str]| {
            let given = fields.string(name)?;
            Ok::<_, Error>(words.iter().find(|word| given == Some(**word)).copied())
        };
        let case_first = choice("caseFirst", CASE_FIRST)?;
        let alternate = choice("alternate", ALTERNATE)?;
        let max_variable = choice("maxVariable", MAX_VARIABLE)?;
        let mut options = Options {
            locale: locale.to_owned(),
            tag: String::new(),
            case_level: fields.bool("caseLevel")?.unwrap_or(false),
            case_first: case_first.unwrap_or(defaults.case_first),
            strength: strength(&fields, path)?.unwrap_or(3),
            numeric_ordering: fields.bool("numericOrdering")?.unwrap_or(false),
            alternate: alternate.unwrap_or(defaults.alternate),
            max_variable: max_variable.unwrap_or("punct"),
            normalization: fields.bool("normalization")?.unwrap_or(defaults.normalization),
            backwards: fields.bool("backwards")?.unwrap_or(defaults.backwards),
        };
        let version = fields.string("version")?;
        if locale == "simple" {
            return Ok(None);
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

/// The strength; `path` is that of the collation.
fn strength(fields: &Fields<'_>, path: &str) -> Result<Option<i32>> {
    match fields.long("strength")? {
        None => Ok(None),
        Some(strength @ 1..=5) => Ok(Some(strength as i32)),
        Some(other) => {
            Err(error::not_a_choice(Path::new(path).field("strength"), &other.to_string()))
        }
    }
}
