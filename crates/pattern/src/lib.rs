//! Regular expressions. A [`Pattern`] is compiled once, and then tests texts or finds matches.
//!
//! Patterns have the meaning that they have in the reference server, because the same library
//! (PCRE2) compiles them. The crate does not depend on BSON or operators: `$regex`, `$regexMatch`
//! and related operators parse their arguments and phrase their own errors ([`PatternFault`]). It
//! does no IO. Its unsafe code is in [`patient`] and calls PCRE2.
//!
//! PCRE2 backtracks, which takes exponential time for some patterns and texts. It gives up after a
//! number of steps, or when the small stack of its compiled code is full. A search that gave up has
//! no result, and must not count as "no match". Three programs are tried in turn:
//!
//! 1. The quick program is PCRE2 with few steps and its default stack. It completes nearly every
//!    search in a short text.
//! 2. [`Linear`] is an automaton, which matches in linear time. It supports the part of the
//!    language that both engines interpret alike.
//! 3. The [patient program](Patient) is PCRE2 again, with more steps and a large stack. While it
//!    runs it checks whether the operation may continue, which the quick program cannot.
//!
//! A search that the patient program gives up fails with [`UnfinishedSearch`]. The second and the
//! third program are compiled at their first use. From then on the pattern skips the quick program,
//! so that a query pays for giving up only once.
//!
//! PCRE2 counts steps separately for each starting position of a match, and one step may read the
//! whole text. A long text can therefore occupy the quick program for minutes although it never
//! gives up. It is used only for short texts, where all positions and steps together take less than
//! a second.

mod linear;
mod patient;

use std::fmt;
use std::sync::{Arc, OnceLock};

use mayfly_base::{Error, ErrorCode};
use mayfly_work::current::spend;
use pcre2::bytes::{Regex, RegexBuilder};
use pcre2_sys::{PCRE2_ERROR_CALLOUT, PCRE2_ERROR_MATCHLIMIT};

use linear::Linear;
use patient::Patient;

/// Longest pattern in bytes, as in the reference.
const MAX_PATTERN_BYTES: usize = 16 << 10;

/// Steps of the quick program for each starting position: about 5 us.
const QUICK_STEPS: u32 = 2_000;

/// Steps of the patient program for each starting position: half a millisecond, ten times as long
/// without JIT.
const PATIENT_STEPS: u32 = 200_000;

/// Largest stack of the patient program, in bytes. Repeated alternatives use it; texts of about
/// 500,000 letters fit.
const PATIENT_STACK_BYTES: usize = 16 << 20;

/// Longest text, in bytes, for the quick program.
const SHORT_TEXT: usize = 1 << 10;

/// Bytes of a text that count as one unit of work, because each of them may take all steps.
const BYTES_PER_UNIT: usize = 16;

/// A compiled pattern.
#[derive(Clone)]
pub struct Pattern(Arc<Programs>);

struct Programs {
    pattern: Box<str>,
    options: Options,
    quick: Regex,
    linear: OnceLock<Option<Linear>>,
    patient: OnceLock<Option<Patient>>,
}

/// The parsed options.
#[derive(Clone, Copy, Debug, Default)]
struct Options {
    ignore_case: bool,
    multi_line: bool,
    dot_all: bool,
    extended: bool,
}

/// Why a pattern cannot be compiled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PatternFault {
    /// It contains a NUL character.
    NullInPattern,
    /// Its options contain a NUL character.
    NullInOptions,
    /// The option does not exist.
    UnknownOption(char),
    /// It is too long, or invalid; the text is the engine's message.
    Invalid(String),
}

/// The search reached a limit or was interrupted; contains the engine's result code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnfinishedSearch(i32);

impl UnfinishedSearch {
    /// The error code for clients.
    pub const CODE: ErrorCode = ErrorCode(51156);

    /// The operation must end.
    const ENDED: UnfinishedSearch = UnfinishedSearch(PCRE2_ERROR_CALLOUT);

    /// The error for the operator that evaluates the pattern.
    pub fn in_operator(self, name: &str) -> Error {
        if self == UnfinishedSearch::ENDED
            && let Err(why) = spend(usize::MAX)
        {
            return why;
        }
        let code = self.0;
        let text = format!(
            "Error occurred while executing the regular expression in {name}. Result code: {code}"
        );
        Error::new(UnfinishedSearch::CODE, text)
    }
}

impl From<pcre2::Error> for UnfinishedSearch {
    fn from(error: pcre2::Error) -> UnfinishedSearch {
        UnfinishedSearch(error.code())
    }
}

impl Pattern {
    /// Compiles a pattern; options are letters of `imxsu`.
    ///
    /// # Errors
    /// The reason why it cannot be compiled.
    pub fn compile(pattern: &str, options: &str) -> Result<Pattern, PatternFault> {
        if pattern.contains('\0') {
            return Err(PatternFault::NullInPattern);
        }
        if options.contains('\0') {
            return Err(PatternFault::NullInOptions);
        }
        let mut read = Options::default();
        for option in options.chars() {
            match option {
                'i' => read.ignore_case = true,
                'm' => read.multi_line = true,
                'x' => read.extended = true,
                's' => read.dot_all = true,
                'u' => {}
                other => return Err(PatternFault::UnknownOption(other)),
            }
        }
        if pattern.len() > MAX_PATTERN_BYTES {
            return Err(PatternFault::Invalid("pattern is too long".to_owned()));
        }
        let quick = read.builder().build(&limited(pattern, QUICK_STEPS)).map_err(|error| {
            // Compiled again without the prefix, so that offsets in the error are those of the
            // original pattern.
            let error = read.builder().build(pattern).err().unwrap_or(error);
            PatternFault::Invalid(error.to_string())
        })?;
        Ok(Pattern(Arc::new(Programs {
            pattern: pattern.into(),
            options: read,
            quick,
            linear: OnceLock::new(),
            patient: OnceLock::new(),
        })))
    }

