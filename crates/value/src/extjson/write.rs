//! Formats values as extended JSON.

use std::fmt::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::decimal::Decimal;
use crate::raw::{RawDoc, RawValue};

/// The variant of extended JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// Version 2, canonical: keeps every type.
    Canonical,
    /// Version 2, relaxed: plain JSON numbers and readable dates.
    Relaxed,
    /// Version 1, strict mode, for the reference's audit log: binary values as `{"$binary": "...",
    /// "$type": "04"}`, dates with milliseconds and an offset. Written, not read.
    First,
}

/// Formats a document.
pub fn to_string(doc: RawDoc<'_>, style: Style) -> String {
    value_to_string(RawValue::Document(doc), style)
}

/// Formats a value.
pub fn value_to_string(value: RawValue<'_>, style: Style) -> String {
    let mut out = String::new();
    put_value(&mut out, value, style);
    out
}

fn put_value(out: &mut String, value: RawValue<'_>, style: Style) {
    // Writing to a String cannot fail.
    let mut put = |text: std::fmt::Arguments<'_>| {
        let _ = out.write_fmt(text);
    };
    let relaxed = style != Style::Canonical;
    let first = style == Style::First;
    match value {
        RawValue::MinKey => put(format_args!(r#"{{"$minKey":1}}"#)),
        RawValue::Undefined => put(format_args!(r#"{{"$undefined":true}}"#)),
        RawValue::Null => put(format_args!("null")),
        RawValue::Double(v) if relaxed && v.is_finite() => put(format_args!("{v:?}")),
        RawValue::Double(v) => put(format_args!(r#"{{"$numberDouble":"{}"}}"#, DoubleText(v))),
        RawValue::Int32(v) if relaxed => put(format_args!("{v}")),
        RawValue::Int32(v) => put(format_args!(r#"{{"$numberInt":"{v}"}}"#)),
        RawValue::Int64(v) if relaxed && !first => put(format_args!("{v}")),
        RawValue::Int64(v) => put(format_args!(r#"{{"$numberLong":"{v}"}}"#)),
        RawValue::Decimal128(v) => {
            let bytes = Decimal::from_bytes(v).to_bytes();
            let text = bson::Decimal128::from_bytes(bytes);
            put(format_args!(r#"{{"$numberDecimal":"{text}"}}"#));
        }
        RawValue::String(v) => put_text(out, v),
        RawValue::Symbol(v) => put_wrapped(out, "$symbol", v),
        RawValue::Document(v) => put_document(out, v, style),
        RawValue::Array(v) => put_array(out, v, style),
        RawValue::Binary { subtype, bytes } => put_binary(out, subtype, bytes, style),
        RawValue::ObjectId(v) => put(format_args!(r#"{{"$oid":"{}"}}"#, hex::encode(v))),
        RawValue::Bool(v) => put(format_args!("{v}")),
        RawValue::Date(v) => match iso_date(v, style) {
            Some(text) => put(format_args!(r#"{{"$date":"{text}"}}"#)),
            None => put(format_args!(r#"{{"$date":{{"$numberLong":"{v}"}}}}"#)),
        },
        RawValue::Timestamp(v) => {
            let (seconds, increment) = (v >> 32, v & 0xFFFF_FFFF);
            put(format_args!(r#"{{"$timestamp":{{"t":{seconds},"i":{increment}}}}}"#));
        }
        RawValue::Regex { pattern, options } => put_regex(out, pattern, options, style),
        RawValue::DbPointer { ns, id } => {
            out.push_str(r#"{"$dbPointer":{"$ref":"#);
            put_text(out, ns);
            let _ = write!(out, r#","$id":{{"$oid":"{}"}}}}}}"#, hex::encode(id));
        }
        RawValue::Code(v) => put_wrapped(out, "$code", v),
        RawValue::CodeWithScope { code, scope } => {
            out.push_str(r#"{"$code":"#);
            put_text(out, code);
            out.push_str(r#","$scope":"#);
            put_document(out, scope, style);
            out.push('}');
        }
        RawValue::MaxKey => put(format_args!(r#"{{"$maxKey":1}}"#)),
    }
}

fn put_binary(out: &mut String, subtype: u8, bytes: &[u8], style: Style) {
    let base64 = STANDARD.encode(bytes);
    let _ = match style {
        Style::First => write!(out, r#"{{"$binary":"{base64}","$type":"{subtype:02x}"}}"#),
        _ => write!(out, r#"{{"$binary":{{"base64":"{base64}","subType":"{subtype:02x}"}}}}"#),
    };
}

fn put_regex(out: &mut String, pattern: &str, options: &str, style: Style) {
    let [before, between, after] = match style {
        Style::First => [r#"{"$regex":"#, r#","$options":"#, "}"],
        _ => [r#"{"$regularExpression":{"pattern":"#, r#","options":"#, "}}"],
    };
    out.push_str(before);
    put_text(out, pattern);
    out.push_str(between);
    put_text(out, options);
    out.push_str(after);
}

struct DoubleText(f64);

impl std::fmt::Display for DoubleText {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            v if v.is_nan() => f.write_str("NaN"),
            f64::INFINITY => f.write_str("Infinity"),
            f64::NEG_INFINITY => f.write_str("-Infinity"),
            v => write!(f, "{v:?}"),
        }
    }
}

fn put_wrapped(out: &mut String, wrapper: &str, text: &str) {
    out.push('{');
    put_text(out, wrapper);
    out.push(':');
    put_text(out, text);
    out.push('}');
}

fn put_document(out: &mut String, doc: RawDoc<'_>, style: Style) {
    out.push('{');
    for (at, element) in doc.iter().enumerate() {
        if at > 0 {
            out.push(',');
        }
        put_text(out, element.name());
        out.push(':');
        put_value(out, element.value(), style);
    }
    out.push('}');
}

fn put_array(out: &mut String, array: RawDoc<'_>, style: Style) {
    out.push('[');
    for (at, element) in array.iter().enumerate() {
        if at > 0 {
            out.push(',');
        }
        put_value(out, element.value(), style);
    }
    out.push(']');
}

fn put_text(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c < ' ' => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

/// A date of the years 1970 to 9999 in the format of RFC 3339; `None` where it is written as a
/// number.
fn iso_date(ms: i64, style: Style) -> Option<String> {
    if style == Style::Canonical || !(0..253_402_300_800_000).contains(&ms) {
        return None;
    }
    let text = |ms| bson::DateTime::from_millis(ms).try_to_rfc3339_string().ok();
    match style {
        Style::First => {
            let whole = text(ms - ms % 1000)?;
            Some(format!("{}.{:03}+00:00", whole.trim_end_matches('Z'), ms % 1000))
        }
        Style::Relaxed | Style::Canonical => text(ms),
    }
}
