//! Shared functions of operators: named arguments, constructed results, errors.

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_value::{DocBuilder, Number, RawValue, ValueBuf, check_depth, check_size, ty};
use mayfly_work::current::spend;

use crate::parse::Parser;
use crate::{Expression, Value};

/// An error with a numeric location as its code.
pub(crate) fn fault(code: i32, text: impl Into<String>) -> Error {
    Error::new(ErrorCode(code), text)
}

/// Counts a constructed value as work, and checks its size.
fn check_made(bytes: usize) -> Result<()> {
    spend(bytes >> 10)?;
    check_size(bytes)
}

/// Size from which on a string is too large for expressions, in bytes.
const TOO_LARGE_TEXT: usize = 16 << 20;

/// Checks the size of a string that an expression contains or constructs.
///
/// # Errors
/// 16493 from 16 MiB on.
pub(crate) fn check_text(bytes: usize) -> Result<()> {
    if bytes < TOO_LARGE_TEXT {
        return Ok(());
    }
    Err(fault(16493, "Tried to create string longer than 16MB"))
}

/// A constructed string.
pub(crate) fn text(text: &str) -> Result<Value<'static>> {
    spend(text.len() >> 10)?;
    check_text(text.len())?;
    Ok(Value::Owned(RawValue::String(text).to_owned()))
}

/// A 32-bit integer value.
pub(crate) fn int(value: i32) -> Value<'static> {
    Value::Borrowed(RawValue::Int32(value))
}

/// A count as a 32-bit integer, as in the reference.
pub(crate) fn count(value: usize) -> Value<'static> {
    int(i32::try_from(value).unwrap_or(i32::MAX))
}

/// A double value.
pub(crate) fn double(value: f64) -> Value<'static> {
    Value::Borrowed(RawValue::Double(value))
}

/// A number as a value of its type.
pub(crate) fn number(value: Number) -> Value<'static> {
    Value::Borrowed(value.to_value())
}

fn made(type_byte: u8, out: DocBuilder) -> Result<Value<'static>> {
    check_made(out.len())?;
    let made = out.finish();
    check_depth(made.as_doc())?;
    Ok(Value::Owned(ValueBuf::from_parts(type_byte, made.into_bytes())))
}

/// A constructed array.
pub(crate) fn array(out: DocBuilder) -> Result<Value<'static>> {
    made(ty::ARRAY, out)
}

/// A constructed document.
pub(crate) fn document(out: DocBuilder) -> Result<Value<'static>> {
    made(ty::DOCUMENT, out)
}

/// Splits an operand of named arguments, in the order of `names`.
///
/// # Errors
/// `shape` if the operand is not a document (it receives the type's name), `unknown` for another
/// name.
pub(super) fn parts<'v, const N: usize>(
    operand: RawValue<'v>,
    names: [&str; N],
    shape: impl Fn(&str) -> Error,
    unknown: impl Fn(&str) -> Error,
) -> Result<[Option<RawValue<'v>>; N]> {
    let RawValue::Document(fields) = operand else { return Err(shape(operand.type_name())) };
    let mut found = [None; N];
    for field in fields {
        match names.iter().position(|name| *name == field.name()) {
            Some(at) => found[at] = Some(field.value()),
            None => return Err(unknown(field.name())),
        }
    }
    Ok(found)
}

/// Parses an optional argument.
pub(super) fn optional(parser: &mut Parser<'_>, part: Option<RawValue<'_>>) -> Result<Expression> {
    part.map_or(Ok(Expression::Absent), |part| parser.parse(part))
}

/// Parses a required argument.
pub(super) fn required(
    parser: &mut Parser<'_>,
    part: Option<RawValue<'_>>,
    missing: impl FnOnce() -> Error,
) -> Result<Expression> {
    parser.parse(part.ok_or_else(missing)?)
}

/// The number as a 32-bit integer; `None` if it is not exactly one.
pub(super) fn small_integer(value: RawValue<'_>) -> Option<i32> {
    i32::try_from(Number::from_value(value)?.to_i64_exact()?).ok()
}

/// The number as a 64-bit integer; `None` if it is not exactly one.
pub(super) fn long_integer(value: RawValue<'_>) -> Option<i64> {
    Number::from_value(value)?.to_i64_exact()
}
