//! The conversions between types.

use mayfly_base::{Error, Result};
use mayfly_value::decimal::Decimal;
use mayfly_value::shell::Brief;
use mayfly_value::{Number, RawValue, ty, type_name};

use super::super::date::text::from_text;
use super::super::date::{as_date, format};
use super::super::operand::{int, number as number_value, text};
use super::super::string::{decimal_text, double_text};
use super::number::{parsed, with_base};
use super::{ConversionOptions, Target, binary, conversion_fault};
use crate::Value;

/// Converts a value that is neither null nor missing.
///
/// # Errors
/// 241 ConversionFailure.
pub(super) fn converted(
    input: RawValue<'_>,
    target: Target,
    options: &ConversionOptions,
) -> Result<Value<'static>> {
    match target.kind {
        ty::BOOL => to_bool(input, target),
        ty::INT32 | ty::INT64 | ty::DOUBLE | ty::DECIMAL => to_number(input, target, options),
        ty::STRING => to_string(input, target, options),
        ty::DATE => to_date(input, target),
        ty::OBJECT_ID => to_object_id(input, target),
        ty::BINARY => binary::to_binary(input, target, options),
        _ => Err(unsupported(input, target)),
    }
}

/// The error for types without a conversion.
pub(super) fn unsupported(input: RawValue<'_>, target: Target) -> Error {
    let (from, to) = (input.type_name(), type_name(target.kind));
    conversion_fault(format!(
        "Unsupported conversion from {from} to {to} in $convert with no onError value"
    ))
}

fn to_bool(input: RawValue<'_>, target: Target) -> Result<Value<'static>> {
    match input {
        RawValue::Bool(_)
        | RawValue::Double(_)
        | RawValue::Int32(_)
        | RawValue::Int64(_)
        | RawValue::Decimal128(_) => Ok(Value::Borrowed(input).is_true().into()),
        RawValue::MinKey
        | RawValue::MaxKey
        | RawValue::String(_)
        | RawValue::Symbol(_)
        | RawValue::Document(_)
        | RawValue::Array(_)
        | RawValue::Binary { .. }
        | RawValue::ObjectId(_)
        | RawValue::Date(_)
        | RawValue::Timestamp(_)
        | RawValue::Regex { .. }
        | RawValue::DbPointer { .. }
        | RawValue::Code(_)
        | RawValue::CodeWithScope { .. } => Ok(true.into()),
        RawValue::Null | RawValue::Undefined => Err(unsupported(input, target)),
    }
}

fn to_number(
    input: RawValue<'_>,
    target: Target,
    options: &ConversionOptions,
) -> Result<Value<'static>> {
    let number = match input {
        RawValue::Bool(value) => Number::Int32(i32::from(value)),
        RawValue::Date(ms) if target.kind != ty::INT32 => Number::Int64(ms),
        RawValue::String(digits) => match options.base {
            Some(base) => with_base(digits, base, target.kind)?,
            None => parsed(digits, target.kind)?,
        },
        RawValue::Binary { bytes, .. } if target.kind != ty::DECIMAL => {
            return binary::to_number(input, bytes, target, options);
        }
        other => Number::from_value(other).ok_or_else(|| unsupported(input, target))?,
    };
    // A whole number is not named.
    let shown = |what: &str| {
        let value = match input {
            RawValue::Int32(_) | RawValue::Int64(_) => String::new(),
            other => Brief(other).to_string(),
        };
        conversion_fault(format!("{what} in $convert with no onError value: {value}"))
    };
    let whole = || -> Result<i64> {
        check_finite(number)?;
        number.to_i64_truncated().ok_or_else(|| shown("Conversion would overflow target type"))
    };
    Ok(number_value(match target.kind {
        ty::INT32 => {
            let value = i32::try_from(whole()?);
            Number::Int32(value.map_err(|_| shown("Conversion would overflow target type"))?)
        }
        ty::INT64 => Number::Int64(whole()?),
        ty::DOUBLE => {
            let double = number.to_f64();
            let lost = match number {
                Number::Decimal(Decimal::Finite { coefficient: 0, .. }) => false,
                Number::Decimal(Decimal::Finite { .. }) => {
                    double.is_infinite() || double.abs() < f64::MIN_POSITIVE
                }
                _ => false,
            };
            if lost {
                return Err(shown("Conversion would overflow target type"));
            }
            Number::Double(double)
        }
        _ => Number::Decimal(number.to_decimal()),
    }))
}

