//! Parses extended JSON to values.

use std::fmt;

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::general_purpose::{GeneralPurpose, NO_PAD};

use super::json::{Json, parse};
use crate::DocBuilder;
use crate::decimal::Decimal;
use crate::raw::{DocBuf, RawValue, ValueBuf};

/// Ignores the unused bits of the last digit, which hand-written texts may set.
const BASE64: GeneralPurpose =
    GeneralPurpose::new(&STANDARD, NO_PAD.with_decode_allow_trailing_bits(true));

/// The message of a parse error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExtJsonError(pub(super) String);

impl fmt::Display for ExtJsonError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ExtJsonError {}

/// Reads a document: canonical, relaxed or in the shell-like dialect.
pub fn parse_document(text: &str) -> Result<DocBuf, ExtJsonError> {
    match parse(text)? {
        Json::Object(fields) => build_document(&fields),
        _ => Err(ExtJsonError("expected a document".to_owned())),
    }
}

/// Reads one value.
pub fn parse_value(text: &str) -> Result<ValueBuf, ExtJsonError> {
    let holder = build_document(&[(String::new(), parse(text)?)])?;
    Ok(holder.as_doc().get("").unwrap_or(RawValue::Null).to_owned())
}

fn build_document(fields: &[(String, Json)]) -> Result<DocBuf, ExtJsonError> {
    let mut builder = DocBuilder::new();
    for (name, value) in fields {
        if name.contains('\0') {
            return Err(ExtJsonError("a field name holds a zero byte".to_owned()));
        }
        let value = build_value(value)?;
        builder.append(name, &value);
    }
    Ok(builder.finish())
}

fn build_value(json: &Json) -> Result<ValueBuf, ExtJsonError> {
    Ok(match json {
        Json::Null => RawValue::Null.to_owned(),
        Json::Bool(v) => RawValue::Bool(*v).to_owned(),
        Json::Number(v) => plain_number(v)?,
        Json::String(v) => RawValue::String(v).to_owned(),
        Json::Array(items) => {
            let mut builder = DocBuilder::new_array();
            for item in items {
                let item = build_value(item)?;
                builder.push(&item);
            }
            RawValue::Array(builder.finish().as_doc()).to_owned()
        }
        Json::Object(fields) => match wrapped(fields)? {
            Some(value) => value,
            None => RawValue::Document(build_document(fields)?.as_doc()).to_owned(),
        },
    })
}

fn plain_number(text: &str) -> Result<ValueBuf, ExtJsonError> {
    if let Ok(int) = text.parse::<i32>() {
        if int != 0 || !text.starts_with('-') {
            return Ok(RawValue::Int32(int).to_owned());
        }
    } else if let Ok(long) = text.parse::<i64>() {
        return Ok(RawValue::Int64(long).to_owned());
    }
    number::<f64>(text).map(|v| RawValue::Double(v).to_owned())
}

fn number<T: std::str::FromStr>(text: &str) -> Result<T, ExtJsonError> {
    text.parse().map_err(|_| ExtJsonError(format!("'{text}' is not a number of its type")))
}

