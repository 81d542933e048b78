//! `$encStrStartsWith`, `$encStrEndsWith`, `$encStrContains`, `$encStrNormalizedEq`: searches in
//! encrypted strings.
//!
//! A client replaces the searched text by tokens, in its analysis of the query. Without it the
//! expression cannot be evaluated. Evaluating tokens is not implemented either.

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_value::RawValue;
use mayfly_value::arguments::error::{missing, unknown, wrong_type};

use super::operand::fault;
use super::{OpRow, Prepared, own};
use crate::parse::Parser;
use crate::{Expression, Frame, Value};

pub(super) const ROWS: &[OpRow] = &[
    own("$encStrContains", "8.2", "Whether an encrypted string contains a text.", parse),
    own("$encStrEndsWith", "8.2", "Whether an encrypted string ends with a text.", parse),
    own("$encStrNormalizedEq", "8.2", "Whether a normalized string equals a text.", parse),
    own("$encStrStartsWith", "8.2", "Whether an encrypted string begins with a text.", parse),
];

/// The name of the searched text, and the code of a text that no client has replaced.
fn facts(name: &str) -> (&'static str, i32) {
    match name {
        "$encStrContains" => ("substring", 10_208_801),
        "$encStrEndsWith" => ("suffix", 10_120_901),
        "$encStrNormalizedEq" => ("string", 10_255_700),
        _ => ("prefix", 10_111_808),
    }
}

fn parse(
    parser: &mut Parser<'_>,
    row: &'static OpRow,
    operand: RawValue<'_>,
) -> Result<Expression> {
    let name = row.name;
    let (part, _) = facts(name);
    let RawValue::Document(fields) = operand else {
        let text = format!("invalid parameter: expected an object ({name})");
        return Err(Error::new(ErrorCode(10065), text));
    };
    let (mut input, mut text) = (None, false);
    for field in fields {
        let path = || format!("{name}.{}", field.name());
        match (field.name(), field.value()) {
            ("input", value @ RawValue::String(_)) => input = Some(parser.parse(value)?),
            ("input", other) => return Err(wrong_type(path(), other, "string")),
            (given, RawValue::String(_) | RawValue::Binary { .. }) if given == part => text = true,
            (given, other) if given == part => {
                return Err(wrong_type(path(), other, "[string, binData]"));
            }
            _ => return Err(unknown(path())),
        }
    }
    let input = input.ok_or_else(|| missing(format!("{name}.input")))?;
    if !text {
        return Err(missing(format!("{name}.{part}")));
    }
    parser.ready(row, run, Prepared::Which(name), vec![input])
}

fn run<'a>(
    prepared: &'a Prepared,
    arguments: &'a [Expression],
    frame: Frame<'a>,
) -> Result<Value<'a>> {
    let Prepared::Which(name) = *prepared else { return Ok(Value::NULL) };
    if arguments[0].evaluate(frame)?.is_nullish() {
        return Ok(Value::NULL);
    }
    let text = format!("{name} cannot be evaluated without the client's analysis of the query");
    Err(fault(facts(name).1, text))
}
