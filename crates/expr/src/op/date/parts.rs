//! `$dateFromParts`, `$dateToParts`: by month and day, or by ISO week and day of the week.

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_value::shell::ShellValue;
use mayfly_value::{DocBuilder, RawValue};

use super::super::operand::{document, fault, long_integer, optional, parts, required};
use super::super::{OpRow, own};
use super::civil::{Civil, days_of, weekday};
use super::{date, required_date, zone_of};
use crate::parse::Parser;
use crate::{Expression, Frame, Value};

pub(in crate::op) const ROWS: &[OpRow] = &[
    own("$dateFromParts", "3.6", "A date from its parts.", parse_from),
    own("$dateToParts", "3.6", "The parts of a date.", parse_to),
];

const NAMES: [&str; 11] = [
    "year",
    "month",
    "day",
    "isoWeekYear",
    "isoWeek",
    "isoDayOfWeek",
    "hour",
    "minute",
    "second",
    "millisecond",
    "timezone",
];

fn parse_from(
    parser: &mut Parser<'_>,
    row: &'static OpRow,
    operand: RawValue<'_>,
) -> Result<Expression> {
    let given = parts(
        operand,
        NAMES,
        |_| fault(40519, "$dateFromParts only supports an object as its argument"),
        |name| fault(40518, format!("Unrecognized argument to $dateFromParts: {name}")),
    )?;
    let (natural, iso) = (&given[..3], &given[3..6]);
    if given[0].is_none() && given[3].is_none() {
        let text = "$dateFromParts requires either 'year' or 'isoWeekYear' to be present";
        return Err(fault(40516, text));
    }
    if given[0].is_some() && iso.iter().any(Option::is_some) {
        let text = "$dateFromParts does not allow mixing natural dates with ISO dates";
        return Err(fault(40489, text));
    }
    if given[3].is_some() && natural.iter().any(Option::is_some) {
        let text = "$dateFromParts does not allow mixing ISO dates with natural dates";
        return Err(fault(40525, text));
    }
    let mut arguments = Vec::with_capacity(NAMES.len());
    for part in given {
        arguments.push(optional(parser, part)?);
    }
    parser.call(row, from_parts, arguments)
}

/// Evaluates a component; `None` when it is null or missing.
fn part<'a>(
    at: usize,
    arguments: &'a [Expression],
    default: i64,
    frame: Frame<'a>,
) -> Result<Option<i64>> {
    let (name, argument) = (NAMES[at], &arguments[at]);
    if let Expression::Absent = argument {
        return Ok(Some(default));
    }
    let value = argument.evaluate(frame)?;
    if value.is_nullish() {
        return Ok(None);
    }
    let Some(part) = long_integer(value.or_undefined()) else {
        let (found, shown) = (value.type_name(), ShellValue(value.or_undefined()));
        let text =
            format!("'{name}' must evaluate to an integer, found {found} with value {shown}");
        return Err(fault(40515, text));
    };
    let bounded = !matches!(name, "year" | "isoWeekYear" | "second" | "millisecond");
    if bounded && i16::try_from(part).is_err() {
        let text = format!(
            "'{name}' must evaluate to a value in the range [-32768, 32767]; value {part} is not in range"
        );
        return Err(fault(31034, text));
    }
    Ok(Some(part))
}

/// Evaluates parts, given by their places and defaults; `None` when one is null or missing.
fn these_parts<'a, const N: usize>(
    places: [(usize, i64); N],
    arguments: &'a [Expression],
    frame: Frame<'a>,
) -> Result<Option<[i64; N]>> {
    let mut found = [0; N];
    for (place, (at, default)) in found.iter_mut().zip(places) {
        match part(at, arguments, default, frame)? {
            Some(part) => *place = part,
            None => return Ok(None),
        }
    }
    Ok(Some(found))
}

