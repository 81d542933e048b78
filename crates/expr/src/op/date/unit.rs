//! Units of time, and date arithmetic with them. Days and larger units are added to the local time,
//! smaller ones to the UTC time.

use mayfly_base::{Error, Result};
use mayfly_value::RawValue;

use super::super::operand::fault;
use super::civil::{Civil, DAY_MS, days_in_month};
use super::zone::Zone;
use crate::Value;

/// A unit of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs, reason = "the names of the units")]
pub(crate) enum Unit {
    Millisecond,
    Second,
    Minute,
    Hour,
    Day,
    Week,
    Month,
    Quarter,
    Year,
}

impl Unit {
    /// The unit with this name.
    ///
    /// # Errors
    /// 9 FailedToParse for an unknown name.
    pub(crate) fn parse(name: &str) -> Result<Unit> {
        Ok(match name {
            "millisecond" => Unit::Millisecond,
            "second" => Unit::Second,
            "minute" => Unit::Minute,
            "hour" => Unit::Hour,
            "day" => Unit::Day,
            "week" => Unit::Week,
            "month" => Unit::Month,
            "quarter" => Unit::Quarter,
            "year" => Unit::Year,
            other => {
                return Err(Error::failed_to_parse(format!("unknown time unit value: {other}")));
            }
        })
    }

    /// The milliseconds of a unit of constant length; `None` for months and larger units.
    pub(crate) fn fixed_ms(self) -> Option<i64> {
        match self {
            Unit::Millisecond => Some(1),
            Unit::Second => Some(1000),
            Unit::Minute => Some(60_000),
            Unit::Hour => Some(3_600_000),
            Unit::Day => Some(DAY_MS),
            Unit::Week => Some(7 * DAY_MS),
            Unit::Month | Unit::Quarter | Unit::Year => None,
        }
    }

    /// The months in a unit of months.
    fn months(self) -> Option<i64> {
        match self {
            Unit::Month => Some(1),
            Unit::Quarter => Some(3),
            Unit::Year => Some(12),
            _ => None,
        }
    }
}

/// Evaluates a unit argument; `None` when it is null or missing.
pub(super) fn unit_of(operator: &str, value: &Value<'_>) -> Result<Option<Unit>> {
    match value.or_undefined() {
        RawValue::String(name) => Unit::parse(name).map(Some),
        RawValue::Null | RawValue::Undefined => Ok(None),
        _ => {
            let found = value.type_name();
            let text = format!("{operator} requires 'unit' to be a string, but got {found}");
            Err(fault(5_439_013, text))
        }
    }
}

/// Evaluates a day argument, 0 for Sunday; `None` when it is null or missing.
pub(super) fn weekday_of(operator: &str, value: &Value<'_>) -> Result<Option<i64>> {
    const DAYS: [&str; 7] =
        ["sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday"];
    let RawValue::String(name) = value.or_undefined() else {
        if value.is_nullish() {
            return Ok(None);
        }
        let found = value.type_name();
        let text = format!("{operator} requires 'startOfWeek' to be a string, but got {found}");
        return Err(fault(5_439_015, text));
    };
    let lower = name.to_ascii_lowercase();
    let day = DAYS.iter().position(|day| *day == lower || day[..3] == lower);
    match day {
        Some(day) => Ok(Some(day as i64)),
        None => Err(fault(
            5_439_016,
            format!(
                "{operator} parameter 'startOfWeek' value cannot be recognized as a day of a week: {name}"
            ),
        )),
    }
}

/// Adds an amount of units to a date; `None` on overflow.
pub(crate) fn moved(ms: i64, unit: Unit, amount: i64, zone: &Zone) -> Option<i64> {
    if let (Some(unit_ms), true) = (unit.fixed_ms(), unit < Unit::Day || zone.is_utc()) {
        return ms.checked_add(unit_ms.checked_mul(amount)?);
    }
    if amount == 0 {
        return Some(ms);
    }
    let local = zone.local_ms(ms);
    let target = match (unit.months(), unit.fixed_ms()) {
        (Some(months), _) => {
            let civil = Civil::of(local);
            let total = civil
                .year
                .checked_mul(12)?
                .checked_add(civil.month - 1)?
                .checked_add(months.checked_mul(amount)?)?;
            let (year, month) = (total.div_euclid(12), total.rem_euclid(12) + 1);
            // The last day of a month that is too short.
            let day = civil.day.min(days_in_month(year, month));
            Civil { year, month, day, ..civil }.local_ms()?
        }
        (None, fixed) => local.checked_add(fixed?.checked_mul(amount)?)?,
    };
    zone.utc_ms(target)
}
