//! `$abs`, `$ceil`, `$floor`, `$round`, `$trunc`. Integers keep their type; halves are rounded to
//! even.

use dec::Rounding;
use mayfly_base::Result;
use mayfly_value::decimal::Decimal;
use mayfly_value::shell::{Brief, ShellValue};
use mayfly_value::{Number, RawValue};

use super::super::operand::{fault, number};
use super::super::{OpRow, list};
use crate::{Expression, Frame, Value, decimal};

pub(in crate::op) const ROWS: &[OpRow] = &[
    list("$abs", "3.2", "The absolute value.", (1, 1), abs),
    list("$ceil", "3.2", "The number rounded up to an integer.", (1, 1), |args, frame| {
        integral("$ceil", f64::ceil, Rounding::Ceiling, args, frame)
    }),
    list("$floor", "3.2", "The number rounded down to an integer.", (1, 1), |args, frame| {
        integral("$floor", f64::floor, Rounding::Floor, args, frame)
    }),
    list("$round", "4.2", "The number rounded to decimal places.", (1, 2), |args, frame| {
        places("$round", Rounding::HalfEven, args, frame)
    }),
    list("$trunc", "3.2", "The number truncated to decimal places.", (1, 2), |args, frame| {
        places("$trunc", Rounding::Down, args, frame)
    }),
];

/// Evaluates the only argument of an operator; `None` when it is null or missing.
pub(in crate::op) fn single<'a>(
    name: &str,
    argument: &'a Expression,
    frame: Frame<'a>,
) -> Result<Option<Number>> {
    let value = argument.evaluate(frame)?;
    match Number::from_value(value.or_undefined()) {
        None if value.is_nullish() => Ok(None),
        None => {
            let found = value.type_name();
            Err(fault(28765, format!("{name} only supports numeric types, not {found}")))
        }
        some => Ok(some),
    }
}

fn abs<'a>(arguments: &'a [Expression], frame: Frame<'a>) -> Result<Value<'a>> {
    let Some(value) = single("$abs", &arguments[0], frame)? else { return Ok(Value::NULL) };
    Ok(number(match value {
        Number::Int32(value) => match value.checked_abs() {
            Some(value) => Number::Int32(value),
            None => Number::Int64(i64::from(value).abs()),
        },
        Number::Int64(value) => Number::Int64(
            value.checked_abs().ok_or_else(|| fault(28680, "can't take $abs of long long min"))?,
        ),
        Number::Double(value) => Number::Double(value.abs()),
        Number::Decimal(Decimal::Finite { coefficient, exponent, .. }) => {
            Number::Decimal(Decimal::Finite { negative: false, coefficient, exponent })
        }
        Number::Decimal(Decimal::Infinity { .. }) => {
            Number::Decimal(Decimal::Infinity { negative: false })
        }
        Number::Decimal(Decimal::Nan { .. }) => value,
    }))
}

fn integral<'a>(
    name: &str,
    of_double: fn(f64) -> f64,
    rounding: Rounding,
    arguments: &'a [Expression],
    frame: Frame<'a>,
) -> Result<Value<'a>> {
    let Some(value) = single(name, &arguments[0], frame)? else { return Ok(Value::NULL) };
    Ok(number(match value {
        Number::Int32(_) | Number::Int64(_) => value,
        Number::Double(value) => Number::Double(of_double(value)),
        Number::Decimal(value) => Number::Decimal(decimal::integral(value, rounding)),
    }))
}

fn places<'a>(
    name: &str,
    rounding: Rounding,
    arguments: &'a [Expression],
    frame: Frame<'a>,
) -> Result<Value<'a>> {
    let value = arguments[0].evaluate(frame)?;
    if value.is_nullish() {
        return Ok(Value::NULL);
    }
    let Some(operand) = Number::from_value(value.or_undefined()) else {
        let found = value.type_name();
        return Err(fault(51081, format!("{name} only supports numeric types, not {found}")));
    };
    let mut digits = 0;
    if let Some(argument) = arguments.get(1) {
        let given = argument.evaluate(frame)?;
        if given.is_nullish() {
            return Ok(Value::NULL);
        }
        digits = precision(name, given.or_undefined())?;
    }
    Ok(number(match operand {
        Number::Int32(_) | Number::Int64(_) if digits >= 0 => operand,
        Number::Int32(_) | Number::Int64(_) => {
            let rounded = decimal::rounded(operand.to_decimal(), digits, rounding);
            let rounded = rounded.and_then(|it| Number::Decimal(it).to_i64_exact());
            match (rounded, operand) {
                (Some(long), Number::Int32(_)) => match i32::try_from(long) {
                    Ok(int) => Number::Int32(int),
                    Err(_) => Number::Int64(long),
                },
                (Some(long), _) => Number::Int64(long),
                (None, _) => {
                    let shown = ShellValue(value.or_undefined());
                    let text = format!(
                        "invalid conversion from Decimal128 result in {name} resulting from arguments: [{shown}, {digits}]"
                    );
                    return Err(fault(51080, text));
                }
            }
        }
        Number::Double(double) => Number::Double(round_double(double, digits, rounding)),
        Number::Decimal(Decimal::Finite { .. }) => {
            let exact = operand.to_decimal();
            Number::Decimal(decimal::rounded(exact, digits, rounding).unwrap_or(exact))
        }
        Number::Decimal(_) => operand,
    }))
}

fn precision(name: &str, given: RawValue<'_>) -> Result<i32> {
    let Some(number) = Number::from_value(given) else {
        let text = format!("can't convert from BSON type {} to long", given.type_name());
        return Err(fault(16004, text));
    };
    if number.to_i64_truncated().is_none() {
        let text = format!("Can't coerce out of range value {} to long", Brief(given));
        return Err(fault(31109, text));
    }
    let whole = number.to_i64_exact().and_then(|places| i32::try_from(places).ok());
    let Some(places) = whole else {
        let text = format!("precision argument to  {name} must be a integral value");
        return Err(fault(51082, text));
    };
    match places {
        -20..=100 => Ok(places),
        _ => {
            let text = format!(
                "cannot apply {name} with precision value {places} value must be in [-20, 100]"
            );
            Err(fault(51083, text))
        }
    }
}

/// Rounds by an exact decimal of the double, so that 2.675 is rounded by its binary value.
fn round_double(value: f64, places: i32, rounding: Rounding) -> f64 {
    if !value.is_finite() {
        return value;
    }
    let rounded = Decimal::parse(&format!("{value:.33e}"))
        .and_then(|exact| decimal::rounded(exact, places, rounding));
    rounded.map_or(value, Decimal::to_f64)
}
