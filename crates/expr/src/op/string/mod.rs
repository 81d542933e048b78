//! Strings. Here: `$concat`, `$toLower`, `$toUpper`, `$strcasecmp`, `$strLenBytes`, `$strLenCP`,
//! `$split`. Case conversion is limited to ASCII, as in the reference.

pub(super) mod part;
pub(super) mod replace;
pub(super) mod search;
pub(super) mod trim;

use mayfly_base::Result;
use mayfly_value::{DocBuilder, RawValue, check_size};

use super::operand::{array, check_text, count, fault, int, text};
use super::{ANY, OpRow, list};
use crate::{Expression, Frame, Value};

pub(super) const ROWS: &[OpRow] = &[
    list("$concat", "2.4", "The concatenation of strings.", ANY, concat),
    list("$toLower", "2.2", "ASCII letters in lower case.", (1, 1), |args, frame| {
        text(&text_of(&args[0], frame)?.to_ascii_lowercase())
    }),
    list("$toUpper", "2.2", "ASCII letters in upper case.", (1, 1), |args, frame| {
        text(&text_of(&args[0], frame)?.to_ascii_uppercase())
    }),
    list("$strcasecmp", "2.2", "-1, 0 or 1, ignoring case.", (2, 2), |args, frame| {
        let left = text_of(&args[0], frame)?.to_ascii_uppercase();
        let right = text_of(&args[1], frame)?.to_ascii_uppercase();
        Ok(int(left.cmp(&right) as i32))
    }),
    list("$strLenBytes", "3.4", "The length in bytes of UTF-8.", (1, 1), |args, frame| {
        length("$strLenBytes", 34473, str::len, args, frame)
    }),
    list("$strLenCP", "3.4", "The length in code points.", (1, 1), |args, frame| {
        length("$strLenCP", 34471, |text| text.chars().count(), args, frame)
    }),
    list("$split", "3.4", "The parts between separators.", (2, 2), split),
];

fn length<'a>(
    name: &str,
    code: i32,
    of: fn(&str) -> usize,
    arguments: &'a [Expression],
    frame: Frame<'a>,
) -> Result<Value<'a>> {
    let value = arguments[0].evaluate(frame)?;
    match value.or_undefined() {
        RawValue::String(text) => Ok(count(of(text))),
        _ => {
            let found = value.type_name();
            Err(fault(code, format!("{name} requires a string argument, found: {found}")))
        }
    }
}

fn split<'a>(arguments: &'a [Expression], frame: Frame<'a>) -> Result<Value<'a>> {
    let (value, separator) = (arguments[0].evaluate(frame)?, arguments[1].evaluate(frame)?);
    if value.is_nullish() || separator.is_nullish() {
        return Ok(Value::NULL);
    }
    let wrong = |value: &Value<'_>, code: i32, which: &str| {
        let found = value.type_name();
        let text = format!(
            "$split requires an expression that evaluates to a string as a {which} argument, found: {found}"
        );
        fault(code, text)
    };
    let RawValue::String(whole) = value.or_undefined() else {
        return Err(wrong(&value, 40085, "first"));
    };
    let RawValue::String(by) = separator.or_undefined() else {
        return Err(wrong(&separator, 10_503_900, "second"));
    };
    if by.is_empty() {
        return Err(fault(40087, "$split requires a non-empty separator"));
    }
    let mut out = DocBuilder::new_array();
    for part in whole.split(by) {
        out.push(part);
        check_size(out.len())?;
    }
    array(out)
}

fn concat<'a>(arguments: &'a [Expression], frame: Frame<'a>) -> Result<Value<'a>> {
    let mut out = String::new();
    for argument in arguments {
        if !push_text(&mut out, &argument.evaluate(frame)?)? {
            return Ok(Value::NULL);
        }
    }
    text(&out)
}

/// Appends a string; returns false when it is null or missing.
pub(super) fn push_text(out: &mut String, value: &Value<'_>) -> Result<bool> {
    match value.or_undefined() {
        RawValue::String(text) => {
            out.push_str(text);
            check_text(out.len())?;
            Ok(true)
        }
        RawValue::Null | RawValue::Undefined => Ok(false),
        _ => {
            let found = value.type_name();
            Err(fault(16702, format!("$concat only supports strings, not {found}")))
        }
    }
}

/// Converts a value to a string, for the operators that accept other types.
pub(super) fn text_of<'a>(argument: &'a Expression, frame: Frame<'a>) -> Result<String> {
    let value = argument.evaluate(frame)?;
    match value.or_undefined() {
        RawValue::String(text) | RawValue::Symbol(text) | RawValue::Code(text) => {
            Ok(text.to_owned())
        }
        RawValue::Null | RawValue::Undefined => Ok(String::new()),
        RawValue::Int32(value) => Ok(value.to_string()),
        RawValue::Int64(value) => Ok(value.to_string()),
        RawValue::Double(value) => Ok(brief_double(value)),
        RawValue::Decimal128(bytes) => Ok(decimal_text(bytes)),
        RawValue::Date(ms) => super::date::format::iso_text(ms),
        RawValue::Timestamp(value) => Ok(super::date::format::timestamp_text(value)),
        _ => {
            let name = value.type_name();
            Err(fault(16007, format!("can't convert from BSON type {name} to String")))
        }
    }
}

/// Formats a double with at most 6 significant digits, as `%g` of the C library does.
fn brief_double(value: f64) -> String {
    if value.is_nan() {
        return "nan".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    significant(value, 6)
}

/// Formats a decimal.
pub(super) fn decimal_text(bytes: [u8; 16]) -> String {
    mayfly_value::bson::Decimal128::from_bytes(bytes).to_string()
}

/// Formats a double with at most 16 significant digits, in scientific notation if it is very large
/// or small.
pub(super) fn double_text(value: f64) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "Infinity" } else { "-Infinity" }.to_owned();
    }
    significant(value, 16)
}

/// Formats a finite double with at most `digits` significant digits, without trailing zeros; in
/// scientific notation if it is very large or small.
fn significant(value: f64, digits: usize) -> String {
    let scientific = format!("{value:.*e}", digits - 1);
    let (mantissa, power) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let power: i32 = power.parse().unwrap_or(0);
    let most = digits as i32;
    if (-4..most).contains(&power) {
        let places = usize::try_from(most - 1 - power).unwrap_or(0);
        let fixed = format!("{value:.places$}");
        return match fixed.contains('.') {
            true => fixed.trim_end_matches('0').trim_end_matches('.').to_owned(),
            false => fixed,
        };
    }
    // An integer mantissa has no point whose zeros could be dropped.
    let mantissa = match mantissa.contains('.') {
        true => mantissa.trim_end_matches('0').trim_end_matches('.'),
        false => mantissa,
    };
    let sign = if power < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", power.abs())
}
