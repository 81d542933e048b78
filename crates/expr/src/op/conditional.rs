//! `$cond`, `$ifNull`, `$switch`.

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_value::RawValue;

use super::operand::{fault, parts};
use super::{OpRow, Run, own};
use crate::parse::{Parser, is_constant};
use crate::{Expression, Frame, Value};

pub(super) const ROWS: &[OpRow] = &[
    own("$cond", "2.6", "One of two values, by a condition.", parse_cond),
    own("$ifNull", "2.2", "The first value that is neither null nor missing.", parse_if_null),
    own("$switch", "3.4", "The value of the first case that is true.", parse_switch),
];

fn parse_cond(
    parser: &mut Parser<'_>,
    row: &'static OpRow,
    operand: RawValue<'_>,
) -> Result<Expression> {
    let run: Run = cond;
    let RawValue::Document(named) = operand else {
        let arguments = parser.arguments(operand)?;
        if arguments.len() != 3 {
            let given = arguments.len();
            let text =
                format!("Expression $cond takes exactly 3 arguments. {given} were passed in.");
            return Err(Error::new(ErrorCode(16020), text));
        }
        return parser.call(row, run, arguments);
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
    parser.call(row, run, vec![condition, then, otherwise])
}

fn cond<'a>(arguments: &'a [Expression], frame: Frame<'a>) -> Result<Value<'a>> {
    let chosen = if arguments[0].evaluate(frame)?.is_true() { 1 } else { 2 };
    arguments[chosen].evaluate(frame)
}

fn parse_if_null(
    parser: &mut Parser<'_>,
    row: &'static OpRow,
    operand: RawValue<'_>,
) -> Result<Expression> {
    let arguments = parser.arguments(operand)?;
    if arguments.len() < 2 {
        let text = format!("$ifNull needs at least two arguments, had: {}", arguments.len());
        return Err(Error::new(ErrorCode(1_257_300), text));
    }
    parser.call(row, if_null, arguments)
}

/// Returns the first argument that is neither null nor missing, or else the last one.
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

/// Parses `$switch`. The arguments are alternately cases and their values, followed by the default
/// if there is one. A branch that is never taken is dropped with the errors of its constants: one
/// whose case is always false, and what follows a case that is always true.
fn parse_switch(
    parser: &mut Parser<'_>,
    row: &'static OpRow,
    operand: RawValue<'_>,
) -> Result<Expression> {
    let [branches, default] = parts(
        operand,
        ["branches", "default"],
        |found| fault(40060, format!("$switch requires an object as an argument, found: {found}")),
        |name| fault(40067, format!("$switch found an unknown argument: {name}")),
    )?;
    let mut arguments = Vec::new();
    let (mut given, mut decided) = (false, false);
    if let Some(branches) = branches {
        let RawValue::Array(branches) = branches else {
            let found = branches.type_name();
            let text = format!("$switch expected an array for 'branches', found: {found}");
            return Err(fault(40061, text));
        };
        for branch in branches {
            let (case, then) = branch_of(branch.value())?;
            given = true;
            let (case, case_error) = parser.apart(|parser| parser.parse(case))?;
            let (then, then_error) = parser.apart(|parser| parser.parse(then))?;
            let truth = is_constant(&case).then(|| {
                let known = case.as_constant().map(Value::Borrowed);
                known.is_some_and(|known| known.is_true())
            });
            if decided || truth == Some(false) {
                continue;
            }
            decided = truth == Some(true);
            parser.defer(case_error.or(then_error));
            arguments.extend([case, then]);
        }
    }
    if !given {
        return Err(fault(40068, "$switch requires at least one branch"));
    }
    if let Some(default) = default {
        let (default, error) = parser.apart(|parser| parser.parse(default))?;
        if !decided {
            parser.defer(error);
            arguments.push(default);
        }
    }
    if arguments.is_empty() {
        let text = "Cannot execute a switch statement where all the cases evaluate to false \
                    without a default";
        parser.defer(Some(fault(40069, text)));
    }
    parser.call(row, switch, arguments)
}

/// The parts of a branch of `$switch`.
fn branch_of(branch: RawValue<'_>) -> Result<(RawValue<'_>, RawValue<'_>)> {
    let [case, then] = parts(
        branch,
        ["case", "then"],
        |found| {
            fault(40062, format!("$switch expected each branch to be an object, found: {found}"))
        },
        |name| fault(40063, format!("$switch found an unknown argument to a branch: {name}")),
    )?;
    let case =
        case.ok_or_else(|| fault(40064, "$switch requires each branch have a 'case' expression"))?;
    let then =
        then.ok_or_else(|| fault(40065, "$switch requires each branch have a 'then' expression."))?;
    Ok((case, then))
}

fn switch<'a>(arguments: &'a [Expression], frame: Frame<'a>) -> Result<Value<'a>> {
    let mut rest = arguments;
    while let [case, then, tail @ ..] = rest {
        if case.evaluate(frame)?.is_true() {
            return then.evaluate(frame);
        }
        rest = tail;
    }
    match rest.first() {
        Some(default) => default.evaluate(frame),
        None => {
            let text = "$switch could not find a matching branch for an input, and no default was \
                        specified.";
            Err(fault(40066, text))
        }
    }
}
