//! Accumulators over the arguments of one document: `$sum`, `$avg`, `$min`, `$max`, `$stdDevPop`,
//! `$stdDevSamp`, `$median`, `$percentile`. A single array argument provides its items.

use std::sync::Arc;

use mayfly_base::Result;
use mayfly_value::{Number, RawValue};

use super::{OpRow, Prepared, own};
use crate::accum::{AccumState, AccumulatorKind, median, percentiles, shares, sorted_numbers};
use crate::parse::Parser;
use crate::{Expression, Frame, Value};

pub(super) const ROWS: &[OpRow] = &[
    own("$sum", "3.2", "The sum of the numbers.", parse),
    own("$avg", "3.2", "The mean of the numbers.", parse),
    own("$min", "3.2", "The least value.", parse),
    own("$max", "3.2", "The greatest value.", parse),
    own("$stdDevPop", "3.2", "The standard deviation of a population.", parse),
    own("$stdDevSamp", "3.2", "The standard deviation of a sample.", parse),
    own("$median", "7.0", "The median of the numbers.", parse_shares),
    own("$percentile", "7.0", "Quantiles of the numbers.", parse_shares),
];

fn parse(
    parser: &mut Parser<'_>,
    row: &'static OpRow,
    operand: RawValue<'_>,
) -> Result<Expression> {
    let arguments = parser.arguments(operand)?;
    parser.ready(row, run, Prepared::Which(row.name), arguments)
}

fn run<'a>(
    prepared: &'a Prepared,
    arguments: &'a [Expression],
    frame: Frame<'a>,
) -> Result<Value<'a>> {
    let kind = match prepared {
        Prepared::Which("$sum") => AccumulatorKind::Sum,
        Prepared::Which("$avg") => AccumulatorKind::Avg,
        Prepared::Which("$min") => AccumulatorKind::Min,
        Prepared::Which("$max") => AccumulatorKind::Max,
        Prepared::Which("$stdDevPop") => AccumulatorKind::StdDevPop,
        _ => AccumulatorKind::StdDevSamp,
    };
    let mut state = AccumState::new(kind, 1);
    if let [single] = arguments {
        let value = single.evaluate(frame)?;
        match value.or_undefined() {
            RawValue::Array(items) => {
                for item in items {
                    state.put(Some(item.value()), frame.collation())?;
                }
            }
            _ => state.put(value.as_raw(), frame.collation())?,
        }
    } else {
        for argument in arguments {
            state.put(argument.evaluate(frame)?.as_raw(), frame.collation())?;
        }
    }
    Ok(state.finish(&[])?.map_or(Value::Missing, Value::Owned))
}

fn parse_shares(
    parser: &mut Parser<'_>,
    row: &'static OpRow,
    operand: RawValue<'_>,
) -> Result<Expression> {
    let (input, shares) = shares(row.name, operand, parser, (7_436_201, 7_436_200))?;
    let prepared = Prepared::Shares(Arc::from(shares), row.name == "$median");
    parser.ready(row, run_shares, prepared, vec![input])
}

fn run_shares<'a>(
    prepared: &'a Prepared,
    arguments: &'a [Expression],
    frame: Frame<'a>,
) -> Result<Value<'a>> {
    let Prepared::Shares(shares, is_median) = prepared else { return Ok(Value::NULL) };
    let input = arguments[0].evaluate(frame)?;
    let numbers = match input.or_undefined() {
        RawValue::Array(items) => sorted_numbers(items.iter().map(|item| item.value())),
        single => Number::from_value(single)
            .map(Number::to_f64)
            .filter(|number| !number.is_nan())
            .into_iter()
            .collect(),
    };
    Ok(Value::Owned(match is_median {
        true => median(&numbers),
        false => percentiles(&numbers, shares),
    }))
}
