//! Regular expressions, by the engine that the reference uses (PCRE2), so that patterns mean the
//! same.

use std::fmt;

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_value::RawValue;

/// Longest pattern, in bytes; the reference's own limit.
const MAX_PATTERN_BYTES: usize = 32_764;

/// A compiled pattern.
#[derive(Clone)]
pub struct Regex {
    pattern: Box<str>,
    options: Box<str>,
    program: pcre2::bytes::Regex,
}

impl Regex {
    /// Compiles a pattern; options are letters of `imxsu`.
    pub fn new(pattern: &str, options: &str) -> Result<Regex> {
        if pattern.len() > MAX_PATTERN_BYTES || pattern.contains('\0') {
            let code = ErrorCode(if pattern.contains('\0') { 51109 } else { 51091 });
            let text = "Regular expression is invalid: too long, or it holds a null byte";
            return Err(Error::new(code, text));
        }
        let mut builder = pcre2::bytes::RegexBuilder::new();
        builder.utf(true).jit_if_available(true);
        for option in options.chars() {
            match option {
                'i' => builder.caseless(true),
                'm' => builder.multi_line(true),
                'x' => builder.extended(true),
                's' => builder.dotall(true),
                'u' => &mut builder,
                other => {
                    let text = format!("invalid flag in regex options: {other}");
                    return Err(Error::new(ErrorCode(51108), text));
                }
            };
        }
        let program = builder.build(pattern).map_err(|error| {
            let text = format!("Regular expression is invalid: {error}");
            Error::new(ErrorCode(51091), text)
        })?;
        Ok(Regex { pattern: pattern.into(), options: options.into(), program })
    }

    /// As it was written.
    pub fn pattern(&self) -> &str {
        &self.pattern
    }

    /// Its letters as they were written.
    pub fn options(&self) -> &str {
        &self.options
    }

    /// Whether the text matches anywhere. A match that exceeds the engine's own limits counts as
    /// none.
    pub fn matches_text(&self, text: &str) -> bool {
        self.program.is_match(text.as_bytes()).unwrap_or(false)
    }

    /// Whether the value is a text that matches, or this very pattern as a value.
    pub fn matches_value(&self, value: RawValue<'_>) -> bool {
        match value {
            RawValue::String(text) | RawValue::Symbol(text) => self.matches_text(text),
            RawValue::Regex { pattern, options } => {
                pattern == &*self.pattern && options == &*self.options
            }
            _ => false,
        }
    }

    /// The text that every match begins with, for index bounds: what stands after `^` up to the
    /// first character that means more than itself. Nothing when the pattern is not anchored or has
    /// options.
    pub fn literal_prefix(&self) -> Option<&str> {
        let rest = self.pattern.strip_prefix('^').filter(|_| self.options.is_empty())?;
        if rest.contains('|') {
            return None;
        }
        let special = |c: char| {
            !(c.is_alphanumeric() || matches!(c, ' ' | '-' | '_' | '/' | ':' | '@' | ','))
        };
        let end = rest.find(special).unwrap_or(rest.len());
        // A quantifier makes the character before it optional.
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
