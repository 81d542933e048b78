//! `$trim`, `$ltrim`, `$rtrim`: without `chars` they remove white space and the NUL character.

use mayfly_base::Result;
use mayfly_value::RawValue;
use mayfly_value::shell::ShellValue;

use super::super::operand::{fault, optional, parts, required, text};
use super::super::{OpRow, Prepared, own};
use crate::parse::Parser;
use crate::{Expression, Frame, Value};

pub(in crate::op) const ROWS: &[OpRow] = &[
    own("$trim", "4.0", "The string without characters at both ends.", parse),
    own("$ltrim", "4.0", "The string without characters at the beginning.", parse),
    own("$rtrim", "4.0", "The string without characters at the end.", parse),
];

/// A string of at most this length is searched for each character of the input. A longer one is
/// made into a set first, because the time of the searches would be the product of both lengths.
const FEW_BYTES: usize = 64;

/// A set of characters: one bit for each code point.
struct CharacterSet(Vec<u64>);

impl CharacterSet {
    fn of(text: &str) -> CharacterSet {
        let mut bits = vec![0; char::MAX as usize / 64 + 1];
        text.chars().for_each(|letter| bits[letter as usize / 64] |= 1 << (letter as usize % 64));
        CharacterSet(bits)
    }

    fn contains(&self, letter: char) -> bool {
        self.0[letter as usize / 64] >> (letter as usize % 64) & 1 == 1
    }
}

/// The characters removed by default.
fn is_space(letter: char) -> bool {
    matches!(letter, '\0' | '\t'..='\r' | ' ' | '\u{A0}' | '\u{1680}' | '\u{2000}'..='\u{200A}')
}

fn parse(
    parser: &mut Parser<'_>,
    row: &'static OpRow,
    operand: RawValue<'_>,
) -> Result<Expression> {
    let name = row.name;
    let [input, chars] = parts(
        operand,
        ["input", "chars"],
        |found| {
            fault(50696, format!("{name} only supports an object as an argument, found {found}"))
        },
        |part| fault(50694, format!("{name} found an unknown argument: {part}")),
    )?;
    let input =
        required(parser, input, || fault(50695, format!("{name} requires an 'input' field")))?;
    let chars = optional(parser, chars)?;
    parser.ready(row, trim, Prepared::Which(name), vec![input, chars])
}

fn trim<'a>(
    prepared: &'a Prepared,
    arguments: &'a [Expression],
    frame: Frame<'a>,
) -> Result<Value<'a>> {
    let Prepared::Which(name) = *prepared else { return Ok(Value::NULL) };
    let input = arguments[0].evaluate(frame)?;
    if input.is_nullish() {
        return Ok(Value::NULL);
    }
    let RawValue::String(whole) = input.or_undefined() else {
        let (shown, found) = (ShellValue(input.or_undefined()), input.type_name());
        let text = format!(
            "{name} requires its input to be a string, got {shown} (of type {found}) instead."
        );
        return Err(fault(50699, text));
    };
    let goes = |goes: &dyn Fn(char) -> bool| -> Result<Value<'a>> {
        text(match name {
            "$ltrim" => whole.trim_start_matches(goes),
            "$rtrim" => whole.trim_end_matches(goes),
            _ => whole.trim_matches(goes),
        })
    };
    if matches!(arguments[1], Expression::Absent) {
        return goes(&is_space);
    }
    let chars = arguments[1].evaluate(frame)?;
    match chars.or_undefined() {
        RawValue::String(chars) if chars.len() <= FEW_BYTES => {
            goes(&|letter| chars.contains(letter))
        }
        RawValue::String(chars) => {
            let set = CharacterSet::of(chars);
            goes(&|letter| set.contains(letter))
        }
        RawValue::Null | RawValue::Undefined => Ok(Value::NULL),
        other => {
            let (shown, found) = (ShellValue(other), chars.type_name());
            let text = format!(
                "{name} requires 'chars' to be a string, got {shown} (of type {found}) instead."
            );
            Err(fault(50700, text))
        }
    }
}
