//! `$dateFromString`: parses a date, by a format or in one of the common forms.

use mayfly_base::{ErrorCode, Result};
use mayfly_value::RawValue;
use mayfly_value::shell::ShellValue;

use super::super::operand::{fault, optional, parts, required};
use super::super::{OpRow, own};
use super::format::{PARSED, check_format, format_fault};
use super::text::{conversion_fault, from_text};
use super::{date, zone_of};
use crate::parse::Parser;
use crate::{Expression, Frame, Value};

pub(in crate::op) const ROWS: &[OpRow] =
    &[own("$dateFromString", "3.6", "A string parsed as a date.", parse)];

fn parse(
    parser: &mut Parser<'_>,
    row: &'static OpRow,
    operand: RawValue<'_>,
) -> Result<Expression> {
    let [text, format, timezone, on_error, on_null] = parts(
        operand,
        ["dateString", "format", "timezone", "onError", "onNull"],
        |found| {
            let text =
                format!("$dateFromString only supports an object as an argument, found: {found}");
            fault(40540, text)
        },
        |name| fault(40541, format!("Unrecognized argument to $dateFromString: {name}")),
    )?;
    let text = required(parser, text, || {
        fault(40542, "Missing 'dateString' parameter to $dateFromString")
    })?;
    let format = optional(parser, format)?;
    if let Some(constant) = format.as_constant() {
        match constant {
            RawValue::String(format) => check_format(format, PARSED)?,
            RawValue::Null | RawValue::Undefined => {}
            other => return Err(format_fault(40684, "$dateFromString", other)),
        }
    }
    let arguments = vec![
        text,
        format,
        optional(parser, timezone)?,
        optional(parser, on_error)?,
        optional(parser, on_null)?,
    ];
    parser.call(row, run, arguments)
}

fn run<'a>(arguments: &'a [Expression], frame: Frame<'a>) -> Result<Value<'a>> {
    let value = arguments[0].evaluate(frame)?;
    let format = arguments[1].evaluate(frame)?;
    let given = !matches!(arguments[1], Expression::Absent);
    let format = match format.or_undefined() {
        RawValue::String(format) => {
            check_format(format, PARSED)?;
            Some(format)
        }
        other if !format.is_nullish() => {
            return Err(format_fault(40684, "$dateFromString", other));
        }
        _ => None,
    };
    let zoned = !matches!(arguments[2], Expression::Absent);
    let zone = zone_of(&arguments[2], frame)?;
    if value.is_nullish() {
        return match &arguments[4] {
            Expression::Absent => Ok(Value::NULL),
            on_null => on_null.evaluate(frame),
        };
    }
    let read = match (value.or_undefined(), &zone) {
        (RawValue::String(_), None) => return Ok(Value::NULL),
        (RawValue::String(_), _) if given && format.is_none() => return Ok(Value::NULL),
        (RawValue::String(text), zone) => from_text(text, format, zone.as_ref().filter(|_| zoned)),
        (other, _) => {
            let (found, shown) = (value.type_name(), ShellValue(other));
            Err(conversion_fault(format!(
                "$dateFromString requires that 'dateString' be a string, found: {found} with value {shown}"
            )))
        }
    };
    match (read, &arguments[3]) {
        (Ok(ms), _) => Ok(date(ms)),
        (Err(error), Expression::Absent) => Err(error),
        (Err(error), on_error) if error.code() == ErrorCode::ConversionFailure => {
            on_error.evaluate(frame)
        }
        (Err(error), _) => Err(error),
    }
}
