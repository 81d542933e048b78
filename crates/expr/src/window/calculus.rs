//! `$derivative`, `$integral`, `$expMovingAvg`.

use mayfly_base::Result;
use mayfly_value::arguments::error::mistyped;
use mayfly_value::{DocBuf, Number, RawValue, ValueBuf};

use super::bounds::reaches;
use super::{WindowFunction, null};
use crate::op::{Unit, fault};
use crate::{Expression, Sum};

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
        let Some(first) = &self.first else { return Ok(null()) };
        slope(first, self.last.as_ref().unwrap_or(first), unit)
    }
}

/// The slope between two documents, which may be the same one; null if their sort values are equal.
fn slope(first: &Point, last: &Point, unit: Option<Unit>) -> Result<ValueBuf> {
    let x = |point: &Point| {
        let codes = [5_624_900, 5_624_901, 5_624_902];
        place("$derivative", codes, point.0.as_raw(), unit)
    };
    let width = x(last)?.minus(x(first)?);
    let rise = rise(first, last)?;
    if width.compare(Number::Int32(0)).is_eq() {
        return Ok(null());
    }
    let slope = divided(rise, width);
    Ok(match unit.and_then(Unit::fixed_ms) {
        Some(ms) => slope.times(Number::Int64(ms)),
        None => slope,
    }
    .to_value()
    .to_owned())
}

/// The difference of the input values of two documents; that of dates is in milliseconds.
fn rise(first: &Point, last: &Point) -> Result<Number> {
    let is_value = |value: &RawValue<'_>| !matches!(value, RawValue::Null | RawValue::Undefined);
    let from = first.1.as_ref().map(ValueBuf::as_raw).filter(is_value);
    let to = last.1.as_ref().map(ValueBuf::as_raw).filter(is_value);
    let (Some(from), Some(to)) = (from, to) else {
        return Err(fault(5_624_903, "$derivative input must not be null or missing"));
    };
    if let (RawValue::Date(from), RawValue::Date(to)) = (from, to) {
        return Ok(Number::Int64(to).minus(Number::Int64(from)));
    }
    match (Number::from_value(from), Number::from_value(to)) {
        (Some(from), Some(to)) => Ok(to.minus(from)),
        _ => {
            let (from, to) = (from.type_name(), to.type_name());
            Err(mistyped(format!("can't $subtract {from} from {to}")))
        }
    }
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
    let result = |(from, to): (usize, usize)| match to <= from {
        true => Ok(Some(null())),
        false => slope(&points[from], &points[to - 1], unit).map(Some),
    };
    reaches(function, partition)?.into_iter().map(result).collect()
}

/// The area below straight lines between the documents of a sequence.
#[derive(Default)]
pub(super) struct Area {
    sum: Sum,
    before: Option<(Number, Number)>,
    /// Some document is not a number.
    nan: bool,
}

/// A document as a point of the curve.
///
/// # Errors
/// 5423900 for a document that is no point, 5423901 and 5423902 for a point of the wrong kind.
fn edge(
    place_value: RawValue<'_>,
    value: Option<RawValue<'_>>,
    unit: Option<Unit>,
) -> Result<(Number, Number)> {
    let y = value.and_then(Number::from_value);
    let Some(y) = y.filter(|_| place_value.is_number() || is_date(place_value)) else {
        let text =
            "The input value of $integral must be numeric, and the sortBy field numeric or a Date";
        return Err(fault(5_423_900, text));
    };
    let codes = [5_423_901, 5_423_902, 5_423_902];
    Ok((place("$integral", codes, place_value, unit)?, y))
}

fn is_date(value: RawValue<'_>) -> bool {
    matches!(value, RawValue::Date(_))
}

impl Area {
    pub(super) fn push_value(
        &mut self,
        place_value: RawValue<'_>,
        value: Option<RawValue<'_>>,
        unit: Option<Unit>,
    ) -> Result<()> {
        self.push(edge(place_value, value, unit)?);
        Ok(())
    }

    fn push(&mut self, point: (Number, Number)) {
        self.nan |= point.0.is_nan() || point.1.is_nan();
        if let Some(before) = self.before.filter(|_| !self.nan) {
            let part = before.1.plus(point.1).times(point.0.minus(before.0));
            self.sum.add(divided(part, Number::Double(2.0)));
        }
        self.before = Some(point);
    }

    /// The area; null without documents.
    pub(super) fn result(&self, unit: Option<Unit>) -> ValueBuf {
        if self.before.is_none() {
            return null();
        }
        if self.nan {
            return RawValue::Double(f64::NAN).to_owned();
        }
        in_units(self.sum.finish(), unit).to_value().to_owned()
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
        points[from..to].iter().for_each(|point| area.push(*point));
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
