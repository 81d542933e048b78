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

fn illegal_prefix(text: &str) -> Error {
    conversion_fault(format!("Illegal hexadecimal input in $convert with no onError value: {text}"))
}

/// Parses a number of the given type.
///
/// # Errors
/// 241 ConversionFailure.
pub(super) fn parsed(text: &str, kind: u8) -> Result<Number> {
    let whole_wanted = matches!(kind, ty::INT32 | ty::INT64);
    if text.is_empty() {
        return Err(fail(text, if whole_wanted { "No digits" } else { "Empty string" }));
    }
    if text.starts_with(|c: char| c.is_ascii_whitespace()) && !whole_wanted {
        return Err(fail(text, "Leading whitespace"));
    }
    if text.starts_with("0x") && kind != ty::DOUBLE {
        return Err(illegal_prefix(text));
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
        _ => decimal(text),
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
    if text.starts_with("0x") || text.starts_with("0X") {
        return Err(illegal_prefix(text));
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
    if digits.is_empty() {
        return Err(fail(text, "No digits"));
    }
    if !digits.chars().all(|digit| digit.is_digit(base)) {
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
    if size.starts_with(['+', '-']) {
        return Err(fail(text, "Did not consume any digits"));
    }
    if let Some(digits) = size.strip_prefix("0x") {
        let value = hexadecimal(digits);
        let value = value.ok_or_else(|| fail(text, "Did not consume whole string."))?;
        return match value.is_infinite() {
            true => Err(fail(text, "Out of range")),
            false => Ok(sign * value),
        };
    }
    let shaped = size.bytes().all(|byte| byte.is_ascii_digit() || b".e+-".contains(&byte));
    match size.parse::<f64>() {
        // As strtod, which reports values that only a subnormal number is near.
        Ok(value)
            if shaped && (value.is_infinite() || value < f64::MIN_POSITIVE && !is_zero(size)) =>
        {
            Err(fail(text, "Out of range"))
        }
        Ok(value) if shaped => Ok(sign * value),
        _ if !size.trim_start_matches('.').starts_with(|it: char| it.is_ascii_digit()) => {
            Err(fail(text, "Did not consume any digits"))
        }
        _ => Err(fail(text, "Did not consume whole string.")),
    }
}

/// Whether the digits before an exponent are all zeros.
fn is_zero(number: &str) -> bool {
    let digits = number.split('e').next().unwrap_or(number);
    !digits.bytes().any(|byte| matches!(byte, b'1'..=b'9'))
}

/// The value of hexadecimal digits in lower case, after `0x`: `1.8p1` is 1.5 times 2.
fn hexadecimal(text: &str) -> Option<f64> {
    let (digits, power) = match text.split_once('p') {
        Some((digits, power)) => (digits, power.parse::<i32>().ok()?),
        None => (text, 0),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let (mut value, mut power) = (0_u64, i64::from(power) - 4 * fraction.len() as i64);
    for digit in whole.chars().chain(fraction.chars()) {
        let digit = u64::from(digit.to_digit(16)?);
        match value >> 60 {
            0 => value = value << 4 | digit,
            // Digits beyond 64 bits only tell whether the value lies above a half.
            _ => {
                value |= u64::from(digit != 0);
                power += 4;
            }
        }
    }
    Some(scaled(value, power))
}

/// A number times a power of two, rounded once.
fn scaled(value: u64, power: i64) -> f64 {
    if value == 0 {
        return 0.0;
    }
    let bits = i64::from(64 - value.leading_zeros());
    // The unit of the last place: at most 53 bits, and none below the least double.
    let unit = (bits + power - 53).max(-1074);
    let shift = unit - power;
    let rounded = match shift {
        ..=0 => value as f64 * 2_f64.powi((-shift).min(64) as i32),
        1..=63 => {
            let (kept, rest, half) =
                (value >> shift, value & ((1 << shift) - 1), 1_u64 << (shift - 1));
            let up = rest > half || rest == half && kept & 1 == 1;
            (kept + u64::from(up)) as f64
        }
        64 => f64::from(u8::from(value > 1 << 63)),
        _ => 0.0,
    };
    // In two steps, because a power of two below the least normal double is no factor.
    let unit = unit.clamp(-2000, 2000) as i32;
    rounded * 2_f64.powi(unit / 2) * 2_f64.powi(unit - unit / 2)
}

fn decimal(text: &str) -> Result<Number> {
    let wrong = || fail(text, "Failed to parse string to decimal");
    let value = Decimal::parse(text).ok_or_else(wrong)?;
    let lower = text.to_ascii_lowercase();
    let number = lower.trim_start_matches(['+', '-']);
    let lost = match value {
        Decimal::Infinity { .. } => !number.starts_with("inf"),
        Decimal::Finite { coefficient: 0, .. } => !is_zero(number),
        _ => false,
    };
    if lost { Err(fail(text, "Out of range")) } else { Ok(Number::Decimal(value)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hexadecimal_digits_are_rounded_once() {
        let cases = [
            ("1.8p1", 3.0),
            ("ff", 255.0),
            ("1p0", 1.0),
            (".8", 0.5),
            ("1p-1074", 5e-324),
            ("1p-1076", 0.0),
            ("1.8p-1075", 5e-324),
            ("1fffffffffffff8", 144_115_188_075_855_864.0),
            ("1p1023", 8.98846567431158e307),
            ("123456789abcdef01234", 8.596805828370696e22),
        ];
        for (text, value) in cases {
            assert_eq!(hexadecimal(text), Some(value), "{text}");
        }
        assert_eq!(hexadecimal("1p1024"), Some(f64::INFINITY));
        assert_eq!(hexadecimal("g"), None);
        assert_eq!(hexadecimal(""), None);
    }
}
