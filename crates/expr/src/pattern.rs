//! Regular expressions, by the engine that the reference uses (PCRE2), so that patterns mean the same. Filters and expressions
//! compile them here; what they say about a bad one is their own.

use std::fmt;

/// Longest pattern, in bytes; the engine's own limit in the reference.
const MAX_PATTERN_BYTES: usize = 32_764;

/// A compiled pattern.
#[derive(Clone)]
pub struct Pattern(pcre2::bytes::Regex);

/// Why a pattern cannot be compiled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PatternFault {
    /// It holds the character 0.
    NullInPattern,
    /// Its options hold the character 0.
    NullInOptions,
    /// There is no such option.
    UnknownOption(char),
    /// It is too long or makes no sense to the engine, in its words.
    Invalid(String),
}

impl Pattern {
    /// Compiles a pattern; options are letters of `imxsu`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn compile(pattern: &str, options: &str) -> Result<Pattern, PatternFault> {
        if pattern.contains('\0') {
            return Err(PatternFault::NullInPattern);
        }
        if options.contains('\0') {
            return Err(PatternFault::NullInOptions);
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
                other => return Err(PatternFault::UnknownOption(other)),
            };
        }
        if pattern.len() > MAX_PATTERN_BYTES {
            return Err(PatternFault::Invalid("pattern is too long".to_owned()));
        }
        let compiled = builder.build(pattern);
        compiled.map(Pattern).map_err(|error| PatternFault::Invalid(error.to_string()))
    }

    /// Whether the text matches anywhere.
    ///
    /// # Errors
    /// Those of a match that exceeds the engine's own limits.
    pub fn is_match(&self, text: &str) -> Result<bool, pcre2::Error> {
        self.0.is_match(text.as_bytes())
    }

    /// For what captures groups.
    pub(crate) fn program(&self) -> &pcre2::bytes::Regex {
        &self.0
    }
}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.as_str())
    }
}
