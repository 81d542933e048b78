//! `$dateTrunc`: the start of the unit, or bin of units, that contains a date. Bins are counted
//! from 2000-01-01 in the time zone, those of weeks from the first `startOfWeek` day after it.

use mayfly_base::Result;
use mayfly_value::RawValue;
use mayfly_value::shell::ShellValue;

use super::super::operand::{fault, long_integer, optional, parts, required};
use super::super::{OpRow, own};
use super::civil::{Civil, DAY_MS, days_of, weekday};
use super::unit::{Unit, unit_of, weekday_of};
use super::zone::Zone;
use super::{as_date, date, zone_of};
use crate::parse::Parser;
use crate::{Expression, Frame, Value};

pub(in crate::op) const ROWS: &[OpRow] =
    &[own("$dateTrunc", "5.0", "The start of the unit that contains a date.", parse)];

const NAME: &str = "$dateTrunc";

/// Largest bin, as in the reference.
const MAX_BIN: i64 = 100_000_000_000;

fn parse(
    parser: &mut Parser<'_>,
    row: &'static OpRow,
    operand: RawValue<'_>,
) -> Result<Expression> {
    let [moment, unit, bin, timezone, start_of_week] = parts(
        operand,
        ["date", "unit", "binSize", "timezone", "startOfWeek"],
        |_| fault(5_439_007, "$dateTrunc only supports an object as its argument"),
        |name| {
            let text = format!(
                "Unrecognized argument to $dateTrunc: {name}. Expected arguments are date, unit, and optionally, binSize, timezone, startOfWeek"
            );
            fault(5_439_008, text)
        },
    )?;
    let missing =
        |code: i32, part: &str| fault(code, format!("Missing '{part}' parameter to $dateTrunc"));
    let arguments = vec![
        required(parser, moment, || missing(5_439_009, "date"))?,
        required(parser, unit, || missing(5_439_010, "unit"))?,
        optional(parser, bin)?,
        optional(parser, timezone)?,
        optional(parser, start_of_week)?,
    ];
    parser.call(row, run, arguments)
}

fn run<'a>(arguments: &'a [Expression], frame: Frame<'a>) -> Result<Value<'a>> {
    let value = arguments[0].evaluate(frame)?;
    if value.is_nullish() {
        return Ok(Value::NULL);
    }
    let mut bin = 1;
    if !matches!(arguments[2], Expression::Absent) {
        let given = arguments[2].evaluate(frame)?;
        if given.is_nullish() {
            return Ok(Value::NULL);
        }
        bin = bin_of(&given)?;
    }
    let Some(unit) = unit_of(NAME, &arguments[1].evaluate(frame)?)? else {
        return Ok(Value::NULL);
    };
    let mut first_day = 0;
    if unit == Unit::Week && !matches!(arguments[4], Expression::Absent) {
        match weekday_of(NAME, &arguments[4].evaluate(frame)?)? {
            Some(day) => first_day = day,
            None => return Ok(Value::NULL),
        }
    }
    let Some(zone) = zone_of(&arguments[3], frame)? else { return Ok(Value::NULL) };
    let ms = as_date(value.or_undefined()).ok_or_else(|| {
        let found = value.type_name();
        fault(5_439_012, format!("$dateTrunc requires 'date' to be a date, but got {found}"))
    })?;
    let by_clock = matches!(unit, Unit::Second | Unit::Minute | Unit::Hour);
    if by_clock && unit.fixed_ms().and_then(|ms| ms.checked_mul(bin)).is_none() {
        return Err(fault(5_439_002, "dateTrunc unsupported binSize value for this unit"));
    }
    if bin > MAX_BIN {
        return Err(fault(5_439_006, "dateTrunc unsupported binSize value"));
    }
    truncated(ms, unit, bin, &zone, first_day)
        .map(date)
        .ok_or_else(|| fault(5_439_000, "dateTrunc overflowed"))
}

fn bin_of(given: &Value<'_>) -> Result<i64> {
    match long_integer(given.or_undefined()) {
        Some(bin) if bin > 0 => Ok(bin),
        Some(bin) => {
            let text =
                format!("$dateTrunc requires 'binSize' to be greater than 0, but got value {bin}");
            Err(fault(5_439_018, text))
        }
        None => {
            let (shown, found) = (ShellValue(given.or_undefined()), given.type_name());
            let text = format!(
                "$dateTrunc requires 'binSize' to be a 64-bit integer, but got value '{shown}' of type {found}"
            );
            Err(fault(5_439_017, text))
        }
    }
}

/// The start of the bin that contains a date.
pub(crate) fn truncated(ms: i64, unit: Unit, bin: i64, zone: &Zone, first_day: i64) -> Option<i64> {
    let reference_day = days_of(2000, 1, 1);
    let local = zone.local_ms(ms);
    let down = |value: i64, from: i64, step: i64| -> Option<i64> {
        let offset = value.checked_sub(from)?;
        from.checked_add(offset.div_euclid(step).checked_mul(step)?)
    };
    match unit {
        Unit::Millisecond | Unit::Second | Unit::Minute | Unit::Hour => {
            let step = unit.fixed_ms()?.checked_mul(bin)?;
            // By the time that has passed, whatever the local clock did.
            down(ms, zone.utc_ms(reference_day * DAY_MS)?, step)
        }
        Unit::Day => {
            let day = down(local.div_euclid(DAY_MS), reference_day, bin)?;
            zone.utc_ms(day.checked_mul(DAY_MS)?)
        }
        Unit::Week => {
            let first = reference_day + (first_day - weekday(reference_day)).rem_euclid(7);
            let day = down(local.div_euclid(DAY_MS), first, bin.checked_mul(7)?)?;
            zone.utc_ms(day.checked_mul(DAY_MS)?)
        }
        Unit::Month | Unit::Quarter | Unit::Year => {
            let months = match unit {
                Unit::Month => 1,
                Unit::Quarter => 3,
                _ => 12,
            };
            let civil = Civil::of(local);
            let month = civil.year * 12 + civil.month - 1;
            let start = down(month, 2000 * 12, bin.checked_mul(months)?)?;
            let (year, month) = (start.div_euclid(12), start.rem_euclid(12) + 1);
            let start =
                Civil { year, month, day: 1, hour: 0, minute: 0, second: 0, millisecond: 0 };
            zone.utc_ms(start.local_ms()?)
        }
    }
}
