//! `$binarySize`, `$bsonSize`, `$toHashedIndexKey`, `$tsSecond`, `$tsIncrement`, `$meta`: sizes and
//! parts of values, and metadata.

use mayfly_base::{Error, Result};
use mayfly_value::{RawValue, hashed_key};

use super::operand::{count, fault};
use super::{OpRow, Prepared, list, own};
use crate::parse::Parser;
use crate::{Expression, Frame, Scope, Value};

pub(super) const ROWS: &[OpRow] = &[
    list(
        "$binarySize",
        "4.4",
        "The size of a string or binary data in bytes.",
        (1, 1),
        |args, frame| {
            let value = args[0].evaluate(frame)?;
            match value.or_undefined() {
                RawValue::String(text) => Ok(count(text.len())),
                RawValue::Binary { bytes, .. } => Ok(count(bytes.len())),
                RawValue::Null | RawValue::Undefined => Ok(Value::NULL),
                _ => {
                    let found = value.type_name();
                    let text = format!(
                        "$binarySize requires a string or BinData argument, found: {found}"
                    );
                    Err(fault(51276, text))
                }
            }
        },
    ),
    list("$bsonSize", "4.4", "The size of a document in bytes.", (1, 1), |args, frame| {
        let value = args[0].evaluate(frame)?;
        match value.or_undefined() {
            RawValue::Document(document) => Ok(count(document.as_bytes().len())),
            RawValue::Null | RawValue::Undefined => Ok(Value::NULL),
            _ => {
                let found = value.type_name();
                Err(fault(31393, format!("$bsonSize requires a document input, found: {found}")))
            }
        }
    }),
    list("$toHashedIndexKey", "7.1", "The key of a hashed index.", (1, 1), |args, frame| {
        let value = args[0].evaluate(frame)?;
        let value = value.as_raw().unwrap_or(RawValue::Null);
        Ok(Value::Borrowed(RawValue::Int64(hashed_key(value))))
    }),
    list("$tsSecond", "5.1", "The seconds of a timestamp.", (1, 1), |args, frame| {
        timestamp("$tsSecond", 5_687_301, |value| value >> 32, args, frame)
    }),
    list("$tsIncrement", "5.1", "The increment of a timestamp.", (1, 1), |args, frame| {
        timestamp("$tsIncrement", 5_687_302, |value| value & 0xFFFF_FFFF, args, frame)
    }),
    own("$meta", "2.6", "Metadata of the document.", parse_meta),
];

fn timestamp<'a>(
    name: &str,
    code: i32,
    part: fn(u64) -> u64,
    arguments: &'a [Expression],
    frame: Frame<'a>,
) -> Result<Value<'a>> {
    let value = arguments[0].evaluate(frame)?;
    match value.or_undefined() {
        // Both halves have 32 bits.
        RawValue::Timestamp(value) => Ok(Value::Borrowed(RawValue::Int64(part(value) as i64))),
        RawValue::Null | RawValue::Undefined => Ok(Value::NULL),
        _ => {
            let found = value.type_name();
            let text = format!(" Argument to {name} must be a timestamp, but is {found}");
            Err(fault(code, text))
        }
    }
}

const METADATA: &[&str] = &[
    "textScore",
    "indexKey",
    "recordId",
    "searchScore",
    "searchHighlights",
    "geoNearDistance",
    "geoNearPoint",
    "randVal",
    "searchScoreDetails",
    "searchSequenceToken",
    "sortKey",
    "timeseriesBucketMinTime",
    "timeseriesBucketMaxTime",
    "vectorSearchScore",
    "score",
    "scoreDetails",
    "searchRootDocumentId",
    "stream",
];

/// Metadata that no document here has; `$meta` gives no value.
const ABSENT: &[&str] = &["randVal", "indexKey", "searchScore", "searchHighlights"];

fn parse_meta(
    parser: &mut Parser<'_>,
    row: &'static OpRow,
    operand: RawValue<'_>,
) -> Result<Expression> {
    let name = check_metadata(operand, parser.scope())?;
    // Metadata belongs to the document, so it is not constant.
    let _ = parser.root();
    Ok(reading(row, name))
}

fn reading(row: &'static OpRow, name: &str) -> Expression {
    let prepared = std::sync::Arc::new(Prepared::Name(name.into()));
    Expression::Ready { row, run: meta, prepared, arguments: Vec::new() }
}

/// The expression that reads the metadata of this name.
pub(crate) fn metadata(name: &str) -> Option<Expression> {
    super::find("$meta").map(|row| reading(row, name))
}

/// Parses the operand of `$meta`; returns the name of the metadata.
///
/// # Errors
/// 17307, 17308 for an invalid name, 40218 for metadata that is not available in this scope.
pub fn check_metadata<'v>(operand: RawValue<'v>, scope: &Scope) -> Result<&'v str> {
    let RawValue::String(name) = operand else {
        return Err(fault(17307, "$meta only supports string arguments"));
    };
    if !METADATA.contains(&name) {
        return Err(fault(17308, format!("Unsupported argument to $meta: {name}")));
    }
    if scope.has_metadata(name) || ABSENT.contains(&name) {
        return Ok(name);
    }
    let what = match name {
        "textScore" => "text score",
        "geoNearDistance" => "$geoNear distance",
        "geoNearPoint" => "$geoNear point",
        "sortKey" => "sort key",
        "searchScoreDetails" => "$search score details",
        "searchSequenceToken" => "$search sequence token",
        "vectorSearchScore" => "$vectorSearch score",
        "score" | "scoreDetails" => name,
        other => return Err(Error::not_implemented(format!("$meta of '{other}'"))),
    };
    let text = format!("query requires {what} metadata, but it is not available");
    Err(fault(40218, text))
}

fn meta<'a>(prepared: &'a Prepared, _: &'a [Expression], frame: Frame<'a>) -> Result<Value<'a>> {
    let Prepared::Name(name) = prepared else {
        return Err(Error::internal("$meta without a name"));
    };
    Ok(Value::from(frame.metadata().and_then(|metadata| metadata.get(name))))
}
