//! Formats dates: `$dateToString`, and the ISO form for conversions to strings.

use mayfly_base::Result;
use mayfly_value::RawValue;
use mayfly_value::shell::ShellValue;

use super::super::operand::{fault, optional, parts, required, text};
use super::super::{OpRow, own};
use super::civil::Civil;
use super::zone::Zone;
use super::{required_date, zone_of};
use crate::parse::Parser;
use crate::{Expression, Frame, Value};

pub(in crate::op) const ROWS: &[OpRow] =
    &[own("$dateToString", "3.0", "A date formatted as a string.", parse)];

/// The default format for UTC.
const ISO: &str = "%Y-%m-%dT%H:%M:%S.%LZ";
/// The default format for other time zones.
const ISO_LOCAL: &str = "%Y-%m-%dT%H:%M:%S.%L";

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

/// The number of a month, given the first three letters of its name.
pub(super) fn abbreviated_month(letters: &str) -> Option<i64> {
    month_that(|month| month[..3].eq_ignore_ascii_case(letters))
}

/// The number of a month, given its name or the first three letters of it.
pub(super) fn month_named(name: &str) -> Option<i64> {
    let name = if name.eq_ignore_ascii_case("sept") { "sep" } else { name };
    abbreviated_month(name).or_else(|| month_that(|month| month.eq_ignore_ascii_case(name)))
}

fn month_that(matches: impl Fn(&str) -> bool) -> Option<i64> {
    let at = MONTHS.iter().position(|month| matches(month))?;
    Some(at as i64 + 1)
}

/// Formats a date in ISO form, in UTC.
///
/// # Errors
/// 18537 for a year without exactly four digits.
pub(crate) fn iso_text(ms: i64) -> Result<String> {
    formatted(ms, ISO, &Zone::UTC)
}

/// Formats a timestamp in UTC, with its increment at the end: `Jan  1 00:00:01:1`.
pub(crate) fn timestamp_text(value: u64) -> String {
    let civil = Zone::UTC.civil((value >> 32) as i64 * 1000);
    let month = usize::try_from(civil.month - 1).ok().and_then(|at| MONTHS.get(at));
    let (month, increment) = (&month.copied().unwrap_or("   ")[..3], value & 0xFFFF_FFFF);
    let Civil { day, hour, minute, second, .. } = civil;
    format!("{month} {day:2} {hour:02}:{minute:02}:{second:02}:{increment}")
}

fn parse(
    parser: &mut Parser<'_>,
    row: &'static OpRow,
    operand: RawValue<'_>,
) -> Result<Expression> {
    let [format, date, timezone, on_null] = parts(
        operand,
        ["format", "date", "timezone", "onNull"],
        |_| fault(18629, "$dateToString only supports an object as its argument"),
        |name| fault(18534, format!("Unrecognized argument to $dateToString: {name}")),
    )?;
    let date =
        required(parser, date, || fault(18628, "Missing 'date' parameter to $dateToString"))?;
    let format = optional(parser, format)?;
    if let Some(constant) = format.as_constant() {
        match constant {
            RawValue::String(format) => check_format(format, FORMATTED)?,
            RawValue::Null | RawValue::Undefined => {}
            other => return Err(format_fault(18533, "$dateToString", other)),
        }
    }
    let arguments = vec![date, format, optional(parser, timezone)?, optional(parser, on_null)?];
    parser.call(row, run, arguments)
}

/// The error for a format that is not a string.
pub(super) fn format_fault(code: i32, operator: &str, value: RawValue<'_>) -> mayfly_base::Error {
    let (found, shown) = (value.type_name(), ShellValue(value));
    let text =
        format!("{operator} requires that 'format' be a string, found: {found} with value {shown}");
    fault(code, text)
}