/// The value of a wrapper such as `{"$oid": ...}`; `None` for ordinary objects.
fn wrapped(fields: &[(String, Json)]) -> Result<Option<ValueBuf>, ExtJsonError> {
    let Some((name, first)) = fields.first() else {
        return Ok(None);
    };
    let value = match (name.as_str(), first, fields.len()) {
        ("$oid", Json::String(v), 1) => RawValue::ObjectId(object_id(v)?).to_owned(),
        ("$symbol", Json::String(v), 1) => RawValue::Symbol(v).to_owned(),
        ("$numberInt", Json::String(v), 1) => RawValue::Int32(number(v)?).to_owned(),
        ("$numberLong", Json::String(v), 1) => RawValue::Int64(number(v)?).to_owned(),
        ("$numberDouble", Json::String(v), 1) => RawValue::Double(number(v)?).to_owned(),
        ("$numberDecimal", Json::String(v), 1) => {
            let decimal = Decimal::parse(v).ok_or_else(|| bad("$numberDecimal"))?;
            RawValue::Decimal128(decimal.to_bytes()).to_owned()
        }
        ("$date", v, 1) => RawValue::Date(date(v)?).to_owned(),
        ("$timestamp", Json::Object(parts), 1) => {
            let (seconds, increment) = (integer(parts, "t")?, integer(parts, "i")?);
            RawValue::Timestamp(u64::from(seconds) << 32 | u64::from(increment)).to_owned()
        }
        ("$binary", Json::Object(parts), 1) => binary(parts)?,
        ("$regularExpression", Json::Object(parts), 1) => {
            let (pattern, options) = (text(parts, "pattern")?, text(parts, "options")?);
            if pattern.contains('\0') || options.contains('\0') {
                return Err(bad("$regularExpression"));
            }
            RawValue::Regex { pattern, options }.to_owned()
        }
        ("$dbPointer", Json::Object(parts), 1) => {
            let id = parts.iter().find(|(name, _)| name == "$id");
            match id.map(|(_, id)| build_value(id)).transpose()?.as_ref().map(ValueBuf::as_raw) {
                Some(RawValue::ObjectId(id)) => {
                    RawValue::DbPointer { ns: text(parts, "$ref")?, id }.to_owned()
                }
                _ => return Err(bad("$dbPointer")),
            }
        }
        ("$code", Json::String(v), 1) => RawValue::Code(v).to_owned(),
        ("$code", Json::String(code), 2) => match &fields[1] {
            (name, Json::Object(scope)) if name == "$scope" => {
                let scope = build_document(scope)?;
                RawValue::CodeWithScope { code, scope: scope.as_doc() }.to_owned()
            }
            _ => return Err(bad("$code")),
        },
        ("$minKey", Json::Number(_), 1) => RawValue::MinKey.to_owned(),
        ("$maxKey", Json::Number(_), 1) => RawValue::MaxKey.to_owned(),
        ("$undefined", Json::Bool(true), 1) => RawValue::Undefined.to_owned(),
        _ => return Ok(None),
    };
    Ok(Some(value))
}

fn bad(wrapper: &str) -> ExtJsonError {
    ExtJsonError(format!("malformed {wrapper}"))
}

fn text<'a>(parts: &'a [(String, Json)], name: &str) -> Result<&'a str, ExtJsonError> {
    match parts.iter().find(|(part, _)| part == name) {
        Some((_, Json::String(value))) => Ok(value),
        _ => Err(bad(name)),
    }
}

fn integer(parts: &[(String, Json)], name: &str) -> Result<u32, ExtJsonError> {
    match parts.iter().find(|(part, _)| part == name) {
        Some((_, Json::Number(value))) => number(value),
        _ => Err(bad(name)),
    }
}

fn object_id(hex: &str) -> Result<[u8; 12], ExtJsonError> {
    bson::oid::ObjectId::parse_str(hex).map(|id| id.bytes()).map_err(|_| bad("$oid"))
}

fn date(value: &Json) -> Result<i64, ExtJsonError> {
    match value {
        Json::String(text) => bson::DateTime::parse_rfc3339_str(text)
            .map(bson::DateTime::timestamp_millis)
            .map_err(|_| bad("$date")),
        Json::Number(ms) => number(ms),
        Json::Object(fields) => match wrapped(fields)?.as_ref().map(ValueBuf::as_raw) {
            Some(RawValue::Int64(ms)) => Ok(ms),
            _ => Err(bad("$date")),
        },
        _ => Err(bad("$date")),
    }
}

fn binary(parts: &[(String, Json)]) -> Result<ValueBuf, ExtJsonError> {
    let subtype = u8::from_str_radix(text(parts, "subType")?, 16).map_err(|_| bad("$binary"))?;
    let base64 = text(parts, "base64")?.trim_end_matches('=');
    let bytes = BASE64.decode(base64).map_err(|_| bad("$binary"))?;
    Ok(RawValue::Binary { subtype, bytes: &bytes }.to_owned())
}