/// Checks the year, after no other part is null.
fn check_year(name: &str, year: i64) -> Result<()> {
    let (least, code) = if name == "year" { (0, 40523) } else { (1, 31095) };
    if (least..=9999).contains(&year) {
        return Ok(());
    }
    let text =
        format!("'{name}' must evaluate to an integer in the range {least} to 9999, found {year}");
    Err(fault(code, text))
}

fn from_parts<'a>(arguments: &'a [Expression], frame: Frame<'a>) -> Result<Value<'a>> {
    let iso = !matches!(arguments[3], Expression::Absent);
    let first = if iso { 3 } else { 0 };
    // The time, the time zone and the day are evaluated in this order: the first one that is null
    // or wrong decides.
    let Some([hour, minute, second, millisecond]) =
        these_parts([(6, 0), (7, 0), (8, 0), (9, 0)], arguments, frame)?
    else {
        return Ok(Value::NULL);
    };
    let Some(zone) = zone_of(&arguments[10], frame)? else { return Ok(Value::NULL) };
    let Some([year, month, day]) =
        these_parts([(first, 0), (first + 1, 1), (first + 2, 1)], arguments, frame)?
    else {
        return Ok(Value::NULL);
    };
    check_year(NAMES[first], year)?;
    let mut civil = Civil { year, month, day, hour, minute, second, millisecond };
    if iso {
        // The first ISO week is the one with January 4.
        let fourth = days_of(year, 1, 4);
        let monday = fourth - (weekday(fourth) + 6) % 7;
        civil.month = 1;
        civil.day = monday + (month - 1) * 7 + day - 1 - days_of(year, 1, 1) + 1;
    }
    let moment = civil.local_ms().and_then(|local| zone.utc_ms(local));
    moment.map(date).ok_or_else(|| {
        let text =
            "Overflow casting from a lower-precision duration to a higher-precision duration";
        Error::new(ErrorCode::DurationOverflow, text)
    })
}

fn parse_to(
    parser: &mut Parser<'_>,
    row: &'static OpRow,
    operand: RawValue<'_>,
) -> Result<Expression> {
    let [date, timezone, iso] = parts(
        operand,
        ["date", "timezone", "iso8601"],
        |_| fault(40524, "$dateToParts only supports an object as its argument"),
        |name| fault(40520, format!("Unrecognized argument to $dateToParts: {name}")),
    )?;
    let date = required(parser, date, || fault(40522, "Missing 'date' parameter to $dateToParts"))?;
    let arguments = vec![date, optional(parser, timezone)?, optional(parser, iso)?];
    parser.call(row, to_parts, arguments)
}

fn to_parts<'a>(arguments: &'a [Expression], frame: Frame<'a>) -> Result<Value<'a>> {
    let value = arguments[0].evaluate(frame)?;
    let Some(zone) = zone_of(&arguments[1], frame)? else { return Ok(Value::NULL) };
    let iso = match &arguments[2] {
        Expression::Absent => false,
        argument => {
            let iso = argument.evaluate(frame)?;
            match iso.or_undefined() {
                RawValue::Bool(iso) => iso,
                RawValue::Null | RawValue::Undefined => return Ok(Value::NULL),
                _ => {
                    let found = iso.type_name();
                    let text = format!("iso8601 must evaluate to a bool, found {found}");
                    return Err(fault(40521, text));
                }
            }
        }
    };
    if value.is_nullish() {
        return Ok(Value::NULL);
    }
    let civil = zone.civil(required_date(&value)?);
    let (iso_year, iso_week) = civil.iso_week();
    let days: [(&str, i64); 3] = if iso {
        [("isoWeekYear", iso_year), ("isoWeek", iso_week), ("isoDayOfWeek", civil.iso_weekday())]
    } else {
        [("year", civil.year), ("month", civil.month), ("day", civil.day)]
    };
    let times = [
        ("hour", civil.hour),
        ("minute", civil.minute),
        ("second", civil.second),
        ("millisecond", civil.millisecond),
    ];
    let mut out = DocBuilder::new();
    for (name, part) in days.into_iter().chain(times) {
        out.append(name, i32::try_from(part).unwrap_or(i32::MAX));
    }
    document(out)
}
