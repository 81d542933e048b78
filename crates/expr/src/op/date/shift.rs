//! `$dateAdd`, `$dateSubtract`.

use mayfly_base::Result;
use mayfly_value::RawValue;
use mayfly_value::shell::ShellValue;

use super::super::operand::{fault, long_integer, optional, parts};
use super::super::{OpRow, Prepared, own};
use super::unit::{moved, unit_of};
use super::{as_date, date, zone_of};
use crate::parse::Parser;
use crate::{Expression, Frame, Value};

pub(in crate::op) const ROWS: &[OpRow] = &[
    own("$dateAdd", "5.0", "A date an amount of time later.", parse),
    own("$dateSubtract", "5.0", "A date an amount of time earlier.", parse),
];

fn parse(
    parser: &mut Parser<'_>,
    row: &'static OpRow,
    operand: RawValue<'_>,
) -> Result<Expression> {
    let name = row.name;
    let [start, unit, amount, timezone] = parts(
        operand,
        ["startDate", "unit", "amount", "timezone"],
        |found| {
            fault(5_166_400, format!("{name} expects an object as its argument.found: {found}"))
        },
        |part| {
            let text = format!(
                "Unrecognized argument to {name}: {part}. Expected arguments are startDate, unit, amount, and optionally timezone."
            );
            fault(5_166_401, text)
        },
    )?;
    let (Some(start), Some(unit), Some(amount)) = (start, unit, amount) else {
        let text = format!("{name} requires startDate, unit, and amount to be present");
        return Err(fault(5_166_402, text));
    };
    let arguments = vec![
        parser.parse(start)?,
        parser.parse(unit)?,
        parser.parse(amount)?,
        optional(parser, timezone)?,
    ];
    parser.ready(row, shift, Prepared::Which(name), arguments)
}

fn shift<'a>(
    prepared: &'a Prepared,
    arguments: &'a [Expression],
    frame: Frame<'a>,
) -> Result<Value<'a>> {
    let Prepared::Which(name) = *prepared else { return Ok(Value::NULL) };
    let start = arguments[0].evaluate(frame)?;
    if start.is_nullish() {
        return Ok(Value::NULL);
    }
    let unit = arguments[1].evaluate(frame)?;
    let Some(unit) = unit_of(name, &unit)? else { return Ok(Value::NULL) };
    let amount = arguments[2].evaluate(frame)?;
    if amount.is_nullish() {
        return Ok(Value::NULL);
    }
    let Some(zone) = zone_of(&arguments[3], frame)? else { return Ok(Value::NULL) };
    let Some(ms) = as_date(start.or_undefined()) else {
        let text = format!("{name} requires startDate to be convertible to a date");
        return Err(fault(5_166_403, text));
    };
    let Some(by) = long_integer(amount.or_undefined()) else {
        let text = format!("{name} expects integer amount of time units");
        return Err(fault(5_166_405, text));
    };
    let by = match name {
        "$dateSubtract" => by.checked_neg().ok_or_else(|| {
            let shown = ShellValue(RawValue::Int64(by)).to_string();
            fault(6_045_000, format!("invalid $dateSubtract 'amount' parameter value: {shown}"))
        })?,
        _ => by,
    };
    moved(ms, unit, by, &zone).map(date).ok_or_else(|| fault(5_166_406, "dateAdd overflowed"))
}
