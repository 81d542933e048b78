//! `$convert` and its short forms `$toInt`, `$toString`, ...
//!
//! Input type and target select the conversion. Null and missing inputs give null, or the value of
//! `onNull`; a failed conversion is 241 ConversionFailure, or gives the value of `onError`.

mod binary;
mod number;
mod to;

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_value::shell::ShellValue;
use mayfly_value::{Number, RawValue, ty};

use super::operand::{fault, optional, parts, required};
use super::{OpRow, Prepared, own};
use crate::parse::Parser;
use crate::{Expression, Frame, Value};

pub(super) const ROWS: &[OpRow] = &[
    own("$convert", "4.0", "A value of another type.", parse),
    own("$toBool", "4.0", "A value as a boolean.", parse_short),
    own("$toDate", "4.0", "A value as a date.", parse_short),
    own("$toDecimal", "4.0", "A value as a decimal.", parse_short),
    own("$toDouble", "4.0", "A value as a double.", parse_short),
    own("$toInt", "4.0", "A value as a 32-bit integer.", parse_short),
    own("$toLong", "4.0", "A value as a 64-bit integer.", parse_short),
    own("$toObjectId", "4.0", "A string as an ObjectId.", parse_short),
    own("$toString", "4.0", "A value as a string.", parse_short),
    own("$toUUID", "8.0", "A string as a UUID.", parse_short),
];

/// The target type of a conversion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Target {
    /// The type byte.
    kind: u8,
    /// The binary subtype.
    subtype: u8,
}

/// The options of a conversion: the text format of binary data, the byte order and base of numbers.
#[derive(Clone, Debug, Default)]
struct ConversionOptions {
    format: Option<String>,
    big_endian: bool,
    base: Option<u32>,
}

fn conversion_fault(text: impl std::fmt::Display) -> Error {
    Error::new(ErrorCode::ConversionFailure, format!("{text}"))
}

fn parse(
    parser: &mut Parser<'_>,
    row: &'static OpRow,
    operand: RawValue<'_>,
) -> Result<Expression> {
    let [input, to, format, on_error, on_null, base, byte_order] = parts(
        operand,
        ["input", "to", "format", "onError", "onNull", "base", "byteOrder"],
        |found| {
            Error::failed_to_parse(format!(
                "$convert expects an object of named arguments but found: {found}"
            ))
        },
        |name| Error::failed_to_parse(format!("$convert found an unknown argument: {name}")),
    )?;
    let missing =
        |name: &str| Error::failed_to_parse(format!("Missing '{name}' parameter to $convert"));
    let arguments = vec![
        required(parser, input, || missing("input"))?,
        required(parser, to, || missing("to"))?,
        optional(parser, format)?,
        optional(parser, on_error)?,
        optional(parser, on_null)?,
        optional(parser, base)?,
        optional(parser, byte_order)?,
    ];
    parser.call(row, convert, arguments)
}

fn convert<'a>(arguments: &'a [Expression], frame: Frame<'a>) -> Result<Value<'a>> {
    let input = arguments[0].evaluate(frame)?;
    let to = arguments[1].evaluate(frame)?;
    let kind = target_kind(&to)?;
    if input.is_nullish() {
        return match &arguments[4] {
            Expression::Absent => Ok(Value::NULL),
            on_null => on_null.evaluate(frame),
        };
    }
    let Some(kind) = kind else { return Ok(Value::NULL) };
    let options = options_of(arguments, frame)?;
    let subtype = match makes_binary(input.or_undefined(), kind, &options) {
        true => target_subtype(&to)?,
        false => 0,
    };
    let target = Target { kind, subtype };
    match to::converted(input.or_undefined(), target, &options) {
        Ok(value) => Ok(value),
        // A year that a string cannot have is a failed conversion with a code of its own.
        Err(error) if matches!(error.code(), ErrorCode::ConversionFailure | ErrorCode(18537)) => {
            match &arguments[3] {
                Expression::Absent => Err(error),
                on_error => on_error.evaluate(frame),
            }
        }
        Err(error) => Err(error),
    }
}

/// The type of the target; `None` when it is null or missing.
fn target_kind(to: &Value<'_>) -> Result<Option<u8>> {
    let RawValue::Document(named) = to.or_undefined() else { return kind_of(to.or_undefined()) };
    let kind = named.get("type").map(kind_of).transpose()?.flatten();
    let missing = || Error::failed_to_parse("Missing 'type' parameter to $convert's 'to' object");
    kind.ok_or_else(missing).map(Some)
}

/// Whether a conversion makes binary data. Other conversions do not look at the subtype.
fn makes_binary(input: RawValue<'_>, kind: u8, options: &ConversionOptions) -> bool {
    kind == ty::BINARY
        && match input {
            RawValue::String(_) => options.format.is_some(),
            RawValue::Double(_)
            | RawValue::Int32(_)
            | RawValue::Int64(_)
            | RawValue::Binary { .. } => true,
            _ => false,
        }
}

/// The binary subtype of the target.
fn target_subtype(to: &Value<'_>) -> Result<u8> {
    let named = to.or_undefined().as_document();
    named.and_then(|named| named.get("subtype")).map_or(Ok(0), subtype_of)
}

