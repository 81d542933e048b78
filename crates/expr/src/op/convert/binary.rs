//! Conversions of binary data from and to strings in several formats, and since 8.0 from and to
//! numbers.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use mayfly_base::Result;
use mayfly_value::{RawValue, check_size, ty};

use super::super::operand::{check_text, double, fault, text};
use super::to::{small, unsupported};
use super::{ConversionOptions, Target, conversion_fault};
use crate::Value;

const UUID: u8 = 4;

fn binary(subtype: u8, bytes: &[u8]) -> Result<Value<'static>> {
    check_size(bytes.len())?;
    Ok(Value::Owned(RawValue::Binary { subtype, bytes }.to_owned()))
}

fn from_uuid(digits: &str) -> Option<Vec<u8>> {
    let dashes = [8, 13, 18, 23].iter().all(|at| digits.as_bytes().get(*at) == Some(&b'-'));
    if digits.len() != 36 || !dashes {
        return None;
    }
    hex::decode(digits.replace('-', "")).ok().filter(|bytes| bytes.len() == 16)
}

/// Converts a value to binary data.
pub(super) fn to_binary(
    input: RawValue<'_>,
    target: Target,
    options: &ConversionOptions,
) -> Result<Value<'static>> {
    match input {
        RawValue::Binary { subtype, bytes } if subtype == target.subtype => binary(subtype, bytes),
        RawValue::Binary { .. } => Err(conversion_fault(
            "Conversions between different BinData subtypes are not supported in $convert with no onError value",
        )),
        RawValue::String(value) => from_text(value, target, options),
        RawValue::Int32(value) => number(&value.to_le_bytes(), target, options),
        RawValue::Int64(value) => number(&value.to_le_bytes(), target, options),
        RawValue::Double(value) => number(&value.to_le_bytes(), target, options),
        _ => Err(unsupported(input, target)),
    }
}

fn number(bytes: &[u8], target: Target, options: &ConversionOptions) -> Result<Value<'static>> {
    let mut bytes = bytes.to_vec();
    if options.big_endian {
        bytes.reverse();
    }
    binary(target.subtype, &bytes)
}

fn from_text(value: &str, target: Target, options: &ConversionOptions) -> Result<Value<'static>> {
    let Some(format) = options.format.as_deref() else {
        let text = "Format must be speficied when converting from 'string' to 'binData'";
        return Err(fault(4_341_115, text));
    };
    let fail = |why: &str| {
        conversion_fault(format!("Input '{value}' doesn't match expected format '{format}'{why}"))
    };
    if (format == "uuid") != (target.subtype == UUID) {
        return Err(fail(": Only the 'uuid' format is allowed with the UUID subtype"));
    }
    let bytes = match format {
        "uuid" => from_uuid(value).ok_or_else(|| fail(""))?,
        "auto" => return Err(fail(": Invalid format 'auto'")),
        "base64" => STANDARD.decode(value).map_err(|_| fail(""))?,
        "base64url" => URL_SAFE_NO_PAD.decode(value.trim_end_matches('=')).map_err(|_| fail(""))?,
        "hex" => hex::decode(value).map_err(|_| fail(""))?,
        _ => value.as_bytes().to_vec(),
    };
    binary(target.subtype, &bytes)
}

/// A text of this length; one that is too large is a failed conversion.
fn made(bytes: usize, text_of: impl FnOnce() -> String) -> Result<Value<'static>> {
    check_text(bytes).map_err(|error| conversion_fault(error.message()))?;
    text(&text_of())
}

/// Converts binary data to a string.
pub(super) fn to_text(
    subtype: u8,
    bytes: &[u8],
    options: &ConversionOptions,
) -> Result<Value<'static>> {
    let Some(format) = options.format.as_deref() else {
        let text = "Format must be speficied when converting from 'binData' to 'string'";
        return Err(fault(4_341_115, text));
    };
    let uuid = |bytes: &[u8]| -> Result<Value<'static>> {
        if bytes.len() != 16 {
            return Err(conversion_fault("BinData does not represent a valid UUID"));
        }
        let digits = hex::encode(bytes);
        let parts = [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]];
        text(&parts.join("-"))
    };
    match format {
        "uuid" => uuid(bytes),
        "auto" if subtype == UUID && bytes.len() == 16 => uuid(bytes),
        "hex" => made(bytes.len() * 2, || hex::encode_upper(bytes)),
        "base64url" => made((bytes.len() * 4).div_ceil(3), || URL_SAFE_NO_PAD.encode(bytes)),
        "utf8" => match std::str::from_utf8(bytes) {
            Ok(value) => made(value.len(), || value.to_owned()),
            Err(_) => Err(conversion_fault("BinData does not represent a valid UTF-8 string")),
        },
        _ => made(bytes.len().div_ceil(3) * 4, || STANDARD.encode(bytes)),
    }
}

/// Converts binary data to a number: integers of 1, 2, 4 and 8 bytes, doubles of 4 and 8.
pub(super) fn to_number(
    input: RawValue<'_>,
    bytes: &[u8],
    target: Target,
    options: &ConversionOptions,
) -> Result<Value<'static>> {
    let mut bytes = bytes.to_vec();
    if options.big_endian {
        bytes.reverse();
    }
    let integer = match bytes.as_slice() {
        [a] => Some(i64::from(i8::from_le_bytes([*a]))),
        [a, b] => Some(i64::from(i16::from_le_bytes([*a, *b]))),
        [a, b, c, d] => Some(i64::from(i32::from_le_bytes([*a, *b, *c, *d]))),
        [a, b, c, d, e, f, g, h] => Some(i64::from_le_bytes([*a, *b, *c, *d, *e, *f, *g, *h])),
        _ => None,
    };
    let found = match (target.kind, integer, bytes.as_slice()) {
        (ty::INT32, Some(value), small_bytes) if small_bytes.len() <= 4 => {
            i32::try_from(value).ok().map(small)
        }
        (ty::INT64, Some(value), _) => Some(Value::Borrowed(RawValue::Int64(value))),
        (ty::DOUBLE, _, [a, b, c, d]) => {
            Some(double(f64::from(f32::from_le_bytes([*a, *b, *c, *d]))))
        }
        (ty::DOUBLE, Some(value), whole) if whole.len() == 8 => {
            Some(double(f64::from_bits(value as u64)))
        }
        _ => None,
    };
    let length = bytes.len();
    found.ok_or_else(|| match target.kind {
        ty::INT32 | ty::INT64 | ty::DOUBLE => {
            let to = mayfly_value::type_name(target.kind);
            conversion_fault(format!(
                "Failed to convert '{input:?}' to {to} in $convert with no onError value because of invalid length: {length}"
            ))
        }
        _ => unsupported(input, target),
    })
}
