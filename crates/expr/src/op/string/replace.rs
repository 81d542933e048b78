//! `$replaceOne`, `$replaceAll`.

use mayfly_base::Result;
use mayfly_value::RawValue;

use super::super::operand::{check_text, fault, parts, required, text};
use super::super::{OpRow, Prepared, own};
use crate::parse::Parser;
use crate::{Expression, Frame, Value};

pub(in crate::op) const ROWS: &[OpRow] = &[
    own("$replaceOne", "4.4", "The first occurrence replaced.", parse),
    own("$replaceAll", "4.4", "All occurrences replaced.", parse),
];

fn parse(
    parser: &mut Parser<'_>,
    row: &'static OpRow,
    operand: RawValue<'_>,
) -> Result<Expression> {
    let name = row.name;
    let [input, find, replacement] = parts(
        operand,
        ["input", "find", "replacement"],
        |found| fault(51751, format!("{name} requires an object as an argument, found: {found}")),
        |part| fault(51750, format!("{name} found an unknown argument: {part}")),
    )?;
    let mut arguments = Vec::with_capacity(3);
    for (part, code, which) in
        [(input, 51749, "input"), (find, 51748, "find"), (replacement, 51747, "replacement")]
    {
        arguments.push(required(parser, part, || {
            fault(code, format!("{name} requires '{which}' to be specified"))
        })?);
    }
    parser.ready(row, replace, Prepared::Which(name), arguments)
}

fn replace<'a>(
    prepared: &'a Prepared,
    arguments: &'a [Expression],
    frame: Frame<'a>,
) -> Result<Value<'a>> {
    let Prepared::Which(name) = *prepared else { return Ok(Value::NULL) };
    let mut values = Vec::with_capacity(3);
    for argument in arguments {
        values.push(argument.evaluate(frame)?);
    }
    let mut texts = [None; 3];
    let codes = [(10_503_904, "input"), (10_503_901, "find"), (10_503_902, "replacement")];
    for ((value, (code, which)), place) in values.iter().zip(codes).zip(&mut texts) {
        match value.or_undefined() {
            RawValue::String(text) => *place = Some(text),
            RawValue::Null | RawValue::Undefined => {}
            _ => {
                let found = value.type_name();
                let text = format!("{name} requires that '{which}' be a string, found: {found}");
                return Err(fault(code, text));
            }
        }
    }
    let [Some(input), Some(find), Some(replacement)] = texts else { return Ok(Value::NULL) };
    if name == "$replaceOne" {
        return text(&input.replacen(find, replacement, 1));
    }
    let times = input.matches(find).count();
    let kept = input.len() - times * find.len();
    check_text(kept.saturating_add(times.saturating_mul(replacement.len())))?;
    text(&input.replace(find, replacement))
}