    /// Whether the text contains a match.
    ///
    /// # Errors
    /// The search reached a limit, or the operation must end.
    #[inline]
    pub fn is_match(&self, text: &str) -> Result<bool, UnfinishedSearch> {
        let programs = &*self.0;
        if text.len() <= SHORT_TEXT && programs.linear.get().is_none() {
            spend_on(text)?;
            if let Ok(found) = programs.quick.is_match(text.as_bytes()) {
                return Ok(found);
            }
        }
        programs.finish(text)
    }

    /// Finds the first match that begins at or after this byte offset, which must be a character
    /// boundary.
    ///
    /// # Errors
    /// The search reached a limit, or the operation must end.
    pub fn find_at(
        &self,
        groups: &mut Groups,
        text: &str,
        from: usize,
    ) -> Result<Option<(usize, usize)>, UnfinishedSearch> {
        let programs = &*self.0;
        if !groups.patient && text.len() <= SHORT_TEXT {
            spend_on(text)?;
            let mut found = programs.quick.capture_locations();
            match programs.quick.captures_read_at(&mut found, text.as_bytes(), from) {
                Ok(None) => return Ok(None),
                Ok(Some(_)) => {
                    groups.fill(|at| found.get(at));
                    return Ok(groups.get(0));
                }
                Err(_) => {}
            }
        }
        if !groups.patient {
            // Usually there is no match, and the automaton can report that too.
            if from == 0 && programs.by_automaton(text)? == Some(false) {
                return Ok(None);
            }
            groups.patient = true;
        }
        programs.find_patiently(text, from, groups).map(|found| groups.get(0).filter(|_| found))
    }

    /// A buffer for the groups of a match.
    pub fn groups(&self) -> Groups {
        Groups { found: vec![None; self.0.quick.captures_len()], patient: false }
    }
}

/// Counts the possible work of the quick program for the operation.
#[inline]
fn spend_on(text: &str) -> Result<(), UnfinishedSearch> {
    spend(1 + text.len() / BYTES_PER_UNIT).map_err(|_| UnfinishedSearch::ENDED)
}

/// The offsets of the groups of a match, and whether the patient program is in use.
pub struct Groups {
    found: Vec<Option<(usize, usize)>>,
    patient: bool,
}

impl Groups {
    /// The byte range of a group; group 0 is the whole match.
    pub fn get(&self, at: usize) -> Option<(usize, usize)> {
        self.found.get(at).copied().flatten()
    }

    /// The number of groups in the pattern, including the whole match.
    pub fn count(&self) -> usize {
        self.found.len()
    }

    fn fill(&mut self, place: impl Fn(usize) -> Option<(usize, usize)>) {
        self.found.iter_mut().enumerate().for_each(|(at, group)| *group = place(at));
    }
}

impl Programs {
    /// Whether the text contains a match, when the quick program gave up or would take too long.
    #[cold]
    fn finish(&self, text: &str) -> Result<bool, UnfinishedSearch> {
        match self.by_automaton(text)? {
            Some(found) => Ok(found),
            None => self.find_patiently(text, 0, &mut Groups { found: Vec::new(), patient: true }),
        }
    }

    /// Whether the text contains a match; `None` when the automaton does not support the pattern,
    /// or gives up on the text.
    fn by_automaton(&self, text: &str) -> Result<Option<bool>, UnfinishedSearch> {
        let linear = self.linear.get_or_init(|| Linear::compile(&self.pattern, self.options));
        let Some(linear) = linear else { return Ok(None) };
        spend(1 + (text.len() >> 10)).map_err(|_| UnfinishedSearch::ENDED)?;
        Ok(linear.is_match(text))
    }

    fn find_patiently(
        &self,
        text: &str,
        from: usize,
        groups: &mut Groups,
    ) -> Result<bool, UnfinishedSearch> {
        let compiled = self.patient.get_or_init(|| {
            let pattern = limited(&self.pattern, PATIENT_STEPS);
            Patient::compile(&pattern, self.options)
        });
        match compiled {
            Some(patient) => patient.find(text, from, &mut groups.found),
            // A pattern of many thousand letters outside the shared language may become too large
            // with callouts.
            None => Err(UnfinishedSearch(PCRE2_ERROR_MATCHLIMIT)),
        }
    }
}

impl Options {
    fn builder(self) -> RegexBuilder {
        let mut builder = RegexBuilder::new();
        builder.utf(true).jit_if_available(true);
        builder.caseless(self.ignore_case).multi_line(self.multi_line);
        builder.dotall(self.dot_all).extended(self.extended);
        builder
    }
}

/// The pattern with a limit of steps, inserted after the pattern's own leading limits, because the
/// last one counts.
fn limited(pattern: &str, steps: u32) -> String {
    let (mut at, mut after_limits) = (0, 0);
    while pattern[at..].starts_with("(*")
        && let Some(length) = pattern[at..].find(')')
    {
        let setting = &pattern[at..at + length];
        at += length + 1;
        if setting.starts_with("(*LIMIT_") {
            after_limits = at;
        }
    }
    format!("{}(*LIMIT_MATCH={steps}){}", &pattern[..after_limits], &pattern[after_limits..])
}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.pattern)
    }
}

#[cfg(test)]
mod tests;
