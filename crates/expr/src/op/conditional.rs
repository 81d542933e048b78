//! `$cond`, `$ifNull`.

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_value::RawValue;

use super::{OpRow, Operands, Run, own};
use crate::parse::{Parser, call};
use crate::{Expression, Frame, Value};

pub(super) const ROWS: &[OpRow] = &[
    own("$cond", "2.6", "One of two values, by a condition.", parse_cond),
    own("$ifNull", "2.2", "The first value that is neither null nor missing.", parse_if_null),
];

/// What calls of these operators show as their own; the forms they are written in differ.
const COND: &OpRow = &cond_row();
const IF_NULL: &OpRow = &if_null_row();

const fn cond_row() -> OpRow {
    OpRow {
        name: "$cond",
        help: "",
        since: "2.6",
        operands: Operands::List { least: 3, most: 3, run: cond },
    }
}

const fn if_null_row() -> OpRow {
    OpRow {
        name: "$ifNull",
        help: "",
        since: "2.2",
        operands: Operands::List { least: 2, most: usize::MAX, run: if_null },
    }
}

fn parse_cond(parser: &mut Parser<'_>, operand: RawValue<'_>) -> Result<Expression> {
    let run: Run = cond;
    let RawValue::Document(named) = operand else {
        let arguments = match operand {
            RawValue::Array(items) => parser.list(items)?,
            single => vec![parser.parse(single)?],
        };
        if arguments.len() != 3 {
            let given = arguments.len();
            let text =
                format!("Expression $cond takes exactly 3 arguments. {given} were passed in.");
            return Err(Error::new(ErrorCode(16020), text));
        }
        return call(COND, run, arguments);
    };
    let (mut condition, mut then, mut otherwise) = (None, None, None);
    for element in named {
        let place = match element.name() {
            "if" => &mut condition,
            "then" => &mut then,
            "else" => &mut otherwise,
            other => {
                let text = format!("Unrecognized parameter to $cond: {other}");
                return Err(Error::new(ErrorCode(17083), text));
            }
        };
        *place = Some(parser.parse(element.value())?);
    }
    let missing = |code: i32, name: &str| {
        Error::new(ErrorCode(code), format!("Missing '{name}' parameter to $cond"))
    };
    let condition = condition.ok_or_else(|| missing(17080, "if"))?;
    let then = then.ok_or_else(|| missing(17081, "then"))?;
    let otherwise = otherwise.ok_or_else(|| missing(17082, "else"))?;
    call(COND, run, vec![condition, then, otherwise])
}

fn cond<'a>(arguments: &'a [Expression], frame: Frame<'a>) -> Result<Value<'a>> {
    let chosen = if arguments[0].evaluate(frame)?.is_true() { 1 } else { 2 };
    arguments[chosen].evaluate(frame)
}

fn parse_if_null(parser: &mut Parser<'_>, operand: RawValue<'_>) -> Result<Expression> {
    let arguments = match operand {
        RawValue::Array(items) => parser.list(items)?,
        single => vec![parser.parse(single)?],
    };
    if arguments.len() < 2 {
        let text = format!("$ifNull needs at least two arguments, had: {}", arguments.len());
        return Err(Error::new(ErrorCode(1_257_300), text));
    }
    call(IF_NULL, if_null, arguments)
}

/// The last argument is the answer when nothing before it is one, null or missing as it may be.
fn if_null<'a>(arguments: &'a [Expression], frame: Frame<'a>) -> Result<Value<'a>> {
    let mut last = Value::Missing;
    for argument in arguments {
        last = argument.evaluate(frame)?;
        if !last.is_nullish() {
            break;
        }
    }
    Ok(last)
}
