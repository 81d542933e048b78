//! `$regexMatch`, `$regexFind`, `$regexFindAll`, with the same engine as match expressions (PCRE2).

use mayfly_base::Result;
use mayfly_pattern::{Groups, Pattern, PatternFault};
use mayfly_value::{DocBuilder, RawValue, check_size};
use mayfly_work::current::spend;

use super::operand::{array, document, fault, optional, parts, required};
use super::{OpRow, Prepared, own};
use crate::parse::Parser;
use crate::{Expression, Frame, Value};

pub(super) const ROWS: &[OpRow] = &[
    own("$regexMatch", "4.2", "Whether a string matches.", parse),
    own("$regexFind", "4.2", "The first match with its groups.", parse),
    own("$regexFindAll", "4.2", "All matches with their groups.", parse),
];

/// Compiles a pattern, with the errors of the operator `name`.
fn compile_pattern(name: &str, pattern: &str, options: &str) -> Result<Pattern> {
    Pattern::compile(pattern, options).map_err(|wrong| match wrong {
        PatternFault::NullInPattern => {
            let text = format!("{name}: regular expression cannot contain an embedded null byte");
            fault(51109, text)
        }
        PatternFault::NullInOptions => {
            let text =
                format!("{name}: regular expression options cannot contain an embedded null byte");
            fault(51110, text)
        }
        PatternFault::UnknownOption(other) => {
            fault(51108, format!("{name} invalid flag in regex options: {other}"))
        }
        PatternFault::Invalid(reason) => fault(51111, format!("Invalid Regex in {name}: {reason}")),
    })
}

fn parse(
    parser: &mut Parser<'_>,
    row: &'static OpRow,
    operand: RawValue<'_>,
) -> Result<Expression> {
    let name = row.name;
    let [input, regex, options] = parts(
        operand,
        ["input", "regex", "options"],
        |found| {
            fault(51103, format!("{name} expects an object of named arguments but found: {found}"))
        },
        |part| fault(31024, format!("{name} found an unknown argument: {part}")),
    )?;
    let input =
        required(parser, input, || fault(31022, format!("{name} requires 'input' parameter")))?;
    let regex =
        required(parser, regex, || fault(31023, format!("{name} requires 'regex' parameter")))?;
    let options = optional(parser, options)?;
    let constant = match (&regex, &options) {
        (Expression::Constant(regex), Expression::Absent) => Some((regex.as_raw(), None)),
        (Expression::Constant(regex), Expression::Constant(options)) => {
            Some((regex.as_raw(), Some(options.as_raw())))
        }
        _ => None,
    };
    let compiled = match constant {
        Some((regex, options)) => compile(name, regex, options)?,
        None => None,
    };
    let run = match name {
        "$regexMatch" => is_match,
        "$regexFind" => find_first,
        _ => find_all,
    };
    parser.ready(row, run, Prepared::Regex(compiled), vec![input, regex, options])
}

/// Compiles the pattern; `None` when it is null or missing.
fn compile(
    name: &str,
    regex: RawValue<'_>,
    options: Option<RawValue<'_>>,
) -> Result<Option<Pattern>> {
    let pattern = match regex {
        RawValue::Null | RawValue::Undefined => None,
        RawValue::String(pattern) => Some((pattern, "")),
        RawValue::Regex { pattern, options } => Some((pattern, options)),
        _ => {
            let text = format!("{name} needs 'regex' to be of type string or regex");
            return Err(fault(51105, text));
        }
    };
    let options = match options {
        None | Some(RawValue::Null | RawValue::Undefined) => None,
        Some(RawValue::String(options)) => Some(options),
        Some(_) => {
            return Err(fault(51106, format!("{name} needs 'options' to be of type string")));
        }
    };
    let Some((pattern, own)) = pattern else {
        // Options are checked for null bytes even without a pattern.
        return match options.is_some_and(|options| options.contains('\0')) {
            true => compile_pattern(name, "", options.unwrap_or("")).map(|_| None),
            false => Ok(None),
        };
    };
    if !own.is_empty() && options.is_some() {
        let text =
            format!("{name}: found regex option(s) specified in both 'regex' and 'option' fields");
        return Err(fault(51107, text));
    }
    compile_pattern(name, pattern, options.unwrap_or(own)).map(Some)
}

