//! `$locf`, `$linearFill`: values of neighbouring documents in gaps.

use mayfly_base::Result;
use mayfly_value::arguments::error::mistyped;
use mayfly_value::{DocBuf, Number, RawValue, ValueBuf};

use super::calculus::divided;
use super::moving::WindowState;
use super::{WindowFunction, null};
use crate::op::fault;

/// `$locf`: the last value that was neither null nor missing.
#[derive(Default)]
pub(super) struct Carried(Option<ValueBuf>);

impl WindowState for Carried {
    fn add(&mut self, function: &WindowFunction, document: &DocBuf) -> Result<()> {
        let value = function.value(document)?.into_owned();
        if let Some(value) = value.filter(|value| !is_nullish(value)) {
            self.0 = Some(value);
        }
        Ok(())
    }

    fn result(&mut self, _: &WindowFunction, _: &DocBuf) -> Result<ValueBuf> {
        Ok(self.0.clone().unwrap_or_else(null))
    }

    fn bytes(&self) -> usize {
        self.0.as_ref().map_or(0, ValueBuf::heap_bytes)
    }
}

pub(super) fn is_nullish(value: &ValueBuf) -> bool {
    matches!(value.as_raw(), RawValue::Null | RawValue::Undefined)
}

/// Fills gaps between two numbers by linear interpolation over the sort value; gaps at the ends
/// stay null.
pub(super) fn linear(
    function: &WindowFunction,
    partition: &[DocBuf],
) -> Result<Vec<Option<ValueBuf>>> {
    let places = function.sort_values(partition);
    let places: Vec<Place> =
        places.iter().map(|place| Place::of(place.as_raw())).collect::<Result<_>>()?;
    for pair in places.windows(2) {
        pair[1].check_after(pair[0])?;
    }
    let mut results: Vec<Option<ValueBuf>> = Vec::with_capacity(partition.len());
    let mut left: Option<(usize, Number)> = None;
    for (here, document) in partition.iter().enumerate() {
        let value = function.value(document)?.into_owned();
        let Some(value) = value.filter(|value| !is_nullish(value)) else {
            results.push(Some(null()));
            continue;
        };
        let Some(number) = Number::from_value(value.as_raw()) else {
            return Err(mistyped("Value to be filled must be numeric or nullish"));
        };
        if let Some((from, start)) = left {
            for gap in from + 1..here {
                let (left, right) = ((places[from].at, start), (places[here].at, number));
                let filled = between(left, right, places[gap].at);
                results[gap] = Some(filled.to_value().to_owned());
            }
        }
        left = Some((here, number));
        results.push(Some(value));
    }
    Ok(results)
}

/// A value of the sort field: a number, or a date in milliseconds.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub(super) at: Number,
    is_date: bool,
}

impl Place {
    pub(super) fn of(value: RawValue<'_>) -> Result<Place> {
        if let RawValue::Date(ms) = value {
            return Ok(Place { at: Number::Int64(ms), is_date: true });
        }
        let Some(at) = Number::from_value(value) else {
            let found = value.type_name();
            let text = format!(
                "$linearFill requires the sort field to be numeric or a date, found {found}"
            );
            return Err(mistyped(text));
        };
        Ok(Place { at, is_date: false })
    }

    /// Checks that the value may follow another one in the partition.
    pub(super) fn check_after(self, before: Place) -> Result<()> {
        if self.is_date != before.is_date {
            return Err(mistyped("$linearFill does not mix numbers and dates in the sort field"));
        }
        if self.at.compare(before.at).is_eq() {
            let text = "There can be no repeated values in the sort field in the same partition";
            return Err(fault(6_050_106, text));
        }
        Ok(())
    }
}

/// Interpolates between two points.
pub(super) fn between(left: (Number, Number), right: (Number, Number), at: Number) -> Number {
    let (width, rise) = (right.0.minus(left.0), right.1.minus(left.1));
    left.1.plus(at.minus(left.0).times(divided(rise, width)))
}
