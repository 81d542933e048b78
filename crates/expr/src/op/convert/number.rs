//! Parses numbers in strings.

use mayfly_base::{Error, Result};
use mayfly_value::decimal::Decimal;
use mayfly_value::{Number, ty};

use super::conversion_fault;

fn fail(text: &str, why: &str) -> Error {
    conversion_fault(format!(
        "Failed to parse number '{text}' in $convert with no onError value: {why}"
    ))
}

/// Parses a number of the given type.
///
/// # Errors
/// 241 ConversionFailure.
pub(super) fn parsed(text: &str, kind: u8) -> Result<Number> {
    if text.is_empty() {
        return Err(fail(text, "Empty string"));
    }
    if text.starts_with(|c: char| c.is_ascii_whitespace()) {
        return Err(fail(text, "Leading whitespace"));
    }
    if text.starts_with("0x") {
        return Err(conversion_fault(format!(
            "Illegal hexadecimal input in $convert with no onError value: {text}"
        )));
    }
    match kind {
        ty::INT32 | ty::INT64 => {
            let whole = whole(text, 10)?;
            match kind {
                ty::INT32 => {
                    i32::try_from(whole).map(Number::Int32).map_err(|_| fail(text, "Overflow"))
                }
                _ => Ok(Number::Int64(whole)),
            }
        }
        ty::DOUBLE => double(text).map(Number::Double),
        _ => Decimal::parse(text)
            .map(Number::Decimal)
            .ok_or_else(|| fail(text, "Failed to parse string to decimal")),
    }
}

/// The same with digits of a base.
///
/// # Errors
/// 241 ConversionFailure.
pub(super) fn with_base(text: &str, base: u32, kind: u8) -> Result<Number> {
    if text.is_empty() {
        return Err(fail(text, "Empty string"));
    }
    let whole = whole(text, base)?;
    match kind {
        ty::INT32 => i32::try_from(whole).map(Number::Int32).map_err(|_| fail(text, "Overflow")),
        _ => Ok(Number::Int64(whole)),
    }
}

fn whole(text: &str, base: u32) -> Result<i64> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    let digits = match base {
        16 => digits.strip_prefix("0x").or(digits.strip_prefix("0X")).unwrap_or(digits),
        _ => digits,
    };
    let known = digits.chars().take_while(|digit| digit.is_digit(base)).count();
    if known == 0 {
        return Err(fail(text, "Did not consume any digits"));
    }
    if known < digits.len() {
        return Err(fail(text, "Did not consume whole string."));
    }
    let sign = if text.starts_with('-') { "-" } else { "" };
    i64::from_str_radix(&format!("{sign}{digits}"), base).map_err(|_| fail(text, "Overflow"))
}

fn double(text: &str) -> Result<f64> {
    let lower = text.to_ascii_lowercase();
    let (sign, size) = match lower.strip_prefix('-') {
        Some(rest) => (-1.0, rest),
        None => (1.0, lower.strip_prefix('+').unwrap_or(&lower)),
    };
    match size {
        "nan" => return Ok(f64::NAN),
        "inf" | "infinity" => return Ok(sign * f64::INFINITY),
        _ => {}
    }
    let shaped = size.bytes().all(|byte| byte.is_ascii_digit() || b".e+-".contains(&byte));
    match size.parse::<f64>() {
        Ok(value) if shaped && value.is_infinite() => Err(fail(text, "Out of range")),
        Ok(value) if shaped => Ok(sign * value),
        _ => Err(fail(text, "Did not consume whole string.")),
    }
}
