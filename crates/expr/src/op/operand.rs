//! What operators share in taking operands apart and giving results: named parts, results of their own, faults.

use mayfly_base::{Error, ErrorCode, Result};
use mayfly_value::{DocBuilder, Number, RawValue, ValueBuf, check_depth, check_size, ty};
use mayfly_work::current::spend;

use crate::parse::Parser;
use crate::{Expression, Value};

/// An error with a numbered location as its code.
pub(crate) fn fault(code: i32, text: impl Into<String>) -> Error {
    Error::new(ErrorCode(code), text)
}

/// A value that was made has a size, and making it was work.
fn check_made(bytes: usize) -> Result<()> {
    spend(bytes >> 10)?;
    check_size(bytes)
}

/// A text of its own.
pub(crate) fn text(text: &str) -> Result<Value<'static>> {
    check_made(text.len())?;
    Ok(Value::Owned(RawValue::String(text).to_owned()))
}

/// A 32-bit integer.
pub(crate) fn int(value: i32) -> Value<'static> {
    Value::Borrowed(RawValue::Int32(value))
}

/// A count as the reference gives it: a 32-bit integer.
pub(crate) fn count(value: usize) -> Value<'static> {
    int(i32::try_from(value).unwrap_or(i32::MAX))
}

/// A double.
pub(crate) fn double(value: f64) -> Value<'static> {
    Value::Borrowed(RawValue::Double(value))
}

/// A number.
pub(crate) fn number(value: Number) -> Value<'static> {
    Value::Borrowed(value.to_value())
}

fn made(type_byte: u8, out: DocBuilder) -> Result<Value<'static>> {
    check_made(out.len())?;
    let made = out.finish();
    check_depth(made.as_doc())?;
    Ok(Value::Owned(ValueBuf::from_parts(type_byte, made.into_bytes())))
}

/// A finished array.
pub(crate) fn array(out: DocBuilder) -> Result<Value<'static>> {
    made(ty::ARRAY, out)
}

/// A finished document.
pub(crate) fn document(out: DocBuilder) -> Result<Value<'static>> {
    made(ty::DOCUMENT, out)
}

/// Takes an operand of named parts apart, in the order of `names`.
///
/// # Errors
/// `shape` for what is no document (it gets the type's name), `unknown` for a name that is not among them.
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

/// A part that may be left out.
pub(super) fn optional(parser: &mut Parser<'_>, part: Option<RawValue<'_>>) -> Result<Expression> {
    part.map_or(Ok(Expression::Absent), |part| parser.parse(part))
}

/// A part that may not be left out.
pub(super) fn required(
    parser: &mut Parser<'_>,
    part: Option<RawValue<'_>>,
    missing: impl FnOnce() -> Error,
) -> Result<Expression> {
    parser.parse(part.ok_or_else(missing)?)
}

/// The integer in a number that a 32-bit integer can hold.
pub(super) fn small_integer(value: RawValue<'_>) -> Option<i32> {
    i32::try_from(Number::from_value(value)?.to_i64_exact()?).ok()
}

/// The 64-bit integer that a value is.
pub(super) fn long_integer(value: RawValue<'_>) -> Option<i64> {
    Number::from_value(value)?.to_i64_exact()
}