fn kind_of(value: RawValue<'_>) -> Result<Option<u8>> {
    match value {
        RawValue::Null | RawValue::Undefined => Ok(None),
        RawValue::String(name) => kind_named(name).map(Some),
        number if number.is_number() => {
            let whole = Number::from_value(number).and_then(Number::to_i64_exact);
            let Some(whole) = whole else {
                let text = "In $convert, numeric 'to' argument is not an integer";
                return Err(Error::failed_to_parse(text));
            };
            match whole {
                -1 => Ok(Some(ty::MIN_KEY)),
                // 0 is the type of a missing value, to which nothing can be converted.
                0..=19 | 127 => Ok(Some(whole as u8)),
                _ => {
                    let text = format!(
                        "In $convert, numeric value for 'to' does not correspond to a BSON type: {whole}"
                    );
                    Err(Error::failed_to_parse(text))
                }
            }
        }
        other => {
            let found = other.type_name();
            let text =
                format!("$convert's 'to' argument must be a string or number, but is {found}");
            Err(Error::failed_to_parse(text))
        }
    }
}

fn kind_named(name: &str) -> Result<u8> {
    let known = (1..=19).chain([ty::MIN_KEY, ty::MAX_KEY]);
    for kind in known {
        if mayfly_value::type_name(kind) == name {
            return Ok(kind);
        }
    }
    Err(Error::bad_value(format!("Unknown type name: {name}")))
}

fn subtype_of(value: RawValue<'_>) -> Result<u8> {
    let Some(number) = Number::from_value(value) else {
        let found = value.type_name();
        let text =
            format!("For BinData, $convert's 'subtype' argument must be a number, but is {found}");
        return Err(fault(4_341_108, text));
    };
    let Some(whole) = number.to_i64_exact() else {
        let text = "In $convert, numeric 'subtype' argument is not an integer";
        return Err(fault(4_341_106, text));
    };
    match u8::try_from(whole) {
        Ok(known @ (0..=9 | 128..)) => Ok(known),
        _ => Err(fault(
            4_341_107,
            format!(
                "In $convert, numeric value for 'subtype' does not correspond to a BinData type: {whole}"
            ),
        )),
    }
}

fn options_of(arguments: &[Expression], frame: Frame<'_>) -> Result<ConversionOptions> {
    let mut options = ConversionOptions::default();
    let format = arguments[2].evaluate(frame)?;
    match format.or_undefined() {
        RawValue::Null | RawValue::Undefined => {}
        RawValue::String(name) => match name {
            "base64" | "base64url" | "utf8" | "hex" | "uuid" | "auto" => {
                options.format = Some(name.to_owned());
            }
            other => {
                let text = format!("Invalid 'format' argument for $convert: {other}");
                return Err(fault(4_341_125, text));
            }
        },
        other => {
            let (found, shown) = (format.type_name(), ShellValue(other));
            let text = format!(
                "$convert requires that 'format' be a string, found: {found} with value {shown}"
            );
            return Err(fault(4_341_114, text));
        }
    }
    let base = arguments[5].evaluate(frame)?;
    if !base.is_nullish() {
        let whole = super::operand::long_integer(base.or_undefined());
        let Some(whole) = whole else {
            return Err(fault(3_501_300, "In $convert, 'base' argument is not an integer"));
        };
        match whole {
            2 | 8 | 10 | 16 => options.base = Some(whole as u32),
            _ => {
                return Err(fault(3_501_301, "In $convert, 'base' argument is not a valid base"));
            }
        }
    }
    let order = arguments[6].evaluate(frame)?;
    match order.or_undefined() {
        RawValue::Null | RawValue::Undefined | RawValue::String("little") => {}
        RawValue::String("big") => options.big_endian = true,
        RawValue::String(other) => {
            let text = format!("Invalid 'byteOrder' argument for $convert: {other}");
            return Err(fault(9_130_002, text));
        }
        other => {
            let (found, shown) = (order.type_name(), ShellValue(other));
            let text = format!(
                "$convert requires that 'byteOrder' be a string, found: {found} with value {shown}"
            );
            return Err(fault(9_130_001, text));
        }
    }
    Ok(options)
}

/// Parses `$toInt` and similar operators, which have exactly one argument.
fn parse_short(
    parser: &mut Parser<'_>,
    row: &'static OpRow,
    operand: RawValue<'_>,
) -> Result<Expression> {
    let mut arguments = parser.arguments(operand)?;
    let given = arguments.len();
    match (arguments.pop(), given) {
        (Some(input), 1) => parser.ready(row, run_short, Prepared::Which(row.name), vec![input]),
        _ => {
            let name = row.name;
            Err(fault(50723, format!("{name} requires a single argument, got {given}")))
        }
    }
}

fn run_short<'a>(
    prepared: &'a Prepared,
    arguments: &'a [Expression],
    frame: Frame<'a>,
) -> Result<Value<'a>> {
    let input = arguments[0].evaluate(frame)?;
    if input.is_nullish() {
        return Ok(Value::NULL);
    }
    let mut options = ConversionOptions::default();
    let kind = match prepared {
        Prepared::Which("$toBool") => ty::BOOL,
        Prepared::Which("$toDate") => ty::DATE,
        Prepared::Which("$toDecimal") => ty::DECIMAL,
        Prepared::Which("$toDouble") => ty::DOUBLE,
        Prepared::Which("$toInt") => ty::INT32,
        Prepared::Which("$toLong") => ty::INT64,
        Prepared::Which("$toObjectId") => ty::OBJECT_ID,
        Prepared::Which("$toUUID") => {
            options.format = Some("uuid".to_owned());
            let target = Target { kind: ty::BINARY, subtype: 4 };
            return to::converted(input.or_undefined(), target, &options);
        }
        _ => {
            options.format = Some("auto".to_owned());
            ty::STRING
        }
    };
    to::converted(input.or_undefined(), Target { kind, subtype: 0 }, &options)
}
