//! `$derivative`, `$integral`, `$expMovingAvg`.

use mayfly_base::Result;
use mayfly_value::{DocBuf, Number, RawValue, ValueBuf};

use super::bounds::reaches;
use super::{WindowFunction, null};
use crate::Expression;
use crate::op::{Unit, fault};

/// The weight of the newest value in a moving average.
#[derive(Clone, Copy, Debug)]
pub(super) struct Alpha(pub(super) Number);

pub(super) fn divided(left: Number, right: Number) -> Number {
    match (left, right) {
        (Number::Decimal(_), _) | (_, Number::Decimal(_)) => {
            Number::Decimal(left.to_decimal().divided_by(right.to_decimal()))
        }
        _ => Number::Double(left.to_f64() / right.to_f64()),
    }
}

/// The position of a document on the axis: a number, or milliseconds with a unit.
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

/// Converts milliseconds to units.
fn in_units(width: Number, unit: Option<Unit>) -> Number {
    match unit.and_then(Unit::fixed_ms) {
        Some(ms) => divided(width, Number::Int64(ms)),
        None => width,
    }
}

/// The slope between the first and the last document of a sequence.
#[derive(Default)]
pub(super) struct Slope {
    first: Option<Point>,
    last: Option<Point>,
}

/// The sort value of a document, and its input value.
type Point = (ValueBuf, Option<ValueBuf>);

impl Slope {
    pub(super) fn push(&mut self, place: ValueBuf, value: Option<ValueBuf>) {
        match self.first {
            None => self.first = Some((place, value)),
            Some(_) => self.last = Some((place, value)),
        }
    }

    pub(super) fn result(&self, unit: Option<Unit>) -> Result<ValueBuf> {
        let (Some(first), Some(last)) = (&self.first, &self.last) else { return Ok(null()) };
        slope(first, last, unit)
    }
}

fn slope(first: &Point, last: &Point, unit: Option<Unit>) -> Result<ValueBuf> {
    let point = |(place_value, value): &Point| -> Result<(Number, Number)> {
        let codes = [5_624_900, 5_624_901, 5_624_902];
        let x = place("$derivative", codes, place_value.as_raw(), unit)?;
        let y = match value.as_ref().map(ValueBuf::as_raw) {
            // Dates count as milliseconds.
            Some(RawValue::Date(ms)) => Some(Number::Int64(ms)),
            other => other.and_then(Number::from_value),
        };
        let y =
            y.ok_or_else(|| fault(5_624_903, "$derivative input must not be null or missing"))?;
        Ok((x, y))
    };
    let (left, right) = (point(first)?, point(last)?);
    let width = in_units(right.0.minus(left.0), unit);
    Ok(match width.compare(Number::Int32(0)).is_eq() {
        true => null(),
        false => divided(right.1.minus(left.1), width).to_value().to_owned(),
    })
}

/// The slope between the first and the last document of each window.
pub(super) fn derivative(
    function: &WindowFunction,
    input: &Expression,
    unit: Option<Unit>,
    partition: &[DocBuf],
) -> Result<Vec<Option<ValueBuf>>> {
    let values = function.values(input, partition)?;
    let places = function.sort_values(partition);
    let points: Vec<Point> = places.into_iter().zip(values).collect();
    let result = |(from, to): (usize, usize)| match to <= from + 1 {
        true => Ok(Some(null())),
        false => slope(&points[from], &points[to - 1], unit).map(Some),
    };
    reaches(function, partition)?.into_iter().map(result).collect()
}

/// The area below straight lines between the documents of a sequence. Documents without a number
/// are skipped.
#[derive(Default)]
pub(super) struct Area {
    sum: Option<Number>,
    before: Option<(Number, Number)>,
}

/// A document as a point of the curve; `None` when its value is not a number.
fn edge(
    place_value: RawValue<'_>,
    value: Option<RawValue<'_>>,
    unit: Option<Unit>,
) -> Result<Option<(Number, Number)>> {
    let codes = [5_423_901, 5_423_902, 5_423_902];
    let x = place("$integral", codes, place_value, unit)?;
    Ok(value.and_then(Number::from_value).map(|y| (x, y)))
}

impl Area {
    pub(super) fn push_value(
        &mut self,
        place_value: RawValue<'_>,
        value: Option<RawValue<'_>>,
        unit: Option<Unit>,
    ) -> Result<()> {
        if let Some(point) = edge(place_value, value, unit)? {
            self.push(point);
        }
        Ok(())
    }

    fn push(&mut self, point: (Number, Number)) {
        if let Some(before) = self.before {
            let height = divided(before.1.plus(point.1), Number::Int32(2));
            let part = height.times(point.0.minus(before.0));
            self.sum = Some(self.sum.unwrap_or(Number::Int32(0)).plus(part));
        }
        self.before = Some(point);
    }

    pub(super) fn result(&self, unit: Option<Unit>) -> ValueBuf {
        in_units(self.sum.unwrap_or(Number::Int32(0)), unit).to_value().to_owned()
    }
}

/// The area of each window.
pub(super) fn integral(
    function: &WindowFunction,
    input: &Expression,
    unit: Option<Unit>,
    partition: &[DocBuf],
) -> Result<Vec<Option<ValueBuf>>> {
    let values = function.values(input, partition)?;
    let sort_values = function.sort_values(partition);
    let point = |(value, place_value): (&Option<ValueBuf>, &ValueBuf)| {
        edge(place_value.as_raw(), value.as_ref().map(ValueBuf::as_raw), unit)
    };
    let points: Vec<_> = values.iter().zip(&sort_values).map(point).collect::<Result<_>>()?;
    let area = |(from, to): (usize, usize)| {
        let mut area = Area::default();
        points[from..to].iter().flatten().for_each(|point| area.push(*point));
        Some(area.result(unit))
    };
    Ok(reaches(function, partition)?.into_iter().map(area).collect())
}

/// An exponential moving average.
#[derive(Default)]
pub(super) struct Mean(Option<Number>);

impl Mean {
    /// Adds a value with its weight, and the previous average with the rest.
    pub(super) fn push(&mut self, value: Option<RawValue<'_>>, alpha: &Alpha) {
        if let Some(number) = value.and_then(Number::from_value) {
            let rest = Number::Int32(1).minus(alpha.0);
            self.0 = Some(match self.0 {
                // The first value, too, has the type of an average.
                None => match number {
                    Number::Decimal(_) => number,
                    _ => Number::Double(number.to_f64()),
                },
                Some(before) => number.times(alpha.0).plus(before.times(rest)),
            });
        }
    }

    pub(super) fn result(&self) -> ValueBuf {
        self.0.map_or_else(null, |mean| mean.to_value().to_owned())
    }
}

pub(super) fn fading(
    function: &WindowFunction,
    input: &Expression,
    alpha: &Alpha,
    partition: &[DocBuf],
) -> Result<Vec<Option<ValueBuf>>> {
    let mut mean = Mean::default();
    let result = |value: Option<ValueBuf>| {
        mean.push(value.as_ref().map(ValueBuf::as_raw), alpha);
        Some(mean.result())
    };
    Ok(function.values(input, partition)?.into_iter().map(result).collect())
}
