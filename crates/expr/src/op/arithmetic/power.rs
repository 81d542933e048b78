//! `$sqrt`, `$pow`, `$exp`, `$ln`, `$log`, `$log10`, `$sigmoid`: the result is a double, or a
//! decimal for a decimal argument. Powers of integers are integers where possible.

use mayfly_base::Result;
use mayfly_value::arguments::error::mistyped;
use mayfly_value::shell::Brief;
use mayfly_value::{Number, RawValue};

use super::super::operand::{double, fault, number};
use super::super::{OpRow, list};
use super::rounding::single;
use crate::{Expression, Frame, Value, decimal};

pub(in crate::op) const ROWS: &[OpRow] = &[
    list("$sqrt", "3.2", "The square root.", (1, 1), sqrt),
    list("$pow", "3.2", "A power.", (2, 2), pow),
    list("$exp", "3.2", "e to a power.", (1, 1), |args, frame| {
        Ok(match single("$exp", &args[0], frame)? {
            None => Value::NULL,
            Some(Number::Decimal(value)) => number(Number::Decimal(decimal::exp(value))),
            Some(value) => double(value.to_f64().exp()),
        })
    }),
    list("$ln", "3.2", "The natural logarithm.", (1, 1), |args, frame| {
        logarithm("$ln", 28766, f64::ln, decimal::ln, args, frame)
    }),
    list("$log10", "3.2", "The logarithm to base 10.", (1, 1), |args, frame| {
        logarithm("$log10", 28761, f64::log10, decimal::log10, args, frame)
    }),
    list("$log", "3.2", "The logarithm to a base.", (2, 2), log),
    list("$sigmoid", "8.1", "1 / (1 + e to the negative).", (1, 1), |args, frame| {
        let value = args[0].evaluate(frame)?;
        Ok(match Number::from_value(value.or_undefined()) {
            Some(Number::Decimal(value)) => {
                let one = Number::Int32(1);
                let power = Number::Decimal(decimal::exp(
                    one.minus(one).minus(Number::Decimal(value)).to_decimal(),
                ));
                let below = one.plus(power).to_decimal();
                number(Number::Decimal(one.to_decimal().divided_by(below)))
            }
            Some(value) => double(1.0 / (1.0 + (-value.to_f64()).exp())),
            None if value.is_nullish() => Value::NULL,
            None => {
                let found = value.type_name();
                let text = format!("$sigmoid only supports numeric types, not {found}");
                return Err(mistyped(text));
            }
        })
    }),
];

fn zero() -> Number {
    Number::Int32(0)
}

fn sqrt<'a>(arguments: &'a [Expression], frame: Frame<'a>) -> Result<Value<'a>> {
    let Some(value) = single("$sqrt", &arguments[0], frame)? else { return Ok(Value::NULL) };
    if !value.is_nan() && value.compare(zero()).is_lt() {
        return Err(fault(28714, "$sqrt's argument must be greater than or equal to 0"));
    }
    Ok(match value {
        Number::Decimal(value) => number(Number::Decimal(decimal::sqrt(value))),
        value => double(value.to_f64().sqrt()),
    })
}

fn logarithm<'a>(
    name: &str,
    code: i32,
    of_double: fn(f64) -> f64,
    of_decimal: fn(mayfly_value::decimal::Decimal) -> mayfly_value::decimal::Decimal,
    arguments: &'a [Expression],
    frame: Frame<'a>,
) -> Result<Value<'a>> {
    let Some(value) = single(name, &arguments[0], frame)? else { return Ok(Value::NULL) };
    if !value.is_nan() && value.compare(zero()).is_le() {
        let shown = Brief(RawValue::Double(value.to_f64()));
        let text = format!("{name}'s argument must be a positive number, but is {shown}");
        return Err(fault(code, text));
    }
    Ok(match value {
        Number::Decimal(value) => number(Number::Decimal(of_decimal(value))),
        value => double(of_double(value.to_f64())),
    })
}

