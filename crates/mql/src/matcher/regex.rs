//! Regular expressions in filters, compiled like those of expressions.

use std::fmt;

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_pattern::{Pattern, PatternFault};
use mayfly_value::RawValue;

/// A compiled pattern.
#[derive(Clone)]
pub struct Regex {
    pattern: Box<str>,
    options: Box<str>,
    program: Pattern,
}

impl Regex {
    /// Compiles a pattern; options are letters of `imxsu`.
    pub fn new(pattern: &str, options: &str) -> Result<Regex> {
        let program = Pattern::compile(pattern, options).map_err(|wrong| {
            let (code, text) = match wrong {
                PatternFault::NullInPattern => {
                    return Error::bad_value(
                        "Regular expression cannot contain an embedded null byte",
                    );
                }
                PatternFault::NullInOptions => {
                    (51108, "Regular expression options hold a null byte".to_owned())
                }
                PatternFault::UnknownOption(other) => {
                    (51108, format!("invalid flag in regex options: {other}"))
                }
                PatternFault::Invalid(reason) => {
                    (51091, format!("Regular expression is invalid: {reason}"))
                }
            };
            Error::new(ErrorCode(code), text)
        })?;
        Ok(Regex { pattern: pattern.into(), options: options.into(), program })
    }

    /// The original pattern.
    pub fn pattern(&self) -> &str {
        &self.pattern
    }

    /// The original option letters.
    pub fn options(&self) -> &str {
        &self.options
    }

    /// Whether the text contains a match.
    ///
    /// # Errors
    /// 51156 when the search exceeds the limits of [`Pattern::is_match`].
    pub fn matches_text(&self, text: &str) -> Result<bool> {
        self.program.is_match(text).map_err(|unfinished| unfinished.in_operator("$regex"))
    }

    /// Whether the value is a matching text, or an equal regular expression.
    ///
    /// # Errors
    /// Errors of [`Regex::matches_text`].
    pub fn matches_value(&self, value: RawValue<'_>) -> Result<bool> {
        match value {
            RawValue::String(text) | RawValue::Symbol(text) => self.matches_text(text),
            RawValue::Regex { pattern, options } => {
                Ok(pattern == &*self.pattern && options == &*self.options)
            }
            _ => Ok(false),
        }
    }

    /// The literal prefix of all matches, for index bounds: the text after `^` up to the first
    /// special character. `None` when the pattern is not anchored or has options.
    pub fn literal_prefix(&self) -> Option<&str> {
        let rest = self.pattern.strip_prefix('^').filter(|_| self.options.is_empty())?;
        if rest.contains('|') {
            return None;
        }
        let special = |c: char| {
            !(c.is_alphanumeric() || matches!(c, ' ' | '-' | '_' | '/' | ':' | '@' | ','))
        };
        let end = rest.find(special).unwrap_or(rest.len());
        // A quantifier makes the preceding character optional.
        let optional = rest[end..].starts_with(['*', '?', '{']);
        let prefix = &rest[..end];
        let kept = match prefix.char_indices().next_back() {
            Some((last, _)) if optional => &prefix[..last],
            _ => prefix,
        };
        (!kept.is_empty()).then_some(kept)
    }
}

impl fmt::Debug for Regex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "/{}/{}", self.pattern, self.options)
    }
}
