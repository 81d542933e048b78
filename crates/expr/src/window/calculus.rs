//! `$derivative`, `$integral`, `$expMovingAvg`, `$covariancePop`, `$covarianceSamp`.

use mayfly_base::Result;
use mayfly_value::{DocBuf, Number, RawValue, ValueBuf};

use super::bounds::reaches;
use super::{WindowFunction, null};
use crate::Expression;
use crate::op::{Unit, fault};

/// How much of a mean the newest value is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Alpha(pub(super) Number);

fn divided(left: Number, right: Number) -> Number {
    match (left, right) {
        (Number::Decimal(_), _) | (_, Number::Decimal(_)) => {
            Number::Decimal(left.to_decimal().divided_by(right.to_decimal()))
        }
        _ => Number::Double(left.to_f64() / right.to_f64()),
    }
}

fn owned(number: Number) -> Option<ValueBuf> {
    Some(number.to_value().to_owned())
}

/// Where a document stands on the axis: a number, or milliseconds when there is a unit.
fn place(name: &str, codes: [i32; 3], value: RawValue<'_>, unit: Option<Unit>) -> Result<Number> {
    match (unit, value) {
        (Some(_), RawValue::Date(ms)) => Ok(Number::Int64(ms)),
        (Some(_), _) => {
            let text = format!("{name} with 'unit' expects the sortBy field to be a Date");
            Err(fault(codes[0], text))
        }
        (None, RawValue::Date(_)) => {
            let text = format!("{name} where the sortBy is a Date requires an 'unit'");
            Err(fault(codes[1], text))
        }
        (None, value) => Number::from_value(value).ok_or_else(|| {
            let text = format!("{name} (with no 'unit') expects the sortBy field to be numeric");
            fault(codes[2], text)
        }),
    }
}

/// Milliseconds as units.
fn in_units(width: Number, unit: Option<Unit>) -> Number {
    match unit.and_then(Unit::fixed_ms) {
        Some(ms) => divided(width, Number::Int64(ms)),
        None => width,
    }
}

/// The slope between the first and the last document of the window.
pub(super) fn derivative(
    function: &WindowFunction,
    input: &Expression,
    unit: Option<Unit>,
    partition: &[DocBuf],
) -> Result<Vec<Option<ValueBuf>>> {
    const NAME: &str = "$derivative";
    let values = function.values(input, partition)?;
    let places = function.sort_values(partition);
    let mut results = Vec::with_capacity(partition.len());
    for (from, to) in reaches(function, partition)? {
        if to <= from + 1 {
            results.push(Some(null()));
            continue;
        }
        let point = |at: usize| -> Result<(Number, Number)> {
            let codes = [5_624_900, 5_624_901, 5_624_902];
            let x = place(NAME, codes, places[at].as_raw(), unit)?;
            let y = match values[at].as_ref().map(ValueBuf::as_raw) {
                // Dates count as their milliseconds.
                Some(RawValue::Date(ms)) => Some(Number::Int64(ms)),
                other => other.and_then(Number::from_value),
            };
            let y =
                y.ok_or_else(|| fault(5_624_903, "$derivative input must not be null or missing"))?;
            Ok((x, y))
        };
        let (left, right) = (point(from)?, point(to - 1)?);
        let width = in_units(right.0.minus(left.0), unit);
        results.push(if width.compare(Number::Int32(0)).is_eq() {
            Some(null())
        } else {
            owned(divided(right.1.minus(left.1), width))
        });
    }
    Ok(results)
}

/// The area under straight lines between the documents of the window. Documents without a number are left out.
pub(super) fn integral(
    function: &WindowFunction,
    input: &Expression,
    unit: Option<Unit>,
    partition: &[DocBuf],
) -> Result<Vec<Option<ValueBuf>>> {
    let values = function.values(input, partition)?;
    let sort_values = function.sort_values(partition);
    // Sums of areas up to each document, so that a window is a difference; exact where the numbers are.
    let mut points = Vec::with_capacity(partition.len());
    for (value, place_value) in values.iter().zip(&sort_values) {
        let codes = [5_423_901, 5_423_902, 5_423_902];
        let x = place("$integral", codes, place_value.as_raw(), unit)?;
        let y = value.as_ref().and_then(|value| Number::from_value(value.as_raw()));
        points.push(y.map(|y| (x, y)));
    }
    let mut results = Vec::with_capacity(partition.len());
    for (from, to) in reaches(function, partition)? {
        let mut sum = Number::Int32(0);
        let mut before: Option<(Number, Number)> = None;
        for point in points[from..to].iter().flatten() {
            if let Some(before) = before {
                let height = divided(before.1.plus(point.1), Number::Int32(2));
                sum = sum.plus(height.times(point.0.minus(before.0)));
            }
            before = Some(*point);
        }
        results.push(owned(in_units(sum, unit)));
    }
    Ok(results)
}

/// The newest value by its share, what was before by the rest.
pub(super) fn fading(
    function: &WindowFunction,
    input: &Expression,
    alpha: &Alpha,
    partition: &[DocBuf],
) -> Result<Vec<Option<ValueBuf>>> {
    let mut mean: Option<Number> = None;
    let mut results = Vec::with_capacity(partition.len());
    for value in function.values(input, partition)? {
        if let Some(number) = value.and_then(|value| Number::from_value(value.as_raw())) {
            let rest = Number::Int32(1).minus(alpha.0);
            mean = Some(match mean {
                None => number,
                Some(before) => number.times(alpha.0).plus(before.times(rest)),
            });
        }
        results.push(mean.map_or_else(|| Some(null()), owned));
    }
    Ok(results)
}

/// How two values vary together; pairs that are not two numbers are left out.
pub(super) fn covariance(
    function: &WindowFunction,
    pair: &[Expression; 2],
    sample: bool,
    partition: &[DocBuf],
) -> Result<Vec<Option<ValueBuf>>> {
    let [first, second] = pair;
    let (first, second) = (function.values(first, partition)?, function.values(second, partition)?);
    let number = |value: &Option<ValueBuf>| {
        value.as_ref().and_then(|value| Number::from_value(value.as_raw())).map(Number::to_f64)
    };
    let pairs: Vec<Option<(f64, f64)>> =
        first.iter().zip(&second).map(|(x, y)| number(x).zip(number(y))).collect();
    let mut results = Vec::with_capacity(partition.len());
    for (from, to) in reaches(function, partition)? {
        let (mut count, mut mean_x, mut mean_y, mut moment) = (0.0, 0.0, 0.0, 0.0);
        for (x, y) in pairs[from..to].iter().flatten() {
            count += 1.0;
            let before = x - mean_x;
            mean_x += before / count;
            mean_y += (y - mean_y) / count;
            moment += before * (y - mean_y);
        }
        let by = if sample { count - 1.0 } else { count };
        results.push(if by > 0.0 { owned(Number::Double(moment / by)) } else { Some(null()) });
    }
    Ok(results)
}