fn to_string(
    input: RawValue<'_>,
    target: Target,
    options: &ConversionOptions,
) -> Result<Value<'static>> {
    match input {
        RawValue::String(value) => text(value),
        RawValue::Bool(value) => text(if value { "true" } else { "false" }),
        RawValue::Int32(_) | RawValue::Int64(_) if options.base.is_some() => {
            text(&in_base(input, options.base.unwrap_or(10)))
        }
        RawValue::Int32(value) => text(&value.to_string()),
        RawValue::Int64(value) => text(&value.to_string()),
        RawValue::Double(_) | RawValue::Decimal128(_) if options.base.is_some() => {
            match Number::from_value(input).and_then(Number::to_i64_exact) {
                Some(whole) => text(&in_base(RawValue::Int64(whole), options.base.unwrap_or(10))),
                None => Err(unsupported(input, target)),
            }
        }
        RawValue::Double(value) => text(&double_text(value)),
        RawValue::Decimal128(bytes) => text(&decimal_text(bytes)),
        RawValue::Date(ms) => text(&format::iso_text(ms)?),
        RawValue::ObjectId(id) => text(&hex::encode(id)),
        RawValue::Binary { subtype, bytes } => binary::to_text(subtype, bytes, options),
        _ => Err(unsupported(input, target)),
    }
}

/// Formats a whole number in a base.
fn in_base(value: RawValue<'_>, base: u32) -> String {
    let whole = Number::from_value(value).and_then(Number::to_i64_exact).unwrap_or(0);
    let size = whole.unsigned_abs();
    let digits = match base {
        2 => format!("{size:b}"),
        8 => format!("{size:o}"),
        16 => format!("{size:X}"),
        _ => size.to_string(),
    };
    if whole < 0 { format!("-{digits}") } else { digits }
}

/// Refuses numbers that no whole number is near.
fn check_finite(number: Number) -> Result<()> {
    let what = match number {
        _ if number.is_nan() => "NaN",
        Number::Decimal(Decimal::Finite { .. }) => return Ok(()),
        _ if number.to_f64().is_infinite() => "infinity",
        _ => return Ok(()),
    };
    Err(conversion_fault(format!(
        "Attempt to convert {what} value to integer type in $convert with no onError value"
    )))
}

fn to_date(input: RawValue<'_>, target: Target) -> Result<Value<'static>> {
    let ms = match input {
        RawValue::String(text) => from_text(text, None, None)?,
        RawValue::Int64(ms) => ms,
        RawValue::Double(_) | RawValue::Decimal128(_) => {
            let number = Number::from_value(input);
            number.map_or(Ok(()), check_finite)?;
            number.and_then(Number::to_i64_truncated).ok_or_else(|| {
                let value = Brief(input);
                conversion_fault(format!(
                    "Conversion would overflow target type in $convert with no onError value: {value}"
                ))
            })?
        }
        other => as_date(other).ok_or_else(|| unsupported(input, target))?,
    };
    Ok(Value::Borrowed(RawValue::Date(ms)))
}

fn to_object_id(input: RawValue<'_>, target: Target) -> Result<Value<'static>> {
    match input {
        RawValue::ObjectId(id) => Ok(Value::Borrowed(RawValue::ObjectId(id))),
        RawValue::String(text) => {
            let fail = |why: &str| {
                conversion_fault(format!(
                    "Failed to parse objectId '{text}' in $convert with no onError value: {why}"
                ))
            };
            if text.len() != 24 {
                let length = text.len();
                return Err(fail(&format!(
                    "Invalid string length for parsing to OID, expected 24 but found {length}"
                )));
            }
            let bytes = hex::decode(text).ok().and_then(|bytes| bytes.try_into().ok());
            let id = bytes.ok_or_else(|| {
                let other = text.chars().find(|it| !it.is_ascii_hexdigit()).unwrap_or_default();
                fail(&format!("Invalid character found in hex string: {other}"))
            })?;
            Ok(Value::Borrowed(RawValue::ObjectId(id)))
        }
        _ => Err(unsupported(input, target)),
    }
}

/// An int, for the conversions of binary data.
pub(super) fn small(value: i32) -> Value<'static> {
    int(value)
}
