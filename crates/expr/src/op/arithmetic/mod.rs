//! `$add`, `$subtract`, `$multiply`, `$divide`, `$mod`. Null and missing operands make the result
//! null; integers that overflow become long, then double.

pub(super) mod power;
pub(super) mod rounding;

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_value::arguments::error::mistyped;
use mayfly_value::{Number, RawValue};

use super::operand::number;
use super::{ANY, OpRow, list};
use crate::sum::Sum;
use crate::{Expression, Frame, Value};

pub(super) const ROWS: &[OpRow] = &[
    list("$add", "2.2", "The sum; one operand may be a date.", ANY, add),
    list("$subtract", "2.2", "The difference of numbers or dates.", (2, 2), subtract),
    list("$multiply", "2.2", "The product.", ANY, multiply),
    list("$divide", "2.2", "The quotient.", (2, 2), divide),
    list("$mod", "2.2", "The remainder of a division.", (2, 2), modulo),
];

fn add<'a>(arguments: &'a [Expression], frame: Frame<'a>) -> Result<Value<'a>> {
    let mut sum = Sum::default();
    let mut date = None;
    for argument in arguments {
        let value = argument.evaluate(frame)?;
        match value.or_undefined() {
            RawValue::Date(ms) => {
                if date.replace(ms).is_some() {
                    let text = "only one date allowed in an $add expression";
                    return Err(Error::new(ErrorCode(16612), text));
                }
            }
            RawValue::Null | RawValue::Undefined => return Ok(Value::NULL),
            operand => match Number::from_value(operand) {
                Some(number) => sum.add(number),
                None => {
                    let name = value.type_name();
                    return Err(mistyped(format!(
                        "$add only supports numeric or date types, not {name}"
                    )));
                }
            },
        }
    }
    let total = sum.total();
    match date {
        None => Ok(number(total)),
        Some(ms) => shifted(milliseconds(total).and_then(|by| ms.checked_add(by))),
    }
}

/// The whole milliseconds of a number: halves of doubles are rounded away from zero, those of
/// decimals to even.
fn milliseconds(number: Number) -> Option<i64> {
    match number {
        Number::Double(value) => Number::Double(value.round()).to_i64_exact(),
        other => other.to_i64_half_even(),
    }
}

/// The result of a date calculation, or an overflow error.
fn shifted(to: Option<i64>) -> Result<Value<'static>> {
    let to = to.ok_or_else(|| Error::new(ErrorCode::Overflow, "date overflow"))?;
    Ok(Value::Borrowed(RawValue::Date(to)))
}

fn subtract<'a>(arguments: &'a [Expression], frame: Frame<'a>) -> Result<Value<'a>> {
    let left = arguments[0].evaluate(frame)?;
    let right = arguments[1].evaluate(frame)?;
    if left.is_nullish() || right.is_nullish() {
        return Ok(Value::NULL);
    }
    let (a, b) = (left.or_undefined(), right.or_undefined());
    match (a, Number::from_value(a), b, Number::from_value(b)) {
        (_, Some(a), _, Some(b)) => Ok(number(a.minus(b))),
        (RawValue::Date(ms), _, _, Some(b)) => {
            shifted(milliseconds(b).and_then(|by| ms.checked_sub(by)))
        }
        (RawValue::Date(a), _, RawValue::Date(b), _) => {
            let difference = a.checked_sub(b);
            let difference =
                difference.ok_or_else(|| Error::new(ErrorCode::Overflow, "date overflow"))?;
            Ok(Value::Borrowed(RawValue::Int64(difference)))
        }
        _ => Err(mistyped(format!(
            "can't $subtract {} from {}",
            right.type_name(),
            left.type_name()
        ))),
    }
}

fn multiply<'a>(arguments: &'a [Expression], frame: Frame<'a>) -> Result<Value<'a>> {
    let mut product = Number::Int32(1);
    for argument in arguments {
        let value = argument.evaluate(frame)?;
        match Number::from_value(value.or_undefined()) {
            Some(factor) => product = product.times(factor),
            None if value.is_nullish() => return Ok(Value::NULL),
            None => {
                let name = value.type_name();
                let text = format!("$multiply only supports numeric types, not {name}");
                return Err(mistyped(text));
            }
        }
    }
    Ok(number(product))
}

/// Evaluates two numbers; `None` when one of them is null or missing.
fn numbers<'a>(
    name: &str,
    code: ErrorCode,
    arguments: &'a [Expression],
    frame: Frame<'a>,
) -> Result<Option<(Number, Number)>> {
    let left = arguments[0].evaluate(frame)?;
    let right = arguments[1].evaluate(frame)?;
    let pair = (Number::from_value(left.or_undefined()), Number::from_value(right.or_undefined()));
    match pair {
        (Some(left), Some(right)) => Ok(Some((left, right))),
        _ if left.is_nullish() || right.is_nullish() => Ok(None),
        _ => Err(Error::new(
            code,
            format!(
                "{name} only supports numeric types, not {} and {}",
                left.type_name(),
                right.type_name()
            ),
        )),
    }
}

fn divide<'a>(arguments: &'a [Expression], frame: Frame<'a>) -> Result<Value<'a>> {
    let operands = numbers("$divide", ErrorCode::TypeMismatch, arguments, frame)?;
    let Some((left, right)) = operands else { return Ok(Value::NULL) };
    if right.compare(Number::Int32(0)).is_eq() {
        return Err(Error::bad_value("can't $divide by zero"));
    }
    Ok(number(match (left, right) {
        (Number::Decimal(_), _) | (_, Number::Decimal(_)) => {
            Number::Decimal(left.to_decimal().divided_by(right.to_decimal()))
        }
        _ => Number::Double(left.to_f64() / right.to_f64()),
    }))
}

fn modulo<'a>(arguments: &'a [Expression], frame: Frame<'a>) -> Result<Value<'a>> {
    let Some((left, right)) = numbers("$mod", ErrorCode(16611), arguments, frame)? else {
        return Ok(Value::NULL);
    };
    if right.compare(Number::Int32(0)).is_eq() {
        let decimal = matches!((left, right), (Number::Decimal(_), _) | (_, Number::Decimal(_)));
        let code = ErrorCode(if decimal { 5_733_415 } else { 16610 });
        return Err(Error::new(code, "can't $mod by zero"));
    }
    if matches!(left, Number::Decimal(_)) || matches!(right, Number::Decimal(_)) {
        return Ok(number(Number::Decimal(left.to_decimal().remainder_of(right.to_decimal()))));
    }
    let integers = match (left, right) {
        (Number::Double(_), _) | (_, Number::Double(_)) => None,
        _ => left.to_i64_exact().zip(right.to_i64_exact()),
    };
    Ok(number(match integers {
        None => Number::Double(left.to_f64() % right.to_f64()),
        Some((a, b)) => {
            let remainder = a.wrapping_rem(b);
            let long = matches!(left, Number::Int64(_)) || matches!(right, Number::Int64(_));
            match i32::try_from(remainder) {
                Ok(int) if !long => Number::Int32(int),
                _ => Number::Int64(remainder),
            }
        }
    }))
}
