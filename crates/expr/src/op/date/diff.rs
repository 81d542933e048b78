//! `$dateDiff`: the number of unit boundaries between two dates.

use mayfly_base::Result;
use mayfly_value::RawValue;

use super::super::operand::{fault, optional, parts, required};
use super::super::{OpRow, own};
use super::civil::{Civil, DAY_MS};
use super::unit::{Unit, unit_of, weekday_of};
use super::zone::Zone;
use super::{as_date, zone_of};
use crate::parse::Parser;
use crate::{Expression, Frame, Value};

pub(in crate::op) const ROWS: &[OpRow] =
    &[own("$dateDiff", "5.0", "The time between two dates in a unit.", parse)];

const NAME: &str = "$dateDiff";

fn parse(
    parser: &mut Parser<'_>,
    row: &'static OpRow,
    operand: RawValue<'_>,
) -> Result<Expression> {
    let [start, end, unit, timezone, start_of_week] = parts(
        operand,
        ["startDate", "endDate", "unit", "timezone", "startOfWeek"],
        |_| fault(5_166_301, "$dateDiff only supports an object as its argument"),
        |name| fault(5_166_302, format!("Unrecognized argument to $dateDiff: {name}")),
    )?;
    let missing =
        |code: i32, part: &str| fault(code, format!("Missing '{part}' parameter to $dateDiff"));
    let arguments = vec![
        required(parser, start, || missing(5_166_303, "startDate"))?,
        required(parser, end, || missing(5_166_304, "endDate"))?,
        required(parser, unit, || missing(5_166_305, "unit"))?,
        optional(parser, timezone)?,
        optional(parser, start_of_week)?,
    ];
    parser.call(row, run, arguments)
}

fn run<'a>(arguments: &'a [Expression], frame: Frame<'a>) -> Result<Value<'a>> {
    let start = arguments[0].evaluate(frame)?;
    let end = arguments[1].evaluate(frame)?;
    if start.is_nullish() || end.is_nullish() {
        return Ok(Value::NULL);
    }
    let Some(unit) = unit_of(NAME, &arguments[2].evaluate(frame)?)? else {
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
    let moment = |value: &Value<'_>, part: &str| {
        as_date(value.or_undefined()).ok_or_else(|| {
            let found = value.type_name();
            fault(5_166_307, format!("{NAME} requires '{part}' to be a date, but got {found}"))
        })
    };
    let (start, end) = (moment(&start, "startDate")?, moment(&end, "endDate")?);
    difference(start, end, unit, &zone, first_day)
        .map(|difference| Value::Borrowed(RawValue::Int64(difference)))
        .ok_or_else(|| fault(5_166_308, "dateDiff overflowed"))
}

fn difference(start: i64, end: i64, unit: Unit, zone: &Zone, first_day: i64) -> Option<i64> {
    let by = |of: &dyn Fn(i64) -> i64| of(end).checked_sub(of(start));
    let local = |ms: i64| zone.local_ms(ms);
    let months = |ms: i64| {
        let civil = Civil::of(local(ms));
        civil.year * 12 + civil.month - 1
    };
    match unit {
        Unit::Millisecond => end.checked_sub(start),
        Unit::Second => by(&|ms| ms.div_euclid(1000)),
        Unit::Minute => by(&|ms| ms.div_euclid(60_000)),
        // Hours begin at full hours of the local clock, and are counted in elapsed time.
        Unit::Hour => {
            let full = |ms: i64| ms.checked_sub(local(ms).rem_euclid(3_600_000));
            Some(full(end)?.checked_sub(full(start)?)?.div_euclid(3_600_000))
        }
        Unit::Day => by(&|ms| local(ms).div_euclid(DAY_MS)),
        // Day 0 was a Thursday, four days after a Sunday.
        Unit::Week => by(&|ms| (local(ms).div_euclid(DAY_MS) + 4 - first_day).div_euclid(7)),
        Unit::Month => by(&|ms| months(ms)),
        Unit::Quarter => by(&|ms| months(ms).div_euclid(3)),
        Unit::Year => by(&|ms| months(ms).div_euclid(12)),
    }
}
