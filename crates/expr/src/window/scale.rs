//! `$minMaxScaler`: a number scaled by the least and the greatest number of its window.

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_value::arguments::error::{missing, unknown};
use mayfly_value::{DocBuf, Number, RawDoc, RawValue, ValueBuf};

use super::bounds::{Bound, Bounds};
use super::calculus::divided;
use super::moving::Summary;
use super::{Function, WindowFunction};
use crate::op::fault;
use crate::{Expression, Scope};

const NAME: &str = "$minMaxScaler";

/// The range of the results.
#[derive(Clone, Copy, Debug)]
pub(super) struct Range {
    least: Number,
    greatest: Number,
}

/// The least and the greatest number of a sequence.
#[derive(Clone, Default)]
pub(super) struct Extremes(Option<(Number, Number)>);

impl Extremes {
    fn add(&mut self, number: Number) {
        self.0 = Some(match self.0 {
            None => (number, number),
            Some((least, _)) if number.compare(least).is_lt() => (number, self.greatest(number)),
            Some((least, greatest)) if number.compare(greatest).is_gt() => (least, number),
            Some(both) => both,
        });
    }

    fn greatest(&self, other: Number) -> Number {
        self.0.map_or(other, |(_, greatest)| greatest)
    }

    /// Scales a number of the sequence.
    fn scaled(&self, number: Number, range: Range) -> ValueBuf {
        let (least, greatest) = self.0.unwrap_or((number, number));
        let width = greatest.minus(least);
        let result = match width.compare(Number::Int32(0)).is_eq() {
            true => range.least,
            false => divided(number.minus(least), width)
                .times(range.greatest.minus(range.least))
                .plus(range.least),
        };
        result.to_value().to_owned()
    }
}

impl Summary for Extremes {
    type Item = Number;
    type Settings = Range;

    fn item(_: Range, function: &WindowFunction, document: &DocBuf) -> Result<Number> {
        number(function, document)
    }

    fn push(&mut self, number: &Number) {
        self.add(*number);
    }

    fn append(&mut self, later: &Extremes) {
        if let Some((least, greatest)) = later.0 {
            self.add(least);
            self.add(greatest);
        }
    }

    fn result(&self, range: Range, function: &WindowFunction, here: &DocBuf) -> Result<ValueBuf> {
        Ok(self.scaled(number(function, here)?, range))
    }
}

/// The number of a document.
///
/// # Errors
/// 10487000 for a value that is no number.
fn number(function: &WindowFunction, document: &DocBuf) -> Result<Number> {
    let value = function.value(document)?;
    let value = value.as_raw();
    value.and_then(Number::from_value).ok_or_else(|| {
        let found = value.map_or("missing", RawValue::type_name);
        let text =
            format!("'input' argument to {NAME} must evaluate to a numeric type, got: {found}");
        fault(10_487_000, text)
    })
}

/// Parses the operand: an expression, or `{ input, min, max }`.
pub(super) fn parse(operand: RawValue<'_>, scope: &Scope) -> Result<Function> {
    let mut range = Range { least: Number::Int32(0), greatest: Number::Int32(1) };
    let named = match operand {
        RawValue::Document(named) => named,
        _ => RawDoc::EMPTY,
    };
    if named.iter().next().is_none_or(|first| first.name().starts_with('$')) {
        return Ok(Function::Scale { input: Expression::parse_in(operand, scope)?, range });
    }
    let (mut input, mut least, mut greatest) = (None, None, None);
    for part in named {
        match part.name() {
            "input" => input = Some(Expression::parse_in(part.value(), scope)?),
            "min" => least = Some(constant("min", part.value(), scope)?),
            "max" => greatest = Some(constant("max", part.value(), scope)?),
            other => return Err(unknown(format!("{NAME}.{other}"))),
        }
    }
    let input = input.ok_or_else(|| missing(format!("{NAME}.input")))?;
    match (least, greatest) {
        (None, None) => {}
        (Some(least), Some(greatest)) if least.compare(greatest).is_lt() => {
            range = Range { least, greatest };
        }
        (Some(_), Some(_)) => {
            let text = format!("'max' of {NAME} must be greater than 'min'");
            return Err(Error::failed_to_parse(text));
        }
        _ => {
            let text = format!("{NAME} accepts 'min' and 'max' only together");
            return Err(Error::failed_to_parse(text));
        }
    }
    Ok(Function::Scale { input, range })
}

fn constant(name: &str, value: RawValue<'_>, scope: &Scope) -> Result<Number> {
    let parsed = Expression::parse_in(value, scope)?;
    parsed.as_constant().and_then(Number::from_value).ok_or_else(|| {
        let text = format!("'{name}' of {NAME} must be a constant number");
        Error::new(ErrorCode::FailedToParse, text)
    })
}

/// Rejects windows without the document itself.
///
/// # Errors
/// 9 FailedToParse.
pub(super) fn check_bounds(bounds: Bounds) -> Result<()> {
    let (Bounds::Documents(lower, upper) | Bounds::Range { lower, upper, .. }) = bounds;
    let beyond = |bound: Bound, wrong: fn(std::cmp::Ordering) -> bool| match bound {
        Bound::Offset(by) => wrong(by.compare(Number::Int32(0))),
        Bound::Unbounded | Bound::Current => false,
    };
    if beyond(lower, std::cmp::Ordering::is_gt) || beyond(upper, std::cmp::Ordering::is_lt) {
        let text = format!("the window of {NAME} must contain the document itself");
        return Err(Error::failed_to_parse(text));
    }
    Ok(())
}
