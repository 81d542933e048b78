//! One component of a date: `$year`, `$month`, ..., with the date alone or as `{ date, timezone }`.

use mayfly_base::Result;
use mayfly_value::RawValue;

use super::super::operand::{fault, int, optional};
use super::super::{OpRow, Prepared, own};
use super::civil::Civil;
use super::{required_date, zone_of};
use crate::parse::Parser;
use crate::{Expression, Frame, Value};

pub(in crate::op) const ROWS: &[OpRow] = &[
    own("$year", "2.2", "The year.", parse),
    own("$month", "2.2", "The month, from 1.", parse),
    own("$dayOfMonth", "2.2", "The day of the month, from 1.", parse),
    own("$dayOfYear", "2.2", "The day of the year, from 1.", parse),
    own("$dayOfWeek", "2.2", "The day of the week, 1 for Sunday.", parse),
    own("$hour", "2.2", "The hour, from 0.", parse),
    own("$minute", "2.2", "The minute, from 0.", parse),
    own("$second", "2.2", "The second, from 0.", parse),
    own("$millisecond", "2.4", "The millisecond, from 0.", parse),
    own("$week", "2.2", "The week, from 0; weeks begin on Sunday.", parse),
    own("$isoDayOfWeek", "3.4", "The day of the week, 1 for Monday.", parse),
    own("$isoWeek", "3.4", "The week of ISO 8601.", parse),
    own("$isoWeekYear", "3.4", "The year that the ISO week belongs to.", parse),
];

fn parse(
    parser: &mut Parser<'_>,
    row: &'static OpRow,
    operand: RawValue<'_>,
) -> Result<Expression> {
    let name = row.name;
    let (date, timezone) = match operand {
        RawValue::Document(fields)
            if !fields.iter().next().is_some_and(|field| field.name().starts_with('$')) =>
        {
            let (mut date, mut timezone) = (None, None);
            for field in fields {
                match field.name() {
                    "date" => date = Some(field.value()),
                    "timezone" => timezone = Some(field.value()),
                    other => {
                        let text = format!("unrecognized option to {name}: \"{other}\"");
                        return Err(fault(40535, text));
                    }
                }
            }
            let date = date.ok_or_else(|| {
                let text =
                    format!("missing 'date' argument to {name}, provided: {name}: {operand:?}");
                fault(40539, text)
            })?;
            (parser.parse(date)?, optional(parser, timezone)?)
        }
        RawValue::Array(items) => {
            let mut list = parser.list(items)?;
            match (list.pop(), list.is_empty()) {
                (Some(single), true) => (single, Expression::Absent),
                (last, _) => {
                    let given = list.len() + usize::from(last.is_some());
                    let text = format!(
                        "{name} accepts exactly one argument if given an array, but was given {given}"
                    );
                    return Err(fault(40536, text));
                }
            }
        }
        single => (parser.parse(single)?, Expression::Absent),
    };
    parser.ready(row, run, Prepared::Which(name), vec![date, timezone])
}

fn run<'a>(
    prepared: &'a Prepared,
    arguments: &'a [Expression],
    frame: Frame<'a>,
) -> Result<Value<'a>> {
    let Prepared::Which(name) = *prepared else { return Ok(Value::NULL) };
    let value = arguments[0].evaluate(frame)?;
    if value.is_nullish() {
        return Ok(Value::NULL);
    }
    let ms = required_date(&value)?;
    let Some(zone) = zone_of(&arguments[1], frame)? else { return Ok(Value::NULL) };
    let part = part_of(name, &zone.civil(ms));
    Ok(match name {
        // In the reference only the ISO year is a long.
        "$isoWeekYear" => Value::Borrowed(RawValue::Int64(part)),
        _ => int(i32::try_from(part).unwrap_or(i32::MAX)),
    })
}

fn part_of(name: &str, civil: &Civil) -> i64 {
    match name {
        "$year" => civil.year,
        "$month" => civil.month,
        "$dayOfMonth" => civil.day,
        "$dayOfYear" => civil.day_of_year(),
        "$dayOfWeek" => civil.weekday() + 1,
        "$hour" => civil.hour,
        "$minute" => civil.minute,
        "$second" => civil.second,
        "$millisecond" => civil.millisecond,
        "$week" => civil.week(),
        "$isoDayOfWeek" => civil.iso_weekday(),
        "$isoWeek" => civil.iso_week().1,
        _ => civil.iso_week().0,
    }
}