fn run<'a>(arguments: &'a [Expression], frame: Frame<'a>) -> Result<Value<'a>> {
    let value = arguments[0].evaluate(frame)?;
    let format = arguments[1].evaluate(frame)?;
    let given = !matches!(arguments[1], Expression::Absent);
    let format = match format.or_undefined() {
        RawValue::String(format) => {
            check_format(format, FORMATTED)?;
            Some(format)
        }
        other if !format.is_nullish() => return Err(format_fault(18533, "$dateToString", other)),
        _ => None,
    };
    let zone = zone_of(&arguments[2], frame)?;
    if value.is_nullish() {
        return match &arguments[3] {
            Expression::Absent => Ok(Value::NULL),
            on_null => on_null.evaluate(frame),
        };
    }
    let Some(zone) = zone.filter(|_| format.is_some() || !given) else { return Ok(Value::NULL) };
    let ms = required_date(&value)?;
    let format = format.unwrap_or(if zone.is_utc() { ISO } else { ISO_LOCAL });
    text(&formatted(ms, format, &zone)?)
}

/// The format specifiers after `%` for formatting.
const FORMATTED: &str = "dGHjLmMSuUVwYzZbB%";
/// The format specifiers after `%` for parsing.
pub(super) const PARSED: &str = "dGHjLmMSuVYzZbB%";

/// Checks that a format contains only these specifiers.
///
/// # Errors
/// 18535 for a `%` at the end, 18536 for an unknown specifier.
pub(super) fn check_format(format: &str, specifiers: &str) -> Result<()> {
    let mut letters = format.chars();
    while let Some(letter) = letters.next() {
        if letter != '%' {
            continue;
        }
        match letters.next() {
            None => return Err(fault(18535, "Unmatched '%' at end of format string")),
            Some(known) if specifiers.contains(known) => {}
            Some(other) => {
                let text = format!("Invalid format character '%{other}' in format string");
                return Err(fault(18536, text));
            }
        }
    }
    Ok(())
}

fn formatted(ms: i64, format: &str, zone: &Zone) -> Result<String> {
    let offset = zone.offset_ms(ms);
    let civil = zone.civil(ms);
    let mut out = String::with_capacity(format.len() + 16);
    let mut letters = format.chars();
    while let Some(letter) = letters.next() {
        if letter != '%' {
            out.push(letter);
            continue;
        }
        let Some(what) = letters.next() else { break };
        put(&mut out, what, &civil, offset)?;
    }
    Ok(out)
}

fn put(out: &mut String, what: char, civil: &Civil, offset_ms: i64) -> Result<()> {
    use std::fmt::Write;
    let (value, width) = match what {
        'd' => (civil.day, 2),
        'G' => (civil.iso_week().0, 4),
        'H' => (civil.hour, 2),
        'j' => (civil.day_of_year(), 3),
        'L' => (civil.millisecond, 3),
        'm' => (civil.month, 2),
        'M' => (civil.minute, 2),
        'S' => (civil.second, 2),
        'u' => (civil.iso_weekday(), 1),
        'U' => (civil.week(), 2),
        'V' => (civil.iso_week().1, 2),
        'w' => (civil.weekday() + 1, 1),
        'Y' => (civil.year, 4),
        'b' | 'B' => {
            let month = usize::try_from(civil.month - 1).ok().and_then(|at| MONTHS.get(at));
            let name = month.copied().unwrap_or_default();
            out.push_str(if what == 'b' { &name[..name.len().min(3)] } else { name });
            return Ok(());
        }
        'z' => {
            out.push(if offset_ms < 0 { '-' } else { '+' });
            let minutes = offset_ms.abs() / 60_000;
            (minutes / 60 * 100 + minutes % 60, 4)
        }
        'Z' => {
            let _ = write!(out, "{}", offset_ms / 60_000);
            return Ok(());
        }
        other => {
            out.push(other);
            return Ok(());
        }
    };
    if !(0..=9999).contains(&value) {
        let text = format!(
            "Could not convert date to string: date component was outside the supported range of 0-9999: {value}"
        );
        return Err(fault(18537, text));
    }
    let _ = write!(out, "{value:0width$}");
    Ok(())
}