fn log<'a>(arguments: &'a [Expression], frame: Frame<'a>) -> Result<Value<'a>> {
    let (value, base) = (arguments[0].evaluate(frame)?, arguments[1].evaluate(frame)?);
    if value.is_nullish() || base.is_nullish() {
        return Ok(Value::NULL);
    }
    let Some(argument) = Number::from_value(value.or_undefined()) else {
        let found = value.type_name();
        return Err(fault(28756, format!("$log's argument must be numeric, not {found}")));
    };
    let Some(to) = Number::from_value(base.or_undefined()) else {
        let found = base.type_name();
        return Err(fault(28757, format!("$log's base must be numeric, not {found}")));
    };
    if !argument.is_nan() && argument.compare(zero()).is_le() {
        let shown = Brief(RawValue::Double(argument.to_f64()));
        let text = format!("$log's argument must be a positive number, but is {shown}");
        return Err(fault(28758, text));
    }
    if !to.is_nan() && (to.compare(zero()).is_le() || to.compare(Number::Int32(1)).is_eq()) {
        let shown = Brief(RawValue::Double(to.to_f64()));
        let text = format!("$log's base must be a positive number not equal to 1, but is {shown}");
        return Err(fault(28759, text));
    }
    Ok(match (argument, to) {
        (Number::Decimal(_), _) | (_, Number::Decimal(_)) => {
            number(Number::Decimal(decimal::log(argument.to_decimal(), to.to_decimal())))
        }
        _ => double(argument.to_f64().ln() / to.to_f64().ln()),
    })
}

fn pow<'a>(arguments: &'a [Expression], frame: Frame<'a>) -> Result<Value<'a>> {
    let (base, exponent) = (arguments[0].evaluate(frame)?, arguments[1].evaluate(frame)?);
    if base.is_nullish() || exponent.is_nullish() {
        return Ok(Value::NULL);
    }
    let Some(base_number) = Number::from_value(base.or_undefined()) else {
        let found = base.type_name();
        return Err(fault(28762, format!("$pow's base must be numeric, not {found}")));
    };
    let Some(power) = Number::from_value(exponent.or_undefined()) else {
        let found = exponent.type_name();
        return Err(fault(28763, format!("$pow's exponent must be numeric, not {found}")));
    };
    if base_number.compare(zero()).is_eq() && !power.is_nan() && power.compare(zero()).is_lt() {
        return Err(fault(28764, "$pow cannot take a base of 0 and a negative exponent"));
    }
    Ok(number(match (base_number, power) {
        (Number::Decimal(_), _) | (_, Number::Decimal(_)) => {
            Number::Decimal(decimal::pow(base_number.to_decimal(), power.to_decimal()))
        }
        (Number::Double(_), _) | (_, Number::Double(_)) => {
            let result = base_number.to_f64().powf(power.to_f64());
            // A NaN without the sign, which depends on the processor.
            Number::Double(if result.is_nan() { f64::NAN } else { result })
        }
        _ => integer_power(base_number, power),
    }))
}

/// An int when both operands are ints and the result fits, a long when it fits, else a double.
fn integer_power(base: Number, power: Number) -> Number {
    let both_int = matches!((base, power), (Number::Int32(_), Number::Int32(_)));
    let (b, p) = (base.to_i64_exact().unwrap_or(0), power.to_i64_exact().unwrap_or(0));
    let result = match (b, p) {
        (1, _) => Some(1),
        (-1, p) => Some(if p % 2 == 0 { 1 } else { -1 }),
        (0, p) => Some(i64::from(p == 0)),
        (b, p) => u32::try_from(p).ok().and_then(|p| b.checked_pow(p)),
    };
    match result {
        None => Number::Double(base.to_f64().powf(power.to_f64())),
        Some(long) => match i32::try_from(long) {
            Ok(int) if both_int => Number::Int32(int),
            _ => Number::Int64(long),
        },
    }
}