/// Calls a function with text and pattern; the result is null when one of them is null or missing.
fn with_pattern<'a>(
    name: &str,
    prepared: &'a Prepared,
    arguments: &'a [Expression],
    frame: Frame<'a>,
    found: impl FnOnce(&str, &Pattern) -> Result<Value<'static>>,
) -> Result<Option<Value<'a>>> {
    let input = arguments[0].evaluate(frame)?;
    let made;
    let pattern = match prepared {
        Prepared::Regex(Some(pattern)) => Some(pattern),
        _ => {
            let regex = arguments[1].evaluate(frame)?;
            let options = arguments[2].evaluate(frame)?;
            made = compile(name, regex.or_undefined(), options.as_raw())?;
            made.as_ref()
        }
    };
    let text = match input.or_undefined() {
        RawValue::String(text) => Some(text),
        RawValue::Null | RawValue::Undefined => None,
        _ => return Err(fault(51104, format!("{name} needs 'input' to be of type string"))),
    };
    match (text, pattern) {
        (Some(text), Some(pattern)) => found(text, pattern).map(Some),
        _ => Ok(None),
    }
}

fn is_match<'a>(
    prepared: &'a Prepared,
    arguments: &'a [Expression],
    frame: Frame<'a>,
) -> Result<Value<'a>> {
    const NAME: &str = "$regexMatch";
    let found = with_pattern(NAME, prepared, arguments, frame, |text, pattern| {
        let found = pattern.is_match(text).map_err(|error| error.in_operator(NAME))?;
        Ok(found.into())
    })?;
    Ok(found.unwrap_or(false.into()))
}

fn find_first<'a>(
    prepared: &'a Prepared,
    arguments: &'a [Expression],
    frame: Frame<'a>,
) -> Result<Value<'a>> {
    const NAME: &str = "$regexFind";
    let found = with_pattern(NAME, prepared, arguments, frame, |text, pattern| {
        let mut groups = pattern.groups();
        let found = pattern.find_at(&mut groups, text, 0);
        if found.map_err(|error| error.in_operator(NAME))?.is_none() {
            return Ok(Value::NULL);
        }
        let mut out = DocBuilder::new();
        append(text, &mut CodePointCounter::default(), &groups, &mut out);
        document(out)
    })?;
    Ok(found.unwrap_or(Value::NULL))
}

fn find_all<'a>(
    prepared: &'a Prepared,
    arguments: &'a [Expression],
    frame: Frame<'a>,
) -> Result<Value<'a>> {
    const NAME: &str = "$regexFindAll";
    let found = with_pattern(NAME, prepared, arguments, frame, |text, pattern| {
        let mut out = DocBuilder::new_array();
        let mut groups = pattern.groups();
        let (mut from, mut counter) = (0, CodePointCounter::default());
        loop {
            spend(1)?;
            let found = pattern.find_at(&mut groups, text, from);
            let Some(whole) = found.map_err(|error| error.in_operator(NAME))? else { break };
            out.push_document();
            append(text, &mut counter, &groups, &mut out);
            out.end();
            check_size(out.len())?;
            // After an empty match the search advances by one character.
            let step = match whole.1.saturating_sub(whole.0) {
                0 => text[whole.1..].chars().next().map_or(1, char::len_utf8),
                _ => 0,
            };
            from = whole.1 + step;
            if from >= text.len() {
                break;
            }
        }
        array(out)
    })?;
    match found {
        Some(found) => Ok(found),
        None => array(DocBuilder::new_array()),
    }
}

/// The number of code points up to a byte offset, updated incrementally from match to match.
#[derive(Default)]
struct CodePointCounter {
    bytes: usize,
    points: usize,
}

impl CodePointCounter {
    fn up_to(&mut self, text: &str, bytes: usize) -> i32 {
        self.points += text.get(self.bytes..bytes).map_or(0, |part| part.chars().count());
        self.bytes = bytes;
        i32::try_from(self.points).unwrap_or(i32::MAX)
    }
}

/// Appends `{ match, idx, captures }`; `idx` counts code points.
fn append(text: &str, counter: &mut CodePointCounter, groups: &Groups, out: &mut DocBuilder) {
    let part = |(from, to): (usize, usize)| text.get(from..to).unwrap_or("");
    let whole = groups.get(0).unwrap_or((0, 0));
    out.append("match", part(whole));
    out.append("idx", counter.up_to(text, whole.0));
    out.start_array("captures");
    for group in 1..groups.count() {
        match groups.get(group) {
            Some(group) => out.push(part(group)),
            None => out.push(RawValue::Null),
        };
    }
    out.end();
}
