//! `$firstN`, `$lastN`, `$minN`, `$maxN` over an array. The accumulators with these names validate
//! `n` in the same way.

use mayfly_base::Result;
use mayfly_value::shell::ShellValue;
use mayfly_value::{DocBuilder, Number, RawValue, compare_values_in};

use super::super::operand::{array, fault, parts, required};
use super::super::{OpRow, Prepared, own};
use crate::parse::Parser;
use crate::{Expression, Frame, Value};

pub(in crate::op) const ROWS: &[OpRow] = &[
    own("$firstN", "5.2", "The first n items.", parse),
    own("$lastN", "5.2", "The last n items.", parse),
    own("$minN", "5.2", "The n least items, from the least.", parse),
    own("$maxN", "5.2", "The n greatest items, from the greatest.", parse),
];

/// Parses `{ n: ..., input: ... }`, for the operators and the accumulators.
pub(crate) fn n_and_input(
    parser: &mut Parser<'_>,
    name: &str,
    operand: RawValue<'_>,
) -> Result<(Expression, Expression)> {
    let code = if matches!(name, "$firstN" | "$lastN") { 5_787_801 } else { 5_787_900 };
    let shown = ShellValue(operand);
    let [n, input] = parts(
        operand,
        ["n", "input"],
        |_| fault(code, format!("specification must be an object; found {name}: {shown}")),
        |name| fault(5_787_901, format!("Unknown argument for 'n' operator: {name}")),
    )?;
    let n = required(parser, n, || fault(5_787_906, "Missing value for 'n'"))?;
    let input = required(parser, input, || fault(5_787_907, "Missing value for 'input'"))?;
    Ok((n, input))
}

/// Validates the value of `n`.
///
/// # Errors
/// 5787902 for a value that is not a number, 5787903 for a fraction, 5787908 below 1.
pub(crate) fn check_n(value: &Value<'_>) -> Result<usize> {
    let shown = ShellValue(value.or_undefined());
    let Some(number) = Number::from_value(value.or_undefined()) else {
        let text = format!("Value for 'n' must be of integral type, but found {shown}");
        return Err(fault(5_787_902, text));
    };
    let Some(n) = number.to_i64_exact() else {
        let text = format!("Value for 'n' must be of integral type, but found {shown}");
        return Err(fault(5_787_903, text));
    };
    if n <= 0 {
        return Err(fault(5_787_908, format!("'n' must be greater than 0, found {n}")));
    }
    Ok(usize::try_from(n).unwrap_or(usize::MAX))
}

fn parse(
    parser: &mut Parser<'_>,
    row: &'static OpRow,
    operand: RawValue<'_>,
) -> Result<Expression> {
    let (n, input) = n_and_input(parser, row.name, operand)?;
    parser.ready(row, run, Prepared::Which(row.name), vec![n, input])
}

fn run<'a>(
    prepared: &'a Prepared,
    arguments: &'a [Expression],
    frame: Frame<'a>,
) -> Result<Value<'a>> {
    let n = check_n(&arguments[0].evaluate(frame)?)?;
    let input = arguments[1].evaluate(frame)?;
    let RawValue::Array(items) = input.or_undefined() else {
        return Err(fault(5_788_200, "Input must be an array"));
    };
    let mut items: Vec<RawValue<'_>> = items.iter().map(|item| item.value()).collect();
    let order = |a: &RawValue<'_>, b: &RawValue<'_>| compare_values_in(*a, *b, frame.collation());
    let nullish = |item: &RawValue<'_>| matches!(item, RawValue::Null | RawValue::Undefined);
    match prepared {
        Prepared::Which("$lastN") => drop(items.drain(..items.len().saturating_sub(n))),
        Prepared::Which("$minN") => {
            items.retain(|item| !nullish(item));
            items.sort_by(order);
        }
        Prepared::Which("$maxN") => {
            items.retain(|item| !nullish(item));
            items.sort_by(|a, b| order(b, a));
        }
        _ => {}
    }
    items.truncate(n);
    let mut out = DocBuilder::new_array();
    for item in items {
        out.push(item);
    }
    array(out)
}
