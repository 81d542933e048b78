//! Parsing of accumulators.

use mayfly_value::arguments::error::mistyped;
use mayfly_value::arguments::error::{missing, unknown, wrong_type};
use std::sync::Arc;

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_value::shell::ShellValue;
use mayfly_value::{Number, RawDoc, RawElement, RawValue};

use super::{AccumRow, Accumulator, AccumulatorKind, ROWS, scripted};
use crate::op::{fault, n_and_input};
use crate::parse::Parser;
use crate::{Expression, Order, Scope};

/// Parses the value of a field of `$group`.
pub(super) fn field(field: RawElement<'_>, scope: &Scope) -> Result<Accumulator> {
    let name = field.name();
    let RawValue::Document(spec) = field.value() else {
        return Err(fault(40234, format!("The field '{name}' must be an accumulator object")));
    };
    let mut operators = spec.iter();
    let Some(element) = operators.next().filter(|element| element.name().starts_with('$')) else {
        return Err(fault(40234, format!("The field '{name}' must be an accumulator object")));
    };
    if operators.next().is_some() {
        return Err(fault(40238, format!("The field '{name}' must specify one accumulator")));
    }
    let Some(row) = ROWS.iter().find(|row| row.name == element.name()) else {
        if let RawValue::Array(_) = element.value() {
            return Err(unary(element.name()));
        }
        return Err(fault(15952, format!("unknown group operator '{}'", element.name())));
    };
    operator(row, element.value(), scope)
}

/// Parses the operand of an accumulator of a group.
pub(super) fn operator(
    row: &AccumRow,
    operand: RawValue<'_>,
    scope: &Scope,
) -> Result<Accumulator> {
    parsed(row, operand, scope, &|operand| match operand {
        RawValue::Array(_) => Err(unary(row.name)),
        operand => Expression::parse_in(operand, scope),
    })
}

/// Parses the operand of an accumulator that is a window function.
pub(super) fn window_operator(
    row: &AccumRow,
    operand: RawValue<'_>,
    scope: &Scope,
) -> Result<Accumulator> {
    parsed(row, operand, scope, &|operand| Expression::parse_in(operand, scope))
}

