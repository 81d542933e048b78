//! `$derivative`, `$integral`, `$expMovingAvg`.

use std::collections::VecDeque;

use mayfly_base::Result;
use mayfly_value::arguments::error::mistyped;
use mayfly_value::{DocBuf, Number, RawValue, ValueBuf};

use super::bounds::Motion;
use super::moving::{Summary, WindowState};
use super::{WindowFunction, null};
use crate::Sum;
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

/// `$derivative`: the slope between the first and the last document of a window.
pub(super) struct Slope {
    unit: Option<Unit>,
    /// Of a window that grows, only the first and the last document matter.
    motion: Motion,
    points: VecDeque<Point>,
    bytes: usize,
}

/// The sort value of a document, and its input value.
type Point = (ValueBuf, Option<ValueBuf>);

fn point_bytes(point: &Point) -> usize {
    size_of::<Point>() + point.0.heap_bytes() + point.1.as_ref().map_or(0, ValueBuf::heap_bytes)
}

impl Slope {
    pub(super) fn new(unit: Option<Unit>, motion: Motion) -> Slope {
        Slope { unit, motion, points: VecDeque::new(), bytes: 0 }
    }
}

impl WindowState for Slope {
    fn add(&mut self, function: &WindowFunction, document: &DocBuf) -> Result<()> {
        if self.motion == Motion::Grows && self.points.len() == 2 {
            self.bytes -= self.points.pop_back().as_ref().map_or(0, point_bytes);
        }
        let point = (function.sort_value(document), function.value(document)?.into_owned());
        self.bytes += point_bytes(&point);
        self.points.push_back(point);
        Ok(())
    }

    fn remove(&mut self) {
        self.bytes -= self.points.pop_front().as_ref().map_or(0, point_bytes);
    }

    fn result(&mut self, _: &WindowFunction, _: &DocBuf) -> Result<ValueBuf> {
        match (self.points.front(), self.points.back()) {
            (Some(first), Some(last)) => slope(first, last, self.unit),
            _ => Ok(null()),
        }
    }

    fn bytes(&self) -> usize {
        self.bytes
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

/// `$integral`: the area below straight lines between the documents of a sequence. Nothing is
/// subtracted from it, in contrast to the reference: see [`Summary`].
#[derive(Clone, Default)]
pub(super) struct Area {
    sum: Sum,
    ends: Option<Ends>,
    /// Some document is not a number.
    nan: bool,
}

/// The first and the last point of a sequence.
#[derive(Clone, Copy)]
struct Ends {
    first: (Number, Number),
    last: (Number, Number),
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
    /// Adds the area between two neighbouring points.
    fn add_between(&mut self, left: (Number, Number), right: (Number, Number)) {
        if !self.nan {
            let part = left.1.plus(right.1).times(right.0.minus(left.0));
            self.sum.add(divided(part, Number::Double(2.0)));
        }
    }
}

impl Summary for Area {
    type Item = (Number, Number);
    type Settings = Option<Unit>;

    fn item(
        unit: Option<Unit>,
        function: &WindowFunction,
        document: &DocBuf,
    ) -> Result<(Number, Number)> {
        let value = function.value(document)?;
        edge(function.sort_value(document).as_raw(), value.as_raw(), unit)
    }

    fn push(&mut self, point: &(Number, Number)) {
        self.nan |= point.0.is_nan() || point.1.is_nan();
        if let Some(ends) = self.ends {
            self.add_between(ends.last, *point);
        }
        let first = self.ends.map_or(*point, |ends| ends.first);
        self.ends = Some(Ends { first, last: *point });
    }

    fn append(&mut self, later: &Area) {
        self.nan |= later.nan;
        let Some(ends) = later.ends else { return };
        if let Some(here) = self.ends {
            self.add_between(here.last, ends.first);
        }
        self.sum.append(&later.sum);
        let first = self.ends.unwrap_or(ends).first;
        self.ends = Some(Ends { first, last: ends.last });
    }

    /// The area; null without documents.
    fn result(&self, unit: Option<Unit>, _: &WindowFunction, _: &DocBuf) -> Result<ValueBuf> {
        if self.ends.is_none() {
            return Ok(null());
        }
        if self.nan {
            return Ok(RawValue::Double(f64::NAN).to_owned());
        }
        Ok(in_units(self.sum.finish(), unit).to_value().to_owned())
    }
}

/// `$expMovingAvg`: an exponential moving average.
pub(super) struct Mean {
    alpha: Alpha,
    mean: Option<Number>,
}

impl Mean {
    pub(super) fn new(alpha: Alpha) -> Mean {
        Mean { alpha, mean: None }
    }
}

impl WindowState for Mean {
    /// Adds a value with its weight, and the previous average with the rest.
    fn add(&mut self, function: &WindowFunction, document: &DocBuf) -> Result<()> {
        if let Some(number) = function.number(document)? {
            let rest = Number::Int32(1).minus(self.alpha.0);
            self.mean = Some(match self.mean {
                // The first value, too, has the type of an average.
                None => match number {
                    Number::Decimal(_) => number,
                    _ => Number::Double(number.to_f64()),
                },
                Some(before) => number.times(self.alpha.0).plus(before.times(rest)),
            });
        }
        Ok(())
    }

    fn result(&mut self, _: &WindowFunction, _: &DocBuf) -> Result<ValueBuf> {
        Ok(self.mean.map_or_else(null, |mean| mean.to_value().to_owned()))
    }

    fn bytes(&self) -> usize {
        0
    }
}
