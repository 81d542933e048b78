//! Dates: milliseconds since 1970 in UTC, interpreted in a time zone.
//!
//! * [`civil`]: days and months of the proleptic Gregorian calendar, ISO weeks.
//! * [`zone`]: time zones; the data is part of the binary.
//! * `part`: one component of a date. `parts`: all of them, and back.
//! * [`mod@format`], [`text`]: formatting and parsing of dates. `read`: `$dateFromString`.
//! * [`mod@unit`]: units of time, and date arithmetic. `shift`, `diff`, `trunc`: its operators.

pub(crate) mod civil;
pub(super) mod diff;
pub(crate) mod format;
pub(super) mod part;
pub(super) mod parts;
pub(super) mod read;
pub(super) mod shift;
pub(crate) mod text;
pub(super) mod trunc;
pub(crate) mod unit;
pub(crate) mod zone;

use mayfly_base::Result;
use mayfly_value::RawValue;

use super::operand::fault;
use crate::{Expression, Frame, Value};
use zone::Zone;

/// The milliseconds of a date, timestamp or ObjectId; `None` for other values.
pub(super) fn as_date(value: RawValue<'_>) -> Option<i64> {
    match value {
        RawValue::Date(ms) => Some(ms),
        RawValue::Timestamp(stamp) => Some((stamp >> 32) as i64 * 1000),
        RawValue::ObjectId(id) => {
            // Signed, unlike the seconds of a timestamp.
            let seconds = i32::from_be_bytes([id[0], id[1], id[2], id[3]]);
            Some(i64::from(seconds) * 1000)
        }
        _ => None,
    }
}

/// The same, with an error for other values.
fn required_date(value: &Value<'_>) -> Result<i64> {
    as_date(value.or_undefined()).ok_or_else(|| {
        let found = value.type_name();
        fault(16006, format!("can't convert from BSON type {found} to Date"))
    })
}

/// Evaluates a time zone argument: UTC when it is omitted, `None` when it is null or missing.
fn zone_of<'a>(argument: &'a Expression, frame: Frame<'a>) -> Result<Option<Zone>> {
    if let Expression::Absent = argument {
        return Ok(Some(Zone::UTC));
    }
    let value = argument.evaluate(frame)?;
    match value.or_undefined() {
        RawValue::Null | RawValue::Undefined => Ok(None),
        RawValue::String(name) => Zone::named(name).map(Some),
        _ => {
            let found = value.type_name();
            Err(fault(40517, format!("timezone must evaluate to a string, found {found}")))
        }
    }
}

/// A date as a value.
fn date(ms: i64) -> Value<'static> {
    Value::Borrowed(RawValue::Date(ms))
}