fn parsed(
    row: &AccumRow,
    operand: RawValue<'_>,
    scope: &Scope,
    argument: &dyn Fn(RawValue<'_>) -> Result<Expression>,
) -> Result<Accumulator> {
    let mut parsed = Accumulator {
        kind: row.kind,
        argument: Expression::Missing,
        n: None,
        order: None,
        shares: Arc::from([0.5]),
        functions: None,
        most_bytes: scope.accumulator_limits().of(row.kind),
        collation: scope.collation().cloned(),
    };
    match row.kind {
        AccumulatorKind::Count => {
            if let RawValue::Array(_) = operand {
                return Err(unary(row.name));
            }
            if !operand.as_document().is_some_and(RawDoc::is_empty) {
                return Err(mistyped("$count takes no arguments, i.e. $count:{}"));
            }
        }
        AccumulatorKind::FirstN
        | AccumulatorKind::LastN
        | AccumulatorKind::MinN
        | AccumulatorKind::MaxN => {
            one_operand(row, operand)?;
            let mut parser = Parser::new(scope);
            let (n, input) = n_and_input(&mut parser, row.name, operand)?;
            parser.finish()?;
            (parsed.n, parsed.argument) = (Some(n), input);
        }
        AccumulatorKind::Top
        | AccumulatorKind::TopN
        | AccumulatorKind::Bottom
        | AccumulatorKind::BottomN => {
            one_operand(row, operand)?;
            ranked(row, operand, scope, &mut parsed)?;
        }
        AccumulatorKind::Median | AccumulatorKind::Percentile => {
            one_operand(row, operand)?;
            let mut parser = Parser::new(scope);
            let codes = (7_436_100, 7_429_703);
            let (input, shares) = shares(row.name, operand, &mut parser, codes)?;
            parser.finish()?;
            (parsed.argument, parsed.shares) = (input, shares.into());
        }
        AccumulatorKind::Scripted => {
            let mut parser = Parser::new(scope);
            scripted::parse(operand, &mut parser, &mut parsed)?;
            parser.finish()?;
        }
        _ => parsed.argument = argument(operand)?,
    }
    Ok(parsed)
}

fn unary(name: &str) -> Error {
    fault(40237, format!("The {name} accumulator is a unary operator"))
}

/// Refuses an array, which would be several operands.
fn one_operand(row: &AccumRow, operand: RawValue<'_>) -> Result<()> {
    if matches!(operand, RawValue::Array(_)) { Err(unary(row.name)) } else { Ok(()) }
}

/// Parses `{ n, output, sortBy }`.
fn ranked(
    row: &AccumRow,
    operand: RawValue<'_>,
    scope: &Scope,
    parsed: &mut Accumulator,
) -> Result<()> {
    let name = row.name;
    let RawValue::Document(spec) = operand else {
        let text = format!("specification must be an object; found {name}: {operand:?}");
        return Err(fault(5_788_001, text));
    };
    let many = matches!(row.kind, AccumulatorKind::TopN | AccumulatorKind::BottomN);
    let (mut n, mut output, mut order) = (None, None, None);
    for part in spec {
        match part.name() {
            "n" if many => n = Some(part.value()),
            "output" => output = Some(part.value()),
            "sortBy" => order = Some(part.value()),
            other => {
                return Err(fault(5_788_002, format!("Unknown argument to {name} '{other}'")));
            }
        }
    }
    let missing = |code: i32, part: &str| fault(code, format!("Missing value for '{part}'"));
    if many {
        let n = n.ok_or_else(|| missing(5_788_003, "n"))?;
        parsed.n = Some(Expression::parse_in(n, scope)?);
    }
    let output = output.ok_or_else(|| missing(5_788_004, "output"))?;
    let order = order.ok_or_else(|| missing(5_788_005, "sortBy"))?;
    parsed.argument = Expression::parse_in(output, scope)?;
    let RawValue::Document(pattern) = order else {
        let text = "invalid parameter: expected an object (sortBy)";
        return Err(Error::new(ErrorCode(10065), text));
    };
    parsed.order = Some(Order::parse_pattern(pattern)?);
    Ok(())
}

/// Parses `{ input, p, method }`; `$median` has no `p`. The codes for another operand, of `$median`
/// and of `$percentile`, are those of the accumulators or of the expressions.
pub(crate) fn shares(
    name: &'static str,
    operand: RawValue<'_>,
    parser: &mut Parser<'_>,
    codes: (i32, i32),
) -> Result<(Expression, Vec<f64>)> {
    let RawValue::Document(spec) = operand else {
        let code = if name == "$median" { codes.0 } else { codes.1 };
        let text =
            format!("specification must be an object; found {name}: {}", ShellValue(operand));
        return Err(fault(code, text));
    };
    let (mut input, mut p, mut method) = (None, None, None);
    for part in spec {
        match part.name() {
            "input" => input = Some(part.value()),
            "p" if name == "$percentile" => p = Some(part.value()),
            "method" => method = Some(part.value()),
            other => {
                return Err(unknown(format_args!("{name}.{other}")));
            }
        }
    }
    let missing = |part: &str| missing(format_args!("{name}.{part}"));
    let input = input.ok_or_else(|| missing("input"))?;
    if name == "$percentile" && p.is_none() {
        return Err(missing("p"));
    }
    let method = match method.ok_or_else(|| missing("method"))? {
        RawValue::String(method) => method,
        other => {
            return Err(wrong_type(format_args!("{name}.method"), other, "string"));
        }
    };
    let shares = match p {
        None => vec![0.5],
        Some(p) => {
            let p = parser.parse(p)?;
            let constant = p.as_constant().ok_or_else(|| {
                let text = "The $percentile 'p' field must be an array of constant values";
                fault(7_750_300, text)
            })?;
            read_shares(constant)?
        }
    };
    if method != "approximate" {
        let text = "Currently only 'approximate' can be used as a percentile 'method'.";
        return Err(Error::bad_value(text));
    }
    Ok((parser.parse_collated(input)?, shares))
}

fn read_shares(p: RawValue<'_>) -> Result<Vec<f64>> {
    let wrong = |code: i32, found: RawValue<'_>| {
        let shown = ShellValue(found);
        let text = format!(
            "The $percentile 'p' field must be an array of numbers from [0.0, 1.0], but found: {shown}"
        );
        fault(code, text)
    };
    let RawValue::Array(items) = p else { return Err(wrong(7_750_301, p)) };
    let mut shares = Vec::new();
    for item in items {
        let number =
            Number::from_value(item.value()).ok_or_else(|| wrong(7_750_302, item.value()))?;
        let share = number.to_f64();
        if !(0.0..=1.0).contains(&share) {
            return Err(wrong(7_750_303, item.value()));
        }
        shares.push(share);
    }
    if shares.is_empty() {
        return Err(wrong(7_750_301, p));
    }
    Ok(shares)
}
